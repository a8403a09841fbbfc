"""SoundFeatures of sound: a vector of log-mel energies or of cepstral coefficients for every 10 ms.

    frame      xₜ[n] = w[n] s[t·step + n - N/2],   w Hann's window, N the size of the Fourier transform
    log-mel    ln max(10⁻¹⁰, M |FFT xₜ|²)          M triangles on the mel scale of Slaney, each of area 1
    MFCC       DCT of 10 log₁₀ of the mel energies, the first coefficients

These are librosa's conventions. The signal is continued by zeros on both sides. Blocks of a long file give the frames of
the whole file in constant memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from seqloom.errors import ConfigError, DataError

if TYPE_CHECKING:
    from seqloom.fused.mel_energies import SparseFilters

FLOOR = 1e-10  # of mel energies
CHUNK = 256  # frames transformed at a time: their spectra stay in the cache
GROUP = 16  # mel filters multiplied at a time: each group reads a part of the frequencies only
DELTA_REACH = 2  # frames on each side of a delta
MIN_DEVIATION = 1e-5
Kind = Literal["logmel", "mfcc", "ready"]


@dataclass(frozen=True)
class SoundFeatures:
    """How sound becomes frames: the kind, the samples a second, the numbers of a frame, its window and step in seconds.

    `filters` are the mel filters of MFCC, by default the larger of 40 and `bins`. `deltas` adds the slope of every number, and its
    slope, by 2. `normalize` gives each number mean 0 and deviation 1 over its recording (CMVN). `ready` features are made elsewhere.
    """

    kind: Kind = "logmel"
    rate: int = 16_000
    bins: int = 40
    window: float = 0.025
    step: float = 0.010
    filters: int | None = None
    deltas: int = 0
    normalize: bool = True

    def __post_init__(self) -> None:
        if not 2_000 <= self.rate <= 192_000:
            raise ConfigError(
                f"corpus.rate={self.rate}: give 2,000 to 192,000 samples a second, such as 16000"
            )
        if not (0.001 <= self.window <= 1 and 0.001 <= self.step <= 1):
            raise ConfigError(
                f"corpus.window={self.window:g}, corpus.step={self.step:g}: give seconds from 0.001 to 1, such as 0.025 and 0.01"
            )
        if not 0 <= self.deltas <= 2 or self.bins < 1:
            raise ConfigError(
                f"corpus.deltas={self.deltas}, corpus.bins={self.bins}: give deltas from 0 to 2 and at least one bin"
            )
        if self.kind != "ready" and not self.bins <= self.num_filters <= self.fft_size // 2:
            raise ConfigError(
                f"corpus.bins={self.bins}: {self.num_filters} mel filters do not fit a window of {self.window_size} samples; give fewer"
            )

    @property
    def dim(self) -> int:
        """The numbers of a frame."""
        return self.bins * (1 + self.deltas)

    @property
    def num_filters(self) -> int:
        return self.bins if self.kind == "logmel" else self.filters or max(40, self.bins)

    @property
    def window_size(self) -> int:
        """Samples of a window."""
        return round(self.window * self.rate)

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return round(self.step * self.rate)

    @property
    def fft_size(self) -> int:
        """The power of 2 that holds a window."""
        return 1 << (self.window_size - 1).bit_length()

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """The frames of a recording: (n,) float32 → (1 + n // hop, dim) float32."""
        return self.finish(np.concatenate(list(self.stream([samples]))))

    def stream(self, blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yields frames, (t, bins), as blocks of samples arrive, before deltas and normalisation."""
        stream = FrameStream(self)
        for block in blocks:
            if len(frames := stream.push(block)):
                yield frames
        yield stream.finish()

    def transform(self, samples: np.ndarray, count: int) -> np.ndarray:
        """The first `count` frames of samples that begin where the first window does."""
        from seqloom.fused.mel_energies import mel_energies

        filters = mel_filter_spans(self.rate, self.fft_size, self.num_filters)
        mel = mel_energies(samples, count, self.hop, hann(self.window_size, self.fft_size), filters)
        if mel is None:
            mel = self.plain_energies(samples, count)
        np.maximum(mel, FLOOR, out=mel)
        if self.kind == "logmel":
            return np.log(mel, out=mel)
        return 10 * np.log10(mel) @ cosines(self.num_filters, self.bins)

    def plain_energies(self, samples: np.ndarray, count: int) -> np.ndarray:
        """M |FFT xₜ|² for the first `count` frames: (count, filters)."""
        import torch

        window, mel = hann(self.window_size, self.fft_size), np.empty((count, self.num_filters), np.float32)
        frames = np.lib.stride_tricks.sliding_window_view(samples, self.fft_size)[:: self.hop][:count]
        for start in range(0, count, CHUNK):
            part = slice(start, start + CHUNK)
            parts = torch.view_as_real(torch.fft.rfft(torch.from_numpy(frames[part] * window))).numpy()
            parts *= parts
            power = parts[..., 0] + parts[..., 1]
            for first, low, high, filters in filter_groups(self.rate, self.fft_size, self.num_filters):
                mel[part, first : first + GROUP] = power[:, low:high] @ filters
        return mel

    def finish(self, frames: np.ndarray) -> np.ndarray:
        """Deltas and normalisation of all frames of a recording: (T, bins) → (T, dim)."""
        parts = [np.asarray(frames, np.float32)]
        for _ in range(self.deltas):
            parts.append(slopes(parts[-1]))
        joined = np.concatenate(parts, 1) if self.deltas else parts[0]
        return normalized(joined) if self.normalize else joined

    def ready(self, frames: np.ndarray) -> np.ndarray:
        """Frames that were made elsewhere, (T, bins), with deltas and normalisation; raises if they cannot be used."""
        frames = np.asarray(frames)
        if frames.ndim != 2 or frames.dtype.kind not in "fiu":
            raise DataError(
                f"an array of {frames.dtype} of shape {frames.shape} instead of frames; give numbers (frames, {self.bins})"
            )
        if frames.shape[1] != self.bins:
            raise DataError(
                f"frames of {frames.shape[1]} numbers, but {self.bins} are needed; give the same features as in training"
            )
        if not len(frames):
            raise DataError("no frames; leave the recording out")
        frames = frames.astype(np.float32)
        if not np.isfinite(frames).all():
            row = int(np.flatnonzero(~np.isfinite(frames).all(1))[0])
            raise DataError(f"frame {row} has NaN or infinity; compute the features again")
        return self.finish(frames)


class FrameStream:
    """Frames of sound that arrives piece by piece: those of all pieces together are the frames of the whole."""

    def __init__(self, features: SoundFeatures):
        self.features = features
        self.held = np.zeros(features.fft_size // 2, np.float32)  # samples that later windows read
        self.num_samples = 0
        self.num_frames = 0

    def push(self, samples: np.ndarray) -> np.ndarray:
        """The frames whose windows are complete after these samples: (t, bins)."""
        self.num_samples += len(samples)
        self.held = np.concatenate([self.held, np.asarray(samples, np.float32)])
        return self.take(max(0, (len(self.held) - self.features.fft_size) // self.features.hop + 1))

    def finish(self) -> np.ndarray:
        """The last frames, whose windows reach beyond the end: (t, bins)."""
        if not self.num_samples:
            raise DataError("no samples: a recording has at least one")
        count = 1 + self.num_samples // self.features.hop - self.num_frames
        needed = (count - 1) * self.features.hop + self.features.fft_size
        self.held = np.pad(self.held, (0, max(0, needed - len(self.held))))
        return self.take(count)

    def take(self, count: int) -> np.ndarray:
        if count <= 0:
            return np.zeros((0, self.features.bins), np.float32)
        frames = self.features.transform(self.held, count)
        self.num_frames += count
        self.held = self.held[count * self.features.hop :]
        return frames


@lru_cache(8)
def hann(size: int, fft_size: int) -> np.ndarray:
    """w[n] = ½ - ½ cos(2πn / size), in the middle of `fft_size` samples."""
    window = np.zeros(fft_size, np.float32)
    left = (fft_size - size) // 2
    window[left : left + size] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    return window


def hertz_to_mel(hertz: np.ndarray) -> np.ndarray:
    """Slaney's scale: linear up to 1 kHz, 3 mel for 200 Hz; above it logarithmic, 27 mel for a factor of 6.4."""
    hertz = np.asarray(hertz, np.float64)
    return np.where(
        hertz < 1000, hertz * 3 / 200, 15 + np.log(np.maximum(hertz, 1000) / 1000) * 27 / np.log(6.4)
    )


def mel_to_hertz(mel: np.ndarray) -> np.ndarray:
    """The inverse of `hertz_to_mel`."""
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (np.maximum(mel, 15) - 15)))


@lru_cache(8)
def mel_filters(rate: int, fft_size: int, count: int) -> np.ndarray:
    """Triangles between neighbours of count + 2 points, equally far apart in mel from 0 to rate / 2, each of area 1 in Hz:
    (N / 2 + 1, count) float32."""
    points = mel_to_hertz(np.linspace(0, hertz_to_mel(np.array(rate / 2)), count + 2))
    hertz = np.linspace(0, rate / 2, fft_size // 2 + 1)[:, None]
    left, centre, right = points[:-2], points[1:-1], points[2:]
    triangles = np.minimum((hertz - left) / (centre - left), (right - hertz) / (right - centre))
    return (np.maximum(0, triangles) * 2 / (right - left)).astype(np.float32)


@lru_cache(8)
def filter_groups(rate: int, fft_size: int, count: int) -> list[tuple[int, int, int, np.ndarray]]:
    """The mel filters in groups: the first filter, the frequencies that its group reads, and the filters there."""
    filters = mel_filters(rate, fft_size, count)
    groups = []
    for first in range(0, count, GROUP):
        part = filters[:, first : first + GROUP]
        used = np.flatnonzero(part.any(1))
        low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
        groups.append((first, low, high, np.ascontiguousarray(part[low:high])))
    return groups


@lru_cache(8)
def mel_filter_spans(rate: int, fft_size: int, count: int) -> SparseFilters:
    """The mel filters without their zeros."""
    from seqloom.fused.mel_energies import sparse_filters

    return sparse_filters(mel_filters(rate, fft_size, count))


@lru_cache(8)
def cosines(size: int, count: int) -> np.ndarray:
    """The orthonormal DCT-II: C[n, k] = √(2 / N) cos(πk (2n + 1) / 2N), the first column divided by √2: (size, count) float32."""
    table = np.sqrt(2 / size) * np.cos(
        np.pi * np.arange(count) * (2 * np.arange(size)[:, None] + 1) / (2 * size)
    )
    table[:, 0] /= np.sqrt(2)
    return table.astype(np.float32)


def slopes(frames: np.ndarray) -> np.ndarray:
    """dₜ = Σₙ n (xₜ₊ₙ - xₜ₋ₙ) / 2 Σₙ n²,   n = 1, 2; the first and the last frame are repeated beyond the ends."""
    padded = np.pad(frames, ((DELTA_REACH, DELTA_REACH), (0, 0)), mode="edge")
    total = np.zeros_like(frames)
    for n in range(1, DELTA_REACH + 1):
        ahead = padded[DELTA_REACH + n : DELTA_REACH + n + len(frames)]
        behind = padded[DELTA_REACH - n : DELTA_REACH - n + len(frames)]
        total += n * (ahead - behind)
    return total / np.float32(2 * sum(n * n for n in range(1, DELTA_REACH + 1)))


def normalized(frames: np.ndarray) -> np.ndarray:
    """(x - μ) / σ of each column over all rows: cepstral mean and variance normalisation."""
    mean = frames.mean(0, dtype=np.float64)
    deviation = np.maximum(frames.std(0, dtype=np.float64), MIN_DEVIATION)
    return ((frames - mean) / deviation).astype(np.float32)

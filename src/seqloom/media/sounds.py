"""Sound files as samples: one channel, float32 from -1 to 1, at the rate that is asked for, in blocks of bounded memory.

soundfile (extra `audio`) reads the formats of FORMATS; channels are averaged; scipy's polyphase filter resamples. Nothing is
recorded, played or written here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from seqloom.errors import DataError

FORMATS = {  # with the suffixes of their files
    "WAV": (".wav",),
    "FLAC": (".flac",),
    "Ogg": (".ogg", ".oga", ".opus"),
    "AIFF": (".aiff", ".aif"),
    "MP3": (".mp3",),
}
SUFFIXES = tuple(suffix for suffixes in FORMATS.values() for suffix in suffixes)
MIN_RATE, MAX_RATE = 2_000, 768_000  # samples a second
MAX_SECONDS = 24 * 3600  # of one file
MAX_CHANNELS = 64
BLOCK_SECONDS = 30
ZEROS = 10  # zero crossings of the resampling filter on each side, as in scipy.signal.resample_poly


class SoundInfo(NamedTuple):
    """What the header of a sound file says."""

    rate: int
    samples: int
    channels: int

    @property
    def seconds(self) -> float:
        return self.samples / self.rate


def format_names() -> str:
    """WAV, FLAC, … or MP3"""
    *names, last = FORMATS
    return f"{', '.join(names)} or {last}"


def import_soundfile() -> ModuleType:
    """The package soundfile; raises with the remedy if it is not installed."""
    try:
        import soundfile
    except (ImportError, OSError) as error:
        raise DataError(
            f"sound files need soundfile ({error}); install it with: pip install 'seqloom[audio]'"
        ) from None
    return soundfile


def sound_info(path: str | Path) -> SoundInfo:
    """The header of a sound file; raises if it is missing, empty, damaged or not a sound."""
    path = Path(path)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise DataError(f"{path}: {found}; give a sound file")
    if not path.stat().st_size:
        raise DataError(f"{path}: the file is empty; record it again, or leave it out")
    soundfile = import_soundfile()
    try:
        info = soundfile.info(str(path))
    except (soundfile.SoundFileError, RuntimeError, TypeError) as error:
        raise unreadable(path, error) from None
    if not MIN_RATE <= info.samplerate <= MAX_RATE or not 1 <= info.channels <= MAX_CHANNELS:
        raise DataError(
            f"{path}: {info.samplerate:,} samples a second on {info.channels} channels; give sound of "
            f"{MIN_RATE:,} to {MAX_RATE:,} on at most {MAX_CHANNELS}"
        )
    if not info.frames:
        raise DataError(f"{path}: no samples after the header; record it again, or leave it out")
    sound = SoundInfo(info.samplerate, info.frames, info.channels)
    if sound.seconds > MAX_SECONDS:
        hours = f"{sound.seconds / 3600:.0f} hours"
        raise DataError(f"{path}: {hours} by its header, more than {MAX_SECONDS // 3600}; cut it into files")
    return sound


def unreadable(path: Path, error: Exception) -> DataError:
    """The error for a file that soundfile cannot read, with what the file is if its first bytes say so."""
    with path.open("rb") as file:
        start = file.read(16)
    kinds = {
        b"%PDF": "a PDF",
        b"PK\x03\x04": "a zip archive",
        b"\x89PNG": "a PNG picture",
        b"\xff\xd8\xff": "a JPEG",
    }
    kind = next((name for magic, name in kinds.items() if start.startswith(magic)), None)
    reason = f"{kind}, whatever its name says" if kind else str(error).rstrip(". ").rpartition(": ")[2]
    return DataError(f"{path}: not a sound that can be read ({reason}); give {format_names()}")


def read_blocks(path: str | Path, rate: int, seconds: float = BLOCK_SECONDS) -> Iterator[np.ndarray]:
    """Yields the samples of a file at `rate`, in blocks of about `seconds`; joined, they are those of the whole file."""
    info = sound_info(path)
    soundfile = import_soundfile()
    blocks = mono_blocks(soundfile, Path(path), info, max(1, round(seconds * info.rate)))
    yield from blocks if info.rate == rate else resample_blocks(blocks, info.rate, rate)


def mono_blocks(soundfile: ModuleType, path: Path, info: SoundInfo, size: int) -> Iterator[np.ndarray]:
    """Yields the mean of the channels, `size` samples at a time."""
    seen = 0
    try:
        with soundfile.SoundFile(str(path)) as file:
            while len(block := file.read(size, dtype="float32", always_2d=True)):
                mono = block[:, 0] if info.channels == 1 else block.mean(1, dtype=np.float32)
                if not np.isfinite(mono).all():
                    raise DataError(f"{path}: a sample is NaN or infinite; write the file again")
                seen += len(mono)
                yield mono
    except (soundfile.SoundFileError, RuntimeError) as error:
        raise unreadable(path, error) from None
    if not seen:
        raise DataError(f"{path}: no samples after the header; record it again, or leave it out")


def load_sound(path: str | Path, rate: int) -> np.ndarray:
    """The samples of a file at `rate`: (n,) float32."""
    return np.concatenate(list(read_blocks(path, rate)))


def resample_blocks(blocks: Iterator[np.ndarray], old: int, new: int) -> Iterator[np.ndarray]:
    """Yields samples at the rate `new`, from blocks at the rate `old`; as scipy.signal.resample_poly of all blocks joined.

    Each block is filtered with as many samples around it as the filter is wide, so that a border changes nothing.
    """
    divisor = math.gcd(old, new)
    up, down = new // divisor, old // divisor
    margin = down * -(-(ZEROS * max(up, down) // up + 2) // down)  # samples of context, whole output samples
    held = np.zeros(0, np.float32)  # the context before the next block, and what is not yet filtered
    before = 0  # samples of context in `held`
    for block in blocks:
        held = np.concatenate([held, block])
        ready = (len(held) - before - margin) // down * down
        if ready <= 0:
            continue
        yield filtered(held[: before + ready + margin], up, down, before, ready)
        keep = min(margin, before + ready)
        held, before = held[before + ready - keep :], keep
    if len(held) > before:
        yield filtered(held, up, down, before, len(held) - before)


def filtered(samples: np.ndarray, up: int, down: int, start: int, count: int) -> np.ndarray:
    """Samples `start` to `start + count` at the new rate, of resampled `samples`; `start` is a multiple of `down`."""
    from scipy.signal import resample_poly

    resampled = resample_poly(samples, up, down)
    first = start * up // down
    return resampled[first : first - (-count * up // down)].astype(np.float32)

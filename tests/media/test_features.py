"""SoundFeatures of sound against librosa, and sound files against what was written into them."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import librosa
import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from seqloom.errors import ConfigError, DataError
from seqloom.fused.dispatch import plain
from seqloom.media.features import FrameStream, SoundFeatures, normalized, slopes
from seqloom.media.recordings import Recording
from seqloom.media.sounds import SUFFIXES, load_sound, read_blocks, resample_blocks, sound_info


def chirp(seconds: float, rate: int = 16_000) -> np.ndarray:
    """A tone that rises, in noise."""
    time = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(0).normal(size=len(time))
    return (0.3 * np.sin(2 * np.pi * (200 + 400 * time) * time) + 0.02 * noise).astype(np.float32)


def librosa_mel(samples: np.ndarray, rate: int, bins: int) -> np.ndarray:
    size = 1 << (round(0.025 * rate) - 1).bit_length()
    return librosa.feature.melspectrogram(
        y=samples,
        sr=rate,
        n_fft=size,
        win_length=round(0.025 * rate),
        hop_length=round(0.01 * rate),
        n_mels=bins,
        pad_mode="constant",
    )


@pytest.mark.parametrize(("rate", "bins"), [(16_000, 80), (16_000, 40), (8_000, 23), (44_100, 64)])
def test_log_mel_is_librosas(rate: int, bins: int) -> None:
    samples = chirp(2.3, rate)
    ours = SoundFeatures("logmel", rate, bins, normalize=False)(samples)
    theirs = np.log(np.maximum(librosa_mel(samples, rate, bins), 1e-10)).T
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < 1e-4


@pytest.mark.parametrize("window", [0.008, 0.025, 0.0319, 0.064])
@pytest.mark.parametrize("rate", [2_000, 8_000, 16_000, 22_050, 48_000])
def test_the_compiled_energies_are_the_plain_ones(rate: int, window: float) -> None:
    features = SoundFeatures("logmel", rate, 4, window, normalize=False)
    for seconds in (0.003, 0.4, 1.03):
        samples = chirp(seconds, rate)
        fast = features(samples)
        with plain():
            assert np.abs(fast - features(samples)).max() < 2e-5
        assert np.array_equal(features(np.zeros_like(samples)), np.full_like(fast, np.log(np.float32(1e-10))))


def test_mfcc_is_librosas() -> None:
    samples = chirp(1.7)
    ours = SoundFeatures("mfcc", bins=13, normalize=False)(samples)
    decibels = librosa.power_to_db(librosa_mel(samples, 16_000, 40), top_db=None)
    assert np.abs(ours - librosa.feature.mfcc(S=decibels, n_mfcc=13).T).max() < 1e-4


def test_deltas_are_librosas() -> None:
    frames = np.random.default_rng(0).normal(size=(50, 13)).astype(np.float32)
    theirs = librosa.feature.delta(frames, width=5, axis=0, mode="nearest")
    assert np.abs(slopes(frames) - theirs)[3:-3].max() < 1e-4
    both = SoundFeatures("ready", bins=13, deltas=2, normalize=False).ready(frames)
    assert both.shape == (50, 39)
    assert np.array_equal(both[:, 26:], slopes(slopes(frames)))


def test_normalised_numbers_have_mean_0_and_deviation_1() -> None:
    frames = normalized(np.random.default_rng(0).normal(3, 7, (200, 5)).astype(np.float32))
    assert np.abs(frames.mean(0)).max() < 1e-5
    assert np.abs(frames.std(0) - 1).max() < 1e-5
    assert np.isfinite(normalized(np.ones((4, 3), np.float32))).all()


@pytest.mark.parametrize("sizes", [[1, 7, 400, 9000], [160] * 30, [5000]])
def test_pieces_give_the_frames_of_the_whole(sizes: list[int]) -> None:
    samples = chirp(1.0)
    features = SoundFeatures(bins=40, normalize=False)
    stream = FrameStream(features)
    pieces = np.split(samples, np.minimum(np.cumsum(sizes), len(samples)))
    frames = [stream.push(piece) for piece in pieces]
    joined = np.concatenate([*frames, stream.finish()])
    assert np.abs(joined - features(samples)).max() < 1e-5


@pytest.mark.parametrize(
    ("old", "new"), [(44_100, 16_000), (8_000, 16_000), (96_000, 16_000), (11_025, 8_000)]
)
def test_resampling_in_blocks_is_resampling_at_once(old: int, new: int) -> None:
    samples = chirp(1.0, old)
    divisor = np.gcd(old, new)
    blocks = resample_blocks(iter(np.array_split(samples, 11)), old, new)
    assert np.allclose(
        np.concatenate(list(blocks)), resample_poly(samples, new // divisor, old // divisor), atol=1e-6
    )


def write_wav(path: Path, samples: np.ndarray, rate: int, width: int = 2, channels: int = 1) -> Path:
    """A WAV file of 8 or 16 bits by the standard library."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        scaled = (
            np.round(samples * 127 + 128).astype("u1")
            if width == 1
            else np.round(samples * 32767).astype("<i2")
        )
        file.writeframes(np.repeat(scaled, channels).tobytes())
    return path


def test_wav_flac_and_ogg_are_read_alike(tmp_path: Path) -> None:
    samples = chirp(1.0)
    for name, tolerance in (("a.wav", 1e-4), ("a.flac", 1e-4), ("a.ogg", 0.2)):
        soundfile.write(tmp_path / name, samples, 16_000)
        found = load_sound(tmp_path / name, 16_000)
        assert len(found) == len(samples)
        assert np.abs(found - samples).max() < tolerance


def test_eight_bits_at_96_khz_and_two_channels_are_read(tmp_path: Path) -> None:
    fine, coarse = chirp(0.5, 96_000), tmp_path / "coarse.wav"
    write_wav(coarse, fine, 96_000, width=1, channels=2)
    assert sound_info(coarse) == (96_000, 48_000, 2)
    found = load_sound(coarse, 16_000)
    assert len(found) == 8_000
    assert np.abs(found - resample_poly(fine, 1, 6)).max() < 0.01
    joined = np.concatenate(list(read_blocks(coarse, 16_000, seconds=0.037)))
    assert np.allclose(joined, found, atol=1e-6)


def bad_files(folder: Path) -> dict[str, Path]:
    """Files that are no sounds."""
    paths = {name: folder / f"{name}.wav" for name in ("empty", "pdf", "cut", "silent", "text")}
    paths["empty"].write_bytes(b"")
    paths["pdf"].write_bytes(b"%PDF-1.7\n" + bytes(100))
    paths["text"].write_text("this is not sound\n")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
    paths["silent"].write_bytes(buffer.getvalue())
    paths["cut"].write_bytes(buffer.getvalue()[:20])
    return paths


def test_wrong_files_are_one_sentence_with_the_row(tmp_path: Path) -> None:
    messages = {
        "empty": "the file is empty",
        "pdf": "a PDF, whatever its name says",
        "cut": "not a sound that can be read",
        "silent": "no samples after the header",
        "text": "not a sound that can be read",
    }
    for name, path in bad_files(tmp_path).items():
        with pytest.raises(DataError, match=f"^table.tsv:3: .*{path.name}: .*{messages[name]}.*; ") as error:
            Recording(path, SoundFeatures(), "table.tsv:3").frames()
        assert "\n" not in str(error.value)
    with pytest.raises(DataError, match="no such file"):
        Recording(tmp_path / "none.wav", SoundFeatures()).frames()


def test_ready_features_are_checked(tmp_path: Path) -> None:
    features = SoundFeatures("ready", bins=3, normalize=False)
    frames = np.ones((5, 3), np.float32)
    np.save(tmp_path / "a.npy", frames)
    np.savez(tmp_path / "a.npz", frames)
    for name in ("a.npy", "a.npz"):
        assert np.array_equal(Recording(tmp_path / name, features).frames(), frames)
    wrong = {
        "frame 2 has NaN": np.where(np.arange(5)[:, None] == 2, np.nan, frames),
        "frames of 4 numbers, but 3 are needed": np.ones((5, 4)),
        "no frames": np.ones((0, 3)),
        "instead of frames": np.ones(5),
    }
    for message, array in wrong.items():
        np.save(tmp_path / "b.npy", array)
        with pytest.raises(DataError, match=f"row 7: b.npy: .*{message}"):
            Recording(tmp_path / "b.npy", features, "row 7").frames()
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="not readable"):
        Recording(tmp_path / "pickled.npy", features).frames()
    with pytest.raises(DataError, match="a sound, but ready features are needed"):
        Recording(write_wav(tmp_path / "c.wav", chirp(0.1), 16_000), features).frames()


def test_impossible_features_are_refused() -> None:
    for options in ({"rate": 10}, {"window": 0.0}, {"bins": 500}, {"deltas": 3}, {"step": 2.0}):
        with pytest.raises(ConfigError, match="corpus\\."):
            SoundFeatures(**options)


def test_an_error_names_every_format_that_is_read(tmp_path: Path) -> None:
    assert {".wav", ".flac", ".ogg", ".opus", ".aiff", ".mp3"} <= set(SUFFIXES)
    (tmp_path / "a.wav").write_bytes(b"no sound")
    with pytest.raises(DataError, match="give WAV, FLAC, Ogg, AIFF or MP3"):
        sound_info(tmp_path / "a.wav")

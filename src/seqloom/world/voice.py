"""The world speaks: a synthesiser of its own that says sentences letter by letter, with the time of every word.

A letter is a sound with three formants, as in a vowel, or with a band of noise, as in "s"; stops are a silence and a burst. Speakers differ
in pitch, in the length of the throat, in speed, in room noise. It is not English: it is a language in which every letter is heard, and
in which the truth about each sample is known. No recording is used.
"""

from __future__ import annotations

import io
import wave
from typing import Literal, NamedTuple

import numpy as np

RATE = 8_000  # samples a second
CONTROL = 40  # samples from one control point to the next: 5 ms
PAUSE = 0.10  # seconds of silence before the first word and after the last
GAP = 0.045  # seconds between two words
HARMONICS = 48
Manner = Literal["voice", "noise", "both", "stop", "voiced stop"]


class Phone(NamedTuple):
    """How a letter sounds: its manner, formants in Hz (of noise, the first is the middle of its band), milliseconds and loudness."""

    manner: Manner
    formants: tuple[int, int, int]
    milliseconds: int
    loudness: float = 1.0


PHONES = {
    "a": Phone("voice", (750, 1100, 2450), 95),
    "e": Phone("voice", (540, 1850, 2500), 80),
    "i": Phone("voice", (290, 2250, 2950), 75),
    "o": Phone("voice", (500, 850, 2400), 90),
    "u": Phone("voice", (310, 700, 2250), 80),
    "y": Phone("voice", (300, 1900, 2400), 70),
    "l": Phone("voice", (380, 1050, 2800), 60, 0.6),
    "r": Phone("voice", (420, 1250, 1600), 60, 0.6),
    "w": Phone("voice", (300, 600, 2100), 60, 0.6),
    "m": Phone("voice", (250, 1000, 2100), 65, 0.45),
    "n": Phone("voice", (260, 1550, 2350), 60, 0.45),
    "v": Phone("both", (1600, 1100, 2200), 60, 0.35),
    "z": Phone("both", (3400, 1500, 2500), 65, 0.45),
    "j": Phone("both", (2500, 1900, 2700), 65, 0.5),
    "f": Phone("noise", (2000, 1100, 2200), 75, 0.3),
    "s": Phone("noise", (3550, 1500, 2500), 85, 0.6),
    "x": Phone("noise", (2900, 1800, 2600), 95, 0.7),
    "h": Phone("noise", (900, 1500, 2500), 60, 0.3),
    "c": Phone("noise", (2550, 1800, 2500), 80, 0.55),
    "p": Phone("stop", (700, 900, 2200), 70, 0.8),
    "t": Phone("stop", (3300, 1700, 2600), 70, 0.8),
    "k": Phone("stop", (1900, 1800, 2400), 75, 0.8),
    "q": Phone("stop", (1250, 1000, 2200), 80, 0.8),
    "b": Phone("voiced stop", (600, 900, 2200), 65, 0.7),
    "d": Phone("voiced stop", (3000, 1700, 2600), 65, 0.7),
    "g": Phone("voiced stop", (1700, 1800, 2400), 70, 0.7),
    "'": Phone("voiced stop", (1000, 1400, 2400), 45, 0.3),
}


class Speaker(NamedTuple):
    """A voice: pitch in Hz, the scale of its formants, its speed, and the room's noise."""

    pitch: float
    scale: float
    speed: float
    noise: float


class WordTime(NamedTuple):
    """A word and the seconds at which it begins and ends."""

    text: str
    start: float
    end: float


class SpokenSentence(NamedTuple):
    """A spoken sentence: samples from -1 to 1, RATE a second, its words as they are said, and their times."""

    samples: np.ndarray
    text: str
    words: tuple[WordTime, ...]

    def wav(self) -> bytes:
        """A WAV file of 16 bits."""
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((self.samples * 32767).astype("<i2").tobytes())
        return buffer.getvalue()


def spoken_text(text: str) -> str:
    """The words of a sentence as they are said: letters in lower case and apostrophes."""
    kept = (char if char in PHONES else " " for char in text.lower())
    return " ".join("".join(kept).split())


def speaker(seed: int, number: int) -> Speaker:
    """The voice with this number."""
    random = np.random.default_rng([seed, number, 1])
    pitch = float(np.exp(random.uniform(np.log(85), np.log(230))))
    scale = 0.9 + 0.25 * (np.log(pitch / 85) / np.log(230 / 85)) + random.uniform(-0.05, 0.05)
    return Speaker(pitch, float(scale), float(random.uniform(0.85, 1.2)), float(random.uniform(0.001, 0.006)))


def speak(text: str, seed: int = 0, number: int = 0) -> SpokenSentence:
    """A sentence, said by the voice with this number; the same arguments give the same samples.

    >>> speech = seqloom.world.speak("The dog sleeps.")
    >>> speech.text, [word.text for word in speech.words]
    ('the dog sleeps', ['the', 'dog', 'sleeps'])
    """
    said = spoken_text(text)
    voice = speaker(seed, number)
    random = np.random.default_rng([seed, number, 2])
    phones: list[tuple[Phone | None, int]] = [(None, round(PAUSE * RATE))]  # with the samples of each
    starts: list[tuple[str, int, int]] = []
    position = phones[0][1]
    for index, word in enumerate(said.split()):
        if index:
            phones.append((None, round(GAP * RATE / voice.speed)))
            position += phones[-1][1]
        begin = position
        for letter in word:
            phone = PHONES[letter]
            length = round(phone.milliseconds / 1000 * RATE / voice.speed * random.uniform(0.85, 1.2))
            phones.append((phone, length))
            position += length
        starts.append((word, begin, position))
    phones.append((None, round(PAUSE * RATE)))
    samples = synthesize(phones, voice, random)
    words = tuple(WordTime(word, round(a / RATE, 3), round(b / RATE, 3)) for word, a, b in starts)
    return SpokenSentence(samples, said, words)


def synthesize(
    phones: list[tuple[Phone | None, int]], voice: Speaker, random: np.random.Generator
) -> np.ndarray:
    """Samples of the sounds one after another: harmonics under the envelope of the formants, and bands of noise."""
    lengths = np.array([length for _, length in phones])
    total = int(lengths.sum())
    points = np.arange(0, total + CONTROL, CONTROL)
    phone_at = np.searchsorted(np.cumsum(lengths), points, "right").clip(max=len(phones) - 1)
    inside = (points - (np.cumsum(lengths) - lengths)[phone_at]) / lengths[phone_at]  # 0 … 1 within the sound
    formants = np.zeros((len(points), 3))
    voiced, noisy, band = np.zeros(len(points)), np.zeros(len(points)), np.zeros(len(points))
    for i, (index, share) in enumerate(zip(phone_at.tolist(), inside.tolist(), strict=True)):
        phone = phones[index][0]
        if phone is None:
            formants[i] = formants[i - 1] if i else (500, 1500, 2500)
            band[i] = band[i - 1] if i else 1500
            continue
        formants[i] = phone.formants
        band[i] = phone.formants[0]
        bursts = share > 0.55
        if phone.manner in ("voice", "both") or (phone.manner == "voiced stop" and (share < 0.4 or bursts)):
            voiced[i] = phone.loudness * (0.3 if phone.manner == "voiced stop" else 1.0)
        if phone.manner in ("noise", "both") or (phone.manner.endswith("stop") and bursts):
            noisy[i] = phone.loudness
    formants = smooth(formants, 5) * voice.scale
    voiced, noisy = smooth(voiced[:, None], 3)[:, 0], smooth(noisy[:, None], 3)[:, 0]
    times = np.arange(total)
    pitch = voice.pitch * (1.08 - 0.16 * points / total) * (1 + 0.02 * np.sin(points / RATE * 30))
    phase = 2 * np.pi * np.cumsum(np.interp(times, points, pitch)) / RATE
    sound = np.zeros(total)
    for harmonic in range(1, HARMONICS):
        frequency = harmonic * pitch
        if frequency.min() > RATE / 2:
            break
        gains = sum(
            weight / (1 + ((frequency - formants[:, i]) / width) ** 2)
            for i, (weight, width) in enumerate(((1.0, 90), (0.6, 110), (0.35, 150)))
        )
        gains = np.where(frequency < 0.48 * RATE, gains, 0) * voiced / harmonic**0.3
        sound += np.interp(times, points, gains) * np.sin(harmonic * phase)
    white = np.convolve(random.standard_normal(total), np.ones(12) / np.sqrt(12), mode="same")
    carrier = np.cos(
        2 * np.pi * np.cumsum(np.interp(times, points, band * voice.scale).clip(max=0.48 * RATE)) / RATE
    )
    sound = 0.35 * sound + 0.25 * np.interp(times, points, noisy) * white * carrier
    sound += voice.noise * random.standard_normal(total)
    return (0.6 * sound / max(np.abs(sound).max(), 1e-6)).astype(np.float32)


def smooth(values: np.ndarray, width: int) -> np.ndarray:
    """The mean of `width` neighbouring rows, the ends repeated."""
    padded = np.pad(values, ((width // 2, width // 2), (0, 0)), mode="edge")
    return np.stack([padded[i : i + len(values)] for i in range(width)]).mean(0)

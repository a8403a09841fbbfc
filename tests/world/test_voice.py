"""The world's voice: the same samples every time, silence between words, a table with the truth."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np

from seqloom.world import speak
from seqloom.world.recordings import SPEAKERS, write_recordings
from seqloom.world.voice import PHONES, RATE, spoken_text


def test_the_same_voice_says_the_same() -> None:
    once, again = speak("The old king's cats eat.", number=3), speak("The old king's cats eat.", number=3)
    assert np.array_equal(once.samples, again.samples)
    assert once.words == again.words
    assert once.text == "the old king's cats eat" == spoken_text("The old king's cats eat.")
    assert not np.array_equal(once.samples, speak("The old king's cats eat.", number=4).samples)
    assert np.abs(once.samples).max() <= 1


def test_words_are_loud_where_the_truth_says() -> None:
    for number in range(6):
        speech = speak("A man sees my room in one moon.", number=number)
        times = np.arange(len(speech.samples)) / RATE
        inside = np.zeros(len(times), bool)
        for word in speech.words:
            assert word.end > word.start
            inside |= (times >= word.start + 0.02) & (times < word.end - 0.02)
        gaps = np.ones(len(times), bool)
        for word in speech.words:
            gaps &= (times < word.start - 0.012) | (times >= word.end + 0.012)
        loud, quiet = (np.sqrt((speech.samples[where] ** 2).mean()) for where in (inside, gaps))
        assert loud > 5 * quiet


def test_every_letter_sounds_different() -> None:
    spectra = {}
    for letter in PHONES:
        samples = speak(letter * 3).samples
        spectrum = np.abs(np.fft.rfft(samples, 4096))
        spectra[letter] = spectrum / np.linalg.norm(spectrum)
    for a in spectra:
        for b in spectra:
            assert a == b or spectra[a] @ spectra[b] < 0.97


def test_files_and_their_table(tmp_path: Path) -> None:
    write_recordings(tmp_path / "speech", {"train": ["A dog.", "The cat eats."], "test": ["A cow."]})
    rows = (tmp_path / "speech" / "train" / "recordings.tsv").read_text().splitlines()
    assert rows[0] == "file\ttext\ttimes"
    name, text, times = rows[2].split("\t")
    assert text == "the cat eats"
    assert len(times.split()) == 3
    with wave.open(io.BytesIO((tmp_path / "speech" / "train" / name).read_bytes())) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        assert file.getnframes() / RATE > float(times.split("-")[-1])
    first, last = SPEAKERS["test"]
    assert not set(range(first, last)) & set(range(*SPEAKERS["train"]))

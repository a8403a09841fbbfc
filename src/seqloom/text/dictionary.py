"""Pronouncing dictionaries: pairs of a word and its phonemes, as
records, and their split by word into train, valid and test.

Reads both forms of the CMU dictionary, `HELLO 1 HH AH0 L OW1`
and `HELLO(2)  HH EH0 L OW1`; a line with `;;;` is a comment.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from seqloom.files import write_atomic
from seqloom.text.corpus import Reader
from seqloom.text.lines import lines

VARIANT_NUMBER = re.compile(r"\(\d+\)$")
# A word belongs to the first split whose limit is above the first byte of the word's SHA-256.
SPLIT_LIMITS = {"test": 13, "valid": 26, "train": 256}


class Dictionary(Reader):
    """(word, phonemes): the word in lower case, so that no letter
    equals a phoneme, and its phonemes separated by spaces.

    A word with several pronunciations gives several records.
    """

    kinds = ("text", "text")
    measure = "pronunciation"

    def records(self, path: str | Path) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(lines(path), 1):
            self.location = f"{path}:{number}"
            if pair := parse_entry(line, self.location):
                yield pair


def parse_entry(line: str, location: str) -> tuple[str, str] | None:
    """Returns the word and its phonemes, or None for a blank line or a comment."""
    if not line.strip() or line.startswith(";;;"):
        return None
    word, *phonemes = line.split("#")[0].split() if not line.startswith("#") else line.split()
    if phonemes and phonemes[0].isdecimal():
        phonemes = phonemes[1:]
    if not phonemes:
        raise ValueError(
            f"{location}: the word {word!r} has no phonemes; write them after it, separated by spaces"
        )
    return VARIANT_NUMBER.sub("", word).lower(), " ".join(phonemes)


def split_of(word: str) -> str:
    """Returns the split that a word belongs to: by the first byte
    of its SHA-256, 13 of 256 test, 13 valid, the rest train.

    All pronunciations of a word are in one split, and adding words to the dictionary moves no word.
    """
    first_byte = hashlib.sha256(word.encode()).digest()[0]
    return next(name for name, limit in SPLIT_LIMITS.items() if first_byte < limit)


def split(path: str | Path, folder: Path) -> dict[str, int]:
    """Splits a dictionary into folder/train.dict, valid.dict
    and test.dict; returns the number of words of each."""
    entries: dict[str, list[str]] = {name: [] for name in SPLIT_LIMITS}
    words: dict[str, set[str]] = {name: set() for name in SPLIT_LIMITS}
    for number, line in enumerate(lines(path), 1):
        if pair := parse_entry(line, f"{path}:{number}"):
            name = split_of(pair[0])
            entries[name].append(line.rstrip())
            words[name].add(pair[0])
    if not all(words.values()):
        num_words = sum(map(len, words.values()))
        raise ValueError(
            f"{path}: {num_words} words are too few to split into train, valid and test; give a larger dictionary"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in entries.items():
        write_atomic(folder / f"{name}.dict", "\n".join(rows) + "\n")
    return {name: len(words[name]) for name in ("train", "valid", "test")}

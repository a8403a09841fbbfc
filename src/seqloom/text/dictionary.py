"""Pronouncing dictionaries: words and how they are spoken, as records and cut into parts by word.

The CMU dictionary's two forms are read: `HELLO 1 HH AH0 L OW1` and `HELLO(2)  HH EH0 L OW1`, with lines of comment after `;;;`.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from seqloom.files import write_atomic
from seqloom.text.corpus import Reader
from seqloom.text.lines import lines

NUMBER = re.compile(r"\(\d+\)$")
PARTS = {
    "test": 13,
    "valid": 26,
    "train": 256,
}  # the first bytes of a word's SHA-256 below which it belongs to a part


class Dictionary(Reader):
    """(word, phonemes): the word in small letters, so that no letter is a phoneme, and its phonemes with spaces between them. A word with
    several pronunciations is several records."""

    kinds = ("text", "text")
    measure = "pronunciation"

    def records(self, path: str | Path) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(lines(path), 1):
            self.at = f"{path}:{number}"
            if pair := parse_entry(line, self.at):
                yield pair


def parse_entry(line: str, place: str) -> tuple[str, str] | None:
    """The word and its phonemes; None for a blank line and a comment."""
    if not line.strip() or line.startswith(";;;"):
        return None
    word, *phonemes = line.split("#")[0].split() if not line.startswith("#") else line.split()
    if phonemes and phonemes[0].isdecimal():
        phonemes = phonemes[1:]
    if not phonemes:
        raise ValueError(
            f"{place}: the word {word!r} has no phonemes; write them after it, with spaces between them"
        )
    return NUMBER.sub("", word).lower(), " ".join(phonemes)


def split_of(word: str) -> str:
    """Which part a word belongs to: by the first byte of its SHA-256, 13 of 256 test, 13 valid, the rest train. All pronunciations of a word
    stay together, and a word stays where it is whatever is added."""
    first = hashlib.sha256(word.encode()).digest()[0]
    return next(name for name, limit in PARTS.items() if first < limit)


def split(path: str | Path, folder: Path) -> dict[str, int]:
    """Cut a dictionary into folder/train.dict, valid.dict and test.dict; how many words each has."""
    rows: dict[str, list[str]] = {name: [] for name in PARTS}
    words: dict[str, set[str]] = {name: set() for name in PARTS}
    for number, line in enumerate(lines(path), 1):
        if pair := parse_entry(line, f"{path}:{number}"):
            name = split_of(pair[0])
            rows[name].append(line.rstrip())
            words[name].add(pair[0])
    if not all(words.values()):
        raise ValueError(
            f"{path}: {sum(map(len, words.values()))} words are too few to cut into train, valid and test; give a larger dictionary"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, kept in rows.items():
        write_atomic(folder / f"{name}.dict", "\n".join(kept) + "\n")
    return {name: len(words[name]) for name in ("train", "valid", "test")}

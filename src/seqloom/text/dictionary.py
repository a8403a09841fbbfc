"""Pronouncing dictionaries: pairs of a word and its phonemes, as
records. `seqloom data split` divides them by word.

Reads both forms of the CMU dictionary, `HELLO 1 HH AH0 L OW1`
and `HELLO(2)  HH EH0 L OW1`; a line with `;;;` is a comment.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from seqloom.errors import DataError
from seqloom.text.corpus import Reader
from seqloom.text.lines import lines

VARIANT_NUMBER = re.compile(r"\(\d+\)$")


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
        raise DataError(
            f"{location}: the word {word!r} has no phonemes; write them after it, separated by spaces"
        )
    return VARIANT_NUMBER.sub("", word).lower(), " ".join(phonemes)

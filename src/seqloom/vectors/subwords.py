"""Words as bags of character n-grams, as in fastText, so that an unseen word has a vector too.

A word is written as <word>; its n-grams of 3 to 6 characters are hashed into buckets. The buckets are rows of
the input matrix that follow those of the words. Left out: pruning and quantizing the buckets.
"""

from dataclasses import dataclass

import numpy as np

from seqloom.errors import DataError


def fnv1a(data: bytes) -> int:
    """The 32-bit FNV-1a hash, with bytes read as signed numbers as in fastText."""
    value = 2166136261
    for byte in data:
        value = ((value ^ (byte | 0xFFFFFF00 if byte > 127 else byte)) * 16777619) & 0xFFFFFFFF
    return value


@dataclass(frozen=True)
class Subwords:
    """n-grams of `shortest` … `longest` characters in `buckets` rows."""

    shortest: int = 3
    longest: int = 6
    buckets: int = 500_000

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest or self.buckets < 1:
            raise DataError(
                f"n-grams of {self.shortest} to {self.longest} characters in {self.buckets} buckets do not exist; "
                "give 1 ≤ shortest ≤ longest and at least one bucket"
            )

    def ngrams(self, word: str) -> list[str]:
        """The n-grams of <word>, by position and then by length, without the single characters < and >."""
        marked = f"<{word}>"
        size = len(marked)
        spans = [
            (start, start + n)
            for start in range(size)
            for n in range(self.shortest, self.longest + 1)
            if start + n <= size
        ]
        return [marked[start:end] for start, end in spans if (start, end) not in ((0, 1), (size - 1, size))]

    def rows(self, word: str) -> list[int]:
        """The bucket of each n-gram."""
        return [fnv1a(gram.encode()) % self.buckets for gram in self.ngrams(word)]

    def table(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Input rows of the n-grams of all words, and the bounds of each word's part.

        Buckets follow the rows of the words.
        """
        buckets = [self.rows(word) for word in words]
        bounds = np.zeros(len(words) + 1, np.int64)
        np.cumsum([len(rows) for rows in buckets], out=bounds[1:])
        flat = np.fromiter((row for rows in buckets for row in rows), np.int64, bounds[-1])
        return flat + len(words), bounds

    def vector(self, word: str, buckets: np.ndarray) -> np.ndarray:
        """The mean of the rows of the word's n-grams; zeros for a word too short to have any."""
        rows = self.rows(word)
        return buckets[rows].mean(0) if rows else np.zeros(buckets.shape[1], buckets.dtype)

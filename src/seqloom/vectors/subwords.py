"""Words as bags of character n-grams, so that a word never seen has a vector too (fastText's way).

A word is written <word>; its n-grams of 3 to 6 characters are hashed into buckets, which are rows of the input matrix after those of the
words. Left out: pruning and quantising the buckets.
"""

from dataclasses import dataclass

import numpy as np


def fnv1a(data: bytes) -> int:
    """The 32-bit FNV-1a hash; bytes count as signed, which is fastText's reading of it."""
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

    def __post_init__(self):
        if not 1 <= self.shortest <= self.longest or self.buckets < 1:
            raise ValueError(
                f"n-grams of {self.shortest} to {self.longest} characters in {self.buckets} buckets: give 1 ≤ shortest ≤ longest "
                "and at least one bucket"
            )

    def ngrams(self, word: str) -> list[str]:
        """The n-grams of <word>, by place and then by length. The marks < and > alone are none."""
        whole = f"<{word}>"
        places = [
            (i, i + n)
            for i in range(len(whole))
            for n in range(self.shortest, self.longest + 1)
            if i + n <= len(whole)
        ]
        return [whole[i:j] for i, j in places if (i, j) not in ((0, 1), (len(whole) - 1, len(whole)))]

    def rows(self, word: str) -> list[int]:
        """The bucket of each n-gram."""
        return [fnv1a(gram.encode()) % self.buckets for gram in self.ngrams(word)]

    def table(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """(rows of the n-grams of all words, bounds of each word), the buckets coming after the words' own rows."""
        found = [self.rows(word) for word in words]
        bounds = np.zeros(len(words) + 1, np.int64)
        np.cumsum([len(rows) for rows in found], out=bounds[1:])
        flat = np.fromiter((row for rows in found for row in rows), np.int64, bounds[-1])
        return flat + len(words), bounds

    def vector(self, word: str, buckets: np.ndarray) -> np.ndarray:
        """The mean of the rows of its n-grams; a word too short to have any gets zeros, which is like nothing."""
        rows = self.rows(word)
        return buckets[rows].mean(0) if rows else np.zeros(buckets.shape[1], buckets.dtype)

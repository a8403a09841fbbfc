"""Word vectors at hand: neighbours, similarity, analogies, the odd one out, centring  [A3].

The matrix may be larger than memory: it is read in blocks, and of a normalised copy only the norms are ever kept. Left out: approximate
search. One exact pass over 100,000 words takes milliseconds.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.vectors.subwords import Subwords

Neighbors = list[tuple[str, float]]
BLOCK = 1 << 22  # numbers of the matrix read at a time
MOST = 512  # queries answered in one pass over the matrix
EPSILON = 1e-6  # keeps 3CosMul's division finite, as in kernels/analogies.py


class SubwordVectors(NamedTuple):
    """What makes a vector for a word never seen: the rows of its n-grams."""

    subwords: Subwords
    buckets: np.ndarray  # (buckets, D)


class Vectors:
    """Words and their vectors, row by row; `meta` says where they come from, `grams` makes vectors of other words. Of equal words the
    first one counts."""

    def __init__(
        self,
        words: Sequence[str],
        matrix: np.ndarray,
        meta: dict[str, Any] | None = None,
        grams: SubwordVectors | None = None,
    ):
        if matrix.ndim != 2 or len(words) != len(matrix):
            raise ValueError(
                f"{len(words):,} words need as many rows of numbers, not an array of shape {matrix.shape}"
            )
        if not matrix.size:
            raise ValueError("no vectors: there is not one word")
        self.words, self.matrix, self.meta, self.grams = words, matrix, meta or {}, grams

    @property
    def dim(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {
            word: row
            for row, word in zip(range(len(self.words) - 1, -1, -1), reversed(self.words), strict=True)
        }

    @cached_property
    def norms(self) -> np.ndarray:
        """The length of each vector; 1 for a vector of zeros, so that its cosines are 0."""
        found = np.concatenate([np.sqrt(np.einsum("vd,vd->v", rows, rows)) for _, rows in self.blocks()])
        found[found == 0] = 1
        return found

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows as float32) of the whole matrix, piece by piece."""
        step = max(1, BLOCK // self.dim)
        for start in range(0, len(self), step):
            yield start, np.asarray(self.matrix[start : start + step], dtype=np.float32)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> np.ndarray:
        if self.grams and word not in self.index:
            return self.grams.subwords.vector(word, self.grams.buckets)
        return np.array(self.matrix[self.row(word)], dtype=np.float32)

    def row(self, word: str) -> int:
        """The word's row; an unknown word is an error that names near spellings."""
        if word not in self.index:
            near = similar_spellings(word, self.words)
            raise ValueError(
                f"no vector for {word!r}; {'near spellings: ' + ', '.join(near) if near else 'nothing is spelt like it'}"
            )
        return self.index[word]

    def units(self, words: Iterable[str]) -> np.ndarray:
        """The vectors of `words`, each of length 1."""
        found = np.stack([self[word] for word in words])
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        return found / np.where(lengths == 0, 1, lengths)

    def similarity(self, one: str, other: str) -> float:
        """cos(u, v) = u·v / (|u| |v|): larger is more alike."""
        u, v = self.units([one, other])
        return float(u @ v)

    def nearest(
        self, query: str | np.ndarray, count: int = 10, by: Literal["cosine", "dot"] = "cosine"
    ) -> Neighbors:
        """The words most like a word or a vector, itself left out; `by` the cosine or the plain dot product  [A3]."""
        if isinstance(query, str):
            vector, gone = self[query], self._rows([query])
        else:
            vector, gone = np.asarray(query, dtype=np.float32), []
        rows, scores = self.neighbours(vector[None], count, [gone], by)
        return self._named(rows[0], scores[0])

    def neighbours(
        self,
        queries: np.ndarray,
        count: int = 10,
        left_out: Sequence[Sequence[int]] | None = None,
        by: Literal["cosine", "dot"] = "cosine",
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows and scores, each (Q, count), of the words most like each of the vectors (Q, D), best first; `left_out` names rows not to give."""
        queries = np.asarray(queries, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ValueError(
                f"vectors of size {self.dim} can be asked for here, not an array of shape {queries.shape}"
            )
        if len(queries) > MOST:
            parts = [slice(start, start + MOST) for start in range(0, len(queries), MOST)]
            found = [self.neighbours(queries[part], count, left_out and left_out[part], by) for part in parts]
            return np.concatenate([rows for rows, _ in found]), np.concatenate(
                [scores for _, scores in found]
            )
        if by == "cosine":
            queries = queries / np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-30)
        found = _TopK(len(queries), count)
        for start, rows in self.blocks():
            scores = queries @ rows.T  # (Q, rows)
            if by == "cosine":
                scores /= self.norms[start : start + len(rows)]
            for query, gone in enumerate(left_out or ()):
                scores[query, [row - start for row in gone if 0 <= row - start < len(rows)]] = -np.inf
            found.add(scores, start)
        return found.rows, found.scores

    def analogy(
        self, a: str, b: str, c: str, count: int = 10, method: Literal["add", "mul"] = "add"
    ) -> Neighbors:
        """a is to b as c is to what? The three words themselves are never the answer.

        3CosAdd: argmax cos(x, b/|b| − a/|a| + c/|c|)   (Mikolov et al. 2013)
        3CosMul: argmax cos⁺(x, b) cos⁺(x, c) / (cos⁺(x, a) + ε), cos⁺ = (1 + cos) / 2   (Levy and Goldberg 2014)
        """
        asked = self.units([a, b, c])
        gone = self._rows([a, b, c])
        if method == "add":
            rows, scores = self.neighbours((asked[1] - asked[0] + asked[2])[None], count, [gone])
            return self._named(rows[0], scores[0])
        found = _TopK(1, count)
        for start, rows in self.blocks():
            cosines = (1 + asked @ rows.T / self.norms[start : start + len(rows)]) / 2  # (3, rows)
            scores = cosines[1] * cosines[2] / (cosines[0] + EPSILON)
            scores[[row - start for row in gone if 0 <= row - start < len(rows)]] = -np.inf
            found.add(scores[None], start)
        return self._named(found.rows[0], found.scores[0])

    def odd_one_out(self, words: Sequence[str]) -> str:
        """The word least like the mean of them all."""
        if len(words) < 3:
            raise ValueError(f"the odd one out needs three words or more, not {len(words)}")
        units = self.units(words)
        return words[int((units @ units.mean(0)).argmin())]

    def centred(self, components: int = 0) -> Vectors:
        """v − μ − Σ uₖ (uₖ·(v − μ)) over the leading `components` directions uₖ: what all words share says nothing (Mu and Viswanath 2018)."""
        if not 0 <= components < self.dim:
            raise ValueError(
                f"vectors of size {self.dim} have 0 to {self.dim - 1} components to remove, not {components}"
            )
        matrix = np.array(self.matrix, dtype=np.float32)
        matrix -= matrix.mean(0)
        if components:
            _, directions = np.linalg.eigh(matrix.T @ matrix)  # ascending
            leading = directions[:, -components:]
            matrix -= (matrix @ leading) @ leading.T
        return Vectors(self.words, matrix, {**self.meta, "centred": components})

    def first(self, most: int) -> Vectors:
        """The first `most` words, which are the most frequent ones in every usual file."""
        return Vectors(self.words[:most], self.matrix[:most], self.meta, self.grams)

    def facts(self) -> dict[str, object]:
        """What the vectors are, for a figure's signature."""
        told = {key: value for key, value in self.meta.items() if isinstance(value, str | int | float)}
        return {"words": len(self), "dim": self.dim, **told}

    def _rows(self, words: Iterable[str]) -> list[int]:
        return [self.index[word] for word in words if word in self.index]

    def _named(self, rows: np.ndarray, scores: np.ndarray) -> Neighbors:
        return [(self.words[row], float(score)) for row, score in zip(rows, scores, strict=True) if row >= 0]


class _TopK:
    """The `count` best scores of each query so far, best first; row −1 where there are fewer."""

    def __init__(self, queries: int, count: int):
        if count < 1:
            raise ValueError(f"ask for one neighbour or more, not {count}")
        self.count = count
        self.rows = np.full((queries, 0), -1)
        self.scores = np.full((queries, 0), -np.inf, dtype=np.float32)

    def add(self, scores: np.ndarray, start: int) -> None:
        """Take in the scores (Q, rows) of the rows from `start` on."""
        if scores.shape[1] > self.count:
            top = np.argpartition(-scores, self.count - 1, axis=1)[:, : self.count]
        else:
            top = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
        rows = np.concatenate([self.rows, top + start], axis=1)
        values = np.concatenate([self.scores, np.take_along_axis(scores, top, axis=1)], axis=1)
        order = np.argsort(-values, axis=1, kind="stable")[:, : self.count]
        self.scores = np.take_along_axis(values, order, axis=1)
        self.rows = np.where(np.isneginf(self.scores), -1, np.take_along_axis(rows, order, axis=1))


def similar_spellings(word: str, words: Sequence[str], count: int = 3) -> list[str]:
    """Words spelt nearly alike, case aside: the likeliest of what was meant."""
    lower = word.lower()
    ends = {lower[:1], lower[-1:]}
    likely = [
        one
        for one in words
        if abs(len(one) - len(word)) < 3 and (one[:1].lower() in ends or one[-1:].lower() in ends)
    ]
    by_case: dict[str, str] = {}
    for one in likely:
        by_case.setdefault(one.lower(), one)
    return [by_case[one] for one in difflib.get_close_matches(lower, by_case, count, 0.7)]

"""Word vectors in use: neighbours, similarity, analogies, the odd one out, common components  [A3].

The matrix may be larger than memory: it is read in blocks, and of a normalized copy only the norms are
stored. Left out: approximate search. One exact pass over 100,000 words takes milliseconds.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from seqloom.errors import DataError
from seqloom.results import Result
from seqloom.vectors.subwords import Subwords

if TYPE_CHECKING:
    from seqloom.vectors.formats import Format

By = Literal["cosine", "dot"]
BLOCK = 1 << 22  # numbers of the matrix read at a time
MAX_QUERIES = 512  # queries answered in one pass over the matrix
EPSILON = 1e-6  # keeps 3CosMul's division finite, as in kernels/analogies.py


HTML_WORDS = 8  # rows of the table in a notebook
HTML_CANDIDATES = 20_000  # words among which their neighbours are sought


@dataclass(frozen=True)
class Neighbor(Result):
    """A word and its score: a cosine, a dot product, or the value of an analogy. It can be unpacked: `word, score = neighbor`."""

    word: str
    score: float

    def __iter__(self) -> Iterator[Any]:
        return iter((self.word, self.score))


Neighbors = list[Neighbor]


class SubwordVectors(NamedTuple):
    """The rows of character n-grams, from which an unseen word gets its vector."""

    subwords: Subwords
    buckets: np.ndarray  # (buckets, D)


class Vectors:
    """Words and their vectors, row by row.

    `meta` records their origin, `subword_vectors` gives vectors to other words. Of equal words the first one counts.

    >>> import numpy as np
    >>> vectors = Vectors(["man", "king", "woman", "queen"], np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]]))
    >>> vectors
    Vectors(4 words × 3)
    >>> len(vectors), "king" in vectors, vectors["king"].tolist()
    (4, True, [1.0, 1.0, 0.0])
    >>> vectors.nearest("king", n=1)[0].word
    'queen'
    >>> answer = vectors.analogy("man", "king", "woman", n=1)[0]
    >>> answer.word, round(answer.score, 2)
    ('queen', 0.98)
    """

    def __init__(
        self,
        words: Sequence[str],
        matrix: np.ndarray,
        meta: dict[str, Any] | None = None,
        subword_vectors: SubwordVectors | None = None,
    ) -> None:
        if matrix.ndim != 2 or len(words) != len(matrix):
            raise DataError(
                f"{len(words):,} words need as many rows of numbers, not an array of shape {matrix.shape}"
            )
        if not matrix.size:
            raise DataError("there are no vectors: the list of words is empty")
        self.words = words
        self.matrix = matrix
        self.meta = meta or {}
        self.subword_vectors = subword_vectors

    @property
    def dim(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        last_to_first = zip(range(len(self.words) - 1, -1, -1), reversed(self.words), strict=True)
        return {word: row for row, word in last_to_first}

    @cached_property
    def norms(self) -> np.ndarray:
        """The norm of each vector; 1 for a vector of zeros, so that its cosines are 0."""
        norms = np.concatenate([np.sqrt(np.einsum("vd,vd->v", rows, rows)) for _, rows in self.blocks()])
        norms[norms == 0] = 1
        return norms

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """The matrix block by block: (first row, rows as float32)."""
        step = max(1, BLOCK // self.dim)
        for start in range(0, len(self), step):
            yield start, np.asarray(self.matrix[start : start + step], dtype=np.float32)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        method = self.meta.get("method") or self.meta.get("source")
        return f"Vectors({len(self):,} words × {self.dim}{f', {method}' if method else ''})"

    def _repr_html_(self) -> str:
        """The first words with their neighbours, for a notebook."""
        common = self.first(HTML_CANDIDATES)
        rows = ""
        for word in dict.fromkeys(common.words[:HTML_WORDS]):
            near = common.nearest(word, 5) if len(common) > 1 else []
            cells = ", ".join(f"{escape(one.word)} {one.score:.2f}" for one in near)
            rows += f"<tr><th style='text-align:left'>{escape(word)}</th><td style='text-align:left'>{cells}</td></tr>"
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>"

    def __contains__(self, word: str) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> np.ndarray:
        if self.subword_vectors and word not in self.index:
            return self.subword_vectors.subwords.vector(word, self.subword_vectors.buckets)
        return np.array(self.matrix[self.row(word)], dtype=np.float32)

    def row(self, word: str) -> int:
        """The word's row; an unknown word is an error that names similar spellings."""
        if word not in self.index:
            similar = similar_spellings(word, self.words)
            hint = f"near spellings: {', '.join(similar)}" if similar else "no word is spelt like it"
            raise DataError(f"no vector for {word!r}; {hint}")
        return self.index[word]

    def units(self, words: Iterable[str]) -> np.ndarray:
        """The vectors of `words`, each divided by its norm."""
        vectors = np.stack([self[word] for word in words])
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(norms == 0, 1, norms)

    def similarity(self, a: str, b: str) -> float:
        """cos(u, v) = u·v / (|u| |v|): larger is more similar."""
        u, v = self.units([a, b])
        return float(u @ v)

    @overload
    def nearest(self, query: str | np.ndarray, n: int = 10, by: By = "cosine") -> Neighbors: ...

    @overload
    def nearest(
        self, query: list[str] | tuple[str, ...], n: int = 10, by: By = "cosine"
    ) -> list[Neighbors]: ...

    def nearest(
        self, query: str | np.ndarray | list[str] | tuple[str, ...], n: int = 10, by: By = "cosine"
    ) -> Neighbors | list[Neighbors]:
        """The n words most similar to a word, itself excluded, or to a vector  [A3]; for a list of words, a list for each of them.

        >>> import numpy as np
        >>> Vectors(["a", "b", "c"], np.array([[1.0, 0], [0, 2], [1, 1]])).nearest(["a", "b"], n=1, by="dot")
        [[Neighbor(word='c', score=1.0)], [Neighbor(word='c', score=2.0)]]
        """
        if isinstance(query, np.ndarray):
            rows, scores = self.neighbours(query[None], n, None, by)
            return self._with_words(rows[0], scores[0])
        words = [query] if isinstance(query, str) else list(query)
        if not words:
            return []
        self._require_words(2, "a word has no neighbour")
        vectors = np.stack([self[word] for word in words])
        rows, scores = self.neighbours(vectors, n, [self._rows([word]) for word in words], by)
        found = [self._with_words(*one) for one in zip(rows, scores, strict=True)]
        return found[0] if isinstance(query, str) else found

    def neighbours(
        self,
        queries: np.ndarray,
        count: int = 10,
        excluded: Sequence[Sequence[int]] | None = None,
        by: By = "cosine",
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows and scores, each (Q, count), of the words most similar to the vectors (Q, D), best first.

        `excluded` holds the rows that are not results of each query.
        """
        queries = np.asarray(queries, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise DataError(
                f"queries must be an array (Q, {self.dim}) of vectors of size {self.dim}, not of shape {queries.shape}"
            )
        if len(queries) > MAX_QUERIES:
            parts = [slice(start, start + MAX_QUERIES) for start in range(0, len(queries), MAX_QUERIES)]
            results = [
                self.neighbours(queries[part], count, excluded and excluded[part], by) for part in parts
            ]
            all_rows, all_scores = zip(*results, strict=True)
            return np.concatenate(all_rows), np.concatenate(all_scores)
        if by == "cosine":
            queries = queries / np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-30)
        top = _TopK(len(queries), count)
        for start, rows in self.blocks():
            scores = queries @ rows.T  # (Q, rows)
            if by == "cosine":
                scores /= self.norms[start : start + len(rows)]
            for query, hidden in enumerate(excluded or ()):
                scores[query, [row - start for row in hidden if 0 <= row - start < len(rows)]] = -np.inf
            top.add(scores, start)
        return top.rows, top.scores

    def analogy(self, a: str, b: str, c: str, n: int = 5, method: Literal["add", "mul"] = "add") -> Neighbors:
        """a is to b as c is to what? The n best answers; the three words themselves are never one.

        3CosAdd (Mikolov et al. 2013):      argmax cos(x, b/|b| − a/|a| + c/|c|)
        3CosMul (Levy and Goldberg 2014):   argmax cos⁺(x, b) cos⁺(x, c) / (cos⁺(x, a) + ε),
                                            cos⁺ = (1 + cos) / 2
        """
        units = self.units([a, b, c])
        self._require_words(4, "an analogy has no answer")
        excluded = self._rows([a, b, c])
        if method == "add":
            rows, scores = self.neighbours((units[1] - units[0] + units[2])[None], n, [excluded])
            return self._with_words(rows[0], scores[0])
        top = _TopK(1, n)
        for start, block in self.blocks():
            cosines = (1 + units @ block.T / self.norms[start : start + len(block)]) / 2  # (3, rows)
            products = cosines[1] * cosines[2] / (cosines[0] + EPSILON)
            products[[row - start for row in excluded if 0 <= row - start < len(block)]] = -np.inf
            top.add(products[None], start)
        return self._with_words(top.rows[0], top.scores[0])

    def odd_one_out(self, words: Sequence[str]) -> str:
        """The word least similar to the mean of all of them."""
        if isinstance(words, str):
            raise DataError(f'the odd one out of one word, {words!r}; give a list of words: ["{words}", …]')
        if len(words) < 3:
            raise DataError(f"the odd one out needs three words or more, not {len(words)}")
        units = self.units(words)
        return words[int((units @ units.mean(0)).argmin())]

    def all_but_the_top(self, components: int = 0) -> Vectors:
        """v − μ − Σ uₖ (uₖ·(v − μ)) over the leading `components` directions uₖ (Mu and Viswanath 2018)."""
        if not 0 <= components < self.dim:
            raise DataError(
                f"vectors of size {self.dim} have 0 to {self.dim - 1} components to remove, not {components}"
            )
        matrix = np.array(self.matrix, dtype=np.float32)
        matrix -= matrix.mean(0)
        if components:
            _, directions = np.linalg.eigh(matrix.T @ matrix)  # ascending
            leading = directions[:, -components:]
            matrix -= (matrix @ leading) @ leading.T
        return Vectors(self.words, matrix, {**self.meta, "centred": components})

    def first(self, count: int) -> Vectors:
        """The first `count` words, which are the most frequent ones in all common files."""
        return Vectors(self.words[:count], self.matrix[:count], self.meta, self.subword_vectors)

    def conditions(self) -> dict[str, object]:
        """Size and origin of the vectors, for the signature of a figure."""
        origin = {key: value for key, value in self.meta.items() if isinstance(value, str | int | float)}
        return {"words": len(self), "dim": self.dim, **origin}

    def save(self, path: str | PathLike[str], format: Format | None = None, overwrite: bool = False) -> None:
        """Writes the vectors in a format: by default the one of the path's ending, without one a folder (see `formats`)."""
        from seqloom.vectors.formats import save

        save(self, path, format, overwrite)

    def _require_words(self, count: int, consequence: str) -> None:
        if len(self) < count:
            words = "one word" if len(self) == 1 else f"{len(self)} words"
            raise DataError(f"there are vectors of only {words}, so {consequence}; use vectors of more words")

    def _rows(self, words: Iterable[str]) -> list[int]:
        return [self.index[word] for word in words if word in self.index]

    def _with_words(self, rows: np.ndarray, scores: np.ndarray) -> Neighbors:
        return [
            Neighbor(self.words[row], float(score))
            for row, score in zip(rows, scores, strict=True)
            if row >= 0
        ]


class _TopK:
    """The `count` best scores of each query so far, best first; row −1 if there are fewer."""

    def __init__(self, queries: int, count: int) -> None:
        if count < 1:
            raise DataError(f"ask for one neighbour or more, not {count}")
        self.count = count
        self.rows = np.full((queries, 0), -1)
        self.scores = np.full((queries, 0), -np.inf, dtype=np.float32)

    def add(self, scores: np.ndarray, start: int) -> None:
        """Adds the scores (Q, rows) of the rows that begin at `start`."""
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
    """The words spelt most like `word`, ignoring case."""
    lower = word.lower()
    ends = {lower[:1], lower[-1:]}
    by_lowercase: dict[str, str] = {}
    for candidate in words:
        similar_length = abs(len(candidate) - len(word)) < 3
        if similar_length and (candidate[:1].lower() in ends or candidate[-1:].lower() in ends):
            by_lowercase.setdefault(candidate.lower(), candidate)
    return [by_lowercase[match] for match in difflib.get_close_matches(lower, by_lowercase, count, 0.7)]

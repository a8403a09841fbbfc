"""A bilingual lexicon from the vectors of two languages that were trained apart   [K5, T14, W20]

Vectors are divided by their norms, centred and divided again. A rotation R maps the source onto the target (`procrustes`): first by a seed, which
is pairs of words or words that are spelt alike, then by the pairs of frequent words that are each other's translation under the rotation so far.
This is repeated while the mean cosine of words and translations grows.

A translation is the target word with the highest score:

    nearest:  cos(x R, y)
    csls:     2 cos(x R, y) − r_T(x R) − r_S(y)        (Conneau et al. 2018)

r_T is the mean cosine of a vector with its 10 nearest target words, r_S with its 10 nearest mapped source words: a word that is near to everything is
not everything's translation. As r_T does not depend on y, the search is one for the largest product of (2 x R, −1) with (y, r_S(y)).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from seqloom import files
from seqloom.errors import DataError
from seqloom.measure.number import Number, make_signature, wilson
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.text.lines import lines, local_copy
from seqloom.vectors.formats import load
from seqloom.vectors.procrustes import procrustes
from seqloom.vectors.vectors import Vectors

LexiconMethod = Literal["csls", "nearest"]
WordPairs = str | PathLike[str] | Iterable[tuple[str, str]]
NEAREST = 10  # words whose mean cosine is r
FREQUENT = 10_000  # words among which refinement finds its pairs
PAIRS_HINT = "give lines such as: house<TAB>maison"
RANKS = (1, 5, 10)
logger = logging.getLogger("seqloom.vectors")


@dataclass(frozen=True)
class WordTranslation(Result):
    """A word, its translation and the score of the method."""

    word: str
    translation: str
    score: float


@dataclass(frozen=True)
class Refinement(Result):
    """One rotation: the pairs that it comes from, and the mean cosine of the frequent words with what it translates them to."""

    pairs: int
    cosine: float


@dataclass(frozen=True)
class BilingualLexicon(Result):
    """The translations of the source words, and how the test dictionary judges them."""

    method: LexiconMethod
    seed: str  # where the first pairs come from
    refinements: tuple[Refinement, ...]  # the first is by the seed, the last is the one that is used
    precision: tuple[Number, ...]  # at 1, 5 and 10, empty without a test dictionary
    test_words: int  # source words of the test dictionary; those that have vectors are counted by `precision`
    translations: tuple[WordTranslation, ...] = field(repr=False)
    rotation: np.ndarray = field(repr=False, metadata={"json": False})  # (D, D)


class Space(NamedTuple):
    """The words of one language and their unit vectors; `rows` finds a word as dictionaries spell it."""

    words: Sequence[str]
    units: np.ndarray
    rows: dict[str, int]
    lowercase: bool

    @classmethod
    def of(cls, vectors: Vectors | str | PathLike[str], limit: int, lowercase: bool) -> Space:
        """The first `limit` words of vectors, each divided by its norm, centred, and divided again."""
        vectors = (vectors if isinstance(vectors, Vectors) else load(vectors)).first(limit)
        units = np.array(vectors.matrix, np.float32)
        normalize(units)
        units -= units.mean(0)
        normalize(units)
        rows: dict[str, int] = {}
        for row, word in enumerate(vectors.words):
            rows.setdefault(word.lower() if lowercase else word, row)
        return cls(vectors.words, units, rows, lowercase)

    def first(self, count: int) -> Space:
        return self._replace(words=self.words[:count], units=self.units[:count])

    def spelling(self, row: int) -> str:
        """A word as dictionaries spell it."""
        return self.words[row].lower() if self.lowercase else self.words[row]


def normalize(matrix: np.ndarray) -> None:
    """Divides each row by its norm, in place; rows of zeros stay."""
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix /= np.where(norms == 0, 1, norms)


def lexicon(
    source: Vectors | str | PathLike[str],
    target: Vectors | str | PathLike[str],
    *,
    pairs: WordPairs | None = None,
    test: WordPairs | None = None,
    method: LexiconMethod = "csls",
    refinements: int = 5,
    limit: int = 50_000,
    lowercase: bool = True,
    progress: ProgressOption = False,
) -> BilingualLexicon:
    """The lexicon of two sets of vectors, of their first `limit` words each.

    `pairs` and `test` are dictionaries: pairs of words, or a file with a word and its translation on each line. Without `pairs` the seed is the
    words that are spelt alike. `lowercase` ignores case in dictionaries and in spellings.

    >>> rng = np.random.default_rng(0)
    >>> x, (q, _) = rng.normal(size=(50, 8)), np.linalg.qr(rng.normal(size=(8, 8)))
    >>> english, french = [f"e{n}" for n in range(50)], [f"f{n}" for n in range(50)]
    >>> found = lexicon(Vectors(english, x), Vectors(french, x @ q), pairs=zip(english[:20], french[:20]))
    >>> found.translations[49].translation, np.allclose(found.rotation, q, atol=1e-4)
    ('f49', True)
    """
    if refinements < 0 or limit < 1:
        raise DataError(
            f"give refinements of 0 or more, not {refinements}, and a limit of 1 or more, not {limit}"
        )
    known = None if pairs is None else read_pairs(pairs, lowercase)
    wanted = None if test is None else read_pairs(test, lowercase)
    x, y = (Space.of(one, limit, lowercase) for one in (source, target))
    if x.units.shape[1] != y.units.shape[1]:
        sizes = f"{x.units.shape[1]} and {y.units.shape[1]}"
        raise DataError(
            f"vectors of {sizes} dimensions cannot be rotated onto each other; train both with one --dim"
        )
    seed = seed_rows(x, y, known)
    rotation, steps = refine(x, y, seed, method, refinements, progress)
    rows, scores = translate_words(x.units @ rotation, y, method, max(RANKS))
    origin = "words that are spelt alike" if pairs is None else f"{len(seed):,} pairs of {name_of(pairs)}"
    precision: tuple[Number, ...] = ()
    if test is not None and wanted is not None:
        precision = precisions(
            x,
            y,
            wanted,
            rows,
            {"search": method, "seed": origin, "refinements": len(steps) - 1, "test": name_of(test)},
        )
        if known and (shared := {word for word, _ in wanted} & {word for word, _ in known}):
            logger.warning("%d words of the test are in the seed too", len(shared))
    return BilingualLexicon(
        method,
        origin,
        tuple(steps),
        precision,
        len({word for word, _ in wanted or ()}),
        tuple(
            WordTranslation(word, y.words[row], float(score))
            for word, row, score in zip(x.words, rows[:, 0], scores[:, 0], strict=True)
        ),
        rotation,
    )


def read_pairs(pairs: WordPairs, lowercase: bool) -> list[tuple[str, str]]:
    """The pairs of words of a dictionary; tabs or spaces separate the two words of a line."""
    if isinstance(pairs, str | PathLike):
        found = []
        for number, line in enumerate(lines(fspath(pairs)), 1):
            if not line.strip():
                continue
            cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
            if len(cells) != 2 or not all(cells):
                raise DataError(f"{fspath(pairs)}:{number}: not two words; {PAIRS_HINT}")
            found.append((cells[0], cells[1]))
        if not found:
            raise DataError(f"{fspath(pairs)}: no pairs of words; {PAIRS_HINT}")
    else:
        found = [(first, second) for first, second in pairs]
    return [(first.lower(), second.lower()) for first, second in found] if lowercase else found


def name_of(pairs: WordPairs) -> str:
    """A dictionary in a signature: its name and the beginning of its hash."""
    if isinstance(pairs, str | PathLike):
        return f"{Path(pairs).name} {files.sha256(local_copy(fspath(pairs)))[:12]}"
    return "a list"


def seed_rows(x: Space, y: Space, pairs: list[tuple[str, str]] | None) -> np.ndarray:
    """The rows (N, 2) of the first pairs."""
    if pairs is None:
        rows = [(row, y.rows[word]) for word, row in x.rows.items() if word in y.rows]
        if not rows:
            raise DataError("no word is spelt alike in both languages; give translations with --pairs FILE")
    else:
        rows = [(x.rows[a], y.rows[b]) for a, b in pairs if a in x.rows and b in y.rows]
        if not rows:
            raise DataError(
                f"none of the {len(pairs):,} pairs has vectors for both words; use vectors of more words or other pairs"
            )
    return np.array(rows)


def refine(
    x: Space, y: Space, seed: np.ndarray, method: LexiconMethod, refinements: int, progress: ProgressOption
) -> tuple[np.ndarray, list[Refinement]]:
    """The rotation by the seed, then by the pairs of frequent words that translate each other, while the mean cosine grows."""
    frequent = x.first(FREQUENT), y.first(FREQUENT)
    rotation = procrustes(x.units[seed[:, 0]], y.units[seed[:, 1]])
    found, cosine = mutual_pairs(*frequent, rotation, method)
    steps = [Refinement(len(seed), cosine)]
    with Reporter("refinements", refinements, progress) as report:
        for _ in range(refinements if len(found) else 0):
            count = len(found)
            better = procrustes(x.units[found[:, 0]], y.units[found[:, 1]])
            found, cosine = mutual_pairs(*frequent, better, method)
            report.advance()
            if cosine <= steps[-1].cosine or not len(found):
                break
            rotation = better
            steps.append(Refinement(count, cosine))
    return rotation, steps


def mutual_pairs(x: Space, y: Space, rotation: np.ndarray, method: LexiconMethod) -> tuple[np.ndarray, float]:
    """The rows (N, 2) of words that are each other's translation, and the mean cosine of all words with their translations."""
    mapped = x.units @ rotation
    forward = translate_words(mapped, y, method, 1)[0][:, 0]
    backward = translate_words(y.units, x._replace(units=mapped), method, 1)[0][:, 0]
    rows = np.arange(len(forward))
    chosen = rows[backward[forward] == rows]
    cosine = float(np.einsum("vd,vd->v", mapped, y.units[forward]).mean())
    return np.column_stack([chosen, forward[chosen]]), cosine


def translate_words(
    mapped: np.ndarray, y: Space, method: LexiconMethod, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows and scores (N, count) of the best translations of mapped source vectors (N, D); fewer if there are fewer words."""
    count = min(count, len(y.words))
    if method == "nearest":
        return Vectors(y.words, y.units).neighbours(mapped, count, by="dot")
    queries = np.column_stack([2 * mapped, np.full(len(mapped), -1, np.float32)])
    keys = np.column_stack([y.units, mean_of_nearest(y.units, mapped)])
    rows, scores = Vectors(y.words, keys).neighbours(queries, count, by="dot")
    return rows, scores - mean_of_nearest(mapped, y.units)[:, None]


def mean_of_nearest(queries: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The mean cosine of each unit vector with its nearest others: (N,)."""
    count = min(NEAREST, len(others))
    return Vectors([""] * len(others), others).neighbours(queries, count, by="dot")[1].mean(1)


def precisions(
    x: Space, y: Space, wanted: list[tuple[str, str]], rows: np.ndarray, conditions: dict[str, object]
) -> tuple[Number, ...]:
    """How many words of a test dictionary have one of their translations among the first 1, 5 and 10; words without vectors are left out."""
    answers: dict[str, set[str]] = {}
    for word, translation in wanted:
        answers.setdefault(word, set())
        if translation in y.rows:
            answers[word].add(translation)
    asked = [word for word in answers if answers[word] and word in x.rows]
    if not asked:
        raise DataError(
            f"none of the {len(answers):,} words of the test has vectors; use vectors of more words"
        )
    ranked = [[y.spelling(row) for row in rows[x.rows[word]]] for word in asked]
    conditions = {
        "words": f"{len(asked)}/{len(answers)}",
        **conditions,
        "case": "folded" if x.lowercase else "kept",
    }
    conditions |= {"source": len(x.words), "target": len(y.words), "dim": y.units.shape[1]}
    found = []
    for rank in RANKS:
        hits = sum(bool(answers[word] & set(best[:rank])) for word, best in zip(asked, ranked, strict=True))
        name = f"precision@{rank}"
        found.append(
            Number(
                name,
                hits / len(asked),
                make_signature(name, conditions),
                *wilson(hits, len(asked)),
                len(asked),
            )
        )
    return tuple(found)

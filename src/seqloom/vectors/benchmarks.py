"""How good word vectors are: rank correlation with people's judgements of similarity, and analogies answered right.

Every figure carries its interval, how much of the file the vocabulary covers, and its signature. Words that have no vector are left out and
counted, never guessed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom import files
from seqloom.measure import Number, make_signature
from seqloom.text.lines import lines, local_copy
from seqloom.vectors.backend import load_kernels
from seqloom.vectors.vectors import Vectors

WIDTH = 512  # candidates compared at a time: their cosines with every word of the questions stay in the cache


class ScoreWithInterval(NamedTuple):
    """A figure with its 95 % interval, and how many of the questions asked had a vector for every word."""

    number: Number
    low: float
    high: float
    known: int
    asked: int

    def json(self) -> dict[str, Any]:
        return {
            **self.number.json(),
            "low": self.low,
            "high": self.high,
            "known": self.known,
            "asked": self.asked,
        }


def evaluate(
    vectors: Vectors,
    path: str | Path,
    fold: bool = True,
    most: int | None = None,
    method: Literal["add", "mul"] = "add",
) -> list[ScoreWithInterval]:
    """The scores of a file of either kind: analogies begin with a `: section` line or have four words a line, similarities a number."""
    if is_analogies(path):
        return analogies(vectors, path, method, fold, most)
    return [similarities(vectors, path, fold, most)]


def similarities(
    vectors: Vectors, path: str | Path, fold: bool = True, most: int | None = None
) -> ScoreWithInterval:
    """Spearman's ρ between the cosines and people's scores of the word pairs in a file such as WS-353 or SimLex-999."""
    from scipy.stats import spearmanr

    rows = _rows(vectors, fold, most)
    judged = list(read_word_pairs(path))
    known = [
        (rows[_key(a, fold)], rows[_key(b, fold)], score)
        for a, b, score in judged
        if _key(a, fold) in rows and _key(b, fold) in rows
    ]
    if len(known) < 4:
        raise ValueError(
            f"{path}: only {len(known)} of {len(judged)} pairs have vectors; a correlation needs four: use vectors of more words"
        )
    one, other, scores = zip(*known, strict=True)
    u, v = (np.asarray(vectors.matrix[list(side)], dtype=np.float64) for side in (one, other))
    lengths = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    rho = float(spearmanr(np.einsum("nd,nd->n", u, v) / np.where(lengths == 0, 1, lengths), scores).statistic)
    if math.isnan(rho):
        raise ValueError(f"{path}: no correlation: all known pairs have the same cosine or the same score")
    facts = {"pairs": f"{len(known)}/{len(judged)}", **_facts(vectors, path, fold, most)}
    number = Number(f"Spearman {Path(path).stem}", rho, make_signature("spearman|cosine", facts))
    return ScoreWithInterval(number, *correlation_interval(rho, len(known)), len(known), len(judged))


def analogies(
    vectors: Vectors,
    path: str | Path,
    method: Literal["add", "mul"] = "add",
    fold: bool = True,
    most: int | None = None,
) -> list[ScoreWithInterval]:
    """Accuracy on `a b c d` lines (a : b = c : d) under `: section` lines: each section, both groups where there are grammatical
    sections (`gram…`), the total. `method` is 3CosAdd or 3CosMul; the words of a question are never its answer. `fold` ignores case: of
    words that differ by it only, the first one counts; `most` keeps the first words only."""
    rows = _rows(vectors, fold, most)
    sections = list(read_analogies(path))
    asked, place, wanted = [], [], []
    for section, (_, lines_) in enumerate(sections):
        for words in lines_:
            found = [rows.get(_key(word, fold), -1) for word in words]
            if min(found) >= 0:
                asked.append(found[:3])
                wanted.append(found[3])
                place.append(section)
    total = sum(len(lines_) for _, lines_ in sections)
    if not asked:
        raise ValueError(
            f"{path}: none of its {total:,} questions has vectors for all four words; use vectors of more words"
        )
    right = solve_analogies(vectors, np.array(asked), np.array(sorted(rows.values())), method) == np.array(
        wanted
    )
    of = np.array(place)
    facts = {"method": f"3Cos{method.capitalize()}", **_facts(vectors, path, fold, most)}

    def score(name: str, chosen: list[int]) -> ScoreWithInterval:
        hits, known = int(right[np.isin(of, chosen)].sum()), int(np.isin(of, chosen).sum())
        count = sum(len(sections[one][1]) for one in chosen)
        number = Number(
            name,
            hits / known if known else math.nan,
            make_signature("analogies", {"section": name, "questions": f"{known}/{count}", **facts}),
        )
        return ScoreWithInterval(number, *wilson_interval(hits, known), known, count)

    everything = list(range(len(sections)))
    scores = [score(name, [one]) for one, (name, _) in enumerate(sections)]
    grammatical = [one for one in everything if sections[one][0].startswith("gram")]
    if grammatical and len(grammatical) < len(everything):
        scores += [
            score("semantic", [one for one in everything if one not in grammatical]),
            score("syntactic", grammatical),
        ]
    return [*scores, score("total", everything)]


def solve_analogies(
    vectors: Vectors, asked: np.ndarray, candidates: np.ndarray, method: Literal["add", "mul"] = "add"
) -> np.ndarray:
    """The row (Q,) among the ascending `candidates` that answers each question of rows (Q, 3).

    cos(x, b − a + c) ∝ cos(x, b) − cos(x, a) + cos(x, c), so the cosines of all candidates with the few different words of the
    questions are enough: they come from one matrix product a block, and a question costs three additions a candidate.
    """
    words, which = np.unique(asked, return_inverse=True)
    which = which.reshape(asked.shape).astype(np.int32)
    units = np.asarray(vectors.matrix[words], dtype=np.float32) / vectors.norms[words, None]
    kernels = load_kernels("analogies")
    best = np.full(len(asked), -np.inf, dtype=np.float32)
    found = np.full(len(asked), -1, dtype=np.int64)
    for start, rows in vectors.blocks():
        low, high = np.searchsorted(candidates, [start, start + len(rows)])
        for first in range(low, high, WIDTH):
            here = candidates[first : min(first + WIDTH, high)]
            cosines = units @ (rows[here - start] / vectors.norms[here, None]).T  # (words, WIDTH)
            if method == "mul":
                cosines = (1 + cosines) / 2
            kernels.update_best(
                np.ascontiguousarray(cosines), which, asked, here, method == "mul", best, found
            )
    return found


def correlation_interval(rho: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a rank correlation: tanh(atanh ρ ± 1.96 √((1 + ρ²/2) / (n − 3)))   (Bonett and Wright 2000)."""
    centre, width = (
        math.atanh(max(-1 + 1e-15, min(rho, 1 - 1e-15))),
        1.959964 * math.sqrt((1 + rho * rho / 2) / max(count - 3, 1)),
    )
    return math.tanh(centre - width), math.tanh(centre + width)


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share: (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)   (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    z2, p = 1.959964**2, hits / count
    centre, width = p + z2 / (2 * count), math.sqrt(z2 * (p * (1 - p) / count + z2 / (4 * count * count)))
    return max(0.0, (centre - width) / (1 + z2 / count)), min(1.0, (centre + width) / (1 + z2 / count))


def read_word_pairs(path: str | Path) -> Iterator[tuple[str, str, float]]:
    """(word, word, score) of each line: separated by tabs, commas, semicolons or spaces, with or without a header. The score is the
    first column after the words that holds a number."""
    separator, column = None, None
    for number, line in enumerate(lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if separator is None:
            separator = next((one for one in "\t,;" if one in line), " ")
        cells = (
            line.split()
            if separator == " "
            else [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]
        )
        numbers = [place for place, cell in enumerate(cells) if place > 1 and _float(cell)]
        if column is None:
            if not numbers:
                if number == 1:
                    continue  # a header
                raise ValueError(
                    f"{path}:{number}: no two words and a number; give lines such as: tiger<TAB>cat<TAB>7.35"
                )
            column = numbers[0]
        if column not in numbers:
            raise ValueError(f"{path}:{number}: no number in column {column + 1}; repair the line")
        yield cells[0], cells[1], float(cells[column])
    if column is None:
        raise ValueError(
            f"{path}: no two words and a number on any line; give lines such as: tiger<TAB>cat<TAB>7.35"
        )


def read_analogies(path: str | Path) -> Iterator[tuple[str, list[list[str]]]]:
    """(section, questions of four words) of a file such as questions-words.txt."""
    name, found = "all", []
    for number, line in enumerate(lines(path), 1):
        if line.startswith(":"):
            if found:
                yield name, found
            name, found = line[1:].strip(), []
        elif words := line.split():
            if len(words) != 4:
                raise ValueError(
                    f"{path}:{number}: {len(words)} words; an analogy has four, as in: Athens Greece Oslo Norway"
                )
            found.append(words)
    if found:
        yield name, found


def is_analogies(path: str | Path) -> bool:
    """Whether a file holds analogies rather than scored pairs."""
    first = next((line for line in lines(path) if line.strip() and not line.startswith("#")), "")
    words = first.split()
    return first.startswith(":") or (
        len(words) == 4 and not any(map(_float, words)) and not any(mark in first for mark in "\t,;")
    )


def _float(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _key(word: str, fold: bool) -> str:
    return word.lower() if fold else word


def _rows(vectors: Vectors, fold: bool, most: int | None) -> dict[str, int]:
    """Word, in lower case where `fold`, → the first row that has it."""
    words: Sequence[str] = vectors.words if most is None else vectors.words[:most]
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(_key(word, fold), row)
    return rows


def _facts(vectors: Vectors, path: str | Path, fold: bool, most: int | None) -> dict[str, object]:
    return {
        "file": files.sha256(local_copy(path))[:12],
        "case": "folded" if fold else "kept",
        "words": len(vectors) if most is None else min(most, len(vectors)),
        **{key: value for key, value in vectors.facts().items() if key != "words"},
    }

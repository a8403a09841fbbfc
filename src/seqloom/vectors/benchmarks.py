"""Benchmarks of word vectors: correlation with human judgements of similarity, and accuracy on analogies.

Every figure has its interval, its signature, and how much of the file the vocabulary covers. Questions with a
word that has no vector are left out and counted, never guessed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqloom import files
from seqloom.errors import DataError
from seqloom.measure.number import Number, make_signature, wilson
from seqloom.text.lines import lines, local_copy
from seqloom.vectors.backend import load_kernels
from seqloom.vectors.formats import load
from seqloom.vectors.vectors import Vectors

WIDTH = 512  # candidates scored at a time: their cosines with all words of the questions stay in the cache
Method = Literal["add", "mul"]  # 3CosAdd, 3CosMul


@dataclass(frozen=True)
class BenchmarkScore(Number):
    """Spearman's correlation on a file of judged pairs, or the accuracy on a section of analogies.

    `n` of `total` pairs or questions have a vector for every word; the value is over those.
    """

    section: str = ""  # of analogies; the name of a file of pairs
    total: int = 0

    @property
    def title(self) -> str:
        return f"Spearman {self.section}" if self.name == "spearman" else self.section

    def to_dict(self) -> dict[str, Any]:
        return {"section": self.section, **super().to_dict(), "total": self.total}


def evaluate(
    vectors: Vectors | str | PathLike[str],
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    lowercase: bool = True,
    limit: int | None = None,
    method: Method = "add",
) -> list[BenchmarkScore]:
    """The scores of vectors, or of a file of them, on benchmark files of analogies or of judged word pairs (see `is_analogies`).

    >>> import tempfile
    >>> from pathlib import Path
    >>> vectors = Vectors(["man", "king", "woman", "queen"], np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "questions.txt").write_text(": royal\\nman king woman queen\\n")
    ...     [(score.section, score.value, score.n) for score in evaluate(vectors, f"{folder}/questions.txt")]
    [('royal', 1.0, 1), ('total', 1.0, 1)]
    """
    if not isinstance(vectors, Vectors):
        vectors = load(vectors)
    scores: list[BenchmarkScore] = []
    for file in [files] if isinstance(files, str | PathLike) else files:
        path = Path(file)
        if is_analogies(path):
            scores += analogies(vectors, path, method, lowercase, limit)
        else:
            scores.append(similarities(vectors, path, lowercase, limit))
    return scores


def similarities(
    vectors: Vectors, path: str | Path, lowercase: bool = True, limit: int | None = None
) -> BenchmarkScore:
    """Spearman's ρ between the cosines and human scores of word pairs, in files like WS-353 or SimLex-999."""
    from scipy.stats import spearmanr

    rows = _rows(vectors, lowercase, limit)
    pairs = [(_key(a, lowercase), _key(b, lowercase), score) for a, b, score in read_word_pairs(path)]
    covered = [(rows[a], rows[b], score) for a, b, score in pairs if a in rows and b in rows]
    if len(covered) < 4:
        raise DataError(
            f"{path}: only {len(covered)} of {len(pairs)} pairs have vectors; a correlation needs four: "
            "use vectors of more words"
        )
    first, second, scores = zip(*covered, strict=True)
    u, v = (np.asarray(vectors.matrix[list(side)], dtype=np.float64) for side in (first, second))
    norms = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    cosines = np.einsum("nd,nd->n", u, v) / np.where(norms == 0, 1, norms)
    rho = float(spearmanr(cosines, scores).statistic)
    if math.isnan(rho):
        raise DataError(f"{path}: no correlation: all covered pairs have the same cosine or the same score")
    conditions = {"pairs": f"{len(covered)}/{len(pairs)}", **_conditions(vectors, path, lowercase, limit)}
    signature = make_signature("spearman|cosine", conditions)
    low, high = correlation_interval(rho, len(covered))
    return BenchmarkScore("spearman", rho, signature, low, high, len(covered), Path(path).stem, len(pairs))


def analogies(
    vectors: Vectors,
    path: str | Path,
    method: Method = "add",
    lowercase: bool = True,
    limit: int | None = None,
) -> list[BenchmarkScore]:
    """Accuracy on `a b c d` lines (a : b = c : d) under `: section` lines.

    Returns the score of each section, of the semantic and the syntactic group if there are grammatical
    sections (`gram…`), and the total. `method` is 3CosAdd or 3CosMul; the words of a question are never its
    answer. `lowercase` ignores case: of words that differ only in case, the first one counts; `limit` uses
    the first words only.
    """
    rows = _rows(vectors, lowercase, limit)
    sections = list(read_analogies(path))
    questions: list[list[int]] = []
    expected: list[int] = []
    section_of: list[int] = []
    for section, (_, lines_) in enumerate(sections):
        for words in lines_:
            ids = [rows.get(_key(word, lowercase), -1) for word in words]
            if min(ids) >= 0:
                questions.append(ids[:3])
                expected.append(ids[3])
                section_of.append(section)
    if not questions:
        total = sum(len(lines_) for _, lines_ in sections)
        raise DataError(
            f"{path}: none of its {total:,} questions has vectors for all four words; use vectors of more words"
        )
    candidates = np.array(sorted(rows.values()))
    correct = solve_analogies(vectors, np.array(questions), candidates, method) == np.array(expected)
    conditions = {"search": f"3Cos{method.capitalize()}", **_conditions(vectors, path, lowercase, limit)}

    def score(section_name: str, chosen: list[int]) -> BenchmarkScore:
        inside = np.isin(section_of, chosen)
        hits = int(correct[inside].sum())
        covered = int(inside.sum())
        count = sum(len(sections[section][1]) for section in chosen)
        signature = make_signature(
            "analogies", {"section": section_name, "questions": f"{covered}/{count}", **conditions}
        )
        value = hits / covered if covered else math.nan
        return BenchmarkScore(
            "accuracy", value, signature, *wilson(hits, covered), covered, section_name, count
        )

    everything = list(range(len(sections)))
    scores = [score(name, [section]) for section, (name, _) in enumerate(sections)]
    syntactic = [section for section in everything if sections[section][0].startswith("gram")]
    if syntactic and len(syntactic) < len(everything):
        semantic = [section for section in everything if section not in syntactic]
        scores += [score("semantic", semantic), score("syntactic", syntactic)]
    return [*scores, score("total", everything)]


def solve_analogies(
    vectors: Vectors, questions: np.ndarray, candidates: np.ndarray, method: Method = "add"
) -> np.ndarray:
    """The row (Q,) among the ascending `candidates` that answers each question of rows (Q, 3).

    cos(x, b − a + c) ∝ cos(x, b) − cos(x, a) + cos(x, c), so the cosines of all candidates with the distinct
    words of the questions suffice: they come from one matrix product per block, and a question costs three
    additions per candidate.
    """
    kernels = load_kernels("analogies")
    words, which = np.unique(questions, return_inverse=True)
    which = which.reshape(questions.shape).astype(np.int32)
    units = np.asarray(vectors.matrix[words], dtype=np.float32) / vectors.norms[words, None]
    best = np.full(len(questions), -np.inf, dtype=np.float32)
    answers = np.full(len(questions), -1, dtype=np.int64)
    for start, rows in vectors.blocks():
        low, high = np.searchsorted(candidates, [start, start + len(rows)])
        for first in range(low, high, WIDTH):
            block = candidates[first : min(first + WIDTH, high)]
            cosines = units @ (rows[block - start] / vectors.norms[block, None]).T  # (words, WIDTH)
            if method == "mul":
                cosines = (1 + cosines) / 2
            cosines = np.ascontiguousarray(cosines)
            kernels.update_best(cosines, which, questions, block, method == "mul", best, answers)
    return answers


def correlation_interval(rho: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a rank correlation (Bonett and Wright 2000).

    tanh(atanh ρ ± 1.96 √((1 + ρ²/2) / (n − 3)))
    """
    centre = math.atanh(max(-1 + 1e-15, min(rho, 1 - 1e-15)))
    width = 1.959964 * math.sqrt((1 + rho * rho / 2) / max(count - 3, 1))
    return math.tanh(centre - width), math.tanh(centre + width)


def read_word_pairs(path: str | Path) -> Iterator[tuple[str, str, float]]:
    """(word, word, score) of each line, with or without a header line.

    Tabs, commas, semicolons or spaces separate columns. The score is the first column after the words that
    has a number.
    """
    separator: str | None = None
    column: int | None = None
    for line_number, line in enumerate(lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if separator is None:
            separator = next((mark for mark in "\t,;" if mark in line), " ")
        if separator == " ":
            cells = line.split()
        else:
            cells = [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]
        numeric = [index for index, cell in enumerate(cells) if index > 1 and _is_finite_number(cell)]
        if column is None:
            if not numeric:
                if line_number == 1:
                    continue  # a header
                raise DataError(
                    f"{path}:{line_number}: no two words and a number; give lines such as: tiger<TAB>cat<TAB>7.35"
                )
            column = numeric[0]
        if column not in numeric:
            raise DataError(f"{path}:{line_number}: no number in column {column + 1}; repair the line")
        yield cells[0], cells[1], float(cells[column])
    if column is None:
        raise DataError(
            f"{path}: no two words and a number on any line; give lines such as: tiger<TAB>cat<TAB>7.35"
        )


def read_analogies(path: str | Path) -> Iterator[tuple[str, list[list[str]]]]:
    """(section, questions of four words) of a file such as questions-words.txt."""
    section = "all"
    questions: list[list[str]] = []
    for line_number, line in enumerate(lines(path), 1):
        if line.startswith(":"):
            if questions:
                yield section, questions
            section = line[1:].strip()
            questions = []
        elif words := line.split():
            if len(words) != 4:
                raise DataError(
                    f"{path}:{line_number}: {len(words)} words; an analogy has four, as in: Athens Greece Oslo Norway"
                )
            questions.append(words)
    if questions:
        yield section, questions


def is_analogies(path: str | Path) -> bool:
    """Whether a file has analogies: its first line is `: section`, or has four words and no numbers."""
    first = next((line for line in lines(path) if line.strip() and not line.startswith("#")), "")
    words = first.split()
    has_numbers = any(map(_is_finite_number, words))
    has_separators = any(mark in first for mark in "\t,;")
    return first.startswith(":") or (len(words) == 4 and not has_numbers and not has_separators)


def _is_finite_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _key(word: str, lowercase: bool) -> str:
    return word.lower() if lowercase else word


def _rows(vectors: Vectors, lowercase: bool, limit: int | None) -> dict[str, int]:
    """The first row of each word, in lower case if `lowercase`."""
    words: Sequence[str] = vectors.words if limit is None else vectors.words[:limit]
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(_key(word, lowercase), row)
    return rows


def _conditions(vectors: Vectors, path: str | Path, lowercase: bool, limit: int | None) -> dict[str, object]:
    """What the figures depend on, for their signatures."""
    return {
        "file": files.sha256(local_copy(path))[:12],
        "case": "folded" if lowercase else "kept",
        "words": len(vectors) if limit is None else min(limit, len(vectors)),
        **{key: value for key, value in vectors.conditions().items() if key != "words"},
    }

"""Suspicions about parallel text: lines that are shifted against each other, sides that are one language, sides that are swapped.

A pair of lines agrees if their lengths fit and they share numbers, names and other words. If the lines from some place on agree clearly
better with their neighbours, a line is missing or too many at that place. These are hints, never errors.

Languages are compared by their most frequent character trigrams (Cavnar and Trenkle, N-gram-based text categorization).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

SHIFTS = (1, -1, 2, -2, 3, -3)
MIN_PAIRS = 20  # fewer say nothing
MIN_DEVIATIONS = 6.0  # how many standard deviations a better shift must be away from chance
PROFILE_SIZE = 300  # trigrams of a profile
SAME_LANGUAGE = 0.9  # cosine of the profiles of two texts of one language
MARGIN = 0.15  # by which another profile must fit better

Profile = dict[str, float]


class Shift(NamedTuple):
    """The source of pair i belongs to the target of pair i + `lines`, from the pair with the number `start` on."""

    lines: int
    start: int


def find_shift(sources: Sequence[str], targets: Sequence[str]) -> Shift | None:
    """A shift between parallel lines that are surely not aligned from some line on; None if there is none."""
    count = min(len(sources), len(targets))
    if count < MIN_PAIRS:
        return None
    lengths = [np.log1p([len(text) for text in side[:count]]) for side in (sources, targets)]
    words = [[anchors(text) for text in side[:count]] for side in (sources, targets)]
    aligned = agreement(lengths, words, 0)
    best: tuple[float, Shift] | None = None
    for shift in SHIFTS:
        gain = agreement(lengths, words, shift) - aligned
        gain[~np.isfinite(gain)] = 0
        suffix = np.cumsum(gain[::-1])[::-1]  # of all lines from i on
        start = int(np.argmax(suffix))
        length = count - start
        deviations = suffix[start] / (np.sqrt(length) * (gain.std() or 1.0))
        if (
            length >= MIN_PAIRS // 2
            and deviations > MIN_DEVIATIONS
            and (best is None or deviations > best[0])
        ):
            best = deviations, Shift(shift, start)
    return best[1] if best else None


def anchors(text: str) -> frozenset[str]:
    """The words of a line that a translation often copies: those with digits and capitals, and long ones."""
    words = (word.strip(".,;:!?\"'()[]«»") for word in text.split())
    return frozenset(word.lower() for word in words if word and (len(word) > 3 or not word.islower()))


def agreement(
    lengths: Sequence[np.ndarray], words: Sequence[Sequence[frozenset[str]]], shift: int
) -> np.ndarray:
    """How well each source agrees with the target `shift` lines on, (n,); NaN beyond the ends."""
    count = len(lengths[0])
    scores = np.full(count, np.nan)
    first, last = max(0, -shift), min(count, count - shift)
    ratio = lengths[1][first + shift : last + shift] - lengths[0][first:last]
    usual = np.median(lengths[1] - lengths[0])
    shared = [
        len(words[0][i] & words[1][i + shift]) / math.sqrt(len(words[0][i]) * len(words[1][i + shift]) or 1)
        for i in range(first, last)
    ]
    scores[first:last] = 2 * np.array(shared) - np.minimum(np.abs(ratio - usual), 1)
    return scores


def trigram_profile(texts: Iterable[str]) -> Profile:
    """The shares of the most frequent character trigrams of texts, case ignored."""
    counts: Counter[str] = Counter()
    for text in texts:
        padded = f" {text.strip().lower()} "
        counts.update(padded[i : i + 3] for i in range(len(padded) - 2))
    total = sum(counts.values()) or 1
    return {trigram: round(count / total, 6) for trigram, count in counts.most_common(PROFILE_SIZE)}


def similarity(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The cosine of two profiles, from 0 to 1."""
    product = sum(share * other.get(trigram, 0.0) for trigram, share in one.items())
    norms = math.sqrt(sum(x * x for x in one.values()) * sum(x * x for x in other.values()))
    return product / norms if norms else 0.0


def same_language(sources: Sequence[str], targets: Sequence[str]) -> bool:
    """Whether both sides look like text of one language."""
    if len(sources) < MIN_PAIRS:
        return False
    return similarity(trigram_profile(sources), trigram_profile(targets)) > SAME_LANGUAGE


def looks_swapped(profiles: Sequence[Profile], sources: Sequence[str]) -> bool:
    """Whether texts look more like the targets that a run was trained on than like its sources. `profiles` are those of both."""
    if sum(map(len, sources)) < 200:
        return False
    found = trigram_profile(sources)
    return similarity(found, profiles[1]) > similarity(found, profiles[0]) + MARGIN

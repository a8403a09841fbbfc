"""Quality of pronunciations: phoneme and word error rate, against the closest of a word's pronunciations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from seqloom.measure.number import Number, bootstrap, make_signature, percent, wilson


def distance(output: Sequence[Hashable], reference: Sequence[Hashable]) -> int:
    """d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [oᵢ ≠ rⱼ]):
    the fewest deletions, insertions and substitutions (Levenshtein)."""
    row = list(range(len(reference) + 1))
    for i, output_item in enumerate(output, 1):
        diagonal = row[0]
        row[0] = i
        for j, reference_item in enumerate(reference, 1):
            substitution = diagonal + (output_item != reference_item)
            diagonal = row[j]
            row[j] = min(row[j] + 1, row[j - 1] + 1, substitution)
    return row[-1]


def pronunciation_errors(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """Of each word the errors of its output, and the phonemes of the reference that is closest to it."""
    words: dict[str, tuple[str, list[list[str]]]] = {}
    for source, output, reference in zip(sources, outputs, references, strict=True):
        words.setdefault(source, (output, []))[1].append(reference.split())
    return {
        word: min(
            ((distance(output.split(), candidate), len(candidate)) for candidate in candidates),
            key=lambda pair: pair[0],
        )
        for word, (output, candidates) in words.items()
    }


def phoneme_error_rates(sums: np.ndarray) -> np.ndarray:
    """Σ d / Σ |r| in percent, of sums of errors and phonemes: (R, 2) → (R,)."""
    return 100 * sums[:, 0] / sums[:, 1].clip(1)


def pronunciation(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], conditions: dict[str, object]
) -> list[Number]:
    """Phoneme error rate Σ d / Σ |r|, and word error rate, the fraction of words with d > 0, in percent.

    A word that occurs several times counts once, against the reference that is closest to its output.
    """
    by_word = np.array([*pronunciation_errors(sources, outputs, references).values()], np.float64).reshape(
        -1, 2
    )
    count = len(by_word)
    phonemes = int(by_word[:, 1].sum())
    wrong_words = int((by_word[:, 0] > 0).sum())
    all_conditions = {"words": count, "references": "closest", **conditions}
    phoneme_signature = make_signature("PER", {"phonemes": phonemes, **all_conditions})
    rate = float(phoneme_error_rates(by_word.sum(0, keepdims=True))[0])
    word_interval = percent(wilson(wrong_words, count))
    word_signature = make_signature("WER", all_conditions)
    return [
        Number("per", rate, phoneme_signature, *bootstrap(by_word, phoneme_error_rates), n=phonemes),
        Number("wer", 100 * wrong_words / max(1, count), word_signature, *word_interval, n=count),
    ]

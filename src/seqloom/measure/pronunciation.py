"""Quality of pronunciations: phoneme and word error rate, against the closest of a word's pronunciations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from seqloom.measure.number import Number, make_signature


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


def pronunciation(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], conditions: dict[str, object]
) -> list[Number]:
    """Phoneme error rate Σ d / Σ |r|, and word error rate, the fraction of words with d > 0, in percent.

    A word that occurs several times counts once, against the reference that is closest to its output.
    """
    words: dict[str, tuple[str, list[list[str]]]] = {}
    for source, output, reference in zip(sources, outputs, references, strict=True):
        words.setdefault(source, (output, []))[1].append(reference.split())
    wrong_words = 0
    errors = 0
    phonemes = 0
    for output, candidates in words.values():
        distances = [(distance(output.split(), candidate), len(candidate)) for candidate in candidates]
        word_errors, length = min(distances, key=lambda pair: pair[0])
        errors += word_errors
        phonemes += length
        wrong_words += word_errors > 0
    all_conditions = {"words": len(words), "references": "closest", **conditions}
    phoneme_signature = make_signature("PER", {"phonemes": phonemes, **all_conditions})
    return [
        Number("phoneme error rate", 100 * errors / max(1, phonemes), phoneme_signature),
        Number(
            "word error rate", 100 * wrong_words / max(1, len(words)), make_signature("WER", all_conditions)
        ),
    ]

"""How well words are pronounced: phoneme and word error rate, against the closest of a word's pronunciations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from seqloom.measure.number import Number, make_signature


def distance(output: Sequence[Hashable], reference: Sequence[Hashable]) -> int:
    """d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [oᵢ ≠ rⱼ]): the fewest deletions, insertions and substitutions (Levenshtein)."""
    row = list(range(len(reference) + 1))
    for i, one in enumerate(output, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(reference, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def pronunciation(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], facts: dict[str, object]
) -> list[Number]:
    """Phoneme error rate Σ d / Σ |r| and word error rate, the share of words with d > 0, in percent. A word that occurs several times counts
    once, against the reference that is closest to its output."""
    known: dict[str, tuple[str, list[list[str]]]] = {}
    for source, output, reference in zip(sources, outputs, references, strict=True):
        known.setdefault(source, (output, []))[1].append(reference.split())
    wrong = errors = phonemes = 0
    for output, right in known.values():
        error, size = min(
            ((distance(output.split(), one), len(one)) for one in right), key=lambda pair: pair[0]
        )
        errors, phonemes, wrong = errors + error, phonemes + size, wrong + (error > 0)
    more = {"words": len(known), "references": "closest", **facts}
    return [
        Number(
            "phoneme error rate",
            100 * errors / max(1, phonemes),
            make_signature("PER", {"phonemes": phonemes, **more}),
        ),
        Number("word error rate", 100 * wrong / max(1, len(known)), make_signature("WER", more)),
    ]

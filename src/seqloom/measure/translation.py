"""Translation quality by sacrebleu, on detokenised text, with sacrebleu's own signatures."""

from __future__ import annotations

from collections.abc import Sequence

from seqloom.measure.number import Number


def translation(
    outputs: Sequence[str], references: Sequence[str], conditions: dict[str, object]
) -> list[Number]:
    """BLEU and chrF of the outputs, against one reference each."""
    from sacrebleu.metrics import BLEU, CHRF

    suffix = "".join(f"|{key}:{value}" for key, value in conditions.items())
    numbers = []
    for name, metric in (("BLEU", BLEU()), ("chrF", CHRF())):
        score = metric.corpus_score(list(outputs), [list(references)])
        numbers.append(Number(name, score.score, f"{name}|{metric.get_signature()}{suffix}"))
    return numbers

"""Translation quality by sacrebleu, on detokenised text, with sacrebleu's own signatures.

The intervals resample sentences: BLEU and chrF are functions of n-gram counts that are summed over sentences (`bleu_statistics`,
`chrf_statistics`), so a resample is a sum of rows, and 1,000 of them take a moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from seqloom.measure.number import Number, bootstrap

BLEU_ORDER = 4
CHRF_ORDER = 6
CHRF_BETA = 2


def bleu_statistics(outputs: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Of each sentence: its length, that of its reference, and for n = 1 … 4 the matched and all n-grams; (N, 10)."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(effective_order=True)
    scores = [
        metric.sentence_score(*pair) for pair in zip(outputs, ([text] for text in references), strict=True)
    ]
    return np.array(
        [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores], np.float64
    ).reshape(-1, 2 + 2 * BLEU_ORDER)


def bleu_scores(sums: np.ndarray) -> np.ndarray:
    """BLEU of each row of summed statistics, (R, 10) → (R,): BP · exp(Σ ln pₙ / 4), with sacrebleu's smoothing of counts that are 0
    (each halves what the one before it got)."""
    lengths, reference_lengths = sums[:, 0], sums[:, 1]
    matched, total = sums[:, 2 : 2 + BLEU_ORDER], sums[:, 2 + BLEU_ORDER :]
    is_zero = matched == 0
    smoothed = 1 / 2.0 ** np.cumsum(is_zero, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(is_zero, smoothed, matched) / total
        brevity = np.minimum(0.0, 1 - reference_lengths / lengths)
        scores = 100 * np.exp(brevity + np.log(precision).mean(1))
    return np.where(matched.any(1) & (total > 0).all(1), scores, 0.0)


def chrf_statistics(outputs: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Of each sentence, for n = 1 … 6: its character n-grams, those of its reference, and those in both; (N, 18)."""
    rows = []
    for output, reference in zip(outputs, references, strict=True):
        row = []
        texts = "".join(output.split()), "".join(reference.split())
        for n in range(1, CHRF_ORDER + 1):
            found, wanted = (Counter(text[i : i + n] for i in range(len(text) - n + 1)) for text in texts)
            row += [found.total() if wanted else 0, wanted.total(), (found & wanted).total()]
        rows.append(row)
    return np.array(rows, np.float64).reshape(-1, 3 * CHRF_ORDER)


def chrf_scores(sums: np.ndarray) -> np.ndarray:
    """chrF of each row of summed statistics, (R, 18) → (R,): F₂ of the mean precision and the mean recall over the orders that occur."""
    found, wanted, matched = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    occurs = (found > 0) & (wanted > 0)
    orders = occurs.sum(1).clip(1)
    precision = np.where(occurs, matched / found.clip(1), 0).sum(1) / orders
    recall = np.where(occurs, matched / wanted.clip(1), 0).sum(1) / orders
    factor = CHRF_BETA**2
    return 100 * (1 + factor) * precision * recall / np.maximum(factor * precision + recall, 1e-16)


Scores = Callable[[np.ndarray], np.ndarray]
Statistics = Callable[[Sequence[str], Sequence[str]], np.ndarray]
METRICS: dict[str, tuple[Statistics, Scores]] = {
    "BLEU": (bleu_statistics, bleu_scores),
    "chrF": (chrf_statistics, chrf_scores),
}


def translation(
    outputs: Sequence[str], references: Sequence[str], conditions: dict[str, object]
) -> list[Number]:
    """BLEU and chrF of the outputs, against one reference each."""
    from sacrebleu.metrics import BLEU, CHRF

    suffix = "".join(f"|{key}:{value}" for key, value in conditions.items())
    numbers = []
    for name, metric in (("BLEU", BLEU()), ("chrF", CHRF())):
        score = metric.corpus_score(list(outputs), [list(references)])
        statistics, scores = METRICS[name]
        interval = bootstrap(statistics(outputs, references), scores)
        signature = f"{name}|{metric.get_signature()}{suffix}"
        numbers.append(Number(name.lower(), score.score, signature, *interval, n=len(outputs)))
    return numbers


def bleu_of(outputs: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of the outputs alone, for comparisons within a program."""
    return float(bleu_scores(bleu_statistics(outputs, references).sum(0, keepdims=True))[0])

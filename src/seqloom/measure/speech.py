"""Quality of transcripts: word and character error rate by jiwer, after a text normaliser that the signature names.

`lower-nopunct` is Unicode's NFKC in lower case, without punctuation except apostrophes inside words, with single spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal

import numpy as np

from seqloom.measure.number import Number, bootstrap, make_signature

Normalizer = Literal["lower-nopunct", "none"]
APOSTROPHES = re.compile(r"(?<=\w)[’ʼ'](?=\w)")
MARK = "\ufdd0"  # stands for an apostrophe while punctuation is removed; Unicode gives it to no character


def normalize_text(text: str, normalizer: Normalizer = "lower-nopunct") -> str:
    """The text as it is compared."""
    if normalizer == "none":
        return " ".join(text.split())
    text = APOSTROPHES.sub(MARK, unicodedata.normalize("NFKC", text).lower())
    kept = (" " if unicodedata.category(char)[0] in "PS" else char for char in text)
    return " ".join("".join(kept).replace(MARK, "'").split())


def error_counts(
    outputs: Sequence[str], references: Sequence[str], unit: Literal["words", "characters"]
) -> np.ndarray:
    """Substitutions, deletions and insertions of each output together, and the units of its reference: (n, 2)."""
    import jiwer

    process = jiwer.process_words if unit == "words" else jiwer.process_characters
    rows = []
    for output, reference in zip(outputs, references, strict=True):
        size = len(reference.split()) if unit == "words" else len(reference)
        if not reference or not output:
            missed = len(output.split()) if unit == "words" else len(output)
            rows.append((max(size, missed), size))
            continue
        result = process(reference, output)
        rows.append((result.substitutions + result.deletions + result.insertions, size))
    return np.array(rows, np.float64).reshape(-1, 2)


def error_rates(sums: np.ndarray) -> np.ndarray:
    """Σ errors / Σ units in per cent: (R, 2) → (R,)."""
    return 100 * sums[:, 0] / sums[:, 1].clip(1)


def transcription(
    outputs: Sequence[str],
    references: Sequence[str],
    conditions: dict[str, object],
    normalizer: Normalizer = "lower-nopunct",
) -> tuple[list[Number], np.ndarray]:
    """WER = (S + D + I) / N over words, CER the same over characters, and the share of texts that are wrong anywhere, in per cent; with the
    errors and words of each record."""
    outputs = [normalize_text(text, normalizer) for text in outputs]
    references = [normalize_text(text, normalizer) for text in references]
    shared = {"norm": normalizer, "jiwer": version("jiwer"), **conditions}
    numbers = []
    by_word = error_counts(outputs, references, "words")
    for name, unit, counts in (
        ("wer", "words", by_word),
        ("cer", "characters", error_counts(outputs, references, "characters")),
    ):
        rate = float(error_rates(counts.sum(0, keepdims=True))[0])
        size = int(counts[:, 1].sum())
        signature = make_signature(name.upper(), {unit: size, **shared})
        numbers.append(Number(name, rate, signature, *bootstrap(counts, error_rates), n=size))
    wrong = np.stack([by_word[:, 0] > 0, np.ones(len(by_word))], 1).astype(np.float64)
    signature = make_signature("SER", {"texts": len(wrong), **shared})
    rate = float(error_rates(wrong.sum(0, keepdims=True))[0])
    numbers.append(Number("ser", rate, signature, *bootstrap(wrong, error_rates), n=len(wrong)))
    return numbers, by_word

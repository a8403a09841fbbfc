"""Quality of predicted labels: accuracy, F1 of each label,
the confusion matrix, and the calibration of probabilities.

Counts are accumulated batch by batch, so that memory does not grow with the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqloom.measure.number import Interval, Number, RecordSums, make_signature, percent, wilson

BINS = 15


class Confusion:
    """counts[i, j]: how often label j was predicted where label i is correct."""

    def __init__(self, labels: Sequence[str]):
        self.labels = list(labels)
        self.counts = np.zeros((len(self.labels), len(self.labels)), np.int64)
        self.records = RecordSums(2 * len(self.labels))

    def add(self, gold: np.ndarray, predicted: np.ndarray) -> None:
        """Adds the label indices of one record: of a text, or of the words of a sentence."""
        gold = np.asarray(gold)
        predicted = np.asarray(predicted)
        size = len(self.labels)
        np.add.at(self.counts, (gold, predicted), 1)
        hits = np.bincount(gold[gold == predicted], minlength=size)
        occurrences = np.bincount(gold, minlength=size) + np.bincount(predicted, minlength=size)
        self.records.add_array(np.concatenate([hits, occurrences]))

    def accuracy(self) -> float:
        """Σ counts[i, i] / Σ counts"""
        return float(np.trace(self.counts) / max(self.counts.sum(), 1))

    def occurrences(self) -> np.ndarray:
        """How often each label is correct plus how often it is predicted."""
        return self.counts.sum(0) + self.counts.sum(1)

    def f1(self) -> np.ndarray:
        """2 · hits / (correct + predicted) for each label; 0 for a label that does not occur."""
        return 2 * np.diag(self.counts) / np.maximum(self.occurrences(), 1)

    def macro_f1(self) -> float:
        """The mean F1 of the labels that occur in the data or in the predictions."""
        occurring = self.occurrences() > 0
        return float(self.f1()[occurring].mean()) if occurring.any() else 0.0

    def accuracy_interval(self, one_each: bool) -> Interval:
        """The interval of the accuracy: Wilson's if every record has one label; else sentences are resampled, since their words are not
        independent."""
        if one_each:
            return wilson(int(np.trace(self.counts)), int(self.counts.sum()))
        size = len(self.labels)
        return self.records.interval(lambda sums: 2 * sums[:, :size].sum(1) / sums[:, size:].sum(1).clip(1))

    def macro_f1_interval(self) -> Interval:
        """The interval of the macro F1; of each draw it is the mean over the labels that occur there."""
        size = len(self.labels)

        def macro_f1(sums: np.ndarray) -> np.ndarray:
            occurrences = sums[:, size:]
            f1 = 2 * sums[:, :size] / occurrences.clip(1)
            return f1.sum(1) / (occurrences > 0).sum(1).clip(1)

        return self.records.interval(macro_f1)

    def lines(self) -> list[str]:
        """Returns a printable table: a row for each label of the data,
        a column for each predicted label, and each label's F1."""
        occurring = np.flatnonzero(self.occurrences())
        names = [self.labels[i] for i in occurring]
        name_width = max([5, *map(len, names)])
        cell_width = max([5, *(len(f"{count:,}") for count in self.counts.ravel()), *map(len, names)]) + 1
        header = (
            f"{'right':{name_width}} " + "".join(f"{name:>{cell_width}}" for name in names) + f"{'F1':>8}"
        )
        rows = []
        for i in occurring:
            cells = "".join(f"{self.counts[i, j]:>{cell_width},}" for j in occurring)
            rows.append(f"{self.labels[i]:{name_width}} {cells}{100 * self.f1()[i]:8.2f}")
        return [header, *rows]

    def json(self) -> dict[str, object]:
        """Returns the labels and the counts as a JSON object."""
        return {"labels": self.labels, "counts": self.counts.tolist()}


class Calibration:
    """Expected calibration error: Σ_b n_b / n |accuracy_b - confidence_b|
    over `BINS` equal bins of the probability (Guo et al.).

    The probability is that of the predicted label.
    """

    def __init__(self) -> None:
        self.sums = np.zeros((3, BINS))  # predictions, correct predictions, probabilities

    def add(self, probability: np.ndarray, correct: np.ndarray) -> None:
        """Adds predictions: the probability of each, and whether it is correct."""
        bins = np.clip(np.ceil(np.asarray(probability, np.float64) * BINS).astype(int) - 1, 0, BINS - 1)
        for row, values in enumerate((np.ones(len(bins)), correct, probability)):
            np.add.at(self.sums[row], bins, values)

    def error(self) -> float:
        """Returns the expected calibration error."""
        count, correct, confidence = self.sums
        return float(np.abs(correct - confidence).sum() / max(count.sum(), 1))


def classification_metrics(
    confusion: Confusion, calibration: Calibration, unit: str, conditions: dict[str, object]
) -> list[Number]:
    """Accuracy, macro F1 and the expected calibration error,
    in percent; `unit` is what is labelled, words or records."""
    count = int(confusion.counts.sum())
    all_conditions = {unit: count, "labels": len(confusion.labels), **conditions}
    calibration_signature = make_signature("ECE", {"bins": BINS, **all_conditions})
    accuracy_interval = percent(confusion.accuracy_interval(unit == "records"))
    f1_interval = percent(confusion.macro_f1_interval())
    accuracy_signature = make_signature("accuracy", all_conditions)
    f1_signature = make_signature("macro-F1", all_conditions)
    return [
        Number("accuracy", 100 * confusion.accuracy(), accuracy_signature, *accuracy_interval, n=count),
        Number("macro_f1", 100 * confusion.macro_f1(), f1_signature, *f1_interval, n=count),
        Number("calibration_error", 100 * calibration.error(), calibration_signature, n=count),
    ]

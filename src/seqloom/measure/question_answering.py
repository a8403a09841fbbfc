"""Quality of answers to questions, as SQuAD measures it: exact match, and F1 of the words."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from seqloom.measure.number import Number, RecordSums, make_signature, percent, wilson

ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> list[str]:
    """Returns the words of an answer in lower case, without punctuation and articles."""
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def exact_match(predicted: str, gold: Sequence[str]) -> float:
    """1 if the words equal those of a correct answer, else 0;
    without correct answers, 1 if the prediction is empty."""
    words = normalize_answer(predicted)
    return float(any(words == normalize_answer(answer) for answer in gold or [""]))


def f1(predicted: str, gold: Sequence[str]) -> float:
    """The maximum over the correct answers of 2 · common words / (words predicted + words correct)."""
    predicted_words = normalize_answer(predicted)

    def f1_of(answer: str) -> float:
        gold_words = normalize_answer(answer)
        if not predicted_words or not gold_words:
            return float(predicted_words == gold_words)
        common = (Counter(predicted_words) & Counter(gold_words)).total()
        return 2 * common / (len(predicted_words) + len(gold_words))

    return max(f1_of(answer) for answer in gold or [""])


class AnswerMetrics:
    """Accumulates exact match and F1 over questions."""

    def __init__(self) -> None:
        self.count = 0
        self.exact_match_sum = 0.0
        self.f1_sum = 0.0
        self.records = RecordSums(2)

    def add(self, predicted: str, gold: Sequence[str]) -> None:
        """Adds a question; `gold` are its correct answers."""
        self.count += 1
        self.exact_match_sum += exact_match(predicted, gold)
        answer_f1 = f1(predicted, gold)
        self.f1_sum += answer_f1
        self.records.add(answer_f1, 1)

    def metrics(self, conditions: dict[str, object]) -> list[Number]:
        """Returns both means, in percent."""
        scale = 100 / max(self.count, 1)
        all_conditions = {"questions": self.count, **conditions}
        match_interval = percent(wilson(round(self.exact_match_sum), self.count))
        f1_interval = percent(self.records.interval(lambda sums: sums[:, 0] / sums[:, 1]))
        match_signature = make_signature("exact-match", all_conditions)
        f1_signature = make_signature("answer-F1", all_conditions)
        return [
            Number(
                "exact_match", self.exact_match_sum * scale, match_signature, *match_interval, n=self.count
            ),
            Number("answer_f1", self.f1_sum * scale, f1_signature, *f1_interval, n=self.count),
        ]

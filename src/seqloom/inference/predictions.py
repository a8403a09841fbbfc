"""What `predict` returns: a label, tags, an answer or a number, by the run's task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqloom.results import Result

DIGITS = 6  # of probabilities in JSON
JSON_NAMES = {"text": "answer"}  # beside the fields of a record, which may have a text of its own


def rounded(value: Any) -> Any:
    """A value of JSON with at most six decimals."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


class Prediction(Result):
    """Base of the predictions."""

    def to_dict(self) -> dict[str, Any]:
        """The prediction as the command line prints it with --json: numbers have six decimals."""
        return rounded(super().to_dict())

    def fields(self) -> dict[str, Any]:
        """The prediction as fields of a record that has others too."""
        return {JSON_NAMES.get(name, name): value for name, value in self.to_dict().items()}

    def cells(self, top: int = 1) -> list[str]:
        """The prediction as cells of a table; `top` is the number of labels, with the probability of each."""
        raise NotImplementedError


@dataclass(frozen=True)
class Label(Prediction):
    """The most probable label of a text or of a pair of texts, its probability, and that of every label."""

    label: str
    probability: float
    probabilities: dict[str, float]

    def cells(self, top: int = 1) -> list[str]:
        ordered = sorted(self.probabilities.items(), key=lambda item: (-item[1], item[0] != self.label))
        return [cell for label, p in ordered[:top] for cell in (label, f"{p:.4f}")]


@dataclass(frozen=True)
class Tags(Prediction):
    """A sentence with the best tag of each word and its probability."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]

    def cells(self, top: int = 1) -> list[str]:
        return [" ".join(self.tags)]


@dataclass(frozen=True)
class Span(Prediction):
    """The answer as written in the passage, its first character and the one after its last, and its probability; the text is
    empty for no answer."""

    text: str
    start: int
    end: int
    probability: float

    def cells(self, top: int = 1) -> list[str]:
        return [self.text, f"{self.probability:.4f}"]


@dataclass(frozen=True)
class Value(Prediction):
    """The number predicted for a text or for a pair of texts."""

    value: float

    def cells(self, top: int = 1) -> list[str]:
        return [f"{self.value:.4f}"]

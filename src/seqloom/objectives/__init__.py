"""What is learnt: one function for each objective."""

from seqloom.objectives.bidirectional import two_way
from seqloom.objectives.labelled import classification, regression, spans, tagging
from seqloom.objectives.likelihood import next_token, translation
from seqloom.objectives.masked import masked
from seqloom.objectives.reward import mixed

__all__ = [
    "classification",
    "masked",
    "mixed",
    "next_token",
    "regression",
    "spans",
    "tagging",
    "translation",
    "two_way",
]

"""Arrangements of parts: ids to logits."""

from seqloom.models.bidirectional import BiLanguageModel
from seqloom.models.classifier import Classifier, Compared, Joined, Regressor
from seqloom.models.language import LanguageModel
from seqloom.models.masked import Encoder, MaskedLM, Pooler
from seqloom.models.seq2seq import Seq2Seq
from seqloom.models.spans import Spans
from seqloom.models.tagger import Tagger

__all__ = [
    "BiLanguageModel",
    "Classifier",
    "Compared",
    "Encoder",
    "Joined",
    "LanguageModel",
    "MaskedLM",
    "Pooler",
    "Regressor",
    "Seq2Seq",
    "Spans",
    "Tagger",
]

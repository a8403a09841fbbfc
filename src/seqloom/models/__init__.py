"""Arrangements of parts: ids to logits."""

from seqloom.models.bidirectional import BiLanguageModel
from seqloom.models.classifier import Classifier, Compared, Joined, Regressor
from seqloom.models.encoder import Encoder, Pooler
from seqloom.models.language_model import LanguageModel
from seqloom.models.masked_lm import MaskedLM
from seqloom.models.question_answering import Spans
from seqloom.models.seq2seq import Seq2Seq
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

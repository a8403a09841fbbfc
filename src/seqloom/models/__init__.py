"""Arrangements of parts: ids to logits."""

from seqloom.models.language import LanguageModel
from seqloom.models.masked import Encoder, MaskedLM, Pooler
from seqloom.models.seq2seq import Seq2Seq

__all__ = ["Encoder", "LanguageModel", "MaskedLM", "Pooler", "Seq2Seq"]

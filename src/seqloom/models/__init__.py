"""Arrangements of parts: ids to logits."""

from seqloom.models.language import LanguageModel
from seqloom.models.seq2seq import Seq2Seq

__all__ = ["LanguageModel", "Seq2Seq"]

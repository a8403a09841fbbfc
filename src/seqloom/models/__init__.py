"""Arrangements of parts: ids to logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

if TYPE_CHECKING:
    from seqloom.models.base import Model
    from seqloom.models.bidirectional import BiLanguageModel
    from seqloom.models.classifier import BiEncoder, Classifier, CrossEncoder, Regressor
    from seqloom.models.encoder import Encoder, Pooler
    from seqloom.models.feedback import ActorCritic, RewardModel
    from seqloom.models.language_model import LanguageModel
    from seqloom.models.linear import LogisticRegression, NaiveBayes, SoftmaxRegression
    from seqloom.models.masked_lm import MaskedLM
    from seqloom.models.picture_classifier import PictureClassifier
    from seqloom.models.question_answering import ExtractiveQA
    from seqloom.models.recognizer import JointRecognizer, Recognizer, SoundClassifier, Speller
    from seqloom.models.seq2seq import Seq2Seq
    from seqloom.models.source_to_text import Captioner, SourceToText
    from seqloom.models.summarizer import PointerGenerator, Summarizer
    from seqloom.models.tagger import Tagger
    from seqloom.models.text_features import SVD, TFIDF, Counts, MeanVectors

__all__ = [
    "SVD",
    "TFIDF",
    "ActorCritic",
    "BiEncoder",
    "BiLanguageModel",
    "Captioner",
    "Classifier",
    "Counts",
    "CrossEncoder",
    "Encoder",
    "ExtractiveQA",
    "JointRecognizer",
    "LanguageModel",
    "LogisticRegression",
    "MaskedLM",
    "MeanVectors",
    "Model",
    "NaiveBayes",
    "PictureClassifier",
    "PointerGenerator",
    "Pooler",
    "Recognizer",
    "Regressor",
    "RewardModel",
    "Seq2Seq",
    "SoftmaxRegression",
    "SoundClassifier",
    "SourceToText",
    "Speller",
    "Summarizer",
    "Tagger",
]

NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)

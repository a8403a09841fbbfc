"""Training objectives: one function for each, with its formula in the docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

if TYPE_CHECKING:
    from seqloom.objectives.bidirectional_lm import bidirectional
    from seqloom.objectives.labelled import classification, extractive_qa, regression, tagging
    from seqloom.objectives.likelihood import next_token, translation
    from seqloom.objectives.masked_lm import masked
    from seqloom.objectives.policy import clipped_policy
    from seqloom.objectives.preference import bradley_terry, dpo, judged
    from seqloom.objectives.reward import mixed_reward
    from seqloom.objectives.speech import ctc, ctc_attention
    from seqloom.objectives.summaries import summarization

__all__ = [
    "bidirectional",
    "bradley_terry",
    "classification",
    "clipped_policy",
    "ctc",
    "ctc_attention",
    "dpo",
    "extractive_qa",
    "judged",
    "masked",
    "mixed_reward",
    "next_token",
    "regression",
    "summarization",
    "tagging",
    "translation",
]

NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)

"""What a trained run does for a user: generate, translate, predict, fill in masks, embed.

The modules have nouns as names, so that none of them hides a function of the same name. Names are imported when they are
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

__all__ = [
    "embed",
    "ensemble",
    "fill_mask",
    "generate",
    "predict",
    "quantize",
    "stream",
    "summarize",
    "translate",
]

if TYPE_CHECKING:
    from seqloom.inference.derived_runs import ensemble, quantize
    from seqloom.inference.embeddings import embed
    from seqloom.inference.generation import generate
    from seqloom.inference.mask_filling import fill_mask
    from seqloom.inference.prediction import predict
    from seqloom.inference.streaming import stream
    from seqloom.inference.summarization import summarize
    from seqloom.inference.translation import translate

_NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)

"""seqloom: train, compare, generate with and explain every sequence model from word counts to GPT.

import seqloom
run = seqloom.fit("gpt", data=["input.txt"], out="runs/a")
print(seqloom.answer(run, ["To be"])[0][0].text)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

__version__ = "0.1.0"

__all__ = [
    "LSTM",
    "RNN",
    "LanguageModel",
    "Recipe",
    "Run",
    "Seq2Seq",
    "Transformer",
    "answer",
    "bring",
    "embed",
    "fill",
    "fit",
    "give",
    "load",
    "predict",
    "quantize",
]

if TYPE_CHECKING:
    from seqloom.inference.answer import answer
    from seqloom.inference.embeddings import embed
    from seqloom.inference.generation import quantize
    from seqloom.inference.mask_filling import fill_mask as fill
    from seqloom.inference.prediction import predict
    from seqloom.interop import export_checkpoint as give
    from seqloom.interop import import_checkpoint as bring
    from seqloom.models import LanguageModel, Seq2Seq
    from seqloom.nn import LSTM, RNN, Transformer
    from seqloom.run import Config as Recipe
    from seqloom.run import Run, load
    from seqloom.train.fit import fit

_NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)

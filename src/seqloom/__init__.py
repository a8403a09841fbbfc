"""seqloom: train, compare, generate with and explain every sequence model from word counts to GPT.

import seqloom
run = seqloom.fit("gpt", data=["input.txt"], out="runs/a")
print(seqloom.answer(run, ["To be"])[0][0].text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Each public name: its module, and its name there where that differs.
_HOMES = {
    "fit": "seqloom.train.fit",
    "load": "seqloom.run",
    "answer": "seqloom.inference.generation:generate",
    "quantize": "seqloom.inference.generation",
    "fill": "seqloom.inference.mask_filling:fill_mask",
    "predict": "seqloom.inference.prediction",
    "embed": "seqloom.inference.embeddings",
    "bring": "seqloom.interop:import_checkpoint",
    "give": "seqloom.interop:export_checkpoint",
    "Recipe": "seqloom.run:Config",
    "Run": "seqloom.run",
    "LanguageModel": "seqloom.models",
    "Seq2Seq": "seqloom.models",
    "Transformer": "seqloom.nn",
    "RNN": "seqloom.nn",
    "LSTM": "seqloom.nn",
}
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
    from seqloom.inference.embeddings import embed
    from seqloom.inference.generation import generate as answer
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


def __getattr__(name: str) -> Any:
    """Names are fetched when first used, so that `import seqloom` and `seqloom --help` are instant."""
    if name in _HOMES:
        module, _, other = _HOMES[name].partition(":")
        return getattr(import_module(module), other or name)
    raise AttributeError(f"module 'seqloom' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

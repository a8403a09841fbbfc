"""seqloom: train, compare, generate with and explain every sequence model from word counts to GPT.

import seqloom
run = seqloom.fit("gpt", data=["input.txt"], out="runs/a")
print(seqloom.answer(run, ["To be"])[0][0].text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "fit": "seqloom.train.start",
    "load": "seqloom.run",
    "answer": "seqloom.evaluate",
    "quantize": "seqloom.evaluate",
    "fill": "seqloom.gaps",
    "predict": "seqloom.tasks",
    "embed": "seqloom.sentences",
    "bring": "seqloom.interop",
    "give": "seqloom.interop",
    "Recipe": "seqloom.run",
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
    from seqloom.evaluate import answer, quantize
    from seqloom.gaps import fill
    from seqloom.interop import bring, give
    from seqloom.models import LanguageModel, Seq2Seq
    from seqloom.nn import LSTM, RNN, Transformer
    from seqloom.run import Recipe, Run, load
    from seqloom.sentences import embed
    from seqloom.tasks import predict
    from seqloom.train.start import fit


def __getattr__(name: str) -> Any:
    """Names are fetched when first used, so that `import seqloom` and `seqloom --help` are instant."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'seqloom' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

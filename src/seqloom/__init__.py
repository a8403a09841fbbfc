"""seqloom: train, compare, generate with and explain every sequence model from word counts to GPT.

import seqloom
run = seqloom.fit("gpt", data="input.txt", minutes=5)
print(seqloom.generate(run, "To be", top_p=0.9).text)
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from seqloom.lazy import lazy_names

__version__ = "0.1.0"

__all__ = [
    "Chat",
    "Config",
    "Decoding",
    "Error",
    "Run",
    "caption",
    "capture",
    "change",
    "check",
    "compare",
    "data",
    "embed",
    "ensemble",
    "env",
    "evaluate",
    "explain",
    "export_checkpoint",
    "fill_mask",
    "fit",
    "generate",
    "import_checkpoint",
    "inspect",
    "list_presets",
    "load",
    "models",
    "nn",
    "predict",
    "quantize",
    "runs",
    "score",
    "stream",
    "summarize",
    "transcribe",
    "translate",
    "vectors",
    "world",
]

if TYPE_CHECKING:
    from seqloom import data, inspect, models, nn, runs, vectors, world
    from seqloom.decoding.options import Decoding
    from seqloom.environment import env
    from seqloom.equations import explain
    from seqloom.errors import Error
    from seqloom.evaluation import evaluate
    from seqloom.inference.captioning import caption
    from seqloom.inference.chatting import Chat
    from seqloom.inference.derived_runs import ensemble, quantize
    from seqloom.inference.embeddings import embed
    from seqloom.inference.generation import generate
    from seqloom.inference.mask_filling import fill_mask
    from seqloom.inference.prediction import predict
    from seqloom.inference.scoring import score
    from seqloom.inference.streaming import stream
    from seqloom.inference.summarization import summarize
    from seqloom.inference.transcription import transcribe
    from seqloom.inference.translation import translate
    from seqloom.interop import export_checkpoint, import_checkpoint
    from seqloom.nn.capture import capture, change
    from seqloom.preset_list import list_presets
    from seqloom.run import Run, load
    from seqloom.run_config import Config
    from seqloom.studies.comparison import compare
    from seqloom.train.fit import fit
    from seqloom.train.preflight import check

# Older name: its module, its name there, and what to use instead. They go after two releases.
OLD_NAMES = {
    "LSTM": ("seqloom.nn", "LSTM", "seqloom.nn.LSTM"),
    "RNN": ("seqloom.nn", "RNN", "seqloom.nn.RNN"),
    "Transformer": ("seqloom.nn", "Transformer", "seqloom.nn.Transformer"),
    "LanguageModel": ("seqloom.models", "LanguageModel", "seqloom.models.LanguageModel"),
    "Seq2Seq": ("seqloom.models", "Seq2Seq", "seqloom.models.Seq2Seq"),
    "Recipe": ("seqloom.run_config", "Config", "seqloom.Config"),
    "answer": ("seqloom.inference.old_functions", "answer", "seqloom.generate or seqloom.translate"),
    "bring": ("seqloom.interop", "import_checkpoint", "seqloom.import_checkpoint"),
    "fill": ("seqloom.inference.old_functions", "fill", "seqloom.fill_mask"),
    "give": ("seqloom.interop", "export_checkpoint", "seqloom.export_checkpoint"),
}

_NAMES, _get_name, __dir__ = lazy_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in OLD_NAMES:
        module, original, present = OLD_NAMES[name]
        warnings.warn(f"seqloom.{name} is now {present}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), original)
    if _NAMES.get(name, "").startswith(f"{__name__}:"):
        return import_module(f"{__name__}.{name}")
    return _get_name(name)

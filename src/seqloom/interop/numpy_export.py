"""Writes a run as a folder that needs numpy alone: weights.npz, model.json, tokenizer.json, and run.py, which is `numpy_runner.py`.

Models: GPT-2 and Llama in the sense of `layouts/`, and language models of one direction of LSTM, GRU or plain recurrent cells.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.numpy import load
from torch import nn

from seqloom import files, models
from seqloom.errors import DataError
from seqloom.interop import numpy_runner
from seqloom.layouts import Unsupported, export_files, family_of
from seqloom.nn.cells import GRU, LSTM, LinearCell, Vanilla
from seqloom.nn.embedding import Embedding, Output
from seqloom.nn.position import Rotary
from seqloom.nn.recurrent import RNN
from seqloom.run import Run, named_weights

ACTIVATION_NAMES = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "swish": "silu"}


def write(run: Run, folder: Path) -> str:
    """Writes the folder of a run; returns the kind of its model."""
    config, weights = describe(run)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder}: exists and is not empty; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"{folder}: cannot create the folder ({reason}); choose another") from None
    before, _ = run.specials.frame(run.adds_eos)
    config |= {
        "context": run.model.context,
        "before": list(before),
        "first_id": run.specials.first_id,
        "stop_ids": list(run.specials.stop_ids),
    }
    archive = io.BytesIO()
    np.savez(archive, **cast(Any, weights))
    files.write_atomic(folder / "weights.npz", archive.getvalue())
    files.write_atomic(folder / "model.json", json.dumps(config, indent=1))
    files.write_atomic(folder / "tokenizer.json", run.tokenizer.to_str())
    files.write_atomic(folder / "run.py", Path(numpy_runner.__file__).read_text("utf-8"))
    return str(config["kind"])


def describe(run: Run) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The settings and the weights of a model, as the program reads them."""
    model = run.model
    if type(model) is models.LanguageModel and isinstance(model.stack, RNN):
        weights = {name: weight.float().numpy() for name, weight in named_weights(model).items()}
        return describe_rnn(model), weights
    try:
        family, config = family_of(model)
    except Unsupported as error:
        reason = str(error).partition(": ")[2] or str(error)
        raise Unsupported(
            f"numpy runs a GPT-2, a Llama or an RNN language model, and this is none: {reason}"
        ) from None
    if family.model_type not in ("gpt2", "llama"):
        raise Unsupported(f"numpy runs a GPT-2, a Llama or an RNN language model, not a {family.model_type}")
    tensors = load(export_files(model, named_weights(model), run.tokenizer).weights)
    weights = {name.removeprefix(family.prefix): values for name, values in tensors.items()}
    config = {**config, "kind": family.model_type}
    if family.model_type == "gpt2":
        name = config["activation_function"]
        config["activation_function"] = ACTIVATION_NAMES.get(name, name)
    else:
        position = cast(Rotary, cast(Any, model).stack.position)
        pairs = config["head_dim"] // 2
        theta = position.base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        config["theta"] = (theta if position.scaling is None else position.scaling(theta)).tolist()
    return config, weights


def describe_rnn(model: nn.Module) -> dict[str, Any]:
    """The settings of an RNN language model; raises Unsupported if the program cannot run it."""
    model = cast(models.LanguageModel, model)
    stack = cast(RNN, model.stack)
    cells = [unrolled.cell for layer in stack.unrolled_cells for unrolled in layer]
    first = cells[0]
    for condition, reason in (
        (type(model.embedding) is Embedding, "its embedding is not a plain table"),
        (type(model.output) is Output and model.output.head is None, "its output is not a plain softmax"),
        (stack.causal, "it also reads from right to left"),
        (type(first) in (LSTM, GRU, Vanilla), f"its cell is a {type(first).__name__}"),
        (
            all(unrolled.zoneout == 0 for layer in stack.unrolled_cells for unrolled in layer),
            "it has zoneout",
        ),
    ):
        if not condition:
            raise Unsupported(f"numpy runs plain layers of LSTM, GRU and Vanilla cells, but {reason}")
    return {
        "kind": "rnn",
        "layers": stack.depth,
        "residual": stack.residual,
        "embedding_factor": model.embedding.factor,
        "cell": type(first).__name__,
        "bias_sign": cast(LinearCell, first).sign,
        "cell_output": getattr(first, "output", None),
        "cell_reset": getattr(first, "reset", None),
        "cell_activation": getattr(first, "activation", None),
    }

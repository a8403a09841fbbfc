"""A checkpoint of someone else's, read: a model as a config says it, its tokenizer, its weights by our names. And how it becomes a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from seqloom import config, files
from seqloom.layouts.mapping import Shapes
from seqloom.run import Config, Run, load, save_weights
from seqloom.text import tokenizer as tokenizers
from seqloom.text.special_tokens import special_tokens

SECTIONS: dict[str, config.Tree] = {
    "LanguageModel": {
        "corpus": {"type": "Text"},
        "data": {"type": "Windows", "width": 256, "batch": 4},
        "objective": {"type": "next_token"},
    },
    "Seq2Seq": {
        "corpus": {"type": "Parallel"},
        "data": {"type": "Pairs", "tokens": 1024},
        "objective": {"type": "translation"},
    },
    "MaskedLM": {
        "corpus": {"type": "Text"},
        "data": {"type": "Masked", "width": 128, "batch": 8},
        "objective": {"type": "masked"},
    },
}
SECTIONS["Encoder"] = SECTIONS["MaskedLM"]


class ForeignCheckpoint(NamedTuple):
    """What was read, before any of it is written."""

    kind: str
    model: config.Tree
    tokenizer: Tokenizer
    weights: Callable[
        [nn.Module], dict[str, Tensor]
    ]  # a model of the right sizes but without values → our weights


def run_config(found: ForeignCheckpoint) -> config.Tree:
    """The config of the run: what it takes to use the model, and to train it further on plain text."""
    rest = config.deep_copy(SECTIONS[found.model["type"]])
    context = found.model.get("stack", {}).get("position", {}).get("length")
    if context and "width" in rest["data"]:
        rest["data"]["width"] = min(rest["data"]["width"], context)
    return {"corpus": rest["corpus"], "tokenizer": {"type": "File", "path": "tokenizer.json"}, "data": rest["data"], "model": found.model,
            "objective": rest["objective"]}  # fmt: skip


def shapes(model: nn.Module) -> Shapes:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def with_vocab_size(model: config.Tree, rows: int, tokens: int, source: Path) -> config.Tree:
    """The model with as many rows as its file has; more than tokens is allowed, fewer is not."""
    if rows < tokens:
        raise ValueError(
            f"{source}: the tokenizer has {tokens} tokens and the model only {rows}; they do not belong together"
        )
    return model if rows == tokens else {**model, "vocabulary": rows}


def write(found: ForeignCheckpoint, source: Path, out: Path) -> Run:
    """The run folder of a checkpoint. Nothing is left behind where something does not fit."""
    tree = run_config(found)
    recipe = Config(tree, config.Locations(str(source)))
    try:
        with torch.device("meta"):
            model = recipe.model(found.tokenizer.get_vocab_size())
    except RuntimeError:
        raise ValueError(
            f"{source}: no tensor of its sizes has shape and place in a memory; it is not a real checkpoint"
        ) from None
    weights = found.weights(model)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: exists and is not empty; choose another --out")
    fresh = [one for one in (out, *out.parents) if not one.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{out}: cannot make the run folder ({(error.strerror or str(error)).lower()}); choose another --out"
        ) from None
    try:
        tokenizers.save(found.tokenizer, out / "tokenizer.json")
        save_weights(out, model, weights, found.tokenizer)
        files.write_atomic(
            out / "results.json",
            json.dumps(results(found, source, out, weights), indent=1, ensure_ascii=False),
        )
        files.write_atomic(out / "config.yaml", config.write(tree))  # last: with it the folder is a run
        return load(out)
    except BaseException:
        for one in out.iterdir():
            one.unlink()
        for one in fresh:
            one.rmdir()
        raise


def results(found: ForeignCheckpoint, source: Path, out: Path, weights: dict[str, Tensor]) -> dict[str, Any]:
    known = special_tokens(found.tokenizer)
    return {
        "imported": {"kind": found.kind, "from": source.name},
        "special tokens": {name: getattr(known, name) for name in ("pad", "unk", "bos", "eos", "mask")},
        "steps": 0,
        "held out": [],
        "parameters": sum(tensor.numel() for tensor in weights.values()),
        "weights": {"sha256": files.sha256(out / "model.safetensors")},
    }

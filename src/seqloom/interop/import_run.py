"""A checkpoint of another format (model config, tokenizer, weights by our names), and its run folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from seqloom import config, files
from seqloom.layouts.family import Shapes
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
    """A checkpoint of another format."""

    format: str
    model: config.Tree
    tokenizer: Tokenizer
    weights: Callable[[nn.Module], dict[str, Tensor]]  # a model on the meta device → its weights


def run_config(checkpoint: ForeignCheckpoint) -> config.Tree:
    """The config of the run: enough to use the model, and to train it further on plain text."""
    sections = config.deep_copy(SECTIONS[checkpoint.model["type"]])
    context = checkpoint.model.get("stack", {}).get("position", {}).get("length")
    if context and "width" in sections["data"]:
        sections["data"]["width"] = min(sections["data"]["width"], context)
    return {
        "corpus": sections["corpus"],
        "tokenizer": {"type": "File", "path": "tokenizer.json"},
        "data": sections["data"],
        "model": checkpoint.model,
        "objective": sections["objective"],
    }


def shapes(model: nn.Module) -> Shapes:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def with_vocab_size(model: config.Tree, rows: int, tokens: int, source: Path) -> config.Tree:
    """The model with as many rows as its file has. The file may have more rows than tokens, but not fewer."""
    if rows < tokens:
        raise ValueError(
            f"{source}: the tokenizer has {tokens} tokens and the model only {rows}; "
            "they do not belong together"
        )
    return model if rows == tokens else {**model, "vocabulary": rows}


def write(checkpoint: ForeignCheckpoint, source: Path, out: Path) -> Run:
    """Writes the run folder of a checkpoint. Removes what it created if anything fails."""
    tree = run_config(checkpoint)
    run_recipe = Config(tree, config.Locations(str(source)))
    try:
        with torch.device("meta"):
            model = run_recipe.model(checkpoint.tokenizer.get_vocab_size())
    except RuntimeError:
        raise ValueError(
            f"{source}: its sizes are too large for any tensor; it is not a real checkpoint"
        ) from None
    weights = checkpoint.weights(model)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: exists and is not empty; choose another --out")
    created_folders = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ValueError(f"{out}: cannot create the run folder ({reason}); choose another --out") from None
    try:
        tokenizers.save(checkpoint.tokenizer, out / "tokenizer.json")
        save_weights(out, model, weights, checkpoint.tokenizer)
        metadata = json.dumps(results(checkpoint, source, out, weights), indent=1, ensure_ascii=False)
        files.write_atomic(out / "results.json", metadata)
        # written last: config.yaml makes the folder a run
        files.write_atomic(out / "config.yaml", config.write(tree))
        return load(out)
    except BaseException:
        for path in out.iterdir():
            path.unlink()
        for folder in created_folders:
            folder.rmdir()
        raise


def results(
    checkpoint: ForeignCheckpoint, source: Path, out: Path, weights: dict[str, Tensor]
) -> dict[str, Any]:
    """The contents of results.json."""
    specials = special_tokens(checkpoint.tokenizer)
    return {
        "imported": {"kind": checkpoint.format, "from": source.name},
        "special tokens": {
            "pad": specials.pad,
            "unk": specials.unk,
            "bos": specials.bos,
            "eos": specials.eos,
            "mask": specials.mask,
        },
        "steps": 0,
        "held out": [],
        "parameters": sum(tensor.numel() for tensor in weights.values()),
        "weights": {"sha256": files.sha256(out / "model.safetensors")},
    }

"""A checkpoint of another format (model config, tokenizer, weights by our names), and its run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from seqloom import __version__, config_source, config_tree, files
from seqloom.decoding.generation_config import keep_generation_config
from seqloom.errors import ConfigError, DataError
from seqloom.layouts.family import Shapes
from seqloom.run import Run, load, save_weights
from seqloom.run_config import Config
from seqloom.run_files import ParameterCounts, Results, write_results
from seqloom.text import labels
from seqloom.text import tokenizer as tokenizers
from seqloom.text.chat_template import TEMPLATE_FILE
from seqloom.text.tokenizer import special_tokens

SECTIONS: dict[str, config_tree.Tree] = {
    "LanguageModel": {
        "corpus": {"type": "Text"},
        "batches": {"type": "Windows", "width": 256, "batch": 4},
        "objective": {"type": "next_token"},
    },
    "Seq2Seq": {
        "corpus": {"type": "Parallel"},
        "batches": {"type": "Pairs", "batch_tokens": 1024},
        "objective": {"type": "translation"},
    },
    "MaskedLM": {
        "corpus": {"type": "Text"},
        "batches": {"type": "Masked", "width": 128, "batch": 8},
        "objective": {"type": "masked"},
    },
}
SECTIONS["PictureClassifier"] = {
    "corpus": {"type": "Pictures", "kinds": ["image", "label"], "fit": "stretch"},
    "batches": {"type": "LabelledPictures", "batch": 32},
    "objective": {"type": "classification"},
}
SECTIONS["Encoder"] = SECTIONS["MaskedLM"]


class ForeignCheckpoint(NamedTuple):
    """A checkpoint of another format."""

    format: str
    model: config_tree.Tree
    tokenizer: Tokenizer
    weights: Callable[[nn.Module], dict[str, Tensor]]  # a model on the meta device → its weights
    template: str | None = None  # of chats
    context: int | None = None  # tokens for which the model was made, if its parts have no limit
    size: list[int] | None = None  # height and width of the pictures that it reads
    labels: tuple[str, ...] = ()  # names of what it predicts


def run_config(checkpoint: ForeignCheckpoint) -> config_tree.Tree:
    """The config of the run: enough to use the model, and to train it further on plain text."""
    sections = config_source.deep_copy(SECTIONS[checkpoint.model["type"]])
    context = checkpoint.model.get("stack", {}).get("position", {}).get("length")
    if context and "width" in sections["batches"]:
        sections["batches"]["width"] = min(sections["batches"]["width"], context)
    if checkpoint.size:
        sections["corpus"]["size"] = checkpoint.size
    return {
        "corpus": sections["corpus"],
        "tokenizer": {"type": "File", "path": "tokenizer.json"},
        "batches": sections["batches"],
        "model": checkpoint.model,
        "objective": sections["objective"],
    }


def shapes(model: nn.Module) -> Shapes:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def with_vocab_size(model: config_tree.Tree, rows: int, tokens: int, source: Path) -> config_tree.Tree:
    """The model with as many rows as its file has. The file may have more rows than tokens, but not fewer."""
    if rows < tokens:
        raise DataError(
            f"{source}: the tokenizer has {tokens} tokens and the model only {rows}; "
            "they do not belong together"
        )
    return model if rows == tokens else {**model, "vocabulary": rows}


def write(checkpoint: ForeignCheckpoint, source: Path, out: Path) -> Run:
    """Writes the run folder of a checkpoint. Removes what it created if anything fails."""
    tree = run_config(checkpoint)
    config = Config(tree, config_tree.Locations(str(source)))
    try:
        with torch.device("meta"):
            model = config.model(checkpoint.tokenizer.get_vocab_size(), checkpoint.labels)
    except (RuntimeError, ConfigError) as error:
        if isinstance(error, ConfigError) and not isinstance(error.__cause__, RuntimeError):
            raise
        raise DataError(
            f"{source}: its sizes are too large for any tensor; it is not a real checkpoint"
        ) from None
    weights = checkpoint.weights(model)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(
            f"{out}: exists and is not empty; choose another --out, or replace the run with --overwrite"
        )
    created_folders = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"{out}: cannot create the run folder ({reason}); choose another --out") from None
    try:
        tokenizers.save(checkpoint.tokenizer, out / "tokenizer.json")
        if checkpoint.labels:
            labels.save(checkpoint.labels, out / "labels.json")
        save_weights(out, model, weights, checkpoint.tokenizer)
        if checkpoint.template is not None:
            files.write_atomic(out / TEMPLATE_FILE, checkpoint.template)
        if model.generates:
            keep_generation_config(source, out, not model.continues)
        write_results(out, results(checkpoint, source, out, weights))
        # written last: config.yaml makes the folder a run
        files.write_atomic(out / "config.yaml", config.to_yaml())
        return load(out)
    except BaseException:
        for path in out.iterdir():
            path.unlink()
        for folder in created_folders:
            folder.rmdir()
        raise


def results(checkpoint: ForeignCheckpoint, source: Path, out: Path, weights: dict[str, Tensor]) -> Results:
    """The contents of results.json."""
    specials = special_tokens(checkpoint.tokenizer)
    origin = {
        "format": checkpoint.format,
        "source": source.name,
        **({"context": checkpoint.context} if checkpoint.context else {}),
        "special_tokens": {
            "pad": specials.pad,
            "unk": specials.unk,
            "bos": specials.bos,
            "eos": specials.eos,
            "mask": specials.mask,
        },
    }
    by_part: dict[str, int] = {}
    for name, tensor in weights.items():
        part = name.partition(".")[0]
        by_part[part] = by_part.get(part, 0) + tensor.numel()
    return Results(
        steps=0,
        tokens=0.0,
        valid=[],
        parameters=ParameterCounts(sum(by_part.values()), by_part),
        base=origin,
        versions={"seqloom": __version__},
        weights_sha256=files.sha256(out / "model.safetensors"),
    )

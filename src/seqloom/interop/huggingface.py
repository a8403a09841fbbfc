"""Folders of the Hugging Face layout, in and out: GPT-2, Llama, BERT, DistilBERT, Marian."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from seqloom import files
from seqloom.interop import names, tokens
from seqloom.interop.bert import BERT, DISTILBERT
from seqloom.interop.checkpoint import Checkpoint, shapes, sized
from seqloom.interop.family import Family, Unfit
from seqloom.interop.folder import Settings, Tensors, read_json, tensors
from seqloom.interop.gpt2 import GPT2
from seqloom.interop.llama import LLAMA, halved
from seqloom.interop.marian import MARIAN
from seqloom.run import Run, weights
from seqloom.text.special import specials

FAMILIES = {family.kind: family for family in (GPT2, LLAMA, BERT, DISTILBERT, MARIAN)}
OLD = {".gamma": ".weight", ".beta": ".bias"}  # how the first BERTs call a norm's parts


def read(folder: Path, tokenizer: Path | None = None) -> Checkpoint:
    """The checkpoint of a folder."""
    said = Settings(read_json(folder / "config.json"), str(folder / "config.json"))
    kind = said.values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(f"{said.source}: models of type {str(kind)[:40]!r} cannot be read; only {', '.join(sorted(FAMILIES))}")
    family, found = FAMILIES[kind], tensors(folder)
    named = renamed(found, family)
    learnt = tokens.read(tokenizer or folder / "tokenizer.json", said, family.roles, family.frame)
    tree = family.tree(said, set(named))
    for place in (tree.get("stack"), tree.get("encoder"), tree.get("decoder")):
        if place and place["layers"] > len(named):
            raise ValueError(f"{said.source}: {place['layers']} layers are more than the {len(named)} tensors; the two do not belong together")
    if tree.get("embedding", {}).get("type") == "Segmented":
        tree["embedding"]["separator"] = specials(learnt).eos
    rows = said.count("vocab_size", 1)
    tree = sized(tree, rows, learnt.get_vocab_size(), Path(said.source))

    def get(model: nn.Module) -> dict[str, Tensor]:
        entries, ours = family.entries(model, ""), shapes(model)
        wanted = {name for entry in entries for name in entry.theirs}
        left = {name: found.shapes[full] for name, full in named.items() if name in wanted or not re.fullmatch(family.spare, name)}
        names.check(entries, ours, left, str(folder))
        made = names.read(entries, ours, lambda name: found.get(named[name]) if name in named else None)
        if "follows.weight" in made:  # their class 0 is "goes on", ours is 1
            made |= {name: made[name].flip(0) for name in ("follows.weight", "follows.bias")}
        return made

    return Checkpoint(kind, tree, learnt, get)


def renamed(found: Tensors, family: Family) -> dict[str, str]:
    """The names without their prefix, and which tensor each is."""
    made: dict[str, str] = {}
    for full in found.shapes:
        name = full.removeprefix(family.prefix)
        for old, new in OLD.items():
            if family is BERT and name.endswith(old):
                name = name.removesuffix(old) + new
        if name in made:
            raise ValueError(f"{found.home[full]}: {made[name]} and {full} are the same weight; get the whole checkpoint again")
        made[name] = full
    return made


def fitting(model: nn.Module) -> tuple[Family, dict]:
    """The kind of folder that can hold a model, and its config.json; where there is none, why not."""
    reasons: list[str] = []
    for family in FAMILIES.values():
        try:
            return family, family.settings(model)
        except Unfit as error:
            reasons.append(f"as {family.kind}, {error}")
    raise ValueError(f"no folder of the Hugging Face layout can hold this model: {'; '.join(reasons)}")


def write(run: Run, folder: Path) -> str:
    """Write a run as a folder that `transformers` loads; says which kind it is."""
    family, said = fitting(run.model)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: exists and is not empty; choose another folder")
    kind, own = family.kind, weights(run.model)
    if family is LLAMA:
        own = halved(run.model, own)
    if "follows.weight" in own:
        own = {**own, **{name: own[name].flip(0) for name in ("follows.weight", "follows.bias")}}
    body = "" if said["architectures"][0] in ("BertModel", "DistilBertModel") else family.prefix
    entries = family.entries(run.model, body)
    made = names.write(entries, own, lacking(run.model, entries, own))
    texts, ids = tokens.written(run.tokenizer, kind, run.model.context)
    said = {**said, **ids, "dtype": "float32", "torch_dtype": "float32"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder}: cannot make the folder ({(error.strerror or str(error)).lower()}); choose another") from None
    files.write_whole(folder / "model.safetensors", save(made, {"format": "pt"}))
    for name, text in {**texts, "config.json": json.dumps(said, indent=1)}.items():
        files.write_whole(folder / name, text)
    return kind


def lacking(model: nn.Module, entries: list[names.Entry], own: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shapes of what the others have and we left out: a bias is as long as its matrix is high, a norm's parts as wide as the model."""
    found = {}
    for entry in entries:
        if entry.ours not in own:
            part = model.get_submodule(entry.ours.rpartition(".")[0])
            matrix = getattr(part, "weight", None)
            length = part.vocabulary if hasattr(part, "vocabulary") else part.dim if matrix is None else len(matrix)
            found[entry.ours] = torch.Size([length])
    return found

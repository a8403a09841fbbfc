"""The names that others give to the weights of a model: GPT-2, Llama, BERT, DistilBERT and Marian as `transformers` lays them out.

A model of such a shape is kept under these names, beside the config.json that says so: its run is then a folder that they load. Whatever else
a model is, it is kept under our own. One table for each family says which tensor is which weight, and is read both ways.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor, nn

from seqloom.layouts import names
from seqloom.layouts.bert import BERT, DISTILBERT
from seqloom.layouts.family import Family, Unfit
from seqloom.layouts.folder import Tensors
from seqloom.layouts.gpt2 import GPT2
from seqloom.layouts.llama import LLAMA, halved, paired
from seqloom.layouts.marian import MARIAN
from seqloom.layouts.tokens import frame, written

__all__ = [
    "FAMILIES",
    "Family",
    "Kept",
    "Unfit",
    "alike",
    "fitting",
    "framed",
    "keep",
    "ours",
    "renamed",
    "theirs",
]

FAMILIES = {family.kind: family for family in (GPT2, LLAMA, BERT, DISTILBERT, MARIAN)}
MARK = {
    "format": "pt"
}  # what a file of weights says where it has their names; more would stand in an order of chance
OLD = {".gamma": ".weight", ".beta": ".bias"}  # how the first BERTs call a norm's parts


class Kept(NamedTuple):
    """A model as files: model.safetensors, and texts by name."""

    kind: str
    weights: bytes
    texts: dict[str, str]


def fitting(model: nn.Module) -> tuple[Family, dict[str, Any]]:
    """The family that can hold a model, and its config.json; where there is none, why not."""
    reasons: list[str] = []
    for family in FAMILIES.values():
        try:
            return family, family.settings(model)
        except Unfit as error:
            reasons.append(f"as {family.kind}, {error}")
    raise Unfit(f"no folder of the Hugging Face layout can hold this model: {'; '.join(reasons)}")


def framed(model: nn.Module, learnt: Tokenizer) -> Tokenizer:
    """The tokenizer, which puts around a text what the model's family expects there: [CLS] and [SEP] for BERT, an end for Marian. `model` may be
    without its numbers."""
    for family in (BERT, DISTILBERT, MARIAN):
        try:
            family.settings(model)
        except Unfit:
            continue
        return Tokenizer.from_str(json.dumps(frame(learnt, family.kind)))
    return learnt


def keep(model: nn.Module, own: Mapping[str, Tensor], learnt: Tokenizer) -> Kept:
    """The files of a model whose weights are `own`, as its family lays them out."""
    family, said = fitting(model)
    if family is LLAMA:
        own = halved(model, own)
    body = "" if said["architectures"][0] in ("BertModel", "DistilBertModel") else family.prefix
    entries, own = family.entries(model, body), turned(own)
    for name in sorted(own.keys() - {entry.ours for entry in entries}):
        raise Unfit(
            f"no folder of the Hugging Face layout can hold this model: as {family.kind}, it has {name}, which they have not"
        )
    made = names.write(entries, own, lacking(model, entries, own))
    if not said["tie_word_embeddings"]:  # then nothing else that is shared is tied either
        made |= {
            f"{body}{name}": made[f"{body}{one}"].clone()
            for name, one in family.copies.items()
            if name not in made and f"{body}{one}" in made
        }
    texts, ids = written(learnt, family.kind, model.context)
    said = {**said, **ids, "dtype": "float32", "torch_dtype": "float32"}
    return Kept(family.kind, save(made, MARK), {**texts, "config.json": json.dumps(said, indent=1)})


def theirs(path: Path) -> bool:
    """Whether a run's file of weights has the names of its model's family, not our own."""
    try:
        with safe_open(path, "pt") as opened:
            return opened.metadata() == MARK
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path}: not a whole safetensors file ({str(error)[:120]}); get the file again"
        ) from None


def ours(family: Family, model: nn.Module, found: Tensors, source: str) -> dict[str, Tensor]:
    """The weights of a model, which may be without its numbers, from tensors of the family's names. Every one has its place, or a sentence
    names it; what stands for a part that the model leaves out must change nothing."""
    known = renamed(found, family)
    entries, shapes = (
        family.entries(model, ""),
        {name: tuple(parameter.shape) for name, parameter in model.named_parameters()},
    )
    wanted = {name for entry in entries for name in entry.theirs}
    void = {name for entry in entries if entry.ours not in shapes and entry.fill is not None for name in entry.theirs
            if name in known and bool((found.get(known[name]) == entry.fill).all())}  # fmt: skip
    copies = {name: one for name, one in family.copies.items() if name in known and name not in wanted}
    computed = {name: one for name, one in family.computed.items() if name in known}
    spare = {name for name in known if name not in wanted and re.fullmatch(family.spare, name)}
    rest = known.keys() - void - spare - copies.keys() - computed.keys()
    names.check(entries, shapes, {name: found.shapes[known[name]] for name in rest}, source)
    for name, one in copies.items():
        alike(name, one, found.get(known[name]), found.get(known[one]), 0.0, source)
    for name, made in computed.items():
        copy = found.get(known[name])
        alike(name, "what is computed", copy, made(model, len(copy)), 1e-3, source)  # as near as 16 bits come
    made = turned(names.read(entries, shapes, lambda name: found.get(known[name]) if name in known else None))
    return paired(model, made) if family is LLAMA else made


def alike(name: str, other: str, copy: Tensor, first: Tensor, near: float, source: str) -> None:
    """Refuse a second copy of a weight that is none: their model would use it, and ours has no place for it."""
    if copy.shape != first.shape or not torch.allclose(copy.float(), first.float(), rtol=0, atol=near):
        raise ValueError(
            f"{source}: {name} is not the same as {other}, as it must be for this kind of model; it cannot be read"
        )


def turned(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of two classes their 0 is "goes on", ours is 1."""
    return {
        name: tensor.flip(0) if name in ("follows.weight", "follows.bias") else tensor
        for name, tensor in own.items()
    }


def renamed(found: Tensors, family: Family) -> dict[str, str]:
    """The names without their prefix, and which tensor each is."""
    made: dict[str, str] = {}
    for full in found.shapes:
        name = full.removeprefix(family.prefix)
        for old, new in OLD.items():
            if family is BERT and name.endswith(old):
                name = name.removesuffix(old) + new
        if name in made:
            raise ValueError(
                f"{found.home[full]}: {made[name]} and {full} are the same weight; get the whole checkpoint again"
            )
        made[name] = full
    return made


def lacking(
    model: nn.Module, entries: list[names.Entry], own: Mapping[str, Tensor]
) -> dict[str, tuple[int, ...]]:
    """The shapes of what the others have and we left out: a bias is as long as its matrix is high, a norm's parts as wide as the model."""
    found = {}
    for entry in entries:
        if entry.ours not in own:
            part = model.get_submodule(entry.ours.rpartition(".")[0])
            matrix = getattr(part, "weight", None)
            length = (
                part.vocabulary
                if hasattr(part, "vocabulary")
                else part.dim
                if matrix is None
                else len(matrix)
            )
            found[entry.ours] = torch.Size([length])
    return found

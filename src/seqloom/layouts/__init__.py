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

from seqloom.layouts import mapping
from seqloom.layouts.bert import BERT, DISTILBERT
from seqloom.layouts.family import Family, Unsupported
from seqloom.layouts.gpt2 import GPT2
from seqloom.layouts.hf_folder import SafetensorsFiles
from seqloom.layouts.llama import LLAMA, to_half_layout, to_interleaved_layout
from seqloom.layouts.marian import MARIAN
from seqloom.layouts.tokenizer_config import template_json, tokenizer_files

__all__ = [
    "FAMILIES",
    "ExportedFiles",
    "Family",
    "Unsupported",
    "check_equal",
    "export_files",
    "family_of",
    "has_family_names",
    "import_weights",
    "names_without_prefix",
    "with_family_template",
]

FAMILIES = {family.kind: family for family in (GPT2, LLAMA, BERT, DISTILBERT, MARIAN)}
HF_METADATA = {
    "format": "pt"
}  # what a file of weights says where it has their names; more would stand in an order of chance
LEGACY_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}  # how the first BERTs call a norm's parts


class ExportedFiles(NamedTuple):
    """A model as files: model.safetensors, and texts by name."""

    kind: str
    weights: bytes
    texts: dict[str, str]


def family_of(model: nn.Module) -> tuple[Family, dict[str, Any]]:
    """The family that can hold a model, and its config.json; where there is none, why not."""
    reasons: list[str] = []
    for family in FAMILIES.values():
        try:
            return family, family.settings(model)
        except Unsupported as error:
            reasons.append(f"as {family.kind}, {error}")
    raise Unsupported(f"no folder of the Hugging Face layout can hold this model: {'; '.join(reasons)}")


def with_family_template(model: nn.Module, learnt: Tokenizer) -> Tokenizer:
    """The tokenizer, which puts around a text what the model's family expects there: [CLS] and [SEP] for BERT, an end for Marian. `model` may be
    without its numbers."""
    for family in (BERT, DISTILBERT, MARIAN):
        try:
            family.settings(model)
        except Unsupported:
            continue
        return Tokenizer.from_str(json.dumps(template_json(learnt, family.kind)))
    return learnt


def export_files(model: nn.Module, own: Mapping[str, Tensor], learnt: Tokenizer) -> ExportedFiles:
    """The files of a model whose weights are `own`, as its family lays them out."""
    family, said = family_of(model)
    if family is LLAMA:
        own = to_half_layout(model, own)
    body = "" if said["architectures"][0] in ("BertModel", "DistilBertModel") else family.prefix
    entries, own = family.entries(model, body), flip_nsp_classes(own)
    for name in sorted(own.keys() - {entry.ours for entry in entries}):
        raise Unsupported(
            f"no folder of the Hugging Face layout can hold this model: as {family.kind}, it has {name}, which they have not"
        )
    made = mapping.write(entries, own, missing_shapes(model, entries, own))
    if not said["tie_word_embeddings"]:  # then nothing else that is shared is tied either
        made |= {
            f"{body}{name}": made[f"{body}{one}"].clone()
            for name, one in family.copies.items()
            if name not in made and f"{body}{one}" in made
        }
    texts, ids = tokenizer_files(learnt, family.kind, model.context)
    said = {**said, **ids, "dtype": "float32", "torch_dtype": "float32"}
    return ExportedFiles(
        family.kind, save(made, HF_METADATA), {**texts, "config.json": json.dumps(said, indent=1)}
    )


def has_family_names(path: Path) -> bool:
    """Whether a run's file of weights has the names of its model's family, not our own."""
    try:
        with safe_open(path, "pt") as opened:
            return opened.metadata() == HF_METADATA
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path}: not a whole safetensors file ({str(error)[:120]}); get the file again"
        ) from None


def import_weights(
    family: Family, model: nn.Module, found: SafetensorsFiles, source: str
) -> dict[str, Tensor]:
    """The weights of a model, which may be without its numbers, from tensors of the family's names. Every one has its place, or a sentence
    names it; what stands for a part that the model leaves out must change nothing."""
    known = names_without_prefix(found, family)
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
    mapping.check(entries, shapes, {name: found.shapes[known[name]] for name in rest}, source)
    for name, one in copies.items():
        check_equal(name, one, found.get(known[name]), found.get(known[one]), 0.0, source)
    for name, made in computed.items():
        copy = found.get(known[name])
        check_equal(
            name, "what is computed", copy, made(model, len(copy)), 1e-3, source
        )  # as near as 16 bits come
    made = flip_nsp_classes(
        mapping.read(entries, shapes, lambda name: found.get(known[name]) if name in known else None)
    )
    return to_interleaved_layout(model, made) if family is LLAMA else made


def check_equal(name: str, other: str, copy: Tensor, first: Tensor, near: float, source: str) -> None:
    """Refuse a second copy of a weight that is none: their model would use it, and ours has no place for it."""
    if copy.shape != first.shape or not torch.allclose(copy.float(), first.float(), rtol=0, atol=near):
        raise ValueError(
            f"{source}: {name} is not the same as {other}, as it must be for this kind of model; it cannot be read"
        )


def flip_nsp_classes(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of two classes their 0 is "goes on", ours is 1."""
    return {
        name: tensor.flip(0) if name in ("follows.weight", "follows.bias") else tensor
        for name, tensor in own.items()
    }


def names_without_prefix(found: SafetensorsFiles, family: Family) -> dict[str, str]:
    """The names without their prefix, and which tensor each is."""
    made: dict[str, str] = {}
    for full in found.shapes:
        name = full.removeprefix(family.prefix)
        for old, new in LEGACY_SUFFIXES.items():
            if family is BERT and name.endswith(old):
                name = name.removesuffix(old) + new
        if name in made:
            raise ValueError(
                f"{found.home[full]}: {made[name]} and {full} are the same weight; get the whole checkpoint again"
            )
        made[name] = full
    return made


def missing_shapes(
    model: nn.Module, entries: list[mapping.WeightMapping], own: Mapping[str, Tensor]
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

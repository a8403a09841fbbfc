"""Weight names and file layouts of `transformers` for GPT-2, Llama, BERT, DistilBERT, Marian and ViT.

A run whose model has the shape of such a family stores its weights under these names, beside a config.json,
so that its folder loads in `transformers`. Every other model is stored under our own names. Each family has
one table of names, which serves reading and writing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor, nn

from seqloom.errors import DataError
from seqloom.layouts import family as mapping
from seqloom.layouts.family import Family, Unsupported
from seqloom.layouts.hf_folder import SafetensorsFiles
from seqloom.models.base import Model
from seqloom.nn.basic import LayerNorm, RMSNorm
from seqloom.nn.embedding import OutputLayer
from seqloom.text.tokenizer import BOS, EOS, SpecialTokens, special_tokens
from seqloom.text.tokenizer_file import with_template

__all__ = [
    "FAMILIES",
    "ExportedFiles",
    "Family",
    "Unsupported",
    "check_equal",
    "export_files",
    "family_of",
    "find_family",
    "has_family_names",
    "import_weights",
    "names_without_prefix",
    "with_family_template",
]

# By model_type; a family's module is imported when the family is looked up.
FAMILIES = {
    "gpt2": "seqloom.layouts.gpt2:GPT2",
    "llama": "seqloom.layouts.llama:LLAMA",
    "bert": "seqloom.layouts.bert:BERT",
    "distilbert": "seqloom.layouts.bert:DISTILBERT",
    "marian": "seqloom.layouts.marian:MARIAN",
    "vit": "seqloom.layouts.vit:VIT",
}
FAMILIES_OF_TASK = {
    "language modelling": ("gpt2", "llama"),
    "encoding": ("bert", "distilbert"),
    "masked language modelling": ("bert", "distilbert"),
    "translation": ("marian",),
    "classification": ("vit",),
}
# metadata of a safetensors file with a family's names; more keys would be written in arbitrary order
HF_METADATA = {"format": "pt"}
LEGACY_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}  # names of a norm's weights in the first BERTs
HALF_PRECISION_TOLERANCE = 1e-3


class ExportedFiles(NamedTuple):
    """A model as files: the bytes of model.safetensors, and the texts of the others by file name."""

    model_type: str
    weights: bytes
    texts: dict[str, str]


def find_family(name: str) -> Family:
    """The family of a model_type."""
    family: Family = resolve_name(FAMILIES[name])
    return family


def families_for(model: nn.Module) -> Iterator[Family]:
    """The families that hold models of the same task; each is imported when it is reached."""
    task = model.task if isinstance(model, Model) else ""
    return (find_family(name) for name in FAMILIES_OF_TASK.get(task, ()))


def family_of(model: nn.Module) -> tuple[Family, dict[str, Any]]:
    """The family that can hold a model, and its config.json; raises Unsupported if none can."""
    reasons: list[str] = []
    for family in families_for(model):
        try:
            return family, family.hf_config(model)
        except Unsupported as error:
            reasons.append(f"as {family.model_type}, {error}")
    reasons = reasons or [f"there is none for a {type(model).__name__}"]
    raise Unsupported(f"no folder of the Hugging Face layout can hold this model: {'; '.join(reasons)}")


def with_family_template(model: nn.Module, tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with the template of the model's family: [CLS] and [SEP] for BERT, an end for Marian.

    `model` may be on the meta device.
    """
    if isinstance(model, Model) and (model.task == "language modelling" or model.reads != "text"):
        return tokenizer
    for family in families_for(model):
        try:
            family.hf_config(model)
        except Unsupported:
            continue
        return Tokenizer.from_str(json.dumps(template_json(tokenizer, family.model_type)))
    return tokenizer


def export_files(model: nn.Module, weights: Mapping[str, Tensor], tokenizer: Tokenizer) -> ExportedFiles:
    """The files of a model with the given weights, in the layout of its family."""
    family, config = family_of(model)
    weights = family.to_hf(model, weights)
    is_body = config["architectures"][0] in ("BertModel", "DistilBertModel")
    prefix = "" if is_body else family.prefix
    mappings = family.mappings(model, prefix)
    for name in sorted(weights.keys() - {entry.name for entry in mappings}):
        raise Unsupported(
            f"no folder of the Hugging Face layout can hold this model: as {family.model_type}, "
            f"it has {name}, which that family does not have"
        )
    tensors = mapping.write(mappings, weights, missing_shapes(model, mappings, weights))
    if not config.get("tie_word_embeddings", True):  # then transformers does not tie the other copies either
        tensors |= {
            f"{prefix}{copy}": tensors[f"{prefix}{original}"].clone()
            for copy, original in family.tied_copies.items()
            if copy not in tensors and f"{prefix}{original}" in tensors
        }
    context = model.context if isinstance(model, Model) else None
    if family.input_files is None:
        texts, ids = tokenizer_files(tokenizer, family.model_type, context)
    else:
        texts, ids = family.input_files(model), {}
    config = {**config, **ids, "dtype": "float32", "torch_dtype": "float32"}
    texts = {**texts, "config.json": json.dumps(config, indent=1)}
    return ExportedFiles(family.model_type, save(tensors, HF_METADATA), texts)


def has_family_names(path: Path) -> bool:
    """Whether a run's weight file has the names of a family rather than our own."""
    try:
        with safe_open(path, "pt") as opened:
            return opened.metadata() == HF_METADATA
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{path}: not an intact safetensors file ({str(error)[:120]}); get the file again"
        ) from None


def import_weights(
    family: Family, model: nn.Module, tensors: SafetensorsFiles, source: str
) -> dict[str, Tensor]:
    """Our weights of a model, which may be on the meta device, from tensors under the family's names.

    Raises a ValueError that names the first tensor without a place. A tensor of a part that the model leaves
    out is accepted only if it has no effect (a bias of 0, a gain of 1).
    """
    full_names = names_without_prefix(tensors, family)
    mappings = family.mappings(model, "")
    sizes = {name: torch.empty(weight.shape, device="meta") for name, weight in model.named_parameters()}
    shapes = {name: tuple(weight.shape) for name, weight in family.to_hf(model, sizes).items()}
    mapped = {name for entry in mappings for name in entry.hf_names}

    def is_neutral(name: str, default: float) -> bool:
        return name in full_names and bool((tensors.get(full_names[name]) == default).all())

    neutral = {
        name
        for entry in mappings
        if entry.name not in shapes and entry.default is not None
        for name in entry.hf_names
        if is_neutral(name, entry.default)
    }
    copies = {
        copy: original
        for copy, original in family.tied_copies.items()
        if copy in full_names and copy not in mapped
    }
    computed = {name: rows for name, rows in family.computed.items() if name in full_names}
    ignored = {name for name in full_names if name not in mapped and re.fullmatch(family.ignored, name)}
    remaining = full_names.keys() - neutral - ignored - copies.keys() - computed.keys()
    hf_shapes = {name: tensors.shapes[full_names[name]] for name in remaining}
    mapping.check(mappings, shapes, hf_shapes, source)
    for copy, original in copies.items():
        first = tensors.get(full_names[original])
        check_equal(copy, original, tensors.get(full_names[copy]), first, 0.0, source)
    for name, rows in computed.items():
        stored = tensors.get(full_names[name])
        expected = rows(model, len(stored))
        check_equal(name, "what is computed", stored, expected, HALF_PRECISION_TOLERANCE, source)
    weights = mapping.read(
        mappings, shapes, lambda name: tensors.get(full_names[name]) if name in full_names else None
    )
    return family.from_hf(model, weights)


def check_equal(name: str, original: str, copy: Tensor, first: Tensor, tolerance: float, source: str) -> None:
    """Rejects a second copy of a weight that differs: `transformers` would use it, and we have only one."""
    if copy.shape != first.shape or not torch.allclose(copy.float(), first.float(), rtol=0, atol=tolerance):
        raise DataError(
            f"{source}: {name} is not the same as {original}, as it must be for this kind of model; "
            "it cannot be read"
        )


def names_without_prefix(tensors: SafetensorsFiles, family: Family) -> dict[str, str]:
    """Tensor names without the family's prefix → full names."""
    full_names: dict[str, str] = {}
    for full in tensors.shapes:
        name = full.removeprefix(family.prefix)
        for old, new in LEGACY_SUFFIXES.items():
            if family.model_type == "bert" and name.endswith(old):
                name = name.removesuffix(old) + new
        if name in full_names:
            raise DataError(
                f"{tensors.file_of[full]}: {full_names[name]} and {full} are the same weight; "
                "get the whole checkpoint again"
            )
        full_names[name] = full
    return full_names


def missing_shapes(
    model: nn.Module, mappings: list[mapping.WeightMapping], weights: Mapping[str, Tensor]
) -> dict[str, tuple[int, ...]]:
    """The shapes of the vectors that the family has and the model leaves out: biases and gains."""
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in mappings:
        if entry.name in weights:
            continue
        part = model.get_submodule(entry.name.rpartition(".")[0])
        if isinstance(part, OutputLayer):
            shapes[entry.name] = (part.vocabulary,)
        elif isinstance(part, LayerNorm | RMSNorm):
            shapes[entry.name] = (part.dim,)
        elif isinstance(part, nn.Linear):
            shapes[entry.name] = (part.out_features,)
    return shapes


def template_json(tokenizer: Tokenizer, model_type: str) -> dict[str, Any]:
    """The JSON of a tokenizer, with the family's template; an imported tokenizer keeps its own."""
    tokenizer_json = json.loads(tokenizer.to_str())
    if special_tokens(tokenizer) != SpecialTokens():
        return tokenizer_json
    if model_type in ("bert", "distilbert"):
        return with_template(tokenizer_json, [BOS], [EOS])
    if model_type == "marian":
        return with_template(tokenizer_json, [], [EOS])
    return tokenizer_json


def tokenizer_files(
    tokenizer: Tokenizer, model_type: str, context: int | None
) -> tuple[dict[str, str], dict[str, Any]]:
    """The text of tokenizer.json and tokenizer_config.json by file name, and the token ids for config.json.

    An id that the tokenizer does not have is null there, since `transformers` would use its class's default.
    """
    specials = special_tokens(tokenizer)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for role, index in (
        ("pad", specials.pad),
        ("unk", specials.unk),
        ("bos", specials.bos),
        ("eos", specials.eos if specials.stop_ids else None),
        ("mask", specials.mask),
    ):
        if index is not None and not (model_type == "marian" and role == "bos"):
            config[f"{role}_token"] = tokenizer.id_to_token(index)
    if model_type in ("bert", "distilbert"):
        config |= {"cls_token": config["bos_token"], "sep_token": config["eos_token"]}
    if context is not None:
        config["model_max_length"] = context
    stops = list(specials.stop_ids)
    ids: dict[str, Any] = {
        "eos_token_id": stops[0] if len(stops) == 1 else stops or None,
        "pad_token_id": specials.pad,
    }
    if model_type == "marian":
        ids |= {
            "decoder_start_token_id": specials.bos,
            "forced_eos_token_id": specials.eos,
            "pad_token_id": specials.bos if specials.pad is None else specials.pad,
        }
    elif model_type not in ("bert", "distilbert"):
        ids["bos_token_id"] = specials.bos
    else:
        ids.pop("eos_token_id")
    texts = {
        "tokenizer.json": json.dumps(template_json(tokenizer, model_type), ensure_ascii=False),
        "tokenizer_config.json": json.dumps(config, ensure_ascii=False, indent=1),
    }
    return texts, ids

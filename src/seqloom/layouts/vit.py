"""ViT: patches of a picture after a class token, norms before the sublayers, a label from the class token."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.config_tree import Tree
from seqloom.errors import DataError
from seqloom.layouts.family import (
    ACTIVATION_FROM_HF,
    Family,
    WeightMapping,
    blocks_of,
    require,
    require_plain_heads,
    require_type,
    same,
    stacked,
    transformer_sizes,
    weight_and_bias,
)
from seqloom.layouts.hf_folder import HFConfig, read_json
from seqloom.models.picture_classifier import PictureClassifier
from seqloom.nn.basic import FeedForward, LayerNorm
from seqloom.nn.grid_position import TableGrid
from seqloom.nn.pictures import Patches, PictureEncoder
from seqloom.nn.pool import FirstPool
from seqloom.nn.position import NoPosition
from seqloom.nn.transformer import Transformer

PROCESSOR_FILE = "preprocessor_config.json"
BICUBIC = 3  # Pillow's number
KERNEL = "encoder.stem.linear.weight"
TOKEN = "encoder.class_token"
TABLE = "encoder.position.table"


def model_tree(hf_config: HFConfig, names: set[str]) -> Tree:
    """The model section of a config for a ViT with this config.json."""
    dim = hf_config.count("hidden_size", 768)
    heads = hf_config.count("num_attention_heads", 12)
    for name, allowed in (
        ("num_channels", 3),
        ("qkv_bias", True),
        ("head_dim", dim // heads),
        ("problem_type", "single_label_classification"),
    ):
        hf_config.require_value(name, allowed)
    if "classifier.weight" not in names:
        raise DataError(f"{hf_config.source}: it gives no labels; only ViTForImageClassification can be read")
    patch = sides(hf_config, "patch_size", 16)
    if patch[0] != patch[1]:
        raise hf_config.error("patch_size", "one number, for square patches,")
    return {
        "type": "PictureClassifier",
        "encoder": {
            "type": "PictureEncoder",
            "stem": {"type": "Patches", "dim": dim, "patch": patch[0]},
            "position": {"type": "TableGrid"},
            "class_token": True,
            "stack": {
                "type": "Transformer",
                "layers": hf_config.count("num_hidden_layers", 12),
                "heads": heads,
                "position": {"type": "NoPosition"},
                "norm": {"type": "LayerNorm", "epsilon": hf_config.number("layer_norm_eps", 1e-12)},
                "feedforward": {
                    "type": "FeedForward",
                    "dim": hf_config.count("intermediate_size", 3072),
                    "activation": hf_config.choice("hidden_act", "gelu", ACTIVATION_FROM_HF),
                },
                "causal": False,
                "dropout": hf_config.number("hidden_dropout_prob", 0.0),
            },
        },
        "pool": {"type": "FirstPool"},
    }


def sides(hf_config: HFConfig, name: str, default: int) -> list[int]:
    """Height and width, which config.json gives as one number if they are equal."""
    value = hf_config.values.get(name)
    values = value if isinstance(value, list) and len(value) == 2 else [value, value]
    return [HFConfig({name: side}, hf_config.source).count(name, default) for side in values]


def label_names(hf_config: HFConfig) -> list[str]:
    """The names of the labels, `id2label`; a name that several labels have gets their numbers."""
    section = hf_config.section("id2label")
    if section is None:
        return [f"LABEL_{number}" for number in range(hf_config.count("num_labels", 2))]
    values = section.values
    names = [values.get(str(number)) for number in range(len(values))]
    if not all(isinstance(name, str) and name and name.isprintable() for name in names):
        raise hf_config.error("id2label", "a name on one line for each label, numbered from 0,")
    counts = Counter(names)
    return [f"{name} ({number})" if counts[name] > 1 else str(name) for number, name in enumerate(names)]


def check_processor(folder: Path) -> None:
    """Rejects a folder whose pixels are not x / 127.5 - 1."""
    path = folder / PROCESSOR_FILE
    if not path.is_file():
        return
    processor = HFConfig(read_json(path), str(path))
    for name in ("do_rescale", "do_normalize"):
        processor.require_value(name, True)
    for name in ("image_mean", "image_std"):
        value = processor.values.get(name)
        if value not in (None, 0.5, [0.5, 0.5, 0.5]):
            raise processor.error(name, "0.5 for each channel")
    if abs(processor.number("rescale_factor", 1 / 255) * 255 - 1) > 1e-6:
        raise processor.error("rescale_factor", "1/255")


def processor_files(model: nn.Module) -> dict[str, str]:
    """preprocessor_config.json, with which `transformers` makes the same pixels of a picture: x / 127.5 - 1."""
    height, width, _ = require_type(model, PictureClassifier, "class").source_shape
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": BICUBIC,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    return {PROCESSOR_FILE: json.dumps(processor, indent=1)}


def mappings(model: nn.Module, prefix: str) -> list[WeightMapping]:
    """The table of weights of a ViT, in the form of `to_hf`."""
    model = require_type(model, PictureClassifier, "class")
    embeddings = f"{prefix}embeddings"
    table = [
        same(TOKEN, f"{embeddings}.cls_token"),
        same(TABLE, f"{embeddings}.position_embeddings"),
        *weight_and_bias("encoder.stem.linear", f"{embeddings}.patch_embeddings.projection"),
    ]
    for layer, block in enumerate(blocks_of(stack_of(model))):
        name = f"encoder.stack.blocks.{layer}"
        hf_name = f"{prefix}encoder.layer.{layer}"
        qkv = [f"{hf_name}.attention.attention.{projection}" for projection in ("query", "key", "value")]
        table += [
            *stacked(f"{name}.attention.qkv_proj", qkv, tuple(block.attention.shape.proj_widths)),
            *weight_and_bias(f"{name}.attention.out_proj", f"{hf_name}.attention.output.dense"),
            *weight_and_bias(f"{name}.attention_norm", f"{hf_name}.layernorm_before", True),
            *weight_and_bias(f"{name}.feedforward.in_proj", f"{hf_name}.intermediate.dense"),
            *weight_and_bias(f"{name}.feedforward.out_proj", f"{hf_name}.output.dense"),
            *weight_and_bias(f"{name}.feedforward_norm", f"{hf_name}.layernorm_after", True),
        ]
    table += weight_and_bias("encoder.stack.norm", f"{prefix}layernorm", True)
    table += weight_and_bias("score", "classifier")
    return table


def stack_of(model: PictureClassifier) -> Transformer:
    """The Transformer over the patches."""
    return require_type(model.encoder.stack, Transformer, "stack")


def stem_of(model: nn.Module) -> Patches:
    """The part that makes vectors of patches."""
    return require_type(require_type(model, PictureClassifier, "class").encoder.stem, Patches, "stem")


def to_hf(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """W (D, p · p · 3) → (D, 3, p, p), the kernel of a convolution;   c → (1, 1, D);   P → [0; P] (1, 1 + R, D)

    The class token has a position of its own in `transformers`, which is added to it.
    """
    patch = stem_of(model).patch
    places = weights[TABLE].flatten(0, 1)
    return {
        **weights,
        KERNEL: weights[KERNEL].unflatten(1, (patch, patch, -1)).permute(0, 3, 1, 2),
        TOKEN: weights[TOKEN][None, None],
        TABLE: torch.cat([torch.zeros_like(places[:1]), places])[None],
    }


def from_hf(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `to_hf`: c is their class token and its position, c + p₀."""
    places = weights[TABLE][0]
    return {
        **weights,
        KERNEL: weights[KERNEL].permute(0, 2, 3, 1).flatten(1),
        TOKEN: weights[TOKEN][0, 0] + places[0],
        TABLE: places[1:].unflatten(0, stem_of(model).grid),
    }


def hf_config(model: nn.Module) -> dict[str, Any]:
    """The config.json of a model; raises Unsupported if it is not a ViT."""
    require(type(model) is PictureClassifier, f"it is a {type(model).__name__}")
    model = require_type(model, PictureClassifier, "class")
    encoder = require_type(model.encoder, PictureEncoder, "encoder")
    patch = stem_of(model).patch
    require(
        type(encoder.position) is TableGrid,
        f"its positions are {type(encoder.position).__name__}, not TableGrid",
    )
    require(encoder.class_token is not None, "its encoder has no class token (class_token: true)")
    require_type(model.pool, FirstPool, "pool")
    stack = stack_of(model)
    sizes = transformer_sizes(stack, "pre", False, LayerNorm, FeedForward)
    require_plain_heads(sizes, stack.dim)
    require(
        type(stack.position) is NoPosition,
        f"the positions of its stack are {type(stack.position).__name__}, not NoPosition",
    )
    require(stack.input_norm is None, "its stack has a norm before the first block")
    height, width, channels = model.source_shape
    names = model.label_names or [f"LABEL_{number}" for number in range(model.labels)]
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "image_size": height if height == width else [height, width],
        "patch_size": patch,
        "num_channels": channels,
        "hidden_size": stack.dim,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.ffn_dim,
        "hidden_act": sizes.activation,
        "hidden_dropout_prob": stack.dropout.rate,
        "layer_norm_eps": sizes.epsilon,
        "qkv_bias": True,
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }


VIT = Family(
    model_type="vit",
    prefix="vit.",
    ignored=r"pooler\.dense\.(weight|bias)|embeddings\.mask_token",
    tied_copies={},
    model_tree=model_tree,
    mappings=mappings,
    hf_config=hf_config,
    roles={},
    to_hf=to_hf,
    from_hf=from_hf,
    input_files=processor_files,
)

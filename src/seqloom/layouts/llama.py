"""Llama: rotary positions, RMS norms, gated feed-forward parts, heads that share keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqloom import models
from seqloom import nn as parts
from seqloom.config import Tree
from seqloom.layouts.family import Family, plain_embedding, plain_output, require, transformer_sizes
from seqloom.layouts.hf_folder import HFConfig
from seqloom.layouts.mapping import WeightMapping, same, stacked


def tree(said: HFConfig, names: set[str]) -> Tree:
    said.only("is_causal", True)
    said.word("hidden_act", "silu", {"silu": "swish", "swish": "swish"})
    dim, heads = said.count("hidden_size", 4096), said.count("num_attention_heads", 32)
    size = said.count("head_dim", max(1, dim // heads))
    return config_tree(
        dim,
        said.count("num_hidden_layers", 32),
        heads,
        said.count("num_key_value_heads", heads),
        size,
        said.count("intermediate_size", 11008),
        said.number("rms_norm_eps", 1e-6),
        {"type": "Rotary", "layout": "halves", **rope_options(said)},
        said.flag("tie_word_embeddings", False),
        said.flag("attention_bias", False),
        said.flag("mlp_bias", False),
    )


def config_tree(
    dim: int,
    layers: int,
    heads: int,
    groups: int,
    size: int,
    inner: int,
    epsilon: float,
    position: Tree,
    tied: bool,
    bias: bool = False,
    inner_bias: bool = False,
) -> Tree:
    """Llama as a config says it; `size` is that of a head."""
    attention: Tree = {"type": "SelfAttention", "groups": groups}
    if size * heads != dim:
        attention |= {"key": size, "value": size}
    made: Tree = {
        "type": "LanguageModel",
        "dim": dim,
        "stack": {
            "type": "Transformer",
            "layers": layers,
            "heads": heads,
            "position": position,
            "norm": {"type": "RMSNorm", "epsilon": epsilon},
            "feedforward": {"type": "SwiGLU", "dim": inner, "bias": inner_bias},
            "attention": attention,
            "bias": bias,
        },
    }
    return made if tied else {**made, "tied": False, "output": {"type": "Output", "bias": False}}


def rope_options(said: HFConfig) -> Tree:
    """The base of the angles and their stretch, in the older form (rope_theta, rope_scaling), which goes first, or the newer (rope_parameters)."""
    form = "rope_scaling" if said.values.get("rope_scaling") else "rope_parameters"
    inside = said.inner(form) or HFConfig({}, said.source)
    base = inside.number("rope_theta", said.number("rope_theta", 10000.0))
    kind = inside.values.get("rope_type") or inside.values.get("type") or "default"
    if kind == "default":
        return {"base": base}
    if kind == "linear":
        return {"base": base, "stretch": {"type": "LinearScaling", "factor": inside.number("factor")}}
    if kind == "llama3":
        length = "original_max_position_embeddings"
        known = said if said.values.get(length) is not None else inside
        stretch = {
            "type": "Llama3Scaling",
            "factor": inside.number("factor"),
            "low": inside.number("low_freq_factor"),
            "high": inside.number("high_freq_factor"),
            "length": known.count(length, said.count("max_position_embeddings", 2048)),
        }
        return {"base": base, "stretch": stretch}
    raise ValueError(
        f"{said.source}: rotary angles of type {str(kind)[:40]!r} cannot be read; only default, linear and llama3"
    )


def entries(model: nn.Module, prefix: str) -> list[WeightMapping]:
    found = [same("embedding.table", f"{prefix}embed_tokens.weight")]
    for number, block in enumerate(model.stack.blocks):
        ours, theirs, shape = f"stack.blocks.{number}", f"{prefix}layers.{number}", block.attention.shape
        bias, inner = block.attention.last.bias is not None, block.feedforward.last.bias is not None
        two = [f"{theirs}.mlp.{one}_proj" for one in ("gate", "up")]
        found += [
            same(f"{ours}.attention_norm.gain", f"{theirs}.input_layernorm.weight"),
            same(f"{ours}.feedforward_norm.gain", f"{theirs}.post_attention_layernorm.weight"),
            *stacked(
                f"{ours}.attention.project",
                (f"{theirs}.self_attn.{one}_proj" for one in "qkv"),
                tuple(shape.widths),
                bias,
            ),
            *stacked(f"{ours}.attention.last", [f"{theirs}.self_attn.o_proj"], (), bias),
            *stacked(f"{ours}.feedforward.first", two, (block.feedforward.last.in_features,) * 2, inner),
            *stacked(f"{ours}.feedforward.last", [f"{theirs}.mlp.down_proj"], (), inner),
        ]
    found.append(same("stack.norm.gain", f"{prefix}norm.weight"))
    return (
        found
        if model.output.table is model.embedding.table
        else [*found, same("output.table", "lm_head.weight")]
    )


def settings(model: nn.Module) -> dict[str, Any]:
    require(type(model) is models.LanguageModel, f"it is a {type(model).__name__}")
    plain_embedding(model)
    require(model.embedding.factor == 1, "its embedding is scaled")
    sizes, position = (
        transformer_sizes(model.stack, "pre", True, parts.RMSNorm, parts.SwiGLU),
        model.stack.position,
    )
    require(
        type(position) is parts.Rotary and position.theta is None,
        f"its positions are {type(position).__name__}, not the usual Rotary",
    )
    require(sizes.key == sizes.value, f"its heads have keys of {sizes.key} and values of {sizes.value}")
    require(model.stack.entry is None, "its stack has an entry norm")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": position.base}
    stretch = position.stretch
    if type(stretch) is parts.LinearScaling:
        rope |= {"rope_type": "linear", "factor": stretch.factor}
    elif type(stretch) is parts.Llama3Scaling:
        rope |= {
            "rope_type": "llama3",
            "factor": stretch.factor,
            "low_freq_factor": stretch.low,
            "high_freq_factor": stretch.high,
            "original_max_position_embeddings": stretch.length,
        }
    else:
        require(stretch is None, f"its angles are stretched by {type(stretch).__name__}")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(model.embedding.table),
        "hidden_size": model.stack.dim,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.groups,
        "head_dim": sizes.key,
        "intermediate_size": sizes.inner,
        "hidden_act": "silu",
        "rms_norm_eps": sizes.epsilon,
        "rope_parameters": rope,
        "rope_theta": position.base,
        "attention_bias": sizes.bias,
        "mlp_bias": sizes.inner_bias,
        "tie_word_embeddings": plain_output(model, bias=False),
    }


def to_half_layout(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights with the pairs of each turning head as two halves: rows 0 2 4 … 1 3 5 … of every query and key. q·k stays the same."""
    return {**weights, **{name: weights[name][rows] for name, rows in rope_row_order(model, weights)}}


def to_interleaved_layout(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The way back: halves as pairs, where the model has its pairs side by side."""
    return {
        **weights,
        **{name: weights[name][rows.argsort()] for name, rows in rope_row_order(model, weights)},
    }


def rope_row_order(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Which weights have their rows in pairs, and the order that makes halves of them."""
    if getattr(model.stack.position, "layout", None) != "interleaved":
        return
    for number, block in enumerate(model.stack.blocks):
        (heads, groups, key, _), total = block.attention.shape, block.attention.project.out_features
        order = torch.cat([torch.arange(0, key, 2), torch.arange(1, key, 2)])
        rows = torch.cat(
            [
                (torch.arange(heads + groups)[:, None] * key + order).flatten(),
                torch.arange((heads + groups) * key, total),
            ]
        )
        for kind in ("weight", "bias"):
            if (name := f"stack.blocks.{number}.attention.project.{kind}") in weights:
                yield name, rows


LLAMA = Family(
    "llama", "model.", r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq", {"lm_head.weight": "embed_tokens.weight"}, tree, entries, settings,
    {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "pad_token_id"},
)  # fmt: skip

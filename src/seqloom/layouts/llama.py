"""Llama: rotary positions, RMS norms, gated feed-forward parts, heads that share keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqloom import models
from seqloom.config_tree import Tree
from seqloom.errors import DataError
from seqloom.layouts.family import (
    Family,
    WeightMapping,
    blocks_of,
    is_tied,
    require,
    require_plain_embedding,
    require_type,
    same,
    stacked,
    transformer_sizes,
)
from seqloom.layouts.hf_folder import HFConfig
from seqloom.nn.basic import RMSNorm, SwiGLU
from seqloom.nn.embedding import Embedding
from seqloom.nn.position import LinearScaling, Llama3Scaling, Rotary
from seqloom.nn.transformer import Transformer


def model_tree(hf_config: HFConfig, names: set[str]) -> Tree:
    """The model section of a config for a Llama with this config.json."""
    hf_config.require_value("is_causal", True)
    hf_config.choice("hidden_act", "silu", {"silu": "swish", "swish": "swish"})
    dim = hf_config.count("hidden_size", 4096)
    heads = hf_config.count("num_attention_heads", 32)
    return config_tree(
        dim,
        layers=hf_config.count("num_hidden_layers", 32),
        heads=heads,
        kv_heads=hf_config.count("num_key_value_heads", heads),
        head_dim=hf_config.count("head_dim", max(1, dim // heads)),
        ffn_dim=hf_config.count("intermediate_size", 11008),
        epsilon=hf_config.number("rms_norm_eps", 1e-6),
        position={"type": "Rotary", "layout": "halves", **rope_options(hf_config)},
        tied=hf_config.flag("tie_word_embeddings", False),
        bias=hf_config.flag("attention_bias", False),
        ffn_bias=hf_config.flag("mlp_bias", False),
    )


def config_tree(
    dim: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    ffn_dim: int,
    epsilon: float,
    position: Tree,
    tied: bool,
    bias: bool = False,
    ffn_bias: bool = False,
) -> Tree:
    """Llama as the model section of a config."""
    attention: Tree = {"type": "SelfAttention", "kv_heads": kv_heads}
    if head_dim * heads != dim:
        attention |= {"key_dim": head_dim, "value_dim": head_dim}
    tree: Tree = {
        "type": "LanguageModel",
        "dim": dim,
        "stack": {
            "type": "Transformer",
            "layers": layers,
            "heads": heads,
            "position": position,
            "norm": {"type": "RMSNorm", "epsilon": epsilon},
            "feedforward": {"type": "SwiGLU", "dim": ffn_dim, "bias": ffn_bias},
            "attention": attention,
            "bias": bias,
        },
    }
    return tree if tied else {**tree, "tied": False, "output": {"type": "Output", "bias": False}}


def rope_options(hf_config: HFConfig) -> Tree:
    """The base of the rotary angles and their scaling.

    Reads the older keys (rope_theta, rope_scaling), which take precedence, and the newer one
    (rope_parameters).
    """
    key = "rope_scaling" if hf_config.values.get("rope_scaling") else "rope_parameters"
    rope = hf_config.section(key) or HFConfig({}, hf_config.source)
    base = rope.number("rope_theta", hf_config.number("rope_theta", 10000.0))
    rope_type = rope.values.get("rope_type") or rope.values.get("type") or "default"
    if rope_type == "default":
        return {"base": base}
    if rope_type == "linear":
        return {"base": base, "scaling": {"type": "LinearScaling", "factor": rope.number("factor")}}
    if rope_type == "llama3":
        length_key = "original_max_position_embeddings"
        holder = hf_config if hf_config.values.get(length_key) is not None else rope
        scaling = {
            "type": "Llama3Scaling",
            "factor": rope.number("factor"),
            "low": rope.number("low_freq_factor"),
            "high": rope.number("high_freq_factor"),
            "length": holder.count(length_key, hf_config.count("max_position_embeddings", 2048)),
        }
        return {"base": base, "scaling": scaling}
    raise DataError(
        f"{hf_config.source}: rotary angles of type {str(rope_type)[:40]!r} cannot be read; "
        "only default, linear and llama3"
    )


def mappings(model: nn.Module, prefix: str) -> list[WeightMapping]:
    """The table of weights of a Llama."""
    model = require_type(model, models.LanguageModel, "class")
    table = [same("embedding.table", f"{prefix}embed_tokens.weight")]
    for layer, block in enumerate(blocks_of(model.stack)):
        name = f"stack.blocks.{layer}"
        hf_name = f"{prefix}layers.{layer}"
        bias = block.attention.out_proj.bias is not None
        ffn_bias = block.feedforward.out_proj.bias is not None
        ffn_dim = block.feedforward.out_proj.in_features
        qkv = [f"{hf_name}.self_attn.{projection}_proj" for projection in "qkv"]
        gate_and_up = [f"{hf_name}.mlp.{projection}_proj" for projection in ("gate", "up")]
        table += [
            same(f"{name}.attention_norm.gain", f"{hf_name}.input_layernorm.weight"),
            same(f"{name}.feedforward_norm.gain", f"{hf_name}.post_attention_layernorm.weight"),
            *stacked(f"{name}.attention.qkv_proj", qkv, tuple(block.attention.shape.proj_widths), bias),
            *stacked(f"{name}.attention.out_proj", [f"{hf_name}.self_attn.o_proj"], (), bias),
            *stacked(f"{name}.feedforward.in_proj", gate_and_up, (ffn_dim, ffn_dim), ffn_bias),
            *stacked(f"{name}.feedforward.out_proj", [f"{hf_name}.mlp.down_proj"], (), ffn_bias),
        ]
    table.append(same("stack.norm.gain", f"{prefix}norm.weight"))
    if not is_tied(model.output, model.embedding, allow_bias=True):
        table.append(same("output.table", "lm_head.weight"))
    return table


def hf_config(model: nn.Module) -> dict[str, Any]:
    """The config.json of a model; raises Unsupported if it is not a Llama."""
    require(type(model) is models.LanguageModel, f"it is a {type(model).__name__}")
    model = require_type(model, models.LanguageModel, "class")
    embedding = require_plain_embedding(model.embedding, model.out_proj, Embedding)
    stack = require_type(model.stack, Transformer, "stack")
    sizes = transformer_sizes(stack, "pre", True, RMSNorm, SwiGLU)
    position = require_type(stack.position, Rotary, "position scheme")
    require(position.theta is None, "its rotary positions have one angle for all pairs")
    require(
        sizes.key_dim == sizes.value_dim,
        f"its heads have keys of {sizes.key_dim} and values of {sizes.value_dim}",
    )
    require(stack.input_norm is None, "its stack has a norm before the first block")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": position.base}
    scaling = position.scaling
    if type(scaling) is LinearScaling:
        rope |= {"rope_type": "linear", "factor": scaling.factor}
    elif type(scaling) is Llama3Scaling:
        rope |= {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
            "original_max_position_embeddings": scaling.length,
        }
    else:
        require(scaling is None, f"its rotary angles are scaled by {type(scaling).__name__}")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(embedding.table),
        "hidden_size": stack.dim,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.key_dim,
        "intermediate_size": sizes.ffn_dim,
        "hidden_act": "silu",
        "rms_norm_eps": sizes.epsilon,
        "rope_parameters": rope,
        "rope_theta": position.base,
        "attention_bias": sizes.bias,
        "mlp_bias": sizes.ffn_bias,
        "tie_word_embeddings": is_tied(model.output, embedding, allow_bias=False),
    }


def to_half_layout(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights with rotary pairs as halves: rows 0 2 4 … 1 3 5 … of every query and key.

    q·k stays the same.
    """
    reordered = {name: weights[name][rows] for name, rows in rope_row_order(model, weights)}
    return {**weights, **reordered}


def to_interleaved_layout(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `to_half_layout`, if the model has the interleaved layout."""
    reordered = {name: weights[name][rows.argsort()] for name, rows in rope_row_order(model, weights)}
    return {**weights, **reordered}


def rope_row_order(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The weights with interleaved rotary pairs, each with the row order that turns pairs into halves."""
    model = require_type(model, models.LanguageModel, "class")
    stack = require_type(model.stack, Transformer, "stack")
    if not isinstance(stack.position, Rotary) or stack.position.layout != "interleaved":
        return
    for layer, block in enumerate(blocks_of(stack)):
        heads, kv_heads, key_dim, _ = block.attention.shape
        rotated_heads = torch.arange(heads + kv_heads)
        order = torch.cat([torch.arange(0, key_dim, 2), torch.arange(1, key_dim, 2)])
        rotated_rows = (rotated_heads[:, None] * key_dim + order).flatten()
        value_rows = torch.arange(len(rotated_rows), block.attention.qkv_proj.out_features)
        rows = torch.cat([rotated_rows, value_rows])
        for suffix in ("weight", "bias"):
            name = f"stack.blocks.{layer}.attention.qkv_proj.{suffix}"
            if name in weights:
                yield name, rows


LLAMA = Family(
    model_type="llama",
    prefix="model.",
    ignored=r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    tied_copies={"lm_head.weight": "embed_tokens.weight"},
    model_tree=model_tree,
    mappings=mappings,
    hf_config=hf_config,
    roles={"bos": "bos_token_id", "eos": "eos_token_id", "pad": "pad_token_id"},
    to_hf=to_half_layout,
    from_hf=to_interleaved_layout,
)

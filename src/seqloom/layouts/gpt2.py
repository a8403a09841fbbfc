"""GPT-2: learned positions, norms before the parts, a tied output. Its matrices lie transposed."""

from __future__ import annotations

from typing import Any

from torch import nn

from seqloom import models
from seqloom import nn as parts
from seqloom.config import Tree
from seqloom.layouts.family import (
    ACTIVATION_FROM_HF,
    Family,
    plain_embedding,
    plain_output,
    require,
    require_plain_heads,
    transformer_sizes,
)
from seqloom.layouts.hf_folder import HFConfig
from seqloom.layouts.mapping import WeightMapping, same, weight_and_bias


def tree(said: HFConfig, names: set[str]) -> Tree:
    for name, allowed in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("reorder_and_upcast_attn", False),
        ("add_cross_attention", False),
        ("is_causal", True),
    ):
        said.only(name, allowed)
    dim = said.count("n_embd", 768)
    return config_tree(
        dim,
        said.count("n_layer", 12),
        said.count("n_head", 12),
        said.count("n_positions", 1024),
        said.count("n_inner", 4 * dim),
        said.word("activation_function", "gelu_new", ACTIVATION_FROM_HF),
        said.number("layer_norm_epsilon", 1e-5),
        said.flag("tie_word_embeddings", True),
        said.number("resid_pdrop", 0.1),
    )


def config_tree(
    dim: int,
    layers: int,
    heads: int,
    length: int,
    inner: int,
    activation: str,
    epsilon: float,
    tied: bool,
    dropout: float,
    bias: bool = True,
) -> Tree:
    """GPT-2 as a config says it."""
    made: Tree = {
        "type": "LanguageModel",
        "dim": dim,
        "stack": {
            "type": "Transformer",
            "layers": layers,
            "heads": heads,
            "position": {"type": "Learned", "length": length},
            "norm": {"type": "LayerNorm", "epsilon": epsilon},
            "feedforward": {"type": "FeedForward", "dim": inner, "activation": activation, "bias": bias},
            "bias": bias,
            "dropout": dropout,
        },
    }
    return made if tied else {**made, "tied": False, "output": {"type": "Output", "bias": False}}


def entries(model: nn.Module, prefix: str, transposed: bool = True) -> list[WeightMapping]:
    way = "transposed" if transposed else "same"
    found = [
        same("embedding.table", f"{prefix}wte.weight"),
        same("stack.position.table", f"{prefix}wpe.weight"),
    ]
    for number in range(len(model.stack.blocks)):
        ours, theirs = f"stack.blocks.{number}", f"{prefix}h.{number}"
        found += weight_and_bias(f"{ours}.attention_norm", f"{theirs}.ln_1", True) + weight_and_bias(
            f"{ours}.feedforward_norm", f"{theirs}.ln_2", True
        )
        for one, other in (
            ("attention.project", "attn.c_attn"),
            ("attention.last", "attn.c_proj"),
            ("feedforward.first", "mlp.c_fc"),
            ("feedforward.last", "mlp.c_proj"),
        ):
            weight, bias = weight_and_bias(f"{ours}.{one}", f"{theirs}.{other}")
            found += [weight._replace(way=way), bias]
    found += weight_and_bias("stack.norm", f"{prefix}ln_f", True)
    return (
        found
        if model.output.table is model.embedding.table
        else [*found, same("output.table", "lm_head.weight")]
    )


def settings(model: nn.Module) -> dict[str, Any]:
    require(type(model) is models.LanguageModel, f"it is a {type(model).__name__}")
    plain_embedding(model)
    require(model.embedding.factor == 1, "its embedding is scaled")
    sizes = transformer_sizes(model.stack, "pre", True, parts.LayerNorm, parts.FeedForward)
    require_plain_heads(sizes, model.stack.dim)
    require(
        type(model.stack.position) is parts.Learned,
        f"its positions are {type(model.stack.position).__name__}, not Learned",
    )
    require(model.stack.entry is None, "its stack has an entry norm")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": len(model.embedding.table),
        "n_embd": model.stack.dim,
        "n_layer": sizes.layers,
        "n_head": sizes.heads,
        "n_positions": model.stack.context,
        "n_inner": sizes.inner,
        "activation_function": sizes.activation,
        "layer_norm_epsilon": sizes.epsilon,
        "tie_word_embeddings": plain_output(model, bias=False),
    }


GPT2 = Family(
    "gpt2", "transformer.", r"h\.\d+\.attn\.(bias|masked_bias)", {"lm_head.weight": "wte.weight"}, tree, entries, settings,
    {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "pad_token_id"},
    aliases={"hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
)  # fmt: skip

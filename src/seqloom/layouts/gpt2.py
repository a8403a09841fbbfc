"""GPT-2: learned positions, norms before the sublayers, a tied output; linear weights are transposed."""

from __future__ import annotations

from typing import Any

from torch import nn

from seqloom.config_tree import Tree
from seqloom.layouts.family import (
    ACTIVATION_FROM_HF,
    Family,
    WeightMapping,
    blocks_of,
    is_tied,
    require,
    require_plain_embedding,
    require_plain_heads,
    require_type,
    same,
    transformer_sizes,
    weight_and_bias,
)
from seqloom.layouts.hf_folder import HFConfig
from seqloom.models.language_model import LanguageModel
from seqloom.nn.basic import FeedForward, LayerNorm
from seqloom.nn.embedding import Embedding
from seqloom.nn.position import Learned
from seqloom.nn.transformer import Transformer


def model_tree(hf_config: HFConfig, names: set[str]) -> Tree:
    """The model section of a config for a GPT-2 with this config.json."""
    for name, allowed in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("reorder_and_upcast_attn", False),
        ("add_cross_attention", False),
        ("is_causal", True),
    ):
        hf_config.require_value(name, allowed)
    dim = hf_config.count("n_embd", 768)
    return config_tree(
        dim,
        layers=hf_config.count("n_layer", 12),
        heads=hf_config.count("n_head", 12),
        length=hf_config.count("n_positions", 1024),
        ffn_dim=hf_config.count("n_inner", 4 * dim),
        activation=hf_config.choice("activation_function", "gelu_new", ACTIVATION_FROM_HF),
        epsilon=hf_config.number("layer_norm_epsilon", 1e-5),
        tied=hf_config.flag("tie_word_embeddings", True),
        dropout=hf_config.number("resid_pdrop", 0.1),
    )


def config_tree(
    dim: int,
    layers: int,
    heads: int,
    length: int,
    ffn_dim: int,
    activation: str,
    epsilon: float,
    tied: bool,
    dropout: float,
    bias: bool = True,
) -> Tree:
    """GPT-2 as the model section of a config."""
    tree: Tree = {
        "type": "LanguageModel",
        "dim": dim,
        "stack": {
            "type": "Transformer",
            "layers": layers,
            "heads": heads,
            "position": {"type": "Learned", "length": length},
            "norm": {"type": "LayerNorm", "epsilon": epsilon},
            "feedforward": {"type": "FeedForward", "dim": ffn_dim, "activation": activation, "bias": bias},
            "bias": bias,
            "dropout": dropout,
        },
    }
    return tree if tied else {**tree, "tied": False, "output": {"type": "Output", "bias": False}}


def mappings(model: nn.Module, prefix: str, transposed: bool = True) -> list[WeightMapping]:
    """The table of weights; nanoGPT stores linear weights as we do, not `transposed`."""
    model = require_type(model, LanguageModel, "class")
    table = [
        same("embedding.table", f"{prefix}wte.weight"),
        same("stack.position.table", f"{prefix}wpe.weight"),
    ]
    for layer in range(len(blocks_of(model.stack))):
        name = f"stack.blocks.{layer}"
        hf_name = f"{prefix}h.{layer}"
        table += weight_and_bias(f"{name}.attention_norm", f"{hf_name}.ln_1", True)
        table += weight_and_bias(f"{name}.feedforward_norm", f"{hf_name}.ln_2", True)
        for linear, hf_linear in (
            ("attention.qkv_proj", "attn.c_attn"),
            ("attention.out_proj", "attn.c_proj"),
            ("feedforward.in_proj", "mlp.c_fc"),
            ("feedforward.out_proj", "mlp.c_proj"),
        ):
            weight, bias = weight_and_bias(f"{name}.{linear}", f"{hf_name}.{hf_linear}")
            table += [weight._replace(layout="transposed" if transposed else "same"), bias]
    table += weight_and_bias("stack.norm", f"{prefix}ln_f", True)
    if not is_tied(model.output, model.embedding, allow_bias=True):
        table.append(same("output.table", "lm_head.weight"))
    return table


def hf_config(model: nn.Module) -> dict[str, Any]:
    """The config.json of a model; raises Unsupported if it is not a GPT-2."""
    require(type(model) is LanguageModel, f"it is a {type(model).__name__}")
    model = require_type(model, LanguageModel, "class")
    embedding = require_plain_embedding(model.embedding, model.out_proj, Embedding)
    stack = require_type(model.stack, Transformer, "stack")
    sizes = transformer_sizes(stack, "pre", True, LayerNorm, FeedForward)
    require_plain_heads(sizes, stack.dim)
    require(
        type(stack.position) is Learned,
        f"its positions are {type(stack.position).__name__}, not Learned",
    )
    require(stack.input_norm is None, "its stack has a norm before the first block")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": len(embedding.table),
        "n_embd": stack.dim,
        "n_layer": sizes.layers,
        "n_head": sizes.heads,
        "n_positions": stack.context,
        "n_inner": sizes.ffn_dim,
        "activation_function": sizes.activation,
        "layer_norm_epsilon": sizes.epsilon,
        "tie_word_embeddings": is_tied(model.output, embedding, allow_bias=False),
    }


GPT2 = Family(
    model_type="gpt2",
    prefix="transformer.",
    ignored=r"h\.\d+\.attn\.(bias|masked_bias)",
    tied_copies={"lm_head.weight": "wte.weight"},
    model_tree=model_tree,
    mappings=mappings,
    hf_config=hf_config,
    roles={"bos": "bos_token_id", "eos": "eos_token_id", "pad": "pad_token_id"},
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
)

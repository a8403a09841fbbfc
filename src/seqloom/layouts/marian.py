"""Marian: the Transformer of 2017, norms after the sublayers, sines before cosines, a bias on the output."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from seqloom import models
from seqloom.config_tree import Tree
from seqloom.layouts.family import (
    ACTIVATION_FROM_HF,
    Family,
    TransformerSizes,
    Unsupported,
    WeightMapping,
    blocks_of,
    is_tied,
    require,
    require_plain_embedding,
    require_plain_heads,
    require_type,
    same,
    stacked,
    transformer_sizes,
    weight_and_bias,
)
from seqloom.layouts.hf_folder import HFConfig
from seqloom.nn.attention_core import ScaledDot, Softmax
from seqloom.nn.basic import FeedForward, LayerNorm
from seqloom.nn.cross_attention import CrossAttention
from seqloom.nn.embedding import Embedding
from seqloom.nn.position import Sinusoidal
from seqloom.nn.transformer import Transformer

LENGTH = 4096  # rows of the position table that transformers builds; ours are computed for any length
SIDES = ("encoder", "decoder")


def model_tree(hf_config: HFConfig, names: set[str]) -> Tree:
    """The model section of a config for a Marian with this config.json."""
    for name, allowed in (
        ("share_encoder_decoder_embeddings", True),
        ("decoder_vocab_size", hf_config.values.get("vocab_size")),
        ("normalize_before", False),
        ("normalize_embedding", False),
        ("add_final_layer_norm", False),
        ("static_position_embeddings", True),
        ("is_causal", None),
    ):
        hf_config.require_value(name, allowed)
    activation = hf_config.choice("activation_function", "gelu", ACTIVATION_FROM_HF)
    dropout = hf_config.number("dropout", 0.1)

    def transformer(side: str) -> Tree:
        ffn_dim = hf_config.count(f"{side}_ffn_dim", 4096)
        return {
            "type": "Transformer",
            "layers": hf_config.count(f"{side}_layers", 12),
            "heads": hf_config.count(f"{side}_attention_heads", 16),
            "position": {"type": "Sinusoidal", "layout": "halves"},
            "order": "post",
            "feedforward": {"type": "FeedForward", "dim": ffn_dim, "activation": activation},
            "causal": side == "decoder",
            "dropout": dropout,
        }

    tree: Tree = {
        "type": "Seq2Seq",
        "dim": hf_config.count("d_model", 1024),
        "embedding": {"type": "Embedding", "scale": hf_config.flag("scale_embedding", False)},
        "encoder": transformer("encoder"),
        "decoder": transformer("decoder"),
        "output": {"type": "Output", "bias": True},
    }
    return tree if hf_config.flag("tie_word_embeddings", True) else {**tree, "tied": False}


def stack_of(model: models.Seq2Seq, side: str) -> Transformer:
    """The encoder or the decoder."""
    return require_type(model.encoder if side == "encoder" else model.decoder, Transformer, side)


def mappings(model: nn.Module, prefix: str) -> list[WeightMapping]:
    """The table of weights of a Marian."""
    model = require_type(model, models.Seq2Seq, "class")
    table = [same("embedding.table", f"{prefix}shared.weight")]
    for side in SIDES:
        for layer, block in enumerate(blocks_of(stack_of(model, side))):
            name = f"{side}.blocks.{layer}"
            hf_name = f"{prefix}{side}.layers.{layer}"
            qkv = [f"{hf_name}.self_attn.{projection}_proj" for projection in "qkv"]
            table += [
                *stacked(f"{name}.attention.qkv_proj", qkv, tuple(block.attention.shape.proj_widths)),
                *weight_and_bias(f"{name}.attention.out_proj", f"{hf_name}.self_attn.out_proj"),
                *weight_and_bias(f"{name}.attention_norm", f"{hf_name}.self_attn_layer_norm", True),
                *weight_and_bias(f"{name}.feedforward.in_proj", f"{hf_name}.fc1"),
                *weight_and_bias(f"{name}.feedforward.out_proj", f"{hf_name}.fc2"),
                *weight_and_bias(f"{name}.feedforward_norm", f"{hf_name}.final_layer_norm", True),
            ]
            if block.cross is not None:
                kv = [f"{hf_name}.encoder_attn.{projection}_proj" for projection in "kv"]
                table += [
                    *weight_and_bias(f"{name}.cross.q_proj", f"{hf_name}.encoder_attn.q_proj"),
                    *stacked(f"{name}.cross.kv_proj", kv, tuple(block.cross.shape.proj_widths[1:])),
                    *weight_and_bias(f"{name}.cross.out_proj", f"{hf_name}.encoder_attn.out_proj"),
                    *weight_and_bias(f"{name}.cross_norm", f"{hf_name}.encoder_attn_layer_norm", True),
                ]
    table.append(
        WeightMapping("output.bias", ("final_logits_bias",), layout="row", default=0.0, optional=True)
    )
    if not is_tied(model.output, model.embedding, allow_bias=True):
        table.append(same("output.table", "lm_head.weight"))
    return table


def hf_config(model: nn.Module) -> dict[str, Any]:
    """The config.json of a model; raises Unsupported if it is not a Marian."""
    require(type(model) is models.Seq2Seq, f"it is a {type(model).__name__}")
    model = require_type(model, models.Seq2Seq, "class")
    embedding = require_plain_embedding(model.embedding, model.out_proj, Embedding, scaled=True)
    require(model.source_embedding is embedding, "source and target have separate embeddings")
    sizes: dict[str, TransformerSizes] = {}
    for side in SIDES:
        stack = stack_of(model, side)
        size = transformer_sizes(stack, "post", side == "decoder", LayerNorm, FeedForward)
        require_plain_heads(size, stack.dim)
        position = stack.position
        if not (
            type(position) is Sinusoidal
            and position.layout == "halves"
            and position.base == 10000
            and position.first == 0
        ):
            raise Unsupported(
                f"the positions of its {side} are {type(position).__name__}, "
                "not Sinusoidal with layout: halves"
            )
        require(stack.input_norm is None, "its stack has a norm before the first block")
        require(size.epsilon == 1e-5, f"its norms have an epsilon of {size.epsilon}, not 1e-05")
        sizes[side] = size
    cross = require_type(blocks_of(stack_of(model, "decoder"))[0].cross, CrossAttention, "cross-attention")
    require(
        type(cross.score) is ScaledDot and type(cross.weights) is Softmax,
        "its cross-attention is not scaled dot-product attention",
    )
    require(
        cross.shape.kv_heads == cross.shape.heads and cross.shape.key_dim == cross.shape.value_dim,
        "its cross-attention has shared keys or another key size",
    )
    require(
        sizes["encoder"].activation == sizes["decoder"].activation,
        "its encoder and decoder have different activations",
    )
    config: dict[str, Any] = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": len(embedding.table),
        "decoder_vocab_size": len(embedding.table),
        "d_model": model.decoder.dim,
        "activation_function": sizes["encoder"].activation,
        "scale_embedding": embedding.factor != 1,
        "share_encoder_decoder_embeddings": True,
        "max_position_embeddings": LENGTH,
        "tie_word_embeddings": is_tied(model.output, embedding, allow_bias=True),
    }
    for side, size in sizes.items():
        config |= {
            f"{side}_layers": size.layers,
            f"{side}_attention_heads": size.heads,
            f"{side}_ffn_dim": size.ffn_dim,
        }
    return config


def position_rows(side: str, model: nn.Module, rows: int) -> Tensor:
    """The first `rows` of the sinusoidal table, which a file may store."""
    stack = stack_of(require_type(model, models.Seq2Seq, "class"), side)
    return require_type(stack.position, Sinusoidal, "position scheme").encoding(slice(0, rows))


MARIAN = Family(
    model_type="marian",
    prefix="model.",
    ignored="",
    tied_copies={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
    model_tree=model_tree,
    mappings=mappings,
    hf_config=hf_config,
    roles={"bos": "decoder_start_token_id", "eos": "eos_token_id", "pad": "pad_token_id"},
    special_frame=("eos",),
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    },
    computed={f"{side}.embed_positions.weight": partial(position_rows, side) for side in SIDES},
)

"""Marian: the Transformer of 2017 with norms after the parts, sines before cosines, a bias on the tied output."""

from __future__ import annotations

from typing import Any

from torch import nn

from seqloom import models
from seqloom import nn as parts
from seqloom.config import Tree
from seqloom.layouts.family import (
    ACTIVATION_FROM_HF,
    Family,
    TransformerSizes,
    plain_embedding,
    plain_output,
    require,
    require_plain_heads,
    transformer_sizes,
)
from seqloom.layouts.hf_folder import HFConfig
from seqloom.layouts.mapping import WeightMapping, same, stacked, weight_and_bias

LENGTH = 4096  # positions that their table is made for; ours are computed, for any length


def tree(said: HFConfig, names: set[str]) -> Tree:
    for name, allowed in (
        ("share_encoder_decoder_embeddings", True),
        ("decoder_vocab_size", said.values.get("vocab_size")),
        ("normalize_before", False),
        ("normalize_embedding", False),
        ("add_final_layer_norm", False),
        ("static_position_embeddings", True),
        ("is_causal", None),
    ):
        said.only(name, allowed)
    activation, dropout = (
        said.word("activation_function", "gelu", ACTIVATION_FROM_HF),
        said.number("dropout", 0.1),
    )

    def side(name: str) -> Tree:
        return {
            "type": "Transformer",
            "layers": said.count(f"{name}_layers", 12),
            "heads": said.count(f"{name}_attention_heads", 16),
            "position": {"type": "Sinusoidal", "layout": "halves"},
            "order": "post",
            "feedforward": {
                "type": "FeedForward",
                "dim": said.count(f"{name}_ffn_dim", 4096),
                "activation": activation,
            },
            "causal": name == "decoder",
            "dropout": dropout,
        }

    made: Tree = {
        "type": "Seq2Seq",
        "dim": said.count("d_model", 1024),
        "embedding": {"type": "Embedding", "scale": said.flag("scale_embedding", False)},
        "encoder": side("encoder"),
        "decoder": side("decoder"),
        "output": {"type": "Output", "bias": True},
    }
    return made if said.flag("tie_word_embeddings", True) else {**made, "tied": False}


def entries(model: nn.Module, prefix: str) -> list[WeightMapping]:
    found = [same("embedding.table", f"{prefix}shared.weight")]
    for side in ("encoder", "decoder"):
        for number, block in enumerate(getattr(model, side).blocks):
            ours, theirs, widths = (
                f"{side}.blocks.{number}",
                f"{prefix}{side}.layers.{number}",
                block.attention.shape.widths,
            )
            found += [
                *stacked(
                    f"{ours}.attention.project",
                    (f"{theirs}.self_attn.{one}_proj" for one in "qkv"),
                    tuple(widths),
                ),
                *weight_and_bias(f"{ours}.attention.last", f"{theirs}.self_attn.out_proj"),
                *weight_and_bias(f"{ours}.attention_norm", f"{theirs}.self_attn_layer_norm", True),
                *weight_and_bias(f"{ours}.feedforward.first", f"{theirs}.fc1"),
                *weight_and_bias(f"{ours}.feedforward.last", f"{theirs}.fc2"),
                *weight_and_bias(f"{ours}.feedforward_norm", f"{theirs}.final_layer_norm", True),
            ]
            if block.cross is not None:
                found += [
                    *weight_and_bias(f"{ours}.cross.query", f"{theirs}.encoder_attn.q_proj"),
                    *stacked(
                        f"{ours}.cross.project",
                        (f"{theirs}.encoder_attn.{one}_proj" for one in "kv"),
                        tuple(block.cross.shape.widths[1:]),
                    ),
                    *weight_and_bias(f"{ours}.cross.last", f"{theirs}.encoder_attn.out_proj"),
                    *weight_and_bias(f"{ours}.cross_norm", f"{theirs}.encoder_attn_layer_norm", True),
                ]
    found.append(WeightMapping("output.bias", ("final_logits_bias",), way="row", fill=0.0, optional=True))
    return (
        found
        if model.output.table is model.embedding.table
        else [*found, same("output.table", "lm_head.weight")]
    )


def settings(model: nn.Module) -> dict[str, Any]:
    require(type(model) is models.Seq2Seq, f"it is a {type(model).__name__}")
    plain_embedding(model)
    require(model.source_embedding is model.embedding, "source and target have tables of their own")
    sizes: dict[str, TransformerSizes] = {}
    for side, causal in (("encoder", False), ("decoder", True)):
        stack = getattr(model, side)
        sizes[side] = transformer_sizes(stack, "post", causal, parts.LayerNorm, parts.FeedForward)
        require_plain_heads(sizes[side], stack.dim)
        place = stack.position
        require(
            type(place) is parts.Sinusoidal
            and place.layout == "halves"
            and place.base == 10000
            and place.first == 0,
            f"its {side}'s positions are {type(place).__name__}, and not Sinusoidal in halves",
        )
        require(stack.entry is None, "its stack has an entry norm")
        require(sizes[side].epsilon == 1e-5, f"its norms have an epsilon of {sizes[side].epsilon}, not 1e-05")
    cross = model.decoder.blocks[0].cross
    kinds = type(cross), type(cross.score), type(cross.weights)
    require(kinds == (parts.CrossAttention, parts.ScaledDot, parts.Softmax), "its cross-attention is another")
    require(
        cross.shape.groups == cross.shape.queries and cross.shape.key == cross.shape.value,
        "its cross-attention has groups or keys of its own",
    )
    require(
        sizes["encoder"].activation == sizes["decoder"].activation,
        "encoder and decoder have different functions",
    )
    made: dict[str, Any] = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": len(model.embedding.table),
        "decoder_vocab_size": len(model.embedding.table),
        "d_model": model.decoder.dim,
        "activation_function": sizes["encoder"].activation,
        "scale_embedding": model.embedding.factor != 1,
        "share_encoder_decoder_embeddings": True,
        "max_position_embeddings": LENGTH,
        "tie_word_embeddings": plain_output(model, bias=True),
    }
    for side, size in sizes.items():
        made |= {
            f"{side}_layers": size.layers,
            f"{side}_attention_heads": size.heads,
            f"{side}_ffn_dim": size.inner,
        }
    return made


MARIAN = Family(
    "marian", "model.", "",
    {name: "shared.weight" for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")},
    tree, entries, settings, {"bos": "decoder_start_token_id", "eos": "eos_token_id", "pad": "pad_token_id"}, ("eos",),
    {"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads", "num_hidden_layers": "encoder_layers"},
    {f"{side}.embed_positions.weight": lambda model, rows, side=side: getattr(model, side).position.code(slice(0, rows))
     for side in ("encoder", "decoder")},
)  # fmt: skip

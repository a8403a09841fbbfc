"""BERT, MiniLM and DistilBERT: encoders with learned positions, a norm at the entry and norms after the parts."""

from __future__ import annotations

from typing import Any

from torch import nn

from seqloom import models
from seqloom import nn as parts
from seqloom.config import Tree
from seqloom.layouts.family import (
    ACTIVATION_FROM_HF,
    ACTIVATION_TO_HF,
    Family,
    plain_embedding,
    plain_output,
    require,
    require_plain_heads,
    transformer_sizes,
)
from seqloom.layouts.hf_folder import HFConfig
from seqloom.layouts.mapping import WeightMapping, same, stacked, weight_and_bias

EPSILON = 1e-12  # DistilBERT's, which its config.json does not say


def config_tree(
    dim: int,
    layers: int,
    heads: int,
    inner: int,
    length: int,
    activation: str,
    epsilon: float,
    dropout: float,
    embedding: Tree,
    head: bool,
) -> Tree:
    """An encoder of the family as a config says it."""
    norm = {"type": "LayerNorm", "epsilon": epsilon}
    made: Tree = {
        "type": "MaskedLM" if head else "Encoder",
        "dim": dim,
        "embedding": embedding,
        "stack": {
            "type": "Transformer",
            "layers": layers,
            "heads": heads,
            "position": {"type": "Learned", "length": length},
            "norm": norm,
            "order": "post",
            "entry": norm,
            "feedforward": {"type": "FeedForward", "dim": inner, "activation": activation},
            "causal": False,
            "dropout": dropout,
        },
    }
    if head:
        made["output"] = {
            "type": "Output",
            "bias": True,
            "head": {"type": "HeadTransform", "activation": activation, "norm": norm},
        }
    return made


def bert_tree(said: HFConfig, names: set[str]) -> Tree:
    only = {
        "is_decoder": False,
        "is_causal": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "position_embedding_type": "absolute",
    }
    for name, allowed in only.items():
        said.only(name, allowed)
    made = config_tree(
        said.count("hidden_size", 768),
        said.count("num_hidden_layers", 12),
        said.count("num_attention_heads", 12),
        said.count("intermediate_size", 3072),
        said.count("max_position_embeddings", 512),
        said.word("hidden_act", "gelu", ACTIVATION_FROM_HF),
        said.number("layer_norm_eps", 1e-12),
        said.number("hidden_dropout_prob", 0.1),
        {"type": "SegmentEmbedding", "segments": said.count("type_vocab_size", 2), "separator": 0},
        "cls.predictions.bias" in names,
    )
    if "pooler.dense.weight" in names and (
        made["type"] == "Encoder" or "cls.seq_relationship.weight" in names
    ):
        made["pooler"] = {"type": "Pooler"}
    return made


def bert_entries(model: nn.Module, prefix: str) -> list[WeightMapping]:
    embeddings = f"{prefix}embeddings"
    found = [
        same("embedding.table", f"{embeddings}.word_embeddings.weight"),
        same("stack.position.table", f"{embeddings}.position_embeddings.weight"),
        same("embedding.segments", f"{embeddings}.token_type_embeddings.weight"),
        *weight_and_bias("stack.entry", f"{embeddings}.LayerNorm", True),
    ]
    for number, block in enumerate(model.stack.blocks):
        ours, theirs = f"stack.blocks.{number}", f"{prefix}encoder.layer.{number}"
        three = [f"{theirs}.attention.self.{one}" for one in ("query", "key", "value")]
        found += [
            *stacked(f"{ours}.attention.project", three, tuple(block.attention.shape.widths)),
            *weight_and_bias(f"{ours}.attention.last", f"{theirs}.attention.output.dense"),
            *weight_and_bias(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm", True),
            *weight_and_bias(f"{ours}.feedforward.first", f"{theirs}.intermediate.dense"),
            *weight_and_bias(f"{ours}.feedforward.last", f"{theirs}.output.dense"),
            *weight_and_bias(f"{ours}.feedforward_norm", f"{theirs}.output.LayerNorm", True),
        ]
    if model.pooler is not None:
        found += weight_and_bias("pooler.dense", f"{prefix}pooler.dense")
    if type(model) is models.MaskedLM:
        found += [
            *weight_and_bias("output.head.dense", "cls.predictions.transform.dense"),
            *weight_and_bias("output.head.norm", "cls.predictions.transform.LayerNorm", True),
            same("output.bias", "cls.predictions.bias"),
        ]
        if model.pooler is not None:
            found += weight_and_bias("follows", "cls.seq_relationship")
    return found


def encoder_sizes(model: nn.Module, embedding: type) -> tuple[Any, int]:
    """The sizes of an encoder that both kinds of folder can hold, and its context."""
    require(type(model) in (models.Encoder, models.MaskedLM), f"it is a {type(model).__name__}")
    plain_embedding(model, [embedding])
    require(model.embedding.factor == 1, "its embedding is scaled")
    sizes = transformer_sizes(model.stack, "post", False, parts.LayerNorm, parts.FeedForward)
    require_plain_heads(sizes, model.stack.dim)
    require(
        type(model.stack.position) is parts.Learned,
        f"its positions are {type(model.stack.position).__name__}, not Learned",
    )
    require(type(model.stack.entry) is parts.LayerNorm, "its stack has no entry norm")
    epsilons = {model.stack.entry.epsilon, sizes.epsilon}
    if type(model) is models.MaskedLM:
        plain_output(model, bias=True, tied=True)
        head = model.output.head
        require(
            head is not None and model.output.bias is not None and type(head.norm) is parts.LayerNorm,
            "its output has not BERT's head",
        )
        require(
            ACTIVATION_TO_HF.get(head.activation) == sizes.activation,
            "its head has another function than its stack",
        )
        epsilons.add(head.norm.epsilon)
    require(len(epsilons) == 1, "its norms have several epsilons")
    return sizes, model.stack.context


def bert_settings(model: nn.Module) -> dict[str, Any]:
    sizes, length = encoder_sizes(model, parts.SegmentEmbedding)
    head = type(model) is models.MaskedLM
    return {
        "architectures": [
            ("BertForPreTraining" if model.pooler else "BertForMaskedLM") if head else "BertModel"
        ],
        "model_type": "bert",
        "vocab_size": len(model.embedding.table),
        "hidden_size": model.stack.dim,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.inner,
        "hidden_act": sizes.activation,
        "max_position_embeddings": length,
        "type_vocab_size": len(model.embedding.segments),
        "layer_norm_eps": sizes.epsilon,
        "tie_word_embeddings": True,
    }


def distil_tree(said: HFConfig, names: set[str]) -> Tree:
    said.only("tie_word_embeddings", True)
    said.only("is_causal", False)
    dim = said.count("dim", 768)
    return config_tree(
        dim,
        said.count("n_layers", 6),
        said.count("n_heads", 12),
        said.count("hidden_dim", 4 * dim),
        said.count("max_position_embeddings", 512),
        said.word("activation", "gelu", ACTIVATION_FROM_HF),
        EPSILON,
        said.number("dropout", 0.1),
        {"type": "Embedding"},
        "vocab_projector.bias" in names,
    )


def distil_entries(model: nn.Module, prefix: str) -> list[WeightMapping]:
    found = [
        same("embedding.table", f"{prefix}embeddings.word_embeddings.weight"),
        same("stack.position.table", f"{prefix}embeddings.position_embeddings.weight"),
        *weight_and_bias("stack.entry", f"{prefix}embeddings.LayerNorm", True),
    ]
    for number, block in enumerate(model.stack.blocks):
        ours, theirs = f"stack.blocks.{number}", f"{prefix}transformer.layer.{number}"
        found += [
            *stacked(
                f"{ours}.attention.project",
                (f"{theirs}.attention.{one}_lin" for one in "qkv"),
                tuple(block.attention.shape.widths),
            ),
            *weight_and_bias(f"{ours}.attention.last", f"{theirs}.attention.out_lin"),
            *weight_and_bias(f"{ours}.attention_norm", f"{theirs}.sa_layer_norm", True),
            *weight_and_bias(f"{ours}.feedforward.first", f"{theirs}.ffn.lin1"),
            *weight_and_bias(f"{ours}.feedforward.last", f"{theirs}.ffn.lin2"),
            *weight_and_bias(f"{ours}.feedforward_norm", f"{theirs}.output_layer_norm", True),
        ]
    if type(model) is models.MaskedLM:
        found += [
            *weight_and_bias("output.head.dense", "vocab_transform"),
            *weight_and_bias("output.head.norm", "vocab_layer_norm", True),
            same("output.bias", "vocab_projector.bias"),
        ]
    return found


def distil_settings(model: nn.Module) -> dict[str, Any]:
    sizes, length = encoder_sizes(model, parts.Embedding)
    require(model.pooler is None, "it has a pooler")
    require(sizes.epsilon == EPSILON, f"its norms have an epsilon of {sizes.epsilon}, not {EPSILON}")
    return {
        "architectures": ["DistilBertForMaskedLM" if type(model) is models.MaskedLM else "DistilBertModel"],
        "model_type": "distilbert",
        "vocab_size": len(model.embedding.table),
        "dim": model.stack.dim,
        "n_layers": sizes.layers,
        "n_heads": sizes.heads,
        "hidden_dim": sizes.inner,
        "activation": sizes.activation,
        "max_position_embeddings": length,
        "tie_word_embeddings": True,
    }


ROLES, FRAME = {"pad": "pad_token_id"}, ("bos", "eos")
BERT = Family(
    "bert", "bert.", r"embeddings\.position_ids|pooler\.dense\.(weight|bias)",
    {"cls.predictions.decoder.weight": "embeddings.word_embeddings.weight", "cls.predictions.decoder.bias": "cls.predictions.bias"},
    bert_tree, bert_entries, bert_settings, ROLES, FRAME,
)  # fmt: skip
DISTILBERT = Family(
    "distilbert", "distilbert.", r"embeddings\.position_ids", {"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    distil_tree, distil_entries, distil_settings, ROLES, FRAME,
    {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
)  # fmt: skip

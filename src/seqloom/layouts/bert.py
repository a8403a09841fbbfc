"""BERT, MiniLM, DistilBERT: learned positions, a norm before the first block, norms after the sublayers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from seqloom import models
from seqloom.config_tree import Tree
from seqloom.layouts.family import (
    ACTIVATION_FROM_HF,
    ACTIVATION_TO_HF,
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
from seqloom.nn.basic import FeedForward, LayerNorm
from seqloom.nn.embedding import Embedding, Output, SegmentEmbedding
from seqloom.nn.position import Learned
from seqloom.nn.transformer import Transformer

EPSILON = 1e-12  # of DistilBERT's norms; its config.json has no key for it


def config_tree(
    dim: int,
    layers: int,
    heads: int,
    ffn_dim: int,
    length: int,
    activation: str,
    epsilon: float,
    dropout: float,
    embedding: Tree,
    head: bool,
) -> Tree:
    """An encoder of the family as the model section of a config."""
    norm = {"type": "LayerNorm", "epsilon": epsilon}
    tree: Tree = {
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
            "input_norm": norm,
            "feedforward": {"type": "FeedForward", "dim": ffn_dim, "activation": activation},
            "causal": False,
            "dropout": dropout,
        },
    }
    if head:
        tree["output"] = {
            "type": "Output",
            "bias": True,
            "head": {"type": "HeadTransform", "activation": activation, "norm": norm},
        }
    return tree


def bert_tree(hf_config: HFConfig, names: set[str]) -> Tree:
    """The model section of a config for a BERT with this config.json."""
    allowed_values = {
        "is_decoder": False,
        "is_causal": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "position_embedding_type": "absolute",
    }
    for name, allowed in allowed_values.items():
        hf_config.require_value(name, allowed)
    segments = hf_config.count("type_vocab_size", 2)
    tree = config_tree(
        hf_config.count("hidden_size", 768),
        layers=hf_config.count("num_hidden_layers", 12),
        heads=hf_config.count("num_attention_heads", 12),
        ffn_dim=hf_config.count("intermediate_size", 3072),
        length=hf_config.count("max_position_embeddings", 512),
        activation=hf_config.choice("hidden_act", "gelu", ACTIVATION_FROM_HF),
        epsilon=hf_config.number("layer_norm_eps", 1e-12),
        dropout=hf_config.number("hidden_dropout_prob", 0.1),
        embedding={"type": "SegmentEmbedding", "segments": segments, "separator": 0},
        head="cls.predictions.bias" in names,
    )
    uses_pooler = tree["type"] == "Encoder" or "cls.seq_relationship.weight" in names
    if "pooler.dense.weight" in names and uses_pooler:
        tree["pooler"] = {"type": "Pooler"}
    return tree


def require_encoder(model: nn.Module) -> models.Encoder:
    """The model, if it is an Encoder or a MaskedLM."""
    require(type(model) in (models.Encoder, models.MaskedLM), f"it is a {type(model).__name__}")
    if not isinstance(model, models.Encoder):
        raise TypeError("unreachable: checked above")
    return model


def bert_mappings(model: nn.Module, prefix: str) -> list[WeightMapping]:
    """The table of weights of a BERT."""
    model = require_encoder(model)
    embeddings = f"{prefix}embeddings"
    table = [
        same("embedding.table", f"{embeddings}.word_embeddings.weight"),
        same("stack.position.table", f"{embeddings}.position_embeddings.weight"),
        same("embedding.segments", f"{embeddings}.token_type_embeddings.weight"),
        *weight_and_bias("stack.input_norm", f"{embeddings}.LayerNorm", True),
    ]
    for layer, block in enumerate(blocks_of(model.stack)):
        name = f"stack.blocks.{layer}"
        hf_name = f"{prefix}encoder.layer.{layer}"
        qkv = [f"{hf_name}.attention.self.{projection}" for projection in ("query", "key", "value")]
        table += [
            *stacked(f"{name}.attention.qkv_proj", qkv, tuple(block.attention.shape.proj_widths)),
            *weight_and_bias(f"{name}.attention.out_proj", f"{hf_name}.attention.output.dense"),
            *weight_and_bias(f"{name}.attention_norm", f"{hf_name}.attention.output.LayerNorm", True),
            *weight_and_bias(f"{name}.feedforward.in_proj", f"{hf_name}.intermediate.dense"),
            *weight_and_bias(f"{name}.feedforward.out_proj", f"{hf_name}.output.dense"),
            *weight_and_bias(f"{name}.feedforward_norm", f"{hf_name}.output.LayerNorm", True),
        ]
    if model.pooler is not None:
        table += weight_and_bias("pooler.dense", f"{prefix}pooler.dense")
    if type(model) is models.MaskedLM:
        table += [
            *weight_and_bias("output.head.dense", "cls.predictions.transform.dense"),
            *weight_and_bias("output.head.norm", "cls.predictions.transform.LayerNorm", True),
            same("output.bias", "cls.predictions.bias"),
        ]
        if model.pooler is not None:
            table += weight_and_bias("nsp_head", "cls.seq_relationship")
    return table


def flip_nsp_classes(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Swaps the classes of next-sentence prediction: "is next" is class 0 in `transformers` and 1 here."""
    return {
        name: tensor.flip(0) if name in ("nsp_head.weight", "nsp_head.bias") else tensor
        for name, tensor in weights.items()
    }


class EncoderSizes(NamedTuple):
    """What config.json says of an encoder of either family."""

    transformer: TransformerSizes
    vocabulary: int
    dim: int
    context: int | None


def encoder_sizes(model: models.Encoder, embedding_cls: type[Embedding]) -> EncoderSizes:
    """The sizes of an encoder for BERT or DistilBERT; raises Unsupported with the first difference."""
    out_proj = model.out_proj if isinstance(model, models.MaskedLM) else None
    embedding = require_plain_embedding(model.embedding, out_proj, embedding_cls)
    stack = require_type(model.stack, Transformer, "stack")
    sizes = transformer_sizes(stack, "post", False, LayerNorm, FeedForward)
    require_plain_heads(sizes, stack.dim)
    require(
        type(stack.position) is Learned,
        f"its positions are {type(stack.position).__name__}, not Learned",
    )
    require(type(stack.input_norm) is LayerNorm, "its stack has no norm before the first block")
    epsilons = {require_type(stack.input_norm, LayerNorm, "entry norm").epsilon, sizes.epsilon}
    if isinstance(model, models.MaskedLM):
        is_tied(model.output, embedding, allow_bias=True, expected=True)
        output = require_type(model.output, Output, "output")
        head = output.head
        if head is None or output.bias is None or type(head.norm) is not LayerNorm:
            raise Unsupported("its output does not have BERT's head")
        require(
            ACTIVATION_TO_HF.get(head.activation) == sizes.activation,
            "its head has another activation than its stack",
        )
        epsilons.add(require_type(head.norm, LayerNorm, "head's norm").epsilon)
    require(len(epsilons) == 1, "its norms have different epsilons")
    return EncoderSizes(sizes, len(embedding.table), stack.dim, stack.context)


def bert_config(model: nn.Module) -> dict[str, Any]:
    """The config.json of a model; raises Unsupported if it is not a BERT."""
    model = require_encoder(model)
    sizes = encoder_sizes(model, SegmentEmbedding)
    architecture = "BertModel"
    if type(model) is models.MaskedLM:
        architecture = "BertForPreTraining" if model.pooler else "BertForMaskedLM"
    segments = require_type(model.embedding, SegmentEmbedding, "embedding").segments
    return {
        "architectures": [architecture],
        "model_type": "bert",
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.dim,
        "num_hidden_layers": sizes.transformer.layers,
        "num_attention_heads": sizes.transformer.heads,
        "intermediate_size": sizes.transformer.ffn_dim,
        "hidden_act": sizes.transformer.activation,
        "max_position_embeddings": sizes.context,
        "type_vocab_size": len(segments),
        "layer_norm_eps": sizes.transformer.epsilon,
        "tie_word_embeddings": True,
    }


def distil_tree(hf_config: HFConfig, names: set[str]) -> Tree:
    """The model section of a config for a DistilBERT with this config.json."""
    hf_config.require_value("tie_word_embeddings", True)
    hf_config.require_value("is_causal", False)
    dim = hf_config.count("dim", 768)
    return config_tree(
        dim,
        layers=hf_config.count("n_layers", 6),
        heads=hf_config.count("n_heads", 12),
        ffn_dim=hf_config.count("hidden_dim", 4 * dim),
        length=hf_config.count("max_position_embeddings", 512),
        activation=hf_config.choice("activation", "gelu", ACTIVATION_FROM_HF),
        epsilon=EPSILON,
        dropout=hf_config.number("dropout", 0.1),
        embedding={"type": "Embedding"},
        head="vocab_projector.bias" in names,
    )


def distil_mappings(model: nn.Module, prefix: str) -> list[WeightMapping]:
    """The table of weights of a DistilBERT."""
    model = require_encoder(model)
    table = [
        same("embedding.table", f"{prefix}embeddings.word_embeddings.weight"),
        same("stack.position.table", f"{prefix}embeddings.position_embeddings.weight"),
        *weight_and_bias("stack.input_norm", f"{prefix}embeddings.LayerNorm", True),
    ]
    for layer, block in enumerate(blocks_of(model.stack)):
        name = f"stack.blocks.{layer}"
        hf_name = f"{prefix}transformer.layer.{layer}"
        qkv = [f"{hf_name}.attention.{projection}_lin" for projection in "qkv"]
        table += [
            *stacked(f"{name}.attention.qkv_proj", qkv, tuple(block.attention.shape.proj_widths)),
            *weight_and_bias(f"{name}.attention.out_proj", f"{hf_name}.attention.out_lin"),
            *weight_and_bias(f"{name}.attention_norm", f"{hf_name}.sa_layer_norm", True),
            *weight_and_bias(f"{name}.feedforward.in_proj", f"{hf_name}.ffn.lin1"),
            *weight_and_bias(f"{name}.feedforward.out_proj", f"{hf_name}.ffn.lin2"),
            *weight_and_bias(f"{name}.feedforward_norm", f"{hf_name}.output_layer_norm", True),
        ]
    if type(model) is models.MaskedLM:
        table += [
            *weight_and_bias("output.head.dense", "vocab_transform"),
            *weight_and_bias("output.head.norm", "vocab_layer_norm", True),
            same("output.bias", "vocab_projector.bias"),
        ]
    return table


def distil_config(model: nn.Module) -> dict[str, Any]:
    """The config.json of a model; raises Unsupported if it is not a DistilBERT."""
    model = require_encoder(model)
    sizes = encoder_sizes(model, Embedding)
    require(model.pooler is None, "it has a pooler")
    epsilon = sizes.transformer.epsilon
    require(epsilon == EPSILON, f"its norms have an epsilon of {epsilon}, not {EPSILON}")
    return {
        "architectures": ["DistilBertForMaskedLM" if type(model) is models.MaskedLM else "DistilBertModel"],
        "model_type": "distilbert",
        "vocab_size": sizes.vocabulary,
        "dim": sizes.dim,
        "n_layers": sizes.transformer.layers,
        "n_heads": sizes.transformer.heads,
        "hidden_dim": sizes.transformer.ffn_dim,
        "activation": sizes.transformer.activation,
        "max_position_embeddings": sizes.context,
        "tie_word_embeddings": True,
    }


ROLES = {"pad": "pad_token_id"}
FRAME = ("bos", "eos")
BERT = Family(
    model_type="bert",
    prefix="bert.",
    ignored=r"embeddings\.position_ids|pooler\.dense\.(weight|bias)",
    tied_copies={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    model_tree=bert_tree,
    mappings=bert_mappings,
    hf_config=bert_config,
    roles=ROLES,
    special_frame=FRAME,
    to_hf=flip_nsp_classes,
    from_hf=flip_nsp_classes,
)
DISTILBERT = Family(
    model_type="distilbert",
    prefix="distilbert.",
    ignored=r"embeddings\.position_ids",
    tied_copies={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    model_tree=distil_tree,
    mappings=distil_mappings,
    hf_config=distil_config,
    roles=ROLES,
    special_frame=FRAME,
    aliases={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
)

"""What the families of checkpoints share: the words for functions, and a Transformer looked at from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor, nn

from seqloom import nn as parts
from seqloom.config import Tree
from seqloom.layouts.hf_folder import HFConfig
from seqloom.layouts.mapping import WeightMapping

ACTIVATION_FROM_HF = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
ACTIVATION_TO_HF = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "relu": "relu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}

NONE: Mapping[str, Any] = MappingProxyType({})


class Family(NamedTuple):
    """One kind of checkpoint, both ways."""

    kind: str  # its model_type
    prefix: str  # what may stand before the names of its body
    spare: str  # a pattern of tensors that are not used
    copies: dict[str, str]  # tensors that may stand there a second time → what they must equal
    tree: Callable[
        [HFConfig, set[str]], Tree
    ]  # config.json and the names of the tensors → a model as a config says it
    entries: Callable[
        [nn.Module, str], list[WeightMapping]
    ]  # a model, the prefix → which tensor is which weight
    settings: Callable[
        [nn.Module], dict[str, Any]
    ]  # a model → its config.json, or a ValueError that says why it has none
    roles: dict[str, str]  # our special tokens → the settings that name theirs
    frame: tuple[str, ...] = ()  # the special tokens around a text where its tokenizer.json does not say
    aliases: Mapping[str, str] = NONE  # other names of settings → the usual ones
    computed: Mapping[str, Callable[[nn.Module, int], Tensor]] = (
        NONE  # tensors that may stand there → what their rows must be
    )


class Unsupported(ValueError):
    """A model that this kind of folder cannot hold."""


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise Unsupported(sentence)


class TransformerSizes(NamedTuple):
    """The sizes of a Transformer whose attention is the usual one."""

    layers: int
    heads: int
    groups: int
    key: int
    value: int
    inner: int
    activation: str
    epsilon: float
    bias: bool
    inner_bias: bool


def transformer_sizes(
    stack: nn.Module, order: str, causal: bool, norm: type, forward: type
) -> TransformerSizes:
    """The sizes of a stack that is of the given arrangement; what differs is said."""
    require(type(stack) is parts.Transformer, f"its stack is {type(stack).__name__}, not Transformer")
    block = stack.blocks[0]
    attention, inside = block.attention, block.feedforward
    require(
        block.order == order,
        f"its norms stand {'before' if block.order == 'pre' else 'after'} the parts (order: {block.order}), not {order}",
    )
    require(stack.causal == causal, f"its stack is {'' if stack.causal else 'not '}causal")
    require(type(attention) is parts.SelfAttention, f"its attention is {type(attention).__name__}")
    require(
        type(attention.score) is parts.ScaledDot and type(attention.weights) is parts.Softmax,
        "its attention is not that of scaled products",
    )
    require(attention.rule.window is None, "its attention has a window")
    require(
        type(block.attention_norm) is norm,
        f"its norm is {type(block.attention_norm).__name__}, not {norm.__name__}",
    )
    require(
        type(inside) is forward, f"its feed-forward part is {type(inside).__name__}, not {forward.__name__}"
    )
    function = getattr(inside, "activation", "swish")
    require(function in ACTIVATION_TO_HF, f"its feed-forward part has the function {function}")
    return TransformerSizes(
        len(stack.blocks),
        attention.shape.queries,
        attention.shape.groups,
        attention.shape.key,
        attention.shape.value,
        inside.last.in_features,
        ACTIVATION_TO_HF[function],
        block.attention_norm.epsilon,
        attention.last.bias is not None,
        inside.last.bias is not None,
    )


def require_plain_heads(sizes: TransformerSizes, dim: int) -> None:
    """Heads that all hold keys and values, and share the width among them."""
    require(sizes.groups == sizes.heads, f"its {sizes.heads} heads share {sizes.groups} groups of keys")
    require(
        sizes.key * sizes.heads == dim == sizes.value * sizes.heads,
        f"its heads have keys of {sizes.key} and values of {sizes.value}",
    )


def plain_embedding(model: nn.Module, kinds: Iterable[type] = (parts.Embedding,)) -> None:
    require(type(model.embedding) in tuple(kinds), f"its embedding is {type(model.embedding).__name__}")
    require(getattr(model, "back", None) is None, "its stack has another width than its embedding")


def plain_output(model: nn.Module, bias: bool, tied: bool | None = None) -> bool:
    """Whether the output is the embedding's own table."""
    output = model.output
    require(type(output) is parts.Output, f"its output is {type(output).__name__}")
    require(bias or output.bias is None, "its output has a bias")
    shared = output.table is model.embedding.table
    require(tied is None or shared == tied, f"its output is {'' if shared else 'not '}tied to the embedding")
    return shared

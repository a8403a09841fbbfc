"""What the families share: the mapping between our weight names and theirs, read both ways; activation names; the `Family` record; checks
of a Transformer's arrangement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from seqloom.config_tree import Tree
from seqloom.errors import DataError
from seqloom.layouts.hf_folder import HFConfig
from seqloom.nn.attention import SelfAttention
from seqloom.nn.attention_core import ScaledDot, Softmax
from seqloom.nn.basic import FeedForward, LayerNorm, RMSNorm, SwiGLU
from seqloom.nn.embedding import Embedding, Output
from seqloom.nn.transformer import Transformer

if TYPE_CHECKING:
    from seqloom.nn.transformer import Block

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
T = TypeVar("T")
E = TypeVar("E", bound="Embedding")


def unchanged(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a family that stores them as we do, apart from their names."""
    return dict(weights)


class Family(NamedTuple):
    """One kind of checkpoint, for reading and writing.

    `to_hf` changes our weights, under our names, to the form that `mappings` describes, and `from_hf` back.
    """

    model_type: str  # as in config.json
    prefix: str  # optional prefix of the tensor names of the model's body
    ignored: str  # regular expression of tensors that are not used
    tied_copies: dict[str, str]  # tensors that may be stored a second time → the tensor they must equal
    model_tree: Callable[[HFConfig, set[str]], Tree]  # config.json, tensor names → model section of a config
    mappings: Callable[[nn.Module, str], list[WeightMapping]]  # model, prefix → the table of its weights
    hf_config: Callable[[nn.Module], dict[str, Any]]  # model → config.json; raises Unsupported if it has none
    roles: dict[str, str]  # our special tokens → the keys of config.json that hold their ids
    special_frame: tuple[str, ...] = ()  # special tokens around a text, if tokenizer.json has no template
    aliases: Mapping[str, str] = NONE  # alternative keys of config.json → the usual keys
    computed: Mapping[str, Callable[[nn.Module, int], Tensor]] = NONE  # tensors that we compute → their rows
    to_hf: Callable[[nn.Module, Mapping[str, Tensor]], dict[str, Tensor]] = unchanged
    from_hf: Callable[[nn.Module, Mapping[str, Tensor]], dict[str, Tensor]] = unchanged
    input_files: Callable[[nn.Module], dict[str, str]] | None = None  # what is written instead of a tokenizer


class Unsupported(DataError):
    """A model that this kind of folder cannot hold."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Unsupported(message)


def require_type(part: object, cls: type[T], name: str) -> T:
    """The part, if its class is exactly `cls`: a subclass may compute something else."""
    if type(part) is not cls:
        raise Unsupported(f"its {name} is {type(part).__name__}, not {cls.__name__}")
    return part


class TransformerSizes(NamedTuple):
    """The sizes of a Transformer with ordinary attention."""

    layers: int
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    ffn_dim: int
    activation: str
    epsilon: float
    bias: bool
    ffn_bias: bool


def blocks_of(stack: nn.Module) -> list[Block]:
    """The blocks of a Transformer."""
    from seqloom.nn.transformer import Block

    stack = require_type(stack, Transformer, "stack")
    return [require_type(block, Block, "block") for block in stack.blocks]


def transformer_sizes(
    stack: Transformer,
    order: str,
    causal: bool,
    norm_cls: type[LayerNorm] | type[RMSNorm],
    ffn_cls: type[FeedForward] | type[SwiGLU],
) -> TransformerSizes:
    """The sizes of a stack that has the given arrangement; raises Unsupported with the first difference."""
    blocks = blocks_of(stack)
    block = blocks[0]
    attention = require_type(block.attention, SelfAttention, "attention")
    require(
        block.order == order,
        f"its norms come {'before' if block.order == 'pre' else 'after'} the sublayers "
        f"(order: {block.order}), not {order}",
    )
    require(stack.causal == causal, f"its stack is {'' if stack.causal else 'not '}causal")
    require(
        type(attention.score) is ScaledDot and type(attention.weights) is Softmax,
        "its attention is not scaled dot-product attention",
    )
    require(attention.visibility_rule.window is None, "its attention has a window")
    require(
        all(one.attention.shape == attention.shape for one in blocks)
        and all(one.cross is None or one.cross.shape.heads == attention.shape.heads for one in blocks),
        "its layers have different numbers of heads",
    )
    norm: LayerNorm | RMSNorm = require_type(block.attention_norm, norm_cls, "norm")
    ffn: FeedForward | SwiGLU = require_type(block.feedforward, ffn_cls, "feed-forward part")
    activation = ffn.activation if isinstance(ffn, FeedForward) else "swish"
    require(activation in ACTIVATION_TO_HF, f"its feed-forward part has the activation {activation}")
    return TransformerSizes(
        layers=len(blocks),
        heads=attention.shape.heads,
        kv_heads=attention.shape.kv_heads,
        key_dim=attention.shape.key_dim,
        value_dim=attention.shape.value_dim,
        ffn_dim=ffn.out_proj.in_features,
        activation=ACTIVATION_TO_HF[activation],
        epsilon=norm.epsilon,
        bias=attention.out_proj.bias is not None,
        ffn_bias=ffn.out_proj.bias is not None,
    )


def require_plain_heads(sizes: TransformerSizes, dim: int) -> None:
    """Requires that every head has its own keys and values, of size dim / heads."""
    require(
        sizes.kv_heads == sizes.heads,
        f"its {sizes.heads} heads share {sizes.kv_heads} heads of keys and values",
    )
    require(
        sizes.key_dim * sizes.heads == dim == sizes.value_dim * sizes.heads,
        f"its heads have keys of {sizes.key_dim} and values of {sizes.value_dim}",
    )


def require_plain_embedding(
    embedding: nn.Module, out_proj: nn.Module | None, cls: type[E], scaled: bool = False
) -> E:
    """The embedding, if it is of class `cls` and the stack has its width."""
    require(type(embedding) is cls, f"its embedding is {type(embedding).__name__}")
    table = require_type(embedding, cls, "embedding")
    require(out_proj is None, "its stack has another width than its embedding")
    require(scaled or table.factor == 1, "its embedding is scaled")
    return table


def is_tied(output: nn.Module, embedding: Embedding, allow_bias: bool, expected: bool | None = None) -> bool:
    """Whether the output layer uses the embedding's table; raises Unsupported if it is not as `expected`."""
    output = require_type(output, Output, "output")
    require(allow_bias or output.bias is None, "its output has a bias")
    tied = output.table is embedding.table
    require(
        expected is None or tied == expected, f"its output is {'' if tied else 'not '}tied to the embedding"
    )
    return tied


Shapes = Mapping[str, tuple[int, ...]]
Layout = Literal["same", "transposed", "row"]


class WeightMapping(NamedTuple):
    """Our weight `name` is the tensor `hf_names[0]`, or several concatenated along axis 0, `rows` of each.

    `layout` is how the other library stores the tensor: as we do ("same"), "transposed", or as a "row" (1,
    …). `default` fills the tensor when we write and have no such weight, and, if the tensor is `optional`,
    fills the weight when we read and the tensor is missing.
    """

    name: str
    hf_names: tuple[str, ...]
    rows: tuple[int, ...] = ()
    layout: Layout = "same"
    default: float | None = None
    optional: bool = False

    def expected_shapes(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The shapes of the tensors `hf_names` for a weight of the given shape."""
        parts = [(rows, *shape[1:]) for rows in self.rows or shape[:1]]
        if self.layout == "transposed":
            return [part[::-1] for part in parts]
        if self.layout == "row":
            return [(1, *part) for part in parts]
        return parts

    def from_hf(self, tensor: Tensor) -> Tensor:
        """The tensor in our layout."""
        if self.layout == "transposed":
            return tensor.T
        return tensor[0] if self.layout == "row" else tensor

    def to_hf(self, tensor: Tensor) -> Tensor:
        """The tensor in the layout of the other library."""
        if self.layout == "transposed":
            return tensor.T
        return tensor[None] if self.layout == "row" else tensor


def same(name: str, hf_name: str) -> WeightMapping:
    """One tensor, stored as ours."""
    return WeightMapping(name, (hf_name,))


def weight_and_bias(name: str, hf_name: str, norm: bool = False) -> list[WeightMapping]:
    """Weight and bias of a linear layer or of a norm. The other library always has both."""
    if norm:
        weight = WeightMapping(f"{name}.gain", (f"{hf_name}.weight",), default=1.0)
    else:
        weight = same(f"{name}.weight", f"{hf_name}.weight")
    return [weight, WeightMapping(f"{name}.bias", (f"{hf_name}.bias",), default=0.0)]


def stacked(
    name: str, hf_names: Iterable[str], rows: tuple[int, ...], bias: bool = True
) -> list[WeightMapping]:
    """Several linear layers of the other library that are one linear layer of ours."""
    hf_names = tuple(hf_names)
    weights = tuple(f"{hf_name}.weight" for hf_name in hf_names)
    mappings = [WeightMapping(f"{name}.weight", weights, rows)]
    if bias:
        biases = tuple(f"{hf_name}.bias" for hf_name in hf_names)
        mappings.append(WeightMapping(f"{name}.bias", biases, rows, default=0.0))
    return mappings


def check(mappings: Iterable[WeightMapping], shapes: Shapes, hf_shapes: Shapes, source: str) -> None:
    """Checks that every weight has its tensors, every tensor its weight, and that all shapes agree.

    Raises a ValueError that names the first weight or tensor that does not fit.
    """
    used: set[str] = set()
    mappings = list(mappings)
    for missing in sorted(set(shapes) - {mapping.name for mapping in mappings}):
        raise DataError(
            f"{source}: no tensor in the file holds the model's {missing}; "
            "its config.json describes another model"
        )
    for mapping in mappings:
        if mapping.name not in shapes:
            continue
        expected = mapping.expected_shapes(shapes[mapping.name])
        for hf_name, shape in zip(mapping.hf_names, expected, strict=True):
            if hf_name not in hf_shapes:
                if mapping.optional:
                    continue
                raise DataError(f"{source}: the tensor {hf_name} is missing; get the whole checkpoint again")
            if hf_shapes[hf_name] != shape:
                raise DataError(
                    f"{source}: {hf_name} has shape {hf_shapes[hf_name]}, but config.json means {shape}; "
                    "the two do not belong together"
                )
            used.add(hf_name)
    for extra in sorted(set(hf_shapes) - used):
        raise DataError(
            f"{source}: the tensor {extra} has no place in this kind of model; "
            "the weights are not those of its config.json"
        )


def read(
    mappings: Iterable[WeightMapping], shapes: Shapes, get: Callable[[str], Tensor | None]
) -> dict[str, Tensor]:
    """Our weights from the tensors of the other library; `get` returns a tensor by name, or None."""
    weights: dict[str, Tensor] = {}
    for mapping in mappings:
        if mapping.name not in shapes:
            continue
        parts = []
        expected = mapping.expected_shapes(shapes[mapping.name])
        for hf_name, shape in zip(mapping.hf_names, expected, strict=True):
            tensor = get(hf_name)
            if tensor is None:
                tensor = torch.full(shape, mapping.default or 0.0)
            else:
                tensor = tensor.to(torch.float32)
            if not tensor.isfinite().all():
                raise DataError(
                    f"the tensor {hf_name} holds NaN or infinity: its weights have diverged or are damaged; "
                    "get another checkpoint"
                )
            parts.append(mapping.from_hf(tensor))
        weight = torch.cat(parts) if len(parts) > 1 else parts[0]
        weights[mapping.name] = weight.contiguous()
    return weights


def write(
    mappings: Iterable[WeightMapping], weights: Mapping[str, Tensor], missing_shapes: Shapes
) -> dict[str, Tensor]:
    """The tensors of the other library; `missing_shapes` are those of weights that we do not have."""
    tensors: dict[str, Tensor] = {}
    for mapping in mappings:
        weight = weights.get(mapping.name)
        if weight is None:
            if mapping.default is None:
                raise DataError(f"the run has no weight {mapping.name}, which such a folder needs")
            weight = torch.full(missing_shapes[mapping.name], mapping.default)
        parts = weight.split(list(mapping.rows)) if mapping.rows else [weight]
        for hf_name, part in zip(mapping.hf_names, parts, strict=True):
            tensors[hf_name] = mapping.to_hf(part).contiguous()
    return tensors

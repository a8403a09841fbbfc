"""The Transformer: blocks of attention and feed-forward on a residual path, with one position scheme for all
blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import ClassVar, Literal, cast

from torch import Tensor, nn

from seqloom.nn.attention import SelfAttention
from seqloom.nn.attention_core import ScaledDot, Score, Visibility
from seqloom.nn.basic import FFN, Dropout, FeedForward, LayerNorm, Norm
from seqloom.nn.cross_attention import CrossAttention
from seqloom.nn.layer import Factory, Layer, Memory, Point, Points, State, record, require
from seqloom.nn.position import Position, Sinusoidal


class Block(Layer):
    """pre:  x ← x + f(norm(x));   post:  x ← norm(x + f(x))   for f = self-attention, cross-attention if
    there is a memory, feed-forward   [G1, G2, G3, D-18]
    """

    points: ClassVar[Points] = {
        "after_attention": Point("x", "BTD"),
        "after_cross": Point("x", "BTD"),
        "": Point("x", "BTD"),
    }

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention | None,
        feedforward: FFN,
        norm: Factory[Norm],
        order: Literal["pre", "post"],
        dropout: float,
    ):
        super().__init__()
        self.dim = attention.dim
        self.causal = attention.causal
        self.order = order
        self.attention = attention
        self.cross = cross
        self.feedforward = feedforward
        self.attention_norm = norm(self.dim)
        self.feedforward_norm = norm(self.dim)
        self.cross_norm = norm(self.dim) if cross else None
        self.dropout = Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return self.attention.start(batch), self.cross.start(batch, memory) if self.cross else None

    def forward(
        self, x: Tensor, state: State = None, mask: Tensor | None = None, visibility: Visibility | None = None
    ) -> tuple[Tensor, State]:
        cache, cross_state = state or self.start(x.shape[0])
        pre = self.order == "pre"
        y, cache = self.attention(self.attention_norm(x) if pre else x, cache, mask, visibility)
        x = record(self, "after_attention", self.add(x, y, self.attention_norm))
        if self.cross is not None and self.cross_norm is not None:
            y, cross_state = self.cross(self.cross_norm(x) if pre else x, cross_state, mask)
            x = record(self, "after_cross", self.add(x, y, self.cross_norm))
        y = self.feedforward(self.feedforward_norm(x) if pre else x, mask)
        return record(self, "", self.add(x, y, self.feedforward_norm)), (cache, cross_state)

    def add(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """Adds a sub-layer's output to the residual path; a post-norm block then normalises the sum."""
        x = x + self.dropout(y)
        return x if self.order == "pre" else norm(x)


_resumed: ContextVar[Mapping[int, tuple[int, Tensor]]] = ContextVar("resumed", default=MappingProxyType({}))


@contextmanager
def resume(stack: Transformer, first: int, x: Tensor) -> Iterator[None]:
    """Inside, the stack does not compute its blocks before `first`: x (B, T, D) is the input of that block. For
    inspection, which changes one block and knows the values before it.
    """
    token = _resumed.set({**_resumed.get(), id(stack): (first, x)})
    try:
        yield
    finally:
        _resumed.reset(token)


def heads_by_layer(heads: int | list[int], layers: int) -> list[int]:
    """The number of heads of each layer."""
    found = heads if isinstance(heads, list) else [heads] * layers
    require(
        len(found) == layers and min(found) > 0,
        f"heads are {found}: give one number above 0 for each of the {layers} layers",
    )
    return found


class Transformer(Layer):
    """Positions, then `layers` blocks, then a final norm if the blocks are pre-norm. With a memory it is a
    decoder, without causality an encoder. `attention` and `cross` take options such as `window`, `kv_heads`
    and `key_dim`. `input_norm` normalises the input of the first block, positions included (BERT). `heads` may
    be a list, one number for each layer, and so may `cross_heads`, which is `heads` by default: the sizes of
    heads are then those of `key_dim` and `value_dim` (a model whose heads were pruned).

    Weights are initialised from N(0, 0.02²), those of an `out_proj`, which feed the residual path, from N(0,
    0.02²/2L).
    """

    points: ClassVar[Points] = {"input": Point("x", "BTD")}

    def __init__(
        self,
        size: int,
        layers: int = 6,
        heads: int | list[int] = 8,
        position: Factory[Position] = Sinusoidal,
        norm: Factory[Norm] = LayerNorm,
        order: Literal["pre", "post"] = "pre",
        feedforward: Factory[FFN] = FeedForward,
        score: Factory[Score] = ScaledDot,
        causal: bool = True,
        bias: bool = True,
        dropout: float = 0.0,
        memory: int | None = None,
        attention: Factory[SelfAttention] = SelfAttention,
        cross: Factory[CrossAttention] = CrossAttention,
        input_norm: Factory[Norm] | None = None,
        cross_heads: int | list[int] | None = None,
    ):
        super().__init__()
        require(layers > 0, f"a Transformer needs at least one layer, not {layers}")
        require(
            isinstance(heads, list) or (heads > 0 and size % heads == 0),
            f"size {size} cannot be divided into {heads} heads: choose heads that divide it",
        )
        by_layer = heads_by_layer(heads, layers)
        cross_by_layer = by_layer if cross_heads is None else heads_by_layer(cross_heads, layers)
        self.position = position(size, max(by_layer))
        require(
            type(self.position).bias is Position.bias or len(set(by_layer)) == 1,
            f"{type(self.position).__name__} has a bias for each head, so all layers need the same number of heads",
        )
        self.dim = self.position.dim
        self.causal = causal
        self.context = self.position.context
        self.depth = layers
        self.blocks = nn.ModuleList(
            Block(
                attention(self.dim, by_layer[layer], score, self.position, causal, bias),
                cross(self.dim, memory, cross_by_layer[layer], score, bias) if memory else None,
                feedforward(self.dim),
                norm,
                order,
                dropout,
            )
            for layer in range(layers)
        )
        self.input_norm = None if input_norm is None else input_norm(self.dim)
        self.norm = norm(self.dim) if order == "pre" else None
        self.dropout = Dropout(dropout)
        for name, weight in self.named_parameters():
            if weight.dim() == 2 and "position" not in name:
                std = 0.02 / math.sqrt(2 * layers) if name.endswith("out_proj.weight") else 0.02
                nn.init.normal_(weight, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def typed_blocks(self) -> list[Block]:
        """The blocks; nn.ModuleList does not know the type of its items."""
        return cast("list[Block]", list(self.blocks))

    def start(self, batch: int, memory: Memory | None = None) -> tuple[State, ...]:
        return tuple(block.start(batch, memory) for block in self.typed_blocks())

    def forward(
        self,
        x: Tensor,
        state: tuple[State, ...] | None = None,
        mask: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> tuple[Tensor, tuple[State, ...]]:
        """`visible` (…, T, S) hides more keys than causality and padding do, in all layers."""
        return self.run(x, state, mask, visible)

    def hidden_states(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """The outputs of each block; the last is y, after the final norm."""
        outputs: list[Tensor] = []
        y, state = self.run(x, state, mask, None, outputs)
        return [*outputs[:-1], y], state

    def run(
        self,
        x: Tensor,
        state: State,
        mask: Tensor | None,
        visible: Tensor | None,
        hidden_states: list[Tensor] | None = None,
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Appends each block's output to `hidden_states` if it is given."""
        blocks = self.typed_blocks()
        state = state or self.start(x.shape[0])
        visibility = blocks[0].attention.visibility(x, state[0][0], mask, visible)
        x = self.position.embed(x, visibility.positions)
        x = self.dropout(x if self.input_norm is None else self.input_norm(x))
        x = record(self, "input", x)
        first, x = _resumed.get().get(id(self), (0, x))
        if x.shape[1] == 1 and mask is None and hidden_states is None and not first:
            from seqloom.nn.decode import decode_step

            result = decode_step(blocks, x, state, visibility)
            if result is not None:
                y, new_state = result
                return y if self.norm is None else self.norm(y), new_state
        block_states = list(state[:first])
        for block, block_state in zip(blocks[first:], state[first:], strict=True):
            x, block_state = block(x, block_state, mask, visibility)
            block_states.append(block_state)
            if hidden_states is not None:
                hidden_states.append(x)
        return x if self.norm is None else self.norm(x), tuple(block_states)

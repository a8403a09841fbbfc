"""Attention layers: the projections and heads around `attention_core.attend`."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.nn.attention_core import (
    AttentionWeights,
    ScaledDot,
    Score,
    Softmax,
    Visibility,
    VisibilityRule,
    can_use_sdpa,
)
from seqloom.nn.basic import Linear
from seqloom.nn.kv_cache import CrossKV, KVCache
from seqloom.nn.layer import Factory, Layer, Memo, Memory, Point, Points, record, require
from seqloom.nn.position import NoPosition, Position

HEAD_POINTS = {
    "q": Point("W_Q x", "BHTK"),
    "k": Point("W_K x", "BGSK"),
    "v": Point("W_V x", "BGSV"),
    "head": Point("head", "BHTV"),
    "": Point("y", "BTD"),
}


class HeadSizes(NamedTuple):
    """Query heads (H), key and value heads (G), the size of a query and key (K) and of a value (K')."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int

    @classmethod
    def create(
        cls,
        size: int,
        heads: int,
        kv_heads: int | None,
        key_dim: int | None,
        value_dim: int | None = None,
    ) -> HeadSizes:
        sized = key_dim is not None and value_dim is not None
        require(
            heads > 0 and (sized or size % heads == 0),
            f"size {size} cannot be divided into {heads} heads: choose heads that divide it",
        )
        kv_heads = heads if kv_heads is None else kv_heads
        require(
            kv_heads > 0 and heads % kv_heads == 0,
            f"{heads} heads cannot share {kv_heads} key and value heads: choose kv_heads that divide the heads",
        )
        require(key_dim is None or key_dim > 0, f"key_dim must be at least 1, not {key_dim}")
        require(value_dim is None or value_dim > 0, f"value_dim must be at least 1, not {value_dim}")
        return cls(heads, kv_heads, key_dim or size // heads, value_dim or size // heads)

    @property
    def proj_widths(self) -> list[int]:
        """The widths of all queries, of all keys and of all values."""
        return [self.heads * self.key_dim, self.kv_heads * self.key_dim, self.kv_heads * self.value_dim]


class SelfAttention(Layer):
    """y = W_O [head₁; …; head_H],   head = attend(W_Q x, W_K x, W_V x)   [F10, F12]

    Causal heads see their own position and those before it [F13, D-21], other heads the full sequence; a
    `window` of w limits both to positions less than w away. Rotary positions rotate q and k, ALiBi adds a
    bias to the scores. `key_dim` is the size of a head's query and key [G6], `value_dim` of its value;
    `kv_heads` key and value heads are shared by all query heads, and 1 is multi-query attention.
    """

    points: ClassVar[Points] = HEAD_POINTS

    def __init__(
        self,
        size: int,
        heads: int = 8,
        score: Factory[Score] = ScaledDot,
        position: Position | None = None,
        causal: bool = True,
        bias: bool = True,
        key_dim: int | None = None,
        kv_heads: int | None = None,
        window: int | None = None,
        weights: Factory[AttentionWeights] = Softmax,
        value_dim: int | None = None,
    ):
        super().__init__()
        self.heads = heads
        self.shape = HeadSizes.create(size, heads, kv_heads, key_dim, value_dim)
        require(window is None or window > 0, f"window must be at least 1, not {window}")
        self.dim = size
        self.causal = causal
        self.qkv_proj = Linear(size, sum(self.shape.proj_widths), bias)
        self.score = score(self.shape.key_dim)
        self.weights = weights()
        self.position = position or NoPosition(size, heads)
        self.position.check_head_dim(self.shape.key_dim)
        self.out_proj = Linear(heads * self.shape.value_dim, size, bias)
        self.visibility_rule = VisibilityRule(self.position, causal, window, Memo())

    def start(self, batch: int, memory: Memory | None = None) -> KVCache:
        tensors = (*self.out_proj.parameters(), *self.out_proj.buffers())
        like = next(tensor for tensor in tensors if tensor.is_floating_point())
        _, kv_heads, key_dim, value_dim = self.shape
        keys = like.new_empty(batch, kv_heads, 0, key_dim)
        values = like.new_empty(batch, kv_heads, 0, value_dim)
        return KVCache.create(keys, values, None)

    def visibility(
        self,
        x: Tensor,
        state: KVCache | None = None,
        mask: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> Visibility:
        """Which keys x sees. `visible` (…, T, S) hides more keys, such as those of other documents in the
        same row.
        """
        past_length, past_mask = (0, None) if state is None else (state.length, state.mask)
        fused = can_use_sdpa(self.score, self.weights)
        return self.visibility_rule.build(x, past_length, past_mask, mask, visible, fused)

    def forward(
        self,
        x: Tensor,
        state: KVCache | None = None,
        mask: Tensor | None = None,
        visibility: Visibility | None = None,
    ) -> tuple[Tensor, KVCache]:
        y, _, state = self.forward_with_weights(x, state, mask, visibility)
        return y, state

    def forward_with_weights(
        self,
        x: Tensor,
        state: KVCache | None = None,
        mask: Tensor | None = None,
        visibility: Visibility | None = None,
    ) -> tuple[Tensor, Tensor | None, KVCache]:
        """The outputs, the weights (B, H, T, S) if the plain form is used, and the state. A stack passes one
        `visibility` to all its layers.
        """
        visibility = visibility or self.visibility(x, state, mask)
        # (B, H, T, K), (B, G, T, K), (B, G, T, K')
        heads = zip("qkv", self.split_heads(x, visibility), strict=True)
        q, k, v = (record(self, name, head.transpose(1, 2)) for name, head in heads)
        state = (state or self.start(x.shape[0])).append(k, v, visibility.key_mask)
        y, weights = state.attend(visibility.plan, q, self.score, self.weights)
        y = record(self, "head", y)
        return record(self, "", self.out_proj(y.transpose(1, 2).flatten(2))), weights, state

    def split_heads(self, x: Tensor, visibility: Visibility) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, T, H, K), keys (B, T, G, K) and values (B, T, G, K'). Queries and keys are rotated in
        one pass.
        """
        heads, kv_heads, key_dim, value_dim = self.shape
        batch, length, _ = x.shape
        q_width, k_width, v_width = self.shape.proj_widths
        if self.position.rotates:
            qk, v = self.qkv_proj(x).split_with_sizes([q_width + k_width, v_width], -1)
            qk = qk.view(batch, length, heads + kv_heads, key_dim)
            q, k = self.position.rotate(qk, visibility.positions).split_with_sizes([heads, kv_heads], 2)
        else:
            q, k, v = self.qkv_proj(x).split_with_sizes([q_width, k_width, v_width], -1)
            q = q.view(batch, length, heads, key_dim)
            k = k.view(batch, length, kv_heads, key_dim)
        return q, k, v.view(batch, length, kv_heads, value_dim)


class CrossAttention(Layer):
    """y = W_O [head₁; …; head_H],   head = attend(W_Q x, W_K m, W_V m) over the memory m   [F11]

    `key_dim`, `kv_heads` and `value_dim` are those of SelfAttention.
    """

    points: ClassVar[Points] = HEAD_POINTS
    reads_memory = True

    def __init__(
        self,
        size: int,
        memory: int,
        heads: int = 8,
        score: Factory[Score] = ScaledDot,
        bias: bool = True,
        key_dim: int | None = None,
        kv_heads: int | None = None,
        weights: Factory[AttentionWeights] = Softmax,
        value_dim: int | None = None,
    ):
        super().__init__()
        self.dim = size
        self.heads = heads
        self.shape = HeadSizes.create(size, heads, kv_heads, key_dim, value_dim)
        q_width, k_width, v_width = self.shape.proj_widths
        self.q_proj = Linear(size, q_width, bias)
        self.kv_proj = Linear(memory, k_width + v_width, bias)
        self.score = score(self.shape.key_dim)
        self.weights = weights()
        self.out_proj = Linear(heads * self.shape.value_dim, size, bias)

    def start(self, batch: int, memory: Memory | None = None) -> CrossKV:
        if memory is None:
            raise ConfigError("cross-attention needs a memory: start it with the encoder's outputs")
        projections = self.kv_proj(memory.values).split(self.shape.proj_widths[1:], -1)
        # (B, G, S, K), (B, G, S, K')
        k, v = (x.unflatten(-1, (self.shape.kv_heads, -1)).transpose(1, 2) for x in projections)
        k = record(self, "k", k)
        v = record(self, "v", v)
        if not torch.is_grad_enabled():
            # decoding reads each head's keys at every step
            k = k.contiguous()
            v = v.contiguous()
        return CrossKV(k, v, None if memory.mask is None else memory.mask[:, None, None])

    def forward(
        self, x: Tensor, state: CrossKV | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, CrossKV]:
        y, _, state = self.forward_with_weights(x, state, mask)
        return y, state

    def forward_with_weights(
        self, x: Tensor, state: CrossKV | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, CrossKV]:
        """The outputs, the weights (B, H, T, S) if the plain form is used, and the state, which `start` makes
        from the memory.
        """
        batch, length, _ = x.shape
        if state is None:
            state = self.start(batch)
        q = (
            self.q_proj(x).view(batch, length, self.shape.heads, self.shape.key_dim).transpose(1, 2)
        )  # (B, H, T, K)
        y, weights = state.attend(record(self, "q", q), self.score, self.weights)
        y = record(self, "head", y)
        return record(self, "", self.out_proj(y.transpose(1, 2).flatten(2))), weights, state

"""Self-attention: the projections and heads around `attention_core.attend`, and its state, the keys and values of the positions so far
(`KVCache`).

The cache is not copied when a beam search selects rows: it keeps a table that says in which row of the buffers each position of a row is
stored, and the kernel for one query per row reads it there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from seqloom.fused.decode_attention import decode_attention, readable_in_place
from seqloom.nn.attention_core import (
    AttentionPlan,
    AttentionWeights,
    ScaledDot,
    Score,
    Softmax,
    Visibility,
    VisibilityRule,
    can_use_sdpa,
    run_plan,
)
from seqloom.nn.basic import Linear
from seqloom.nn.layer import (
    Factory,
    Layer,
    Memo,
    Memory,
    Point,
    Points,
    RowSelection,
    StateNode,
    map_state,
    record,
    require,
)
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


class KVCache(StateNode):
    """Keys (B, G, S, K) and values (B, G, S, K') of the positions so far, in buffers with spare capacity, and
    the mask of real tokens (B, S).

    Appending writes into the buffers if this cache is the newest of its history, and copies them otherwise,
    so that two continuations of one state never overwrite each other. Under autograd it always copies. With a
    `row_table` (B, at least S), position s of row b is stored in row row_table[b, s] of the buffers.
    `program` is the compiled decoding step of all layers, stored in the first layer's cache (decode.py).
    """

    program: Any = None

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        length: int,
        used: list[int],
        row_table: Tensor | None = None,
    ):
        self.key_buffer = keys
        self.value_buffer = values
        self.mask = mask
        self.length = length
        # one number, shared by all caches of these buffers: how many positions have been written
        self.used = used
        self.row_table = row_table

    @classmethod
    def create(cls, keys: Tensor, values: Tensor, mask: Tensor | None) -> KVCache:
        """A cache whose buffers have no spare capacity."""
        return cls(keys, values, mask, keys.shape[2], [keys.shape[2]])

    @property
    def keys(self) -> Tensor:
        return self.gather(self.key_buffer)

    @property
    def values(self) -> Tensor:
        return self.gather(self.value_buffer)

    def gather(self, buffer: Tensor) -> Tensor:
        """The used part of a buffer, in the order of the rows: (B, G, S, K)."""
        if self.row_table is None:
            return buffer[:, :, : self.length]
        positions = torch.arange(self.length, device=buffer.device)
        gathered = buffer[self.row_table[:, : self.length].long(), :, positions]  # (B, S, G, K)
        return gathered.transpose(1, 2)

    def append(self, k: Tensor, v: Tensor, mask: Tensor | None) -> KVCache:
        """The cache with T further positions; `mask` covers old and new ones, (B, S + T), None if all are
        real.
        """
        if not self.length:
            return KVCache.create(k, v, mask)
        if torch.is_grad_enabled():
            return KVCache.create(torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2), mask)
        new = self.reserve(k.shape[2], k.shape[0], mask)
        if k.shape[2]:  # even an empty write would invalidate an autograd graph that reads the buffer
            new.key_buffer[: len(k), :, self.length : new.length] = k
            new.value_buffer[: len(v), :, self.length : new.length] = v
        return new

    def reserve(self, more: int, rows: int, mask: Tensor | None) -> KVCache:
        """The cache with `more` further positions, which the caller writes."""
        end = self.length + more
        keys = self.key_buffer
        values = self.value_buffer
        used = self.used
        row_table = self.row_table
        is_read_only = keys.is_inference() and not torch.is_inference_mode_enabled()
        if more and (used[0] != self.length or end > keys.shape[2] or is_read_only):
            keys = grow(keys, self.length, end, rows)
            values = grow(values, self.length, end, rows)
            used = [self.length]
            if row_table is not None:
                row_table = extend_table(row_table, self.length, keys.shape[2])
        used[0] = max(used[0], end)
        return KVCache(keys, values, mask, end, used, row_table)

    def attend(
        self, plan: AttentionPlan, q: Tensor, score: Score, weights: AttentionWeights
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from the queries (B, H, T, K): the outputs (B, H, T, K'), and the weights if the plan
        computes them.
        """
        visible = plan.single_query(self.length) if q.shape[2] == 1 else None
        if visible is not None:
            query = score.project_query(q)
            y = decode_attention(
                query, self.key_buffer, self.value_buffer, score.scale, visible, self.row_table, False
            )
            if y is not None:
                return y, None
        return run_plan(plan, q, self.keys, self.values, score, weights)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> KVCache:
        if isinstance(change, RowSelection) and self.length and readable_in_place(self.key_buffer):
            return self.select_rows(change)
        return KVCache.create(change(self.keys), change(self.values), map_state(change, self.mask))

    def select_rows(self, rows: RowSelection) -> KVCache:
        """The given rows. For the positions so far only the table changes; a later position of row b is
        stored in row b.
        """
        keys = self.key_buffer
        values = self.value_buffer
        used = self.used
        length = self.length
        count = len(rows.rows)
        if count > len(keys):
            keys = grow(keys, length, length + 1, count)
            values = grow(values, length, length + 1, count)
            used = [length]
        capacity = keys.shape[2]

        def make_table() -> Tensor:
            if self.row_table is None:
                table = rows.rows[:, None].int().expand(-1, length)
            else:
                table = self.row_table[rows.rows, :length]
            return extend_table(table, length, capacity)

        row_table = rows.cached(self.row_table, (capacity, length), make_table)
        mask = self.mask
        if mask is not None:
            mask = rows.cached(mask, "mask", partial(rows, mask))
        new = KVCache(keys, values, mask, length, used, row_table)
        new.program = self.program
        return new


def grow(buffer: Tensor, length: int, end: int, rows: int) -> Tensor:
    """A copy of the first `length` positions in a buffer of at least `rows` rows and about 1.5 `end`
    positions.
    """
    old_rows, heads, _, dim = buffer.shape
    new = buffer.new_empty(max(rows, old_rows), heads, end + max(32, end // 2), dim)
    new[:old_rows, :, :length] = buffer[:, :, :length]
    return new


def extend_table(table: Tensor, length: int, capacity: int) -> Tensor:
    """The table for `capacity` positions: row b stores its positions after the first `length` in row b."""
    row_index = torch.arange(len(table), dtype=torch.int32, device=table.device)[:, None]
    return torch.cat([table[:, :length], row_index.expand(-1, capacity - length)], 1)

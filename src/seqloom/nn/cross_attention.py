"""Attention to an encoder's outputs, and its state: their keys and values, computed once (`CrossKV`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.fused.decode_attention import decode_attention, readable_in_place
from seqloom.nn.attention import HEAD_POINTS, HeadSizes
from seqloom.nn.attention_core import AttentionWeights, ScaledDot, Score, Softmax, attend
from seqloom.nn.basic import Linear
from seqloom.nn.layer import Factory, Layer, Memory, Points, RowSelection, StateNode, map_state, record


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


class CrossKV(StateNode):
    """Keys (N, G, S, K) and values (N, G, S, K') of a memory, computed once, and the mask of visible
    ones (N, 1, 1, S).

    Row b attends to row rows[b] of them, so that the beams of a sentence share its memory.
    """

    def __init__(self, keys: Tensor, values: Tensor, visible: Tensor | None, rows: Tensor | None = None):
        self.key_buffer = keys
        self.value_buffer = values
        self.visible_buffer = visible
        self.rows = rows

    def gather(self, buffer: Tensor) -> Tensor:
        """A buffer in the order of the rows: (B, …)."""
        return buffer if self.rows is None else buffer.index_select(0, self.rows)

    @property
    def keys(self) -> Tensor:
        return self.gather(self.key_buffer)

    @property
    def values(self) -> Tensor:
        return self.gather(self.value_buffer)

    @property
    def visible(self) -> Tensor | None:
        return None if self.visible_buffer is None else self.gather(self.visible_buffer)

    def row_table(self) -> Tensor | None:
        """The rows as a table (B, 1)."""
        return None if self.rows is None else self.rows.int()[:, None]

    def attend(self, q: Tensor, score: Score, weights: AttentionWeights) -> tuple[Tensor, Tensor | None]:
        """Attends from the queries (B, H, T, K): the outputs (B, H, T, K'), and the weights in the plain
        form.
        """
        if weights.in_sdpa and score.scale is not None and q.shape[2] == 1:
            visible = self.visible_buffer, 0, self.key_buffer.shape[2]
            y = decode_attention(
                score.project_query(q),
                self.key_buffer,
                self.value_buffer,
                score.scale,
                visible,
                self.row_table(),
                True,
            )
            if y is not None:
                return y, None
        return attend(q, self.keys, self.values, score, self.visible, weights=weights)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> CrossKV:
        if isinstance(change, RowSelection) and readable_in_place(self.key_buffer):
            rows = change.rows
            if self.rows is not None:
                rows = change.cached(self.rows, "rows", partial(change, self.rows))
            return CrossKV(self.key_buffer, self.value_buffer, self.visible_buffer, rows)
        return CrossKV(change(self.keys), change(self.values), map_state(change, self.visible))

"""The states of attention: keys and values of the positions so far (`KVCache`), and of an encoder's outputs
(`CrossKV`).

Neither is copied when a beam search selects rows: both keep a table that says in which row of the buffers
each position of a row is stored, and the kernel for one query per row reads it there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqloom.fused.decode_attention import decode_attention, readable_in_place
from seqloom.nn.attention_core import AttentionPlan, AttentionWeights, Score, attend
from seqloom.nn.state import RowSelection, StateNode, map_state


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
            y = decode_attention(q, self.key_buffer, self.value_buffer, score, visible, self.row_table, False)
            if y is not None:
                return y, None
        return plan.attend(q, self.keys, self.values, score, weights)

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
        if weights.in_sdpa and q.shape[2] == 1:
            visible = self.visible_buffer, 0, self.key_buffer.shape[2]
            y = decode_attention(
                q, self.key_buffer, self.value_buffer, score, visible, self.row_table(), True
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

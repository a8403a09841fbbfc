"""The memory of attention: keys and values of the positions so far, and of what an encoder read.

Neither is copied when a beam search picks rows: both keep a table of where each row's positions lie, and one query in each row reads them there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from seqloom.fused.decode_attention import decode_attention, readable_in_place
from seqloom.nn.attention_core import AttentionPlan
from seqloom.nn.score import AttentionWeights, Score
from seqloom.nn.state import RowSelection, map_state


class KVCache:
    """Keys (B, G, S, K) and values (B, G, S, K') of the positions so far, with room to grow, and which of them are real tokens (B, S).

    Appending writes into the free room when this cache is the newest of its history, and copies otherwise, so two continuations of one
    state never disturb each other. Under autograd it always copies. Where there is a `table` (B, at least S), position s of row b lies in
    row table[b, s] of the room. `plan` is what a step of all layers is made of; the first layer's cache carries it (step.py).
    """

    plan: Any = None

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        length: int,
        filled: list[int],
        table: Tensor | None = None,
    ):
        self.room_keys, self.room_values = keys, values
        self.mask, self.length, self.filled, self.table = mask, length, filled, table

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, mask: Tensor | None) -> KVCache:
        return cls(keys, values, mask, keys.shape[2], [keys.shape[2]])

    @property
    def keys(self) -> Tensor:
        return self.dense(self.room_keys)

    @property
    def values(self) -> Tensor:
        return self.dense(self.room_values)

    def dense(self, room: Tensor) -> Tensor:
        if self.table is None:
            return room[:, :, : self.length]
        places = torch.arange(self.length, device=room.device)
        return room[self.table[:, : self.length].long(), :, places].transpose(
            1, 2
        )  # (B, S, G, K) → (B, G, S, K)

    def append(self, k: Tensor, v: Tensor, mask: Tensor | None) -> KVCache:
        """`mask` is that of old and new positions together, (B, S + T); None where all are real."""
        if not self.length:
            return KVCache.of(k, v, mask)
        if torch.is_grad_enabled():
            return KVCache.of(torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2), mask)
        new = self.reserved(k.shape[2], k.shape[0], mask)
        if k.shape[2]:  # writing even nothing would void a graph that reads the room
            new.room_keys[: len(k), :, self.length : new.length] = k
            new.room_values[: len(v), :, self.length : new.length] = v
        return new

    def reserved(self, more: int, rows: int, mask: Tensor | None) -> KVCache:
        """The cache after `more` positions that are yet to be written."""
        end = self.length + more
        rooms, filled, table = (self.room_keys, self.room_values), self.filled, self.table
        sealed = self.room_keys.is_inference() and not torch.is_inference_mode_enabled()
        if more and (filled[0] != self.length or end > self.room_keys.shape[2] or sealed):
            rooms, filled = tuple(grow(room, self.length, end, rows) for room in rooms), [self.length]
            table = None if table is None else extend_table(table, self.length, rooms[0].shape[2])
        filled[0] = max(filled[0], end)
        return KVCache(*rooms, mask, end, filled, table)

    def attend(
        self, view: AttentionPlan, q: Tensor, score: Score, weights: AttentionWeights
    ) -> tuple[Tensor, Tensor | None]:
        """What the queries (B, H, T, K) see through the view: (B, H, T, K'), and the weights where the view makes them."""
        seen = view.single_query(self.length) if q.shape[2] == 1 else None
        if seen is not None:
            y = decode_attention(q, self.room_keys, self.room_values, score, seen, self.table, False)
            if y is not None:
                return y, None
        return view.attend(q, self.keys, self.values, score, weights)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> KVCache:
        if isinstance(change, RowSelection) and self.length and readable_in_place(self.room_keys):
            return self.chosen(change)
        return KVCache.of(change(self.keys), change(self.values), map_state(change, self.mask))

    def chosen(self, rows: RowSelection) -> KVCache:
        """The given rows: of the positions so far only the table changes, and those to come lie in the rows' own places."""
        rooms, filled, count = (self.room_keys, self.room_values), self.filled, len(rows.rows)
        if count > len(rooms[0]):
            rooms, filled = (
                tuple(grow(room, self.length, self.length + 1, count) for room in rooms),
                [self.length],
            )
        size, length = rooms[0].shape[2], self.length

        def make() -> Tensor:
            before = (
                rows.rows[:, None].int().expand(-1, length)
                if self.table is None
                else self.table[rows.rows, :length]
            )
            return extend_table(before, length, size)

        table = rows.once(self.table, (size, length), make)
        mask = None if self.mask is None else rows.once(self.mask, "mask", lambda: rows(self.mask))
        new = KVCache(*rooms, mask, length, filled, table)
        new.plan = self.plan
        return new


def grow(room: Tensor, length: int, end: int, rows: int) -> Tensor:
    """A copy of what is filled, with room for at least so many rows, and `end` positions and half as many again."""
    new = room.new_empty(max(rows, len(room)), room.shape[1], end + max(32, end // 2), room.shape[3])
    new[: len(room), :, :length] = room[:, :, :length]
    return new


def extend_table(table: Tensor, length: int, size: int) -> Tensor:
    """The table for `size` positions: after the first `length` each row's lie in its own place."""
    own = torch.arange(len(table), dtype=torch.int32, device=table.device)[:, None].expand(-1, size - length)
    return torch.cat([table[:, :length], own], 1)


class CrossKV:
    """What attention keeps of a memory: keys (N, G, S, K) and values (N, G, S, K'), made once, and which are visible (N, 1, 1, S). Row b looks
    at row rows[b] of them, so that the beams of a sentence share its memory."""

    def __init__(self, keys: Tensor, values: Tensor, visible: Tensor | None, rows: Tensor | None = None):
        self.room_keys, self.room_values, self.room_visible, self.rows = keys, values, visible, rows

    def dense(self, part: Tensor | None) -> Tensor | None:
        return part if part is None or self.rows is None else part.index_select(0, self.rows)

    @property
    def keys(self) -> Tensor:
        return self.dense(self.room_keys)

    @property
    def values(self) -> Tensor:
        return self.dense(self.room_values)

    @property
    def visible(self) -> Tensor | None:
        return self.dense(self.room_visible)

    def places(self) -> Tensor | None:
        """The rows as a table (B, 1)."""
        return None if self.rows is None else self.rows.int()[:, None]

    def attend(
        self, q: Tensor, score: Score, weights: AttentionWeights, attend: Callable
    ) -> tuple[Tensor, Tensor | None]:
        """What the queries (B, H, T, K) see; `attend` is the general way."""
        if weights.fused and q.shape[2] == 1:
            seen = self.room_visible, 0, self.room_keys.shape[2]
            y = decode_attention(q, self.room_keys, self.room_values, score, seen, self.places(), True)
            if y is not None:
                return y, None
        return attend(q, self.keys, self.values, score, self.visible, weights=weights)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> CrossKV:
        if isinstance(change, RowSelection) and readable_in_place(self.room_keys):
            rows = (
                change.rows
                if self.rows is None
                else change.once(self.rows, "rows", lambda: self.rows[change.rows])
            )
            return CrossKV(self.room_keys, self.room_values, self.room_visible, rows)
        return CrossKV(change(self.keys), change(self.values), map_state(change, self.visible))

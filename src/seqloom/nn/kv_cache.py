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
    """Keys (B, G, S, K) and values (B, G, S, K') of the positions so far, in buffers with spare capacity, and the mask
    of real tokens (B, S).

    Appending writes into the buffers if this cache is the newest of its history, and copies them otherwise, so that two
    continuations of one state never overwrite each other. Under autograd it always copies. With a `row_table` (B, at
    least S), position s of row b is stored in row row_table[b, s] of the buffers. `program` is the compiled decoding
    step of all layers, stored in the first layer's cache (decode.py).
    """

    program: Any = None

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        length: int,
        filled: list[int],
        table: Tensor | None = None,
    ):
        self.key_buffer, self.value_buffer = keys, values
        self.mask, self.length, self.used, self.row_table = mask, length, filled, table

    @classmethod
    def create(cls, keys: Tensor, values: Tensor, mask: Tensor | None) -> KVCache:
        return cls(keys, values, mask, keys.shape[2], [keys.shape[2]])

    @property
    def keys(self) -> Tensor:
        return self.gather(self.key_buffer)

    @property
    def values(self) -> Tensor:
        return self.gather(self.value_buffer)

    def gather(self, room: Tensor) -> Tensor:
        if self.row_table is None:
            return room[:, :, : self.length]
        places = torch.arange(self.length, device=room.device)
        return room[self.row_table[:, : self.length].long(), :, places].transpose(
            1, 2
        )  # (B, S, G, K) → (B, G, S, K)

    def append(self, k: Tensor, v: Tensor, mask: Tensor | None) -> KVCache:
        """`mask` covers old and new positions together, (B, S + T); None if all are real."""
        if not self.length:
            return KVCache.create(k, v, mask)
        if torch.is_grad_enabled():
            return KVCache.create(torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2), mask)
        new = self.reserve(k.shape[2], k.shape[0], mask)
        if k.shape[2]:  # writing even nothing would void a graph that reads the room
            new.key_buffer[: len(k), :, self.length : new.length] = k
            new.value_buffer[: len(v), :, self.length : new.length] = v
        return new

    def reserve(self, more: int, rows: int, mask: Tensor | None) -> KVCache:
        """The cache with `more` further positions, which the caller writes."""
        end = self.length + more
        rooms, filled, table = (self.key_buffer, self.value_buffer), self.used, self.row_table
        sealed = self.key_buffer.is_inference() and not torch.is_inference_mode_enabled()
        if more and (filled[0] != self.length or end > self.key_buffer.shape[2] or sealed):
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
            y = decode_attention(q, self.key_buffer, self.value_buffer, score, seen, self.row_table, False)
            if y is not None:
                return y, None
        return view.attend(q, self.keys, self.values, score, weights)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> KVCache:
        if isinstance(change, RowSelection) and self.length and readable_in_place(self.key_buffer):
            return self.select_rows(change)
        return KVCache.create(change(self.keys), change(self.values), map_state(change, self.mask))

    def select_rows(self, rows: RowSelection) -> KVCache:
        """The given rows: of the positions so far only the table changes, and those to come lie in the rows' own places."""
        rooms, filled, count = (self.key_buffer, self.value_buffer), self.used, len(rows.rows)
        if count > len(rooms[0]):
            rooms, filled = (
                tuple(grow(room, self.length, self.length + 1, count) for room in rooms),
                [self.length],
            )
        size, length = rooms[0].shape[2], self.length

        def make() -> Tensor:
            before = (
                rows.rows[:, None].int().expand(-1, length)
                if self.row_table is None
                else self.row_table[rows.rows, :length]
            )
            return extend_table(before, length, size)

        table = rows.cached(self.row_table, (size, length), make)
        mask = None if self.mask is None else rows.cached(self.mask, "mask", lambda: rows(self.mask))
        new = KVCache(*rooms, mask, length, filled, table)
        new.program = self.program
        return new


def grow(room: Tensor, length: int, end: int, rows: int) -> Tensor:
    """A copy of the used part in a buffer of at least `rows` rows and about 1.5 `end` positions."""
    new = room.new_empty(max(rows, len(room)), room.shape[1], end + max(32, end // 2), room.shape[3])
    new[: len(room), :, :length] = room[:, :, :length]
    return new


def extend_table(table: Tensor, length: int, size: int) -> Tensor:
    """The table for `size` positions: those after the first `length` are stored in the row itself."""
    own = torch.arange(len(table), dtype=torch.int32, device=table.device)[:, None].expand(-1, size - length)
    return torch.cat([table[:, :length], own], 1)


class CrossKV:
    """What attention keeps of a memory: keys (N, G, S, K) and values (N, G, S, K'), made once, and which are visible (N, 1, 1, S). Row b looks
    at row rows[b] of them, so that the beams of a sentence share its memory."""

    def __init__(self, keys: Tensor, values: Tensor, visible: Tensor | None, rows: Tensor | None = None):
        self.key_buffer, self.value_buffer, self.visible_buffer, self.rows = keys, values, visible, rows

    def gather(self, part: Tensor | None) -> Tensor | None:
        return part if part is None or self.rows is None else part.index_select(0, self.rows)

    @property
    def keys(self) -> Tensor:
        return self.gather(self.key_buffer)

    @property
    def values(self) -> Tensor:
        return self.gather(self.value_buffer)

    @property
    def visible(self) -> Tensor | None:
        return self.gather(self.visible_buffer)

    def row_table(self) -> Tensor | None:
        """The rows as a table (B, 1)."""
        return None if self.rows is None else self.rows.int()[:, None]

    def attend(
        self, q: Tensor, score: Score, weights: AttentionWeights, attend: Callable
    ) -> tuple[Tensor, Tensor | None]:
        """What the queries (B, H, T, K) see; `attend` is the general way."""
        if weights.in_sdpa and q.shape[2] == 1:
            seen = self.visible_buffer, 0, self.key_buffer.shape[2]
            y = decode_attention(q, self.key_buffer, self.value_buffer, score, seen, self.row_table(), True)
            if y is not None:
                return y, None
        return attend(q, self.keys, self.values, score, self.visible, weights=weights)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> CrossKV:
        if isinstance(change, RowSelection) and readable_in_place(self.key_buffer):
            rows = (
                change.rows
                if self.rows is None
                else change.cached(self.rows, "rows", lambda: self.rows[change.rows])
            )
            return CrossKV(self.key_buffer, self.value_buffer, self.visible_buffer, rows)
        return CrossKV(change(self.keys), change(self.values), map_state(change, self.visible))

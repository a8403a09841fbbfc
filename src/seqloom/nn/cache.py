"""The memory of attention: keys and values of the positions so far, and of what an encoder read.

Neither is copied when a beam search picks rows: both keep a table of where each row's positions lie, and one query in each row reads them there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from seqloom.nn.linear import compiled, single
from seqloom.nn.score import Score
from seqloom.nn.state import Rows, map_state
from seqloom.nn.view import View
from seqloom.nn.weights import Weights


class Cache:
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
    def of(cls, keys: Tensor, values: Tensor, mask: Tensor | None) -> Cache:
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

    def append(self, k: Tensor, v: Tensor, mask: Tensor | None) -> Cache:
        """`mask` is that of old and new positions together, (B, S + T); None where all are real."""
        if not self.length:
            return Cache.of(k, v, mask)
        if torch.is_grad_enabled():
            return Cache.of(torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2), mask)
        new = self.reserved(k.shape[2], k.shape[0], mask)
        if k.shape[2]:  # writing even nothing would void a graph that reads the room
            new.room_keys[: len(k), :, self.length : new.length] = k
            new.room_values[: len(v), :, self.length : new.length] = v
        return new

    def reserved(self, more: int, rows: int, mask: Tensor | None) -> Cache:
        """The cache after `more` positions that are yet to be written."""
        end = self.length + more
        rooms, filled, table = (self.room_keys, self.room_values), self.filled, self.table
        sealed = self.room_keys.is_inference() and not torch.is_inference_mode_enabled()
        if more and (filled[0] != self.length or end > self.room_keys.shape[2] or sealed):
            rooms, filled = tuple(grown(room, self.length, end, rows) for room in rooms), [self.length]
            table = None if table is None else extended(table, self.length, rooms[0].shape[2])
        filled[0] = max(filled[0], end)
        return Cache(*rooms, mask, end, filled, table)

    def attend(self, view: View, q: Tensor, score: Score, weights: Weights) -> tuple[Tensor, Tensor | None]:
        """What the queries (B, H, T, K) see through the view: (B, H, T, K'), and the weights where the view makes them."""
        seen = view.one(self.length) if q.shape[2] == 1 else None
        if seen is not None and ready(q, self.room_keys, self.room_values):
            return look(
                score.query(q), self.room_keys, self.room_values, score.scale, *seen, self.table, False
            ), None
        return view.attend(q, self.keys, self.values, score, weights)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Cache:
        if isinstance(change, Rows) and self.length and quiet(self.room_keys):
            return self.chosen(change)
        return Cache.of(change(self.keys), change(self.values), map_state(change, self.mask))

    def chosen(self, rows: Rows) -> Cache:
        """The given rows: of the positions so far only the table changes, and those to come lie in the rows' own places."""
        rooms, filled, count = (self.room_keys, self.room_values), self.filled, len(rows.rows)
        if count > len(rooms[0]):
            rooms, filled = (
                tuple(grown(room, self.length, self.length + 1, count) for room in rooms),
                [self.length],
            )
        size, length = rooms[0].shape[2], self.length

        def make() -> Tensor:
            before = (
                rows.rows[:, None].int().expand(-1, length)
                if self.table is None
                else self.table[rows.rows, :length]
            )
            return extended(before, length, size)

        table = rows.once(self.table, (size, length), make)
        mask = None if self.mask is None else rows.once(self.mask, "mask", lambda: rows(self.mask))
        new = Cache(*rooms, mask, length, filled, table)
        new.plan = self.plan
        return new


def grown(room: Tensor, length: int, end: int, rows: int) -> Tensor:
    """A copy of what is filled, with room for at least so many rows, and `end` positions and half as many again."""
    new = room.new_empty(max(rows, len(room)), room.shape[1], end + max(32, end // 2), room.shape[3])
    new[: len(room), :, :length] = room[:, :, :length]
    return new


def extended(table: Tensor, length: int, size: int) -> Tensor:
    """The table for `size` positions: after the first `length` each row's lie in its own place."""
    own = torch.arange(len(table), dtype=torch.int32, device=table.device)[:, None].expand(-1, size - length)
    return torch.cat([table[:, :length], own], 1)


class Looking:
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
        self, q: Tensor, score: Score, weights: Weights, attend: Callable
    ) -> tuple[Tensor, Tensor | None]:
        """What the queries (B, H, T, K) see; `attend` is the general way."""
        if (
            score.scale is not None
            and weights.fused
            and q.shape[2] == 1
            and ready(q, self.room_keys, self.room_values)
        ):
            length = self.room_keys.shape[2]
            return look(
                score.query(q),
                self.room_keys,
                self.room_values,
                score.scale,
                self.room_visible,
                0,
                length,
                self.places(),
                True,
            ), None
        return attend(q, self.keys, self.values, score, self.visible, weights=weights)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Looking:
        if isinstance(change, Rows) and quiet(self.room_keys):
            rows = (
                change.rows
                if self.rows is None
                else change.once(self.rows, "rows", lambda: self.rows[change.rows])
            )
            return Looking(self.room_keys, self.room_values, self.room_visible, rows)
        return Looking(change(self.keys), change(self.values), map_state(change, self.visible))


def quiet(x: Tensor) -> bool:
    """Whether one query may read x where it lies."""
    return single(x) and x.shape[-1] % 8 == 0 and x.stride(-1) == 1


def ready(q: Tensor, keys: Tensor, values: Tensor) -> bool:
    return quiet(q) and quiet(keys) and quiet(values) and q.numel() > 0 and keys.shape[2] > 0


@cache
def looks() -> ModuleType:
    from seqloom.nn import look

    return look


def look(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    mask: Tensor | None,
    first: int,
    last: int,
    table: Tensor | None,
    by_row: bool,
) -> Tensor:
    """The one query q (B, H, 1, K) of row b attends to the keys and values `first` … `last` - 1 of row b, or of the rows that the table (B, S or 1)
    names: (B, H, 1, K'). `mask` is boolean (B or 1, 1, 1, S), the keys' own where `by_row`, or added (B or 1, H or 1, 1, last - first)."""
    batch, heads, _, key = q.shape
    if q.stride(1) != key:
        q = q.contiguous()
    y, groups, (_, threads) = q.new_empty(batch, heads, 1, values.shape[3]), keys.shape[1], compiled()
    mask = mask if mask is None or mask.stride(-1) == 1 else mask.contiguous()
    shape = (heads, groups, key, values.shape[3], first, last, q.data_ptr(), 4 * q.stride(0), y.data_ptr())
    numbers = (*shape, *told(keys, values, table, mask, first, by_row))
    looks().attend(threads.work(looks().look_work), batch * groups, scale, numbers, threads.threads())
    return y


def told(
    keys: Tensor, values: Tensor, table: Tensor | None, mask: Tensor | None, first: int, by_row: bool
) -> tuple[int, ...]:
    """Where all lies, as look.py wants to know it."""
    places, seen, more = (0, 0, 0), (0, 0, 0), (0, 0, 0)
    if table is not None:
        places = (table.data_ptr(), 4 * table.stride(0), 4 * table.stride(1) if table.shape[1] > 1 else 0)
    if mask is not None:
        steps = [0 if size == 1 else step for size, step in zip(mask.shape, mask.stride(), strict=True)]
        if mask.dtype is torch.bool:
            seen = (mask.data_ptr(), steps[0], int(by_row))
        else:
            more = (mask.data_ptr() - 4 * first, 4 * steps[0], 4 * steps[1])
    (a, b, c, _), (d, e, f, _) = keys.stride(), values.stride()
    return (
        keys.data_ptr(),
        4 * a,
        4 * b,
        4 * c,
        values.data_ptr(),
        4 * d,
        4 * e,
        4 * f,
        *places,
        *seen,
        *more,
    )

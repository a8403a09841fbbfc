"""The memory of self-attention: keys and values of the positions so far."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from seqloom.nn.state import map_state


class Cache:
    """Keys (B, G, S, K) and values (B, G, S, K') of the positions so far, with room to grow, and which of them are real tokens (B, S).

    Appending writes into the free room when this cache is the newest of its history, and copies otherwise, so two continuations of one
    state never disturb each other. Under autograd it always copies.
    """

    def __init__(self, keys: Tensor, values: Tensor, mask: Tensor | None, length: int, filled: list[int]):
        self.room_keys, self.room_values = keys, values
        self.mask, self.length, self.filled = mask, length, filled

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, mask: Tensor | None) -> Cache:
        return cls(keys, values, mask, keys.shape[2], [keys.shape[2]])

    @property
    def keys(self) -> Tensor:
        return self.room_keys[:, :, : self.length]

    @property
    def values(self) -> Tensor:
        return self.room_values[:, :, : self.length]

    def append(self, k: Tensor, v: Tensor, mask: Tensor | None) -> Cache:
        """`mask` is that of old and new positions together, (B, S + T); None where all are real."""
        if not self.length:
            return Cache.of(k, v, mask)
        if torch.is_grad_enabled():
            return Cache.of(torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2), mask)
        end = self.length + k.shape[2]
        rooms, filled = (self.room_keys, self.room_values), self.filled
        if end == self.length:
            return Cache(*rooms, mask, end, filled)  # writing even nothing would void a graph that reads the room
        sealed = self.room_keys.is_inference() and not torch.is_inference_mode_enabled()
        if filled[0] != self.length or end > self.room_keys.shape[2] or sealed:
            rooms, filled = (grown(self.keys, end), grown(self.values, end)), [self.length]
        rooms[0][:, :, self.length : end] = k
        rooms[1][:, :, self.length : end] = v
        filled[0] = end
        return Cache(*rooms, mask, end, filled)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Cache:
        return Cache.of(change(self.keys), change(self.values), map_state(change, self.mask))


def grown(x: Tensor, end: int) -> Tensor:
    """A copy of x along time with room for `end` positions and half as many again."""
    room = x.new_empty(*x.shape[:2], end + max(32, end // 2), x.shape[3])
    room[:, :, : x.shape[2]] = x
    return room

"""Attention: score, mask, softmax, average, and the heads around them. Weights are made only when asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn import mask as masks
from seqloom.nn.fast import fast
from seqloom.nn.layer import Layer, Make, Memory, need
from seqloom.nn.position import NoPosition, Position
from seqloom.nn.score import ScaledDot, Score
from seqloom.nn.state import map_state


def attend(
    q: Tensor, k: Tensor, v: Tensor, score: Score, visible: Tensor | None = None, bias: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor | None]:
    """yₜ = Σⱼ αₜⱼ vⱼ,   αₜ = softmaxⱼ(s(qₜ, kⱼ) + biasₜⱼ) over the visible j   [F9]

    q (B, H, T, K), k (B, H, S, K), v (B, H, S, K') → y (B, H, T, K') and, in the plain form, α (B, H, T, S). `visible` and `bias`
    broadcast to (B, H, T, S). A query that sees nothing gives 0. `causal` says that query i sees keys up to i, for T = S.
    """
    fused = fast() and score.scale is not None
    if causal and not (fused and visible is None and bias is None):
        order = masks.causal(q.shape[2], k.shape[2], q.device)
        visible, causal = order if visible is None else visible & order, False
    if fused:
        if bias is not None:
            bias = bias.to(q.dtype) if visible is None else bias.to(q.dtype).masked_fill(~visible, float("-inf"))
        y = F.scaled_dot_product_attention(q, k, v, visible if bias is None else bias, is_causal=causal, scale=score.scale)
        if visible is not None:
            y = y.masked_fill(~visible.any(-1, keepdim=True), 0)
        return y, None
    scores = score(q, k)
    if bias is not None:
        scores = scores + bias
    weights = masks.softmax(scores, visible)
    return torch.einsum("bhts,bhsk->bhtk", weights, v), weights


class Cache:
    """Keys and values of the positions so far, with room to grow: (B, H, S, K) each, and which of them are real tokens (B, S).

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
        joined = masks.join(self.mask, self.length, mask, k.shape[0], k.shape[2], k.device)
        if not self.length:
            return Cache.of(k, v, joined)
        if torch.is_grad_enabled():
            return Cache.of(torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2), joined)
        end = self.length + k.shape[2]
        rooms, filled = (self.room_keys, self.room_values), self.filled
        if end == self.length:
            return Cache(*rooms, joined, end, filled)  # writing even nothing would void a graph that reads the room
        sealed = self.room_keys.is_inference() and not torch.is_inference_mode_enabled()
        if filled[0] != self.length or end > self.room_keys.shape[2] or sealed:
            rooms, filled = (grown(self.keys, end), grown(self.values, end)), [self.length]
        rooms[0][:, :, self.length : end] = k
        rooms[1][:, :, self.length : end] = v
        filled[0] = end
        return Cache(*rooms, joined, end, filled)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Cache:
        return Cache.of(change(self.keys), change(self.values), map_state(change, self.mask))


def grown(x: Tensor, end: int) -> Tensor:
    """A copy of x along time with room for `end` positions and half as many again."""
    room = x.new_empty(*x.shape[:2], end + max(32, end // 2), x.shape[3])
    room[:, :, : x.shape[2]] = x
    return room


class SelfAttention(Layer):
    """y = W_O [head₁; …; head_H],   head = attend(W_Q x, W_K x, W_V x)   [F10, F12]

    Causal heads see their own position and those before it [F13]; the others see the whole sentence. Rotary positions turn q and k,
    ALiBi adds to the scores.
    """

    def __init__(
        self,
        size: int,
        heads: int = 8,
        score: Make[Score] = ScaledDot,
        position: Position | None = None,
        causal: bool = True,
        bias: bool = True,
    ):
        super().__init__()
        need(heads > 0 and size % heads == 0, f"size {size} cannot be divided into {heads} heads: choose heads that divide it")
        self.dim, self.heads, self.causal = size, heads, causal
        self.project = nn.Linear(size, 3 * size, bias)
        self.score = score(size // heads)
        self.position = position or NoPosition(size, heads)
        self.last = nn.Linear(size, size, bias)

    def start(self, batch: int, memory: Memory | None = None) -> Cache:
        none = self.last.weight.new_empty(batch, self.heads, 0, self.dim // self.heads)
        return Cache.of(none, none, None)

    def forward(self, x: Tensor, state: Cache | None = None, mask: Tensor | None = None) -> tuple[Tensor, Cache]:
        y, _, state = self.look(x, state, mask)
        return y, state

    def look(self, x: Tensor, state: Cache | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None, Cache]:
        """The outputs, the weights (B, H, T, S) where the plain form is on, and the state."""
        batch, length, _ = x.shape
        state = state or self.start(batch)
        past, total = state.length, state.length + length
        known = masks.join(state.mask, past, mask, batch, length, x.device)  # (B, S) or None
        places = torch.arange(total, device=x.device) if known is None else masks.positions(known)
        parts = self.project(x).view(batch, length, 3, self.heads, self.dim // self.heads).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in parts)  # each (B, H, T, K)
        q, k = self.position.rotate(q, places[..., past:]), self.position.rotate(k, places[..., past:])
        state = state.append(k, v, mask)
        visible, causal = seen(known, length, total, self.causal, x.device)
        y, weights = attend(q, state.keys, state.values, self.score, visible, self.position.bias(places[..., past:], places), causal)
        return self.last(y.transpose(1, 2).reshape(batch, length, self.dim)), weights, state


def seen(known: Tensor | None, queries: int, keys: int, causal: bool, device: torch.device) -> tuple[Tensor | None, bool]:
    """What `queries` may see of `keys`: a mask (B or 1, 1, T, S) or None, and whether plain causality is all there is to say."""
    order = causal and queries > 1
    if order and queries == keys and (known is None or masks.right_padded(known)):
        return None, True  # padding on the right stands after every real query
    visible = None if known is None else known[:, None, None]  # (B, 1, 1, S)
    if order:
        later = masks.causal(queries, keys, device)[None, None]
        visible = later if visible is None else visible & later
    return visible, False


class Looking(NamedTuple):
    """What cross-attention keeps of the memory: its keys and values (B, H, S, K), made once, and its mask (B, 1, 1, S)."""

    keys: Tensor
    values: Tensor
    visible: Tensor | None


class CrossAttention(Layer):
    """y = W_O [head₁; …; head_H],   head = attend(W_Q x, W_K m, W_V m) over the memory m   [F11]"""

    def __init__(self, size: int, memory: int, heads: int = 8, score: Make[Score] = ScaledDot, bias: bool = True):
        super().__init__()
        need(heads > 0 and size % heads == 0, f"size {size} cannot be divided into {heads} heads: choose heads that divide it")
        self.dim, self.heads = size, heads
        self.query = nn.Linear(size, size, bias)
        self.project = nn.Linear(memory, 2 * size, bias)
        self.score = score(size // heads)
        self.last = nn.Linear(size, size, bias)

    def start(self, batch: int, memory: Memory | None = None) -> Looking:
        need(memory is not None, "cross-attention needs a memory to look at: start it with the encoder's outputs")
        shape = (batch, memory.values.shape[1], 2, self.heads, self.dim // self.heads)
        k, v = (part.transpose(1, 2) for part in self.project(memory.values).view(shape).unbind(2))  # each (B, H, S, K)
        return Looking(k, v, None if memory.mask is None else memory.mask[:, None, None])

    def forward(self, x: Tensor, state: Looking, mask: Tensor | None = None) -> tuple[Tensor, Looking]:
        y, _, state = self.look(x, state, mask)
        return y, state

    def look(self, x: Tensor, state: Looking, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None, Looking]:
        """The outputs, the weights (B, H, T, S) where the plain form is on, and the state."""
        q = self.query(x).unflatten(-1, (self.heads, self.dim // self.heads)).transpose(1, 2)  # (B, H, T, K)
        y, weights = attend(q, state.keys, state.values, self.score, state.visible)
        return self.last(y.transpose(1, 2).flatten(2)), weights, state


class Pooled(NamedTuple):
    """What attention pooling keeps of the memory: keys (B, 1, S, K), the memory itself (B, 1, S, M), its mask (B, 1, 1, S)."""

    keys: Tensor
    values: Tensor
    visible: Tensor | None


class Pooling(nn.Module):
    """c = Σⱼ αⱼ mⱼ,   α = softmaxⱼ s(W_Q h, W_K mⱼ)   [F4, F9]: one head that averages the memory itself, for recurrent decoders."""

    def __init__(self, size: int, memory: int, score: Make[Score] = ScaledDot, dim: int | None = None):
        super().__init__()
        self.query = nn.Linear(size, dim or size, bias=False)
        self.key = nn.Linear(memory, dim or size)
        self.score = score(dim or size)

    def start(self, memory: Memory) -> Pooled:
        return Pooled(
            self.key(memory.values)[:, None], memory.values[:, None], None if memory.mask is None else memory.mask[:, None, None]
        )

    def forward(self, h: Tensor, state: Pooled) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) → the context (B, T, M) and, in the plain form, the weights (B, 1, T, S)."""
        c, weights = attend(self.query(h)[:, None], *state[:2], self.score, state.visible)
        return c[:, 0], weights

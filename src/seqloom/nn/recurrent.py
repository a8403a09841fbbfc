"""Recurrent layers. The cell, its unrolling, the direction and the depth are separate parts: any cell works in all of them [D13]."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.nn import mask as masks
from seqloom.nn.dropout import Dropout
from seqloom.nn.fast import fast
from seqloom.nn.layer import Layer, Make, Memory, need
from seqloom.nn.state import State, merge


class Cell(nn.Module):
    """One step of recurrence, hₜ = f(hₜ₋₁, xₜ), the same f at every step [D4].

    `inputs` computes the input's share of all steps in one product; `step` takes one step's share and the state to the next state, a
    tuple whose first entry is h. A cell with a faster way over all steps gives it as `sweep`.
    """

    dim: int
    width: int  # of one step's share
    sweep = None

    def start(self, batch: int) -> State:
        raise NotImplementedError

    def inputs(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def step(self, share: Tensor, state: State) -> State:
        raise NotImplementedError


class LSTMState(NamedTuple):
    h: Tensor  # (B, D)
    c: Tensor  # (B, D)


class LSTM(Cell):
    """i, f, o = σ(W x + U h + b),  g = tanh(W x + U h + b),  c = f ⊙ c + i ⊙ g,  h = o ⊙ tanh(c)   [D8, D-1]

    The four products stand in one matrix in the order i, f, g, o.
    """

    def __init__(self, size: int, dim: int, bias: bool = True):
        super().__init__()
        self.dim, self.width = dim, 4 * dim
        bound = 1 / math.sqrt(dim)
        self.input = nn.Parameter(torch.empty(4 * dim, size).uniform_(-bound, bound))
        self.hidden = nn.Parameter(torch.empty(4 * dim, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(4 * dim)) if bias else None

    def start(self, batch: int) -> LSTMState:
        zeros = self.hidden.new_zeros(batch, self.dim)
        return LSTMState(zeros, zeros)

    def inputs(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.input, self.bias)  # (…, 4 D)

    def step(self, share: Tensor, state: LSTMState) -> LSTMState:
        i, f, g, o = (share + state.h @ self.hidden.T).chunk(4, -1)
        c = f.sigmoid() * state.c + i.sigmoid() * g.tanh()
        return LSTMState(o.sigmoid() * c.tanh(), c)

    def sweep(self, x: Tensor, state: LSTMState, mask: Tensor | None) -> tuple[Tensor, LSTMState]:
        """torch's fused LSTM. Padding, on the right, is one more input feature that shuts i and o and opens f: c stays, h reads 0."""
        weight, bias = self.input, self.hidden.new_zeros(4 * self.dim) if self.bias is None else self.bias
        if mask is not None:
            gates = torch.tensor([-1e4, 1e4, 0.0, -1e4], dtype=weight.dtype, device=weight.device)
            x = torch.cat([x, (~mask).to(x.dtype).unsqueeze(-1)], -1)
            weight = torch.cat([weight, gates.repeat_interleave(self.dim).unsqueeze(-1)], 1)
        weights = [weight, self.hidden, bias, torch.zeros_like(bias)]
        y, h, c = torch.lstm(x, (state.h[None], state.c[None]), weights, True, 1, 0.0, self.training, False, True)
        h = h[0] if mask is None else last(y, state.h, mask)
        return y, LSTMState(h, c[0])


def last(y: Tensor, before: Tensor, mask: Tensor) -> Tensor:
    """The output at each row's last real token, or what stood before where a row has none; the mask pads on the right."""
    count = masks.lengths(mask)
    index = (count - 1).clamp(min=0)[:, None, None].expand(-1, 1, y.shape[-1])
    return torch.where(count[:, None] > 0, y.gather(1, index)[:, 0], before)


class Direction(nn.Module):
    """A cell unrolled over time, left to right or right to left: y = (h₁, …, h_T)."""

    def __init__(self, cell: Cell, backward: bool = False):
        super().__init__()
        self.cell, self.backward = cell, backward

    def forward(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], 0, self.cell.dim), state
        order = None
        if self.backward or (mask is not None and not masks.right_padded(mask)):
            order = reading_order(x, mask, self.backward)
            x = x.gather(1, order[..., None].expand_as(x))
            mask = None if mask is None else mask.gather(1, order)
        y, state = self.cell.sweep(x, state, mask) if fast() and self.cell.sweep else self.unroll(x, state, mask)
        if order is not None:
            y = y.gather(1, order.argsort(1)[..., None].expand_as(y))
        return y, state

    def unroll(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        """The plain loop: at padding the state stays and the output is 0."""
        outputs = []
        for t, share in enumerate(self.cell.inputs(x).unbind(1)):
            after = self.cell.step(share, state)
            outputs.append(after[0] if mask is None else after[0] * mask[:, t, None])
            state = after if mask is None else merge(mask[:, t], after, state)
        return torch.stack(outputs, 1), state


def reading_order(x: Tensor, mask: Tensor | None, backward: bool) -> Tensor:
    """The order in which a direction reads the positions, real tokens first, padding last: (B, T)."""
    batch, length, _ = x.shape
    place = torch.arange(length, device=x.device).expand(batch, length)
    key = length - 1 - place if backward else place
    return (key if mask is None else torch.where(mask, key, length + place)).argsort(1)


class RNN(Layer):
    """Layers of a cell over time: layer l reads layer l-1's hₜ [D5]; right to left or both ways, [h→; h←] [D7]; y = x + h with
    `residual` [D6]. Dropout stands between the layers. Only left to right is causal."""

    def __init__(
        self,
        size: int,
        dim: int | None = None,
        cell: Make[Cell] = LSTM,
        layers: int = 1,
        direction: Literal["forward", "backward", "both"] = "forward",
        residual: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        dim = dim or size
        ways = {"forward": [False], "backward": [True], "both": [False, True]}
        need(direction in ways, f"direction must be forward, backward or both, not {direction!r}")
        need(layers > 0 and dim > 0, f"an RNN needs at least one layer and one unit, not {layers} layers of {dim}")
        self.dim, self.causal, self.residual = dim * len(ways[direction]), direction == "forward", residual
        sizes = [size] + [self.dim] * (layers - 1)
        self.layers = nn.ModuleList(nn.ModuleList(Direction(cell(s, dim), way) for way in ways[direction]) for s in sizes)
        self.dropout = Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return tuple(tuple(way.cell.start(batch) for way in layer) for layer in self.layers)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        state, after = state or self.start(x.shape[0]), []
        for number, (layer, before) in enumerate(zip(self.layers, state, strict=True)):
            read = self.dropout(x) if number else x
            results = [way(read, s, mask) for way, s in zip(layer, before, strict=True)]
            y = torch.cat([y for y, _ in results], -1) if len(results) > 1 else results[0][0]
            x = x + y if self.residual and x.shape == y.shape else y
            after.append(tuple(s for _, s in results))
        return x, tuple(after)

"""Cases of the five promises: recurrent cells and layers."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from seqloom.nn import GRU, LSTM, RNN, UGRNN, Cell, Gated, Vanilla
from seqloom.nn.cells import HiddenState
from support.case import Case, layer, named


class Square(Cell):
    """A user-defined candidate without a kernel: R = sin(W x + h²)."""

    def __init__(self, size: int, dim: int):
        super().__init__()
        self.dim = self.width = dim
        self.weight = nn.Parameter(torch.zeros(dim, size))

    def start(self, batch: int) -> HiddenState:
        return HiddenState(self.weight.new_zeros(batch, self.dim))

    def project_input(self, x: Tensor) -> Tensor:
        return x @ self.weight.T

    def gates(self, share: Tensor, state: HiddenState, seen: Tensor) -> dict[str, Tensor]:
        return {"new": (share + seen**2).sin()}

    def update(self, gates: dict[str, Tensor], state: HiddenState) -> HiddenState:
        return HiddenState(gates["new"])


def used(make: partial) -> Case:
    """The part in evaluation mode, which uses the mean of what training samples."""
    return Case(f"{named(make)} in use", lambda: make(4).eval())


CELLS = [
    Vanilla,
    partial(Vanilla, activation="sigmoid", bias="minus"),
    partial(Vanilla, bias="none"),
    partial(LSTM, bias="minus"),
    partial(LSTM, output="linear"),
    GRU,
    partial(GRU, bias="minus"),
    partial(GRU, reset="inside"),
    partial(GRU, reset="inside", bias="none"),
    UGRNN,
    partial(Gated, candidate=partial(Vanilla, activation="sigmoid")),
    partial(Gated, candidate=partial(LSTM, output="linear"), bias="none"),
    partial(Gated, candidate=partial(Gated, candidate=partial(GRU, reset="inside"))),
    partial(Gated, candidate=GRU, bias="minus"),
    partial(Gated, candidate=Square),
]

CASES: list[Case] = [
    *(layer(partial(RNN, dim=3, cell=cell)) for cell in CELLS),
    layer(partial(RNN, dim=2, cell=GRU, direction="both", layers=2, residual=True)),
    layer(partial(RNN, dim=3, cell=UGRNN, direction="backward", layers=2)),
    layer(partial(RNN, cell=partial(GRU, reset="inside"), layers=2, residual=True)),
    used(partial(RNN, dim=3, zoneout=0.3)),
    used(partial(RNN, dim=3, cell=partial(GRU, reset="inside"), layers=2, zoneout=0.4, variational=0.5)),
    used(partial(RNN, dim=2, cell=UGRNN, direction="both", zoneout=0.2)),
]

"""The gates of recurrent cells on one text: what each erases, writes and reads, and how far the memory carries   [D18]

The carry from step t to step T is Π f over the steps after t, of the gate that keeps the state: the forget gate of an LSTM, z of a GRU, G of a
UGRNN; of a gate u that replaces the state it is Π (1 - u). It is the factor with which what a coordinate held at t is still there at T. A cell
declares what its gates do, as roles of its points.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from seqloom.inspect.reading import one_of, read
from seqloom.inspect.refusals import refusal
from seqloom.inspect.removed_edges import attention_layers
from seqloom.nn.capture import capture
from seqloom.nn.cells import Cell
from seqloom.nn.recurrent import UnrolledCell
from seqloom.results import Result
from seqloom.run import RunLike, as_run


@dataclass(frozen=True)
class GateSeries(Result):
    """One gate of one cell over the positions of the text: (T, D)."""

    name: str
    symbol: str
    role: str  # keeps, replaces, writes, reads, or value: not a gate
    values: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class CellGates(Result):
    """The gates of one cell."""

    cell: str
    kind: str
    positions: str  # text, or source: which tokens the steps read
    gates: tuple[GateSeries, ...]
    # (T, D): from each word to the last that is read; None if no gate keeps the state
    carry: np.ndarray | None = field(repr=False)
    reads_backward: bool = False  # from the last word to the first


@dataclass(frozen=True)
class Gates(Result):
    """The gates of every recurrent cell of a run."""

    tokens: tuple[str, ...]
    source: tuple[str, ...]
    cells: tuple[CellGates, ...]
    window: str = ""  # which tokens of a long text these are
    unit: str = "tokens"  # what the tokens are: tokens, regions of a picture, or frames of a sound

    @property
    def word(self) -> str:
        """What a reader calls one of the tokens."""
        return one_of(self.unit)


def gates(
    run: RunLike, text: str, target: str | None = None, *, max_tokens: int = 512, window: int = 1
) -> Gates:
    """The gates of every recurrent cell on a text, or on one window of `max_tokens` tokens of it.

    >>> [(cell.kind, [gate.name for gate in cell.gates]) for cell in seqloom.inspect.gates(run, "the cat").cells][0]
    ('GRU', ['reset', 'keep', 'new', 'h'])
    """
    run = as_run(run)
    cells = {
        path: part
        for path, part in run.model.named_modules()
        if isinstance(part, Cell) and not path.rpartition(".")[0].endswith("cell")
    }
    if not cells:
        other = "attention" if attention_layers(run.model, False) else "activations"
        raise refusal(run, "gates", "shows recurrent cells, and the model has no recurrent cells", other)
    reading = read(run, text, target, max_tokens, window)
    with torch.no_grad(), capture(run.model, "*cell.*") as captured:
        reading.scores(1)
    found = []
    for path, cell in cells.items():
        series = tuple(
            GateSeries(
                name.removeprefix(f"{path}."),
                captured.point(name).symbol,
                captured.point(name).role or "value",
                value[0].numpy(),
            )
            for name, value in captured.all().items()
            if name.startswith(f"{path}.") and "#" not in name
        )
        if not series:  # not used on this text, as the backward half of ELMo
            continue
        keep = next((kept for one in series if (kept := kept_share(one)) is not None), None)
        positions = "source" if reading.source and path.startswith("encoder") else "text"
        around = run.model.get_submodule(path.rpartition(".")[0])
        backward = isinstance(around, UnrolledCell) and around.backward
        left = None if keep is None else carry(keep[::-1])[::-1] if backward else carry(keep)
        found.append(CellGates(path, type(cell).__name__, positions, series, left, backward))
    which = "" if reading.window is None else str(reading.window)
    return Gates(reading.tokens, reading.source, tuple(found), which, reading.unit)


def kept_share(series: GateSeries) -> np.ndarray | None:
    """The share of the state that a gate of the cell itself keeps; None if it is another value, or one of a cell inside."""
    if "." in series.name:
        return None
    return {"keeps": series.values, "replaces": 1 - series.values}.get(series.role)


def carry(keep: np.ndarray) -> np.ndarray:
    """Πₛ₍>t₎ f_s for each t: (T, D) → (T, D); the last row is 1."""
    after = np.concatenate([keep[1:], np.ones_like(keep[:1])])
    return np.cumprod(after[::-1], 0)[::-1]

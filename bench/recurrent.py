"""Speed of recurrent layers: each cell and variant, training (forward and backward) and use, against torch's own and against a Python loop.

One layer, 35 steps, a batch of 20, hidden sizes 200, 650 and 1500. Every cell is compared with torch's module of the same equations where there is
one, which must give the same outputs before it is timed, with nn.LSTM, with a plain Python loop that calls the cell for each
token, and with our plain form, a loop that has the inputs' product of all tokens before it. Cells differ in work, so units are GFLOP
of products by default: a ratio of 1 to nn.LSTM means the same speed for the same work; --tokens counts tokens instead. A ratio is relative to the
fastest peer; the line below gives it to each. Left out: embeddings, output layers and optimizers, which bench/train.py has.

    python bench/recurrent.py [--quick] [--rounds N] [--only WORD] [--tokens] [--cpu] [--json]
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch
from torch import Tensor, nn

from probe import Row, apart, benchmark_options, interleave, lone, probe, record, show
from seqloom.fused.dispatch import plain
from seqloom.nn import GRU, LSTM, RNN, UGRNN, Cell, Gated, Vanilla
from seqloom.train.process import keep_freed_memory

LENGTH, BATCH = 35, 20
DIMS = (200, 650, 1500)


class Kind(NamedTuple):
    """A cell, how many blocks of weights it has, torch's module of the same equations, and whether --quick measures it."""

    make: Callable
    blocks: int
    peer: Callable[..., nn.RNNBase] | None = None
    quick: bool = False


KINDS = {
    "LSTM": Kind(LSTM, 4),  # its peer is the nn.LSTM that every cell has
    "LSTM, output linear": Kind(partial(LSTM, output="linear"), 4, quick=True),
    "LSTM, zoneout": Kind(LSTM, 4),
    "LSTM, variational": Kind(LSTM, 4),
    "GRU": Kind(GRU, 3, nn.GRU, quick=True),
    "GRU, reset inside": Kind(partial(GRU, reset="inside"), 3, quick=True),
    "Vanilla": Kind(Vanilla, 1, nn.RNN, quick=True),
    "Vanilla, sigmoid": Kind(partial(Vanilla, activation="sigmoid"), 1),
    "UGRNN": Kind(UGRNN, 2, quick=True),
    "Gated, GRU inside": Kind(partial(Gated, candidate=partial(GRU, reset="inside")), 4),
}
MODES = ("training", "use")
OURS, LOOP, PLAIN, BASE = "seqloom", "loop of cells", "plain form", "nn.LSTM"


def cost(blocks: int, dim: int, mode: str) -> float:
    """GFLOP of products for each token: inputs and recurrence forward, twice that backward."""
    return (6e-9 if mode == "training" else 2e-9) * blocks * 2 * dim**2


def ours_of(title: str, dim: int) -> RNN:
    options = {"zoneout": {"zoneout": 0.1}, "variational": {"variational": 0.25}}.get(
        title.rpartition(", ")[2], {}
    )
    return RNN(dim, dim, KINDS[title].make, **options)


@torch.no_grad()
def same(ours: RNN, theirs: nn.RNNBase, x: Tensor) -> None:
    """Gives torch's module our weights and demands our outputs."""
    cell = ours.layers[0][0].cell
    theirs.weight_ih_l0.copy_(cell.input)
    theirs.weight_hh_l0.copy_(cell.hidden)
    theirs.bias_ih_l0.copy_(cell.bias)
    theirs.bias_hh_l0.zero_()
    difference = (ours(x)[0] - theirs(x)[0]).abs().max().item()
    if difference > 1e-5:
        raise ValueError(
            f"{type(theirs).__name__} is not the same layer: its outputs differ by {difference:.1e}"
        )


def loop(cell: Cell, x: Tensor) -> Tensor:
    """A cell called for one token after another."""
    state, outputs = cell.start(len(x)), []
    for token in x.unbind(1):
        state = cell.step(cell.project_input(token), state)
        outputs.append(state[0])
    return torch.stack(outputs, 1)


def variant(title: str, dim: int, mode: str, name: str, tokens: bool, threads: int) -> Callable[[], float]:
    """The work of one variant on the same inputs: about as much for each. Runs in a process of its own."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    keep_freed_memory()
    kind, x = KINDS[title], torch.randn(BATCH, LENGTH, dim)
    ours = ours_of(title, dim)
    layer: nn.Module = ours
    if name == BASE:
        layer = nn.LSTM(dim, dim, batch_first=True)
    elif name not in (OURS, LOOP, PLAIN):
        layer = kind.peer(dim, dim, batch_first=True)
        same(ours, layer, x)
    blocks = 4 if name == BASE else kind.blocks
    work_each = BATCH * LENGTH * (1.0 if tokens else cost(blocks, dim, mode))
    count = max(1, round(4 / (BATCH * LENGTH * cost(blocks, dim, mode))))
    form = plain if name in (LOOP, PLAIN) else contextlib.nullcontext
    run = partial(loop, ours.layers[0][0].cell) if name == LOOP else lambda x: layer(x)[0]
    gradient = torch.randn(BATCH, LENGTH, dim)
    x.requires_grad_(mode == "training")
    layer.train(mode == "training")

    def train() -> float:
        with form():
            for _ in range(count):
                run(x).backward(gradient)
                layer.zero_grad(set_to_none=True)
                x.grad = None
        return count * work_each

    @torch.inference_mode()
    def use() -> float:
        with form():
            for _ in range(count):
                run(x)
        return count * work_each

    return train if mode == "training" else use


def measure(title: str, dim: int, mode: str, rounds: int, tokens: bool, cpu: bool) -> list[Row]:
    kind = KINDS[title]
    names = [OURS, BASE, LOOP, PLAIN, *([f"nn.{kind.peer.__name__}"] if kind.peer else [])]
    each = cost(kind.blocks, dim, mode) if tokens else 1.0
    if cpu:
        return interleave(
            {n: variant(title, dim, mode, n, tokens, 1) for n in names}, rounds, each, lone, time.process_time
        )
    return interleave(
        {n: apart(variant, title, dim, mode, n, tokens, 2, home=n) for n in names}, rounds, each, probe
    )


def main() -> None:
    parser = benchmark_options(__doc__, "five cells, hidden size 200 only, few rounds")
    parser.add_argument(
        "--tokens",
        action="store_true",
        help="tokens per second; without, GFLOP of products, which cells of different work share",
    )
    options = parser.parse_args()
    cases = {
        f"{title}, hidden {dim}, {mode}": (title, dim, mode)
        for dim in DIMS[: 1 if options.quick else None]
        for title, kind in KINDS.items()
        for mode in MODES
        if kind.quick or not options.quick
    }
    chosen = {name: case for name, case in cases.items() if options.only in name}
    if not chosen:
        parser.error(f"no case has {options.only!r} in its title; the titles are like {next(iter(cases))!r}")
    rounds = options.rounds or (5 if options.quick else 11)
    for name, case in chosen.items():
        rows = measure(*case, rounds, options.tokens, options.cpu)
        if options.json:
            print(record(name, rows), flush=True)
            continue
        show(name, rows, "tok/s" if options.tokens else "GFLOP/s")
        print(
            "  " + ", ".join(f"{rows[0].rate / row.rate:.2f} vs {row.name}" for row in rows[1:]), flush=True
        )


if __name__ == "__main__":
    main()

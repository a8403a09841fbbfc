"""Attention speed: positions per second of one layer of self-attention (projections, heads, output) against the same layer elsewhere.

Causal, 8 heads, 512 wide, 4096 positions in a batch whatever their length; forward and backward, or forward alone. Peers have our weights
and must give our outputs before they are timed. Their masks and tables are made before the clock starts. Weights of 4096 × 4096 are left
out: they fill the memory, not the processor.

    python bench/attention.py [--quick] [--rounds N] [--only WORD] [--cpu] [--json]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probe import Row, apart, benchmark_options, interleave, lone, probe, record, show
from seqloom.fused.dispatch import plain
from seqloom.nn import ALiBi, NoPosition, Rotary, SelfAttention
from seqloom.nn.position import slopes
from seqloom.train.process import keep_freed_memory

DIM, HEADS, POSITIONS = 512, 8, 4096
SIZE = DIM // HEADS

Layer = Callable[[Tensor], Tensor]


class Case(NamedTuple):
    kind: str
    length: int
    train: bool

    @property
    def title(self) -> str:
        return f"{self.kind}, T {self.length}, {'forward and backward' if self.train else 'forward'}"

    @property
    def cost(self) -> float:
        """GFLOP for each position: four products of D × D and the causal half of scores and averages; three times with a backward."""
        return (3e-9 if self.train else 1e-9) * (8 * DIM**2 + 2 * self.length * DIM)


# ---- ours


def ours(kind: str) -> SelfAttention:
    position = {"alibi": ALiBi, "rope": partial(Rotary, layout="halves")}.get(kind, NoPosition)(DIM, HEADS)
    return SelfAttention(DIM, HEADS, position=position)


def our_layer(part: SelfAttention, kind: str) -> Layer:
    def with_weights(x: Tensor) -> Tensor:
        with plain():
            y, weights, _ = part.forward_with_weights(x)
        return y + 0 * weights[:, 0, :, :1]

    return with_weights if kind == "weights" else lambda x: part(x)[0]


# ---- peers


class Peer(nn.Module):
    """The same projections around what a competent person would write."""

    def __init__(self, part: SelfAttention, length: int):
        super().__init__()
        self.project, self.last = part.qkv_proj, part.out_proj
        self.later = torch.ones(length, length, dtype=torch.bool).triu(1)

    def heads(self, x: Tensor) -> list[Tensor]:
        return [part.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for part in self.project(x).chunk(3, -1)]

    def back(self, y: Tensor) -> Tensor:
        return self.last(y.transpose(1, 2).flatten(2))


class Causal(Peer):
    def forward(self, x: Tensor) -> Tensor:
        return self.back(F.scaled_dot_product_attention(*self.heads(x), is_causal=True))


class Biased(Peer):
    def __init__(self, part: SelfAttention, length: int):
        super().__init__(part, length)
        distance = torch.arange(length)[:, None] - torch.arange(length)
        bias = -torch.tensor(slopes(HEADS))[:, None, None] * distance
        self.bias = bias.masked_fill(self.later, float("-inf"))[None]

    def forward(self, x: Tensor) -> Tensor:
        return self.back(F.scaled_dot_product_attention(*self.heads(x), self.bias))


class Turned(Peer):
    def __init__(self, part: SelfAttention, length: int):
        super().__init__(part, length)
        angle = torch.arange(length)[:, None] * 10000 ** (-torch.arange(0, SIZE, 2) / SIZE)
        self.cos, self.sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()

    def turn(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.back(F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True))


class Shown(Peer):
    """With the weights in hand."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        scores = (q @ k.transpose(-2, -1)) / SIZE**0.5
        weights = scores.masked_fill(self.later, float("-inf")).softmax(-1)
        return self.back(weights @ v) + 0 * weights[:, 0, :, :1]


class Torchs(Peer):
    """nn.MultiheadAttention, without weights or with those of each head."""

    def __init__(self, part: SelfAttention, length: int, weights: bool = False):
        super().__init__(part, length)
        self.inner, self.weights = nn.MultiheadAttention(DIM, HEADS, batch_first=True), weights
        with torch.no_grad():
            self.inner.in_proj_weight.copy_(part.qkv_proj.weight)
            self.inner.in_proj_bias.copy_(part.qkv_proj.bias)
            self.inner.out_proj.load_state_dict(part.out_proj.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        if not self.weights:
            return self.inner(x, x, x, attn_mask=self.later, is_causal=True, need_weights=False)[0]
        y, weights = self.inner(x, x, x, attn_mask=self.later, need_weights=True, average_attn_weights=False)
        return y + 0 * weights[:, 0, :, :1]


PEERS: dict[str, dict[str, Callable[[SelfAttention, int], Peer]]] = {
    "causal": {"sdpa": Causal, "nn.MultiheadAttention": Torchs},
    "alibi": {"sdpa with a bias": Biased},
    "rope": {"rotate-half and sdpa": Turned},
    "weights": {"explicit softmax": Shown, "nn.MultiheadAttention": partial(Torchs, weights=True)},
}
OURS = "seqloom"


def variant(case: Case, name: str, threads: int) -> Callable[[], float]:
    """The work of one variant: the same input, whoever reads it. Runs in a process of its own."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    keep_freed_memory()
    part = ours(case.kind)
    x = torch.randn(POSITIONS // case.length, case.length, DIM, requires_grad=case.train)
    mine = our_layer(part, case.kind)
    peer = None if name == OURS else PEERS[case.kind][name](part, case.length)
    layer = mine if peer is None else peer
    if peer is not None:
        peer.train(case.train)
        with torch.no_grad():
            torch.testing.assert_close(
                peer(x), mine(x), rtol=1e-3, atol=1e-4, msg=lambda why: f"{name} is not the same layer: {why}"
            )
    gradient = torch.randn(x.shape)

    def work() -> float:
        with torch.set_grad_enabled(case.train):
            y = layer(x)
            if case.train:
                y.backward(gradient)
                x.grad = None
        return float(POSITIONS)

    return work


def cases(quick: bool) -> list[Case]:
    lengths = (64, 1024) if quick else (64, 256, 1024, 4096)
    return [Case(kind, length, train) for kind in PEERS for length in lengths for train in (False, True)]


def measure(case: Case, rounds: int, cpu: bool) -> list[Row]:
    names = [OURS, *PEERS[case.kind]]
    if cpu:
        return interleave(
            {name: variant(case, name, 1) for name in names}, rounds, case.cost, lone, time.process_time
        )
    return interleave(
        {name: apart(variant, case, name, 2, home=name) for name in names}, rounds, case.cost, probe
    )


def main() -> None:
    parser = benchmark_options(__doc__, "lengths 64 and 1024, few rounds")
    options = parser.parse_args()
    for case in cases(options.quick):
        if options.only not in case.title:
            continue
        rows = measure(case, options.rounds or (5 if options.quick else 15), options.cpu)
        if options.json:
            print(record(case.title, rows), flush=True)
        else:
            show(case.title, rows, "pos/s")


if __name__ == "__main__":
    main()

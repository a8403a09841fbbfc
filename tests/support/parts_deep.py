"""Cases of the five promises: deep recurrent stacks and residual paths."""

from __future__ import annotations

from functools import partial

from seqloom.nn import (
    GRU,
    RNN,
    AttentiveRNN,
    Chain,
    Experts,
    FastForward,
    FeedForward,
    MixFeatures,
    Residual,
    SeparateBiRNN,
)
from support.case import SIZE, Case, layer

experts = partial(Experts, experts=3, top_k=2, expert=partial(FeedForward, dim=3))

CASES: list[Case] = [
    layer(partial(FastForward, dim=3, layers=2)),
    layer(partial(FastForward, dim=2, layers=3, direction="both")),
    layer(partial(FastForward, layers=1, cell=GRU)),
    layer(partial(SeparateBiRNN, layers=2)),
    layer(partial(SeparateBiRNN, layers=3, cell=GRU, residual=False)),
    layer(partial(Residual, layer=RNN)),
    layer(partial(Residual, layer=partial(RNN, dim=SIZE // 2, direction="both"))),
    layer(partial(Residual, layer=partial(MixFeatures, network=experts))),
    layer(partial(Chain, layers=[partial(AttentiveRNN, dim=3), partial(FastForward, dim=2, layers=2)]), True),
]

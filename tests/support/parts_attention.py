"""Cases of the five promises: attention, positions and decoders that attend to a memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from seqloom.models import Seq2Seq
from seqloom.nn import (
    RNN,
    Additive,
    ALiBi,
    AttentiveRNN,
    Bilinear,
    Concatenated,
    CoverageAttention,
    CrossAttention,
    Dot,
    FeedForward,
    GatedAttention,
    GlobalAttention,
    Hard,
    NoPosition,
    PointerRNN,
    Raw,
    RegionRNN,
    RMSNorm,
    RNNDecoder,
    Rotary,
    SelfAttention,
    Sinusoidal,
    SwiGLU,
    Transformer,
)
from seqloom.nn.cells import Vanilla
from support.case import HEADS, MEMORY, SIZE, Case, layer, named


def looks(make: Callable, heads: int = HEADS, position: Callable = NoPosition, size: int = SIZE) -> Case:
    return Case(
        f"{named(make)}, {heads} heads, {named(position)}",
        lambda: make(size, heads, position=position(size, heads)),
    )


small = partial(Transformer, layers=1, heads=HEADS, feedforward=partial(FeedForward, dim=5))
halves = partial(Rotary, layout="halves")
llama = partial(
    Transformer,
    layers=2,
    heads=4,
    position=partial(Rotary, layout="halves", base=500.0),
    norm=RMSNorm,
    feedforward=partial(SwiGLU, dim=3),
    bias=False,
    attention=partial(SelfAttention, kv_heads=2, key_dim=2),
)

CASES: list[Case] = [
    looks(partial(SelfAttention, kv_heads=1, key_dim=2), 4, halves),
    looks(partial(SelfAttention, kv_heads=2, key_dim=3), 4),
    looks(partial(SelfAttention, kv_heads=2, causal=False), 4, ALiBi),
    looks(partial(SelfAttention, key_dim=1, score=Bilinear)),
    looks(partial(SelfAttention, score=Bilinear), position=partial(Rotary, theta=0.7)),
    looks(partial(SelfAttention, score=Dot, weights=Raw), position=ALiBi),
    looks(partial(SelfAttention, window=2)),
    looks(partial(SelfAttention, window=3), position=ALiBi),
    looks(partial(SelfAttention, window=2, causal=False), position=partial(ALiBi, slope=0.3)),
    Case(
        "CrossAttention(key, groups)",
        lambda: CrossAttention(SIZE, MEMORY, 4, key_dim=2, kv_heads=2),
        memory=True,
    ),
    Case(
        "CrossAttention(Bilinear, Raw)",
        lambda: CrossAttention(SIZE, MEMORY, HEADS, Bilinear, weights=Raw),
        memory=True,
    ),
    layer(llama),
    layer(
        partial(
            small,
            position=partial(Sinusoidal, layout="halves", base=50.0),
            attention=partial(SelfAttention, window=3),
        )
    ),
    layer(
        partial(
            small,
            position=partial(Sinusoidal, first=1),
            feedforward=partial(FeedForward, dim=5, activation="sigmoid", bias=False),
        )
    ),
    layer(
        partial(small, position=partial(Concatenated, width=2), cross=partial(CrossAttention, key_dim=1)),
        True,
    ),
    layer(
        partial(
            AttentiveRNN,
            dim=MEMORY,
            attention=partial(GlobalAttention, score=Dot, weights=Raw, project=False),
        ),
        True,
    ),
    layer(
        partial(
            AttentiveRNN, dim=2, layers=2, query="current", attention=partial(GlobalAttention, score=Bilinear)
        ),
        True,
    ),
    layer(partial(AttentiveRNN, query="word", init_from="first", summary=True), True),
    layer(partial(AttentiveRNN, dim=5, attention=partial(GlobalAttention, score=Bilinear, dim=3)), True),
    layer(partial(AttentiveRNN, dim=5, cell=Vanilla, attention=partial(GlobalAttention, dim=3)), True),
    layer(partial(RegionRNN, dim=5, attention=partial(GatedAttention, score=Additive, dim=3)), True),
    layer(partial(RegionRNN, layers=2), True),
    Case(
        "RegionRNN(Hard)",
        lambda: RegionRNN(SIZE, MEMORY, attention=partial(GatedAttention, weights=Hard)).eval(),
        memory=True,
    ),
    layer(partial(PointerRNN, dim=5), True),
    layer(partial(PointerRNN, dim=3, coverage=False, attention=partial(CoverageAttention, dim=2)), True),
    layer(RNNDecoder, True),
    layer(partial(RNNDecoder, dim=2, layers=2, init_from="first"), True),
    layer(partial(RNNDecoder, init_from="mean", cell=Vanilla), True),
    Case(
        "Seq2Seq(backward, thought)",
        lambda: Seq2Seq(
            7, 7, SIZE, partial(RNN, dim=3, direction="backward"), partial(RNNDecoder, init_from="first")
        ),
        ids=True,
        memory=True,
    ),
]

"""Cases of the five promises: the shapes of well-known pretrained models."""

from __future__ import annotations

from functools import partial

from seqloom.models import Encoder, LanguageModel, MaskedLM, Seq2Seq
from seqloom.nn import (
    Embedding,
    FeedForward,
    HeadTransform,
    LayerNorm,
    Learned,
    LinearScaling,
    Llama3Scaling,
    Output,
    Rotary,
    SegmentEmbedding,
    SelfAttention,
    Sinusoidal,
    Transformer,
)
from support.case import HEADS, SIZE, WORDS, Case, layer, named

norm = partial(LayerNorm, epsilon=1e-3)
small = partial(Transformer, layers=1, heads=HEADS, feedforward=partial(FeedForward, dim=5))
bert = partial(
    small,
    layers=2,
    order="post",
    norm=norm,
    position=partial(Learned, length=16),
    causal=False,
    input_norm=norm,
)
marian = partial(
    small,
    order="post",
    position=partial(Sinusoidal, layout="halves"),
    feedforward=partial(FeedForward, dim=5, activation="swish"),
)


def reads(make: partial, dim: int = SIZE) -> Case:
    return Case(named(make), lambda: make(WORDS, dim), ids=True)


CASES: list[Case] = [
    layer(
        partial(
            small,
            position=partial(Learned, length=16),
            feedforward=partial(FeedForward, dim=5, activation="gelu_tanh"),
        )
    ),
    layer(
        partial(
            small,
            position=partial(Rotary, layout="halves", base=50.0, scaling=partial(LinearScaling, factor=3.0)),
        )
    ),
    layer(
        partial(
            small,
            heads=1,
            position=partial(
                Rotary, base=500.0, scaling=partial(Llama3Scaling, factor=4.0, low=0.1, high=2.0, length=9)
            ),
        )
    ),
    layer(
        partial(
            small,
            heads=4,
            position=Rotary,
            attention=partial(SelfAttention, kv_heads=2, key_dim=2, value_dim=3),
        )
    ),
    reads(partial(Encoder, stack=bert, embedding=partial(SegmentEmbedding, separator=3))),
    reads(partial(MaskedLM, stack=bert, embedding=partial(SegmentEmbedding, separator=3, segments=3))),
    reads(
        partial(
            MaskedLM, stack=partial(bert, input_norm=None), tied=False, output=partial(Output, bias=False)
        )
    ),
    reads(partial(LanguageModel, stack=small, output=partial(Output, bias=True, head=HeadTransform))),
    Case(
        "Seq2Seq(Marian)",
        lambda: Seq2Seq(
            WORDS,
            WORDS,
            SIZE,
            partial(marian, causal=False),
            marian,
            partial(Embedding, scale=True),
            output=partial(Output, bias=True),
        ),
        ids=True,
        memory=True,
    ),
]

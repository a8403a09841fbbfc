"""Cases of the five promises: convolution, mixing and mixtures of experts."""

from __future__ import annotations

from functools import partial

from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import (
    RNN,
    ByteNet,
    Chain,
    Concatenated,
    Convolution,
    ConvS2S,
    Experts,
    FeedForward,
    Learned,
    MixAll,
    Mixer,
    MixFeatures,
    MixTokens,
    RMSNorm,
    Rotary,
    ScaledDot,
    SwiGLU,
    Transformer,
)
from support.case import HEADS, SIZE, WORDS, Case, layer, named

small = partial(FeedForward, dim=5)
whole = partial(Convolution, causal=False)
bytes_ = partial(ByteNet, sets=1, dilations=(1, 2))
gated = partial(ConvS2S, layers=2)
learned = partial(Learned, length=16)
mixer = partial(Mixer, length=8, layers=2, tokens=small, features=small)
experts = partial(Experts, experts=3, expert=small)
block = partial(Transformer, layers=1, heads=HEADS)


def language(stack) -> Case:
    return Case(f"LanguageModel({named(stack)})", lambda: LanguageModel(WORDS, SIZE, stack), ids=True)


def translate(encoder, decoder) -> Case:
    return Case(
        f"Seq2Seq({named(encoder)} → {named(decoder)})",
        lambda: Seq2Seq(WORDS, WORDS, SIZE, encoder, decoder),
        ids=True,
        memory=True,
    )


CASES: list[Case] = [
    layer(Convolution),
    layer(partial(Convolution, dim=3, kernel=2, dilation=2, bias=False)),
    layer(partial(whole, dim=3)),
    layer(partial(whole, kernel=5, dilation=2, bias=False)),
    layer(bytes_),
    layer(partial(bytes_, sets=2, kernel=2, norm=RMSNorm)),
    layer(partial(bytes_, causal=False)),
    layer(bytes_, memory=True),
    layer(gated),
    layer(partial(gated, dim=3, position=learned)),
    layer(partial(gated, causal=False, position=partial(Concatenated, width=2))),
    layer(gated, memory=True),
    layer(partial(gated, score=ScaledDot), memory=True),
    layer(partial(gated, dim=3, kernel=2, position=learned), memory=True),
    layer(MixFeatures),
    layer(partial(MixAll, length=8, network=small)),
    layer(partial(MixTokens, length=6, network=small)),
    layer(partial(mixer, length=6, norm=RMSNorm, features=partial(SwiGLU, dim=3))),
    layer(partial(block, feedforward=experts)),
    layer(
        partial(
            block,
            layers=2,
            position=Rotary,
            feedforward=partial(Experts, experts=4, top_k=1, expert=partial(SwiGLU, dim=3)),
        )
    ),
    layer(partial(block, order="post", feedforward=partial(experts, top_k=3)), memory=True),
    layer(
        partial(
            Chain,
            layers=[partial(RNN, dim=SIZE), Convolution, partial(block, feedforward=experts), MixFeatures],
        )
    ),
    layer(partial(Chain, layers=[bytes_, gated]), memory=True),
    language(bytes_),
    language(partial(block, feedforward=experts)),
    translate(partial(bytes_, causal=False), bytes_),
    translate(partial(gated, causal=False, position=learned), gated),
    translate(mixer, partial(block, feedforward=experts)),
]

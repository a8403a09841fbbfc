"""Every part and model with the contract `y, state = part(x, state, mask)`, in small sizes. To cover a new part, add a
line here or in one of the parts_….py files, and its literal form to reference.py or one of the reference_….py files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import (
    LSTM,
    RNN,
    Additive,
    ALiBi,
    AttentiveRNN,
    Block,
    Chain,
    Concatenated,
    CrossAttention,
    Dot,
    Embedding,
    FeedForward,
    GlobalAttention,
    LayerNorm,
    Learned,
    NoPosition,
    RMSNorm,
    Rotary,
    ScaledDot,
    SelfAttention,
    Sinusoidal,
    SwiGLU,
    Transformer,
)
from support import parts_attention, parts_deep, parts_local, parts_pretrained, parts_recurrent, parts_words
from support.case import HEADS, MEMORY, SIZE, WORDS, Case, layer, named


def self_attention(causal: bool, score: Callable, position: Callable) -> Case:
    name = f"SelfAttention({'causal' if causal else 'whole'}, {score.__name__}, {position.__name__})"
    return Case(name, lambda: SelfAttention(SIZE, HEADS, score, position(SIZE, HEADS), causal))


def block(order: str, norm: Callable, cross: bool) -> Case:
    def make() -> Block:
        looking = CrossAttention(SIZE, MEMORY, HEADS) if cross else None
        return Block(SelfAttention(SIZE, HEADS), looking, FeedForward(SIZE, 5), norm, order, 0.0)

    return Case(f"Block({order}, {named(norm)}{', memory' if cross else ''})", make, memory=cross)


def language(make: Callable) -> Case:
    return Case(named(make), lambda: make(WORDS, SIZE), ids=True)


def translate(make: Callable) -> Case:
    return Case(named(make), lambda: make(WORDS, WORDS, SIZE), ids=True, memory=True)


small = partial(Transformer, layers=1, heads=HEADS, feedforward=partial(FeedForward, dim=5))
code_learned = partial(Concatenated, width=2, encoding=partial(Learned, length=16))
positions = [NoPosition, Rotary, ALiBi]
codes = [Sinusoidal, partial(Learned, length=16), partial(Concatenated, width=2), code_learned]

CASES = [
    layer(partial(RNN, dim=3)),
    layer(partial(RNN, dim=3, cell=partial(LSTM, bias="none"))),
    layer(partial(RNN, dim=3, layers=2)),
    layer(partial(RNN, layers=2, residual=True)),
    layer(partial(RNN, dim=3, direction="backward")),
    layer(partial(RNN, dim=2, direction="both", layers=2)),
    layer(partial(RNN, dim=2, direction="both", layers=2, residual=True)),
    *(
        self_attention(causal, score, position)
        for causal in (True, False)
        for score in (Dot, ScaledDot, Additive)
        for position in positions
    ),
    Case("SelfAttention(no bias)", lambda: SelfAttention(SIZE, HEADS, bias=False)),
    *(
        Case(f"CrossAttention({s.__name__})", lambda s=s: CrossAttention(SIZE, MEMORY, HEADS, s), memory=True)
        for s in (Dot, ScaledDot, Additive)
    ),
    *(
        layer(partial(AttentiveRNN, dim=5, attention=partial(GlobalAttention, score=s)), True)
        for s in (Dot, ScaledDot, Additive)
    ),
    layer(partial(AttentiveRNN, layers=2, attention=partial(GlobalAttention, score=Additive, dim=2)), True),
    *(block(order, LayerNorm, cross) for order in ("pre", "post") for cross in (False, True)),
    block("pre", partial(LayerNorm, affine=False), False),
    *(layer(partial(small, position=p)) for p in positions + codes),
    *(layer(partial(small, position=p, causal=False)) for p in positions + codes),
    layer(partial(small, layers=2, order="post", norm=RMSNorm)),
    layer(
        partial(
            small,
            layers=2,
            norm=partial(LayerNorm, affine=False),
            feedforward=partial(FeedForward, dim=5, activation="relu"),
        )
    ),
    layer(
        partial(
            small, layers=2, position=Rotary, norm=RMSNorm, feedforward=partial(SwiGLU, dim=3), bias=False
        )
    ),
    layer(partial(small, score=Additive, position=ALiBi)),
    layer(
        partial(Chain, layers=[partial(RNN, dim=3), partial(RNN, dim=SIZE), partial(small, position=ALiBi)])
    ),
    layer(
        partial(Chain, layers=[partial(small, position=NoPosition), partial(RNN, residual=True)], repeat=2),
        True,
    ),
    *(
        layer(partial(small, position=p, order=o), True)
        for p, o in ((Sinusoidal, "post"), (ALiBi, "pre"), (Rotary, "pre"), (code_learned, "pre"))
    ),
    language(partial(LanguageModel, stack=partial(RNN, layers=2))),
    language(partial(LanguageModel, stack=partial(RNN, dim=3))),
    language(partial(LanguageModel, stack=partial(RNN, dim=3), tied=False)),
    language(partial(LanguageModel, stack=small, embedding=partial(Embedding, scale=True))),
    language(partial(LanguageModel, stack=partial(small, position=partial(Concatenated, width=2)))),
    language(partial(LanguageModel, stack=partial(small, position=Rotary), tied=False)),
    language(partial(LanguageModel, stack=partial(small, position=ALiBi, layers=2))),
    translate(partial(Seq2Seq, encoder=partial(small, causal=False), decoder=small)),
    translate(
        partial(
            Seq2Seq,
            encoder=partial(small, position=ALiBi, causal=False),
            decoder=partial(small, position=ALiBi),
            shared=False,
        )
    ),
    translate(
        partial(Seq2Seq, encoder=partial(RNN, dim=3, direction="both"), decoder=partial(AttentiveRNN, dim=3))
    ),
    translate(
        partial(Seq2Seq, encoder=partial(RNN, dim=3), decoder=partial(small, position=Rotary), tied=False)
    ),
    *parts_recurrent.CASES,
    *parts_attention.CASES,
    *parts_local.CASES,
    *parts_deep.CASES,
    *parts_words.CASES,
    *parts_pretrained.CASES,
]

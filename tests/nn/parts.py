"""Every part and model that keeps the contract `y, state = part(x, state, mask)`, in tiny sizes. A new part is covered by a line here
and its literal form in reference.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import (
    LSTM,
    RNN,
    Additive,
    ALiBi,
    AttentiveRNN,
    Block,
    Concatenated,
    CrossAttention,
    Dot,
    Embedding,
    FeedForward,
    LayerNorm,
    Learned,
    Memory,
    NoPosition,
    Pooling,
    RMSNorm,
    Rotary,
    ScaledDot,
    SelfAttention,
    Sinusoidal,
    State,
    SwiGLU,
    Transformer,
)

SIZE, MEMORY, WORDS, HEADS = 4, 3, 7, 2


@dataclass(frozen=True)
class Case:
    """One line of the list: how the part is made, whether it reads ids or vectors, and whether it looks at a memory."""

    name: str
    make: Callable[[], nn.Module]
    ids: bool = False
    memory: bool = False

    def build(self) -> nn.Module:
        """The part with weights large enough for every term to matter."""
        torch.manual_seed(1)
        part = self.make()
        with torch.no_grad():
            for weight in part.parameters():
                weight.copy_(torch.randn(weight.shape) * 0.5)
        return part

    def sequence(self, batch: int, length: int, size: int = SIZE) -> Tensor:
        return torch.randint(WORDS, (batch, length)) if self.ids else torch.randn(batch, length, size)

    def source(self, batch: int, length: int = 3) -> Tensor | None:
        return self.sequence(batch, length, MEMORY) if self.memory else None

    def start(self, part: nn.Module, batch: int, source: Tensor | None = None, mask: Tensor | None = None) -> State:
        if self.memory and self.ids:
            return part.start(source, mask)
        return part.start(batch, Memory(source, mask)) if self.memory else part.start(batch)

    def causal(self) -> bool:
        return getattr(self.build(), "causal", True)


def named(make: Callable) -> str:
    if not isinstance(make, partial):
        return make.__name__
    options = ", ".join(f"{key}={named(value) if callable(value) else value}" for key, value in make.keywords.items())
    return f"{make.func.__name__}({options})"



def self_attention(causal: bool, score: Callable, position: Callable) -> Case:
    name = f"SelfAttention({'causal' if causal else 'whole'}, {score.__name__}, {position.__name__})"
    return Case(name, lambda: SelfAttention(SIZE, HEADS, score, position(SIZE, HEADS), causal))


def layer(make: Callable, memory: bool = False) -> Case:
    return Case(named(make), lambda: make(SIZE, memory=MEMORY) if memory else make(SIZE), memory=memory)


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
code_learned = partial(Concatenated, width=2, code=partial(Learned, length=16))
positions = [NoPosition, Rotary, ALiBi]
codes = [Sinusoidal, partial(Learned, length=16), partial(Concatenated, width=2), code_learned]

CASES = [
    layer(partial(RNN, dim=3)),
    layer(partial(RNN, dim=3, cell=partial(LSTM, bias=False))),
    layer(partial(RNN, dim=3, layers=2)),
    layer(partial(RNN, layers=2, residual=True)),
    layer(partial(RNN, dim=3, direction="backward")),
    layer(partial(RNN, dim=2, direction="both", layers=2)),
    layer(partial(RNN, dim=2, direction="both", layers=2, residual=True)),
    *(self_attention(causal, score, position) for causal in (True, False) for score in (Dot, ScaledDot, Additive) for position in positions),
    Case("SelfAttention(no bias)", lambda: SelfAttention(SIZE, HEADS, bias=False)),
    *(Case(f"CrossAttention({s.__name__})", lambda s=s: CrossAttention(SIZE, MEMORY, HEADS, s), memory=True) for s in (Dot, ScaledDot, Additive)),
    *(layer(partial(AttentiveRNN, dim=5, attention=partial(Pooling, score=s)), True) for s in (Dot, ScaledDot, Additive)),
    layer(partial(AttentiveRNN, layers=2, attention=partial(Pooling, score=Additive, dim=2)), True),
    *(block(order, LayerNorm, cross) for order in ("pre", "post") for cross in (False, True)),
    block("pre", partial(LayerNorm, affine=False), False),
    *(layer(partial(small, position=p)) for p in positions + codes),
    *(layer(partial(small, position=p, causal=False)) for p in positions + codes),
    layer(partial(small, layers=2, order="post", norm=RMSNorm)),
    layer(partial(small, layers=2, norm=partial(LayerNorm, affine=False), feedforward=partial(FeedForward, dim=5, activation="relu"))),
    layer(partial(small, layers=2, position=Rotary, norm=RMSNorm, feedforward=partial(SwiGLU, dim=3), bias=False)),
    layer(partial(small, score=Additive, position=ALiBi)),
    *(layer(partial(small, position=p, order=o), True) for p, o in ((Sinusoidal, "post"), (ALiBi, "pre"), (Rotary, "pre"), (code_learned, "pre"))),
    language(partial(LanguageModel, stack=partial(RNN, layers=2))),
    language(partial(LanguageModel, stack=partial(RNN, dim=3))),
    language(partial(LanguageModel, stack=partial(RNN, dim=3), tied=False)),
    language(partial(LanguageModel, stack=small, embedding=partial(Embedding, scale=True))),
    language(partial(LanguageModel, stack=partial(small, position=partial(Concatenated, width=2)))),
    language(partial(LanguageModel, stack=partial(small, position=Rotary), tied=False)),
    language(partial(LanguageModel, stack=partial(small, position=ALiBi, layers=2))),
    translate(partial(Seq2Seq, encoder=partial(small, causal=False), decoder=small)),
    translate(partial(Seq2Seq, encoder=partial(small, position=ALiBi, causal=False), decoder=partial(small, position=ALiBi), shared=False)),
    translate(partial(Seq2Seq, encoder=partial(RNN, dim=3, direction="both"), decoder=partial(AttentiveRNN, dim=3))),
    translate(partial(Seq2Seq, encoder=partial(RNN, dim=3), decoder=partial(small, position=Rotary), tied=False)),
]

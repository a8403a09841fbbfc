"""Checks the promises of a user-defined part: `for row in check_part(MyCell): print(row)`.

A cell is checked unrolled in an RNN, a score in self-attention, a position, a norm or a feed-forward part in a
Transformer, a layer by itself; all in small sizes and double precision, with random weights large enough for every term
to matter. The tests of seqloom check more promises for the built-in parts. Left out: speed, and whether the part learns
anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from seqloom.errors import ConfigError
from seqloom.fused.dispatch import plain
from seqloom.nn import (
    FFN,
    RNN,
    Cell,
    Factory,
    FeedForward,
    Layer,
    Memory,
    Norm,
    Position,
    Score,
    SelfAttention,
    Transformer,
)

SIZE = 4
HEADS = 2
MEMORY = 3
MASK = torch.tensor(
    [[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0]], dtype=torch.bool
)
# errors of the user's part, which a check reports as a failure
PART_ERRORS = (
    ValueError,
    TypeError,
    RuntimeError,
    AttributeError,
    IndexError,
    KeyError,
    NotImplementedError,
)
Verdict = tuple[bool | None, str]


class CheckResult(NamedTuple):
    """Whether a promise holds; `passed` is None if it does not apply."""

    promise: str
    passed: bool | None
    reason: str = ""

    def __str__(self) -> str:
        sign = {True: "✓", False: "✗", None: "–"}[self.passed]
        return f"{sign} {self.promise}{f': {self.reason}' if self.reason else ''}"


def check_part(
    make: Factory[nn.Module], equation: Callable[..., Tensor] | None = None, seed: int = 0
) -> list[CheckResult]:
    """Which promises a part keeps. `make` is its class, or a `partial` with options.

    `equation` computes the part's equation literally: for a cell or a layer `equation(part, x)` maps x (T, size) to
    (T, dim), for a score `equation(part, q, k)` returns a number, for a norm or a feed-forward part
    `equation(part, x)` maps x (size,) to (size,).
    """
    with double_precision(seed):
        smallest_layer(make)  # raises if the part cannot be built at all
    checks: dict[str, Callable[[PartUnderTest], Verdict]] = {
        "equation": partial(check_equation, literal=equation),
        "gradient": check_gradient,
        "whole = steps": check_steps,
        "never looks ahead": check_causal,
        "padding changes nothing": check_padding,
        "fast = plain": check_fused,
    }
    results: list[CheckResult] = []
    for promise, check in checks.items():
        with double_precision(seed):
            try:
                passed, reason = check(PartUnderTest(*smallest_layer(make)))
                results.append(CheckResult(promise, passed, reason))
            except PART_ERRORS as error:
                lines = str(error).strip().splitlines() or [""]
                results.append(CheckResult(promise, False, f"{type(error).__name__}: {lines[0]}"))
    return results


@contextmanager
def double_precision(seed: int) -> Iterator[None]:
    """Sets double precision and the seed, and restores the caller's settings and random state afterwards."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_default_dtype(dtype)


def smallest_layer(make: Factory[nn.Module]) -> tuple[Layer, nn.Module]:
    """The smallest layer that the part works in, and the part."""
    cls = make.func if isinstance(make, partial) else make
    if not inspect.isclass(cls):
        raise ConfigError(f"{cls!r} is not a part class; pass a class, or a partial of one")
    layer: Layer
    part: nn.Module
    if issubclass(cls, Cell):
        rnn = RNN(SIZE, 3, cell=cast(Factory[Cell], make))
        layer, part = rnn, rnn.unrolled_cells[0][0].cell
    elif issubclass(cls, Score):
        attention = SelfAttention(SIZE, HEADS, score=cast(Factory[Score], make))
        layer, part = attention, attention.score
    elif issubclass(cls, Position | Norm | FFN):
        layer = smallest_transformer(cls, make)
        part = next(module for module in layer.modules() if isinstance(module, cls))
    elif issubclass(cls, Layer):
        make_layer = cast(Factory[Layer], make)
        layer = make_layer(SIZE, memory=MEMORY) if needs_memory(make) else make_layer(SIZE)
        part = layer
    else:
        raise ConfigError(
            f"{cls.__name__} is not a Cell, Score, Position, Norm, FFN or Layer; derive it from one of them"
        )
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.5)
    return layer.eval(), part


def smallest_transformer(cls: type[nn.Module], make: Factory[nn.Module]) -> Transformer:
    """One block with the part as its position, norm or feed-forward part."""
    small = partial(Transformer, SIZE, layers=1, heads=HEADS)
    feedforward = partial(FeedForward, dim=5)
    if issubclass(cls, Position):
        return small(feedforward=feedforward, position=cast(Factory[Position], make))
    if issubclass(cls, Norm):
        return small(feedforward=feedforward, norm=cast(Factory[Norm], make))
    return small(feedforward=cast(Factory[FFN], make))


def needs_memory(make: Factory[nn.Module]) -> bool:
    option = inspect.signature(make).parameters.get("memory")
    return option is not None and option.default is option.empty


class PartUnderTest(NamedTuple):
    """A layer under test, and the user's part in it."""

    layer: Layer
    part: nn.Module

    @property
    def is_decoder(self) -> bool:
        return needs_memory(type(self.layer))

    def source(self, rows: int) -> Tensor | None:
        """The encoder's outputs for a decoder, else None."""
        return torch.randn(rows, 3, MEMORY) if self.is_decoder else None

    def start(self, source: Tensor | None, rows: int) -> Any:
        return self.layer.start(rows) if source is None else self.layer.start(rows, Memory(source, None))

    def outputs(self, x: Tensor, source: Tensor | None, mask: Tensor | None = None) -> Tensor:
        """The outputs for the full sequence in one call."""
        return self.layer(x, self.start(source, len(x)), mask)[0]


def compare(actual: Tensor, expected: Tensor, name: str) -> Verdict:
    """Whether two tensors agree, and the largest difference if they do not."""
    if actual.shape != expected.shape:
        return False, f"{name}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if torch.allclose(actual, expected, rtol=1e-8, atol=1e-8):
        return True, ""
    return False, f"{name}: differs by {float((actual - expected).detach().abs().max()):.2g}"


def check_equation(subject: PartUnderTest, literal: Callable[..., Tensor] | None) -> Verdict:
    if literal is None:
        return None, "no literal form was passed"
    layer, part = subject
    if isinstance(part, Position) or subject.is_decoder:
        return None, (
            "a literal form is compared for cells, scores, norms, feed-forward parts and layers without a memory"
        )
    if isinstance(part, Score):
        q = torch.randn(1, 1, 2, part.dim)
        k = torch.randn(1, 1, 3, part.dim)
        rows = [[torch.as_tensor(literal(part, query, key)) for key in k[0, 0]] for query in q[0, 0]]
        return compare(part(q, k)[0, 0], torch.stack([torch.stack(row) for row in rows]), "scores")
    x = torch.randn(2, 5, SIZE)
    if isinstance(part, Norm | FFN):
        rows = [[literal(part, token) for token in sequence] for sequence in x]
        return compare(part(x), torch.stack([torch.stack(row) for row in rows]), "outputs")
    return compare(layer(x)[0], torch.stack([literal(part, sequence) for sequence in x]), "outputs")


def check_gradient(subject: PartUnderTest) -> Verdict:
    """The gradients of inputs, memory and parameters agree with finite differences, with padding."""
    layer = subject.layer
    mask = MASK[:3, :3]
    x = torch.randn(3, 3, SIZE)
    source = subject.source(3)
    names = list(dict(layer.named_parameters()))

    def function(x: Tensor, *values: Tensor) -> Tensor:
        memory = None if source is None else values[0]
        weights = values if source is None else values[1:]
        parameters = {f"layer.{name}": value for name, value in zip(names, weights, strict=True)}
        return functional_call(StartAndCall(layer), parameters, (x, memory, mask))[mask]

    weights = [weight.detach() for weight in layer.parameters()]
    inputs = [x, *weights] if source is None else [x, source, *weights]
    inputs = [tensor.clone().requires_grad_() for tensor in inputs]
    return bool(torch.autograd.gradcheck(function, inputs, atol=1e-6, fast_mode=True)), ""


class StartAndCall(nn.Module):
    """Starts and calls a layer, so that everything the outputs depend on is an argument."""

    def __init__(self, layer: Layer):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, source: Tensor | None, mask: Tensor) -> Tensor:
        return PartUnderTest(self.layer, self.layer).outputs(x, source, mask)


def check_steps(subject: PartUnderTest) -> Verdict:
    """One call gives the same outputs as several calls, however the sequence is split."""
    if not subject.layer.causal:
        return None, "the layer is not causal and takes the full sequence in one call"
    x = torch.randn(4, 6, SIZE)
    source = subject.source(4)
    expected = subject.outputs(x, source, MASK)
    for lengths in ([1] * 6, [2, 0, 3, 1]):
        state = subject.start(source, 4)
        pieces: list[Tensor] = []
        begin = 0
        for length in lengths:
            end = begin + length
            y, state = subject.layer(x[:, begin:end], state, MASK[:, begin:end])
            pieces.append(y)
            begin = end
        name = f"in pieces of {', '.join(map(str, lengths))}"
        verdict = compare(torch.cat(pieces, 1)[MASK], expected[MASK], name)
        if not verdict[0]:
            return verdict
    return True, ""


def check_causal(subject: PartUnderTest) -> Verdict:
    """Inputs from position t on do not change the outputs before t."""
    if not subject.layer.causal:
        return None, "the layer is not causal"
    x = torch.randn(2, 5, SIZE)
    other = torch.randn(2, 5, SIZE)
    source = subject.source(2)
    y = subject.outputs(x, source)
    for t in range(1, 5):
        changed = subject.outputs(torch.cat([x[:, :t], other[:, t:]], 1), source)
        verdict = compare(changed[:, :t], y[:, :t], f"the outputs before position {t}")
        if not verdict[0]:
            return verdict
    return True, ""


def check_padding(subject: PartUnderTest) -> Verdict:
    """A sentence without padding gives the same outputs, now and in the next call, as the same sentence with padding of
    any value."""
    x = torch.randn(len(MASK), 6, SIZE)
    source = subject.source(len(MASK))
    next_x = torch.randn(len(MASK), 1, SIZE)
    y, state = subject.layer(x, subject.start(source, len(x)), MASK)
    next_y = subject.layer(next_x, state)[0] if subject.layer.causal else None
    for row, mask in enumerate(MASK):
        rows = slice(row, row + 1)
        start = subject.start(None if source is None else source[rows], 1)
        expected, state = subject.layer(x[rows, mask], start)
        bits = "".join("1" if real else "0" for real in mask)
        verdict = compare(y[row, mask], expected[0], f"row {row} with mask {bits}")
        if not verdict[0]:
            return verdict
        if next_y is not None:
            expected, _ = subject.layer(next_x[rows], state)
            verdict = compare(next_y[rows], expected, f"the call after row {row}")
            if not verdict[0]:
                return verdict
    return True, ""


def check_fused(subject: PartUnderTest) -> Verdict:
    """The fast form equals the plain form, in outputs and gradients."""
    x = torch.randn(4, 6, SIZE)
    source = subject.source(4)

    def run() -> list[Tensor]:
        """The outputs, and the gradients of the input and of each parameter."""
        leaf = x.clone().requires_grad_()
        y = subject.outputs(leaf, source, MASK)[MASK]
        loss = (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum()
        leaves = [leaf, *subject.layer.parameters()]
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        return [y.detach(), *gradients]

    fast = run()
    with plain():
        expected = run()
    for index, (a, b) in enumerate(zip(fast, expected, strict=True)):
        verdict = compare(a, b, "gradients" if index else "outputs")
        if not verdict[0]:
            return verdict
    return True, ""

"""The promises that every part keeps, checked for a part of your own: `for row in check(MyCell): print(row)`.

A cell is checked unrolled in an RNN, a score in self-attention, a position, a norm or a feed-forward part in a Transformer, a layer by itself; all
in tiny sizes and double precision, with random weights large enough for every term to matter. seqloom's own parts are held to a longer
list, in its tests. Left out: speed, and whether the part learns anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

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

SIZE, HEADS, MEMORY = 4, 2, 3
MASK = torch.tensor(
    [[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0]], dtype=torch.bool
)


class CheckResult(NamedTuple):
    """Whether a promise holds; None if it does not apply."""

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

    `equation` is its literal form, as plain as can be: for a cell or a layer `equation(part, x)` with x (T, size) → (T, dim), for a
    score `equation(part, q, k)` → a number, for a norm or a feed-forward part `equation(part, x)` with x (size,) → (size,).
    """
    with double_precision(seed):
        smallest_layer(make)  # what cannot be made at all is the caller's mistake, and raises
    found = []
    promises = (
        ("equation", partial(check_equation, literal=equation)),
        ("gradient", check_gradient),
        ("whole = steps", check_steps),
    )
    for name, test in (
        *promises,
        ("never looks ahead", check_causal),
        ("padding changes nothing", check_padding),
        ("fast = plain", check_fused),
    ):
        with double_precision(seed):
            try:
                layer, part = smallest_layer(make)
                found.append(CheckResult(name, *test(PartUnderTest(layer, part))))
            except (
                ValueError,
                TypeError,
                RuntimeError,
                AttributeError,
                IndexError,
                KeyError,
                NotImplementedError,
            ) as error:
                said = str(error).strip().splitlines() or [""]
                found.append(CheckResult(name, False, f"{type(error).__name__}: {said[0]}"))
    return found


@contextmanager
def double_precision(seed: int) -> Iterator[None]:
    """Double precision and a seed of its own; the caller's settings and random numbers stay as they were."""
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
    kind = make.func if isinstance(make, partial) else make
    if not inspect.isclass(kind):
        raise ValueError(f"{kind!r} is no class of a part; hand over a class, or a partial of one")
    small = partial(Transformer, SIZE, layers=1, heads=HEADS, feedforward=partial(FeedForward, dim=5))
    if issubclass(kind, Cell):
        layer = RNN(SIZE, 3, cell=make)
        part = layer.layers[0][0].cell
    elif issubclass(kind, Score):
        layer = SelfAttention(SIZE, HEADS, score=make)
        part = layer.score
    elif issubclass(kind, Position | Norm | FFN):
        option = (
            "position" if issubclass(kind, Position) else "norm" if issubclass(kind, Norm) else "feedforward"
        )
        layer = small(**{option: make})
        part = next(module for module in layer.modules() if isinstance(module, kind))
    elif issubclass(kind, Layer):
        layer = part = make(SIZE, memory=MEMORY) if needs_memory(make) else make(SIZE)
    else:
        raise ValueError(
            f"{kind.__name__} is no Cell, Score, Position, Norm, Forward or Layer; derive it from one of them"
        )
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.5)
    return layer.eval(), part


def needs_memory(make: Factory[nn.Module]) -> bool:
    option = inspect.signature(make).parameters.get("memory")
    return option is not None and option.default is option.empty


class PartUnderTest(NamedTuple):
    """A layer under test and the part in it that is the user's."""

    layer: Layer
    part: nn.Module

    @property
    def looks(self) -> bool:
        return needs_memory(type(self.layer))

    def source(self, rows: int) -> Tensor | None:
        return torch.randn(rows, 3, MEMORY) if self.looks else None

    def start(self, source: Tensor | None, rows: int) -> Any:
        return self.layer.start(rows) if source is None else self.layer.start(rows, Memory(source, None))

    def whole(self, x: Tensor, source: Tensor | None, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, self.start(source, len(x)), mask)[0]


Verdict = tuple[bool | None, str]


def same(a: Tensor, b: Tensor, where: str) -> Verdict:
    """Whether two tensors agree, and by how much they do not."""
    if a.shape != b.shape:
        return False, f"{where}: shape {tuple(a.shape)} against {tuple(b.shape)}"
    if torch.allclose(a, b, rtol=1e-8, atol=1e-8):
        return True, ""
    return False, f"{where}: differs by {float((a - b).detach().abs().max()):.2g}"


def check_equation(subject: PartUnderTest, literal: Callable[..., Tensor] | None) -> Verdict:
    if literal is None:
        return None, "no literal form given"
    layer, part = subject
    if isinstance(part, Position) or subject.looks:
        return (
            None,
            "a literal form is compared for cells, scores, norms, feed-forward parts and layers without a memory",
        )
    if isinstance(part, Score):
        q, k = torch.randn(1, 1, 2, part.dim), torch.randn(1, 1, 3, part.dim)
        expected = torch.stack(
            [torch.stack([torch.as_tensor(literal(part, a, b)) for b in k[0, 0]]) for a in q[0, 0]]
        )
        return same(part(q, k)[0, 0], expected, "scores")
    x = torch.randn(2, 5, SIZE)
    if isinstance(part, Norm | FFN):
        return same(
            part(x), torch.stack([torch.stack([literal(part, one) for one in row]) for row in x]), "outputs"
        )
    return same(layer(x)[0], torch.stack([literal(part, row) for row in x]), "outputs")


def check_gradient(subject: PartUnderTest) -> Verdict:
    """Finite differences agree, for inputs, memory and parameters, with padding."""
    layer, mask = subject.layer, MASK[:3, :3]
    x, source, names = torch.randn(3, 3, SIZE), subject.source(3), list(dict(layer.named_parameters()))

    def function(x: Tensor, source: Tensor | None, *values: Tensor) -> Tensor:
        whole = StartAndCall(layer)
        there = {f"layer.{name}": value for name, value in zip(names, values, strict=True)}
        return functional_call(whole, there, (x, source, mask))[mask]

    reals = [x, source, *(weight.detach() for weight in layer.parameters())]
    reals = [None if real is None else real.clone().requires_grad_() for real in reals]
    return bool(torch.autograd.gradcheck(function, reals, atol=1e-6, fast_mode=True)), ""


class StartAndCall(nn.Module):
    """Start and call together, so that all that the outputs depend on is an argument."""

    def __init__(self, layer: Layer):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, source: Tensor | None, mask: Tensor) -> Tensor:
        return PartUnderTest(self.layer, self.layer).whole(x, source, mask)


def check_steps(subject: PartUnderTest) -> Verdict:
    """One call = call after call, in the outputs and in what comes after."""
    if not subject.layer.causal:
        return None, "it takes a sequence whole"
    x, source, mask = torch.randn(4, 6, SIZE), subject.source(4), MASK
    expected = subject.whole(x, source, mask)
    for cuts in ([1] * 6, [2, 0, 3, 1]):
        state, pieces, begin = subject.start(source, 4), [], 0
        for size in cuts:
            y, state = subject.layer(x[:, begin : begin + size], state, mask[:, begin : begin + size])
            pieces.append(y)
            begin += size
        verdict = same(
            torch.cat(pieces, 1)[mask], expected[mask], f"in pieces of {', '.join(map(str, cuts))}"
        )
        if not verdict[0]:
            return verdict
    return True, ""


def check_causal(subject: PartUnderTest) -> Verdict:
    """What comes after t changes nothing up to t."""
    if not subject.layer.causal:
        return None, "it is not causal"
    x, other, source = torch.randn(2, 5, SIZE), torch.randn(2, 5, SIZE), subject.source(2)
    y = subject.whole(x, source)
    for t in range(1, 5):
        changed = subject.whole(torch.cat([x[:, :t], other[:, t:]], 1), source)
        verdict = same(changed[:, :t], y[:, :t], f"the outputs before position {t}")
        if not verdict[0]:
            return verdict
    return True, ""


def check_padding(subject: PartUnderTest) -> Verdict:
    """A sentence alone = the same sentence among padding that holds anything, and so is what comes next."""
    x, source, more = (
        torch.randn(len(MASK), 6, SIZE),
        subject.source(len(MASK)),
        torch.randn(len(MASK), 1, SIZE),
    )
    y, state = subject.layer(x, subject.start(source, len(x)), MASK)
    after = subject.layer(more, state)[0] if subject.layer.causal else None
    for row, real in enumerate(MASK):
        one = slice(row, row + 1)
        alone, state = subject.layer(x[one, real], subject.start(None if source is None else source[one], 1))
        verdicts = [
            same(y[row, real], alone[0], f"row {row} with mask {''.join('1' if r else '0' for r in real)}")
        ]
        if after is not None:
            verdicts.append(
                same(after[one], subject.layer(more[one], state)[0], f"what comes after row {row}")
            )
        for verdict in verdicts:
            if not verdict[0]:
                return verdict
    return True, ""


def check_fused(subject: PartUnderTest) -> Verdict:
    """The fast form equals the plain one, in outputs and gradients."""
    x, source = torch.randn(4, 6, SIZE), subject.source(4)

    def run() -> tuple[Tensor, list[Tensor]]:
        read = x.clone().requires_grad_()
        y = subject.whole(read, source, MASK)[MASK]
        weights = torch.linspace(-1, 1, y.numel()).view(y.shape)
        wanted = [read, *subject.layer.parameters()]
        return y.detach(), list(
            torch.autograd.grad((y * weights).sum(), wanted, allow_unused=True, materialize_grads=True)
        )

    y, gradients = run()
    with plain():
        y_plain, gradients_plain = run()
    for a, b, where in [
        (y, y_plain, "outputs"),
        *((a, b, "gradients") for a, b in zip(gradients, gradients_plain, strict=True)),
    ]:
        verdict = same(a, b, where)
        if not verdict[0]:
            return verdict
    return True, ""

"""What happens in one run of a model, for its trace: the named values, and the inputs and outputs of every part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.inspect.trace_steps import FLOAT_ERROR, Operand, Step
from seqloom.nn.capture import capture

Kind = TypeVar("Kind", bound=nn.Module)


class Call(NamedTuple):
    """One call of a part: its arguments in order, and the first tensor that it returned."""

    arguments: tuple[Any, ...]
    output: Tensor | None


@dataclass
class RunLog:
    """The values and calls of one run, of a batch of one text, and the steps that are derived from them."""

    model: nn.Module
    tokens: tuple[str, ...]
    source: tuple[str, ...]
    calls: dict[str, list[Call]] = field(default_factory=dict)
    table: dict[str, Tensor] = field(default_factory=dict)  # the captured values by name
    axes: dict[str, str] = field(default_factory=dict)  # of the captured values
    names: dict[int, str] = field(default_factory=dict)  # of tensors
    between: dict[int, tuple[Tensor, str]] = field(default_factory=dict)  # tensors that a step explains
    reach: dict[str, float] = field(default_factory=dict)  # of steps that the model did not record

    def part(self, path: str) -> nn.Module:
        return self.model.get_submodule(path)

    def values(self, name: str) -> np.ndarray:
        """A captured value without its batch axis, in double precision."""
        if self.axes[name].startswith("N"):  # the tokens of all texts
            return self.table[name].detach().double().numpy()
        return array(self.table[name])

    def has(self, name: str) -> bool:
        return name in self.table

    def name_of(self, tensor: Tensor) -> str | None:
        """The name of the captured value that this tensor is, or equals."""
        if id(tensor) in self.between:
            return self.between[id(tensor)][1]
        found = self.names.get(id(tensor))
        if found is not None:
            return found
        for name, value in self.table.items():
            if value.shape == tensor.shape and torch.equal(value, tensor):
                return name
        return None

    def positions(self, length: int, side: str) -> str:
        """The letter of an axis: t if it has a place for each token."""
        return "t" if length == len(self.source if side == "source" else self.tokens) else "n"


def array(tensor: Tensor) -> np.ndarray:
    """A value of a batch of one text, without the batch axis."""
    return tensor.detach().double()[0].numpy()


def weights_of(module: nn.Module) -> tuple[np.ndarray, np.ndarray | None] | None:
    """The matrix and the bias of a plain linear map."""
    if not isinstance(module, nn.Linear):
        return None
    bias = None if module.bias is None else module.bias.detach().double().numpy()
    return module.weight.detach().double().numpy(), bias


@dataclass(frozen=True)
class Place:
    """One recorded value of one part, of which a derivation makes steps."""

    log: RunLog
    path: str
    part: nn.Module
    value: str  # its name in the part
    full: str  # its name in the model
    count: int  # which call of the part
    side: str

    def parent(self, kind: type[Kind], path: str | None = None) -> tuple[str, Kind] | None:
        """The nearest part around this one that is of a kind, with its path."""
        path = (self.path if path is None else path).rpartition(".")[0]
        while path:
            found = self.log.part(path)
            if isinstance(found, kind):
                return path, found
            path = path.rpartition(".")[0]
        return None

    def sibling(self, name: str) -> str:
        """The full name of another value of this part."""
        count = f"#{self.count + 1}" if self.count else ""
        return ".".join(filter(None, (self.path, name))) + count

    def calls(self, path: str | None = None) -> list[Call]:
        return self.log.calls.get(self.path if path is None else path, [])

    def argument(self, index: int = 0, path: str | None = None) -> Tensor | None:
        """An argument of the call that computed this value."""
        calls = self.calls(path)
        if len(calls) <= self.count:
            return None
        arguments = calls[self.count].arguments
        found = arguments[index] if index < len(arguments) else None
        return found if isinstance(found, Tensor) else None

    def recorded(self, name: str, axes: str) -> Operand:
        """Another recorded value as an operand."""
        return Operand(name, axes, self.log.values(name))

    def own(self, name: str, axes: str) -> Operand:
        """Another value of this part as an operand."""
        return self.recorded(self.sibling(name), axes)

    def operand(self, tensor: Tensor, axes: str, fallback: str) -> Operand:
        """A tensor as an operand, under the name of the recorded value that it is."""
        return Operand(self.log.name_of(tensor) or fallback, axes, array(tensor))

    def step(
        self,
        formula: str,
        axes: str,
        finish: str,
        operands: Mapping[str, Operand],
        *,
        term: str = "",
        over: str = "",
        between: str = "",
        labels: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Step:
        """The step of this value, or of one `between` this value and its operands, which is not recorded."""
        values = np.zeros(0) if between else self.log.values(self.full)
        name = f"{self.full}.{between}" if between else self.full
        part = type(self.part).__name__
        made = Step(
            name,
            part,
            formula,
            axes,
            values,
            not between,
            self.side,
            term,
            over,
            finish,
            operands,
            labels or {},
            noise=FLOAT_ERROR * max(self.log.reach.get(one.name, 0.0) for one in operands.values()),
        ).checked()
        if between:
            self.log.reach[name] = made.reach
        return made

    def linear(
        self, module: nn.Module, x: Operand, formula: str, axes: str, between: str = "", finish: str = ""
    ) -> Step | None:
        """y = W x + b; x has the axes of y but for the last letter, which is j."""
        found = weights_of(module)
        if found is None:
            return None
        matrix, bias = found
        operands = {"W": Operand("W", axes[-1] + "j", matrix), "x": x}
        if bias is not None:
            operands["b"] = Operand("b", axes[-1], bias)
        total = "total" if bias is None else "total + b"
        return self.step(
            formula,
            axes,
            finish.replace("total", f"({total})") if finish else total,
            operands,
            term="W * x",
            over="j",
            between=between,
        )


Derivation = Callable[[Place], list[Step] | None]


def linear_steps(place: Place, x: Tensor) -> list[Step]:
    """The step of an input that a linear layer has made, such as the projection before the output layer."""
    for path, calls in place.log.calls.items():
        module = place.log.part(path)
        if not isinstance(module, nn.Linear):
            continue
        for call in calls:
            if call.output is x and isinstance(call.arguments[0], Tensor) and x.dim() == 3:
                letter = place.log.positions(x.shape[1], place.side)
                inner = place.operand(call.arguments[0], f"{letter}j", "x")
                step = place.linear(module, inner, "W x + b", f"{letter}i", path.rpartition(".")[2])
                if step is not None:
                    place.log.between[id(x)] = x, step.name
                    return [step]
    return []


_log: ContextVar[RunLog | None] = ContextVar("trace_log", default=None)


@contextmanager
def logged(model: nn.Module, tokens: tuple[str, ...], source: tuple[str, ...]) -> Iterator[RunLog]:
    """Inside, one run of the model is logged. Other threads that use the model are not."""
    with capture(model) as captured:
        log = RunLog(model, tokens, source)
        handles = []
        for path, module in model.named_modules():

            def after(
                _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, path: str = path
            ) -> None:
                if _log.get() is log:
                    first = output[0] if isinstance(output, tuple) and output else output
                    call = Call((*args, *kwargs.values()), first if isinstance(first, Tensor) else None)
                    log.calls.setdefault(path, []).append(call)

            handles.append(module.register_forward_hook(after, with_kwargs=True))
        token = _log.set(log)
        try:
            yield log
        finally:
            _log.reset(token)
            for handle in handles:
                handle.remove()
    log.table = captured.all()
    log.axes = {name: captured.point(name).axes for name in log.table}
    for name, value in log.table.items():
        log.names.setdefault(id(value), name)

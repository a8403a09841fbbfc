"""Values inside a model, by name: seen with `capture`, replaced with `change`   [K6]

    with capture(model, "stack.blocks.*.attention.weights") as captured:
        logits, _ = model(ids)
    captured["stack.blocks.0.attention.weights"]   # (B, H, T, S)

    with change(model, {"stack.blocks.3.attention.head.5": torch.zeros_like}):
        logits, _ = model(ids)                     # without head 5 of block 3

A part names its values where it computes them: `y = record(self, "head", y)` (`layer.py`). The name of a value is the path of the part in the model
and the name in the part; the value of a part that has only one is called by its path alone. Inside `capture` and `change` every part
runs in its plain form, so the values are those that make the output. A name may contain `*`; a last number selects a head. A name that
no value had, and a change that was never applied, raise `ConfigError` at the end.

A value that is computed once for each step of a loop over time is one value with a time axis. A part that is called several times has
several values, the later ones called `embedding#2`, `embedding#3`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.fused.dispatch import plain
from seqloom.nn.layer import Point, active_recorder

Change = Callable[[Tensor], Tensor]


class StepChange:
    """A change that differs from step to step of a loop over time: `at(value, step)` gets the value of one step, or with step 0 that of
    all positions at once."""

    def at(self, value: Tensor, step: int) -> Tensor:
        raise NotImplementedError


class KeepSteps(StepChange):
    """Changes nothing, and keeps the value of each step as it is in the graph of gradients; a captured value of a loop is a copy
    of all steps, to which no gradient flows."""

    def __init__(self) -> None:
        self.steps: list[Tensor] = []

    def at(self, value: Tensor, step: int) -> Tensor:
        if not value.requires_grad:  # the weights are frozen, or nothing before it is a parameter
            value = value.detach().requires_grad_()
        self.steps.append(value)
        return value


class Recorder:
    """What one `capture` or `change` wants, and the values so far; `outer` is the one around it."""

    def __init__(self, root: nn.Module, wanted: Iterable[str], changes: Mapping[str, Change | StepChange]):
        self.names = {id(part): name for name, part in root.named_modules()}
        self.wanted = list(wanted)
        self.changes = dict(changes)
        self.outer: Recorder | None = None
        self.values: dict[str, list[Tensor]] = {}
        self.points: dict[str, Point] = {}
        self.seen: set[str] = set()
        self.matched: set[str] = set()

    def chain(self) -> Iterator[Recorder]:
        """This recorder and those around it."""
        recorder: Recorder | None = self
        while recorder is not None:
            yield recorder
            recorder = recorder.outer

    def __call__(self, part: nn.Module, name: str, value: Tensor, point: Point) -> Tensor:
        """Applies all changes, then keeps the value: what is captured made the output."""
        named = []
        for recorder in self.chain():
            path = recorder.names.get(id(part))
            if path is not None:
                full = ".".join(text for text in (path, name) if text) or type(part).__name__
                named.append((recorder, full))
                recorder.seen.add(full)
        for recorder, full in named:
            for pattern, function in recorder.changes.items():
                value = recorder.apply(pattern, full, function, value, point)
        for recorder, full in named:
            recorder.keep(full, value, point)
        return value

    def apply(
        self, pattern: str, full: str, function: Change | StepChange, value: Tensor, point: Point
    ) -> Tensor:
        """The value after a change, if the change is meant for it."""
        head = None
        if not fnmatchcase(full, pattern):
            head = self.head_of(pattern, full, point)
            if head is None:
                return value
        if isinstance(function, StepChange):
            loop = _loops.get().get(id(self))
            step = 0 if loop is None else loop.next_step(f"{pattern} {full}")
            function = partial(function.at, step=step)
        old = value if head is None else select_head(value, point, head, pattern)
        new = function(old)
        self.matched.add(pattern)
        if not isinstance(new, Tensor):
            raise ConfigError(
                f"{pattern}: the change returns {described(new)} instead of a tensor; return the new value"
            )
        if new.shape != old.shape:
            raise ConfigError(
                f"{pattern}: the change makes {tuple(new.shape)} of a value of shape {tuple(old.shape)}; keep the shape"
            )
        if head is None:
            return new
        changed = value.clone()
        select_head(changed, point, head, pattern).copy_(new)
        return changed

    def keep(self, full: str, value: Tensor, point: Point) -> None:
        """Keeps the value, or heads of it, if a pattern wants them; once, even if several do."""
        chosen: dict[str, tuple[Tensor, Point]] = {}
        for pattern in self.wanted:
            if fnmatchcase(full, pattern):
                chosen[full] = value, point
            elif (head := self.head_of(pattern, full, point)) is not None:
                chosen[f"{full}.{head}"] = (
                    select_head(value, point, head, pattern),
                    Point(point.symbol, point.axes.replace("H", "")),
                )
            else:
                continue
            self.matched.add(pattern)
        target = self.target()
        for name, (kept, kept_point) in chosen.items():
            target.setdefault(name, []).append(kept)
            self.points[name] = kept_point

    def target(self) -> dict[str, list[Tensor]]:
        """Where values go: into the innermost loop over time of this thread, if there is one."""
        loop = _loops.get().get(id(self))
        return self.values if loop is None else loop.steps

    @staticmethod
    def head_of(pattern: str, full: str, point: Point) -> int | None:
        """The head that a pattern such as `….head.5` selects of this value."""
        found = re.fullmatch(r"(.+)\.(\d+)", pattern)
        if found and "H" in point.axes and fnmatchcase(full, found[1]):
            return int(found[2])
        return None

    def check(self) -> None:
        """Raises if a name had no value."""
        for pattern in [*self.changes, *self.wanted]:
            if pattern not in self.matched:
                if not self.seen:
                    raise ConfigError(
                        f"{pattern}: no value was computed inside the `with` block, so there is nothing to capture or change; "
                        "run the model of this run inside it, as in run.model(ids)"
                    )
                near = get_close_matches(pattern, sorted(self.seen), 3, 0.0)
                raise ConfigError(
                    f"{pattern}: no value has this name; the nearest are {', '.join(near) or 'none'}"
                )


def select_head(value: Tensor, point: Point, head: int, name: str) -> Tensor:
    """One head of a value."""
    axis = point.axes.index("H")
    if head >= value.shape[axis]:
        raise ConfigError(f"{name}: there are {value.shape[axis]} heads, counted from 0; name one of them")
    return value.select(axis, head)


class Loop:
    """The values of a loop over time, collected step by step. `order` (B, T) says which position each step has read."""

    def __init__(self, order: Tensor | None):
        self.order = order
        self.steps: dict[str, list[Tensor]] = {}
        self.counts: Counter[str] = Counter()

    def next_step(self, name: str) -> int:
        """The number of the present step, by the values that a change of this name has met."""
        self.counts[name] += 1
        return self.counts[name] - 1

    def join(self, values: list[Tensor], point: Point) -> Tensor:
        """The steps as one value with a time axis, in the order of the positions."""
        if "T" in point.axes and values[0].dim() == len(point.axes):
            axis = point.axes.index("T")
            joined = torch.cat(values, axis)
        else:
            axis = 1
            joined = torch.stack(values, 1)
        if self.order is None:
            return joined
        shape = [1] * joined.dim()
        shape[0], shape[axis] = joined.shape[0], joined.shape[axis]
        return joined.gather(axis, self.order.argsort(1).view(shape).expand_as(joined))


class Captured(Mapping[str, Tensor]):
    """Values by name, in the order in which they were computed."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder

    def all(self) -> dict[str, Tensor]:
        """Every value; those after the first of a name are called `name#2`, `name#3`."""
        return {
            name if index == 0 else f"{name}#{index + 1}": value
            for name, values in self.recorder.values.items()
            for index, value in enumerate(values)
        }

    def point(self, name: str) -> Point:
        """The letter and the axes of a value."""
        return self.recorder.points[name.split("#")[0]]

    def clear(self) -> None:
        """Forgets the values so far, so that a long text can be read window by window."""
        self.recorder.values.clear()

    def __getitem__(self, name: str) -> Tensor:
        values = self.all()
        if name not in values:
            near = get_close_matches(name, list(values), 3, 0.0)
            raise ConfigError(f"{name}: not captured; captured are {', '.join(near) or 'no values'}")
        if f"{name}#2" in values:
            raise ConfigError(
                f"{name}: computed {len(self.recorder.values[name])} times; use .all() or name one, as in {name}#2"
            )
        return values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self.all())


_loops: ContextVar[Mapping[int, Loop]] = ContextVar("loops", default=MappingProxyType({}))  # by recorder


@contextmanager
def time_loop(order: Tensor | None = None) -> Iterator[None]:
    """Around a loop over time: each value that is named in it is one value of all steps. `order` (B, T) are the positions that the steps
    read, None if they are in order."""
    recorder = active_recorder.get()
    if recorder is None:
        yield
        return
    loops = {id(each): Loop(order) for each in recorder.chain()}
    token = _loops.set(loops)
    try:
        yield
    finally:
        _loops.reset(token)
    for each in recorder.chain():
        loop, target = loops[id(each)], each.target()
        for name, values in loop.steps.items():
            target.setdefault(name, []).append(loop.join(values, each.points[name]))


@contextmanager
def observe(recorder: Recorder) -> Iterator[Recorder]:
    """Inside, parts run in their plain form and give their values to the recorder."""
    recorder.outer = active_recorder.get()
    token = active_recorder.set(recorder)
    try:
        with plain():
            yield recorder
        recorder.check()
    finally:
        active_recorder.reset(token)


class HasModel(Protocol):
    """What holds a model, such as a run."""

    @property
    def model(self) -> nn.Module: ...


def model_of(run: nn.Module | HasModel) -> nn.Module:
    try:
        model = run if isinstance(run, nn.Module) else run.model
    except AttributeError:
        model = None
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"{described(run)} has no model; give a run, as seqloom.load returns it, or a model"
        )
    return model


def described(value: object) -> str:
    """What was given in place of something else, in a few words."""
    return "None" if value is None else f"a {type(value).__name__}"


def check_names(names: Iterable[object]) -> None:
    """Raises if a name of a value is not a text."""
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(
                f"{described(name)} instead of the name of a value; give names as texts, as seqloom inspect activations lists them"
            )


def check_changes(changes: object) -> None:
    """Raises if the changes are not functions by name."""
    if not isinstance(changes, Mapping):
        raise ConfigError(
            f"the changes are {described(changes)}; give a dict from the name of a value to a function of it"
        )
    check_names(changes)
    for name, function in changes.items():
        if not isinstance(function, StepChange) and (isinstance(function, Tensor) or not callable(function)):
            raise ConfigError(
                f"{name}: the change is {described(function)} instead of a function; give a function from the value to "
                "the new value, such as torch.zeros_like, or lambda value: new"
            )


@contextmanager
def capture(run: nn.Module | HasModel, *names: str) -> Iterator[Captured]:
    """Keeps the values of these names inside, of a run or of a model; without names, all values.

    >>> ids, _ = run.encode(["the cat sees"])
    >>> with seqloom.capture(run, "stack.*.keep") as captured:
    ...     logits, _ = run.model(ids)
    >>> list(captured)
    ['stack.layers.0.0.cell.keep', 'stack.layers.1.0.cell.keep']
    """
    check_names(names)
    with observe(Recorder(model_of(run), names or ("*",), {})) as recorder:
        yield Captured(recorder)


@contextmanager
def change(run: nn.Module | HasModel, changes: Mapping[str, Change | StepChange]) -> Iterator[None]:
    """Replaces values inside, of a run or of a model: each change is a function from the value to the new value, of the same shape. In
    a loop over time it gets one step at a time.

    >>> ids, _ = gpt.encode(["the cat sees"])
    >>> logits, _ = gpt.model(ids)
    >>> with seqloom.change(gpt, {"stack.blocks.0.attention.head.1": torch.zeros_like}):
    ...     without_a_head, _ = gpt.model(ids)
    >>> torch.equal(logits, without_a_head)
    False
    """
    check_changes(changes)
    with observe(Recorder(model_of(run), (), changes)):
        yield

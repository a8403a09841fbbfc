"""One text through one model, every number: how each recorded value follows from others   [N3]

The derivations (`derivations.py`) say for each value of a part which equation gives it from which operands. Each equation is computed again
here in double precision from the recorded operands, and compared with what the model computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from seqloom.inspect.derivations import DERIVATIONS, INPUTS
from seqloom.inspect.reading import Score, Window, read
from seqloom.inspect.trace_log import Derivation, Place, RunLog, linear_steps, logged
from seqloom.inspect.trace_steps import Step
from seqloom.results import Result
from seqloom.run import RunLike, as_run

TOLERANCE = 1e-4  # relative


@dataclass(frozen=True)
class Trace(Result):
    """The steps of one text through one model, in the order in which they are computed."""

    tokens: tuple[str, ...]
    source: tuple[str, ...]
    steps: tuple[Step, ...] = field(repr=False)
    checked: int  # recorded values that were computed again
    given: int  # recorded values without an equation here
    largest_error: float
    window: str | None  # which tokens of a long text were read

    def step(self, name: str) -> Step:
        """The step of a value."""
        return next(step for step in self.steps if step.name == name)

    @property
    def wrong(self) -> list[str]:
        """The values that their equation does not give."""
        return [step.name for step in self.steps if step.error is not None and step.error > TOLERANCE]


def trace(
    run: RunLike,
    text: str,
    target: str | None = None,
    *,
    beam: int = 0,
    max_tokens: int = 16,
    window: int = 1,
) -> Trace:
    """Every value of a run on a text, with its equation and operands; with a `beam`, the probabilities along its tree too.

    >>> seqloom.inspect.trace(run, "the cat").largest_error < 1e-5
    True
    """
    run = as_run(run)
    reading = read(run, text, target, max_tokens, window)
    found = trace_model(run.model, reading.scores, reading.tokens, reading.source)
    steps = [name_words(step, run.tokenizer.id_to_token) for step in found.steps]
    if beam:
        from seqloom.inspect.trace_search import beam_steps

        steps += beam_steps(run, text, beam)
    return make_trace(reading.tokens, reading.source, steps, reading.window)


def make_trace(
    tokens: tuple[str, ...], source: tuple[str, ...], steps: Sequence[Step], window: Window | None = None
) -> Trace:
    """A trace of these steps, with what was computed again."""
    errors = [step.error for step in steps if step.error is not None]
    given = sum(not step.finish for step in steps)
    return Trace(
        tokens, source, tuple(steps), len(errors), given, max(errors, default=0.0), window and str(window)
    )


def name_words(step: Step, name: object) -> Step:
    """The step with the words of a vocabulary in place of their ids."""
    if "w" not in step.labels or not callable(name):
        return step
    words = tuple(str(name(int(index))) for index in step.labels["w"])
    return replace(step, labels={**step.labels, "w": words})


def trace_model(
    model: nn.Module, scores: Score, tokens: tuple[str, ...], source: tuple[str, ...] = ()
) -> Trace:
    """The steps of a model; `scores(1)` runs it on one text."""
    with torch.no_grad(), logged(model, tokens, source) as log:
        scores(1)
    with torch.no_grad():
        return make_trace(tokens, source, list(derive(log)))


def derive(log: RunLog) -> Iterator[Step]:
    """The steps of all recorded values."""
    seen: dict[int, str] = {}
    for full in ordered(list(log.table)):
        tensor = log.table[full]
        place = place_of(log, full)
        if id(tensor) in seen and seen[id(tensor)] != full:
            continue  # another name of the same value
        seen[id(tensor)] = full
        if repeats(log, place, tensor):
            continue
        yield from input_steps(place)
        several = len(tensor) > 1 and not log.axes[full].startswith(
            "N"
        )  # such as the words of a character encoder
        function = None if several else derivation_of(place)
        steps = None if function is None else function(place)
        if steps is None:
            axes = "t" + "ijklm"[: tensor.dim() - 2]
            if log.positions(tensor.shape[1] if tensor.dim() > 1 else 1, place.side) != "t":
                axes = "n" + axes[1:]
            values = log.values(full)
            axes = axes if values.ndim == len(axes) else "nijklm"[: values.ndim]
            steps = [Step(full, type(place.part).__name__, "", axes, values, True, place.side)]
        yield from steps


def repeats(log: RunLog, place: Place, tensor: Tensor) -> bool:
    """Whether the value of a part is only a copy of a value inside it, such as the outputs of a cell."""
    inner = f"{place.path}.cell.h"
    return place.value == "" and inner in log.table and torch.equal(tensor, log.table[inner])


def ordered(names: list[str]) -> list[str]:
    """The names as computed, but the memory c of a cell before its h, which is read from it."""
    result = list(names)
    for index, name in enumerate(result[:-1]):
        if name.endswith("cell.h") and result[index + 1] == f"{name[:-1]}c":
            result[index], result[index + 1] = result[index + 1], name
    return result


def place_of(log: RunLog, full: str) -> Place:
    """The part of a value, which call of it computed the value, and on which text."""
    name, _, count = full.partition("#")
    parts = dict(log.model.named_modules())
    path = name
    while path and path not in parts:
        path = path.rpartition(".")[0]
    value = name[len(path) :].lstrip(".")
    number = int(count) - 1 if count else 0
    on_source = path.startswith(("encoder", "source_embedding"))
    if path == "embedding" and log.source and f"{name}#2" in log.table:
        on_source = number == 0
    if value in ("k", "v") and getattr(parts[path], "reads_memory", False):
        on_source = True
    side = "source" if log.source and on_source else "text"
    return Place(log, path, parts[path], value, full, number, side)


def derivation_of(place: Place) -> Derivation | None:
    """The derivation of the nearest class that has one for this value."""
    name, _, number = place.value.partition(".")
    value = name if number.isdigit() else place.value  # such as output.0 and output.1
    for cls in type(place.part).__mro__:
        found = DERIVATIONS.get(cls, {}).get(value)
        if found is not None:
            return found
    return None


def input_steps(place: Place) -> list[Step]:
    """The steps that explain what a part reads, if that is not a recorded value."""
    x = place.argument()
    first = place.value in ("", "hidden")  # the value of the part that is computed first
    if x is None or (place.path and not first) or place.log.name_of(x) is not None:
        return []
    path, child = place.path.rpartition(".")[0], place.path.rpartition(".")[2]
    parent = place.log.part(path)
    for cls in type(parent).__mro__:
        if cls in INPUTS:
            steps = INPUTS[cls](place, parent, child) or []
            if steps:
                place.log.between[id(x)] = x, steps[-1].name
            return steps
    return linear_steps(place, x)

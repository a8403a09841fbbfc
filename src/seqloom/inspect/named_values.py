"""Every named value of a run on one text: its name, shape, axes and letter in the equation of its part."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from seqloom.errors import DataError
from seqloom.inspect.reading import read
from seqloom.nn.capture import capture
from seqloom.results import Result
from seqloom.run import RunLike, as_run
from seqloom.text.encoder import TEXTS

EXAMPLE = "a text"
MAX_TOKENS = 512  # of a longer text the first are read


@dataclass(frozen=True)
class Activation(Result):
    """One named value."""

    name: str
    part: str  # the class of the part that computes it
    symbol: str  # its letter in the part's equation
    axes: str  # one letter for each axis: B batch, T position, S key, H head, D width
    shape: tuple[int, ...]
    mean: float
    deviation: float


@dataclass(frozen=True)
class Activations(Result):
    """All named values of a run on a text, in the order in which they are computed."""

    tokens: tuple[str, ...]
    source: tuple[str, ...]
    values: tuple[Activation, ...] = field(repr=False)
    window: str | None = None  # which tokens of a long text were read


def activations(run: RunLike, text: str = EXAMPLE, target: str | None = None) -> Activations:
    """The names that `capture` and `change` take for this run, with what they hold on a text.

    >>> seqloom.inspect.activations(run, "the cat").values[0].name
    'embedding'
    """
    run = as_run(run)
    if run.model.reads != "text" and text == EXAMPLE:
        raise DataError(
            f"{run.folder}: the model reads no text; give a file, as in: seqloom inspect activations {run.folder} FILE"
        )
    if run.model.predicts_labels and text == EXAMPLE:
        kinds = [kind for kind in run.config.kinds() if kind in (*TEXTS, "words", "passage")]
        text = "\t".join([EXAMPLE] * len(kinds))
    reading = read(run, text, target, MAX_TOKENS)
    with torch.no_grad(), capture(run.model) as captured:
        reading.scores(1)
    parts = dict(run.model.named_modules())
    found = []
    for name, value in captured.all().items():
        path, point = name.split("#")[0], captured.point(name)
        part = parts[
            path if path in parts else path.rpartition(".")[0] if path.rpartition(".")[0] in parts else ""
        ]
        finite = value[value.isfinite()].double()
        spread = float(finite.std()) if finite.numel() > 1 else 0.0
        mean = float(finite.mean()) if finite.numel() else 0.0
        found.append(
            Activation(name, type(part).__name__, point.symbol, point.axes, tuple(value.shape), mean, spread)
        )
    window = reading.window and str(reading.window)
    return Activations(reading.tokens, reading.source, tuple(found), window)

"""The gradients of a finished run on some texts, and those that a training has written down (`train.watch=gradients`)   [D14, D17, N6]

`train/gradient_flow.py` has the definitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from seqloom.errors import RunError
from seqloom.inspect.given_texts import check_texts
from seqloom.inspect.reading import Score, read_given, report_own_targets
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import Run, RunLike, as_run
from seqloom.train.fit import build_options
from seqloom.train.gradient_flow import (
    ClipEffect,
    GradientCurve,
    GradientFlow,
    HiddenMatrix,
    LayerGradient,
    LossText,
    clip_effect,
    hidden_matrices,
    weight_gradients,
)
from seqloom.train.gradient_watch import WatchedStep, read_watched
from seqloom.train.options import TrainOptions


@dataclass(frozen=True)
class Gradients(Result):
    """The gradients of a run on some texts."""

    run: str
    texts: int
    tokens: int
    cut: int  # texts of which only the beginning was read
    curves: tuple[GradientCurve, ...] = field(repr=False)
    layers: tuple[LayerGradient, ...] = field(repr=False)
    matrices: tuple[HiddenMatrix, ...] = field(repr=False)
    clip: ClipEffect | None


@dataclass(frozen=True)
class WatchedGradients(Result):
    """The gradients of a run at each evaluation of its training."""

    run: str
    steps: tuple[WatchedStep, ...] = field(repr=False)


def watched_gradients(run: RunLike) -> WatchedGradients:
    """What a training with `train.watch=gradients` has written down so far; the run need not be finished.

    >>> changes = {"model.dim": 8, "model.stack.dim": 8, "train.watch": "gradients"}
    >>> watched = seqloom.fit("lstm-lm", changes, data="input.txt", out="watched", steps=2, progress=False)
    >>> [one.step for one in seqloom.inspect.watched_gradients(watched).steps]
    [2]
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    return WatchedGradients(str(folder), read_watched(folder))


def gradients(
    run: RunLike,
    texts: Sequence[str],
    *,
    max_tokens: int = 64,
    positions: int = 8,
    progress: ProgressOption = False,
) -> Gradients:
    """The gradients of the losses of `positions` words in the second half of each text, as far back as the text goes.

    >>> seqloom.inspect.gradients(run, ["the cat sees a king"]).tokens
    5
    """
    run = as_run(run)
    texts = check_texts(texts)
    report_own_targets(run, texts)
    flow = GradientFlow(run.model, positions)
    weights: list[Tensor] = []
    tokens = cut = 0
    with Reporter("texts", len(texts), progress) as report:
        for text in texts:
            reading = read_given(run, text, max_tokens)
            if reading.targets == ("sentence",):
                raise RunError(
                    f"{run.folder}: an encoder has no loss, so no gradients of it; inspect its geometry"
                )
            tokens += len(reading.tokens)
            cut += reading.window is not None

            def losses(scores: Score = reading.scores) -> Tensor:
                return -scores(1)[0]

            found = flow.add(LossText(losses, len(reading.tokens), bool(reading.source)))
            one = weight_gradients(run.model, found.mean() / len(texts))
            weights = [a + b for a, b in zip(weights, one, strict=True)] if weights else one
            report.advance()
    return Gradients(
        str(run.folder),
        len(texts),
        tokens,
        cut,
        flow.curves(),
        flow.by_layer(),
        hidden_matrices(run.model),
        clip_of(run, weights),
    )


def clip_of(run: Run, weights: list[Tensor]) -> ClipEffect | None:
    """What the clipping of the run's config does to these gradients; None if it has none."""
    if "train" not in run.config.tree:  # an imported run
        return None
    options = build_options(run.config)
    return clip_effect(options.clip, weights) if isinstance(options, TrainOptions) else None

"""How far gradients reach: ‖∂ℓₜ/∂hₜ₋ₖ‖ against k, by depth, and the eigenvalues of the matrices that multiply h   [D14, D17, N6]

At each step back the gradient is multiplied by the transposed matrix of the recurrence, so its eigenvalues decide whether it grows or
vanishes. Clipping scales all gradients of the weights by one factor or less; the curve after it is the curve times that factor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import DataError, RunError
from seqloom.inspect.layer_vectors import layer_names
from seqloom.inspect.reading import Reading, read_given
from seqloom.nn.capture import KeepSteps, capture, change
from seqloom.nn.cells import Cell, LinearCell
from seqloom.nn.recurrent import UnrolledCell
from seqloom.progress import ProgressOption, Reporter
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run
from seqloom.train.fit import build_options
from seqloom.train.options import NoClip, TrainOptions, global_norm

STATES = ("h", "c")  # the values that a cell hands to the next step


@dataclass(frozen=True)
class GradientCurve(Result):
    """The mean norm of the gradient of a loss with respect to a value k positions before it; `counts` says over how many."""

    value: str
    loss: str  # of one position, or of the whole text: then k counts from the last position that was read
    norms: tuple[float, ...]  # for k = 0, 1, 2, …
    counts: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True)
class LayerGradient(Result):
    """The mean over positions of ‖∂L/∂x‖ at the output of one layer, for L the sum of the losses of a text."""

    layer: str
    norm: float


@dataclass(frozen=True)
class HiddenMatrix(Result):
    """One matrix that multiplies h: of a gate, or of the candidate."""

    cell: str
    gate: str
    spectral_radius: float  # the largest |λ|
    largest_singular_value: float
    eigenvalues: np.ndarray = field(repr=False)  # (D, 2): real and imaginary part


@dataclass(frozen=True)
class ClipEffect(Result):
    """What the run's own clipping does to the gradients of its weights on these texts."""

    kind: str
    limit: float
    norm: float  # of all gradients before it
    clipped_norm: float

    @property
    def factor(self) -> float:
        return self.clipped_norm / self.norm if self.norm else 1.0


@dataclass(frozen=True)
class Gradients(Result):
    """The gradients of a run on some texts."""

    run: str
    texts: int
    tokens: int
    curves: tuple[GradientCurve, ...] = field(repr=False)
    layers: tuple[LayerGradient, ...] = field(repr=False)
    matrices: tuple[HiddenMatrix, ...] = field(repr=False)
    clip: ClipEffect | None


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
    if not texts:
        raise DataError("no texts: give at least one")
    states, layers = state_names(run), layer_names(run.model)
    used = used_names(run, read_given(run, texts[0], max_tokens))
    sums: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0]))
    depth: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    losses: dict[str, str] = {}
    weights: list[Tensor] = []
    tokens = 0
    with Reporter("texts", len(texts), progress) as report:
        for text in texts:
            reading = read_given(run, text, max_tokens)
            if reading.targets == ("sentence",):
                raise RunError(
                    f"{run.folder}: an encoder has no loss, so no gradients of it; inspect its geometry"
                )
            tokens += len(reading.tokens)
            kept = {name: KeepSteps() for name in dict.fromkeys((*states, *layers)) if name in used}
            with torch.enable_grad(), change(run.model, kept):
                scores = -reading.scores(1)[0]
            add_depth(depth, scores, {name: kept[name].steps for name in layers if name in kept})
            for name, (loss, norms) in curve_norms(run, reading, scores, kept, positions).items():
                losses[name] = loss
                for k, norm in norms:
                    sums[name][k][0] += norm
                    sums[name][k][1] += 1
            found = weight_gradients(run, scores.mean() / len(texts))
            weights = [one + other for one, other in zip(weights, found, strict=True)] if weights else found
            report.advance()
    curves = tuple(
        GradientCurve(
            name,
            losses[name],
            tuple(found[k][0] / found[k][1] for k in sorted(found)),
            tuple(int(found[k][1]) for k in sorted(found)),
        )
        for name, found in sums.items()
    )
    by_layer = tuple(LayerGradient(name, total / count) for name, (total, count) in depth.items())
    return Gradients(
        str(run.folder), len(texts), tokens, curves, by_layer, hidden_matrices(run), clip_effect(run, weights)
    )


def state_names(run: Run) -> list[str]:
    """The states of all recurrent cells; a cell inside another is left out."""
    return [
        f"{path}.{state}"
        for path, part in run.model.named_modules()
        if isinstance(part, Cell) and path.rpartition(".")[2] not in ("candidate", "gate")
        for state in STATES
        if state in part.points
    ]


def used_names(run: Run, reading: Reading) -> set[str]:
    """The values that this reading computes; ELMo's backward half, for one, is not used to continue a text."""
    with torch.no_grad(), capture(run.model) as captured:
        reading.scores(1)
    return {name.split("#")[0] for name in captured}


def gradient_of(loss: Tensor, values: dict[str, list[Tensor]]) -> dict[str, list[Tensor]]:
    """The gradients of a loss with respect to lists of values; zeros where it does not depend on them."""
    every = [value for steps in values.values() for value in steps]
    found = iter(torch.autograd.grad(loss, every, retain_graph=True, allow_unused=True))
    return {
        name: [torch.zeros_like(value) if (one := next(found)) is None else one for value in steps]
        for name, steps in values.items()
    }


def add_depth(depth: dict[str, list[float]], losses: Tensor, values: dict[str, list[Tensor]]) -> None:
    """Adds the norms at each position of each layer's output."""
    for name, steps in gradient_of(losses.sum(), values).items():
        for gradient in steps:
            norms = gradient.flatten(0, -2).norm(dim=-1)
            depth[name][0] += float(norms.sum())
            depth[name][1] += len(norms)


def curve_norms(
    run: Run, reading: Reading, losses: Tensor, kept: dict[str, KeepSteps], positions: int
) -> dict[str, tuple[str, list[tuple[int, float]]]]:
    """For each value the loss that is meant, and pairs of k and norm.

    If each position has a loss, k counts back from it; otherwise, and for an encoder, the loss is that of the whole text and k counts
    back from the last step. The outputs of other layers than cells have a curve only if each position has a loss.
    """
    parts = dict(run.model.named_modules())
    by_position = len(reading.targets) == len(reading.tokens)
    length = len(reading.tokens)
    each: dict[str, list[Tensor]] = {}
    whole: dict[str, list[Tensor]] = {}
    for name, keep in kept.items():
        is_state = name.rpartition(".")[2] in STATES and isinstance(parts.get(name.rpartition(".")[0]), Cell)
        in_source = bool(reading.source) and name.startswith("encoder")
        rows = keep.steps
        count = rows[0].shape[1] if rows[0].dim() == 3 and len(rows) == 1 else len(rows)
        if is_state and (in_source or not by_position or count != length):
            whole[name] = rows
        elif (
            by_position
            and not in_source
            and count == length
            and not isinstance(parts.get(name), UnrolledCell)
        ):
            each[name] = rows
    found: dict[str, tuple[str, list[tuple[int, float]]]] = {}
    for t in np.unique(np.linspace(length // 2, length - 1, positions).astype(int)).tolist() if each else []:
        for name, steps in gradient_of(losses[t], each).items():
            norms = norms_of(steps)
            backward = reads_backward(parts, name)
            places = range(len(norms) - 1, -1, -1) if backward else range(len(norms))
            pairs = [
                (place - t if backward else t - place, norm)
                for place, norm in zip(places, norms, strict=True)
            ]
            found.setdefault(name, ("of one position", []))[1].extend(pair for pair in pairs if pair[0] >= 0)
    if whole:
        for name, steps in gradient_of(losses.sum(), whole).items():
            norms = norms_of(steps)
            found[name] = (
                "of the whole text",
                [(len(norms) - 1 - step, norm) for step, norm in enumerate(norms)],
            )
    return found


def norms_of(steps: list[Tensor]) -> list[float]:
    """The norm at each position: of one value with a time axis, or of the values of steps."""
    joined = (
        steps[0][0]
        if len(steps) == 1 and steps[0].dim() == 3
        else torch.cat([one.flatten(0, -2) for one in steps])
    )
    return joined.double().norm(dim=-1).tolist()


def reads_backward(parts: dict[str, torch.nn.Module], name: str) -> bool:
    """Whether a state belongs to a cell that reads from right to left."""
    around = parts.get(name.rpartition(".")[0].rpartition(".")[0])
    return isinstance(around, UnrolledCell) and around.backward


def hidden_matrices(run: Run) -> tuple[HiddenMatrix, ...]:
    """The matrices that multiply h in every cell, gate by gate."""
    found = []
    for path, part in run.model.named_modules():
        if not isinstance(part, LinearCell):
            continue
        gates = [name for name in part.points if name not in STATES] or ["keep"]
        for gate, matrix in zip(gates, part.hidden.detach().double().split(part.dim), strict=True):
            values = torch.linalg.eigvals(matrix)
            found.append(
                HiddenMatrix(
                    path,
                    gate,
                    float(values.abs().max()),
                    float(torch.linalg.matrix_norm(matrix, 2)),
                    torch.view_as_real(values).numpy(),
                )
            )
    return tuple(found)


def weight_gradients(run: Run, loss: Tensor) -> list[Tensor]:
    """The gradients of all weights."""
    parameters: list[Tensor] = [one for one in run.model.parameters() if one.requires_grad]
    return gradient_of(loss, {"": parameters})[""]


def clip_effect(run: Run, weights: list[Tensor]) -> ClipEffect | None:
    """What the clipping of the run's config does to these gradients; None if it has none."""
    if "train" not in run.config.tree:  # an imported run
        return None
    options = build_options(run.config)
    if not isinstance(options, TrainOptions) or isinstance(options.clip, NoClip):
        return None
    copies = [gradient.clone() for gradient in weights]
    norm = options.clip(copies)
    return ClipEffect(type(options.clip).__name__, options.clip.limit, norm, float(global_norm(copies)))

"""How far gradients reach: ‖∂ℓₜ/∂hₜ₋ₖ‖ against k, by depth, and the eigenvalues of the matrices that multiply h   [D14, D17, N6]

At each step back the gradient is multiplied by the transposed matrix of the recurrence, so its eigenvalues decide whether it grows or
vanishes. Clipping scales all gradients of the weights by one factor or less; the curve after it is the curve times that factor.

Gradients are returned by autograd and never added to those of the weights, so a training in which they are measured is not changed by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.nn.capture import KeepSteps, capture, change
from seqloom.nn.cells import Cell, LinearCell
from seqloom.nn.layer_outputs import layer_names
from seqloom.nn.recurrent import RNN, UnrolledCell
from seqloom.results import Result
from seqloom.train.options import Clip, NoClip, global_norm

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
class MatrixGrowth(Result):
    """How much one matrix that multiplies h lets a gradient grow: that of a gate, or of the candidate."""

    cell: str
    gate: str
    spectral_radius: float  # the largest |λ|
    largest_singular_value: float


@dataclass(frozen=True)
class HiddenMatrix(MatrixGrowth):
    """A matrix that multiplies h, with its eigenvalues."""

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


class LossText(NamedTuple):
    """A text whose losses can be computed: `losses()` runs the model and returns the loss of each target, (targets,)."""

    losses: Callable[[], Tensor]
    tokens: int  # positions that the model, or its decoder, reads
    has_source: bool = False


class GradientFlow:
    """Collects the norms of gradients over texts: for `positions` losses of the second half of each, as far back as it goes."""

    def __init__(self, model: nn.Module, positions: int = 8):
        self.model = model
        self.positions = positions
        self.parts = dict(model.named_modules())
        self.layers = layer_names(model)
        self.names = list(dict.fromkeys((*state_names(model), *self.layers)))
        self.used: set[str] | None = None
        self.sums: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0]))
        self.depth: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self.kinds: dict[str, str] = {}

    def add(self, text: LossText, with_curves: bool = True) -> Tensor:
        """Adds a text, or a batch of them if there are to be no curves. Returns its losses, with their graph."""
        if self.used is None:
            self.used = used_names(self.model, text)
        kept = {name: KeepSteps() for name in self.names if name in self.used}
        with torch.enable_grad(), change(self.model, kept):
            losses = text.losses()
        self.add_depth(losses, {name: kept[name].steps for name in self.layers if name in kept})
        found = self.norms_by_distance(text, losses, kept) if with_curves else {}
        for name, (kind, norms) in found.items():
            self.kinds[name] = kind
            for k, norm in norms:
                self.sums[name][k][0] += norm
                self.sums[name][k][1] += 1
        return losses

    def curves(self) -> tuple[GradientCurve, ...]:
        """The mean norm for each value and each k."""
        return tuple(
            GradientCurve(
                name,
                self.kinds[name],
                tuple(found[k][0] / found[k][1] for k in sorted(found)),
                tuple(int(found[k][1]) for k in sorted(found)),
            )
            for name, found in self.sums.items()
        )

    def by_layer(self) -> tuple[LayerGradient, ...]:
        """The mean norm of each layer's output."""
        return tuple(LayerGradient(name, total / count) for name, (total, count) in self.depth.items())

    def add_depth(self, losses: Tensor, values: dict[str, list[Tensor]]) -> None:
        """Adds the norms at each position of each layer's output."""
        for name, steps in gradient_of(losses.sum(), values).items():
            for gradient in steps:
                norms = gradient.flatten(0, -2).norm(dim=-1)
                self.depth[name][0] += float(norms.sum())
                self.depth[name][1] += len(norms)

    def norms_by_distance(
        self, text: LossText, losses: Tensor, kept: dict[str, KeepSteps]
    ) -> dict[str, tuple[str, list[tuple[int, float]]]]:
        """For each value the loss that is meant, and pairs of k and norm.

        If each position has a loss, k counts back from it; otherwise, and for an encoder, the loss is that of the whole text and k counts
        back from the last step. The outputs of other layers than cells have a curve only if each position has a loss.
        """
        parts = self.parts
        by_position = len(losses) == text.tokens
        length = text.tokens
        each: dict[str, list[Tensor]] = {}
        whole: dict[str, list[Tensor]] = {}
        for name, keep in kept.items():
            is_state = name.rpartition(".")[2] in STATES and isinstance(
                parts.get(name.rpartition(".")[0]), Cell
            )
            in_source = text.has_source and name.startswith("encoder")
            rows = keep.steps
            count = rows[0].shape[1] if rows[0].dim() == 3 and len(rows) == 1 else len(rows)
            if is_state and (in_source or not by_position or count != length):
                whole[name] = rows
            elif (
                by_position
                and not in_source
                and count == length
                and not isinstance(parts.get(name.partition(".output.")[0]), UnrolledCell | RNN)
            ):
                each[name] = rows
        found: dict[str, tuple[str, list[tuple[int, float]]]] = {}
        for t in (
            np.unique(np.linspace(length // 2, length - 1, self.positions).astype(int)).tolist()
            if each
            else []
        ):
            for name, steps in gradient_of(losses[t], each).items():
                norms = norms_of(steps)
                backward = reads_backward(parts, name)
                places = range(len(norms) - 1, -1, -1) if backward else range(len(norms))
                pairs = [
                    (place - t if backward else t - place, norm)
                    for place, norm in zip(places, norms, strict=True)
                ]
                found.setdefault(name, ("of one position", []))[1].extend(
                    pair for pair in pairs if pair[0] >= 0
                )
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


def reads_backward(parts: dict[str, nn.Module], name: str) -> bool:
    """Whether a state belongs to a cell that reads from right to left."""
    around = parts.get(name.rpartition(".")[0].rpartition(".")[0])
    return isinstance(around, UnrolledCell) and around.backward


def hidden_matrices(model: nn.Module) -> tuple[HiddenMatrix, ...]:
    """The matrices that multiply h in every cell, gate by gate."""
    found = []
    for path, part in model.named_modules():
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


def state_names(model: nn.Module) -> list[str]:
    """The states of all recurrent cells; a cell inside another is left out."""
    return [
        f"{path}.{state}"
        for path, part in model.named_modules()
        if isinstance(part, Cell) and path.rpartition(".")[2] not in ("candidate", "gate")
        for state in STATES
        if state in part.points
    ]


def used_names(model: nn.Module, text: LossText) -> set[str]:
    """The values that this text needs; ELMo's backward half, for one, is not used to continue a text."""
    with torch.no_grad(), capture(model) as captured:
        text.losses()
    return {name.split("#")[0] for name in captured}


def gradient_of(loss: Tensor, values: dict[str, list[Tensor]]) -> dict[str, list[Tensor]]:
    """The gradients of a loss with respect to lists of values; zeros where it does not depend on them."""
    every = [value for steps in values.values() for value in steps]
    found = iter(torch.autograd.grad(loss, every, retain_graph=True, allow_unused=True))
    return {
        name: [torch.zeros_like(value) if (one := next(found)) is None else one for value in steps]
        for name, steps in values.items()
    }


def weight_gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    """The gradients of all weights that are trained."""
    parameters: list[Tensor] = [one for one in model.parameters() if one.requires_grad]
    return gradient_of(loss, {"": parameters})[""]


def clip_effect(clip: Clip, weights: list[Tensor]) -> ClipEffect | None:
    """What clipping does to these gradients; None if there is none."""
    if isinstance(clip, NoClip):
        return None
    copies = [gradient.clone() for gradient in weights]
    norm = clip(copies)
    return ClipEffect(type(clip).__name__, clip.limit, norm, float(global_norm(copies)))

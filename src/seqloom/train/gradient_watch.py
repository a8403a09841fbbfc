"""The gradients of a model while it learns, measured at each evaluation: `train.watch=gradients` writes gradients.jsonl   [N6]

The pass is one of its own, on the first held-out batch, in evaluation mode and with the random state put back: the training is the same, bit for
bit, with and without it. A run that resumes drops the lines of steps that it takes again.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batches.batch import Batch, PairBatch, TokenBatch
from seqloom.errors import RunError
from seqloom.results import Result
from seqloom.run_files import GRADIENTS_FILE, json_line
from seqloom.train.gradient_flow import (
    ClipEffect,
    GradientCurve,
    GradientFlow,
    LayerGradient,
    LossText,
    MatrixGrowth,
    clip_effect,
    hidden_matrices,
    weight_gradients,
)
from seqloom.train.metrics import drop_later_lines
from seqloom.train.options import TrainJob, TrainOptions

ROWS = 4  # texts of the held-out batch whose positions are followed back
WIDTH = 64  # tokens of each
logger = logging.getLogger("seqloom.train")


@dataclass(frozen=True)
class WatchedStep(Result):
    """The gradients at one step of a training: a line of gradients.jsonl."""

    step: int
    tokens: int  # of the training so far
    curves: tuple[GradientCurve, ...] = field(repr=False)
    layers: tuple[LayerGradient, ...] = field(repr=False)
    matrices: tuple[MatrixGrowth, ...] = field(repr=False)
    clip: ClipEffect | None

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> WatchedStep:
        curves = [
            {**one, "norms": tuple(one["norms"]), "counts": tuple(one["counts"])} for one in record["curves"]
        ]
        return cls(
            record["step"],
            record["tokens"],
            tuple(GradientCurve(**one) for one in curves),
            tuple(LayerGradient(**one) for one in record["layers"]),
            tuple(MatrixGrowth(**one) for one in record["matrices"]),
            record["clip"] and ClipEffect(**record["clip"]),
        )


class GradientWatch:
    """Appends a line to gradients.jsonl at each evaluation."""

    def __init__(self, options: TrainOptions, job: TrainJob, step: int):
        self.clip = options.clip
        self.job = job
        self.path = job.folder / GRADIENTS_FILE
        if job.group.is_main and self.path.exists():
            drop_later_lines(self.path, step)

    def measure(self, step: int, tokens: int) -> None:
        """Measures the gradients of the present weights and writes them down."""
        model = self.job.model
        was_training = model.training
        model.eval()
        try:
            with torch.random.fork_rng(devices=[]):
                found = self.gradients(model, step, tokens)
        finally:
            model.train(was_training)
        with self.path.open("ab") as file:
            file.write(json_line(found.to_dict()))
            file.flush()
            os.fsync(file.fileno())
        for curve in found.curves[:1]:
            far = len(curve.norms) - 1
            logger.info(
                "gradient of %s: %.2e at k = 0, %.2e at k = %d",
                curve.value,
                curve.norms[0],
                curve.norms[far],
                far,
            )

    def gradients(self, model: nn.Module, step: int, tokens: int) -> WatchedStep:
        """The gradients on the first held-out batch."""
        batch = next(self.job.held_out(1))
        texts = list(loss_texts(model, batch))
        flow = GradientFlow(model)
        weights: list[Tensor] = []
        for text in texts or [whole_batch(model, self.job.objective, batch)]:
            losses = flow.add(text, with_curves=bool(texts))
            one = weight_gradients(model, losses.mean() / max(1, len(texts)))
            weights = [a + b for a, b in zip(weights, one, strict=True)] if weights else one
        matrices = tuple(
            MatrixGrowth(one.cell, one.gate, one.spectral_radius, one.largest_singular_value)
            for one in hidden_matrices(model)
        )
        return WatchedStep(
            step, tokens, flow.curves(), flow.by_layer(), matrices, clip_effect(self.clip, weights)
        )


def loss_texts(model: Any, batch: Batch) -> Iterator[LossText]:
    """The first rows of a batch of texts or of pairs, without padding, with a loss for each position; none for other tasks."""
    if not isinstance(batch, TokenBatch | PairBatch):
        return
    for row in range(min(ROWS, len(batch.ids))):
        length = int(batch.mask[row, :WIDTH].long().cumprod(0).sum())
        if length < 2:
            continue
        ids, targets = batch.ids[row : row + 1, :length], batch.targets[row, :length]
        source: Tensor | None = None
        if isinstance(batch, PairBatch):
            source = batch.source[row : row + 1, : int(batch.source_mask[row].sum())]

        def losses(ids: Tensor = ids, targets: Tensor = targets, source: Tensor | None = source) -> Tensor:
            state = None if source is None else model.start(source)
            return F.cross_entropy(model(ids, state)[0][0].float(), targets, reduction="none")

        yield LossText(losses, length, source is not None)


def whole_batch(model: nn.Module, objective: Any, batch: Batch) -> LossText:
    """A batch of another task as one text: its mean loss."""

    def losses() -> Tensor:
        return (objective(model, batch, None)[0] / max(1, batch.num_targets)).reshape(1)

    return LossText(losses, batch.ids.shape[1])


def read_watched(folder: Path) -> tuple[WatchedStep, ...]:
    """The lines of gradients.jsonl; a last line that is still being written is left out."""
    path = folder / GRADIENTS_FILE
    if not path.exists():
        raise RunError(
            f"{folder}: its training wrote no gradients; train with train.watch=gradients, or give texts to inspect the run with"
        )
    found = []
    lines = path.read_text("utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            found.append(WatchedStep.from_dict(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            if number < len(lines) or line.endswith("\n"):
                raise RunError(f"{path}:{number}: damaged; remove the line") from None
    if not found:
        raise RunError(f"{path}: no evaluation so far; try again later")
    return tuple(found)

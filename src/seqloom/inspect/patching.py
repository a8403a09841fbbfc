"""Activation patching: which value of one text, moved into another, restores the answer

The clean text has an answer, the corrupted one another. The corrupted text runs with one value replaced by the clean run's: the restored share is
(d - d_corrupted) / (d_clean - d_corrupted), where d is ln P(clean answer) - ln P(corrupted answer) at the last position. 1 restores the clean
answer, 0 changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.inspect.given_texts import check_text
from seqloom.inspect.refusals import refusal
from seqloom.nn.capture import Captured, StepChange, capture, change
from seqloom.nn.layer import Point
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run

MOST_TOKENS = 512  # of a text that is patched at each of its positions


@dataclass(frozen=True)
class Patch(Result):
    """The restored share of each value (a row) at each position (a column)."""

    clean: tuple[str, ...]
    corrupted: tuple[str, ...]
    answers: tuple[str, str]  # the clean text's and the corrupted text's
    difference: tuple[float, float]  # d of the clean and of the corrupted text
    points: tuple[str, ...]
    restored: np.ndarray = field(repr=False)  # (points, T)


class Replace(StepChange):
    """In copy t, position t becomes the clean value; `clean` is (1, T, D)."""

    def __init__(self, clean: Tensor):
        self.clean = clean

    def at(self, value: Tensor, step: int) -> Tensor:
        changed = value.clone()
        if value.dim() == 2:  # one step of a loop over time, (T, D)
            changed[step] = self.clean[0, step]
            return changed
        index = torch.arange(len(value))
        changed[index, index] = self.clean[0]
        return changed


def patch(run: RunLike, clean: str, corrupted: str, points: str = "") -> Patch:
    """Moves values of the clean text into the corrupted one, one point and position at a time. `points` names them, `*` allowed; by default
    the residual path of a Transformer and the states of recurrent cells.

    >>> seqloom.inspect.patch(gpt, "a a", "a sees").answers
    ('queen', 'a')
    """
    run = as_run(run)
    if not run.model.continues or not run.model.predicts_tokens:
        raise refusal(
            run,
            "patch",
            "compares the next token of two texts, so it needs a language model, which this run is not",
        )
    check_text(clean, "the clean text")
    check_text(corrupted, "the corrupted text")
    ids = [run.encode([text], as_prompt=True)[0] for text in (clean, corrupted)]
    if ids[0].shape != ids[1].shape:
        counts = [len(row[0]) for row in ids]
        raise DataError(
            f"the clean text has {counts[0]} tokens and the corrupted one {counts[1]}: give texts that differ in words, not in length"
        )
    most = min(MOST_TOKENS, run.model.context or MOST_TOKENS)
    if ids[0].shape[1] > most:
        raise DataError(
            f"the texts have {ids[0].shape[1]:,} tokens and {most:,} can be patched: each position is a run of its own; give shorter texts"
        )
    with torch.no_grad():
        return patch_ids(run, ids[0], ids[1], points)


def patch_ids(run: Run, clean: Tensor, corrupted: Tensor, points: str) -> Patch:
    model = run.model
    with capture(model) as captured:
        clean_logits = model(clean)[0][0, -1]
    corrupted_logits = model(corrupted)[0][0, -1]
    answers = int(clean_logits.argmax()), int(corrupted_logits.argmax())
    if answers[0] == answers[1]:
        raise DataError(
            f"both texts have the same answer, {run.decode([answers[0]])!r}: change the word that the answer depends on"
        )

    def difference(logits: Tensor) -> Tensor:
        return logits[..., answers[0]] - logits[..., answers[1]]

    best, worst = float(difference(clean_logits)), float(difference(corrupted_logits))
    names = [name for name in captured if is_point(captured, name, points, clean.shape[1])]
    if not names:
        raise DataError(
            f"{points}: no value with positions has this name; seqloom inspect activations lists the names"
        )
    copies = corrupted.expand(clean.shape[1], -1)
    rows = []
    for name in names:
        with change(model, {name: Replace(captured[name])}):
            rows.append((difference(model(copies)[0][:, -1]) - worst) / (best - worst))
    decode = [tuple(run.decode([token]) for token in row[0].tolist()) for row in (clean, corrupted)]
    return Patch(
        decode[0],
        decode[1],
        (run.decode([answers[0]]), run.decode([answers[1]])),
        (best, worst),
        tuple(names),
        torch.stack(rows).numpy(),
    )


def is_point(captured: Captured, name: str, pattern: str, length: int) -> bool:
    """Whether a value has a position axis and is asked for."""
    from fnmatch import fnmatchcase

    point: Point = captured.point(name)
    if "#" in name or point.axes != "BTD" or captured[name].shape[1] != length:
        return False
    if pattern:
        return fnmatchcase(name, pattern)
    return name in ("embedding", "stack.input") or (
        point.symbol in ("x", "h", "c", "X") and "after" not in name
    )

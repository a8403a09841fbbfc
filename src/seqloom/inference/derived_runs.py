"""Runs made from runs: an ensemble, and a run with int8 weights."""

from __future__ import annotations

import copy
from typing import cast

from seqloom import nn as equations
from seqloom.decoding import Ensemble
from seqloom.errors import UserError
from seqloom.models import Model
from seqloom.run import Run, RunLike, as_run
from seqloom.text.tokenizer import signature


def ensemble(*runs: RunLike) -> Run:
    """Several runs as one that averages their probabilities [L6]: models of any types, with one tokenizer. It has the
    config and the decoding defaults of the first.

    >>> both = seqloom.ensemble(translator, translator)
    >>> abs(seqloom.score(both, "the cat", "a").logprob - seqloom.score(translator, "the cat", "a").logprob) < 1e-5
    True
    """
    if not runs:
        raise UserError("an ensemble without members: give at least one run")
    first, *others = (as_run(run) for run in runs)
    if not others:
        return first
    for run in (first, *others):
        if run.model.copies:
            raise UserError(
                f"{run.folder}: a model that copies words of its source cannot join an ensemble; leave it out"
            )
    for run in others:
        if signature(run.tokenizer) != signature(first.tokenizer) or run.adds_eos != first.adds_eos:
            raise UserError(
                f"{run.folder}: its tokenizer differs from that of {first.folder}, but an ensemble needs one tokenizer: "
                "train both on the same text, or with "
                f"tokenizer.type=File tokenizer.path={first.folder / 'tokenizer.json'}"
            )
        if run.model.reads != first.model.reads:
            raise UserError(f"{run.folder}: {first.folder} reads something else; give runs of one task")
    joined = Ensemble([run.model for run in (first, *others)])
    joined.task, joined.reads = first.model.task, first.model.reads
    # An Ensemble is not a Model, but has all that generation reads of one.
    model = cast(Model, joined)
    return Run(first.folder, first.config, first.tokenizer, model)


def quantize(run: RunLike, kind: str = "int8") -> Run:
    """The run with its matrices in int8: faster generation and a quarter of the memory. The given run stays as it is.

    >>> seqloom.quantize(run, "int8").folder == run.folder
    True
    """
    run = as_run(run)
    model = copy.deepcopy(run.model)
    equations.quantize(model, kind)
    return Run(run.folder, run.config, run.tokenizer, model, run.labels)

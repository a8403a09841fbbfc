"""Which verb fits a run, by the task of its model.

Every verb asks here when a run is not for it, so that the answer to a wrong verb is always the right one.
"""

from __future__ import annotations

from seqloom.errors import RunError
from seqloom.run import Run

# Task of a model: what it does, and the verb for it.
VERBS = {
    "language modelling": ("continues text", "generate"),
    "translation": ("translates", "translate"),
    "summarization": ("writes summaries", "summarize"),
    "masked language modelling": ("fills in masked tokens", "fill-mask"),
    "encoding": ("has no output, only vectors of texts", "embed"),
    "tagging": ("predicts a tag for each word", "predict"),
    "classification": ("predicts labels", "predict"),
    "regression": ("predicts numbers", "predict"),
    "question answering": ("predicts answers", "predict"),
    "speech recognition": ("transcribes recordings", "transcribe"),
    "captioning": ("describes pictures", "caption"),
    "reward": ("scores answers", "evaluate"),
}


def wrong_verb(run: Run, verb: str, remedy: str = "") -> RunError:
    """The error for a verb that does not fit a run: what the run does, and the command for it, or another `remedy`."""
    does, fitting = VERBS[run.model.task]
    remedy = remedy or f"use: seqloom {fitting} {run.folder}"
    return RunError(f"{run.folder}: {verb} does not fit this run, which {does}; {remedy}")

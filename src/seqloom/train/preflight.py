"""Checks a training before it begins: builds everything, reads the data, and measures a few steps."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.nn import Module

from seqloom.config_source import TRAINING_BYTES, Change
from seqloom.report import escape, frame, page, table
from seqloom.results import Result
from seqloom.run_config import Config
from seqloom.train import budget, finetune
from seqloom.train.limits import MEMORY_SHARE, batch_sizes
from seqloom.train.options import TrainJob, TrainOptions
from seqloom.train.plan import plan_steps
from seqloom.train.preparation import PreparedRun, build_options, make_data, prepare
from seqloom.train.process import machine_memory

logger = logging.getLogger("seqloom")


@dataclass(frozen=True)
class Check(Result):
    """What a training will cost; None is what cannot be known without data.

    memory
        Bytes at the peak of a step; without data, those of the weights, their gradients and the optimizer.
    seconds
        Of all steps, measured on this machine; between `seconds_low`, if no other program uses it, and `seconds_high`.
    train_tokens, valid_tokens
        Tokens that the model learns to predict; of a model that predicts labels, those that it reads.
    flops_per_token
        Of a token; of a model that predicts labels, of one label.
    batch
        The option of the config that sets the size of a batch, with its value.
    largest_batch
        The largest value of that option that fits the memory.
    warnings
        What is strange about the data or the sizes.
    """

    parameters: int
    by_part: dict[str, int]
    vocabulary: int
    train_records: int | None = None  # if each has labels
    valid_records: int | None = None
    train_tokens: int | None = None
    valid_tokens: int | None = None
    flops_per_token: float | None = None
    steps: int | None = None
    memory: float | None = None
    seconds: float | None = None
    seconds_low: float | None = None
    seconds_high: float | None = None
    batch: dict[str, int] = field(default_factory=dict)
    largest_batch: int | None = None
    warnings: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Names and values for people."""
        facts: list[tuple[str, Any]] = [
            ("parameters", self.parameters),
            *((f"  {name}", count) for name, count in self.by_part.items()),
            ("vocabulary", self.vocabulary),
            ("training records", self.train_records),
            ("held-out records", self.valid_records),
            ("training tokens", self.train_tokens),
            ("held-out tokens", self.valid_tokens),
            (
                "MFLOP a token" if self.train_records is None else "MFLOP a label",
                self.flops_per_token and f"{self.flops_per_token / 1e6:.2f}",
            ),
            ("steps", self.steps),
            ("memory", self.memory and f"{self.memory / 1e9:.2f} GB"),
            (
                "time",
                self.seconds and budget.duration_range(self.seconds, self.seconds_low, self.seconds_high),
            ),
            *self.batch.items(),
            *((f"largest {name}", self.largest_batch) for name in self.batch),
        ]
        return [
            (name, f"{value:,}" if isinstance(value, int) else value)
            for name, value in facts
            if value is not None
        ]

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(warning)}</p>" for warning in self.warnings)
        return frame(page("Check", table(("", ""), self.rows()) + notes), height=420)


def check(
    what: str | Config,
    *changes: Change,
    data: str | Sequence[str] | None = None,
    valid: Sequence[str] | None = None,
    memory: float | None = None,
    parts: Sequence[type[Module]] = (),
) -> Check:
    """What a training will cost, and whether its config and data fit together.

    `memory` is the bytes that may be filled, by default nine tenths of this machine's. Without data the model is built without memory,
    for the vocabulary of its tokenizer or for 1,000 tokens.

    >>> check("gpt2", "size=355M").parameters
    354823168
    """
    paths = [data] if isinstance(data, str) else data
    if isinstance(what, Config):
        config = what.change(*changes)
    else:
        config = Config.load(what, changes, paths, valid, parts=parts)
    return check_config(config, memory)


def check_config(config: Config, memory: float | None = None) -> Check:
    """The costs of a checked config."""
    options = build_options(config)
    limit = memory or MEMORY_SHARE * machine_memory() or math.inf
    if not config.files.train:
        return check_sizes(config, limit)
    with collect_warnings() as warnings:
        prepared = prepare(config, progress=False)
        counts = budget.parameters(prepared.model)
        sizes: dict[str, Any] = {
            "parameters": sum(counts.values()),
            "by_part": counts,
            "vocabulary": prepared.tokenizer.get_vocab_size(),
            **count_data(prepared),
        }
        if not isinstance(options, TrainOptions):  # a solver: it takes no steps that could be measured
            return Check(**sizes, warnings=tuple(warnings))
        costs = measure(config, options, prepared, limit)
        warn_of_memory(costs["memory"], limit)
    return Check(**sizes, **costs, warnings=tuple(warnings))


def count_data(prepared: PreparedRun) -> dict[str, int]:
    """The records and tokens of the data, as `Check` has them."""
    splits = {"train": prepared.train, "valid": prepared.valid}
    if not prepared.model.predicts_labels:
        return {f"{name}_tokens": split.fields[-1].num_tokens for name, split in splits.items()}
    counts = {f"{name}_records": len(split) for name, split in splits.items()}
    if prepared.model.reads == "text":
        counts |= {f"{name}_tokens": split.fields[0].num_tokens for name, split in splits.items()}
    return counts


def check_sizes(config: Config, limit: float) -> Check:
    """What is known without data."""
    tokenizer = config.tree["tokenizer"]
    size = tokenizer.get("size") if isinstance(tokenizer, dict) else None
    vocabulary = size if isinstance(size, int) else 1000
    counts = budget.parameters(config.meta_model(vocabulary))
    parameters = sum(counts.values())
    needed = TRAINING_BYTES * parameters
    with collect_warnings() as warnings:
        warn_of_memory(needed, limit)
    return Check(parameters, counts, vocabulary, memory=needed, warnings=tuple(warnings))


def measure(config: Config, options: TrainOptions, prepared: PreparedRun, limit: float) -> dict[str, Any]:
    """Measures a few steps, and how large a batch may be: a step's activations grow with the batch, all else stays."""
    factors = finetune.lr_factors(prepared.model, config) if config.finetunes else {}
    data = make_data(config, prepared.model, prepared.tokenizer)
    train, valid = data(prepared.train), data(prepared.valid)
    job = TrainJob(
        Path(), prepared.model, config.objective, train, valid, seed=config.seed, lr_factors=factors
    )
    costs = budget.measure_costs(options, job)
    epoch_steps = train.epoch_batches() / options.accumulate if "epochs" in options.budget else 0.0
    steps, eval_every = plan_steps(options, costs, epoch_steps, 0.0)
    estimate = costs.estimate(0.0, steps, eval_every)
    sizes = batch_sizes(config)
    largest = None
    for size in sizes.values():
        room = limit - (estimate.memory - costs.activations)
        if math.isfinite(room):
            largest = max(0, int(size * room / max(costs.activations, 1)))
    return {
        "flops_per_token": estimate.flops_per_token,
        "steps": steps,
        "memory": estimate.memory,
        "seconds": estimate.seconds,
        "seconds_low": estimate.low,
        "seconds_high": estimate.high,
        "batch": sizes,
        "largest_batch": largest,
    }


def warn_of_memory(needed: float, limit: float) -> None:
    """Warns if a step needs more memory than there is."""
    if needed > limit:
        sizes = f"a step needs {needed / 1e9:.3g} GB, and {limit / 1e9:.3g} GB can be used"
        logger.warning("%s; make the model or the batch smaller", sizes)


class WarningList(logging.Handler):
    """Keeps the messages of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """The warnings that the log of seqloom receives inside, in a list."""
    handler = WarningList()
    logger.addHandler(handler)
    try:
        yield handler.messages
    finally:
        logger.removeHandler(handler)

"""From measured runs to a table: the score with its interval, rank or tie, the cost of the training.

Where every record has a score, intervals and ties come from a bootstrap over records and seeds; elsewhere, as for running text, from the
spread of the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np

from seqloom.data.overlap import LeakReport
from seqloom.errors import UserError
from seqloom.measure.by_length import by_length
from seqloom.measure.number import RESAMPLES, SEED, draws
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run_files import Results, read_results
from seqloom.studies.likeness import conditions_of, marks_of, ranked_rows, shared_signature
from seqloom.studies.measuring import Measured, measure
from seqloom.studies.study import Study, digests

ALPHA = 0.05  # significance level
LOWER_IS_BETTER = {"bits_per_byte", "perplexity", "per", "wer", "cer", "rmse", "mae"}
# The metrics of a task, the one to rank by first. The first set of which every run has all is taken.
METRICS: dict[str, tuple[tuple[str, ...], ...]] = {
    "language modelling": (("bits_per_byte", "perplexity"), ("perplexity",)),
    "masked language modelling": (("accuracy", "perplexity"),),
    "translation": (("bleu", "chrf"), ("per", "wer")),
    "speech recognition": (("wer", "cer"),),
    "summarization": (("rouge_l", "rouge_2", "rouge_1"),),
    "classification": (("accuracy", "macro_f1"),),
    "tagging": (("span_f1", "accuracy"), ("accuracy", "macro_f1")),
    "question answering": (("answer_f1", "exact_match"),),
    "regression": (("spearman", "pearson", "rmse"), ("spearman",)),
}


@dataclass(frozen=True)
class ResultRow(Result):
    """One system, over all its seeds."""

    system: str
    seeds: int
    metrics: dict[str, float]  # means over seeds; the first is the one that ranks
    interval: float | None  # ± of the 95 % interval of the first metric; None if one seed cannot tell
    spread: float  # highest seed - lowest seed
    rank: int | None  # None if it was measured in another way than the others
    tie: bool  # with the row above
    p: float | None  # of the hypothesis that it equals the row above
    parameters: int
    flops: float | None  # of training, forward and backward
    tokens: float
    steps: int
    seconds: float | None
    memory: float | None  # bytes at the peak
    texts_per_second: float | None  # of the test data, measured
    by_length: dict[str, float]  # the metric of the records, by the words of their source
    signature: str
    marks: tuple[str, ...] = ()  # in what its conditions differ from those of the other rows
    leaks: LeakReport | None = (
        None  # between its training data and the test data; None if that cannot be checked
    )
    folders: tuple[Path, ...] = field(default=(), metadata={"json": False})
    is_ensemble: bool = field(default=False, metadata={"json": False})


class SystemRuns(NamedTuple):
    """The runs of one row: the seeds of a system, or the members of an ensemble."""

    title: str
    name: str
    folders: tuple[Path, ...]
    is_ensemble: bool = False

    @property
    def done(self) -> bool:
        return all((folder / "results.json").exists() for folder in self.folders)


def entries(study: Study) -> list[SystemRuns]:
    """Every system; with `ensembles` also an ensemble of each system's seeds [L6], and one of all systems' first runs."""
    result = [
        SystemRuns(system.title, system.folder_name, tuple(run.folder for run in study.runs_of(system)))
        for system in study.systems
    ]
    if not study.ensembles:
        return result
    several = [entry for entry in result if len(entry.folders) > 1]
    ensembles = [
        SystemRuns(f"{entry.title} × {len(entry.folders)}", f"{entry.name}-together", entry.folders, True)
        for entry in several
    ]
    if len(result) > 1:
        first = tuple(entry.folders[0] for entry in result)
        ensembles.append(SystemRuns("all together", "all-together", first, True))
    return [*result, *ensembles]


def measure_entry(study: Study, entry: SystemRuns) -> list[Measured]:
    """The runs of a row on the test data; an ensemble is measured once."""
    if entry.is_ensemble:
        return [measure(study, entry.name, entry.folders)]
    return [
        measure(study, f"{entry.name}-seed-{seed}", [folder]) for seed, folder in enumerate(entry.folders)
    ]


def rows(study: Study, progress: ProgressOption = False) -> list[ResultRow]:
    """The table, best system first. It holds only systems all of whose seeds are finished."""
    finished = [entry for entry in entries(study) if entry.done]
    measured: dict[str, list[Measured]] = {}
    with Reporter("measuring", len(finished), progress) as report:
        for entry in finished:
            measured[entry.title] = measure_entry(study, entry)
            report.advance()
    if not finished:
        return []
    names = metrics_of(study.task, [one for runs in measured.values() for one in runs])
    main = names[0]
    data = "+".join(digest[:8] for digest in digests(study.test))
    most_seeds = max(len(runs) for runs in measured.values())
    sign = 1 if main in LOWER_IS_BETTER else -1
    scores = {title: [one.numbers[main].value for one in runs] for title, runs in measured.items()}
    finished.sort(key=lambda entry: sign * mean(scores[entry.title]))
    found = [
        conditions_of(runs[0].numbers[main], entry.folders[0], runs[0].leaks)
        for entry in finished
        for runs in [measured[entry.title]]
    ]
    is_ranked = ranked_rows(found)
    marks = marks_of(found)
    ranked_numbers = [
        one.numbers[main]
        for entry, ranked in zip(finished, is_ranked, strict=True)
        if ranked
        for one in measured[entry.title]
    ]
    order = sorted(range(len(finished)), key=lambda index: not is_ranked[index])  # those without a rank last
    result: list[ResultRow] = []
    for place, index in enumerate(order):
        entry = finished[index]
        runs = measured[entry.title]
        p = None
        if place and is_ranked[index]:
            p = p_value(main, measured[finished[order[place - 1]].title], runs)
        tie = p is not None and p >= ALPHA
        rank = None if not is_ranked[index] else result[-1].rank if tie else place + 1
        numbers = ranked_numbers if is_ranked[index] else [one.numbers[main] for one in runs]
        signature = f"{shared_signature(numbers, data)}|seeds:{most_seeds}"
        row = make_row(entry, runs, names, (rank, tie, p), signature)
        result.append(replace(row, marks=marks[index], leaks=runs[0].leaks))
    return result


def metrics_of(task: str, runs: Sequence[Measured]) -> tuple[str, ...]:
    """The metrics to show, of which all runs have each."""
    for names in METRICS.get(task, ()):
        if all(name in run.numbers for run in runs for name in names):
            return names
    raise UserError(
        f"{task}: these runs have no metric in common that could rank them; evaluate each by itself"
    )


def make_row(
    entry: SystemRuns,
    runs: Sequence[Measured],
    names: Sequence[str],
    place: tuple[int | None, bool, float | None],
    signature: str,
) -> ResultRow:
    """A row of the table; costs come from the results.json of the runs."""
    results: list[Results] = [read_results(folder) for folder in entry.folders]
    cost = sum if entry.is_ensemble else mean  # an ensemble costs what its members cost together
    values = [run.numbers[names[0]].value for run in runs]
    flops = [
        result.flops_per_token * result.tokens for result in results if result.flops_per_token is not None
    ]
    actual = [result.actual for result in results if result.actual is not None]
    records = runs[0].records
    speeds = [len(run.records.lengths) / max(run.seconds, 1e-9) for run in runs if run.records]
    rank, tie, p = place
    return ResultRow(
        system=entry.title,
        seeds=len(runs),
        metrics={name: mean(run.numbers[name].value for run in runs) for name in names},
        interval=interval_of(names[0], runs),
        spread=max(values) - min(values),
        rank=rank,
        tie=tie,
        p=p,
        parameters=round(cost(result.parameters.total for result in results)),
        flops=cost(flops) if flops else None,
        tokens=cost(result.tokens for result in results),
        steps=round(cost(result.steps for result in results)),
        seconds=cost(one.seconds for one in actual) if actual else None,
        memory=max(one.memory for one in actual) if actual else None,
        texts_per_second=mean(speeds) if speeds else None,
        by_length=length_scores(runs) if records else {},
        signature=signature,
        folders=entry.folders,
        is_ensemble=entry.is_ensemble,
    )


def length_scores(runs: Sequence[Measured]) -> dict[str, float]:
    """The metric of the records by the words of their source, a mean over the seeds."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.records:
            for bucket in by_length(run.records, ""):
                name = (
                    f"{bucket.shortest}–{bucket.longest}"
                    if bucket.shortest < bucket.longest
                    else str(bucket.shortest)
                )
                found.setdefault(name, []).append(bucket.number.value)
    return {name: mean(values) for name, values in found.items()}


def resampled(main: str, runs: Sequence[Measured]) -> np.ndarray | None:
    """The metric of each run in each resample of the records, (seeds, RESAMPLES); None if records have no scores of it."""
    records = [run.records for run in runs if run.records and run.records.name == main]
    if len(records) < len(runs) or len({len(one.lengths) for one in records}) > 1:
        return None
    blocks = [
        np.stack([one.scores(block @ one.statistics) for one in records])
        for block in draws(len(records[0].lengths))
    ]
    return np.concatenate(blocks, axis=1)


def interval_of(main: str, runs: Sequence[Measured]) -> float | None:
    """± of the 95 % interval: over records and seeds, else over seeds by Student's t."""
    found = resampled(main, runs)
    if found is None:
        return seeds_interval([run.numbers[main].value for run in runs])
    chosen = np.random.default_rng(SEED).integers(0, len(found), found.shape)
    means = np.take_along_axis(found, chosen, axis=0).mean(0)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(high - low) / 2


def seeds_interval(values: Sequence[float]) -> float | None:
    """t σ / √n; None for one seed."""
    from scipy.stats import t

    if len(values) < 2:
        return None
    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def p_value(main: str, first: Sequence[Measured], second: Sequence[Measured]) -> float | None:
    """The probability of a difference as large as the one seen, if there is none: by paired bootstrap over records, else by Welch's t-test
    over seeds. None if one seed each cannot tell."""
    a, b = resampled(main, first), resampled(main, second)
    values = [[run.numbers[main].value for run in runs] for runs in (first, second)]
    difference = mean(values[0]) - mean(values[1])
    if a is not None and b is not None:
        drawn = a.mean(0) - b.mean(0)
        beyond = np.abs(drawn - drawn.mean()) >= abs(difference)
        return float((beyond.sum() + 1) / (RESAMPLES + 1))
    if min(map(len, values)) < 2:
        return None
    if difference == 0 or stdev(values[0]) + stdev(values[1]) == 0:
        return float(difference == 0)
    from scipy.stats import ttest_ind

    return float(ttest_ind(*values, equal_var=False).pvalue)

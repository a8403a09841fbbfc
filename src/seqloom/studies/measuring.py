"""Measures the runs of a study on its test data, each once: the result is kept in the folder of the study."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom import files
from seqloom.data.overlap import LeakReport
from seqloom.evaluation import Evaluation, evaluate, evaluate_pairs
from seqloom.inference.derived_runs import ensemble
from seqloom.inference.training_overlap import read_report
from seqloom.measure.by_length import ScoredRecords, percentage, root_mean
from seqloom.measure.number import Number
from seqloom.measure.pronunciation import phoneme_error_rates
from seqloom.measure.rouge import mean_percent
from seqloom.measure.speech import error_rates
from seqloom.measure.translation import bleu_scores
from seqloom.results import to_json
from seqloom.run import Run, load
from seqloom.run_files import make_number
from seqloom.studies.study import Study, digests

# How a metric is computed from sums of the statistics of records.
SCORES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "bleu": bleu_scores,
    "accuracy": percentage,
    "exact_match": percentage,
    "rmse": root_mean,
    "rouge_l": mean_percent,
    "per": phoneme_error_rates,
    "wer": error_rates,
}


class Measured(NamedTuple):
    """The metrics of one run on the test data; its records, if a metric can be computed for some of them; how long it took; and which
    test records are in its training data, if that is known."""

    numbers: dict[str, Number]
    records: ScoredRecords | None
    seconds: float
    leaks: LeakReport | None = None


def measure(study: Study, name: str, folders: Sequence[Path]) -> Measured:
    """Measures a run, or the ensemble of several. `name` is that of the file in which the result is kept."""
    key = {
        "test": digests(study.test),
        "weights": [files.sha256(folder / "model.safetensors") for folder in folders],
    }
    path = study.folder / "measured" / f"{name}.json"
    if path.exists():
        saved = json.loads(path.read_text("utf-8"))
        if saved["key"] == key:
            return from_json(saved)
    run = open_members(folders)
    start_time = time.perf_counter()
    found = evaluate(run, list(study.test)) if len(folders) == 1 else evaluate_ensemble(run, study)
    seconds = time.perf_counter() - start_time
    path.parent.mkdir(parents=True, exist_ok=True)
    content = to_json({"key": key, "seconds": seconds, **to_content(found)})
    files.write_atomic(path, json.dumps(content, ensure_ascii=False))
    return from_json(content)


def open_members(folders: Sequence[Path]) -> Run:
    """A run, or an ensemble."""
    return ensemble(*(load(folder) for folder in folders)) if len(folders) > 1 else load(folders[0])


def evaluate_ensemble(run: Run, study: Study) -> Evaluation:
    """What an ensemble generates; its probabilities are not measured."""
    records = list(run.config.reader(list(study.test)))
    numbers, scored = evaluate_pairs(run, records, run.decoding.plan(), False, {"seed": 0})
    return Evaluation(tuple(numbers), "", None, records=scored)


def to_content(found: Evaluation) -> dict[str, Any]:
    """An evaluation as JSON."""
    records = found.records
    return {
        "numbers": list(found.numbers),
        "leaks": found.leaks,
        "records": records
        and {"name": records.name, "lengths": records.lengths, "statistics": records.statistics},
    }


def from_json(saved: dict[str, Any]) -> Measured:
    numbers = [make_number(number) for number in saved["numbers"]]
    records = saved["records"]
    if records is not None and records["name"] in SCORES:
        statistics = np.array(records["statistics"], np.float64)
        records = ScoredRecords(records["name"], records["lengths"], statistics, SCORES[records["name"]])
    else:
        records = None
    leaks = read_report(saved["leaks"]) if saved.get("leaks") else None
    return Measured({number.name: number for number in numbers}, records, saved["seconds"], leaks)

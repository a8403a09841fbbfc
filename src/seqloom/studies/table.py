"""From finished runs to a table: score with its interval, rank or tie, training cost, and BLEU by sentence length."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from seqloom import files
from seqloom.decoding import Decoding
from seqloom.inference.generation import ensemble, generate
from seqloom.measure.number import Number
from seqloom.measure.translation import translation
from seqloom.run import load
from seqloom.studies.study import Study, name
from seqloom.text.corpus import Parallel

ALPHA = 0.05  # significance level
RESAMPLES = 1000  # of the bootstrap


class ResultRow(NamedTuple):
    """One system, over all its seeds."""

    system: str
    seeds: int
    bleu: float  # mean over seeds
    interval: float  # ± of the 95 % bootstrap interval, over seeds and sentences together
    spread: float  # highest seed - lowest seed
    chrf: float
    rank: int
    tie: bool  # with the row above
    p: float | None  # of the hypothesis that it equals the row above, by paired bootstrap
    parameters: int
    flops: float  # of training, forward and backward
    tokens: float
    steps: int
    seconds: float
    memory: float  # bytes at the peak
    by_length: list[float]  # BLEU in each bucket of source lengths
    signature: str


class SystemRuns(NamedTuple):
    """The runs of one row: the seeds of a system, or the members of an ensemble."""

    title: str
    folders: tuple[Path, ...]
    is_ensemble: bool = False

    @property
    def done(self) -> bool:
        return all((folder / "results.json").exists() for folder in self.folders)


class TranslatedTest(NamedTuple):
    """The translations of the test text by one row's runs, all seeds in sequence, and the scores of each seed."""

    texts: list[str]
    scores: list[list[Number]]  # BLEU, then chrF


class Rank(NamedTuple):
    """Where a row stands, and how sure that is."""

    rank: int
    tie: bool
    p: float | None
    interval: float


def entries(study: Study) -> list[SystemRuns]:
    """Every system; with `ensembles` also an ensemble of each system's seeds [L6], and one of all systems' first runs."""
    folders_of = {
        name(system): tuple(study.folder / name(system) / f"seed-{seed}" for seed in range(study.seeds))
        for system in study.systems
    }
    result = [SystemRuns(title, folders) for title, folders in folders_of.items()]
    if study.ensembles and study.seeds > 1:
        result += [
            SystemRuns(f"{title} × {study.seeds}", folders, True) for title, folders in folders_of.items()
        ]
    if study.ensembles and len(folders_of) > 1:
        result.append(SystemRuns("all together", tuple(folders[0] for folders in folders_of.values()), True))
    return result


def translations_of(study: Study, *folders: Path) -> tuple[list[str], list[Number]]:
    """The translations of the test text by a run, or by an ensemble of several, and their scores.

    They are computed once and stored in the folder of the first run.
    """
    path = folders[0] / f"{cache_name(study, folders)}.json"
    if path.exists():
        saved = json.loads(path.read_text("utf-8"))
        return saved["outputs"], [Number(**number) for number in saved["numbers"]]
    run = ensemble([load(folder) for folder in folders])
    sources, references = read_test_text(study)
    decoding = Decoding(beam=study.beam, length_penalty=study.penalty)
    completions = generate(run, sources, decoding)
    texts = [candidates[0].text for candidates in completions]
    conditions: dict[str, object] = {
        "data": files.sha256(Path(study.test[1]))[:12],
        "search": f"beam{study.beam}-{study.penalty}",
        "seed": run.recipe.seed,
    }
    numbers = translation(texts, references, conditions)
    content = {"outputs": texts, "numbers": [number.json() for number in numbers]}
    files.write_atomic(path, json.dumps(content, ensure_ascii=False))
    return texts, numbers


def cache_name(study: Study, folders: Sequence[Path]) -> str:
    """The file name of stored translations, which identifies the test text, the search and the members of an ensemble."""
    result = f"test-{files.sha256(Path(study.test[0]))[:12]}-beam{study.beam}-{study.penalty}"
    if len(folders) == 1:
        return result
    members = [
        [str(folder.relative_to(study.folder)), files.sha256(folder / "model.safetensors")]
        for folder in folders
    ]
    digest = hashlib.sha256(json.dumps(members).encode()).hexdigest()
    return f"{result}-with-{digest[:12]}"


def read_test_text(study: Study) -> tuple[list[str], list[str]]:
    """The sources and the references of the test text."""
    pairs = list(Parallel(list(study.test)))
    return [source for source, _ in pairs], [target for _, target in pairs]


def shared_signature(numbers: Sequence[Number]) -> str:
    """The signature of all numbers of a column, without the seed; raises if they differ."""
    signatures = {re.sub(r"\|seed:\d+", "", number.signature) for number in numbers}
    if len(signatures) > 1:
        examples = " and ".join(sorted(signatures)[:2])
        raise ValueError(
            f"numbers with different signatures cannot share a column: {examples}; measure them alike"
        )
    return signatures.pop()


def buckets(sources: Sequence[str], count: int = 5) -> list[tuple[int, int]]:
    """Source lengths in words, cut into `count` ranges with about as many sentences each, as (shortest, longest)."""
    lengths = sorted(len(source.split()) for source in sources)
    edges = sorted({lengths[min(len(lengths) - 1, len(lengths) * part // count)] for part in range(1, count)})
    starts = [lengths[0], *(edge for edge in edges if edge > lengths[0])]
    return [(low, high - 1) for low, high in zip(starts, [*starts[1:], lengths[-1] + 1], strict=True)]


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    from sacrebleu.metrics import BLEU

    return BLEU(effective_order=False).corpus_score(list(hypotheses), [list(references)]).score


def bleu_by_length(texts: Sequence[str], sources: Sequence[str], references: Sequence[str]) -> list[float]:
    """BLEU in each bucket of source lengths; `texts` and `references` hold the test text once per seed."""
    repeated = list(sources) * (len(references) // len(sources))
    lengths = [len(source.split()) for source in repeated]
    result = []
    for low, high in buckets(sources):
        indices = [i for i, length in enumerate(lengths) if low <= length <= high]
        result.append(bleu([texts[i] for i in indices], [references[i] for i in indices]))
    return result


def paired_bootstrap(
    baseline: tuple[str, list[str]], system: tuple[str, list[str]], references: list[str]
) -> tuple[float, float]:
    """sacrebleu's paired bootstrap of a system against a baseline: p, and the ± of the system's interval."""
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest, Result

    _, scores = PairedTest([baseline, system], {"BLEU": BLEU()}, [references], "bs", RESAMPLES)()
    result = scores["BLEU"][1]
    if not isinstance(result, Result) or result.p_value is None or result.ci is None:
        raise TypeError(f"sacrebleu returned no bootstrap result: {result!r}")
    # For equal outputs no resample differs, and sacrebleu would return its smallest p.
    p = 1.0 if baseline[1] == system[1] else float(result.p_value)
    return p, float(result.ci)


def rows(study: Study, log: Callable[[str], None] = lambda _: None) -> list[ResultRow]:
    """The table, best system first. It holds only systems all of whose seeds are finished."""
    sources, references = read_test_text(study)
    all_references = references * study.seeds
    systems = [entry for entry in entries(study) if entry.done]
    outputs: dict[str, TranslatedTest] = {}
    for entry in systems:
        log(f"translating with {entry.title}")
        outputs[entry.title] = translate_test(study, entry)
    if not systems:
        return []
    signature = shared_signature([scores[0] for output in outputs.values() for scores in output.scores])
    systems.sort(key=lambda entry: -mean(scores[0].value for scores in outputs[entry.title].scores))
    result: list[ResultRow] = []
    for index, entry in enumerate(systems):
        above = systems[index - 1 if index else min(1, len(systems) - 1)].title
        p, interval = paired_bootstrap(
            (above, outputs[above].texts), (entry.title, outputs[entry.title].texts), all_references
        )
        tie = index > 0 and p >= ALPHA
        rank = Rank(result[-1].rank if tie else index + 1, tie, p if index else None, interval)
        by_length = bleu_by_length(outputs[entry.title].texts, sources, all_references)
        result.append(make_row(entry, outputs[entry.title].scores, rank, by_length, signature))
    return result


def translate_test(study: Study, entry: SystemRuns) -> TranslatedTest:
    """The translations of the test text by the runs of a row. Those of an ensemble are repeated once per seed."""
    if entry.is_ensemble:
        texts, numbers = translations_of(study, *entry.folders)
        return TranslatedTest(texts * study.seeds, [numbers])
    outputs = [translations_of(study, folder) for folder in entry.folders]
    return TranslatedTest(
        [text for texts, _ in outputs for text in texts], [numbers for _, numbers in outputs]
    )


def make_row(
    entry: SystemRuns, scores: list[list[Number]], rank: Rank, by_length: list[float], signature: str
) -> ResultRow:
    """A row of the table; costs come from the results.json of the runs."""
    results: list[dict[str, Any]] = [
        json.loads((folder / "results.json").read_text("utf-8")) for folder in entry.folders
    ]
    cost = sum if entry.is_ensemble else mean  # an ensemble costs what its members cost together
    bleu_scores = [numbers[0].value for numbers in scores]
    return ResultRow(
        system=entry.title,
        seeds=len(scores),
        bleu=mean(bleu_scores),
        interval=rank.interval,
        spread=max(bleu_scores) - min(bleu_scores),
        chrf=mean(numbers[1].value for numbers in scores),
        rank=rank.rank,
        tie=rank.tie,
        p=rank.p,
        parameters=round(cost(sum(result["parameters"].values()) for result in results)),
        flops=cost(result["FLOPs per token"] * result["tokens"] for result in results),
        tokens=cost(result["tokens"] for result in results),
        steps=round(cost(result["steps"] for result in results)),
        seconds=cost(result["actual"]["seconds"] for result in results),
        memory=max(result["actual"]["memory"] for result in results),
        by_length=by_length,
        signature=signature,
    )

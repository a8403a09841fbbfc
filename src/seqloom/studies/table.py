"""From finished runs to a table: score with its interval, rank or tie, what it cost, and how it falls with length."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from seqloom import files
from seqloom.decoding import Decoding
from seqloom.inference.generation import ensemble, generate
from seqloom.measure import Number, translation
from seqloom.run import load
from seqloom.studies.study import Study, name
from seqloom.text.corpus import Parallel

ALPHA = 0.05
RESAMPLES = 1000


class ResultRow(NamedTuple):
    """One system, over all its seeds."""

    system: str
    seeds: int
    bleu: float  # mean over seeds
    interval: float  # ± of the 95 % bootstrap interval, seeds and sentences together
    spread: float  # highest seed - lowest seed
    chrf: float
    rank: int
    tie: bool  # with the one above
    p: float | None  # that it is no different from the one above, by paired bootstrap
    parameters: int
    flops: float  # of the training, forward and backward
    tokens: float
    steps: int
    seconds: float
    memory: float  # bytes at the peak
    by_length: list[float]  # BLEU in each bucket
    signature: str


class SystemRuns(NamedTuple):
    """What stands in a row: the runs of a system's seeds one by one, or joined in one ensemble."""

    title: str
    folders: tuple[Path, ...]
    joined: bool = False

    @property
    def done(self) -> bool:
        return all((folder / "results.json").exists() for folder in self.folders)


def entries(study: Study) -> list[SystemRuns]:
    """Every system; with `ensembles` the seeds of each joined as well [L6], and the first runs of all systems together."""
    found = {
        name(system): tuple(study.folder / name(system) / f"seed-{seed}" for seed in range(study.seeds))
        for system in study.systems
    }
    result = [SystemRuns(title, folders) for title, folders in found.items()]
    if study.ensembles and study.seeds > 1:
        result += [SystemRuns(f"{title} × {study.seeds}", folders, True) for title, folders in found.items()]
    if study.ensembles and len(found) > 1:
        result.append(SystemRuns("all together", tuple(folders[0] for folders in found.values()), True))
    return result


def translations_of(study: Study, *folders: Path) -> tuple[list[str], list[Number]]:
    """The translations of the test text by a run, or by several as one, and their scores; made once and kept in the first one's folder."""
    kept_name = f"test-{files.sha256(Path(study.test[0]))[:12]}-beam{study.beam}-{study.penalty}"
    if len(folders) > 1:
        members = json.dumps(
            [
                [str(folder.relative_to(study.folder)), files.sha256(folder / "model.safetensors")]
                for folder in folders
            ]
        )
        kept_name += f"-with-{hashlib.sha256(members.encode()).hexdigest()[:12]}"
    place = folders[0] / f"{kept_name}.json"
    if place.exists():
        kept = json.loads(place.read_text("utf-8"))
        return kept["outputs"], [Number(**number) for number in kept["numbers"]]
    run = ensemble([load(folder) for folder in folders])
    pairs = list(Parallel(list(study.test)))
    decoding = Decoding(beam=study.beam, length_penalty=study.penalty)
    written = [found[0].text for found in generate(run, [source for source, _ in pairs], decoding)]
    facts = {
        "data": files.sha256(Path(study.test[1]))[:12],
        "search": f"beam{study.beam}-{study.penalty}",
        "seed": run.recipe.seed,
    }
    numbers = translation(written, [target for _, target in pairs], facts)
    files.write_atomic(
        place,
        json.dumps(
            {"outputs": written, "numbers": [number.json() for number in numbers]}, ensure_ascii=False
        ),
    )
    return written, numbers


def shared_signature(numbers: Sequence[Number]) -> str:
    """The signature that all numbers of a column share, seeds apart; figures that came about in different ways refuse."""
    found = {re.sub(r"\|seed:\d+", "", number.signature) for number in numbers}
    if len(found) > 1:
        raise ValueError(
            f"figures of unlike signatures cannot share a column: {' and '.join(sorted(found)[:2])}; measure them alike"
        )
    return found.pop()


def buckets(sources: Sequence[str], count: int = 5) -> list[tuple[int, int]]:
    """Source lengths in words cut into `count` parts of about as many sentences each, as (shortest, longest)."""
    lengths = sorted(len(source.split()) for source in sources)
    edges = sorted({lengths[min(len(lengths) - 1, len(lengths) * part // count)] for part in range(1, count)})
    starts = [lengths[0], *(edge for edge in edges if edge > lengths[0])]
    return [(low, high - 1) for low, high in zip(starts, [*starts[1:], lengths[-1] + 1], strict=True)]


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    from sacrebleu.metrics import BLEU

    return BLEU(effective_order=False).corpus_score(list(hypotheses), [list(references)]).score


def paired_bootstrap(
    first: tuple[str, list[str]], other: tuple[str, list[str]], references: list[str]
) -> tuple[float, float]:
    """sacrebleu's paired bootstrap of `other` against `first`: p, and the ± of other's interval."""
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    _, scores = PairedTest([first, other], {"BLEU": BLEU()}, [references], "bs", RESAMPLES)()
    result = scores["BLEU"][1]
    same = (
        first[1] == other[1]
    )  # where no resample differs sacrebleu finds none as extreme and gives its smallest p
    return 1.0 if same else float(result.p_value), float(result.ci)


def rows(study: Study, say: Callable[[str], None] = lambda _: None) -> list[ResultRow]:
    """The table, best first. Only systems with all their seeds stand in it."""
    pairs = list(Parallel(list(study.test)))
    sources, references = [source for source, _ in pairs], [target for _, target in pairs] * study.seeds
    whole = [entry for entry in entries(study) if entry.done]
    written: dict[str, list[str]] = {}
    numbers: dict[str, list[list[Number]]] = {}
    for entry in whole:
        say(f"translating with {entry.title}")
        if entry.joined:
            texts, scores = translations_of(study, *entry.folders)
            written[entry.title], numbers[entry.title] = texts * study.seeds, [scores]
        else:
            found = [translations_of(study, folder) for folder in entry.folders]
            written[entry.title], numbers[entry.title] = (
                [text for texts, _ in found for text in texts],
                [scores for _, scores in found],
            )
    signature = (
        shared_signature([scores[0] for entry in whole for scores in numbers[entry.title]]) if whole else ""
    )
    whole.sort(key=lambda entry: -mean(scores[0].value for scores in numbers[entry.title]))
    result: list[ResultRow] = []
    for place, entry in enumerate(whole):
        above = whole[place - 1 if place else min(1, len(whole) - 1)].title
        p, interval = paired_bootstrap(
            (above, written[above]), (entry.title, written[entry.title]), references
        )
        tie = place > 0 and p >= ALPHA
        standing = Rank(result[-1].rank if tie else place + 1, tie, p if place else None, interval)
        result.append(
            row(entry, written[entry.title], numbers[entry.title], standing, sources, references, signature)
        )
    return result


class Rank(NamedTuple):
    rank: int
    tie: bool
    p: float | None
    interval: float


def row(
    entry: SystemRuns,
    written: list[str],
    numbers: list[list[Number]],
    standing: Rank,
    sources: list[str],
    references: list[str],
    signature: str,
) -> ResultRow:
    results = [json.loads((folder / "results.json").read_text("utf-8")) for folder in entry.folders]
    cost = sum if entry.joined else mean  # an ensemble costs what its members cost together
    scores = [scored[0].value for scored in numbers]
    by_length = []
    for low, high in buckets(sources):
        here = [
            i
            for i, source in enumerate(sources * (len(references) // len(sources)))
            if low <= len(source.split()) <= high
        ]
        by_length.append(bleu([written[i] for i in here], [references[i] for i in here]))
    return ResultRow(
        system=entry.title, seeds=len(numbers), bleu=mean(scores), interval=standing.interval, spread=max(scores) - min(scores),
        chrf=mean(scored[1].value for scored in numbers), rank=standing.rank, tie=standing.tie, p=standing.p,
        parameters=round(cost(sum(one["parameters"].values()) for one in results)),
        flops=cost(one["FLOPs per token"] * one["tokens"] for one in results),
        tokens=cost(one["tokens"] for one in results), steps=round(cost(one["steps"] for one in results)),
        seconds=cost(one["actual"]["seconds"] for one in results), memory=max(one["actual"]["memory"] for one in results),
        by_length=by_length, signature=signature,
    )  # fmt: skip

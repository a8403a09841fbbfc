"""From finished runs to a table: score with its interval, rank or tie, what it cost, and how it falls with length."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from seqloom import files
from seqloom.compare.study import Study, name
from seqloom.evaluate import answer
from seqloom.measure import Number, translation
from seqloom.run import load
from seqloom.text.corpus import Parallel

ALPHA = 0.05
RESAMPLES = 1000


class Row(NamedTuple):
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


def outputs(study: Study, folder: Path) -> tuple[list[str], list[Number]]:
    """A run's translations of the test text and their scores; made once and kept in its folder."""
    place = folder / f"test-{files.sha256(Path(study.test[0]))[:12]}-beam{study.beam}-{study.penalty}.json"
    if place.exists():
        kept = json.loads(place.read_text("utf-8"))
        return kept["outputs"], [Number(**number) for number in kept["numbers"]]
    run = load(folder)
    pairs = list(Parallel(list(study.test)))
    written = [found[0].text for found in answer(run, [source for source, _ in pairs], width=study.beam, penalty=study.penalty)]
    facts = {"data": files.sha256(Path(study.test[1]))[:12], "search": f"beam{study.beam}-{study.penalty}", "seed": run.recipe.seed}
    numbers = translation(written, [target for _, target in pairs], facts)
    files.write_whole(place, json.dumps({"outputs": written, "numbers": [number.json() for number in numbers]}, ensure_ascii=False))
    return written, numbers


def one_column(numbers: Sequence[Number]) -> str:
    """The signature that all numbers of a column share, seeds apart; figures that came about in different ways refuse."""
    found = {re.sub(r"\|seed:\d+", "", number.signature) for number in numbers}
    if len(found) > 1:
        raise ValueError(f"figures of unlike signatures cannot share a column: {' and '.join(sorted(found)[:2])}; measure them alike")
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


def paired(first: tuple[str, list[str]], other: tuple[str, list[str]], references: list[str]) -> tuple[float, float]:
    """sacrebleu's paired bootstrap of `other` against `first`: p, and the ± of other's interval."""
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    _, scores = PairedTest([first, other], {"BLEU": BLEU()}, [references], "bs", RESAMPLES)()
    result = scores["BLEU"][1]
    same = first[1] == other[1]  # where no resample differs sacrebleu finds none as extreme and gives its smallest p
    return 1.0 if same else float(result.p_value), float(result.ci)


def rows(study: Study, say: Callable[[str], None] = lambda _: None) -> list[Row]:
    """The table, best first. Only systems with all their seeds stand in it."""
    pairs = list(Parallel(list(study.test)))
    sources, references = [source for source, _ in pairs], [target for _, target in pairs] * study.seeds
    written: dict[str, list[str]] = {}
    numbers: dict[str, list[list[Number]]] = {}
    for system, _, folder in study.runs():
        if not (folder / "results.json").exists():
            written.pop(name(system), None)
            continue
        say(f"translating with {folder}")
        texts, scores = outputs(study, folder)
        written.setdefault(name(system), []).extend(texts)
        numbers.setdefault(name(system), []).append(scores)
    whole = [system for system, texts in written.items() if len(texts) == len(references)]
    signature = one_column([scores[0] for system in whole for scores in numbers[system]]) if whole else ""
    whole.sort(key=lambda system: -mean(scores[0].value for scores in numbers[system]))
    result: list[Row] = []
    for place, system in enumerate(whole):
        above = whole[place - 1] if place else whole[min(1, len(whole) - 1)]
        p, interval = paired((above, written[above]), (system, written[system]), references)
        tie = place > 0 and p >= ALPHA
        rank = result[-1].rank if tie else place + 1
        result.append(row(study, system, written[system], numbers[system], rank, tie, p if place else None, interval, sources, references, signature))
    return result


def row(
    study: Study, system: str, written: list[str], numbers: list[list[Number]], rank: int, tie: bool, p: float | None, interval: float,
    sources: list[str], references: list[str], signature: str,
) -> Row:  # fmt: skip
    results = [json.loads((study.folder / system / f"seed-{seed}" / "results.json").read_text("utf-8")) for seed in range(study.seeds)]
    scores = [scored[0].value for scored in numbers]
    by_length = []
    for low, high in buckets(sources):
        here = [i for i, source in enumerate(sources * study.seeds) if low <= len(source.split()) <= high]
        by_length.append(bleu([written[i] for i in here], [references[i] for i in here]))
    return Row(
        system, study.seeds, mean(scores), interval, max(scores) - min(scores), mean(scored[1].value for scored in numbers), rank, tie, p,
        sum(results[0]["parameters"].values()), mean(one["FLOPs per token"] * one["tokens"] for one in results),
        mean(one["tokens"] for one in results), round(mean(one["steps"] for one in results)), mean(one["actual"]["seconds"] for one in results),
        max(one["actual"]["memory"] for one in results), by_length, signature,
    )  # fmt: skip

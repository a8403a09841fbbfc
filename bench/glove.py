"""Speed and memory of co-occurrence counting and of GloVe on 17 million words of Wikipedia, beside what the machine gives.

    SEQLOOM_DATA=… python bench/glove.py [--words N] [--iterations 3] [--rate 0.05] [--memory MiB] [--quality] [--json]

Window 10, symmetric, weights 1 / distance, words that occur five times, dimension 100, two threads. Stanford's C program is not run here: its
figures are those reported on this kind of machine (two cores, AVX2): 0.93 million words/s and 0.60 million cells/s. Each of the two parts runs in
a process of its own, so that its memory is its own. `--quality` measures the vectors too; give it --iterations 15.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import re
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np

from probe import THREADS, probe
from seqloom.vectors import glove
from seqloom.vectors.benchmarks import evaluate
from seqloom.vectors.counts import Cooccurrences, cooccurrences
from seqloom.vectors.vectors import Vectors
from seqloom.vectors.vocabulary import Corpus, Vocabulary, encode

REPORTED = {"words/s": 0.93e6, "cells/s": 0.60e6}  # Stanford's C program
WINDOW, DIM = 10, 100


def prepare(text: Path, most: int | None, place: Path) -> list[str]:
    """The ids of the corpus as files; returns the vocabulary."""
    source: Path | list[str] = text
    if most:
        with gzip.open(text, "rt") as file:
            source = file.read(6 * most).splitlines()
    vocabulary = Vocabulary.build(source)
    corpus = encode(source, vocabulary, place)
    np.save(place / "ids.npy", corpus.ids)
    np.save(place / "starts.npy", corpus.starts)
    return vocabulary.words


def open_corpus(place: Path) -> Corpus:
    return Corpus(np.load(place / "ids.npy", "r"), np.load(place / "starts.npy", "r"))


def peak() -> int:
    """Bytes: the most memory this process has had. Where there is a /proc it is asked: a child's rusage begins with its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def count(place: Path, size: int, memory: int, rounds: int = 3) -> dict:
    """Counts several times; the first, small run compiles."""
    before, corpus = peak(), open_corpus(place)
    cooccurrences(
        Corpus(np.array(corpus.ids[:1000]), np.array([0, 1000])),
        size,
        WINDOW,
        threads=THREADS,
        folder=place / "warm",
    )
    probes, rates = [probe()], []
    for _ in range(rounds):
        began = time.perf_counter()
        cells = cooccurrences(corpus, size, WINDOW, memory=memory, threads=THREADS, folder=place / "cells")
        rates.append(len(corpus.ids) / (time.perf_counter() - began))
        probes.append(probe())
    facts = {
        "words": len(corpus.ids),
        "kinds": size,
        "cells": len(cells.values),
        "limit": memory,
        "memory": peak() - before,
    }
    return {
        "part": "co-occurrence",
        "unit": "words/s",
        "rate": median(rates),
        "rates": rates,
        "probes": probes,
        **facts,
    }


def learn(
    place: Path, words: list[str], iterations: int, rate: float, memory: int, tests: list[Path]
) -> dict:
    """GloVe; each iteration is timed alone, the dealing of cells before the first one too."""
    before, cells = peak(), Cooccurrences.open(place / "cells")
    glove.train(Cooccurrences.open(place / "warm"), DIM, 1, threads=THREADS)
    probes, marks, rates = [probe()], [time.perf_counter()], []
    deal = glove._write_tiles

    def dealt(*args: object) -> object:
        tiles = deal(*args)
        marks.append(time.perf_counter())
        return tiles

    def told(iteration: int, loss: float) -> None:
        rates.append(len(cells.values) / (time.perf_counter() - marks[-1]))
        probes.append(probe())
        marks.append(time.perf_counter())

    glove._write_tiles = dealt
    found = glove.train(
        cells, DIM, iterations, lr=rate, threads=THREADS, memory=memory, folder=place, progress=told
    )
    facts = {"shuffle seconds": marks[1] - marks[0], "losses": found.losses, "memory": peak() - before}
    parameters = 4 * sum(array.nbytes for array in (found.words, found.word_biases))
    scores = [
        score for test in tests for score in evaluate(Vectors(words, found.vectors), test, limit=30_000)
    ]
    numbers = {score.title: score.value for score in scores if score.title.startswith(("total", "Spearman"))}
    return {
        "part": "GloVe",
        "unit": "cells/s",
        "rate": median(rates),
        "rates": rates,
        "probes": probes,
        "bytes": parameters,
        **facts,
        **numbers,
    }


def alone(work, *args: object) -> dict:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def show(found: dict) -> None:
    ratio = found["rate"] / REPORTED[found["unit"]]
    rates = " ".join(f"{rate / 1e6:.2f}" for rate in found["rates"])
    print(
        f"{found['part']}: {found['rate'] / 1e6:.2f} million {found['unit']} (each: {rates}), {ratio:.1f} × the C program's, as reported"
    )
    print(
        f"  probe {min(found['probes']):.0f} - {max(found['probes']):.0f} GFLOP/s; {found['memory'] / 1e6:,.0f} MB more than before the work"
    )
    rest = {
        key: value
        for key, value in found.items()
        if key not in ("part", "unit", "rate", "rates", "probes", "memory")
    }
    print("  " + ", ".join(f"{key} {value if isinstance(value, list) else f'{value:,.4g}' if isinstance(value, float) else f'{value:,}'}"
                           for key, value in rest.items()), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, help="use about the first so many only")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--memory", type=int, default=2048, help="MiB for the counts")
    parser.add_argument(
        "--quality", action="store_true", help="similarities and analogies of the vectors, first 30,000 words"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if "SEQLOOM_DATA" not in os.environ:
        sys.exit("set SEQLOOM_DATA to the folder of the real data")
    data = Path(os.environ["SEQLOOM_DATA"])
    tests = sorted((data / "wordsim").glob("*.txt")) if options.quality else []
    with tempfile.TemporaryDirectory() as place:
        words = prepare(data / "enwiki17m" / "enwiki17m.txt.gz", options.words, Path(place))
        memory = options.memory << 20
        for work, args in (
            (count, (len(words), memory)),
            (learn, (words, options.iterations, options.rate, memory, tests)),
        ):
            found = alone(work, Path(place), *args)
            print(json.dumps(found)) if options.json else show(found)


if __name__ == "__main__":
    main()

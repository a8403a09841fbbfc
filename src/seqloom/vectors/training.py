"""Text → vectors by any method, in one call: skip-gram, CBOW, GloVe, PPMI with SVD  [A7, A9–A13].

A word has one vector, whatever it means where it stands: "bank" by the river and "bank" with the account are the same row  [X25]. Left out:
what each method alone can do, which its own module offers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqloom.text.lines import lines
from seqloom.vectors.features import tokens
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vectors import SubwordVectors, Vectors
from seqloom.vectors.vocabulary import Corpus, Source, Vocabulary, encode

Kind = Literal["skip-gram", "cbow", "glove", "ppmi-svd"]
ProgressCallback = Callable[[str, float], None]  # what is being done, and which part of all is done


class LowercasedLines:
    """The lines of files in lower case, punctuation standing alone, to be read any number of times."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = paths

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.paths:
            for line in lines(path):
                yield tokens(line)


def train(
    source: Source,
    kind: Kind = "skip-gram",
    dim: int = 100,
    window: int | None = None,
    epochs: int | None = None,
    minimum: int = 5,
    most: int | None = None,
    negatives: int = 5,
    sample: float = 1e-3,
    rate: float | None = None,
    subwords: bool = False,
    average: bool = False,
    threads: int = 2,
    seed: int = 0,
    reproducible: bool = False,
    memory: int = 1 << 30,
    say: ProgressCallback | None = None,
) -> Vectors:
    """Learn vectors from files or sentences. `window` is 5 words (10 for GloVe), `epochs` 5 (15 for GloVe), `rate` 0.05, where
    not said; `negatives` 0 is the full softmax. What the vectors are and how they were learnt is in their `meta`."""
    if subwords and kind not in ("skip-gram", "cbow"):
        raise ValueError(f"{kind} knows no subwords; use skip-gram or cbow for them")
    say = say or (lambda what, done: None)
    began = time.perf_counter()
    say("counting words", 0.0)
    vocabulary = Vocabulary.learn(source, minimum, most)
    if len(vocabulary) < 2:
        raise ValueError(
            f"the vocabulary is one word, {vocabulary.words[0]!r}, with nothing to tell it from; lower --minimum or give more text"
        )
    corpus = encode(source, vocabulary)
    window = window or (10 if kind == "glove" else 5)
    about = {
        "kind": kind,
        "window": window,
        "minimum": minimum,
        "seed": seed,
        "corpus words": vocabulary.seen,
    }
    grams = None
    if kind == "ppmi-svd":
        matrix, more = _ppmi_svd(corpus, vocabulary, dim, window, threads, memory, seed, say)
    elif kind == "glove":
        matrix, more = _glove(
            corpus, vocabulary, dim, window, epochs or 15, rate or 0.05, threads, memory, seed, say
        )
    else:
        from seqloom.vectors import word2vec

        ngrams = Subwords() if subwords else None
        found = word2vec.train(
            corpus, "cbow" if kind == "cbow" else "skipgram", dim, window, negatives, epochs or 5, minimum, None, sample, rate or 0.05,
            average=average, subwords=ngrams, threads=threads, reproducible=reproducible, seed=seed, vocabulary=vocabulary,
            progress=lambda now: say(f"epoch {now.epoch}  loss {now.loss:.4f}  {now.speed:,.0f} words/s", now.done),
        )  # fmt: skip
        matrix = found.vectors
        grams = SubwordVectors(ngrams, found.buckets) if ngrams else None
        more = {
            "epochs": epochs or 5,
            "negatives": negatives,
            "sample": sample,
            "rate": rate or 0.05,
            "average": average,
            "reproducible": reproducible,
            "losses": found.losses,
            "took": {"words/s": found.speed},
        }
    took = {"seconds": time.perf_counter() - began, "threads": threads, **more.pop("took", {})}
    return Vectors(vocabulary.words, matrix, {**about, **more, "took": took}, grams)


def _glove(
    corpus: Corpus,
    vocabulary: Vocabulary,
    dim: int,
    window: int,
    epochs: int,
    rate: float,
    threads: int,
    memory: int,
    seed: int,
    say: ProgressCallback,
) -> tuple[np.ndarray, dict[str, Any]]:
    from seqloom.vectors import counts, glove

    say("counting pairs of words", 0.0)
    cells = counts.cooccurrences(corpus, len(vocabulary), window, memory=memory, threads=threads)
    began, size = time.perf_counter(), len(cells.values)

    def told(iteration: int, loss: float) -> None:
        speed = iteration * size / (time.perf_counter() - began)
        say(f"iteration {iteration}  loss {loss:.4f}  {speed:,.0f} cells/s", iteration / epochs)

    found = glove.train(
        cells, dim, epochs, rate=rate, threads=threads, seed=seed, memory=memory, progress=told
    )
    took = {"cells/s": epochs * size / (time.perf_counter() - began)}
    return found.vectors, {
        "epochs": epochs,
        "rate": rate,
        "cells": size,
        "losses": found.losses,
        "took": took,
    }


def _ppmi_svd(
    corpus: Corpus,
    vocabulary: Vocabulary,
    dim: int,
    window: int,
    threads: int,
    memory: int,
    seed: int,
    say: ProgressCallback,
) -> tuple[np.ndarray, dict[str, Any]]:
    from seqloom.vectors import counts, pmi

    say("counting pairs of words", 0.0)
    cells = counts.cooccurrences(
        corpus, len(vocabulary), window, counts.uniform_weight, memory=memory, threads=threads
    )
    say("finding the leading singular vectors", 0.5)
    found, _ = pmi.svd(pmi.ppmi(cells.matrix(), smoothing=0.75), dim, seed=seed)
    say(f"{dim} singular vectors", 1.0)
    return found.astype(np.float32), {"smoothing": 0.75, "cells": len(cells.values)}

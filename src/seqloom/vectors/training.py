"""Text → vectors by any method in one call: skip-gram, CBOW, GloVe, PPMI with SVD  [A7, A9–A13].

A word has one vector whatever it means in its context: "bank" by the river and "bank" with the account are
the same row [X25]. Left out: options that belong to one method alone; the method's own module has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.text.lines import lines
from seqloom.vectors.features import tokens
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vectors import SubwordVectors, Vectors
from seqloom.vectors.vocabulary import Corpus, Source, VocabOptions, Vocabulary, encode

Method = Literal["skip-gram", "cbow", "glove", "ppmi-svd"]
ProgressCallback = Callable[[str, float], None]  # (message, fraction of all work that is done)


class VectorOptions(NamedTuple):
    """The method and its hyperparameters; None means the method's default.

    The default window is 5 words (10 for GloVe), the default number of epochs 5 (15 for GloVe), the default
    learning rate 0.05. `negative` 0 means the full softmax; PPMI with SVD uses `dim` and `window` only.
    """

    method: Method = "skip-gram"
    dim: int = 100
    window: int | None = None
    epochs: int | None = None
    lr: float | None = None
    negative: int = 5
    subsample: float = 1e-3
    subwords: bool = False
    mean_context: bool = False


class Resources(NamedTuple):
    """What training may use, and the seed."""

    threads: int = 2
    seed: int = 0
    memory: int = 1 << 30  # bytes for counts of pairs; more go to disk


class LowercasedLines:
    """The lower-cased tokens of each line of files; can be iterated any number of times."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.paths:
            for line in lines(path):
                yield tokens(line)


class _Trained(NamedTuple):
    """The vectors of one method, with what `meta` says about them."""

    matrix: np.ndarray
    meta: dict[str, Any]
    speed: dict[str, float]
    subword_vectors: SubwordVectors | None = None


def train(
    source: Source,
    options: VectorOptions | None = None,
    vocab: VocabOptions | None = None,
    threads: int = 2,
    seed: int = 0,
    reproducible: bool = False,
    memory: int = 1 << 30,
    progress: ProgressCallback | None = None,
) -> Vectors:
    """Trains vectors on files or sentences.

    Their `meta` records the method, its options, losses and speed.
    """
    options = options or VectorOptions()
    vocab = vocab or VocabOptions()
    method = options.method
    if options.subwords and method not in ("skip-gram", "cbow"):
        raise ValueError(f"{method} has no subwords; use skip-gram or cbow with them")
    report = progress or _ignore
    start_time = time.perf_counter()
    report("counting words", 0.0)
    vocabulary = Vocabulary.build(source, vocab.min_count, vocab.max_vocab)
    if len(vocabulary) < 2:
        raise ValueError(
            f"the vocabulary has only one word, {vocabulary.words[0]!r}: lower --minimum or give more text"
        )
    corpus = encode(source, vocabulary)
    window = options.window or (10 if method == "glove" else 5)
    options = options._replace(window=window)
    resources = Resources(threads, seed, memory)
    if method == "ppmi-svd":
        trained = _ppmi_svd(corpus, vocabulary, options.dim, window, resources, report)
    elif method == "glove":
        trained = _glove(corpus, vocabulary, options, window, resources, report)
    else:
        trained = _word2vec(corpus, vocabulary, options, window, resources, reproducible, report)
    meta = {
        "kind": method,
        "window": window,
        "minimum": vocab.min_count,
        "seed": seed,
        "corpus words": vocabulary.corpus_words,
        **trained.meta,
        "took": {"seconds": time.perf_counter() - start_time, "threads": threads, **trained.speed},
    }
    return Vectors(vocabulary.words, trained.matrix, meta, trained.subword_vectors)


def _ignore(message: str, done: float) -> None:
    """Reports nothing."""


def _word2vec(
    corpus: Corpus,
    vocabulary: Vocabulary,
    options: VectorOptions,
    window: int,
    resources: Resources,
    reproducible: bool,
    report: ProgressCallback,
) -> _Trained:
    from seqloom.vectors import word2vec

    epochs = options.epochs or 5
    lr = options.lr or 0.05
    subwords = Subwords() if options.subwords else None

    def on_progress(now: word2vec.TrainingProgress) -> None:
        report(f"epoch {now.epoch}  loss {now.loss:.4f}  {now.speed:,.0f} words/s", now.done)

    result = word2vec.train(
        corpus,
        word2vec.Word2VecOptions(
            "cbow" if options.method == "cbow" else "skipgram",
            options.dim,
            window,
            options.negative,
            epochs,
            lr,
            subsample=options.subsample,
            mean_context=options.mean_context,
            subwords=subwords,
        ),
        threads=resources.threads,
        seed=resources.seed,
        reproducible=reproducible,
        progress=on_progress,
        vocabulary=vocabulary,
    )
    meta = {
        "epochs": epochs,
        "negatives": options.negative,
        "sample": options.subsample,
        "rate": lr,
        "average": options.mean_context,
        "reproducible": reproducible,
        "losses": result.losses,
    }
    subword_vectors = None
    if subwords and result.buckets is not None:
        subword_vectors = SubwordVectors(subwords, result.buckets)
    return _Trained(result.vectors, meta, {"words/s": result.speed}, subword_vectors)


def _glove(
    corpus: Corpus,
    vocabulary: Vocabulary,
    options: VectorOptions,
    window: int,
    resources: Resources,
    report: ProgressCallback,
) -> _Trained:
    from seqloom.vectors import counts, glove

    threads, seed, memory = resources
    epochs = options.epochs or 15
    lr = options.lr or 0.05
    report("counting pairs of words", 0.0)
    cells = counts.cooccurrences(corpus, len(vocabulary), window, memory=memory, threads=threads)
    size = len(cells.values)
    start_time = time.perf_counter()

    def on_iteration(iteration: int, loss: float) -> None:
        speed = iteration * size / (time.perf_counter() - start_time)
        report(f"iteration {iteration}  loss {loss:.4f}  {speed:,.0f} cells/s", iteration / epochs)

    result = glove.train(
        cells,
        options.dim,
        epochs,
        lr=lr,
        threads=threads,
        seed=seed,
        memory=memory,
        progress=on_iteration,
    )
    speed = {"cells/s": epochs * size / (time.perf_counter() - start_time)}
    meta = {"epochs": epochs, "rate": lr, "cells": size, "losses": result.losses}
    return _Trained(result.vectors, meta, speed)


def _ppmi_svd(
    corpus: Corpus,
    vocabulary: Vocabulary,
    dim: int,
    window: int,
    resources: Resources,
    report: ProgressCallback,
) -> _Trained:
    from seqloom.vectors import counts, pmi

    threads, seed, memory = resources
    report("counting pairs of words", 0.0)
    cells = counts.cooccurrences(
        corpus, len(vocabulary), window, counts.uniform_weight, memory=memory, threads=threads
    )
    report("computing the leading singular vectors", 0.5)
    vectors, _ = pmi.svd(pmi.ppmi(cells.matrix(), smoothing=0.75), dim, seed=seed)
    report(f"{dim} singular vectors", 1.0)
    return _Trained(vectors.astype(np.float32), {"smoothing": 0.75, "cells": len(cells.values)}, {})

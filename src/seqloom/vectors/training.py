"""Text → vectors by any method in one call: skip-gram, CBOW, GloVe, PPMI with SVD  [A7, A9–A13].

A word has one vector whatever it means in its context: "bank" by the river and "bank" with the account are
the same row [X25]. Left out: options that belong to one method alone; the method's own module has them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, cast

import numpy as np

from seqloom.errors import DataError, UserError
from seqloom.results import ProgressOption
from seqloom.text.lines import lines, local_copy
from seqloom.vectors.backend import default_threads
from seqloom.vectors.features import tokens
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vectors import SubwordVectors, Vectors
from seqloom.vectors.vocabulary import Corpus, Source, Vocabulary, encode

Method = Literal["skip-gram", "cbow", "glove", "ppmi-svd"]
METHODS = ("skip-gram", "cbow", "glove", "ppmi-svd")
TextPath = str | PathLike[str]
VectorData = TextPath | Sequence[TextPath] | Iterable[Sequence[str]]
WORLD_SENTENCES = 20_000
logger = logging.getLogger("seqloom.vectors")
LEAST_KEPT = 0.5  # of the text: below, words are missing
FEW_WORDS = 20  # of a vocabulary
GLUED_SHARE = 0.03  # of the words; above, punctuation was surely not separated


class VectorSettings(TypedDict, total=False):
    """The less frequent options of `train`."""

    max_vocab: int | None  # use only this many words, the most frequent ones
    negative: int  # word2vec's negatives for each target (5); 0 is the full softmax
    lr: float | None  # the first learning rate (0.05); GloVe's is AdaGrad's
    subsample: float  # word2vec drops occurrences of words above this relative frequency (1e-3); 0 keeps all
    subwords: bool  # word2vec trains n-grams of characters too, which give unseen words a vector
    mean_context: bool  # word2vec's exact gradient of the window's mean cost
    lowercase: bool  # lower-case the text, and separate punctuation in files
    reproducible: bool  # word2vec gives the same bits for any number of threads, at a lower speed
    memory: int  # bytes for counts of pairs (1 GiB); more go to disk


class VectorOptions(NamedTuple):
    """The method and its hyperparameters; None means the method's default."""

    method: Method = "skip-gram"
    dim: int = 100
    window: int | None = None
    epochs: int | None = None
    min_count: int = 5
    max_vocab: int | None = None
    negative: int = 5
    lr: float | None = None
    subsample: float = 1e-3
    subwords: bool = False
    mean_context: bool = False
    lowercase: bool = False
    reproducible: bool = False
    memory: int = 1 << 30

    def complete(self) -> VectorOptions:
        """The options with the method's defaults, checked."""
        if self.method not in METHODS:
            raise UserError(f"there is no method {self.method!r}; choose one of {', '.join(METHODS)}")
        if self.subwords and self.method not in ("skip-gram", "cbow"):
            raise UserError(f"{self.method} has no subwords; use skip-gram or cbow with them")
        glove = self.method == "glove"
        options = self._replace(
            window=(10 if glove else 5) if self.window is None else self.window,
            epochs=(15 if glove else 5) if self.epochs is None else self.epochs,
            lr=0.05 if self.lr is None else self.lr,
        )
        for name in ("dim", "window", "epochs", "min_count", "max_vocab", "lr", "memory"):
            value = options._asdict()[name]
            if value is not None and not value > 0:
                raise UserError(f"--{name.replace('_', '-')} is {value}; give more than 0")
        for name in ("negative", "subsample"):
            if not options._asdict()[name] >= 0:
                raise UserError(f"--{name} is {options._asdict()[name]}; give 0 or more")
        return options


class Resources(NamedTuple):
    """What training may use, the seed, and who hears of its progress."""

    threads: int
    seed: int
    progress: ProgressOption


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
    data: VectorData,
    method: Method = "skip-gram",
    dim: int = 100,
    window: int | None = None,
    epochs: int | None = None,
    min_count: int = 5,
    *,
    threads: int | None = None,
    seed: int = 0,
    progress: ProgressOption = True,
    **settings: Unpack[VectorSettings],
) -> Vectors:
    """Trains word vectors.

    `data` is the path of a text file with one sentence on each line, a list of such paths, or an iterable of
    sentences that can be read twice, each a list of words; "world" stands for sentences of the built-in world.
    The default window is 5 words on either side (10 for GloVe), the default number of epochs 5 (15 for GloVe),
    which PPMI with SVD does not need. `threads` None means all cores. The `meta` of the result records the
    method, its options, the loss after each epoch and the speed.

    >>> vectors = train([["the", "king", "sees", "the", "queen"]] * 50, dim=8, epochs=2, threads=1, progress=False)
    >>> vectors, len(vectors.meta["losses"])
    (Vectors(4 words × 8, skip-gram), 2)
    """
    options = VectorOptions(method, dim, window, epochs, min_count, **settings).complete()
    resources = Resources(threads or default_threads(), seed, progress)
    if resources.threads < 1 or seed < 0:
        raise UserError(
            f"threads {threads} must be at least 1 and seed {seed} at least 0; correct the other one"
        )
    source, name = _read_source(data, options.lowercase, seed)
    start_time = time.perf_counter()
    vocabulary = Vocabulary.build(source, options.min_count, options.max_vocab)
    if len(vocabulary) < 2:
        raise DataError(
            f"the vocabulary has only one word, {vocabulary.words[0]!r}: lower --min-count or give more text"
        )
    logger.info("%s: %s words, vocabulary %s", name, f"{vocabulary.corpus_words:,}", f"{len(vocabulary):,}")
    if rare := rare_words(vocabulary, options):
        logger.warning("%s: %s", name, rare)
    if glued := glued_punctuation(vocabulary):
        logger.warning("%s: %s; --lowercase separates it, and lower-cases the text", name, glued)
    corpus = encode(source, vocabulary)
    if method == "ppmi-svd":
        trained = _ppmi_svd(corpus, vocabulary, options, resources)
    elif method == "glove":
        trained = _glove(corpus, vocabulary, options, resources)
    else:
        trained = _word2vec(corpus, vocabulary, options, resources)
    meta = {
        "method": method,
        "source": name,
        "window": options.window,
        "min_count": min_count,
        "seed": seed,
        "corpus_words": vocabulary.corpus_words,
        **trained.meta,
        "took": {"seconds": time.perf_counter() - start_time, "threads": resources.threads, **trained.speed},
    }
    return Vectors(vocabulary.words, trained.matrix, meta, trained.subword_vectors)


def data_name(data: VectorData) -> str:
    """What the data are called in `meta` and in the name of a folder."""
    if isinstance(data, str | PathLike):
        data = [data]
    if paths := _as_paths(data):
        names = ["stdin" if str(path) == "-" else Path(path).name for path in paths]
        return "+".join(name.removesuffix(".gz").removesuffix(".txt") for name in names)
    return "sentences"


def _as_paths(data: VectorData) -> list[TextPath]:
    """The paths of data that are a list of them, else an empty list."""
    if isinstance(data, list | tuple) and all(isinstance(one, str | PathLike) for one in data):
        return list(data)
    return []


def rare_words(vocabulary: Vocabulary, options: VectorOptions) -> str:
    """That the minimum count leaves out too much of the text to learn from the rest; empty if it does not."""
    kept = vocabulary.total / vocabulary.corpus_words
    is_cut = len(vocabulary) == options.max_vocab
    if options.min_count == 1 or is_cut or kept == 1 or (kept >= LEAST_KEPT and len(vocabulary) >= FEW_WORDS):
        return ""
    return (
        f"only {len(vocabulary):,} words occur {options.min_count} times or more, {100 * kept:.0f} % of the text, and the others are left out: "
        "give --min-count 1 to keep all words, or more text"
    )


def glued_punctuation(vocabulary: Vocabulary) -> str:
    """That punctuation was left at the ends of words, which makes words of their own of them; empty if it is rare."""
    glued = [
        index for index, word in enumerate(vocabulary.words) if word[-1] in ".,;:!?" and word[0].isalpha()
    ]
    share = vocabulary.counts[glued].sum() / max(vocabulary.counts.sum(), 1)
    if share < GLUED_SHARE:
        return ""
    examples = ", ".join(repr(vocabulary.words[index]) for index in glued[:2])
    return f"{100 * share:.0f} % of the words end in punctuation, such as {examples}"


def _read_source(data: VectorData, lowercase: bool, seed: int) -> tuple[Source, str]:
    """The data as the vocabulary and the encoder read them, and their name."""
    if isinstance(data, str | PathLike):
        data = [data]
    if isinstance(data, list | tuple) and not data:
        raise DataError("the list of files or sentences is empty; give text")
    paths = _as_paths(data)
    if paths == ["world"] and not Path("world").is_file():
        from seqloom import world

        scenes = world.scenes(WORLD_SENTENCES, seed)
        return [[word for word in scene.words if word != "."] for scene in scenes], "world"
    if paths:
        for path in paths:
            if " " in str(path) and not Path(path).exists():
                raise DataError(
                    f'{path}: no such file; if this is a sentence, give it as a list of its words: ["the", "cat"]'
                )
        copies = [local_copy(Path(path)) for path in paths]
        return LowercasedLines(copies) if lowercase else copies, data_name(paths)
    sentences = cast(Iterable[Sequence[str]], data)
    if iter(sentences) is sentences:
        raise DataError(
            "a generator can be read only once, and the text is read twice; give a list or a path"
        )
    if lowercase:
        sentences = [[word.lower() for word in sentence] for sentence in sentences]
    return sentences, "sentences"


def _word2vec(
    corpus: Corpus, vocabulary: Vocabulary, options: VectorOptions, resources: Resources
) -> _Trained:
    from seqloom.vectors import word2vec

    if resources.threads > 1 and not options.reproducible:
        logger.info(
            "%d threads: word2vec's threads update shared weights, so the vectors differ a little from run to run; "
            "--reproducible or --threads 1 gives the same bits",
            resources.threads,
        )
    subwords = Subwords() if options.subwords else None
    result = word2vec.train(
        corpus,
        word2vec.Word2VecOptions(
            "cbow" if options.method == "cbow" else "skipgram",
            options.dim,
            cast(int, options.window),
            options.negative,
            cast(int, options.epochs),
            cast(float, options.lr),
            subsample=options.subsample,
            mean_context=options.mean_context,
            subwords=subwords,
        ),
        threads=resources.threads,
        seed=resources.seed,
        reproducible=options.reproducible,
        progress=resources.progress,
        vocabulary=vocabulary,
    )
    meta = {
        "epochs": options.epochs,
        "negative": options.negative,
        "subsample": options.subsample,
        "lr": options.lr,
        "mean_context": options.mean_context,
        "reproducible": options.reproducible,
        "losses": result.losses,
        "running_losses": result.running_losses,
    }
    subword_vectors = None
    if subwords and result.buckets is not None:
        subword_vectors = SubwordVectors(subwords, result.buckets)
    return _Trained(result.vectors, meta, {"words_per_second": result.speed}, subword_vectors)


def _glove(corpus: Corpus, vocabulary: Vocabulary, options: VectorOptions, resources: Resources) -> _Trained:
    from seqloom.vectors import counts, glove

    threads, seed, progress = resources
    epochs, lr, memory = cast(int, options.epochs), cast(float, options.lr), options.memory
    window = cast(int, options.window)
    logger.info("counting pairs of words")
    cells = counts.cooccurrences(corpus, len(vocabulary), window, memory=memory, threads=threads)
    size = len(cells.values)
    start_time = time.perf_counter()
    result = glove.train(
        cells, options.dim, epochs, lr=lr, threads=threads, seed=seed, memory=memory, progress=progress
    )
    speed = {"cells_per_second": epochs * size / (time.perf_counter() - start_time)}
    return _Trained(
        result.vectors, {"epochs": epochs, "lr": lr, "cells": size, "losses": result.losses}, speed
    )


def _ppmi_svd(
    corpus: Corpus, vocabulary: Vocabulary, options: VectorOptions, resources: Resources
) -> _Trained:
    from seqloom.vectors import counts, pmi

    logger.info("counting pairs of words")
    cells = counts.cooccurrences(
        corpus,
        len(vocabulary),
        cast(int, options.window),
        counts.uniform_weight,
        memory=options.memory,
        threads=resources.threads,
    )
    logger.info("computing the %d leading singular vectors", options.dim)
    vectors, _ = pmi.svd(pmi.ppmi(cells.matrix(), smoothing=0.75), options.dim, seed=resources.seed)
    return _Trained(vectors.astype(np.float32), {"smoothing": 0.75, "cells": len(cells.values)}, {})

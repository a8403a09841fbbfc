"""word2vec: vectors that predict neighbouring words. CBOW, skip-gram, negative sampling, softmax, subwords.

Each word of a sentence has a context: the 1 … w words on either side, with a reach drawn anew for each word.
With the hidden vector h

    skip-gram   h = the word's vector, and every context word is a target [A10]
    CBOW        h = the mean of the context's vectors, and the word is the target [A9]

a target y costs −log σ(u_y·h) − Σ log σ(−u_n·h) over k negatives n drawn from count^¾, never y itself, or
−log softmax(U h)_y [A11, D-22]. The loss of an epoch is the mean cost of a target over a fixed sample of
windows and negatives, under the weights at the epoch's end (`loss_sample.py`). If h is a mean of several vectors (CBOW,
subwords), each of them takes the full step, as in the original program; `mean_context` computes the exact
gradient of the window's mean cost instead, which divides by the number of targets and of vectors. The targets
of a window are processed one after the other with the same h. Without `reproducible`, threads update shared
weights without locks, so two runs differ unless threads = 1.

Left out: hierarchical softmax, which negative sampling has displaced, and resuming training from saved
weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.kernels.word2vec_args import BLOCK, WIDTH, Matrices, TrainingData, Word2VecMode
from seqloom.results import ProgressOption, Reporter
from seqloom.vectors.backend import default_threads, useful_threads
from seqloom.vectors.loss_sample import LossSample, draw_loss_sample
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vocabulary import Corpus, Source, VocabOptions, Vocabulary, encode
from seqloom.vectors.word2vec_trainers import LINE, DeterministicTrainer, EpochTrainer, Hogwild, aligned_zeros


class Word2VecOptions(NamedTuple):
    """The method and its hyperparameters.

    `negative` 0 means the full softmax, `subsample` 0 keeps every occurrence.
    """

    method: str = "skipgram"  # or "cbow"
    dim: int = 100
    window: int = 5
    negative: int = 5
    epochs: int = 5
    lr: float = 0.05
    final_lr: float = 1e-4
    subsample: float = 1e-3
    mean_context: bool = False
    subwords: Subwords | None = None


@dataclass(frozen=True)
class Word2Vec:
    """Trained vectors; with subwords, `vectors` are means over the word and its n-grams."""

    vocabulary: Vocabulary
    vectors: np.ndarray  # (V, dim) float32
    outputs: np.ndarray  # (V, dim) float32
    losses: list[float]  # mean cost of a target of the fixed sample, after each epoch
    running_losses: list[
        float
    ]  # mean cost of a target just before its own step, over each epoch: see loss_sample.py
    targets: list[int]  # number of targets, for each epoch
    speed: float  # words of the corpus per second, including those that sub-sampling drops
    subwords: Subwords | None = None
    buckets: np.ndarray | None = None  # (buckets, dim)

    def vector(self, word: str) -> np.ndarray:
        """The word's vector; with subwords, any word has one."""
        row = self.vocabulary.index.get(word)
        if row is not None:
            return self.vectors[row]
        if self.subwords is None or self.buckets is None:
            raise DataError(
                f"{word!r} is not in the vocabulary; train with subwords to have vectors for unseen words"
            )
        return self.subwords.vector(word, self.buckets)


def train(
    source: Source | Corpus,
    options: Word2VecOptions | None = None,
    vocab: VocabOptions | None = None,
    threads: int | None = None,
    seed: int = 0,
    reproducible: bool = False,
    progress: ProgressOption = False,
    vocabulary: Vocabulary | None = None,
    folder: str | Path | None = None,
) -> Word2Vec:
    """Trains on files or sentences, or on an encoded corpus with its `vocabulary`.

    `threads` None means all cores. `reproducible` gives the same bits for a seed with any number of threads. It
    uses at most two threads, runs at less than half the speed and needs three times the memory for the weights.
    """
    options = options or Word2VecOptions()
    threads = threads or default_threads()
    _check(options, threads, seed)
    corpus, vocabulary = _encode(source, vocab or VocabOptions(), vocabulary, folder)
    subwords = options.subwords
    subword_rows = np.empty(0, np.int64)
    subword_bounds = np.zeros(len(vocabulary) + 1, np.int64)
    if subwords:
        subword_rows, subword_bounds = subwords.table(vocabulary.words)
    data = TrainingData(
        corpus.ids,
        corpus.starts,
        subsample_thresholds(vocabulary.counts, options.subsample),
        alias_table(vocabulary.counts**0.75),
        subword_rows,
        subword_bounds,
    )
    weights = init_matrices(len(vocabulary), subwords.buckets if subwords else 0, options.dim, seed)
    mode = Word2VecMode(options.method == "cbow", options.mean_context, options.window, options.negative)
    threads = useful_threads(threads)
    trainer: EpochTrainer = (DeterministicTrainer if reproducible else Hogwild)(data, weights, mode, threads)
    sample = draw_loss_sample(corpus, data, mode, vocabulary.counts)
    epochs = _run_epochs(trainer, weights, sample, options, len(vocabulary), seed, progress)
    inputs, outputs = (
        flat.reshape(-1, weights.stride)[:, : options.dim] for flat in (weights.inputs, weights.outputs)
    )
    vectors = inputs[: len(vocabulary)].copy()
    if subwords:
        for word, (begin, end) in enumerate(pairwise(subword_bounds)):
            vectors[word] = (vectors[word] + inputs[subword_rows[begin:end]].sum(0)) / (1 + end - begin)
    return Word2Vec(
        vocabulary,
        vectors,
        outputs[: len(vocabulary)].copy(),
        epochs.losses,
        epochs.running_losses,
        epochs.targets,
        epochs.speed,
        subwords,
        inputs[len(vocabulary) :].copy() if subwords else None,
    )


def _check(options: Word2VecOptions, threads: int, seed: int) -> None:
    if options.method not in ("skipgram", "cbow"):
        raise DataError(f"method {options.method!r} is neither skipgram nor cbow; choose one of them")
    _, dim, window, negative, epochs, lr, _, subsample, *_ = options
    at_least_one = min(dim, window, epochs, threads) >= 1
    not_negative = min(negative, subsample, seed) >= 0
    if not (at_least_one and not_negative and 0 < lr < math.inf):
        raise DataError(
            f"dim {dim}, window {window}, epochs {epochs} and threads {threads} must be at least 1, "
            f"negative {negative}, subsample {subsample} and seed {seed} at least 0, "
            f"lr {lr} above 0; correct the one that is not"
        )


def _encode(
    source: Source | Corpus,
    vocab: VocabOptions,
    vocabulary: Vocabulary | None,
    folder: str | Path | None,
) -> tuple[Corpus, Vocabulary]:
    """The ids of the source and their vocabulary, checked to have something to predict."""
    if isinstance(source, Corpus):
        if vocabulary is None:
            raise DataError("an encoded corpus holds ids only; give its vocabulary too")
        corpus = source
    else:
        if isinstance(source, Iterable) and iter(source) is source:
            raise DataError(
                "a generator can be read only once, and the corpus is read twice; give a list or a path"
            )
        vocabulary = vocabulary or Vocabulary.build(source, vocab.min_count, vocab.max_vocab)
        corpus = encode(source, vocabulary, folder)
    if not (np.diff(corpus.starts) > 1).any():
        raise DataError(
            "no sentence has two words of the vocabulary, so no word has a context; "
            "put whole sentences on a line or lower --min-count"
        )
    if len(vocabulary) < 2:
        raise DataError(
            f"the vocabulary has only one word, {vocabulary.words[0]!r}: lower --min-count or give more text"
        )
    return corpus, vocabulary


class _Epochs(NamedTuple):
    """What the epochs of one training report; the fields are those of `Word2Vec`."""

    losses: list[float]
    running_losses: list[float]
    targets: list[int]
    speed: float


def _run_epochs(
    trainer: EpochTrainer,
    weights: Matrices,
    sample: LossSample,
    options: Word2VecOptions,
    num_words: int,
    seed: int,
    progress: ProgressOption,
) -> _Epochs:
    """Trains all epochs. `num_words` is the size of the vocabulary."""
    epochs, lr = options.epochs, options.lr
    corpus_words = trainer.corpus_words
    result = _Epochs([], [], [], 0.0)
    seconds = 0.0  # without the time that the sample takes
    last_report = time.perf_counter()

    def learning_rate(epoch: int, words: int) -> float:
        return lr + (options.final_lr - lr) * (epoch + words / corpus_words) / epochs

    name = "skip-gram" if options.method == "skipgram" else options.method
    with Reporter(name, epochs * corpus_words, progress) as report:
        for epoch in range(epochs):
            loss = 0.0
            num_targets = 0
            start_time = time.perf_counter()
            for chunk in trainer.epoch(epoch, partial(learning_rate, epoch), seed):
                loss += chunk.loss
                num_targets += chunk.targets
                now = time.perf_counter()
                if now - last_report > 0.1 and chunk.end < corpus_words:
                    last_report = now
                    done = epoch * corpus_words + chunk.end
                    report.update(done, {"words/s": done / (seconds + now - start_time)})
            seconds += time.perf_counter() - start_time
            if not np.isfinite(weights.inputs).all():
                raise DataError(
                    f"the weights are not finite after epoch {epoch + 1}: the steps are too large; lower --lr from {lr}"
                )
            result.losses.append(sample.loss(weights, num_words))
            result.running_losses.append(loss / max(1, num_targets))
            result.targets.append(num_targets)
            done = (epoch + 1) * corpus_words
            report.update(done, {"loss": result.losses[-1], "words/s": done / max(seconds, 1e-9)})
    return result._replace(speed=epochs * corpus_words / max(seconds, 1e-9))


def subsample_thresholds(counts: np.ndarray, subsample: float) -> np.ndarray:
    """2³² times the probability of keeping an occurrence: min(1, √(s / f) + s / f).

    f is the relative frequency of the word, s = `subsample`.
    """
    if subsample == 0:
        return np.full(len(counts), 1 << 32, np.uint64)
    ratio = subsample * counts.sum() / counts
    return (np.minimum(1, np.sqrt(ratio) + ratio) * 2**32).astype(np.uint64)


def alias_table(weights: np.ndarray) -> np.ndarray:
    """A table to draw row i with probability ∝ weights[i] in constant time (Walker's alias method).

    Each entry holds the threshold below which its own row is drawn in the upper 32 bits, and the alternative
    row in the lower 32 bits.
    """
    rest = (weights / weights.sum() * len(weights)).tolist()
    small = [row for row, value in enumerate(rest) if value < 1]
    large = [row for row, value in enumerate(rest) if value >= 1]
    thresholds = np.full(len(rest), 2**32 - 1, np.uint64)
    alternatives = np.arange(len(rest), dtype=np.uint64)
    while small and large:
        row = small.pop()
        alternative = large[-1]
        thresholds[row] = int(rest[row] * 2**32)
        alternatives[row] = alternative
        rest[alternative] -= 1 - rest[row]
        if rest[alternative] < 1:
            small.append(large.pop())
    return thresholds << np.uint64(32) | alternatives


def init_matrices(words: int, buckets: int, dim: int, seed: int) -> Matrices:
    """Inputs uniform in ±1 / dim, outputs zero."""
    width = -(-dim // WIDTH) * WIDTH
    stride = -(-width // LINE) * LINE
    inputs = aligned_zeros((words + buckets) * stride)
    outputs = aligned_zeros(-(-(words + 1) // BLOCK) * BLOCK * stride)
    random = np.random.default_rng(seed)
    for part in np.array_split(inputs.reshape(-1, stride), -(-(words + buckets) // 10_000)):
        part[:, :dim] = (2 * random.random((len(part), dim), np.float32) - 1) / dim
    no_counts = np.empty(0, np.int32)
    return Matrices(inputs, outputs, no_counts, no_counts, width, stride)

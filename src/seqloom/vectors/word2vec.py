"""word2vec: word vectors that predict the company of words. CBOW and skip-gram, negative sampling or the full softmax, subwords.

Each word of a sentence has a context, the 1 … w words on either side (a fresh reach for each word). With the hidden vector h

    skip-gram   h = the word's vector, and every context word is a target [A10]
    CBOW        h = the mean of the context's vectors, and the word is the target [A9]

a target y costs −log σ(u_y·h) − Σ log σ(−u_n·h) over k negatives n drawn from count^¾, never y itself, or −log softmax(U h)_y [A11, D-22].
The loss of an epoch is the mean cost of a target, each taken just before the step that it caused; it counts every target exactly once. Several
vectors behind one h (CBOW, subwords) get the whole step each, as in the original program; `average` is the exact gradient of the window's mean
cost instead: 1 / targets and 1 / vectors. The targets of a window are taken one after the other, h being the same for all. Without
`reproducible`, threads share the weights without locks, so two runs differ unless threads = 1.

Left out: hierarchical softmax, which negative sampling has displaced, and training on without a fresh start.
"""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.kernels.word2vec_args import BLOCK, WIDTH, Matrices, TrainingData, Word2VecMode
from seqloom.vectors.backend import load_kernels, useful_threads
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vocabulary import Corpus, Source, Vocabulary, encode

LINE = 16  # floats of a cache line: rows begin at one
HOGWILD_WORDS = 100_000  # words a thread reads before it asks for more
COPIES, CHUNK_WORDS = (
    2,
    1_000,
)  # reproducible: copies of the weights, and the words each reads before they are merged


class TrainingProgress(NamedTuple):
    """Where training is, told ten times a second at most and after each epoch: the epoch (from 1), the part of all epochs that is done,
    the epoch's mean loss so far, words read a second."""

    epoch: int
    done: float
    loss: float
    speed: float


@dataclass(frozen=True)
class Word2Vec:
    """What was learnt. `vectors` are the words' input vectors (with subwords: means over the word and its n-grams)."""

    vocabulary: Vocabulary
    vectors: np.ndarray  # (V, dim) float32
    outputs: np.ndarray  # (V, dim) float32
    losses: list[float]  # mean cost of a target, for each epoch
    targets: list[int]  # how many there were
    speed: float  # words of the corpus, kept or not by sub-sampling, read a second
    subwords: Subwords | None = None
    buckets: np.ndarray | None = None  # (buckets, dim)

    def vector(self, word: str) -> np.ndarray:
        """The word's vector; with subwords any word has one."""
        row = self.vocabulary.index.get(word)
        if row is not None:
            return self.vectors[row]
        if self.subwords is None or self.buckets is None:
            raise ValueError(
                f"{word!r} is not in the vocabulary; train with subwords to have vectors for unseen words"
            )
        return self.subwords.vector(word, self.buckets)


def train(
    source: Source | Corpus,
    kind: str = "skipgram",
    dim: int = 100,
    window: int = 5,
    negatives: int = 5,
    epochs: int = 5,
    minimum: int = 5,
    most: int | None = None,
    sample: float = 1e-3,
    rate: float = 0.05,
    last_rate: float = 1e-4,
    average: bool = False,
    subwords: Subwords | None = None,
    threads: int = 2,
    reproducible: bool = False,
    seed: int = 0,
    progress: Callable[[TrainingProgress], None] | None = None,
    vocabulary: Vocabulary | None = None,
    folder: str | Path | None = None,
) -> Word2Vec:
    """Learns from files or sentences, or from a corpus encoded before with its `vocabulary`. No `negatives` means the full softmax; `sample` 0
    keeps every occurrence; `reproducible` gives the same bits for a seed whatever the number of threads, two of which have work, for less
    than half the speed and three times the memory of the weights."""
    if kind not in ("skipgram", "cbow"):
        raise ValueError(f"kind {kind!r} is neither skipgram nor cbow; choose one")
    if (
        min(dim, window, epochs, threads) < 1
        or min(negatives, sample) < 0
        or not 0 < rate < math.inf
        or seed < 0
    ):
        raise ValueError(
            f"dim {dim}, window {window}, epochs {epochs} and threads {threads} must be at least 1, negatives {negatives}, "
            f"sample {sample} and seed {seed} at least 0, rate {rate} above 0; correct the one that is not"
        )
    if isinstance(source, Corpus):
        if vocabulary is None:
            raise ValueError("an encoded corpus comes without its words; give its vocabulary too")
        corpus = source
    else:
        if iter(source if not isinstance(source, Path) else ()) is source:
            raise ValueError(
                "a generator can be read only once, and the corpus is read twice; give a list or a path"
            )
        vocabulary = vocabulary or Vocabulary.learn(source, minimum, most)
        corpus = encode(source, vocabulary, folder)
    if not (np.diff(corpus.starts) > 1).any():
        raise ValueError(
            "no word has a neighbour: no sentence holds two words of the vocabulary; put whole sentences on a line or lower --minimum"
        )
    if len(vocabulary) < 2:
        raise ValueError(
            f"the vocabulary is one word, {vocabulary.words[0]!r}, with nothing to tell it from; lower --minimum or give more text"
        )

    pieces, bounds = (
        subwords.table(vocabulary.words)
        if subwords
        else (np.empty(0, np.int64), np.zeros(len(vocabulary) + 1, np.int64))
    )
    text = TrainingData(
        corpus.ids,
        corpus.starts,
        subsample_thresholds(vocabulary.counts, sample),
        alias_table(vocabulary.counts**0.75),
        pieces,
        bounds,
    )
    weights = init_matrices(len(vocabulary), subwords.buckets if subwords else 0, dim, seed)
    method = Word2VecMode(kind == "cbow", average, window, negatives)
    threads = useful_threads("word2vec", threads)
    crew = (
        DeterministicTrainer(text, weights, method, threads)
        if reproducible
        else Hogwild(text, weights, method, threads)
    )
    losses, targets = [], []
    began = told = time.perf_counter()
    size = int(corpus.starts[-1])
    for epoch in range(epochs):
        loss, count = 0.0, 0
        for end, cost, made in crew.epoch(
            epoch,
            lambda words, epoch=epoch: rate + (last_rate - rate) * (epoch + words / size) / epochs,
            seed,
        ):
            loss, count = loss + cost, count + made
            now = time.perf_counter()
            if progress and (now - told > 0.1 or end == size):
                done, told = (epoch + end / size) / epochs, now
                progress(
                    TrainingProgress(
                        epoch + 1, done, loss / max(1, count), done * epochs * size / (now - began)
                    )
                )
        if not np.isfinite(weights.inputs).all():
            raise ValueError(
                f"the weights are not finite after epoch {epoch + 1}: the steps are too long; lower --rate from {rate}"
            )
        losses.append(loss / max(1, count))
        targets.append(count)
    speed = epochs * size / (time.perf_counter() - began)

    inputs, outputs = (
        flat.reshape(-1, weights.stride)[:, :dim] for flat in (weights.inputs, weights.outputs)
    )
    vectors, buckets = (
        inputs[: len(vocabulary)].copy(),
        inputs[len(vocabulary) :].copy() if subwords else None,
    )
    if subwords:
        for word, (a, b) in enumerate(pairwise(bounds)):
            vectors[word] = (vectors[word] + inputs[pieces[a:b]].sum(0)) / (1 + b - a)
    return Word2Vec(
        vocabulary, vectors, outputs[: len(vocabulary)].copy(), losses, targets, speed, subwords, buckets
    )


def subsample_thresholds(counts: np.ndarray, sample: float) -> np.ndarray:
    """An occurrence of a word with frequency f stays with the chance min(1, √(sample / f) + sample / f); here times 2³²."""
    if sample == 0:
        return np.full(len(counts), 1 << 32, np.uint64)
    ratio = sample * counts.sum() / counts
    return (np.minimum(1, np.sqrt(ratio) + ratio) * 2**32).astype(np.uint64)


def alias_table(weights: np.ndarray) -> np.ndarray:
    """A table to draw row i with a chance like weights[i] at once: each row shares its place with at most one other, `draw` chooses by the
    threshold in the upper 32 bits."""
    rest = (weights / weights.sum() * len(weights)).tolist()
    small, large = [], []
    for row, value in enumerate(rest):
        (small if value < 1 else large).append(row)
    thresholds, others = np.full(len(rest), 2**32 - 1, np.uint64), np.arange(len(rest), dtype=np.uint64)
    while small and large:
        row, other = small.pop(), large[-1]
        thresholds[row], others[row] = int(rest[row] * 2**32), other
        rest[other] -= 1 - rest[row]
        if rest[other] < 1:
            small.append(large.pop())
    return thresholds << np.uint64(32) | others


def init_matrices(words: int, buckets: int, dim: int, seed: int) -> Matrices:
    """Inputs uniform in ±1 / dim, outputs zero."""
    width = -(-dim // WIDTH) * WIDTH
    stride = -(-width // LINE) * LINE
    inputs, outputs = (
        aligned_zeros((words + buckets) * stride),
        aligned_zeros(-(-(words + 1) // BLOCK) * BLOCK * stride),
    )
    random = np.random.default_rng(seed)
    for part in np.array_split(inputs.reshape(-1, stride), -(-(words + buckets) // 10_000)):
        part[:, :dim] = (2 * random.random((len(part), dim), np.float32) - 1) / dim
    nothing = np.empty(0, np.int32)
    return Matrices(inputs, outputs, nothing, nothing, width, stride)


def aligned_zeros(size: int) -> np.ndarray:
    """Floats that begin at a cache line."""
    room = np.zeros(size + LINE, np.float32)
    skip = -room.ctypes.data % (4 * LINE) // 4
    return room[skip : skip + size]


def chunk_sentences(starts: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Sentences in runs (first, last) of about equal length, at most about `most` words."""
    total = int(starts[-1])
    count = -(-total // most)
    ends = np.searchsorted(starts, np.arange(count + 1) * total // count)
    return [(int(a), int(b)) for a, b in pairwise(np.unique(ends))]


def split_long_sentences(starts: np.ndarray, most: int) -> np.ndarray:
    """Sentences above `most` words cut into several."""
    long = np.flatnonzero(np.diff(starts) > most)
    return np.unique(np.concatenate([starts, *(np.arange(starts[i], starts[i + 1], most) for i in long)]))


class Hogwild:
    """Threads take the next piece of the corpus and change the same weights, without locks: collisions are rare and do no harm."""

    def __init__(self, text: TrainingData, weights: Matrices, method: Word2VecMode, threads: int):
        self.text, self.weights, self.method, self.threads = text, weights, method, threads
        self.pieces = chunk_sentences(text.starts, HOGWILD_WORDS)

    def epoch(self, number: int, rate: Callable[[int], float], seed: int) -> Iterator[tuple[int, float, int]]:
        """(words read until here, summed loss, targets) of each piece, in the order of the corpus."""

        def work(index: int) -> tuple[int, float, int]:
            return train_chunk(
                self.text, self.weights, self.method, self.pieces[index], rate, (seed, number, index)
            )

        with ThreadPoolExecutor(self.threads) as pool:
            yield from pool.map(work, range(len(self.pieces)))


class DeterministicTrainer:
    """The same for any number of threads: two copies of the weights each read the next piece from the same start, then their changes are
    merged in a fixed order. Pieces are short, so that no copy learns long from old weights; a sentence above LANE words is cut. More copies
    would give more threads work, but every merge would cost more than they bring."""

    def __init__(self, text: TrainingData, weights: Matrices, method: Word2VecMode, threads: int):
        self.text, self.weights, self.method, self.threads = (
            text._replace(starts=split_long_sentences(text.starts, CHUNK_WORDS)),
            weights,
            method,
            threads,
        )
        self.pieces = chunk_sentences(self.text.starts, CHUNK_WORDS)
        self.inputs, self.outputs = (self._copies(flat) for flat in (weights.inputs, weights.outputs))
        self.input_marks, self.output_marks = (
            np.zeros((COPIES, flat.size // weights.stride), np.int32)
            for flat in (weights.inputs, weights.outputs)
        )

    @staticmethod
    def _copies(flat: np.ndarray) -> np.ndarray:
        copies = aligned_zeros(COPIES * flat.size).reshape(COPIES, -1)
        copies[:] = flat
        return copies

    def epoch(self, number: int, rate: Callable[[int], float], seed: int) -> Iterator[tuple[int, float, int]]:
        """(words read until here, summed loss, targets) of each piece, in the order of the corpus."""

        def work(index: int) -> tuple[int, float, int]:
            c = index % COPIES
            own = Matrices(
                self.inputs[c],
                self.outputs[c],
                self.input_marks[c],
                self.output_marks[c],
                self.weights.width,
                self.weights.stride,
            )
            return train_chunk(self.text, own, self.method, self.pieces[index], rate, (seed, number, index))

        def join(part: int) -> None:
            whole, width, stride = self.weights, self.weights.width, self.weights.stride
            for base, copies, marks in (
                (whole.inputs, self.inputs, self.input_marks),
                (whole.outputs, self.outputs, self.output_marks),
            ):
                rows = marks.shape[1]
                load_kernels("word2vec").merge_copies(
                    base, copies, marks, rows * part // COPIES, rows * (part + 1) // COPIES, width, stride
                )

        with ThreadPoolExecutor(self.threads) as pool:
            for start in range(0, len(self.pieces), COPIES):
                yield from pool.map(work, range(start, min(start + COPIES, len(self.pieces))))
                list(pool.map(join, range(COPIES)))


def train_chunk(
    text: TrainingData,
    weights: Matrices,
    method: Word2VecMode,
    piece: tuple[int, int],
    rate: Callable[[int], float],
    seed: tuple[int, ...],
) -> tuple[int, float, int]:
    """One piece of the corpus, with random numbers of its own."""
    first, last = piece
    a, b = int(text.starts[first]), int(text.starts[last])
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] | np.uint64(
        1
    )  # a state of zero would stay zero
    loss, targets = load_kernels("word2vec").train_sentences(
        text, weights, method, first, last, rate(a), rate(b), state
    )
    return b, float(loss), int(targets)

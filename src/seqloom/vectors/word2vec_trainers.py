"""How word2vec goes through a corpus: chunks of sentences, trained without locks or reproducibly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from seqloom.kernels.word2vec_args import Matrices, TrainingData, Word2VecMode
from seqloom.vectors.backend import load_kernels

LINE = 16  # floats of a cache line: every row of a matrix begins at one
HOGWILD_WORDS = 100_000  # words of a chunk that one thread trains on at a time
COPIES = 2  # reproducible training: copies of the weights
CHUNK_WORDS = 1_000  # reproducible training: words that each copy trains on before the copies are merged

LearningRate = Callable[[int], float]  # words of the epoch read so far → learning rate


class ChunkResult(NamedTuple):
    """The result of training on one chunk of the corpus."""

    end: int  # words of the corpus up to the chunk's end
    loss: float  # sum over the targets
    targets: int


def aligned_zeros(size: int) -> np.ndarray:
    """Float32 zeros that begin at a cache line."""
    buffer = np.zeros(size + LINE, np.float32)
    skip = -buffer.ctypes.data % (4 * LINE) // 4
    return buffer[skip : skip + size]


def chunk_sentences(starts: np.ndarray, max_words: int) -> list[tuple[int, int]]:
    """Ranges (first, last) of sentences of about equal length, at most about `max_words` words each."""
    total = int(starts[-1])
    count = -(-total // max_words)
    ends = np.searchsorted(starts, np.arange(count + 1) * total // count)
    return [(int(first), int(last)) for first, last in pairwise(np.unique(ends))]


def split_long_sentences(starts: np.ndarray, max_words: int) -> np.ndarray:
    """The starts after splitting sentences that have more than `max_words` words."""
    long = np.flatnonzero(np.diff(starts) > max_words)
    inner = [np.arange(starts[i], starts[i + 1], max_words) for i in long]
    return np.unique(np.concatenate([starts, *inner]))


class EpochTrainer(Protocol):
    """Runs epochs over the corpus."""

    corpus_words: int

    def epoch(self, index: int, lr: LearningRate, seed: int) -> Iterator[ChunkResult]:
        """Trains one epoch; yields the result of each chunk in the order of the corpus."""
        ...


class Hogwild:
    """Threads take the next chunk and update shared weights without locks; collisions are rare."""

    def __init__(self, data: TrainingData, weights: Matrices, mode: Word2VecMode, threads: int) -> None:
        self.data = data
        self.weights = weights
        self.mode = mode
        self.threads = threads
        self.corpus_words = int(data.starts[-1])
        self.chunks = chunk_sentences(data.starts, HOGWILD_WORDS)

    def epoch(self, index: int, lr: LearningRate, seed: int) -> Iterator[ChunkResult]:
        """Trains one epoch; yields the result of each chunk in the order of the corpus."""

        def work(chunk: int) -> ChunkResult:
            return train_chunk(
                self.data, self.weights, self.mode, self.chunks[chunk], lr, (seed, index, chunk)
            )

        with ThreadPoolExecutor(self.threads) as pool:
            yield from pool.map(work, range(len(self.chunks)))


class DeterministicTrainer:
    """Gives the same result for any number of threads.

    Two copies of the weights each train on the next chunk from the same start; then their changes are merged
    in a fixed order. Chunks are short, so that no copy trains long on old weights; a sentence longer than
    CHUNK_WORDS is split. More copies would keep more threads busy, but every merge would cost more than they
    gain.
    """

    def __init__(self, data: TrainingData, weights: Matrices, mode: Word2VecMode, threads: int) -> None:
        self.data = data._replace(starts=split_long_sentences(data.starts, CHUNK_WORDS))
        self.weights = weights
        self.mode = mode
        self.threads = threads
        self.corpus_words = int(data.starts[-1])
        self.chunks = chunk_sentences(self.data.starts, CHUNK_WORDS)
        self.inputs, self.outputs = (self._copies(flat) for flat in (weights.inputs, weights.outputs))
        self.input_updates, self.output_updates = (
            np.zeros((COPIES, flat.size // weights.stride), np.int32)
            for flat in (weights.inputs, weights.outputs)
        )

    @staticmethod
    def _copies(flat: np.ndarray) -> np.ndarray:
        copies = aligned_zeros(COPIES * flat.size).reshape(COPIES, -1)
        copies[:] = flat
        return copies

    def epoch(self, index: int, lr: LearningRate, seed: int) -> Iterator[ChunkResult]:
        """Trains one epoch; yields the result of each chunk in the order of the corpus."""

        def work(chunk: int) -> ChunkResult:
            copy = chunk % COPIES
            weights = self.weights._replace(
                inputs=self.inputs[copy],
                outputs=self.outputs[copy],
                input_updates=self.input_updates[copy],
                output_updates=self.output_updates[copy],
            )
            return train_chunk(self.data, weights, self.mode, self.chunks[chunk], lr, (seed, index, chunk))

        with ThreadPoolExecutor(self.threads) as pool:
            for start in range(0, len(self.chunks), COPIES):
                yield from pool.map(work, range(start, min(start + COPIES, len(self.chunks))))
                list(pool.map(self._merge, range(COPIES)))

    def _merge(self, part: int) -> None:
        """Merges one of COPIES equal parts of the rows of both matrices."""
        weights = self.weights
        for base, copies, updates in (
            (weights.inputs, self.inputs, self.input_updates),
            (weights.outputs, self.outputs, self.output_updates),
        ):
            rows = updates.shape[1]
            first, last = rows * part // COPIES, rows * (part + 1) // COPIES
            merge_copies = load_kernels("word2vec").merge_copies
            merge_copies(base, copies, updates, first, last, weights.width, weights.stride)


def train_chunk(
    data: TrainingData,
    weights: Matrices,
    mode: Word2VecMode,
    chunk: tuple[int, int],
    lr: LearningRate,
    seed: tuple[int, ...],
) -> ChunkResult:
    """Trains on the sentences of one chunk, with its own random numbers."""
    first, last = chunk
    begin, end = int(data.starts[first]), int(data.starts[last])
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    state |= np.uint64(1)  # xorshift never leaves a state of zero
    train_sentences = load_kernels("word2vec").train_sentences
    loss, targets = train_sentences(data, weights, mode, first, last, lr(begin), lr(end), state)
    return ChunkResult(end, float(loss), int(targets))

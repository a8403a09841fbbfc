"""The arguments of the word2vec kernels, without numba, for `vectors/plain/word2vec.py` too.

Matrices are flat float32 arrays of rows that are `stride` floats apart. The first `width` floats of a row (a
multiple of WIDTH) take part in the arithmetic; the rest is zero and stays zero.
"""

from typing import NamedTuple

import numpy as np

WIDTH = 8  # floats of one vector register
BLOCK = 6  # output rows that one step of negative sampling handles: a target and five negatives
POOL = 60  # negatives drawn and prefetched before they are needed: few enough for the first-level cache
USES = 8  # how often each pooled negative is used, for different words, before another one is drawn
MERGED_STEPS = 64  # updates of one row that `merge_copies` adds up in full


class TrainingData(NamedTuple):
    """The encoded corpus and the tables for sampling from it."""

    ids: np.ndarray  # (N,) int32
    starts: np.ndarray  # sentence i is ids[starts[i] : starts[i + 1]]
    keep_thresholds: np.ndarray  # (V,) uint64: probability · 2³² that sub-sampling keeps an occurrence
    alias_table: np.ndarray  # (V,) uint64: threshold in the upper 32 bits, the alternative word in the lower
    subword_rows: np.ndarray  # input rows of word w besides w: subword_rows[bounds[w] : bounds[w + 1]]
    subword_bounds: np.ndarray  # (V + 1,), all zero without subwords


class Matrices(NamedTuple):
    """The weights. The number of output rows is a multiple of BLOCK; rows beyond the vocabulary are padding."""

    inputs: np.ndarray
    outputs: np.ndarray
    input_updates: np.ndarray  # int32, how often each row was updated; empty if nobody needs the counts
    output_updates: np.ndarray
    width: int
    stride: int


class Word2VecMode(NamedTuple):
    """The method. `mean_context` divides gradients by the context's size; negative = 0 is the full softmax."""

    cbow: bool
    mean_context: bool
    window: int
    negative: int

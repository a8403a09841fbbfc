"""The loss of word2vec on a fixed sample of windows and negatives: one number for each epoch that can be compared  [A11].

The cost of a target just before its own step, which the training loop can sum for nothing, is no measure of progress: its weights have
just been trained on the words around it. While the learning rate is high, that makes the text ahead cheap, and as the rate falls, the
advantage goes and the mean rises, although the vectors become better. Here the windows and negatives are drawn once, from the corpus
as training draws them, and the same ones are measured with the weights at the end of each epoch. They depend on the corpus and the
options, not on the seed, so that runs can be compared too. The windows are part of the training text: the number tells how well
training goes, not how well the vectors do elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.kernels.word2vec_args import Matrices, TrainingData, Word2VecMode
from seqloom.vectors.vocabulary import Corpus

MAX_WINDOWS = 4000
MIN_WINDOWS = 1000
WORDS_PER_WINDOW = 250  # at most: a sample costs about a hundredth of an epoch
SPAN = 10  # words of the text on either side that a window may span after sub-sampling, in units of its reach
MAX_DRAWS = 200  # times that positions are drawn until enough survive sub-sampling
BLOCK = 1 << 20  # numbers gathered at a time


class LossSample(NamedTuple):
    """Windows with their targets and negatives. Window w is `sources[bounds[w] : bounds[w + 1]]`, input rows whose mean is h."""

    sources: np.ndarray  # (S,) rows of words and of subwords
    bounds: np.ndarray  # (W + 1,)
    targets: np.ndarray  # (T,) output rows
    windows: np.ndarray  # (T,) the window of each target
    negatives: np.ndarray  # (T, k) output rows; k = 0 is the full softmax

    def loss(self, weights: Matrices, words: int) -> float:
        """The mean cost of a target under the weights: −log σ(u_y·h) − Σ log σ(−u_n·h), or −log softmax(U h)_y."""
        inputs, outputs = (
            flat.reshape(-1, weights.stride)[:, : weights.width] for flat in (weights.inputs, weights.outputs)
        )
        h = self._hidden(inputs)
        if not self.negatives.shape[1]:
            return self._softmax(h, outputs[:words]) / len(self.targets)
        total = 0.0
        step = max(1, BLOCK // (weights.width * (1 + self.negatives.shape[1])))
        for start in range(0, len(self.targets), step):
            part = slice(start, start + step)
            hidden = h[self.windows[part]]
            scores = np.einsum("td,td->t", hidden, outputs[self.targets[part]])
            negative_scores = np.einsum("td,tkd->tk", hidden, outputs[self.negatives[part]])
            total += np.logaddexp(0, -scores, dtype=np.float64).sum()
            total += np.logaddexp(0, negative_scores, dtype=np.float64).sum()
        return float(total) / len(self.targets)

    def _hidden(self, inputs: np.ndarray) -> np.ndarray:
        """The mean (W, D) of each window's rows."""
        sizes = np.diff(self.bounds)
        if sizes.max() == 1:
            return inputs[self.sources]
        step = max(1, BLOCK // (inputs.shape[1] * int(sizes.max())))
        parts = []
        for first in range(0, len(sizes), step):
            bounds = self.bounds[first : first + step + 1]
            rows = inputs[self.sources[bounds[0] : bounds[-1]]]
            parts.append(np.add.reduceat(rows, bounds[:-1] - bounds[0], axis=0))
        return np.concatenate(parts) / sizes[:, None].astype(np.float32)

    def _softmax(self, h: np.ndarray, outputs: np.ndarray) -> float:
        """The summed cost of all targets."""
        total = 0.0
        step = max(1, BLOCK // len(outputs))
        for start in range(0, len(h), step):
            scores = h[start : start + step] @ outputs.T  # (windows, V)
            top = scores.max(1)
            normalizers = top + np.log(np.exp(scores - top[:, None]).sum(1, dtype=np.float64))
            inside = (self.windows >= start) & (self.windows < start + step)
            rows = self.windows[inside] - start
            total += (normalizers[rows] - scores[rows, self.targets[inside]]).sum()
        return float(total)


def draw_loss_sample(
    corpus: Corpus, data: TrainingData, mode: Word2VecMode, counts: np.ndarray
) -> LossSample:
    """Windows of the corpus, sub-sampled and cut as in training, with negatives from count^¾."""
    random = np.random.default_rng(0)
    keep = data.keep_thresholds / 2**32
    wanted = min(MAX_WINDOWS, max(MIN_WINDOWS, int(corpus.starts[-1]) // WORDS_PER_WINDOW))
    centres, contexts, windows = _draw_windows(corpus, keep, mode.window, wanted, random)
    if mode.cbow:
        source_words, source_windows = contexts, windows
        targets, target_windows = centres, np.arange(len(centres))
    else:
        source_words, source_windows = centres, np.arange(len(centres))
        targets, target_windows = contexts, windows
    sources, sizes = _with_subwords(source_words, data)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(source_windows, sizes, len(centres)))])
    weights = counts**0.75
    negatives = random.choice(len(counts), (len(targets), mode.negative), p=weights / weights.sum())
    while (same := negatives == targets[:, None]).any():
        negatives[same] = random.choice(len(counts), same.sum(), p=weights / weights.sum())
    return LossSample(sources, bounds.astype(np.int64), targets, target_windows, negatives)


def _draw_windows(
    corpus: Corpus, keep: np.ndarray, max_window: int, wanted: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The centre (W,) of each window, and its context words with the window of each."""
    ids, starts = corpus
    offsets = np.arange(-SPAN * max_window, SPAN * max_window + 1)
    is_right = offsets > 0
    centres: list[np.ndarray] = []
    contexts: list[np.ndarray] = []
    windows: list[np.ndarray] = []
    count = 0
    for _ in range(MAX_DRAWS):
        positions = random.integers(starts[0], starts[-1], wanted)
        positions = positions[random.random(wanted) < keep[ids[positions]]]
        sentences = np.searchsorted(starts, positions, side="right") - 1
        places = positions[:, None] + offsets  # (P, span)
        inside = (places >= starts[sentences, None]) & (places < starts[sentences + 1, None]) & (offsets != 0)
        words = ids[np.where(inside, places, 0)]
        kept = inside & (random.random(words.shape) < keep[words])
        # The first kept word on either side has distance 1, whatever was dropped before it.
        right = np.cumsum(kept & is_right, axis=1)
        left = np.cumsum((kept & ~is_right)[:, ::-1], axis=1)[:, ::-1]
        reach = random.integers(1, max_window + 1, len(positions))[:, None]
        chosen = kept & (np.where(is_right, right, left) <= reach)
        rows = np.flatnonzero(chosen.any(1))[: wanted - count]
        centres.append(ids[positions[rows]])
        window, place = np.nonzero(chosen[rows])
        contexts.append(words[rows][window, place])
        windows.append(window + count)
        count += len(rows)
        if count == wanted:
            break
    if not count:
        raise DataError(
            "sub-sampling leaves no two words of a sentence together; raise --subsample, or give 0"
        )
    return np.concatenate(centres), np.concatenate(contexts), np.concatenate(windows)


def _with_subwords(words: np.ndarray, data: TrainingData) -> tuple[np.ndarray, np.ndarray]:
    """The input rows of each word, the word's own and those of its n-grams, one word after the other; and their numbers."""
    sizes = 1 + np.diff(data.subword_bounds)[words]
    if not len(data.subword_rows):
        return words.astype(np.int64), sizes
    rows = [
        row
        for word in words.tolist()
        for row in (word, *data.subword_rows[data.subword_bounds[word] : data.subword_bounds[word + 1]])
    ]
    return np.array(rows, np.int64), sizes

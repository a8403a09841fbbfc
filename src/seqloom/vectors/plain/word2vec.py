"""word2vec's inner loops in numpy: windows, sub-sampling, negatives, and one step for each window.

The plain form of `kernels/word2vec.py`, with its arguments (`kernels/word2vec_args.py`), equations and random
numbers.
"""

from __future__ import annotations

import math

import numpy as np

from seqloom.kernels.word2vec_args import (
    BLOCK,
    MERGED_STEPS,
    POOL,
    USES,
    WIDTH,
    Matrices,
    TrainingData,
    Word2VecMode,
)

_MASK = (1 << 64) - 1
_LIMIT = np.float32(40)  # the compiled exponential clamps its argument to ± this


class _Random:
    """A 64-bit xorshift generator with the numbers that the compiled form derives from its state."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def advance(self) -> None:
        state = self.state
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        self.state = state

    def uniform(self, count: int) -> int:
        """An integer below `count`, from the upper half of the scrambled state."""
        return (((self.state * 0x2545F4914F6CDD1D) & _MASK) >> 32) * count >> 32

    def u32(self) -> int:
        """An integer below 2³², independent of `uniform`."""
        return ((self.state * 0x9E3779B97F4A7C15) & _MASK) >> 32

    def draw_negative(self, alias_table: list[int]) -> int:
        """Advances the generator and draws a word from the alias table."""
        self.advance()
        row = self.uniform(len(alias_table))
        entry = alias_table[row]
        return row if self.u32() < entry >> 32 else entry & 0xFFFFFFFF


class _NegativePool:
    """Negatives drawn in advance, each used USES times before another one is drawn in its place."""

    def __init__(self, alias_table: list[int], random: _Random) -> None:
        self.alias_table = alias_table
        self.random = random
        self.words = [random.draw_negative(alias_table) for _ in range(POOL)]
        self.slot = 0
        self.lap = 0

    def take(self, target: int) -> int:
        """The next negative that is not `target`."""
        word = self.words[self.slot]
        if (self.slot + self.lap) % USES == 0:
            self.words[self.slot] = self.random.draw_negative(self.alias_table)
        self.slot += 1
        if self.slot == POOL:
            self.slot = 0
            self.lap += 1
        while word == target:
            word = self.random.draw_negative(self.alias_table)
        return word


def train_sentences(
    data: TrainingData,
    weights: Matrices,
    mode: Word2VecMode,
    first: int,
    last: int,
    begin: float,
    end: float,
    seed: int,
) -> tuple[float, int]:
    """Trains on sentences first … last − 1 while the learning rate goes from `begin` to `end`.

    Returns the summed loss and the number of targets.
    """
    random = _Random(int(seed))
    pool = _NegativePool(data.alias_table.tolist(), random)
    thresholds = data.keep_thresholds.tolist()
    starts = data.starts[first : last + 1].tolist()
    num_words = starts[-1] - starts[0]
    loss = 0.0
    num_targets = 0
    for i in range(last - first):
        words = []
        for word in data.ids[starts[i] : starts[i + 1]].tolist():
            random.advance()
            if random.u32() < thresholds[word]:
                words.append(word)
        for position, center in enumerate(words):
            words_read = starts[i] - starts[0] + (starts[i + 1] - starts[i]) * (position / len(words))
            lr = np.float32(begin + (end - begin) * words_read / num_words)
            random.advance()
            reach = 1 + random.uniform(mode.window)
            context = words[max(0, position - reach) : position] + words[position + 1 : position + reach + 1]
            if not context:
                continue
            sources, targets = (context, [center]) if mode.cbow else ([center], context)
            loss += _train_window(data, weights, mode, sources, targets, lr, pool)
            num_targets += len(targets)
    return loss, num_targets


def _train_window(
    data: TrainingData,
    weights: Matrices,
    mode: Word2VecMode,
    sources: list[int],
    targets: list[int],
    lr: np.float32,
    pool: _NegativePool,
) -> float:
    """One window: h is the mean of the rows of the source words and subwords; returns the loss [A9, A10]."""
    inputs = weights.inputs.reshape(-1, weights.stride)[:, : weights.width]
    outputs = weights.outputs.reshape(-1, weights.stride)[:, : weights.width]
    rows = np.array(
        [
            row
            for word in sources
            for row in (
                word,
                *data.subword_rows[data.subword_bounds[word] : data.subword_bounds[word + 1]].tolist(),
            )
        ]
    )
    h = (inputs[rows] * np.float32(1 / len(rows))).sum(0)
    dh = np.zeros_like(h)
    if mode.mean_context:
        lr = lr / np.float32(len(targets))
    loss = 0.0
    if mode.negative == 0:
        loss += _softmax_step(h, dh, outputs[: len(data.keep_thresholds)], targets, lr)
        weights.output_updates[:] += 1
    else:
        padding = len(data.keep_thresholds)
        for target in targets:
            words = [target, *(pool.take(target) for _ in range(mode.negative))]
            for start in range(0, len(words), BLOCK):
                block = words[start : start + BLOCK]
                loss += _negative_sampling_step(h, dh, outputs, block, start == 0, lr)
                if len(weights.output_updates):
                    np.add.at(weights.output_updates, block + [padding] * (WIDTH - len(block)), 1)
    np.add.at(inputs, rows, dh * np.float32(1 / len(rows) if mode.mean_context else 1))
    if len(weights.input_updates):
        np.add.at(weights.input_updates, rows, 1)
    return loss


def _negative_sampling_step(
    h: np.ndarray, dh: np.ndarray, outputs: np.ndarray, words: list[int], has_target: bool, lr: np.float32
) -> float:
    """Output rows u of up to BLOCK words against h; s = 1 for the target, which is first, else −1:

    loss −Σ log σ(s u·h)     g = lr · s σ(−s u·h)     dh += Σ g u     u += g h     [A11, D-22]
    """
    signs = np.full(len(words), -1, np.float32)
    if has_target:
        signs[0] = 1
    scores = (outputs[words] @ h) * signs
    odds = 1 + np.exp(np.clip(-scores, -_LIMIT, _LIMIT))  # 1 / σ(s u·h)
    g = (1 - 1 / odds) * lr * signs
    if len(set(words)) == len(words):
        u = outputs[words]
        dh += g @ u
        outputs[words] = u + g[:, None] * h
    else:  # a word drawn twice: its second update starts from the first one's result
        for word, step in zip(words, g, strict=True):
            dh += step * outputs[word]
            outputs[word] += step * h
    return float(np.log(odds.astype(np.float64)).sum())


def _softmax_step(
    h: np.ndarray, dh: np.ndarray, outputs: np.ndarray, targets: list[int], lr: np.float32
) -> float:
    """All output rows against one hidden vector, p = softmax(U h), for each of the target words y:

    loss −Σ log p(y)     g = lr · Σ (onehot(y) − p)     dh += Uᵀ g     U += g hᵀ     [A9, A10, A11, D-22]
    """
    scores = outputs @ h
    scores -= scores.max()
    loss = -float(scores[targets].sum(dtype=np.float64))
    exponentials = np.exp(scores)
    total = float(exponentials.sum(dtype=np.float64))
    g = exponentials * np.float32(-len(targets) * lr / total)
    np.add.at(g, targets, lr)
    dh += g @ outputs
    outputs += g[:, None] * h
    return loss + len(targets) * math.log(total)


def merge_copies(
    base: np.ndarray,
    copies: np.ndarray,
    updates: np.ndarray,
    first: int,
    last: int,
    width: int,
    stride: int,
) -> None:
    """Rows first … last − 1 of `base` and of all copies become base + fraction · Σ changes.

    `updates` becomes zero.

    The fraction is 1 for few updates, which add up as if one copy had made them. It falls with their number
    to the mean of the copies that changed the row: many updates from the same start would overshoot.
    """
    counts = updates[:, first:last]
    changed = (counts > 0).sum(0)
    rows = first + np.flatnonzero(changed)
    if not len(rows):
        return
    steps = counts.sum(0)[rows - first]
    fraction = np.maximum(1 / changed[rows - first], np.minimum(1.0, MERGED_STEPS / steps)).astype(np.float32)
    all_bases = base.reshape(-1, stride)
    all_copies = copies.reshape(len(copies), -1, stride)
    old = all_bases[rows, :width]
    change = (all_copies[:, rows, :width] - old).sum(0)
    new = old + fraction[:, None] * change
    all_bases[rows, :width] = new
    all_copies[:, rows, :width] = new
    updates[:, rows] = 0

"""The loops of GloVe in numpy: cells sorted into tiles, a tile shuffled, a tile trained.

The plain form of `kernels/glove.py`: the same layout of cells and parameters, the same random order, the same
steps.
"""

from __future__ import annotations

import numpy as np


def tile_sizes(starts: np.ndarray, columns: np.ndarray, first: int, sizes: np.ndarray) -> None:
    """sizes[i, j] += number of cells whose row is i and column is j modulo the number of blocks.

    Rows begin at `first`.
    """
    blocks = len(sizes)
    tiles = _rows(starts, first) % blocks * blocks + columns % blocks
    sizes += np.bincount(tiles, minlength=blocks * blocks).reshape(blocks, blocks)


def write_tiles(
    starts: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    first: int,
    height: int,
    x_max: float,
    alpha: float,
    offsets: np.ndarray,
    ids: np.ndarray,
    numbers: np.ndarray,
) -> None:
    """Writes the cells of these rows tile by tile: tile (i, j) from offsets[i, j] on, which advances.

    Word w becomes w % blocks · height + w // blocks, so that the words of a block are adjacent.
    f(x) = min(1, (x / x_max)^α) [A12].
    """
    blocks = len(offsets)
    rows = _rows(starts, first)
    tiles = rows % blocks * blocks + columns % blocks
    order = np.argsort(tiles, kind="stable")
    counts = np.bincount(tiles, minlength=blocks * blocks)
    sorted_tiles = tiles[order]
    index_in_tile = np.arange(len(order)) - (np.cumsum(counts) - counts)[sorted_tiles]
    target = offsets.reshape(-1)[sorted_tiles] + index_in_tile
    ids[target, 0] = (rows % blocks * height + rows // blocks)[order]
    ids[target, 1] = (columns % blocks * height + columns // blocks)[order]
    numbers[target, 2] = np.log(values)[order]
    numbers[target, 3] = np.minimum(1.0, (np.asarray(values) / x_max) ** alpha)[order]
    offsets += counts.reshape(blocks, blocks)


def _rows(starts: np.ndarray, first: int) -> np.ndarray:
    """The row of each cell."""
    return np.repeat(np.arange(first, first + len(starts) - 1), np.diff(starts))


def shuffle(cells: np.ndarray, seed: int) -> None:
    """Any order with equal probability (Fisher-Yates); random numbers by splitmix64."""
    last = np.arange(len(cells) - 1, 0, -1, dtype=np.uint64)  # the index i of each swap
    counter = np.arange(1, len(cells), dtype=np.uint64)
    state = np.uint64(seed) + counter * np.uint64(0x9E3779B97F4A7C15)
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    partners = ((z ^ (z >> np.uint64(31))) >> np.uint64(32)) * (last + np.uint64(1)) >> np.uint64(32)
    order = list(range(len(cells)))
    for i, j in zip(last.tolist(), partners.tolist(), strict=True):
        order[i], order[j] = order[j], order[i]
    cells[:] = cells[order]


def adagrad_tile(
    ids: np.ndarray, numbers: np.ndarray, words: np.ndarray, contexts: np.ndarray, dim: int, rate: np.float32
) -> float:
    """One AdaGrad step for each cell in turn. Returns Σ f(X) e² with the errors e before the steps.

    e = w·u + b + c − log X;  g = f(X) e;  ∂J/∂w = g u, ∂J/∂u = g w, ∂J/∂b = ∂J/∂c = g (the factor 2 is part
    of the rate);  G ← G + (∂J/∂θ)²;  θ ← θ − rate ∂J/∂θ / √G.
    """
    half = words.shape[1] // 2
    bias = half - 1
    loss = 0.0
    for i, j, log_x, weight in zip(
        ids[:, 0].tolist(), ids[:, 1].tolist(), numbers[:, 2], numbers[:, 3], strict=True
    ):
        row, column = words[i], contexts[j]
        error = row[bias] + column[bias] - log_x + row[:dim] @ column[:dim]
        g = weight * error
        loss += float(g * error)
        row_gradient, column_gradient = g * column[:dim], g * row[:dim]
        for parameters, gradient in ((row, row_gradient), (column, column_gradient)):
            parameters[half : half + dim] += gradient * gradient
            parameters[:dim] -= rate * gradient / np.sqrt(parameters[half : half + dim])
            parameters[-1] += g * g
            parameters[bias] -= rate * g / np.sqrt(parameters[-1])
    return loss

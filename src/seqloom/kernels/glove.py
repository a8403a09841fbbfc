"""The loops of GloVe, compiled and without the GIL: cells dealt to tiles, a tile shuffled, a tile learnt.

A cell is 16 bytes: row and column as int32, log X and f(X) as float32. One and the same memory is seen as (n, 2) uint64, (n, 4) int32 or
(n, 4) float32. A row of parameters holds a vector, its bias, and the squares that AdaGrad has gathered for them, side by side.
"""

import math

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def tile_sizes(starts: np.ndarray, columns: np.ndarray, first: int, sizes: np.ndarray) -> None:
    """sizes[i, j] += number of cells whose row is i and whose column is j modulo the number of blocks; the rows given begin with `first`."""
    blocks = len(sizes)
    for row in range(len(starts) - 1):
        for k in range(starts[row] - starts[0], starts[row + 1] - starts[0]):
            sizes[(first + row) % blocks, columns[k] % blocks] += 1


@njit(nogil=True, cache=True)
def write_tiles(
    starts: np.ndarray, columns: np.ndarray, values: np.ndarray, first: int, height: int, x_max: float, alpha: float,
    heads: np.ndarray, ids: np.ndarray, numbers: np.ndarray,
) -> None:  # fmt: skip
    """Writes the cells of the same rows tile by tile: tile (i, j) from heads[i, j] on, which moves along.

    Word w becomes w % blocks · height + w // blocks, so that the words of a block are neighbours. f(x) = min(1, (x / x_max)^α) [A12].
    """
    blocks = len(heads)
    for r in range(len(starts) - 1):
        row = first + r
        for k in range(starts[r] - starts[0], starts[r + 1] - starts[0]):
            column = columns[k]
            n = heads[row % blocks, column % blocks]
            heads[row % blocks, column % blocks] = n + 1
            ids[n, 0] = row % blocks * height + row // blocks
            ids[n, 1] = column % blocks * height + column // blocks
            numbers[n, 2] = math.log(values[k])
            numbers[n, 3] = min(1.0, (values[k] / x_max) ** alpha)


@njit(nogil=True, cache=True)
def shuffle(cells: np.ndarray, seed: np.uint64) -> None:
    """Any order with equal chance (Fisher-Yates); random numbers by splitmix64."""
    for i in range(len(cells) - 1, 0, -1):
        seed += np.uint64(0x9E3779B97F4A7C15)
        z = (seed ^ (seed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        j = ((z ^ (z >> np.uint64(31))) >> np.uint64(32)) * np.uint64(i + 1) >> np.uint64(32)
        key, numbers = cells[i, 0], cells[i, 1]
        cells[i, 0], cells[i, 1] = cells[j, 0], cells[j, 1]
        cells[j, 0], cells[j, 1] = key, numbers


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def adagrad_tile(
    ids: np.ndarray, numbers: np.ndarray, words: np.ndarray, contexts: np.ndarray, dim: int, rate: np.float32
) -> float:
    """One AdaGrad step for each cell in turn. Returns Σ f(X) e² with the error e of each cell before its step.

    e = w·u + b + c − log X;  g = f(X) e;  ∂J/∂w = g u, ∂J/∂u = g w, ∂J/∂b = ∂J/∂c = g (the factor 2 is part of the rate);
    G ← G + (∂J/∂θ)²;  θ ← θ − rate ∂J/∂θ / √G.
    """
    half = words.shape[1] // 2
    loss = 0.0
    for i in range(len(ids)):
        row, column = words[np.uint32(ids[i, 0])], contexts[np.uint32(ids[i, 1])]
        w, u = row[:dim], column[:dim]
        w_squares, u_squares = row[half : half + dim], column[half : half + dim]
        error = row[half - 1] + column[half - 1] - numbers[i, 2]
        for k in range(dim):
            error += w[k] * u[k]
        g = numbers[i, 3] * error
        loss += g * error
        for k in range(dim):
            to_w, to_u = g * u[k], g * w[k]
            w_square, u_square = w_squares[k] + to_w * to_w, u_squares[k] + to_u * to_u
            w_squares[k], u_squares[k] = w_square, u_square
            w[k] -= rate * to_w / np.sqrt(w_square)
            u[k] -= rate * to_u / np.sqrt(u_square)
        for side in (row, column):
            side[2 * half - 1] += g * g
            side[half - 1] -= rate * g / np.sqrt(side[2 * half - 1])
    return loss

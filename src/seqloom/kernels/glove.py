"""The loops of GloVe: cells written to tiles, a tile shuffled, one AdaGrad step for each cell of a tile. The
fast form of `vectors/plain/glove.py`, called by `vectors/glove.py`; no GIL is held.

A cell has 16 bytes: row and column as int32, log X and f(X) as float32; the same memory is viewed as (n, 2)
uint64, (n, 4) int32 or (n, 4) float32. A row of parameters (float32) holds a vector, its bias, and the sums
of squared gradients of both, side by side. A tile has the cells of a block of words and a block of contexts,
whose parameters fit into the L2 cache together. Fallback: the numpy form.
"""

import math

import numpy as np

from seqloom.kernels.host import cached_njit

njit_nogil = cached_njit({"nogil": True})
njit_fast = cached_njit({"nogil": True, "fastmath": True, "error_model": "numpy"})


@njit_nogil
def tile_sizes(starts, columns, first, sizes):
    """sizes[i, j] += number of cells whose row is i and whose column is j modulo the number of blocks; the
    first row is `first`.
    """
    blocks = len(sizes)
    for row in range(len(starts) - 1):
        for k in range(starts[row] - starts[0], starts[row + 1] - starts[0]):
            sizes[(first + row) % blocks, columns[k] % blocks] += 1


@njit_nogil
def write_tiles(starts, columns, values, first, height, x_max, alpha, offsets, ids, numbers):
    """Writes the cells of the same rows tile by tile: tile (i, j) from offsets[i, j] on, which advances.

    Word w becomes w % blocks · height + w // blocks, so that the words of a block are adjacent. f(x) = min(1,
    (x / x_max)^α) [A12].
    """
    blocks = len(offsets)
    for r in range(len(starts) - 1):
        row = first + r
        for k in range(starts[r] - starts[0], starts[r + 1] - starts[0]):
            column = columns[k]
            n = offsets[row % blocks, column % blocks]
            offsets[row % blocks, column % blocks] = n + 1
            ids[n, 0] = row % blocks * height + row // blocks
            ids[n, 1] = column % blocks * height + column // blocks
            numbers[n, 2] = math.log(values[k])
            numbers[n, 3] = min(1.0, (values[k] / x_max) ** alpha)


@njit_nogil
def splitmix64(state):
    """The random number of a state of the splitmix64 generator."""
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit_nogil
def shuffle(cells, seed):
    """A uniformly random order (Fisher-Yates)."""
    for i in range(len(cells) - 1, 0, -1):
        seed += np.uint64(0x9E3779B97F4A7C15)
        j = (splitmix64(seed) >> np.uint64(32)) * np.uint64(i + 1) >> np.uint64(32)
        for half in range(2):
            value = cells[i, half]
            cells[i, half] = cells[j, half]
            cells[j, half] = value


@njit_fast
def adagrad_tile(ids, numbers, words, contexts, dim, lr):
    """One AdaGrad step for each cell in turn. Returns Σ f(X) e² with the error e of each cell before its
    step.

    e = w·u + b + c − log X; g = f(X) e; ∂J/∂w = g u, ∂J/∂u = g w, ∂J/∂b = ∂J/∂c = g (the factor 2 is part of
    lr); G ← G + (∂J/∂θ)²; θ ← θ − lr ∂J/∂θ / √G.
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
            w_grad = g * u[k]
            u_grad = g * w[k]
            w_square = w_squares[k] + w_grad * w_grad
            u_square = u_squares[k] + u_grad * u_grad
            w_squares[k] = w_square
            u_squares[k] = u_square
            w[k] -= lr * w_grad / np.sqrt(w_square)
            u[k] -= lr * u_grad / np.sqrt(u_square)
        for parameters in (row, column):
            parameters[2 * half - 1] += g * g
            parameters[half - 1] -= lr * g / np.sqrt(parameters[2 * half - 1])
    return loss

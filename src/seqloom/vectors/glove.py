"""GloVe: vectors whose products are the logarithms of co-occurrence counts [A12].

Where it comes from. P_ik = X_ik / X_i is the chance of word k near word i. What tells ice from steam is not P_ik but the ratio
P_ik / P_jk: large for "solid", small for "gas", near 1 for "water" and "fashion" [X3]. So vectors shall give the ratio,

    F(w_i, w_j, u_k) = P_ik / P_jk.

Differences belong to a vector space, so let F depend on w_i − w_j, and compare it with u_k by a product: F((w_i − w_j)·u_k) = P_ik / P_jk.
A difference on the left is a ratio on the right: F = exp, thus w_i·u_k = log P_ik = log X_ik − log X_i. The last term knows nothing of k: it
becomes a bias b_i, and a bias c_k makes words and contexts exchangeable:

    w_i·u_k + b_i + c_k = log X_ik.

Least squares over the cells that are not empty, rare ones counting less:

    J = Σ f(X_ij) (w_i·u_j + b_i + c_j − log X_ij)²,    f(x) = min(1, (x / x_max)^α).

How it is learnt. Rows and columns are dealt to blocks; the tile (i, j) has the cells of row block i and column block j. Tiles of different rows
and columns share no parameter, so threads learn such tiles at the same time and never meet: the result is the same, bit by bit, for any number
of threads. A tile's parameters fit the cache. The order of tiles, and of cells within each, is drawn anew in each iteration. Left out:
threads that overwrite each other's steps, which would be neither faster nor repeatable.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from platformdirs import user_cache_path

from seqloom.files import disk_error
from seqloom.vectors.backend import load_kernels, useful_threads
from seqloom.vectors.count_writer import append, release_pages
from seqloom.vectors.count_writer import blocks as row_blocks
from seqloom.vectors.counts import Cooccurrences

CELL = 16  # bytes
CACHE = 8 << 20  # bytes of parameters that one tile should use at most


class Glove(NamedTuple):
    """What was learnt, and the mean of f(X) e² over all cells in each iteration (e is a cell's error just before its own step)."""

    words: np.ndarray  # (V, dim) w
    contexts: np.ndarray  # (V, dim) u
    word_biases: np.ndarray  # (V,) b
    context_biases: np.ndarray  # (V,) c
    losses: list[float]

    @property
    def vectors(self) -> np.ndarray:
        """w + u, (V, dim): with symmetric counts the two differ by chance only, and their sum is a little better than either."""
        return self.words + self.contexts


def train(
    cells: Cooccurrences,
    dim: int = 100,
    iterations: int = 15,
    x_max: float = 10.0,
    alpha: float = 0.75,
    rate: float = 0.05,
    threads: int = 2,
    seed: int = 0,
    memory: int = 1 << 30,
    folder: str | Path | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Glove:
    """Learns the vectors of the words of a co-occurrence matrix [A12]. `progress` is told the number and the loss of each iteration.

    `x_max` is the count from which a cell has its full weight: 10 suits millions of words, 100 billions. Cells are shuffled on the disk (in
    `folder`, by default the user's cache); `memory` bounds what they take at a time, the parameters apart. The same seed and memory give
    the same bits, whatever the number of threads.
    """
    for name, value in {
        "dim": dim,
        "iterations": iterations,
        "x_max": x_max,
        "rate": rate,
        "threads": threads,
    }.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}, but must be above 0")
    if not len(cells.values):
        raise ValueError("the co-occurrence matrix has no cells; count a longer text or a wider window")
    size = len(cells.starts) - 1
    if not (
        0 <= cells.columns.min() <= cells.columns.max() < size
        and 0 < cells.values.min() <= cells.values.max() < np.inf
    ):
        raise ValueError(
            f"the co-occurrence matrix has columns beyond its {size} rows, or counts that have no logarithm; count again"
        )
    half = -(-(dim + 1) // 16) * 16  # both halves of a row start at a line of the cache
    blocks = _blocks(size, half, len(cells.values), memory)
    height = -(-size // blocks)
    places = np.arange(size) % blocks * height + np.arange(size) // blocks
    random = np.random.default_rng(seed)
    words, contexts = (_init_params(places, blocks * height, dim, half, random) for _ in range(2))
    place = Path(folder) if folder else user_cache_path("seqloom")
    try:
        tiles, heads = _write_tiles(cells, place, blocks, height, x_max, alpha, memory)
    except OSError as error:
        raise disk_error(error, place, "the shuffled cells", len(cells.values) * CELL) from error
    losses = []
    with ThreadPoolExecutor(useful_threads("glove", threads)) as pool:
        for iteration in range(1, iterations + 1):
            loss = _run_epoch(tiles, heads, words, contexts, dim, np.float32(rate), pool, random) / len(
                cells.values
            )
            if not np.isfinite(loss):
                raise ValueError(f"the loss is {loss} in iteration {iteration}; give a rate below {rate}")
            losses.append(loss)
            if progress:
                progress(iteration, loss)
    found = words[places], contexts[places]
    return Glove(
        *(rows[:, :dim].copy() for rows in found), *(rows[:, half - 1].copy() for rows in found), losses
    )


def _init_params(
    places: np.ndarray, rows: int, dim: int, half: int, random: np.random.Generator
) -> np.ndarray:
    """(rows, 2 half): vectors and biases between ± 1/2 dim, biases at half − 1; squares 1, so that the first step has the rate given."""
    parameters = np.zeros((rows, 2 * half), np.float32)
    parameters[:, half:] = 1
    drawn = (random.random((len(places), dim + 1), np.float32) - np.float32(0.5)) / np.float32(dim)
    parameters[places, :dim], parameters[places, half - 1] = drawn[:, :dim], drawn[:, dim]
    return parameters


def _blocks(size: int, half: int, cells: int, memory: int) -> int:
    """Enough blocks that a tile's parameters stay in the cache and 16 tiles in memory; 8 to 128, and whatever the number of threads."""
    cached = size * half * 4 * 4 / CACHE
    held = (16 * CELL * cells / memory) ** 0.5
    return min(size, max(8, min(128, int(np.ceil(max(cached, held))))))


def _write_tiles(
    cells: Cooccurrences, place: Path, blocks: int, height: int, x_max: float, alpha: float, memory: int
) -> tuple[np.ndarray, np.ndarray]:
    """Writes the cells to a file without a name, tile by tile; returns it as an array, and the cells at which the tiles start, (blocks² + 1,)."""
    kernels = load_kernels("glove")
    most = max(len(cells.starts) - 1, min(4_000_000, memory // (2 * CELL)))
    parts = []
    for first, last in row_blocks(np.diff(cells.starts), most):
        starts, sizes = cells.starts[first : last + 1], np.zeros((blocks, blocks), np.int64)
        kernels.tile_sizes(starts, cells.columns[starts[0] : starts[-1]], first, sizes)
        release_pages(cells.columns)
        parts.append((first, starts, sizes.ravel()))
    heads = _tile_offsets(sum(sizes for _, _, sizes in parts))
    ends = heads[:-1].copy()
    buffer = np.empty((most, 2), np.uint64)
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        for first, starts, sizes in parts:
            here, bounds = slice(starts[0], starts[-1]), _tile_offsets(sizes)
            moving = bounds[:-1].reshape(blocks, blocks).copy()
            kernels.write_tiles(
                starts,
                cells.columns[here],
                cells.values[here],
                first,
                height,
                x_max,
                alpha,
                moving,
                *_views(buffer),
            )
            release_pages(cells.columns, cells.values)
            for tile in np.flatnonzero(sizes):
                file.seek(ends[tile] * CELL)
                append(file, buffer[bounds[tile] : bounds[tile + 1]])
            ends += sizes
        return np.memmap(file, np.uint64, "r"), heads  # the file lives as long as its map


def _tile_offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


def _run_epoch(
    tiles: np.ndarray, heads: np.ndarray, words: np.ndarray, contexts: np.ndarray, dim: int, rate: np.float32, pool: ThreadPoolExecutor,
    random: np.random.Generator,
) -> float:  # fmt: skip
    """Every tile once; returns the sum of the losses. Tiles of one shift share neither rows nor columns."""
    kernels = load_kernels("glove")
    blocks = int((len(heads) - 1) ** 0.5)
    across, shifts, seeds = (
        random.permutation(blocks),
        random.permutation(blocks),
        random.integers(1 << 63, size=blocks * blocks, dtype=np.uint64),
    )

    def work(tile: int) -> float:
        buffer = np.array(tiles[2 * heads[tile] : 2 * heads[tile + 1]]).reshape(-1, 2)
        kernels.shuffle(buffer, seeds[tile])
        return kernels.adagrad_tile(*_views(buffer), words, contexts, dim, rate)

    loss = 0.0
    for shift in shifts:
        together = [row * blocks + across[(row + shift) % blocks] for row in range(blocks)]
        loss += sum(pool.map(work, together))
        release_pages(tiles)
    return loss


def _views(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cells' ids and numbers, each (n, 4)."""
    return cells.view(np.int32), cells.view(np.float32)

"""GloVe: vectors whose products are the logarithms of co-occurrence counts [A12].

Derivation. P_ik = X_ik / X_i is the probability of word k near word i. What distinguishes ice from steam is
not P_ik but the ratio P_ik / P_jk: large for "solid", small for "gas", near 1 for "water" and "fashion" [X3].
So the vectors should give the ratio,

    F(w_i, w_j, u_k) = P_ik / P_jk.

Differences are natural in a vector space, so let F depend on w_i − w_j, and compare it with u_k by a product:
F((w_i − w_j)·u_k) = P_ik / P_jk. A difference on the left is a ratio on the right: F = exp, thus w_i·u_k =
log P_ik = log X_ik − log X_i. The last term does not depend on k: it becomes a bias b_i, and a bias c_k makes
words and contexts exchangeable:

    w_i·u_k + b_i + c_k = log X_ik.

The objective is least squares over the cells that are not empty, with a smaller weight for rare ones:

    J = Σ f(X_ij) (w_i·u_j + b_i + c_j − log X_ij)²,    f(x) = min(1, (x / x_max)^α).

Training. Rows and columns are assigned to blocks; the tile (i, j) has the cells of row block i and column
block j. Tiles of different rows and columns share no parameter, so threads train such tiles at the same time
without conflicts: the result is the same, bit by bit, for any number of threads. The parameters of a tile fit
the cache. The order of tiles, and of cells within each, is drawn anew in each iteration. Left out: threads
that overwrite each other's steps, which would be neither faster nor repeatable.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.files import cache_folder, disk_error
from seqloom.results import ProgressOption, Reporter
from seqloom.vectors.backend import default_threads, load_kernels, useful_threads
from seqloom.vectors.count_writer import append, release_pages
from seqloom.vectors.count_writer import blocks as row_blocks
from seqloom.vectors.counts import Cooccurrences

CELL = 16  # bytes
CACHE = 8 << 20  # bytes of parameters that one tile should use at most


class Glove(NamedTuple):
    """Trained parameters, and the mean loss of each iteration.

    The loss of a cell is f(X) e² with its error e just before its own step.
    """

    words: np.ndarray  # (V, dim) w
    contexts: np.ndarray  # (V, dim) u
    word_biases: np.ndarray  # (V,) b
    context_biases: np.ndarray  # (V,) c
    losses: list[float]

    @property
    def vectors(self) -> np.ndarray:
        """w + u, (V, dim): with symmetric counts both estimate the same, and the sum is slightly better."""
        return self.words + self.contexts


class _Tiles(NamedTuple):
    """The cells of the matrix, sorted by tile, in an unnamed file."""

    cells: np.ndarray  # memory map of uint64, two for each cell
    offsets: np.ndarray  # (blocks² + 1,): the cell at which each tile starts
    blocks: int


class _Parameters(NamedTuple):
    """One row for each word: vector, bias at half − 1, then AdaGrad's sums of squares for both."""

    words: np.ndarray  # (blocks · height, 2 half)
    contexts: np.ndarray
    dim: int


def train(
    cells: Cooccurrences,
    dim: int = 100,
    iterations: int = 15,
    x_max: float = 10.0,
    alpha: float = 0.75,
    lr: float = 0.05,
    threads: int | None = None,
    seed: int = 0,
    memory: int = 1 << 30,
    folder: str | Path | None = None,
    progress: ProgressOption = False,
) -> Glove:
    """Trains the vectors of the words of a co-occurrence matrix [A12].

    `x_max` is the count from which a cell has its full weight: 10 suits corpora of millions of words, 100 of
    billions. Cells are sorted on disk (in `folder`, by default the user's cache); `memory` bounds the bytes
    of cells in memory, without the parameters. The same seed and memory give the same bits with any number of
    threads; None means all cores.
    """
    threads = threads or default_threads()
    _check(cells, {"dim": dim, "iterations": iterations, "x_max": x_max, "lr": lr, "threads": threads})
    size = len(cells.starts) - 1
    half = -(-(dim + 1) // 16) * 16  # both halves of a row start at a cache line
    blocks = _num_blocks(size, half, len(cells.values), memory)
    height = -(-size // blocks)
    rows = np.arange(size) % blocks * height + np.arange(size) // blocks
    random = np.random.default_rng(seed)
    words, contexts = (_init_params(rows, blocks * height, dim, half, random) for _ in range(2))
    parameters = _Parameters(words, contexts, dim)
    directory = Path(folder) if folder else cache_folder()
    try:
        tiles = _write_tiles(cells, directory, blocks, height, x_max, alpha, memory)
    except OSError as error:
        raise disk_error(error, directory, "the shuffled cells", len(cells.values) * CELL) from error
    losses: list[float] = []
    start_time = time.perf_counter()
    with (
        ThreadPoolExecutor(useful_threads(threads)) as pool,
        Reporter("glove", iterations * len(cells.values), progress) as report,
    ):
        for iteration in range(1, iterations + 1):
            loss = _run_epoch(tiles, parameters, np.float32(lr), pool, random) / len(cells.values)
            if not np.isfinite(loss):
                raise DataError(f"the loss is {loss} in iteration {iteration}; lower --lr from {lr}")
            losses.append(loss)
            done = iteration * len(cells.values)
            report.update(done, {"loss": loss, "cells/s": done / (time.perf_counter() - start_time)})
    words, contexts = words[rows], contexts[rows]
    return Glove(
        words[:, :dim].copy(),
        contexts[:, :dim].copy(),
        words[:, half - 1].copy(),
        contexts[:, half - 1].copy(),
        losses,
    )


def _check(cells: Cooccurrences, positive: dict[str, float]) -> None:
    for name, value in positive.items():
        if not value > 0:
            raise DataError(f"{name} is {value}, but must be above 0")
    if not len(cells.values):
        raise DataError("the co-occurrence matrix has no cells; count a longer text or a wider window")
    size = len(cells.starts) - 1
    columns_fit = 0 <= cells.columns.min() <= cells.columns.max() < size
    have_logarithms = 0 < cells.values.min() <= cells.values.max() < np.inf
    if not (columns_fit and have_logarithms):
        raise DataError(
            f"the co-occurrence matrix has columns beyond its {size} rows, or counts that have no logarithm; "
            "count again"
        )


def _init_params(
    rows: np.ndarray, count: int, dim: int, half: int, random: np.random.Generator
) -> np.ndarray:
    """(count, 2 half): vectors and biases within ±1/2 dim; squares 1, so that the first step has size lr."""
    parameters = np.zeros((count, 2 * half), np.float32)
    parameters[:, half:] = 1
    values = (random.random((len(rows), dim + 1), np.float32) - np.float32(0.5)) / np.float32(dim)
    parameters[rows, :dim] = values[:, :dim]
    parameters[rows, half - 1] = values[:, dim]
    return parameters


def _num_blocks(size: int, half: int, cells: int, memory: int) -> int:
    """Enough blocks that the parameters of a tile fit the cache and 16 tiles fit in memory: 8 to 128."""
    for_cache = size * half * 4 * 4 / CACHE
    for_memory = (16 * CELL * cells / memory) ** 0.5
    return min(size, max(8, min(128, int(np.ceil(max(for_cache, for_memory))))))


def _write_tiles(
    cells: Cooccurrences,
    directory: Path,
    blocks: int,
    height: int,
    x_max: float,
    alpha: float,
    memory: int,
) -> _Tiles:
    """Writes the cells to an unnamed file, tile by tile."""
    kernels = load_kernels("glove")
    max_cells = max(len(cells.starts) - 1, min(4_000_000, memory // (2 * CELL)))
    parts: list[tuple[int, np.ndarray, np.ndarray]] = []  # first row, starts of the rows, cells of each tile
    total = np.zeros(blocks * blocks, np.int64)
    for first, last in row_blocks(np.diff(cells.starts), max_cells):
        starts = cells.starts[first : last + 1]
        sizes = np.zeros((blocks, blocks), np.int64)
        kernels.tile_sizes(starts, cells.columns[starts[0] : starts[-1]], first, sizes)
        release_pages(cells.columns)
        parts.append((first, starts, sizes.ravel()))
        total += sizes.ravel()
    offsets = _tile_offsets(total)
    ends = offsets[:-1].copy()
    buffer = np.empty((max_cells, 2), np.uint64)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for first, starts, counts in parts:
            part = slice(starts[0], starts[-1])
            bounds = _tile_offsets(counts)
            next_cells = bounds[:-1].reshape(blocks, blocks).copy()
            columns, values = cells.columns[part], cells.values[part]
            ids, numbers = _views(buffer)
            kernels.write_tiles(
                starts, columns, values, first, height, x_max, alpha, next_cells, ids, numbers
            )
            release_pages(cells.columns, cells.values)
            for tile in np.flatnonzero(counts):
                file.seek(ends[tile] * CELL)
                append(file, buffer[bounds[tile] : bounds[tile + 1]])
            ends += counts
        return _Tiles(np.memmap(file, np.uint64, "r"), offsets, blocks)  # the file lives as long as its map


def _tile_offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


def _run_epoch(
    tiles: _Tiles,
    parameters: _Parameters,
    lr: np.float32,
    pool: ThreadPoolExecutor,
    random: np.random.Generator,
) -> float:
    """Trains every tile once; returns the sum of the losses.

    Tiles of one shift share neither rows nor columns.
    """
    kernels = load_kernels("glove")
    blocks, offsets = tiles.blocks, tiles.offsets
    column_order = random.permutation(blocks)
    shifts = random.permutation(blocks)
    seeds = random.integers(1 << 63, size=blocks * blocks, dtype=np.uint64)

    def work(tile: int) -> float:
        buffer = np.array(tiles.cells[2 * offsets[tile] : 2 * offsets[tile + 1]]).reshape(-1, 2)
        kernels.shuffle(buffer, seeds[tile])
        return kernels.adagrad_tile(
            *_views(buffer), parameters.words, parameters.contexts, parameters.dim, lr
        )

    loss = 0.0
    for shift in shifts:
        independent = [row * blocks + column_order[(row + shift) % blocks] for row in range(blocks)]
        loss += sum(pool.map(work, independent))
        release_pages(tiles.cells)
    return loss


def _views(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ids and the numbers of cells, each (n, 4)."""
    return cells.view(np.int32), cells.view(np.float32)

"""Fast form of the mel energies of sound, for `media/features.py`; the kernel is `kernels/mel_energies.py`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from seqloom.fused.dispatch import fused_enabled, kernels_available, load_kernels

LANES = 8  # frames that the kernel computes at a time
MIN_FFT_SIZE = 16


class SparseFilters(NamedTuple):
    """Mel filters without their zeros."""

    bounds: np.ndarray  # (filters, 2) the first frequency that a filter reads and the one after its last
    weights: np.ndarray  # the filters between these, one after the other


def mel_energies(
    samples: np.ndarray, count: int, hop: int, window: np.ndarray, filters: SparseFilters
) -> np.ndarray | None:
    """The mel energies of the first `count` frames of float32 samples, (count, filters); None where the kernel does not apply.

    Frames are as long as the window, a power of 2, and begin every `hop` samples.
    """
    size = len(window)
    if not (samples.dtype == np.float32 and size >= MIN_FFT_SIZE and count > 0):
        return None
    if not (fused_enabled() and kernels_available()):
        return None
    needed = (-(-count // LANES) * LANES - 1) * hop + size
    samples = np.ascontiguousarray(samples)
    if len(samples) < needed:
        samples = np.pad(samples, (0, needed - len(samples)))
    used = np.flatnonzero(window)
    bounds = np.array([used[0] // LANES * LANES, -(-(used[-1] + 1) // LANES) * LANES])
    out = np.empty((count, len(filters.bounds)), np.float32)
    load_kernels("mel_energies").mel_energies(
        samples, hop, window, bounds, unit_roots(size // 2), unit_roots(size), *filters, out
    )
    return out


def sparse_filters(filters: np.ndarray) -> SparseFilters:
    """Filters over frequencies, float32 (N / 2 + 1, filters), without their zeros."""
    bounds, weights = np.zeros((filters.shape[1], 2), np.int64), [np.zeros(0, np.float32)]
    for index, column in enumerate(filters.T):
        if len(used := np.flatnonzero(column)):
            bounds[index] = used[0], used[-1] + 1
            weights.append(column[used[0] : used[-1] + 1])
    return SparseFilters(bounds, np.concatenate(weights))


@lru_cache(8)
def unit_roots(size: int) -> np.ndarray:
    """e^{-2πik / size} for k = 0 … size - 1, as pairs (cos, sin): (2 size,) float32."""
    angles = -2 * np.pi * np.arange(size) / size
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32).ravel()

"""The order of examples as a pure function of (seed, epoch, index): resuming costs nothing and is exact, whatever the number of workers."""

from __future__ import annotations

import numpy as np

MASK = np.uint64(0xFFFFFFFFFFFFFFFF)


def splitmix64(x: np.ndarray | int) -> np.ndarray:
    """A 64-bit hash of 64-bit numbers (splitmix64's finaliser)."""
    with np.errstate(over="ignore"):
        x = np.asarray(x, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def hash_key(*numbers: int) -> int:
    """One key from several numbers, such as (seed, epoch)."""
    result = 0
    for number in numbers:
        result = int(splitmix64(result ^ int(splitmix64(number % 2**64))))
    return result


def permute(index: np.ndarray, count: int, key: int) -> np.ndarray:
    """Where a keyed permutation of 0 … count-1 sends each index: a Feistel network on the next even number of bits, walked until it
    lands inside. O(1) memory for any count."""
    half = max(1, ((max(count - 1, 1)).bit_length() + 1) // 2)
    low = np.uint64((1 << half) - 1)
    shift = np.uint64(half)
    keys = [splitmix64(key ^ number) for number in range(1, 7)]

    def scramble(x: np.ndarray) -> np.ndarray:
        left, right = x >> shift, x & low
        for round_key in keys:
            left, right = right, left ^ (splitmix64(right ^ round_key) & low)
        return (left << shift) | right

    result = scramble(np.asarray(index, dtype=np.uint64))
    while (outside := result >= count).any():
        result[outside] = scramble(result[outside])
    return result.astype(np.int64)

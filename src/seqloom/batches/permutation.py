"""The order of examples as a pure function of (seed, epoch, index).

Resuming is therefore exact and needs no stored order, with any number of workers.
"""

from __future__ import annotations

import numpy as np


def splitmix64(x: np.ndarray | int) -> np.ndarray:
    """Hashes 64-bit integers to 64-bit integers: the finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        z: np.ndarray = np.asarray(x, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def hash_key(*numbers: int) -> int:
    """Hashes several integers, such as (seed, epoch), into one 64-bit key."""
    key = 0
    for number in numbers:
        key = int(splitmix64(key ^ int(splitmix64(number % 2**64))))
    return key


def permute(index: np.ndarray, count: int, key: int) -> np.ndarray:
    """Applies a keyed permutation of 0 … count-1 to each index, in O(1) memory for any count.

    A Feistel network permutes the integers of the next even number of bits;
    a result outside 0 … count-1 passes through it again until it is inside.
    """
    half_bits = max(1, ((max(count - 1, 1)).bit_length() + 1) // 2)
    low_bits = np.uint64((1 << half_bits) - 1)
    shift = np.uint64(half_bits)
    round_keys = [splitmix64(key ^ i) for i in range(1, 7)]

    def feistel(x: np.ndarray) -> np.ndarray:
        left, right = x >> shift, x & low_bits
        for round_key in round_keys:
            left, right = right, left ^ (splitmix64(right ^ round_key) & low_bits)
        return (left << shift) | right

    result = feistel(np.asarray(index, dtype=np.uint64))
    while (outside := result >= count).any():
        result[outside] = feistel(result[outside])
    return result.astype(np.int64)

"""The order of examples is a permutation, keyed, and the same piece by piece as whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batches.batch import hash_key, permute


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 1000, 65537])
def test_every_index_comes_once(count: int) -> None:
    assert sorted(permute(np.arange(count), count, 5).tolist()) == list(range(count))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 10**12), st.integers(0, 2**63), st.integers(0, 2**63))
def test_an_index_alone_goes_where_it_goes_in_company(count: int, index: int, seed: int) -> None:
    index %= count
    block = np.arange(max(0, index - 5), min(count, index + 5))
    assert permute(np.array([index]), count, seed)[0] == permute(block, count, seed)[list(block).index(index)]


def test_keys_give_unlike_orders_that_look_random() -> None:
    first, second = (
        permute(np.arange(10_000), 10_000, hash_key(0, 1)),
        permute(np.arange(10_000), 10_000, hash_key(0, 2)),
    )
    assert (first == second).mean() < 0.01
    assert abs(np.corrcoef(np.arange(10_000), first)[0, 1]) < 0.04  # 4 standard errors of a random order
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.04


def test_a_key_depends_on_every_number_and_their_order() -> None:
    assert (
        len({hash_key(0, 1), hash_key(1, 0), hash_key(0, 0), hash_key(1, 1), hash_key(0), hash_key(0, 1, 0)})
        == 6
    )

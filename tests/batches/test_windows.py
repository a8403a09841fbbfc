"""Windows and blocks: every token is a target exactly once, whatever the width, the stride and the batch."""

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batches import Blocks, Windows
from seqloom.text.store import Column, Store
from seqloom.text.tokenizer import EOS


def store(length: int) -> Store:
    """A text whose n-th token is n + 10, so that a token names its own place."""
    tokens = np.arange(length, dtype=np.uint32) + 10
    offsets = np.array([0, length])
    return Store([Column(tokens, offsets, offsets)], "digest")


def counted(batches) -> list[int]:
    return [int(token) - 10 for batch in batches for token in batch.targets[batch.mask]]


def test_x9_windows_of_five_over_fifty_tokens() -> None:
    """t1 … t50 in windows of 5: the drawn ones begin at 1, 44 and 46, so the stride is 1 and the last stands flush right."""

    def begins(stride: int) -> list[int]:
        """Where the windows begin in <eos> (which stands for t1) and 49 tokens (t2 … t50)."""
        rows = [
            row
            for batch in Windows(store(49), width=4, batch=7, stride=stride).sequential()
            for row in batch.ids.tolist()
        ]
        return [1 if row[0] == EOS else row[0] - 10 + 2 for row in rows]

    assert begins(1) == list(range(1, 47))
    assert begins(2) == [*range(1, 46, 2), 46]  # stride 2 never begins at 44; the last is set flush right
    batch = next(Windows(store(50), width=4, batch=1).sequential())
    assert batch.ids[0].tolist() == [EOS, 10, 11, 12] and batch.targets[0].tolist() == [10, 11, 12, 13]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 80), st.integers(1, 30), st.integers(1, 7), st.integers(1, 30), st.integers(1, 3))
def test_every_token_counts_once_in_windows(
    length: int, width: int, batch: int, stride: int, world: int
) -> None:
    parts = [
        counted(Windows(store(length), width, batch, stride).sequential(rank, world)) for rank in range(world)
    ]
    assert sorted(token for part in parts for token in part) == list(range(length))


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 80), st.integers(1, 30), st.integers(1, 7))
def test_every_token_counts_once_in_blocks(length: int, width: int, batch: int) -> None:
    assert sorted(counted(Blocks(store(length), width, batch).sequential())) == list(range(length))


@settings(max_examples=40, deadline=None)
@given(st.integers(5, 80), st.integers(1, 12), st.integers(1, 7), st.integers(1, 12))
def test_an_input_is_the_token_before_its_target(length: int, width: int, batch: int, stride: int) -> None:
    for kind in (Windows(store(length), width, batch, stride), Blocks(store(length), width, batch)):
        for one in [*kind.sequential(), *(b for b, _ in islice(kind.batches(), 20))]:
            before = one.targets - 1
            assert ((one.ids == before) | ((one.targets == 10) & (one.ids == EOS)))[one.mask].all()


def test_an_epoch_of_windows_covers_the_text_but_its_random_offset() -> None:
    windows = Windows(store(1000), width=10, batch=7, stride=10)
    seen: dict[int, list[int]] = {}
    for batch, (epoch, _) in islice(windows.batches(), 60):
        seen.setdefault(epoch, []).extend((batch.targets - 10).flatten().tolist())
    whole = sorted(seen)[:-1]
    assert len(whole) >= 3
    for epoch in whole:
        offset, count = windows.order.epoch_offset_and_count(epoch)
        assert len(seen[epoch]) == count // 7 * 7 * 10
        assert min(seen[epoch]) >= offset
    assert len({windows.order.epoch_offset_and_count(epoch)[0] for epoch in range(50)}) > 5


@pytest.mark.parametrize("make", [lambda s: Windows(s, 8, 3, 5), lambda s: Blocks(s, 8, 3)])
def test_a_cursor_goes_on_exactly(make) -> None:
    straight = list(islice(make(store(200)).batches(), 40))
    for cut in (1, 7, 23):
        rest = islice(make(store(200)).batches(straight[cut - 1][1]), 40 - cut)
        for (batch, cursor), (other, expected) in zip(rest, straight[cut:], strict=True):
            assert (
                cursor == expected
                and batch.ids.equal(other.ids)
                and batch.targets.equal(other.targets)
                and batch.carry_state == other.carry_state
            )


@pytest.mark.parametrize("make", [lambda s: Windows(s, 8, 6), lambda s: Blocks(s, 8, 6)])
def test_ranks_share_a_batch(make) -> None:
    for whole, *parts in islice(
        zip(
            make(store(300)).batches(), *(make(store(300)).batches((), r, 3) for r in range(3)), strict=False
        ),
        9,
    ):
        rows = sorted(tuple(row) for batch, _ in parts for row in batch.ids.tolist())
        assert rows == sorted(map(tuple, whole[0].ids.tolist()))


def test_blocks_carry_each_row_on() -> None:
    batches = list(Blocks(store(100), width=7, batch=4).sequential())
    assert [batch.carry_state for batch in batches] == [False] + [True] * (len(batches) - 1)
    for before, after in pairwise(batches):
        assert (after.ids[:, 0] == before.targets[:, -1])[after.mask[:, 0]].all()


@pytest.mark.parametrize("wrong", [{"width": 0}, {"batch": 0}, {"stride": -1}])
def test_sizes_below_one_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Windows(store(50), **{"width": 5, "batch": 2, **wrong})


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        Windows(store(0))

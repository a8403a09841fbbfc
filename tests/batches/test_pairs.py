"""Pairs: batches of like length within the budget, every pair once, an order that resumes exactly."""

from itertools import islice

import numpy as np
import pytest

from seqloom.batches import Pairs
from seqloom.run_config import Config
from seqloom.text.store import Column, Store
from seqloom.text.tokenizer import BOS, EOS


def store(count: int, seed: int = 0) -> Store:
    """Pairs whose first source token names the pair; source and target end with <eos>."""
    random = np.random.default_rng(seed)
    fields = []
    for side in range(2):
        rows = [[*(random.integers(10, 50, random.integers(1, 20))), EOS] for _ in range(count)]
        for number, row in enumerate(rows):
            row[0] = 100 + number if side == 0 else row[0]
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        fields.append(Column(np.concatenate(rows).astype(np.uint32), offsets, offsets))
    return Store(fields, "digest")


def names(batch) -> list[int]:
    return (batch.source[:, 0] - 100).tolist()


def test_every_pair_comes_once_and_whole() -> None:
    pairs = store(300)
    seen = []
    for batch in Pairs(pairs, batch_tokens=100, shuffle_pool=64).sequential():
        for row, number in enumerate(names(batch)):
            source, target = pairs[number]
            assert batch.source[row][batch.source_mask[row]].tolist() == source.tolist()
            assert batch.targets[row][batch.mask[row]].tolist() == target.tolist()
            assert batch.ids[row][batch.mask[row]].tolist() == [BOS, *target[:-1].tolist()]
        seen += names(batch)
    assert sorted(seen) == list(range(300))


def test_an_epoch_holds_every_pair_that_is_short_enough() -> None:
    pairs = Pairs(store(300), batch_tokens=100, shuffle_pool=64, max_length=15)
    short = np.flatnonzero(pairs.lengths(np.arange(300)) <= 15)
    assert pairs.num_skipped == 300 - len(short)
    seen = [
        number for batch, cursor in islice(pairs.batches(), 200) if cursor[0] == 0 for number in names(batch)
    ]
    assert sorted(seen) == short.tolist()


def test_batches_keep_the_budget_and_like_lengths() -> None:
    pairs = Pairs(store(2000), batch_tokens=200, shuffle_pool=1000)
    batches = [batch for batch, _ in islice(pairs.batches(), 60)]
    assert all(
        batch.source.shape[0] * max(batch.source.shape[1], batch.ids.shape[1]) <= 200 for batch in batches
    )
    sizes = [max(batch.source.shape[1], batch.ids.shape[1]) for batch in batches]
    assert sizes != sorted(sizes)
    longest = np.concatenate(
        [
            np.maximum(batch.source_mask.sum(1), batch.mask.sum(1)) / size
            for batch, size in zip(batches, sizes, strict=True)
        ]
    )
    assert longest.mean() > 0.9  # one order of 2000 pairs unsorted fills about two thirds


def test_the_first_batches_stand_for_all() -> None:
    """Where only some are measured they are not the shortest."""
    widths = [
        batch.ids.shape[1] for batch in Pairs(store(2000), batch_tokens=200, shuffle_pool=2000).sequential()
    ]
    assert abs(np.mean(widths[: len(widths) // 4]) - np.mean(widths)) < 1.5 and max(widths) - min(widths) > 12
    assert widths == [
        batch.ids.shape[1]
        for batch in Pairs(store(2000), batch_tokens=200, shuffle_pool=2000, seed=7).sequential()
    ]


def test_a_cursor_goes_on_exactly() -> None:
    make = lambda: Pairs(store(200), batch_tokens=90, shuffle_pool=50)  # noqa: E731
    straight = list(islice(make().batches(), 60))
    for cut in (1, 13, 41):
        for (batch, cursor), (other, expected) in zip(
            islice(make().batches(straight[cut - 1][1]), 60 - cut), straight[cut:], strict=True
        ):
            assert (
                cursor == expected and batch.source.equal(other.source) and batch.targets.equal(other.targets)
            )


def test_ranks_share_a_batch_and_one_too_many_counts_nothing() -> None:
    parts = [Pairs(store(40), batch_tokens=30, shuffle_pool=20).batches((), rank, 3) for rank in range(3)]
    idle = 0
    for (whole, _), *shares in islice(
        zip(Pairs(store(40), batch_tokens=30, shuffle_pool=20).batches(), *parts, strict=False), 40
    ):
        counted = [number for batch, _ in shares for number in names(batch) if batch.num_targets]
        assert (
            sorted(counted) == sorted(names(whole))
            and sum(batch.num_targets for batch, _ in shares) == whole.num_targets
        )
        idle += sum(not batch.num_targets for batch, _ in shares)
    assert idle > 0


def test_one_text_is_no_pair() -> None:
    one = store(5)
    with pytest.raises(ValueError, match="two texts"):
        Pairs(Store(one.fields[:1], "digest"))


def test_it_is_an_error_if_every_pair_is_too_long() -> None:
    with pytest.raises(ValueError, match=r"longer than batches\.max_length"):
        Pairs(store(5), max_length=1)


def test_options_are_read_under_their_old_names() -> None:
    old = ["data.tokens=99", "data.longest=17", "data.pool=64", "files.held=0.3", "objective=mixed"]
    new = [
        *("batches.batch_tokens=99", "batches.max_length=17", "batches.shuffle_pool=64"),
        *("files.valid_fraction=0.3", "objective=mixed_reward"),
    ]
    assert Config.load("transformer", old).tree == Config.load("transformer", new).tree
    masked = "data={type: Masked, masked: 0.5, replaced: 0.2}", "objective={type: masked, follows: 0.5}"
    tree = Config.load("bert-small", masked).tree
    assert tree["batches"] == {"type": "Masked", "mask_fraction": 0.5, "random_fraction": 0.2}
    assert tree["objective"] == {"type": "masked", "nsp_weight": 0.5}

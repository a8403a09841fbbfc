"""Masked windows: which tokens are hidden, reproducibility, and pairs of segments."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqloom.batches import Masked
from seqloom.batches.masking import hashed_uniform
from seqloom.run_config import Config
from seqloom.text.store import Column, Store
from seqloom.text.tokenizer import BOS, EOS, MASK

WORDS = 200


def store(count: int = 5000, seed: int = 0) -> Store:
    tokens = np.random.default_rng(seed).integers(5, WORDS, count).astype(np.uint16)
    offsets = np.array([0, count])
    return Store([Column(tokens, offsets, offsets)], "digest", WORDS)


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True) if isinstance(a, torch.Tensor))


def test_a_window_is_framed_text_with_masked_tokens() -> None:
    source = Masked(store(), width=32, batch=8)
    tokens = source.tokens
    for (batch, _), _ in zip(source.batches(), range(20), strict=False):
        assert batch.ids.shape == batch.targets.shape == batch.mask.shape == (8, 32)
        assert (batch.ids[:, 0] == BOS).all() and (batch.ids[:, -1] == EOS).all()
        assert not batch.mask[:, [0, -1]].any() and batch.mask.any(1).all()
        assert torch.equal(batch.ids[~batch.mask], batch.targets[~batch.mask])
        for row in batch.targets[:, 1:-1].numpy():
            begins = [b for b in np.flatnonzero(tokens == row[0]) if np.array_equal(tokens[b : b + 30], row)]
            assert len(begins) == 1


def test_fractions_are_exact_and_the_selection_changes_with_the_epoch() -> None:
    source = Masked(store(40_000), width=130, batch=64, rate=0.2, mask_fraction=0.5, random_fraction=0.3)
    stream, seen = source.batches(), []
    for _ in range(4):
        batch, _ = next(stream)
        seen.append(batch)
    picked = torch.cat([batch.mask[:, 1:-1] for batch in seen])
    read, was = (
        torch.cat([getattr(batch, name)[batch.mask] for batch in seen]) for name in ("ids", "targets")
    )
    assert abs(picked.float().mean() - 0.2) < 0.01
    assert abs((read == MASK).float().mean() - 0.5) < 0.02
    assert abs((read == was).float().mean() - 0.2) < 0.02 and read.min() >= MASK
    one, other = (source.collate(np.arange(50), np.zeros(50), draw).mask for draw in (1, 2))
    assert abs((one & other)[:, 1:-1].float().mean() - 0.04) < 0.01  # two epochs agree by chance alone


@pytest.mark.parametrize("pairs", [False, True])
def test_a_cursor_gives_the_same_gaps_again_alone_or_shared(pairs: bool) -> None:
    def source(seed: int = 3) -> Masked:
        return Masked(store(600), width=24, batch=6, pairs=pairs, seed=seed)

    stream = source().batches()
    whole = [next(stream) for _ in range(12)]  # several epochs
    for number in (0, 3, 7):
        later = source().batches(whole[number][1])
        for batch, cursor in whole[number + 1 :]:
            again, after = next(later)
            assert same(batch, again) and cursor == after
    ranks = [source().batches((), rank, 4) for rank in range(4)]
    for batch, _ in whole[:4]:
        parts = [next(one)[0] for one in ranks]
        for rank, part in enumerate(parts):
            assert torch.equal(part.ids, batch.ids[rank::4]) and torch.equal(part.mask, batch.mask[rank::4])
    assert not same(next(source(4).batches())[0], whole[0][0])
    lone = Masked(store(20), width=24, batch=6)
    mine, others = (next(lone.batches((), rank, 3))[0] for rank in (0, 2))
    assert (
        mine.num_targets > 0 and others.num_targets == 0
    )  # one window for three processes: two repeat it, uncounted


def test_once_reads_every_token_and_picks_none_twice() -> None:
    data = store(101)
    source = Masked(data, width=12, batch=4, rate=1.0)
    seen = np.zeros(101, dtype=int)
    row = 0
    for batch in source.sequential():
        for mask, target in zip(batch.mask, batch.targets, strict=True):
            begin = min(row * 10, 91)
            assert np.array_equal(target[1:-1].numpy(), data.fields[0].tokens[begin : begin + 10])
            seen[begin : begin + 10] += mask[1:-1].numpy()
            row += 1
    assert (seen == 1).all()
    wide, narrow = ([b.mask for b in Masked(data, width=12, batch=size).sequential()] for size in (11, 3))
    assert torch.equal(torch.cat(wide), torch.cat(narrow))  # the size of a batch hides nothing else


def test_half_of_the_second_segments_go_on_and_half_come_from_anywhere() -> None:
    data = store(20_000)
    source, is_next = Masked(data, width=43, batch=500, pairs=True), []
    tokens = data.fields[0].tokens
    batch, _ = next(source.batches())
    for row, continues in zip(batch.targets.numpy(), batch.is_next.tolist(), strict=True):
        (split,) = np.flatnonzero(row[:-1] == EOS)
        first, second = row[1:split], row[split + 1 : -1]
        assert (
            row[0] == BOS
            and row[-1] == EOS
            and len(first) + len(second) == 40
            and min(len(first), len(second)) >= 10
        )
        (begin,) = [
            b for b in np.flatnonzero(tokens == first[0]) if np.array_equal(tokens[b : b + len(first)], first)
        ]
        after = tokens[begin + len(first) : begin + 40]
        assert np.array_equal(after, second) == bool(continues)
        assert any(
            np.array_equal(tokens[b : b + len(second)], second) for b in np.flatnonzero(tokens == second[0])
        )
        is_next.append(continues)
    assert 0.42 < np.mean(is_next) < 0.58
    assert not batch.mask[batch.targets < 5].any()


def test_chances_are_uniform_and_independent_of_their_neighbours() -> None:
    drawn = hashed_uniform(5, np.arange(400), 250)
    assert (
        drawn.min() >= 0
        and drawn.max() < 1
        and abs(drawn.mean() - 0.5) < 0.003
        and abs(drawn.var() - 1 / 12) < 0.001
    )
    for one, other in ((drawn[:, :-1], drawn[:, 1:]), (drawn[:-1], drawn[1:])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.012


def test_invalid_sizes_are_errors() -> None:
    with pytest.raises(ValueError, match="too small to hold text: give at least 5"):
        Masked(store(), width=4, pairs=True)
    with pytest.raises(ValueError, match="too few for pairs"):
        Masked(store(20), width=64, pairs=True)
    with pytest.raises(ValueError, match="fractions that sum"):
        Masked(store(), rate=1.5)


def test_x8_the_preset_reads_forty_epochs_of_the_decks_words() -> None:
    """256 tokens × 512 rows × 1,000,000 steps over 0.8 + 2.5 billion words, one token a word: 39.7   [I2, X8, D-26]"""
    tree = Config.load("bert").tree
    rows = tree["batches"]["batch"] * tree["train"]["accumulate"]
    assert (tree["batches"]["width"], rows, tree["train"]["steps"]) == (256, 512, 1_000_000)
    assert tree["batches"]["width"] * rows * tree["train"]["steps"] / (0.8e9 + 2.5e9) == pytest.approx(
        39.7, abs=0.03
    )
    optimizer, schedule, stack = tree["train"]["optimizer"], tree["train"]["schedule"], tree["model"]["stack"]
    assert (optimizer["lr"], schedule["type"], schedule["warmup"]) == (1e-4, "LinearDecay", 10_000)
    assert stack["dropout"] == 0.1 and stack["feedforward"]["activation"] == "gelu" and not stack["causal"]

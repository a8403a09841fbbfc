"""Batches of recordings: lengths, targets, and augmentation as a function of seed, epoch and record."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqloom.batches.recordings import Recordings, SpecAugment, resized
from seqloom.errors import ConfigError
from seqloom.text.records import RecordSchema
from seqloom.text.store import Store, in_memory_store
from seqloom.text.tokenizer import Characters


def make_store(kinds: tuple[str, ...] = ("audio", "text"), count: int = 12) -> Store:
    random = np.random.default_rng(0)
    tokenizer = Characters(["abc"])
    records = [
        (random.normal(size=(20 + 7 * index, 5)).astype(np.float32), "abc"[: 1 + index % 3])
        for index in range(count)
    ]
    return in_memory_store(records, RecordSchema(kinds, [tokenizer], True, ["a", "ab", "abc"]))


def test_every_recording_is_in_one_batch_with_its_text() -> None:
    store = make_store()
    data = Recordings(store, batch_tokens=200)
    seen = []
    for batch in data.sequential():
        lengths = batch.source_mask.sum(1) if batch.source_mask is not None else [batch.source.shape[1]]
        for row, length in enumerate(lengths):
            frames = batch.source[row, : int(length)].numpy()
            (record,) = [i for i in range(len(store)) if np.array_equal(data.frames(i), frames)]
            assert batch.targets[row][batch.mask[row]].tolist() == store[record][2].tolist()
            assert not batch.source[row, int(length) :].any()
            seen.append(record)
        assert len(batch.ids) * batch.source.shape[1] <= 200 or len(batch.ids) == 1
        assert batch.ids[:, 0].eq(2).all()
        assert batch.ids[:, 1:].equal(batch.targets[:, :-1])
    assert sorted(seen) == list(range(len(store)))


def test_labels_of_recordings() -> None:
    data = Recordings(make_store(("audio", "label")), batch_tokens=1000)
    targets = torch.cat([batch.targets for batch in data.sequential()])
    assert sorted(targets.tolist()) == sorted(index % 3 for index in range(12))


def test_augmentation_is_a_function_of_seed_epoch_and_record() -> None:
    options = {"time_masks": 2, "time_width": 6, "bin_masks": 1, "bin_width": 2, "stretch": 0.1, "noise": 0.1}
    store = make_store()

    def first_epochs(seed: int, cursor: tuple[int, ...] = ()) -> list[torch.Tensor]:
        stream = Recordings(store, batch_tokens=300, seed=seed, **options).batches(cursor)
        return [batch.source for batch, _ in (next(stream) for _ in range(20))]

    once, again = first_epochs(1), first_epochs(1)
    assert all(a.equal(b) for a, b in zip(once, again, strict=True))
    stream = Recordings(store, batch_tokens=300, seed=1, **options).batches()
    cursors = [cursor for _, cursor in (next(stream) for _ in range(7))]
    assert first_epochs(1, cursors[-1])[0].equal(once[7])
    assert any(a.shape != b.shape or not a.equal(b) for a, b in zip(once, first_epochs(2), strict=True))
    data = Recordings(store, batch_tokens=300, seed=1, **options)
    index = np.arange(3)
    plain = data.collate(index).source
    assert plain.equal(Recordings(store, batch_tokens=300).collate(index).source)
    assert not data.training_batch(index, True, 0).source.equal(data.training_batch(index, True, 1).source)


def test_masks_are_the_mean_and_bounded() -> None:
    frames = np.random.default_rng(1).normal(2, 1, (100, 8)).astype(np.float32)
    mean = frames.mean(0)
    for key in range(50):
        masked = SpecAugment(1, 10, 0, 0)(frames, key)
        rows = np.flatnonzero((masked != frames).any(1))
        assert len(rows) <= 10
        assert np.allclose(masked[rows], mean)
        assert not len(rows) or rows[-1] - rows[0] == len(rows) - 1
        columns = np.flatnonzero((SpecAugment(0, 0, 1, 3)(frames, key) != frames).any(0))
        assert len(columns) <= 3
    assert SpecAugment()(frames, 0) is frames


def test_stretching_keeps_the_ends_and_the_shape_of_a_line() -> None:
    line = np.linspace(0, 1, 50, dtype=np.float32)[:, None]
    for factor in (0.8, 1.0, 1.3):
        found = resized(line, factor)
        assert np.allclose(found[:, 0], np.linspace(0, 1, round(50 * factor)), atol=1e-5)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="stretch"):
        Recordings(make_store(), stretch=1.5)
    with pytest.raises(ConfigError, match="every recording is longer"):
        Recordings(make_store(), max_length=5)
    texts = in_memory_store([("a",)], RecordSchema(("text",), [Characters(["a"])], True, []))
    with pytest.raises(ConfigError, match="use corpus Speech"):
        Recordings(texts)

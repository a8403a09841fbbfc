"""Batches of pictures: every caption once, changes as a function of seed, epoch and item, originals in evaluation."""

from __future__ import annotations

from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from seqloom.batches import Augment, Captions, LabelledPictures
from seqloom.batches.sources import stack_sources
from seqloom.errors import ConfigError
from seqloom.text.records import RecordSchema
from seqloom.text.store import Store, in_memory_store
from seqloom.text.tokenizer import Words

TEXTS = [
    [f"picture {number} {'very ' * (number % 3)}fine", *(["again"] if number % 2 else [])]
    for number in range(11)
]


def store() -> Store:
    tokenizer = Words((text for texts in TEXTS for text in texts), size=100)
    random = np.random.default_rng(0)
    pictures = [random.integers(0, 255, (6, 5, 3)).astype(np.uint8) for _ in TEXTS]
    schema = RecordSchema(("image", "captions"), [tokenizer], True, [])
    return in_memory_store(list(zip(pictures, TEXTS, strict=True)), schema)


def caption_of(data: Captions, batch: object, row: int) -> tuple[bytes, tuple[int, ...]]:
    return batch.source[row].numpy().tobytes(), tuple(batch.targets[row][batch.mask[row]].tolist())


def all_pairs(data: Captions) -> set[tuple[bytes, tuple[int, ...]]]:
    pairs = set()
    for record in range(len(data.store)):
        _, pixels, ends, ids = data.store[record]
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            pairs.add((pixels.tobytes(), tuple(ids[int(start) : int(end)].tolist())))
    return pairs


@pytest.mark.parametrize("pool", [4, 100])
def test_an_epoch_and_an_evaluation_have_every_caption_once(pool: int):
    data = Captions(store(), batch=3, shuffle_pool=pool)
    expected = all_pairs(data)
    count = sum(map(len, TEXTS))
    assert data.num_items == count
    for batches in (list(data.sequential()), [b for b, _ in islice(data.batches(), data.epoch_batches())]):
        found = [caption_of(data, batch, row) for batch in batches for row in range(len(batch.ids))]
        assert len(found) == count and set(found) == expected
        assert all(len(batch.ids) <= 3 for batch in batches)


def test_a_caption_begins_with_bos_and_ends_with_eos():
    data = Captions(store(), batch=4)
    batch = next(data.sequential())
    specials = data.store.specials
    assert (batch.ids[:, 0] == specials.bos).all()
    for row in range(len(batch.ids)):
        length = int(batch.mask[row].sum())
        assert batch.targets[row, length - 1] == specials.eos
        assert torch.equal(batch.ids[row, 1:length], batch.targets[row, : length - 1])


def test_changes_are_a_function_of_seed_epoch_and_item():
    make = partial(
        Captions, store(), batch=4, augment=partial(Augment, shift=2, flip=True, light=0.2, erase=0.5)
    )

    def epochs(seed: int) -> list[torch.Tensor]:
        data = make(seed=seed)
        return [batch.source for batch, _ in islice(data.batches(), 3 * data.epoch_batches())]

    first = epochs(0)
    for one, other in zip(first, epochs(0), strict=True):
        assert torch.equal(one, other)
    assert not all(torch.equal(one, other) for one, other in zip(first, epochs(1), strict=True))
    data = make()
    original = all_pairs(data)
    changed = next(data.batches())[0]
    assert {caption_of(data, changed, row)[0] for row in range(4)} - {pixels for pixels, _ in original}
    for batch in data.sequential():
        assert all(caption_of(data, batch, row) in original for row in range(len(batch.ids)))


def test_batches_go_on_from_a_cursor_with_the_same_pixels():
    make = partial(Captions, store(), batch=2, augment=partial(Augment, shift=1), shuffle_pool=5)
    stream = make().batches()
    cursor = ()
    for _ in range(13):
        _, cursor = next(stream)
    for (one, _), (other, _) in zip(islice(stream, 9), islice(make().batches(cursor), 9), strict=True):
        assert torch.equal(one.source, other.source) and torch.equal(one.ids, other.ids)


def test_each_change_does_what_its_name_says():
    pixels = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3)
    flipped = [Augment(flip=True)(pixels, key) for key in range(40)]
    assert {np.array_equal(one, pixels) for one in flipped} == {True, False}
    assert all(np.array_equal(one, pixels) or np.array_equal(one, pixels[:, ::-1]) for one in flipped)
    shifts = set()
    for key in range(60):
        moved = Augment(shift=1)(pixels, key)
        places = [
            (down, right)
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
            if np.array_equal(moved[1:-1, 1:-1], pixels[1 + down : 7 + down, 1 + right : 5 + right])
        ]
        assert places
        shifts.add(places[0])
    assert len(shifts) == 9
    grey = np.full((8, 8, 3), 100, np.uint8)
    lights = [int(Augment(light=0.2)(grey, key).mean()) for key in range(60)]
    assert min(lights) >= 100 - 52 and max(lights) <= 100 + 52 and max(lights) - min(lights) > 50
    assert np.array_equal(Augment()(pixels, 3), pixels)
    erased = [(Augment(erase=0.5)(grey, key) == 128).all(2).sum() for key in range(60)]
    assert max(erased) <= 16 and len(set(erased)) > 2


def test_wrong_options_and_wrong_records_are_refused():
    with pytest.raises(ConfigError, match=r"batches\.batch=0"):
        Captions(store(), batch=0)
    with pytest.raises(ConfigError, match="shift is at least 0"):
        Augment(shift=-1)
    tokenizer = Words(["a"], size=10)
    texts = in_memory_store([("a", "a")], RecordSchema(("text", "text"), [tokenizer], True, []))
    with pytest.raises(ConfigError, match="use corpus Pictures"):
        Captions(texts)


def test_labelled_pictures():
    tokenizer = Words(["a"], size=10)
    pictures = [np.full((4, 4, 3), number, np.uint8) for number in range(5)]
    labels = ["warm", "cold", "cold", "warm", "cold"]
    schema = RecordSchema(("image", "label"), [tokenizer], True, ["cold", "warm"])
    data = LabelledPictures(in_memory_store(list(zip(pictures, labels, strict=True)), schema), batch=2)
    found = {
        int(picture[0, 0, 0]): int(label)
        for batch in data.sequential()
        for picture, label in zip(batch.ids, batch.targets, strict=True)
    }
    assert found == {0: 1, 1: 0, 2: 0, 3: 1, 4: 0}


def test_sounds_are_padded_and_pictures_stacked():
    frames, mask = stack_sources([np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)])
    assert frames.shape == (2, 4, 3) and mask.sum(1).tolist() == [2, 4] and frames[0, 2:].sum() == 0
    pixels, none = stack_sources([np.zeros((4, 4, 3), np.uint8)] * 2)
    assert pixels.shape == (2, 4, 4, 3) and pixels.dtype == torch.uint8 and none is None

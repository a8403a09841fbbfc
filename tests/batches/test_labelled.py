"""Labelled data: every record once and whole, its words spelt, cut where it is too long, answers at the tokens where they stand."""

import random
from itertools import islice

import numpy as np
import pytest
import torch

from seqloom.batches import Labelled, Pairs, Questions, Tagged
from seqloom.text.records import RecordSchema
from seqloom.text.store import Store, in_memory_store
from seqloom.text.tokenizer import BOS, BPE, Words

WORDS = ["the", "dog", "naïve", "漢字", "sees", "a", "cat", "x" * 50]


def sentences(count: int, seed: int = 0) -> list[tuple[list[str], list[str]]]:
    chance = random.Random(seed)
    rows = [chance.choices(WORDS, k=chance.randint(1, 12)) for _ in range(count)]
    return [
        ([f"n{number}", *words], ["N", *chance.choices("XYZ", k=len(words))])
        for number, words in enumerate(rows)
    ]


def tagged(count: int) -> tuple[list, Store]:
    records = sentences(count)
    tokenizer = BPE([" ".join(words) for words, _ in records] * 3, 300)
    return records, in_memory_store(records, RecordSchema(("words", "tags"), [tokenizer], True, list("NXYZ")))


def words_of(batch, row: int) -> list[bytes]:
    return [
        bytes(letters[letters > 0].tolist())
        for letters in batch.char_ids.numpy()[batch.word_ids[row][batch.mask[row]].numpy()].astype(np.uint8)
    ]


def test_every_sentence_comes_once_with_its_words_pieces_and_tags():
    records, store = tagged(300)
    source, seen = Tagged(store, batch_tokens=200, shuffle_pool=64), []
    for batch in source.sequential():
        for row in range(len(batch.ids)):
            spelt = words_of(batch, row)
            number = int(spelt[0][1:])
            words, tags = records[number]
            assert spelt == [word.encode()[:32] for word in words]
            assert ["NXYZ"[tag] for tag in batch.targets[row][batch.mask[row]]] == tags
            pieces, begins, _, _ = store[number]
            assert (
                batch.ids[row][batch.input_mask[row]].tolist() == pieces.tolist()
                and batch.word_starts[row][batch.mask[row]].tolist() == begins.tolist()
            )
            seen.append(number)
    assert sorted(seen) == list(range(300))


def test_a_long_sentence_is_cut_in_training_and_whole_in_use():
    _, store = tagged(60)
    source = Tagged(store, batch_tokens=200, max_length=5)
    assert sum(cursor[0] == 0 for _, cursor in islice(source.batches(), 3)) > 0
    long = np.array([number for number in range(60) if len(store[number][0]) > 5])
    cut, whole = source.collate(long), source.collate(long, full=True)
    assert cut.ids.shape[1] == 5 and whole.ids.shape[1] == max(len(store[int(n)][0]) for n in long)
    for row, number in enumerate(long):
        begins = store[int(number)][1]
        assert cut.mask[row].sum() == (begins < 5).sum() and whole.mask[row].sum() == len(begins)
        assert words_of(cut, row) == words_of(whole, row)[: int(cut.mask[row].sum())]


def texts(count: int, pair: bool, number: bool = False) -> tuple[list, Store]:
    chance = random.Random(1)
    target = (lambda: chance.random()) if number else (lambda: chance.choice("ab"))
    records = [
        (
            *(" ".join([f"{n}", *chance.choices(WORDS, k=chance.randint(1, 15))]) for _ in range(1 + pair)),
            target(),
        )
        for n in range(count)
    ]
    kinds = ("text",) * (1 + pair) + (("number",) if number else ("label",))
    return records, in_memory_store(
        records,
        RecordSchema(kinds, [Words([text for record in records for text in record[:-1]])], True, ["a", "b"]),
    )


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("number", [False, True])
def test_every_text_comes_once_with_its_target(pair, number):
    records, store = texts(200, pair, number)
    fields = store.columns("text")
    assert len(fields) == 1 + pair
    seen = []
    for batch in Labelled(store, batch_tokens=150, shuffle_pool=50).sequential():
        assert (batch.pair_ids is not None) is pair
        for row in range(len(batch.ids)):
            ids = batch.ids[row][batch.input_mask[row]].tolist()
            (place,) = [n for n in range(200) if store[n][0].tolist() == ids[1:]]
            assert ids[0] == BOS and batch.targets[row] == pytest.approx(
                records[place][-1] if number else "ab".index(records[place][-1])
            )
            if pair:
                assert batch.pair_ids[row][batch.pair_mask[row]].tolist() == [BOS, *store[place][1].tolist()]
            seen.append(place)
    assert sorted(seen) == list(range(200))


def test_long_texts_keep_their_end_and_stay_within_longest():
    _, store = texts(50, True)
    source = Labelled(store, batch_tokens=60, max_length=12)
    batches = [batch for batch, cursor in islice(source.batches(), 60) if cursor[0] == 0]
    assert sum(len(batch.ids) for batch in batches) == 50
    for batch in batches:
        assert (batch.input_mask.sum(1) + batch.pair_mask.sum(1)).max() <= 12
        assert (batch.ids.gather(1, batch.input_mask.sum(1, keepdim=True) - 1) == 3).all()


PASSAGE = "The dog of the king sees a cat in the street, and the cat never sees the dog's tail."


def questions(longest: int, spans: list) -> Questions:
    records = [(f"who {n} ?", PASSAGE * 3, found) for n, found in enumerate(spans)]
    layout = RecordSchema(("text", "passage", "span"), [BPE([PASSAGE] * 20, 300)], True, ())
    return Questions(in_memory_store(records, layout), max_length=longest, batch_tokens=10_000, seed=3)


def text_of(source: Questions, batch, row: int, begin: int) -> str | None:
    """The characters from the batch's first place to its last."""
    first, last = batch.targets[row].tolist()
    if first == 0:
        assert last == 0
        return None
    edges = source.store[row][2].reshape(-1, 2)
    return (PASSAGE * 3)[edges[begin + first - 1, 0] : edges[begin + last - 1, 1]]


def test_answers_stand_at_their_tokens():
    places = [(PASSAGE * 3).find(word, start) for word, start in (("cat", 0), ("dog", 100), ("tail", 150))]
    spans = [[(places[0], "cat")], [(places[1], "dog")], [(places[2], "tail")], []]
    source = questions(1000, spans)
    batch = source.collate(np.arange(4))
    assert [text_of(source, batch, row, 0) for row in range(4)] == ["cat", "dog", "tail", None]
    assert batch.mask.all() and batch.pair_ids.shape[1] == len(source.store[0][1])


def test_a_part_of_a_long_passage_holds_the_answer_in_most_records():
    where = (PASSAGE * 3).find("tail", 100)
    source = questions(40, [[(where, "tail")]] * 400)
    batch = source.collate(np.arange(400))
    assert int((batch.input_mask.sum(1) + batch.pair_mask.sum(1)).max()) <= 40
    inside, tokens = batch.targets[:, 0] > 0, source.store[0][1]
    assert 0.8 < inside.float().mean() < 0.97  # some of the others hold it by chance
    first, last = source.answer_tokens(0)
    for row in torch.nonzero(inside)[:, 0].tolist():
        a, b = batch.targets[row].tolist()
        assert batch.pair_ids[row, a - 1 : b].tolist() == tokens[first:last].tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tagged(tagged(120)[1], 80, shuffle_pool=50),
        lambda: Labelled(texts(120, True)[1], 80, shuffle_pool=50),
        lambda: questions(40, [[(4, "dog")]] * 120),
    ],
    ids=["tagged", "labelled", "questions"],
)
def test_a_cursor_goes_on_exactly(make):
    straight = list(islice(make().batches(), 30))
    for cut in (1, 13):
        for (batch, cursor), (other, expected) in zip(
            islice(make().batches(straight[cut - 1][1]), 30 - cut), straight[cut:], strict=True
        ):
            assert cursor == expected and batch.ids.equal(other.ids) and batch.targets.equal(other.targets)


def test_records_of_another_kind_are_refused():
    _, store = texts(5, False)
    with pytest.raises(ValueError, match="no pieces: use corpus CoNLLU"):
        Tagged(store)
    with pytest.raises(ValueError, match="no passage: use corpus SQuAD"):
        Questions(store)
    with pytest.raises(ValueError, match="no text: use corpus Table"):
        Labelled(tagged(5)[1])
    with pytest.raises(ValueError, match="pairs need records of two texts, but these have text, label"):
        Pairs(store)

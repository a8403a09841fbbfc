"""Records are held out by their content: equal inputs on one side, each label its share, whatever the order and the tokenizer."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.text.corpus import Parallel, Table
from seqloom.text.records import collect_labels
from seqloom.text.split import assign_sides, key_fields, record_key, record_keys
from seqloom.text.store import Column, Store, build
from seqloom.text.tokenizer import Characters, Words


def table(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
    return Table([path], kinds=("text", "label"))


def stores(reader, tokenizer, folder, fraction=0.1):
    texts = (value for record in reader for value in record)
    labels = collect_labels(reader)
    whole = build(reader, tokenizer(texts), folder, labels=labels)
    return whole, *whole.split_by_content(record_keys(reader, folder), fraction)


def rows_of(reader, part):
    """The records of a part, by their numbers."""
    records = list(reader)
    return [records[part.fields[0].number(i)] for i in range(len(part))]


def test_a_file_sorted_by_label_is_held_out_in_its_proportions(tmp_path):
    """The old split of such a file holds out one label only."""
    rows = [(f"film {i}", "neg") for i in range(300)] + [(f"film {i}", "pos") for i in range(300, 400)]
    reader = table(tmp_path / "t.tsv", rows)
    whole, train, valid = stores(reader, Words, tmp_path)
    assert set(whole.split(0.1)[1].columns("label")[0].tokens.tolist()) == {1}  # pos
    labels = [label for _, label in rows_of(reader, valid)]
    assert (labels.count("neg"), labels.count("pos")) == (30, 10)
    assert sorted(rows_of(reader, train) + rows_of(reader, valid)) == sorted(rows)


def test_order_and_tokenizer_do_not_matter(tmp_path):
    rows = [(f"text number {i}", "ab"[i % 2]) for i in range(200)]
    one, other = table(tmp_path / "a.tsv", rows), table(tmp_path / "b.tsv", rows[::-1])
    held = [
        set(rows_of(reader, stores(reader, tokenizer, tmp_path)[2]))
        for reader, tokenizer in ((one, Words), (other, Words), (one, Characters))
    ]
    assert held[0] == held[1] == held[2] and len(held[0]) == 20


def test_equal_inputs_are_on_one_side_even_with_other_labels(tmp_path):
    rows = [(f"text {i % 60}", "abc"[i % 7 % 3]) for i in range(300)]
    reader = table(tmp_path / "t.tsv", rows)
    _, train, valid = stores(reader, Words, tmp_path, 0.2)
    one, other = ({text for text, _ in rows_of(reader, part)} for part in (train, valid))
    assert one and other and not one & other


def test_pairs_go_by_their_source(tmp_path):
    (tmp_path / "a").write_text("".join(f"source {i % 50}\n" for i in range(200)))
    (tmp_path / "b").write_text("".join(f"target {i}\n" for i in range(200)))
    reader = Parallel([tmp_path / "a", tmp_path / "b"])
    _, train, valid = stores(reader, Words, tmp_path, 0.3)
    one, other = ({source for source, _ in rows_of(reader, part)} for part in (train, valid))
    assert len(one) + len(other) == 50 and not one & other


def test_which_fields_decide():
    assert key_fields(("text", "label")) == [0]
    assert key_fields(("label", "text")) == [1]
    assert key_fields(("text", "text")) == [0]
    assert key_fields(("text", "text", "label")) == [0, 1]
    assert key_fields(("words", "tags")) == [0]
    assert key_fields(("text", "passage", "span")) == [1]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), min_size=1, max_size=80),
    st.sampled_from([(0.1,), (0.5,), (0.9,), (0.05, 0.05), (0.3, 0.3)]),
    st.booleans(),
)
def test_sides_of_any_records(records, shares, stratified):
    """Equal keys are on one side, and every side has a record, if there are enough different ones."""
    keys = np.array([int.from_bytes(record_key([str(key)]), "big") for key, _ in records], np.uint64)
    strata = np.array([label for _, label in records]) if stratified else None
    if len({key for key, _ in records}) <= len(shares) < len(records):
        assert len(assign_sides(keys, shares, strata)) == len(records)
        return
    if len(records) <= len(shares):
        with pytest.raises(ValueError, match="cannot be split"):
            assign_sides(keys, shares, strata)
        return
    sides = assign_sides(keys, shares, strata)
    by_key = {}
    for key, side in zip(keys, sides, strict=True):
        assert by_key.setdefault(int(key), side) == side
    assert set(sides) == set(range(len(shares) + 1))
    assert (
        assign_sides(keys[::-1], shares, None if strata is None else strata[::-1])[::-1] == sides
    ).all() or (
        strata is not None and len({(key, label) for key, label in records}) > len(by_key)
    )  # a text with several labels counts with its first


def test_many_small_labels_give_their_share_together():
    keys = np.random.default_rng(0).integers(0, 2**63, 4000).astype(np.uint64)
    strata = np.repeat(np.arange(1000), 4)
    sides = assign_sides(keys, [0.1], strata)
    assert 390 <= (sides == 1).sum() <= 400
    assert len(set(strata[sides == 0])) == 1000  # every label is learnt


def test_a_word_is_on_the_side_where_it_was(tmp_path):
    """Dictionaries were split by the first byte of the same hash."""
    words = [f"word{i}" for i in range(2000)]
    keys = np.array([int.from_bytes(record_key([word]), "big") for word in words], np.uint64)
    sides = assign_sides(keys, [13 / 256, 13 / 256])
    names = ["train", "test", "valid"]
    first_bytes = [hashlib.sha256(word.encode()).digest()[0] for word in words]
    expected = ["test" if byte < 13 else "valid" if byte < 26 else "train" for byte in first_bytes]
    assert [names[side] for side in sides] == expected


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_wrong_fractions(fraction):
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        assign_sides(np.arange(10, dtype=np.uint64), [fraction])


def test_a_view_equals_its_records():
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 5, 1000)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    column = Column(rng.integers(0, 99, offsets[-1]).astype(np.uint16), offsets, 3 * offsets)
    records = rng.permutation(1000)[:300].astype(np.uint32)
    view = column.pick(records)
    expected = [column.row(int(i)) for i in records]
    index = np.arange(300)
    assert all((view.row(i) == row).all() for i, row in enumerate(expected))
    assert (view.sizes(index) == [len(row) for row in expected]).all()
    assert view.num_tokens == sum(map(len, expected)) and view.num_bytes == 3 * view.num_tokens
    assert (np.concatenate(list(view.blocks())) == np.concatenate(expected)).all()
    whole = view.gathered()
    assert (whole.tokens == np.concatenate(expected)).all() and whole.num_records == 300
    assert (whole.sizes(index) == view.sizes(index)).all() and whole.num_bytes == view.num_bytes
    again = view.pick(np.array([5, 2]))
    assert (again.row(0) == expected[5]).all() and again.number(1) == records[2]


def test_keys_are_stored(tmp_path, monkeypatch):
    reader = table(tmp_path / "t.tsv", [("a", "x"), ("b", "y")])
    keys = record_keys(reader, tmp_path / "cache")
    monkeypatch.setattr(Table, "records", None)  # not read again
    assert (record_keys(reader, tmp_path / "cache") == keys).all() and len(keys) == 2


def test_a_million_records_take_a_few_bytes_each():
    count = 1_000_000
    offsets = np.arange(count + 1)
    columns = [Column(np.arange(count) % 7, offsets, offsets) for _ in range(2)]
    whole = Store(columns, "", names=("text", "label"))
    keys = np.random.default_rng(0).integers(0, 2**63, count).astype(np.uint64)
    train, valid = whole.split_by_content(keys, 0.1)
    assert len(valid) == 100_000 and len(train) == 900_000
    assert sum(column.records.nbytes for column in train.fields) <= 8 * 900_000


def test_equal_records_are_held_out_with_a_warning(caplog):
    sides = assign_sides(np.full(40, 7, np.uint64), [0.1])
    assert sides.tolist() == [0] * 36 + [1] * 4
    assert "only 1 of 40 records differ" in caplog.text

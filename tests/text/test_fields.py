"""Fields of every kind become columns: pieces that are the tokenizer's own, words found again, labels by place; what does not fit is said."""

import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import normalizers

from seqloom.text.annotated import Columns, CoNLLU, SQuAD
from seqloom.text.corpus import JSONLines, Lines, Table
from seqloom.text.records import RecordSchema, collect_labels, iter_texts
from seqloom.text.store import build, in_memory_store
from seqloom.text.tokenizer import BPE, UNK, Characters, WordPiece, Words

SENTENCES = [["The", "dog", "'s", "tail"], ["naïve", "漢字", "!"], ["1", "000", "dogs"], ["unseen", "the"]]
TAGS = [["DET", "NOUN", "PART", "NOUN"], ["ADJ", "X", "PUNCT"], ["NUM", "NUM", "NOUN"], ["X", "DET"]]
CORPUS = [" ".join(words) for words in SENTENCES[:3]] * 20
TOKENIZERS = {
    "words": Words(CORPUS),
    "lower": Words(CORPUS, lowercase=True),
    "bpe": BPE(CORPUS, 300),
    "pieces": WordPiece(CORPUS, 100),
    "characters": Characters(CORPUS),
}


def put(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def columns(path: Path) -> Columns:
    return Columns(
        [
            put(
                path,
                "\n\n".join(
                    "\n".join(map(" ".join, zip(*pair, strict=True)))
                    for pair in zip(SENTENCES, TAGS, strict=True)
                ),
            )
        ]
    )


@pytest.mark.parametrize("name", TOKENIZERS)
def test_words_become_pieces_and_each_word_is_found_again(name, tmp_path):
    tokenizer, reader = TOKENIZERS[name], columns(tmp_path / "t")
    stored = build(reader, tokenizer, tmp_path / "cache", labels=collect_labels(reader))
    assert stored.names == ("pieces", "begins", "letters", "tags")
    for number, words in enumerate(SENTENCES):
        pieces, begins, letters, tags = stored[number]
        assert pieces.tolist() == tokenizer.encode("".join(f" {word}" for word in words)).ids
        assert letters.tobytes().decode().split("\0") == [*words, ""]
        assert [sorted({tag for row in TAGS for tag in row})[place] for place in tags] == TAGS[number]
        assert len(begins) == len(words) and (np.diff(begins) > 0).all()
        ends = [*begins[1:], len(pieces)]
        for word, begin, end in zip(words, begins, ends, strict=True):
            if UNK in pieces[begin:end]:
                continue
            spelt = tokenizer.decode(pieces[begin:end].tolist()).strip()
            assert spelt.replace(" ", "") == (word.lower() if name == "lower" else word), (
                "the first piece of a word is a piece of it"
            )


def test_a_word_that_leaves_nothing_is_unknown(tmp_path):
    """A tokenizer that drops every character of a word still gives it a place."""
    tokenizer = Words(["a b"])
    tokenizer.normalizer = normalizers.Replace("x", "")
    stored = in_memory_store([(["a", "xx", "b"],)], RecordSchema(("words",), [tokenizer], True, ()))
    assert stored[0][0].tolist() == [5, UNK, 6] and stored[0][1].tolist() == [0, 1, 2]
    inner = in_memory_store(
        [(["1 000", "a"],)], RecordSchema(("words",), [Words(["a 1 000"])], True, ())
    )  # a word with a space in it
    assert inner[0][1].tolist() == [0, 2]


def test_in_memory_and_on_disk_are_the_same(tmp_path):
    reader = columns(tmp_path / "t")
    labels = collect_labels(reader)
    stored = build(reader, TOKENIZERS["bpe"], tmp_path / "cache", labels=labels)
    kept = in_memory_store(
        list(reader), RecordSchema(reader.kinds, [TOKENIZERS["bpe"]], reader.adds_eos, labels)
    )
    assert kept.names == stored.names
    for one, other in zip(kept.fields, stored.fields, strict=True):
        assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


def test_many_blocks_and_workers_change_nothing(tmp_path, monkeypatch):
    from seqloom.text import records

    chance = random.Random(0)
    rows = [
        f"{' '.join(chance.choices(['dog', 'cat', 'a', 'sees'], k=5))}\t{chance.choice('xyz')}"
        for _ in range(4000)
    ]
    reader = Table([put(tmp_path / "t.tsv", "\n".join(rows))], kinds=("text", "label"))
    one = build(reader, TOKENIZERS["bpe"], tmp_path / "one", 1, labels=collect_labels(reader))
    monkeypatch.setattr(records, "BLOCK", 5_000)
    monkeypatch.setattr(records, "SERIAL_BLOCKS", 1)
    two = build(reader, TOKENIZERS["bpe"], tmp_path / "two", 2, labels=collect_labels(reader))
    for ours, theirs in zip(one.fields, two.fields, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert ["xyz"[place] for place in two.columns("label")[0].tokens] == [row[-1] for row in rows]


def test_passages_know_where_their_pieces_stand(tmp_path):
    passage = "The  dog sees\n“naïve” 漢字 dogs."
    layout = RecordSchema(("text", "passage", "span"), [TOKENIZERS["bpe"]], True, ())
    stored = in_memory_store(
        [("Who?", passage, [(5, "dog"), (0, "The  dog")]), ("Why?", passage, [])], layout
    )
    _, ids, edges, source, span, answers = stored[0]
    assert source.tobytes().decode() == passage and answers.tobytes().decode().split("\0") == [
        "dog",
        "The  dog",
        "",
    ]
    for begin, end in edges.reshape(-1, 2):
        assert passage[begin:end].strip() in ("", passage[begin:end])
    (place,) = np.flatnonzero(edges[::2] == 5)
    assert TOKENIZERS["bpe"].decode([int(ids[place])]).strip().startswith("d") and span.tolist() == [5, 8]
    assert stored[1][4].tolist() == [0, 0] and stored[1][5].size == 0


def test_labels_are_learnt_in_a_stable_order(tmp_path):
    reader = Table([put(tmp_path / "t.tsv", "a\tpos\nb\tneg\nc\tpos\n")], kinds=("text", "label"))
    assert collect_labels(reader) == ["neg", "pos"] and list(iter_texts(reader)) == ["a", "b", "c"]
    assert collect_labels(Lines([put(tmp_path / "l", "a\n")])) == []
    several = SQuAD(
        [
            put(
                tmp_path / "q",
                '{"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": 1, "question": "?", "answers": []}]}]}]}',
            )
        ]
    )
    assert collect_labels(several) == ["none"]


@pytest.mark.parametrize(
    "kinds, line, sentence",
    [
        (
            ("text", "label"),
            '{"a": "x", "b": "new"}',
            r"t:2: the label 'new' is not in the training data \(L\); correct it",
        ),
        (("text", "label"), '{"a": "x", "b": " "}', "t:2: ' ' is not a label"),
        (("words", "tags"), '{"a": ["x", "y"], "b": ["L"]}', "t:2: 2 words and 1 tags"),
        (("words", "tags"), '{"a": [], "b": []}', "t:2: a sentence without words"),
        (("words", "tags"), '{"a": ["x", " "], "b": ["L", "L"]}', "t:2: ' ' is not a word"),
        (("text", "number"), '{"a": "x", "b": "many"}', "t:2: 'many' is not a number"),
        (("text", "number"), '{"a": "x", "b": "nan"}', "t:2: 'nan' is not a number"),
        (
            ("passage", "span"),
            '{"a": "a b", "b": [{"answer_start": 1, "text": "b"}]}',
            "t:2: the answer 'b' is not at character 1",
        ),
        (("passage", "span"), '{"a": " ", "b": []}', "t:2: the passage is empty"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(kinds, line, sentence, tmp_path):
    good = {
        "text": '"x"',
        "words": '["x"]',
        "passage": '"a b"',
        "label": '"L"',
        "tags": '["L"]',
        "number": "1",
        "span": "[]",
    }
    first = f'{{"a": {good[kinds[0]]}, "b": {good[kinds[1]]}}}'
    reader = JSONLines([put(tmp_path / "t", f"{first}\n{line}\n")], ("a", "b"), kinds)
    with pytest.raises(ValueError, match=sentence):
        build(reader, TOKENIZERS["words"], tmp_path / "cache", labels=["L"])


def test_a_column_that_is_no_label_is_noticed(tmp_path):
    with pytest.raises(ValueError, match="more than 10,000 different labels"):
        collect_labels(
            Table(
                [put(tmp_path / "t.tsv", "\n".join(f"x\t{n}" for n in range(10_002)))],
                kinds=("text", "label"),
            )
        )


def test_another_order_of_labels_is_another_store(tmp_path):
    reader = columns(tmp_path / "t")
    labels = collect_labels(reader)
    one, two = (
        build(reader, TOKENIZERS["words"], tmp_path / "cache", labels=names)
        for names in (labels, labels[::-1])
    )
    assert one.digest != two.digest and not np.array_equal(
        one.columns("tags")[0].tokens, two.columns("tags")[0].tokens
    )


@pytest.mark.data
def test_every_word_of_universal_dependencies_keeps_its_tag(real_data, tmp_path):
    """Against the conllu package, word by word."""
    import gzip

    import conllu

    path = real_data / "ud" / "en_ewt-ud-dev.conllu.gz"
    reader = CoNLLU([path])
    labels = collect_labels(reader)
    stored = build(reader, BPE(iter_texts(reader), 1000), tmp_path, labels=labels)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        parsed = conllu.parse(file.read())
    assert len(stored) == len(parsed)
    for number, sentence in enumerate(parsed):
        tokens = [token for token in sentence if isinstance(token["id"], int)]
        _, _, letters, tags = stored[number]
        assert letters.tobytes().decode().split("\0")[:-1] == [token["form"] for token in tokens]
        assert [labels[place] for place in tags] == [token["upos"] for token in tokens]

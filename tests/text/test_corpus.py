"""Readers: what Python's own open, csv and json read, in constant memory, and every bad file refused with its place."""

import csv
import gzip
import io
import json
import os
import sys
import threading
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.text import corpus, lines
from seqloom.text.annotated import Columns, CoNLLU, SQuAD
from seqloom.text.corpus import JSONLines, Lines, Parallel, Table, Text

# No NUL, which is refused; CR only in CR LF, since Python's universal newlines would also break at a lone CR.
PIECES = ["a", "é", "漢", "\U0001f600", " ", "\n", "\r\n", "\t", "\x0b", "\x85", "\u2028", "word"]
CONTENT = st.lists(st.sampled_from(PIECES), min_size=1).map("".join)
FILES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def put(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@FILES
@given(CONTENT, st.booleans(), st.booleans(), st.integers(4, 12))
def test_text_and_lines_equal_open(tmp_path, content, packed, mark, block):
    data = b"\xef\xbb\xbf" * mark + content.encode()
    path = put(tmp_path / ("t.txt.gz" if packed else "t.txt"), gzip.compress(data) if packed else data)
    expected = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()
    before, lines.BLOCK_BYTES = (
        lines.BLOCK_BYTES,
        block,
    )  # blocks of a few bytes: every way a block can be cut
    try:
        assert "".join(text for (text,) in Text([path])) == expected
        whole = expected.split("\n")
        assert [text for (text,) in Lines([path])] == (whole if whole[-1] else whole[:-1])
    finally:
        lines.BLOCK_BYTES = before


def test_a_lone_carriage_return_is_a_character(tmp_path):
    assert list(Lines([put(tmp_path / "t", "a\rb\nc\r\n")])) == [("a\rb",), ("c",)]


def test_files_follow_each_other(tmp_path):
    paths = [put(tmp_path / "a", "1\n2"), put(tmp_path / "b", "3\n")]
    assert list(Text(paths)) == [("1\n",), ("2",), ("3\n",)]
    assert list(Lines(map(str, paths))) == [("1",), ("2",), ("3",)]
    assert (Text.adds_eos, Lines.adds_eos) == (False, True)


@pytest.mark.parametrize("letter", ["x", "é", "漢 "])
def test_a_long_line_comes_in_pieces_of_bounded_size(tmp_path, letter):
    content = letter * (5_000_000 // len(letter.encode()))
    path = put(tmp_path / "t", content)
    tracemalloc.start()
    size, longest = 0, 0
    for (text,) in Text([path]):
        size, longest = size + len(text), max(longest, len(text.encode()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == len(content)
    assert longest <= 2 * lines.BLOCK_BYTES
    assert peak < 16 * lines.BLOCK_BYTES
    assert list(Lines([path])) == [(content,)]


def test_reading_is_streamed(tmp_path):
    path = tmp_path / "t.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(30):
            file.write(b"a line of text that is repeated\n" * 32768)
    tracemalloc.start()
    count = sum(1 for _ in Lines([path]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 30 * 32768
    assert peak < 12 << 20


BAD = {
    "latin-1": (b"good\nbad \xe9 here\n", r":2: byte 5 of the line \(0xe9\) is not UTF-8"),
    "cut character": ("good\né".encode()[:-1], r":2: byte 1 of the line \(0xc3\) is not UTF-8"),
    "NUL": (b"a\nb\nc\0d", r":3: a NUL byte"),
    "UTF-16": ("text\n".encode("utf-16"), r":1: UTF-16 text; save it as UTF-8"),
    "UTF-16 without mark": ("text\n".encode("utf-16-le"), r":1: a NUL byte"),
    "empty": (b"", r": the file is empty"),
    "only a mark": (b"\xef\xbb\xbf", r": the file is empty"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("reader", [Text, Lines, JSONLines, CoNLLU, Columns, Table])
def test_what_is_not_text_is_refused_with_its_place(tmp_path, name, packed, reader):
    data, message = BAD[name]
    path = put(tmp_path / ("t.gz" if packed else "t"), gzip.compress(data) if packed else data)
    with (
        pytest.raises(ValueError, match=str(path) + message)
        if reader in (Text, Lines)
        else pytest.raises(ValueError, match=str(path))
    ):
        list(reader([path]))


@pytest.mark.parametrize(
    "damage",
    [lambda d: d[:-20], lambda d: d[:200] + b"????" + d[204:], lambda d: b"plain text", lambda d: d[:5]],
)
def test_a_damaged_gzip_is_refused(tmp_path, damage):
    data = gzip.compress(os.urandom(3000).hex().encode() * 3)
    path = put(tmp_path / "t.gz", damage(data))
    with pytest.raises(ValueError, match=r"t\.gz:\d+: damaged gzip file"):
        list(Lines([path]))


def test_missing_files_and_folders_are_refused_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere: no such file"):
        Lines([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r": a folder, not a file"):
        Text([tmp_path])
    with pytest.raises(ValueError, match=r"no file to read"):
        Text([])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read_once_and_iterated_often(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_text("one\ntwo\n"), daemon=True).start()
    reader = Lines([pipe])
    assert reader.digest() == Lines([put(tmp_path / "t", "one\ntwo\n")]).digest()
    assert list(reader) == list(reader) == [("one",), ("two",)]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(monkeypatch, pack):
    monkeypatch.setattr(lines, "_spooled", {})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack("één\n".encode()))))
    assert list(Lines(["-"])) == list(Lines(["-"])) == [("één",)]


def test_an_empty_standard_input_is_refused(monkeypatch):
    monkeypatch.setattr(lines, "_spooled", {})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(ValueError, match=r"^-: no input arrived"):
        Lines(["-"])


def test_parallel(tmp_path):
    paths = [
        put(tmp_path / "t.en", "the cat\r\nthe dog\r\n"),
        put(tmp_path / "t.fr.gz", gzip.compress(b"le chat\nle chien")),
    ]
    assert list(Parallel(paths)) == [("the cat", "le chat"), ("the dog", "le chien")]
    with pytest.raises(ValueError, match="exactly two"):
        Parallel([*paths, paths[0]])


@pytest.mark.parametrize(
    ("left", "right", "place"), [("1\n2\n3\n", "1\n2\n", "b:3"), ("1\n", "1\n2\n\n", "a:2")]
)
def test_parallel_files_must_line_up(tmp_path, left, right, place):
    paths = [put(tmp_path / "a", left), put(tmp_path / "b", right)]
    with pytest.raises(
        ValueError, match=rf"{place}: .*a has {left.count(chr(10))} lines, .*b has {right.count(chr(10))}"
    ):
        list(Parallel(paths))


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"), max_size=5)


@FILES
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1))
def test_csv_equals_the_csv_module(tmp_path, rows):
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    assert list(Table([tmp_path / "t.csv"], columns=(2, 0))) == [(row[2], row[0]) for row in rows]


def test_tsv_knows_no_quotes(tmp_path):
    path = put(tmp_path / "t.tsv", 'label\ttext\n1\t"so" he said\n\n2\t"\n')
    assert list(Table([path], columns=(1, 0), header=True)) == [('"so" he said', "1"), ('"', "2")]
    assert list(Table([put(tmp_path / "t", "a;b\n")], separator=";", columns=(-1,))) == [("b",)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", "a\tb\nc\n", r"t\.tsv:2: 1 cells, but the first row has 2"),
        ("t.csv", 'a,"b\nb"\nc,d,e\n', r"t\.csv:3: 3 cells"),
        ("t.csv", 'a,b\nc,"d\n', r"t\.csv:2: not CSV"),
        ("t.tsv", "a\nb\n", r"t\.tsv:1: no column 1 in a row without a tab; a table is expected"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        list(Table([put(tmp_path / name, content)]))


@FILES
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_json_lines_equals_the_json_module(tmp_path, texts):
    path = put(tmp_path / "t.jsonl", "\n\n".join(json.dumps({"label": 1, "text": text}) for text in texts))
    assert list(JSONLines([path])) == [(text,) for text in texts]
    assert list(JSONLines([path], fields=("text", "label"))) == [(text, "1") for text in texts]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "a JSON list"),
        ('{"a": 1}', "no field 'text'; the fields are 'a'"),
        ('{"text": null}', "neither text nor"),
        ('{"text": "\\ud800"}', "half a surrogate"),
        ("[" * 100_000, "not JSON"),
        ('{"text": ' + "1" * 5000 + "}", "not JSON"),
    ],
)
def test_a_bad_json_line_is_refused_with_its_place(tmp_path, line, message):
    with pytest.raises(ValueError, match=rf"t:2: .*{message}"):
        list(JSONLines([put(tmp_path / "t", '{"text": "good"}\n' + line)]))


CONLLU = """# text = don't go
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
2.1\tghost\t_\tVERB\t_\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def test_conllu(tmp_path):
    path = put(tmp_path / "t.conllu", CONLLU + "\n# only a comment\n\n\n")
    assert list(CoNLLU([path])) == [(["do", "n't", "go"], ["AUX", "PART", "VERB"]), (["Yes"], ["INTJ"])]


@pytest.mark.parametrize("bad", ["one two three", "x\tb\tc\td\te\tf\tg\th\ti\tj", "1\tword"])
def test_bad_conllu_is_refused_with_its_place(tmp_path, bad):
    with pytest.raises(ValueError, match=r"t:10: the sentence that starts here is not CoNLL-U"):
        list(CoNLLU([put(tmp_path / "t", CONLLU + "\n" + bad + "\n")]))


def test_conllu_equals_the_conllu_package(tmp_path):
    """Every column of every word, against an independent parser."""
    import conllu

    rows = [token for sentence in conllu.parse(CONLLU) for token in sentence if isinstance(token["id"], int)]
    for column in ("upos", "xpos", "lemma", "deprel"):
        found = list(CoNLLU([put(tmp_path / "t.conllu", CONLLU)], column=column))
        assert [word for words, _ in found for word in words] == [token["form"] for token in rows]
        assert [tag for _, tags in found for tag in tags] == [token[column] for token in rows]


def test_conllu_features_may_be_missing_and_tags_may_not(tmp_path):
    path = put(tmp_path / "t", CONLLU.replace("\tVERB\tVB\t_\t0", "\t_\tVB\tMood=Imp\t0"))
    assert next(iter(CoNLLU([path], column="feats")))[1] == ["_", "_", "Mood=Imp"]
    with pytest.raises(ValueError, match="t:1: the sentence that starts here has a word without upos"):
        list(CoNLLU([path]))


def test_columns(tmp_path):
    path = put(
        tmp_path / "t",
        "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\nPeter NNP B-NP B-PER",
    )
    assert list(Columns([path])) == [(["EU", "rejects"], ["B-ORG", "O"]), (["Peter"], ["B-PER"])]
    assert list(Columns([path], word=1, tag=2))[1] == (["NNP"], ["B-NP"])
    with pytest.raises(ValueError, match=r"t:3: 4 columns, but columns 0 and 4"):
        list(Columns([path], tag=4))


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("John B-PER\ngoes\nhome O\n", "t:2: 1 columns, but the first row has 2"),
        ("John\tX\tB-PER\n\ngoes\tO\n", "t:3: 2 columns, but the first row has 3"),
        ("John\ngoes\n", "t:1: a word without a tag"),
        ("John\tB-PER\n\tO\n", "t:2: a word without a tag, or a tag without a word"),
        ("we O\n#tag\n", "t:2: 1 columns, but the first row has 2"),
    ],
)
def test_a_row_without_its_tag_is_refused_with_its_place(tmp_path, text, sentence):
    with pytest.raises(ValueError, match=sentence):
        list(Columns([put(tmp_path / "t", text)]))


def test_cells_stand_between_tabs_or_spaces_alone(tmp_path):
    text = "New York\tB-LOC\n10\u00a0000\tO\t\n\nA\u3000B\u00a0C\tX\n"
    assert list(Columns([put(tmp_path / "t", text)])) == [
        (["New York", "10\u00a0000"], ["B-LOC", "O"]),
        (["A\u3000B\u00a0C"], ["X"]),
    ]
    assert list(Columns([put(tmp_path / "t", "a\u00a0b   O \n\u3000 X\n")])) == [
        (["a\u00a0b", "\u3000"], ["O", "X"])
    ]


def test_a_comment_of_columns_has_other_cells_than_the_first_row(tmp_path):
    text = "# id 1\nJohn B-PER\n# O\n#tag O\n\n# only a comment\n\n"
    assert list(Columns([put(tmp_path / "t", text)])) == [(["John", "#", "#tag"], ["B-PER", "O", "O"])]
    assert list(Columns([put(tmp_path / "t", "# 1\nJohn\tB-PER\n#\tO\n")])) == [
        (["John", "#"], ["B-PER", "O"])
    ]


def test_the_digest_names_content_and_options(tmp_path):
    first, copy, other = (
        put(tmp_path / name, text) for name, text in [("a", "x\ty\n"), ("b", "x\ty\n"), ("c", "x\tz\n")]
    )
    assert Lines([first]).digest() == Lines([copy]).digest()
    distinct = [
        Lines([first]),
        Lines([other]),
        Lines([first, copy]),
        Text([first]),
        Table([first]),
        Table([first], columns=(1, 0)),
        Table([first], header=True),
        Table([first], separator=","),
        Columns([first]),
        Columns([first], tag=0),
        JSONLines([first]),
    ]
    assert len({reader.digest() for reader in distinct}) == len(distinct)


def test_the_digest_follows_the_file(tmp_path):
    reader = Lines([put(tmp_path / "a", "one\n")])
    before = reader.digest()
    put(tmp_path / "a", "two\n")
    assert reader.digest() != before


def squad(*articles: dict) -> str:
    return json.dumps({"version": "x", "data": list(articles)}, indent=1)


def article(passage: str, *asked: tuple[str, list]) -> dict:
    return {
        "title": "t",
        "paragraphs": [
            {
                "context": passage,
                "qas": [
                    {
                        "id": f"{passage[:3]}-{number}",
                        "question": question,
                        "answers": [{"answer_start": at, "text": text} for at, text in found],
                    }
                    for number, (question, found) in enumerate(asked)
                ],
            }
        ],
    }


def test_squad_gives_every_question_with_its_passage(tmp_path):
    first = article("The dog sees a cat.", ("Who sees?", [(4, "dog"), (0, "The dog")]), ("Why?", []))
    text = squad(first, article("“A” is B.", ("What?", [(7, "B")])))
    assert list(SQuAD([put(tmp_path / "q.json", text)])) == [
        ("Who sees?", "The dog sees a cat.", [(4, "dog"), (0, "The dog")]),
        ("Why?", "The dog sees a cat.", []),
        ("What?", "“A” is B.", [(7, "B")]),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"data": [1]}',
        '{"data": [{"paragraphs": [{"context": "x"}]}]}',
        '{"data": [{"paragraphs"',
        "{}",
    ],
)
def test_a_file_that_is_not_squad_is_an_error(tmp_path, text):
    with pytest.raises(ValueError, match="SQuAD"):
        list(SQuAD([put(tmp_path / "q.json", text)]))


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_the_articles_are_those_of_the_outermost_data(tmp_path, monkeypatch, block):
    monkeypatch.setattr("seqloom.text.lines.BLOCK_BYTES", block)
    notes = {"by": {"data": [1, 2]}, "said": 'the "data": [', "size": 12345, "none": None}
    text = json.dumps({**notes, "data": [article("A b.", ("What?", [(2, "b")]))], "more": {"data": []}})
    assert list(SQuAD([put(tmp_path / "q.json", text)])) == [("What?", "A b.", [(2, "b")])]
    assert list(SQuAD([put(tmp_path / "none.json", '{"data": []}')])) == []
    for wrong in (json.dumps(notes), json.dumps({"by": {"data": []}}), '{"data": [5'):
        with pytest.raises(ValueError, match="not a SQuAD file"):
            list(SQuAD([put(tmp_path / "wrong.json", wrong)]))


def test_a_question_whose_answers_are_not_told_is_none_without_an_answer(tmp_path):
    text = squad({"paragraphs": [{"context": "A b.", "qas": [{"id": 7, "question": "What?"}]}]})
    with pytest.raises(ValueError, match=r"question 7: no answers; write them, or \[\] if there is none"):
        list(SQuAD([put(tmp_path / "q.json", text)]))
    told = text.replace('"What?"', '"What?", "is_impossible": true')
    assert list(SQuAD([put(tmp_path / "told.json", told)])) == [("What?", "A b.", [])]


def test_squad_larger_than_a_block_is_the_same(tmp_path):
    """An article at a time, across the blocks in which files are read."""
    passages = [f"{number} " + "word " * 20_000 for number in range(30)]
    path = put(
        tmp_path / "q.json", squad(*(article(passage, ("?", [(0, passage[:1])])) for passage in passages))
    )
    assert [passage for _, passage, _ in SQuAD([path])] == passages


@pytest.mark.data
def test_xquad_answers_stand_where_it_says():
    folder = os.environ.get("SEQLOOM_DATA") or pytest.skip("SEQLOOM_DATA is not set")
    found = list(SQuAD([f"{folder}/qa/xquad.en.json.gz"]))
    assert len(found) == 1190 and all(
        passage[start : start + len(text)] == text for _, passage, spans in found for start, text in spans
    )


def test_fields_of_other_kinds_in_json_and_tables(tmp_path):
    path = put(
        tmp_path / "a.jsonl",
        '{"w": ["a", "b"], "t": ["X", "Y"], "n": 3.5, "a": {"answer_start": [1], "text": ["b"]}}\n',
    )
    assert list(JSONLines([path], ("w", "t", "n", "a"), ("words", "tags", "number", "span"))) == [
        (["a", "b"], ["X", "Y"], "3.5", [(1, "b")])
    ]
    with pytest.raises(ValueError, match=r"2 kinds .* for 1 columns"):
        Table([path], (0,), kinds=("text", "label"))
    with pytest.raises(ValueError, match=r"a.jsonl:1: answers are"):
        list(JSONLines([path], ("n",), ("span",)))


@pytest.mark.data
def test_universal_dependencies_has_the_sentences_it_is_known_for():
    folder = os.environ.get("SEQLOOM_DATA") or pytest.skip("SEQLOOM_DATA is not set")
    for name, count in (("dev", 2_001), ("test", 2_077)):
        assert sum(1 for _ in CoNLLU([f"{folder}/ud/en_ewt-ud-{name}.conllu.gz"])) == count


@pytest.mark.data
def test_multi30k_lines_up():
    folder = os.environ.get("SEQLOOM_DATA") or pytest.skip("SEQLOOM_DATA is not set")
    assert (
        sum(
            1
            for _ in corpus.Parallel([f"{folder}/multi30k/train.{language}.gz" for language in ("en", "de")])
        )
        == 29_000
    )

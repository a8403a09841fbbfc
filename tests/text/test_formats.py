"""The form of a file is recognised by its suffix, else by its first lines."""

import gzip
import json
import sys

import pytest

from seqloom.text.corpus import Table
from seqloom.text.formats import FORMATS, check_format, detect_format, format_of
from seqloom.text.lines import lines

CONLLU = "1\tTime\t_\tNOUN\t_\t_\t_\t_\t_\t_\n2\tflies\t_\tVERB\t_\t_\t_\t_\t_\t_\n\n"
SQUAD = json.dumps({"version": "1.1", "data": [{"paragraphs": []}]})
CASES = [
    ("a.txt", "To be or not\nto be\n", "text"),
    ("a.tsv", "one\n", "table"),
    ("a.csv.gz", "a,b\n", "table"),
    ("a.jsonl", "{}\n", "jsonl"),
    ("a.conllu", "x\n", "conllu"),
    ("a.bio", "x\n", "conll"),
    ("a.dict", "x\n", "dictionary"),
    ("a.txt", "good film\tpos\nbad film\tneg\n", "table"),
    ("a.txt", 'He said {"a"\nand left\n', "text"),
    ("a", '{"text": "a", "label": "b"}\n', "jsonl"),
    ("a.json", SQUAD, "squad"),
    ("a.tags", CONLLU, "conllu"),
    ("a.txt", "EU B-ORG\nrejects O\nGerman O\n\nPeter B-PER\nleft O\n\n", "conll"),
    ("a.txt", "the cat\na dog\n\nthe end\nof it\n", "text"),
    ("a", ";;; comment\nHELLO  HH AH0 L OW1\nHELLO(2)  HH EH0 L OW1\n", "dictionary"),
    ("a", "hello 1 HH AH0 L OW1\n", "dictionary"),
    ("a.txt", "I AM A\nGO ON\n", "text"),
    ("a.txt", "\n\n", "text"),
]


@pytest.mark.parametrize("name, content, expected", CASES)
def test_the_form_of_a_file(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    assert detect_format([path]) == expected


def test_two_texts_are_pairs(tmp_path):
    english, french, longer = tmp_path / "a.en", tmp_path / "a.fr", tmp_path / "b.en"
    english.write_text("one\ntwo\n")
    french.write_text("un\n")
    longer.write_text("one\ntwo\nthree\n")
    assert detect_format([english, french]) == "pairs"
    assert detect_format([english, longer]) == "text"


def test_one_long_line_is_not_read_whole(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(SQUAD[:-2] + '{"paragraphs": [' + "1, " * 2_000_000)  # not JSON as a whole
    assert detect_format([path]) == "squad"


def test_names_of_forms():
    assert check_format("auto") == "auto" and check_format("Table") == "table" == format_of(Table)
    assert all(check_format(name) == name for name in FORMATS)
    with pytest.raises(ValueError, match="'xml' is not a form of a file; choose from auto, text, lines"):
        check_format("xml")


def test_zst_files_are_read(tmp_path, monkeypatch):
    zstandard = pytest.importorskip("zstandard")
    content = "".join(f"line {i} é\n" for i in range(100_000))
    path = tmp_path / "a.tsv.zst"
    path.write_bytes(zstandard.compress(content.encode()))
    assert detect_format([path]) == "table"
    assert "".join(line + "\n" for line in lines(path)) == content
    path.write_bytes(zstandard.compress(b"a\tb\n")[:8] + b"garbage")
    with pytest.raises(ValueError, match=r"a\.tsv\.zst: damaged zst file"):
        list(lines(path))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ValueError, match=r"needs the package zstandard; install seqloom\[data\]"):
        list(lines(path))

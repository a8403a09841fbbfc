"""Tables with tabs that a program has quoted as CSV are told, and read as before."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path

import pytest

import seqloom
from seqloom.cli import main
from seqloom.text.quoted_cells import has_quoted_cells, quotes_warning

SAID = "cells between quotes"


def write(path: Path, rows: list[tuple[str, str]], quoting: int = csv.QUOTE_MINIMAL) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=quoting, lineterminator="\n").writerows(rows)  # type: ignore[call-overload]
    return path


def rows(word: str = '"fine"') -> list[tuple[str, str]]:
    return [(f"text {i} is {word} here", "pos" if i % 2 else "neg") for i in range(24)]


@pytest.mark.parametrize(
    "cells, quoted",
    [
        (['"a ""b"" c"', "x"], True),
        (['"a b"', '"x"'], True),
        (['"a b"', "x"], False),  # a quotation
        (['"a" or "b"', "x"], False),
        (['"a', 'b"'], False),
        (['""', "x"], False),
        (['"'], False),
    ],
)
def test_quotes_of_csv_are_told_from_quotations(cells: list[str], quoted: bool):
    assert has_quoted_cells(cells) == quoted


def test_the_first_quoted_row_is_named(tmp_path: Path):
    path = write(tmp_path / "a.tsv", [("plain", "pos"), *rows()])
    said = quotes_warning(path)
    assert said.startswith(f"{path}:2: 24 rows with {SAID}") and ".csv" in said
    assert quotes_warning(write(tmp_path / "b.tsv", rows("fine"))) == ""
    assert quotes_warning(write(tmp_path / "c.tsv", rows("fine"), csv.QUOTE_ALL)).startswith(
        f"{tmp_path / 'c.tsv'}:1: 24 rows"
    )


def test_every_use_of_a_quoted_table_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    path, out = write(tmp_path / "a.tsv", rows()), tmp_path / "run"
    caplog.set_level(logging.WARNING)

    def told() -> int:
        count = sum(SAID in message for message in caplog.messages)
        caplog.clear()
        return count

    [warning] = seqloom.data.show(path).warnings
    assert SAID in warning
    run = seqloom.fit("classifier", "train.steps=1", data=path, out=out, progress=False)
    assert told() == 1
    main(["predict", str(out), "--file", str(path)])
    assert told() == 1 and capsys.readouterr().out.startswith('"text 0 is ""fine"" here"\tneg\t')
    seqloom.evaluate(run, str(path))
    assert told() == 1
    table = tmp_path / "a.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(rows())
    assert seqloom.data.show(table).warnings == [] and seqloom.data.show(table).first[0][0] == rows()[0][0]


def test_a_quoted_tab_is_named_where_cells_do_not_add_up(tmp_path: Path):
    path = write(tmp_path / "a.tsv", [*rows("fine"), ("a\tb", "pos")])
    with pytest.raises(ValueError, match=r"a.tsv:25: 3 cells, .* quotes do not hold a tab"):
        list(seqloom.data.viewing.open_reader(path))


def test_show_names_what_training_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.tsv"
    good = "".join(f"{text}\t{label}\n" for text, label in rows("fine"))
    path.write_text(good + "x y z\t\n\tpos\n  \tneg\n a\t \nb\t\n")
    warnings = seqloom.data.show(path).warnings
    assert warnings[0] == f"training refuses {path}:25: '' is not a label; labels are non-empty text"
    assert warnings[1].startswith(f"training refuses {path}:26: an empty text")
    assert warnings[3] == "training refuses 2 more records"
    with pytest.raises(ValueError) as refused:
        seqloom.fit("classifier", "train.steps=1", data=path, out=tmp_path / "run", progress=False)
    assert str(refused.value) == warnings[0].removeprefix("training refuses ")
    main(["data", "show", str(path)])
    assert capsys.readouterr().out.count("warning: training refuses") == 4
    path.write_text(good)
    assert seqloom.data.show(path).warnings == []
    blank = tmp_path / "blank.txt"
    blank.write_text("\n\n\n")
    assert "no words: there is nothing to learn" in seqloom.data.show(blank).warnings[0]
    tagged = tmp_path / "a.jsonl"
    tagged.write_text(json.dumps({"words": ["a", "b"], "tags": ["X"]}) + "\n")
    assert "2 words and 1 tags" in seqloom.data.show(tagged).warnings[0]


def test_labels_that_differ_only_by_case_or_blanks_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "a.tsv"
    labels = ("Negative", "negative", "positive", "positive ", "other")
    path.write_text("".join(f"text number {i} is fine\t{labels[i % 5]}\n" for i in range(40)))
    [warning] = seqloom.data.show(path).warnings
    assert "differ only by case or blanks: 'Negative', 'negative'; 'positive', 'positive '" in warning
    caplog.set_level(logging.WARNING)
    seqloom.fit("classifier", "train.steps=1", data=path, out=tmp_path / "run", progress=False)
    assert warning in caplog.messages

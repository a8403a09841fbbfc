"""Headers of tables are found where they are, and only there; columns go by name or number."""

import csv
import io
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from seqloom.data import show
from seqloom.data.adapt import adapt_corpus
from seqloom.errors import DataError
from seqloom.text.corpus import Table
from seqloom.text.tables import has_header, is_header_row, label_comes_first

TEXTS = [
    "a gripping , funny film", "dull", "the plot never moves", "what a performance !", "it bores", "lovely to look at",
    "a mess from start to end", "fine", "the jokes land", "nothing works here", "one of the best", "tired and flat",
]  # fmt: skip
ROWS = [[text, "neg" if index % 2 else "pos"] for index, text in enumerate(TEXTS)]
LABELLED = ("text", "label")
CLASSIFIER = {"type": "Table", "columns": [0, 1], "kinds": list(LABELLED)}


def write(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.parametrize(
    "first",
    [
        ["text", "label"],
        ["Review", "Sentiment"],
        ["sentence", "class"],
        ["anything", "label"],
        ["opinion", "judged as"],  # a label that never occurs again, while all others do
    ],
)
def test_a_header_is_found(first):
    assert has_header([first, *ROWS], (0, 1), LABELLED)
    assert not has_header(ROWS, (0, 1), LABELLED)


@pytest.mark.parametrize(
    "rows",
    [
        [["good", "pos"], ["bad", "neg"]],  # too few to tell
        [["the text", "pos"], *ROWS],
        [["text", "pos"], *ROWS],  # the label occurs again
        [["a film that is long and dull .", "other"], *ROWS],  # a sentence is no name
        [["x", "other"], *ROWS, ["y", "third"]],  # the first label is not the only one that is rare
        [["label", "label"], *ROWS],  # names differ
        [["", "label"], *ROWS],
        [["pos"], ["neg"]],
        [["film", "1"], ["dull", "0"]],
    ],
)
def test_no_header_is_invented(rows):
    assert not has_header(rows, (0, 1), LABELLED)


def test_a_column_of_numbers_that_begins_with_a_word_has_a_header():
    numbers = [[text, str(index % 2)] for index, text in enumerate(TEXTS)]
    assert has_header([["opinion", "judged"], *numbers], (0, 1), LABELLED)
    assert has_header([["opinion", "judged"], numbers[0]], (0, 1), LABELLED)
    assert has_header(
        [["nr", "one", "other", "near"], ["1", "a", "b", "4.5"]], (1, 2, 3), ("text", "text", "number")
    )
    assert not has_header([["opinion", "judged"]], (0, 1), LABELLED)


def test_headers_of_pairs_need_names_on_both_sides():
    pairs = [["one cat", "un chat"], ["a dog", "un chien"]]
    assert has_header([["source", "target"], *pairs], (0, 1), ("text", "text"))
    assert has_header([["en", "fr"], *pairs], (0, 1), ("text", "text"))
    assert not has_header([["class", "Klasse"], *pairs], (0, 1), ("text", "text"))
    assert not has_header([["text", "texte"], *pairs], (0, 1), ("text", "text"))


def test_the_corpus_of_a_table_is_explicit(tmp_path):
    path = write(tmp_path / "reviews.tsv", [["review", "label"], *ROWS])
    adapted = adapt_corpus(CLASSIFIER, [path])
    assert adapted.tree == {**CLASSIFIER, "header": True, "header_names": ["review", "label"]}
    assert adapted.notes == ["reviews.tsv: header found: review (text), label (label)"]
    options = {key: value for key, value in adapted.tree.items() if key != "type"}
    assert list(Table([path], **options)) == [tuple(row) for row in ROWS]
    plain = write(tmp_path / "plain.tsv", ROWS)
    adapted = adapt_corpus(CLASSIFIER, [plain])
    assert adapted.tree == {**CLASSIFIER, "header": False}
    assert adapted.notes == ["plain.tsv: no header: column 0 (text), column 1 (label)"]


def test_columns_follow_the_names_of_the_header(tmp_path):
    rows = [["id", "label", "sentence"], *([str(i), label, text] for i, (text, label) in enumerate(ROWS))]
    adapted = adapt_corpus(CLASSIFIER, [write(tmp_path / "t.tsv", rows)])
    assert adapted.tree["columns"] == [2, 1]
    assert adapted.notes == ["t.tsv: header found: sentence (text), label (label)"]
    fixed = adapt_corpus(
        {**CLASSIFIER, "columns": "sentence,label"}, [tmp_path / "t.tsv"], frozenset({"columns"})
    )
    assert fixed.tree["columns"] == ["sentence", "label"] and fixed.tree["header"]
    with pytest.raises(
        ValueError, match=r"t.tsv:1: no column 'text'; the header has 'id', 'label', 'sentence'"
    ):
        adapt_corpus({**CLASSIFIER, "columns": "text,label"}, [tmp_path / "t.tsv"], frozenset({"columns"}))


def test_a_label_before_its_text_is_seen(tmp_path):
    swapped = [row[::-1] for row in ROWS]
    adapted = adapt_corpus(CLASSIFIER, [write(tmp_path / "t.tsv", swapped)])
    assert adapted.tree["columns"] == [1, 0]
    assert adapted.notes == ["t.tsv: no header: column 1 (text), column 0 (label)"]
    assert label_comes_first(swapped) and not label_comes_first(ROWS) and not label_comes_first(swapped[:5])
    kept = adapt_corpus(CLASSIFIER, [tmp_path / "t.tsv"], frozenset({"columns"}))
    assert kept.tree["columns"] == [0, 1]


def test_csv_with_quoted_header_and_cells(tmp_path):
    output = io.StringIO()
    csv.writer(output, quoting=csv.QUOTE_ALL).writerows([["Review", "Label"], *ROWS])
    path = tmp_path / "t.csv"
    path.write_text(output.getvalue(), "utf-8")
    adapted = adapt_corpus(CLASSIFIER, [path])
    assert adapted.tree["header_names"] == ["Review", "Label"]
    options = {key: value for key, value in adapted.tree.items() if key != "type"}
    assert list(Table([path], **options)) == [tuple(row) for row in ROWS]


def test_a_file_without_the_stored_header_is_read_whole(tmp_path):
    """Otherwise the first sentence of a test file, or of stdin, is lost."""
    options = {"kinds": LABELLED, "header": True, "header_names": ("review", "label")}
    plain, named = write(tmp_path / "a.tsv", ROWS), write(tmp_path / "b.tsv", [["Review", "Label"], *ROWS])
    assert list(Table([plain], **options)) == list(Table([named], **options)) == [tuple(row) for row in ROWS]
    assert list(Table([plain], header=True)) == [tuple(row) for row in ROWS[1:]]  # as before
    named_columns = {**options, "columns": ("label", "review"), "kinds": ("label", "text")}
    assert list(Table([plain], **named_columns)) == [tuple(row[::-1]) for row in ROWS]
    assert not is_header_row(["review is good"], True, ["review", "label"])


@pytest.mark.parametrize("columns", [(0, 1), (-2, -1), ("review", "label")])
@pytest.mark.parametrize(
    "header", [["label", "review"], ["id", "Review", "title", "label"], ["any thing", "label", "review"]]
)
def test_a_header_chooses_the_columns_by_the_names_of_training(
    tmp_path: Path, columns: tuple[int | str, ...], header: list[str]
) -> None:
    cells = [dict(zip(["review", "label"], row, strict=True)) for row in ROWS]
    rows = [[record.get(name.lower(), f"{name} {i}") for name in header] for i, record in enumerate(cells)]
    path = write(tmp_path / "a.tsv", [header, *rows])
    options = {"kinds": LABELLED, "header": True, "header_names": ("review", "label")}
    assert list(Table([path], columns, **options)) == [tuple(row) for row in ROWS]


@pytest.mark.parametrize(
    ("header", "missing"),
    [(["title", "label"], "review"), (["Text", "Topic"], "review"), (["review"], "label")],
)
def test_a_header_without_a_name_of_training_is_refused(
    tmp_path: Path, header: list[str], missing: str
) -> None:
    path = write(tmp_path / "a.tsv", [header, *(row[: len(header)] for row in ROWS)])
    reader = Table([path], kinds=LABELLED, header=True, header_names=("review", "label"))
    there = ", ".join(map(repr, header))
    with pytest.raises(DataError, match=f"a.tsv:1: no column '{missing}'; the header has {there}; rename"):
        list(reader)


def test_equal_and_empty_names_go_by_position(tmp_path: Path) -> None:
    names = ["", "text", "text"]
    rows = [["1", "a cat", "a dog"], ["", "b", "c"]]
    options = {"columns": (1, 2), "header": True, "header_names": names}
    assert list(Table([write(tmp_path / "a.tsv", [names, *rows])], **options)) == [
        ("a cat", "a dog"),
        ("b", "c"),
    ]
    assert list(Table([write(tmp_path / "b.tsv", rows[::-1])], **options)) == [("b", "c"), ("a cat", "a dog")]


def test_auto_detects(tmp_path):
    path = write(tmp_path / "a.tsv", [["review", "label"], *ROWS])
    assert list(Table([path], header="auto", kinds=LABELLED)) == [tuple(row) for row in ROWS]


def test_digests_of_older_configs_stay(tmp_path):
    path = write(tmp_path / "a.tsv", ROWS)
    assert Table([path]).options() == ((0, 1), ["\t"], False)
    assert Table([path], kinds=LABELLED).options() == ((0, 1), ["\t"], False, LABELLED)


def test_only_a_header_is_an_error(tmp_path):
    path = write(tmp_path / "a.tsv", [["review", "label"]])
    with pytest.raises(ValueError, match=r"a.tsv: only a header \(review, label\); give a file with records"):
        adapt_corpus(CLASSIFIER, [path])


def test_blank_texts_are_left_out_and_counted(tmp_path):
    path = write(tmp_path / "a.tsv", [["a", "b"], ["", "c"], ["d", " "], ["e", "f"]])
    reader = Table([path], drop_blank=True)
    for _ in range(2):
        assert list(reader) == [("a", "b"), ("e", "f")]
        assert reader.blanks.count == 2 and reader.blanks.first == [f"{path}:2", f"{path}:3"]
    assert len(list(Table([path]))) == 4


def test_lines_of_a_label_a_blank_and_a_text_are_answered_with_the_remedy(tmp_path: Path) -> None:
    lines = [" ".join((label, text)) for text, label in ROWS]
    path = tmp_path / "t.txt"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    with pytest.raises(
        DataError, match="a label, a blank and a text; for a classifier, put a tab between them"
    ):
        adapt_corpus(CLASSIFIER, [path])


def test_data_show_answers_labelled_lines_with_a_command_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain labels, and those of fastText; the command is run, and its table trains a classifier."""
    monkeypatch.chdir(tmp_path)
    for prefix in ("", "__label__"):
        path = tmp_path / "t.txt"
        path.write_text("".join(f"{prefix}{label} {text}\n" for text, label in ROWS), "utf-8")
        (hint,) = show(path).warnings
        command = hint.split("between them: ")[1]
        subprocess.run(command, shell=True, check=True)
        assert show(tmp_path / "t.tsv").labels == Counter(label for _, label in ROWS)
        (tmp_path / "t.tsv").unlink()


def test_data_show_does_not_take_the_first_words_of_a_text_for_labels(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("".join(f"the cat {n} sees the dog on mat {n}\n" for n in range(50)), "utf-8")
    assert show(path).warnings == []


@pytest.mark.parametrize("header", [True, False])
def test_a_table_with_more_columns_than_are_needed_is_not_guessed(header: bool, tmp_path: Path) -> None:
    """Row numbers are no text; with two texts it is not clear which is meant."""
    rows = [[str(n), f"title {n}", text, label] for n, (text, label) in enumerate(ROWS)]
    path = write(tmp_path / "a.tsv", [["id", "title", "text", "label"]] * header + rows)
    example = "text,label" if header else "2,3"
    with pytest.raises(
        DataError, match=rf"4 columns.*: which are the text and the label\?.*--columns {example}$"
    ):
        adapt_corpus(CLASSIFIER, [path])
    columns = example.split(",") if header else [2, 3]
    adapted = adapt_corpus({**CLASSIFIER, "columns": columns}, [path], frozenset(["columns"]))
    assert adapted.tree["columns"] == columns and adapted.tree["header"] is header


def test_a_text_is_not_a_table(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", [[text] for text in TEXTS])
    with pytest.raises(
        DataError, match=r"t\.txt:1: 1 column, but each record needs a text and a label; put a tab"
    ):
        adapt_corpus(CLASSIFIER, [path])

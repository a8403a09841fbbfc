"""Headers and columns of tables: whether the first row names the columns, and which columns hold the texts and the labels.

A first row is a header if its cells are well-known names (text, sentence, label …), if a column of numbers begins with a word, or if the
label in it is the only one that does not occur again; in each case its cells are short and distinct. What was decided is logged and
written into the config, so that nobody has to decide again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from seqloom.errors import DataError

FASTTEXT = "__label__"  # before each label in the files of fastText
SAMPLE_ROWS = 10_000  # rows that are looked at
FEW_ROWS = 10  # below, only names and numbers count
MAX_NAME_WORDS = 3
TEXT_NAMES = (
    *("text", "sentence", "review", "document", "content", "title", "phrase", "comment", "tweet", "message"),
    *(
        "question",
        "query",
        "body",
        "utterance",
        "headline",
        "description",
        "input",
        "prompt",
        "word",
        "words",
    ),
    *(
        "text1",
        "text2",
        "text_a",
        "text_b",
        "sentence1",
        "sentence2",
        "sentence_a",
        "sentence_b",
        "sent1",
        "sent2",
    ),
    *("premise", "hypothesis", "claim", "question1", "question2", "first", "second"),
)
SOURCE_NAMES = ("source", "src", "source_text", "input", "en", "english")
TARGET_NAMES = (
    "target",
    "tgt",
    "target_text",
    "translation",
    "output",
    "fr",
    "de",
    "es",
    "french",
    "german",
    "spanish",
)
LANGUAGES = (
    "ar",
    "cs",
    "da",
    "el",
    "fi",
    "hi",
    "hu",
    "it",
    "ja",
    "ko",
    "nl",
    "no",
    "pl",
    "pt",
    "ro",
    "ru",
    "sv",
    "tr",
    "uk",
    "zh",
)
LABEL_NAMES = (
    *(
        "label",
        "labels",
        "class",
        "category",
        "sentiment",
        "target",
        "tag",
        "gold_label",
        "topic",
        "intent",
        "y",
    ),
    *(
        "entailment_judgment",
        "entailment_label",
        "emotion",
        "language",
        "polarity",
        "answer",
        "is_duplicate",
        "verdict",
    ),
)
NUMBER_NAMES = (
    "score",
    "similarity",
    "rating",
    "stars",
    "value",
    "relatedness_score",
    "number",
    "gold",
    "label",
    "target",
)
NAMES: dict[str, tuple[str, ...]] = {  # by the kind of a field
    "text": (*TEXT_NAMES, *SOURCE_NAMES, *TARGET_NAMES, *LANGUAGES),
    "label": LABEL_NAMES,
    "number": NUMBER_NAMES,
    "document": (
        "document",
        "article",
        "text",
        "source",
        "dialogue",
        "body",
        "content",
        "description",
        "input",
    ),
    "summary": (
        "summary",
        "highlights",
        "abstract",
        "headline",
        "title",
        "target",
        "synopsis",
        "output",
        "tldr",
    ),
    "smiles": ("smiles", "molecule", "canonical_smiles", "structure", "mol"),
    "words": ("words", "tokens", "sentence", "text"),
    "tags": ("tags", "labels", "ner_tags", "pos_tags", "upos", "ner", "pos"),
    "passage": ("context", "passage", "paragraph"),
    "span": ("answers", "answer"),
}
OTHER_NAMES = ("id", "idx", "index", "pair_id", "guid", "source_id", "name", "date", "user", "split")


def normal_name(cell: str) -> str:
    """A name as it is compared: `Sentence 1` and `sentence1` are one."""
    return cell.strip().casefold().replace(" ", "_").replace("-", "_")


def is_name(cell: str, kind: str) -> bool:
    """Whether a cell is a well-known name for a column of that kind."""
    return normal_name(cell) in NAMES.get(kind, ()) or normal_name(cell).replace("_", "") in NAMES.get(
        kind, ()
    )


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def could_be_names(cells: Sequence[str]) -> bool:
    """Whether cells are short, distinct, and no numbers."""
    names = [cell.strip() for cell in cells]
    return (
        len({name.casefold() for name in names}) == len(names)
        and all(names)
        and not any(is_number(name) for name in names)
        and all(len(name.split()) <= MAX_NAME_WORDS and len(name) <= 40 for name in names)
        and not any(name.endswith((".", "!", "?")) for name in names)
    )


def has_header(rows: Sequence[Sequence[str]], columns: Sequence[int], kinds: Sequence[str]) -> bool:
    """Whether the first of these rows names the columns. `kinds` are the kinds of the fields in `columns`."""
    if not rows or not could_be_names(rows[0]):
        return False
    first, rest = rows[0], rows[1:]
    width = len(first)
    used = [(column, kind) for column, kind in zip(columns, kinds, strict=False) if -width <= column < width]
    for column, kind in used:
        if kind == "label" and any(row[column] == first[column] for row in rest if len(row) == width):
            return False  # a label like the others
    if has_known_names(first, used):
        return True
    for column in range(width):
        below = [row[column] for row in rest if len(row) == width]
        if below and all(is_number(cell) for cell in below):
            return True
    for column, kind in used:
        if kind == "label" and len(rest) >= FEW_ROWS:
            counts = Counter(row[column] for row in rest if len(row) == width)
            if min(counts.values(), default=1) > 1:
                return True
    return False


def has_known_names(first: Sequence[str], used: Sequence[tuple[int, str]]) -> bool:
    """Whether cells are well-known names: of the label or number if there is one, else of all that are used, such as the source and
    the target; or of every column of the table."""
    targets = [(column, kind) for column, kind in used if kind in ("label", "number")]
    if any(is_name(first[column], kind) for column, kind in targets):
        return True
    names = [any(is_name(cell, kind) for kind in NAMES) or normal_name(cell) in OTHER_NAMES for cell in first]
    return all(names) and len(names) > 1


def columns_by_name(first: Sequence[str], kinds: Sequence[str]) -> tuple[int, ...] | None:
    """The columns of the fields by their well-known names in a header; None if they are not clear."""
    left = list(range(len(first)))
    chosen: dict[int, int] = {}
    order = sorted(
        range(len(kinds)), key=lambda index: kinds[index] == "text"
    )  # texts last: they have the most names
    for index in order:
        named = [column for column in left if is_name(first[column], kinds[index])]
        if kinds[index] in ("label", "number") and len(named) > 1:
            exact = [column for column in named if normal_name(first[column]) in ("label", "score")]
            named = exact or named
        if not named or (kinds[index] != "text" and len(named) > 1):
            return None
        chosen[index] = named[0]
        left.remove(named[0])
    if any(is_name(first[column], "text") for column in left) and "text" in kinds:
        return None  # more texts than are needed
    return tuple(chosen[index] for index in range(len(kinds)))


def suggest_columns(rows: Sequence[Sequence[str]], names: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Columns for an example, by name or number: those that look like a text, a label or a number, the longest texts first."""
    width = len(rows[0])

    def words(column: int) -> int:
        return -sum(len(row[column].split()) for row in rows)

    guesses = {
        column: guess_kind([row[column] for row in rows], names[column] if names else "")
        for column in sorted(range(width), key=words)
    }
    chosen: list[int] = []
    for kind in kinds:
        left = [column for column in guesses if column not in chosen]
        chosen.append(next((column for column in left if guesses[column] == kind), left[-1]))
    return [names[column].strip() if names else str(column) for column in chosen]


def label_comes_first(rows: Sequence[Sequence[str]]) -> bool:
    """Whether rows of two cells are surely a label and a text, not a text and a label: few different short cells, then texts that
    hardly repeat."""
    if len(rows) < FEW_ROWS or any(len(row) != 2 for row in rows):
        return False
    first, second = ([row[column] for row in rows] for column in (0, 1))
    few = len(set(first)) <= min(50, len(rows) // 3)
    varied = len(set(second)) > len(rows) // 2
    words = [sum(len(cell.split()) for cell in cells) / len(rows) for cells in (first, second)]
    return few and varied and words[0] <= 2 and words[1] > 2 * words[0]


def labelled_lines(lines: Sequence[str], path: str | Path) -> str:
    """That lines are a label, a blank and a text, with the command that puts a tab between them; empty if they are not."""
    halves = [line.split(None, 1) for line in lines if line.strip()]
    if not all(len(half) == 2 for half in halves) or not label_comes_first(halves):
        return ""
    cut = "s/ /\\t/"
    if all(label.startswith(FASTTEXT) for label, _ in halves):
        cut = f"s/^{FASTTEXT}//; {cut}"
    path = Path(path)
    reads = f"zcat {path} | sed '{cut}'" if path.suffix == ".gz" else f"sed '{cut}' {path}"
    return f"lines of a label, a blank and a text; for a classifier, put a tab between them: {reads} > {path.stem}.tsv"


def label_words_are_texts_words(lines: Sequence[str]) -> bool:
    """Whether the first words of lines are also common inside the lines, as in any text: then they are no labels."""
    halves = [line.split(None, 1) for line in lines if line.strip()]
    labels = {half[0] for half in halves}
    inside = sum(word in labels for half in halves for word in half[1:] and half[1].split())
    return 10 * inside > len(halves)


def is_header_row(cells: Sequence[str], header: bool, header_names: Sequence[str]) -> bool:
    """Whether the first row of a file is a header, for a reader that has these options: without names every first row is; with the
    names that training saw, only a row with one of them, or of well-known names."""
    if not header or not header_names:
        return header
    names = {normal_name(name) for name in header_names} - {""}
    if any(normal_name(cell) in names for cell in cells):
        return True
    known = [any(is_name(cell, kind) for kind in NAMES) or normal_name(cell) in OTHER_NAMES for cell in cells]
    return len(cells) > 1 and all(known)


def column_numbers(columns: Sequence[int | str], names: Sequence[str], location: str) -> list[int]:
    """The numbers of columns that are given by number or by name."""
    numbers = []
    known = [normal_name(name) for name in names]
    for column in columns:
        if isinstance(column, int):
            numbers.append(column)
        elif normal_name(column) in known:
            numbers.append(known.index(normal_name(column)))
        else:
            there = ", ".join(map(repr, names)) or "no names"
            raise DataError(f"{location}: no column {column!r}; the header has {there}")
    return numbers


def file_columns(
    columns: Sequence[int | str],
    cells: Sequence[str],
    is_header: bool,
    header_names: Sequence[str],
    location: str,
) -> list[int]:
    """The numbers of the columns in a file whose first row has these cells. If that row is a header, they go by the names that
    training saw (`header_names`), and a missing name is an error; without a header they go by position."""
    if not is_header or not header_names:
        return column_numbers(columns, cells if is_header else header_names, location)
    if list(map(normal_name, cells)) == list(map(normal_name, header_names)):
        return column_numbers(columns, header_names, location)
    width = len(header_names)
    named = [
        header_names[column].strip() if isinstance(column, int) and -width <= column < width else column
        for column in columns
    ]
    try:
        return column_numbers(named, cells, location)
    except DataError as error:
        raise DataError(
            f"{error}; rename the column that holds it, or delete the header to go by position"
        ) from None


def guess_kind(cells: Sequence[str], name: str = "") -> str:
    """What a column seems to hold: text, label, number, or other, such as the numbers of the rows. `name` is its header."""
    if normal_name(name) in OTHER_NAMES:
        return "other"
    distinct = len(set(cells))
    few = distinct <= max(2, min(100, len(cells) // 3)) and len(cells) > distinct
    words = sum(len(cell.split()) for cell in cells) / max(len(cells), 1)
    if is_name(name, "label") and few:
        return "label"
    if normal_name(name) in TEXT_NAMES:
        return "text"
    if cells and all(is_number(cell) for cell in cells):
        whole = all(cell.strip().lstrip("-").isdigit() for cell in cells)
        return "label" if few and whole else "other" if whole and distinct == len(cells) else "number"
    return "label" if few and words <= 2 and len(cells) >= 4 else "text"

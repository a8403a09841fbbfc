"""Makes the corpus of a config fit the files it is given: their form, their header, their columns or fields.

A preset names the kinds of its fields, such as a text and a label; whether they come as a table, as JSON Lines or as columns is seen in
the file. The result is explicit: a config that went through here needs no second look at the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.data.options import as_list, kinds_of
from seqloom.errors import DataError
from seqloom.text import tables
from seqloom.text.corpus import table_rows, table_separator
from seqloom.text.encoder import TEXTS
from seqloom.text.formats import CHAT_FORMS, FORMATS, MEDIA_FORMS, OLD_NAMES, detect_format
from seqloom.text.lines import first_lines, starts_with
from seqloom.text.quoted_cells import row_remedy

PAIRS = (("text", "text"), ("document", "summary"))
SENTENCES = ("words", "tags")
QUESTIONS = ("text", "passage", "span")
TABLE_KINDS = {*TEXTS, "label", "number", "words", "tags"}


class AdaptedCorpus(NamedTuple):
    """The section `corpus` of a config, the kinds of its fields, and what was found, in sentences for the log."""

    tree: dict[str, Any]
    kinds: tuple[str, ...]
    notes: list[str]


def adapt_corpus(
    tree: dict[str, Any], paths: Sequence[str | Path], fixed: frozenset[str] = frozenset()
) -> AdaptedCorpus:
    """The corpus for these files. `fixed` are the options that the user gave, which stay: type, columns, header, fields."""
    kinds = kinds_of(tree)
    tree = dict(tree)
    if "type" not in fixed:
        columns = tree.get("columns")
        tree = change_form(tree, kinds, paths)
        if "columns" in fixed and tree["type"] == "JSONLines":
            tree["fields"] = [str(column) for column in as_list(columns)]
            fixed |= {"fields"}
    notes: list[str] = []
    if tree["type"] == "Speech":
        notes = set_features(tree, paths)
    if tree["type"] == "Table":
        tree["columns"] = as_list(tree.get("columns", [0, 1]))
        notes = [set_header(tree, kinds, paths[0], fixed)]
    elif tree["type"] == "JSONLines" and "fields" not in fixed:
        fields = field_names(paths[0], kinds)
        if fields != tree.get("fields", ["text"]):
            named = ", ".join(f"{name} ({kind})" for name, kind in zip(fields, kinds, strict=True))
            notes = [f"{Path(paths[0]).name}: JSON Lines, {named}"]
        tree["fields"] = fields
    if kinds in PAIRS and tree["type"] in ("Parallel", "Table", "JSONLines"):
        tree.setdefault("drop_blank", True)
    return AdaptedCorpus(tree, kinds, notes)


def change_form(tree: dict[str, Any], kinds: tuple[str, ...], paths: Sequence[str | Path]) -> dict[str, Any]:
    """The corpus with the reader of the files' form, if it can give the same fields; raises if it surely cannot."""
    present = OLD_NAMES[tree["type"]]
    if present in (*CHAT_FORMS, *MEDIA_FORMS):
        return tree  # its reader reads every form of them
    found = detect_format(paths)
    if found in CHAT_FORMS:
        found = "jsonl" if starts_with(paths[0]) == "{" else "text"
    if found == present or found in ("text", "lines") or (kinds == ("text",) and found != "jsonl"):
        return tree  # text is read as it is, whatever it looks like
    possible = {
        "pairs": kinds in PAIRS,
        "table": set(kinds) <= TABLE_KINDS and present != "dictionary",
        "jsonl": present != "dictionary",
        "conllu": kinds == SENTENCES,
        "conll": kinds == SENTENCES,
        "squad": kinds == QUESTIONS,
        "dictionary": False,
        "binarized": kinds == ("text", "text"),
    }
    if not possible[found]:
        if present == "dictionary" and found == "table":
            return tree  # a dictionary may separate words and phonemes with tabs
        raise DataError(
            f"{paths[0]}: {FORMATS[found].holds}, but records of {' and '.join(kinds)} are needed; "
            "give other files, or a preset that reads them"
        )
    changed: dict[str, Any] = {"type": FORMATS[found].reader}
    if found == "table":
        changed["columns"] = list(range(len(kinds)))
    if found in ("table", "jsonl") or kinds == ("document", "summary"):
        changed["kinds"] = list(kinds)
    return changed


def set_features(tree: dict[str, Any], paths: Sequence[str | Path]) -> list[str]:
    """Writes the size of ready features into the corpus, if the files hold some, and says so."""
    from seqloom.text.speech import is_array, ready_bins

    arrays = [path for path in paths if is_array(path)]
    if not arrays:
        return []
    bins = ready_bins(str(arrays[0]))
    tree.update(features="ready", bins=bins)
    return [f"{Path(arrays[0]).name}: ready features, {bins} numbers a frame"]


def set_header(tree: dict[str, Any], kinds: Sequence[str], path: str | Path, fixed: frozenset[str]) -> str:
    """Decides header and columns of a table, writes them into the corpus, and says what was decided."""
    separator = tree.get("separator") or table_separator(path)
    numbered = list(islice(table_rows(path, separator), tables.SAMPLE_ROWS))
    if not numbered:
        raise DataError(f"{path}: no records; give a file with text")
    rows = [cells for _, cells in numbered]
    first = rows[0]
    one_column = tuple(kinds) == ("text", "label") and len(first) == 1 and separator == "\t"
    if one_column and (remedy := tables.labelled_lines([cells[0] for cells in rows], path)):
        raise DataError(f"{path}: {remedy}")
    for number, cells in numbered:
        if len(cells) != len(first):
            remedy = row_remedy(cells, separator)
            raise DataError(
                f"{path}:{number}: {len(cells)} cells, but the first row has {len(first)}; {remedy}"
            )
    columns = tree["columns"]
    numbers = [column if isinstance(column, int) else 0 for column in columns]
    if any(isinstance(column, str) for column in columns):
        header = True
    elif isinstance(tree.get("header"), bool):
        header = tree["header"]
    else:
        header = tables.has_header(rows, numbers, kinds)
    tree["header"] = header
    tree.pop("header_names", None)
    body = rows[1:] if header else rows
    if not body:
        raise DataError(f"{path}: only a header ({', '.join(first)}); give a file with records")
    if "columns" not in fixed:
        if header and (named := tables.columns_by_name(first, kinds)) is not None:
            tree["columns"] = list(named)
        elif tuple(kinds) == ("text", "label") and tables.label_comes_first(body):
            tree["columns"] = [1, 0]
        elif len(first) > len(kinds) and (header or not fits(body, tree["columns"])):
            raise DataError(unclear_columns(path, body, first if header else (), kinds))
        elif len(first) < len(kinds):
            raise DataError(
                f"{path}:1: {len(first)} column{'' if len(first) == 1 else 's'}, but each record needs a {' and a '.join(kinds)}; "
                "put a tab between them, or choose a preset that reads such a file"
            )
    if header:
        tree["header_names"] = list(first)
        tables.column_numbers(tree["columns"], first, f"{path}:1")  # raises for a wrong name
    return table_note(tree, kinds, path, first)


def fits(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> bool:
    """Whether no column is one that numbers the rows."""
    return all(tables.guess_kind([row[column] for row in rows]) != "other" for column in columns)


def unclear_columns(
    path: str | Path, rows: Sequence[Sequence[str]], names: Sequence[str], kinds: Sequence[str]
) -> str:
    """That a table has more columns than are needed, and how to choose among them."""
    listed = f" ({', '.join(name.strip() for name in names)})" if names else ""
    example = ",".join(tables.suggest_columns(rows, names, kinds))
    return (
        f"{path}:1: {len(rows[0])} columns{listed}: which are the {' and the '.join(kinds)}? "
        f"Name them, as in --columns {example}"
    )


def table_note(tree: dict[str, Any], kinds: Sequence[str], path: str | Path, first: Sequence[str]) -> str:
    """What was decided about a table, in one line."""

    def name(column: int | str) -> str:
        if isinstance(column, str):
            return column
        inside = tree["header"] and -len(first) <= column < len(first)
        return first[column].strip() if inside else f"column {column}"

    named = ", ".join(
        f"{name(column)} ({kind})" for column, kind in zip(tree["columns"], kinds, strict=False)
    )
    return f"{Path(path).name}: {'header found' if tree['header'] else 'no header'}: {named}"


def field_names(path: str | Path, kinds: Sequence[str]) -> list[str]:
    """The names of the JSON fields of these kinds, by the first object of a file."""
    first = next((line for line in first_lines(path, 100) if line.strip()), "")
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise DataError(f"{path}:1: not JSON Lines; write one object per line")
    names = list(record)
    columns = tables.columns_by_name(names, kinds)
    if columns is not None:
        return [names[column] for column in columns]
    texts = [name for name in names if isinstance(record[name], str)]
    if set(kinds) <= set(TEXTS) and len(texts) == len(kinds):
        return texts
    targets = [kind for kind in kinds if kind not in TEXTS]
    named = [name for name in names if any(tables.is_name(name, kind) for kind in targets)]
    others = [name for name in texts if name not in named]
    if len(targets) == 1 == len(named) and len(others) == len(kinds) - 1:
        left = iter(others)
        return [next(left) if kind in TEXTS else named[0] for kind in kinds]
    there = ", ".join(map(repr, names)) or "none"
    raise DataError(
        f"{path}:1: which fields are {' and '.join(kinds)}? The fields are {there}; name them, "
        f"as in corpus.columns={','.join(names[: len(kinds)]) or 'text'}"
    )

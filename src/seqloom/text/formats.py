"""The forms of data files by name, and how the form of a file is recognised.

    text         running text
    lines        one text a line
    pairs        two parallel files, source and target
    table        TSV or CSV
    jsonl        one JSON object a line
    conllu       CoNLL-U sentences
    conll        a word and its tag a line, a blank line after each sentence
    squad        questions on passages, as in SQuAD
    dictionary   a word and its phonemes a line
    chats        dialogues: OpenAI's messages, ShareGPT, Alpaca's instructions, plain turns
    preferences  a prompt, a chosen and a rejected answer
    judged       an answer to a prompt or a chat, and whether it is good
    prompts      chats, preferences, or one question a line: what comes before the last answer, and that answer
    pictures     a list of pictures with captions or labels: a table, JSON Lines, a COCO file, a folder, a zip
    recordings   a table of sound files and their texts or labels, or ready features beside one
    binarized    two .bin files of fairseq-preprocess, with their .idx files and dictionaries

The suffix of a file decides its form; `.gz` and `.zst` are looked through. Other files are recognised by their first lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from seqloom.errors import DataError
from seqloom.text.corpus import Reader
from seqloom.text.lines import first_lines, lines, strip_compression

SAMPLE_LINES = 50  # lines that are looked at
PHONEMES = re.compile(r"\S+ +(\d+ +)?[A-Z]{1,2}[0-2]?( [A-Z]{1,2}[0-2]?)*( *#.*)?")
STRESS = re.compile(r" [A-Z]{2}[0-2]\b")  # of a vowel
SQUAD_START = re.compile(r'\s*\{\s*("version"\s*:\s*("[^"]*"|[\d.]+)\s*,\s*)?"data"\s*:\s*\[')


class Format(NamedTuple):
    """A form of data files: its reader, the kinds of its fields, the suffixes that mean it, and what it holds in a few words."""

    reader: str  # the class, as configs name it
    module: str  # where it is defined
    kinds: tuple[str, ...]
    suffixes: tuple[str, ...]
    holds: str

    @property
    def reader_class(self) -> type[Reader]:
        """The reader, whose module is imported now."""
        return getattr(import_module(f"seqloom.text.{self.module}"), self.reader)


TEXT, PAIR, TAGGED = ("text",), ("text", "text"), ("words", "tags")
FORMATS: dict[str, Format] = {
    "text": Format("Text", "corpus", TEXT, (), "running text"),
    "lines": Format("Lines", "corpus", TEXT, (), "one text a line"),
    "pairs": Format("Parallel", "corpus", PAIR, (), "two parallel files"),
    "table": Format("Table", "corpus", TEXT, (".tsv", ".csv"), "a table of texts"),
    "jsonl": Format("JSONLines", "corpus", TEXT, (".jsonl", ".ndjson"), "JSON Lines"),
    "conllu": Format("CoNLLU", "annotated", TAGGED, (".conllu",), "CoNLL-U sentences"),
    "conll": Format(
        "Columns", "annotated", TAGGED, (".conll", ".bio", ".iob", ".iob2"), "a word and its tag a line"
    ),
    "squad": Format("SQuAD", "annotated", ("text", "passage", "span"), (), "questions on passages"),
    "dictionary": Format("Dictionary", "dictionary", PAIR, (".dict",), "a word and its phonemes a line"),
    "chats": Format("Chats", "chats", ("chat",), (), "dialogues"),
    "preferences": Format(
        "Preferences", "chats", ("answer", "answer"), (), "preferences between two answers"
    ),
    "judged": Format("Judged", "chats", ("answer", "label"), (), "judged answers"),
    "prompts": Format("Prompts", "chats", ("prompt", "text"), (), "prompts, with or without an answer"),
    "pictures": Format("Pictures", "pictures", ("image", "captions"), (), "pictures with captions or labels"),
    "recordings": Format("Speech", "speech", ("audio", "text"), (), "recordings with texts or labels"),
    "binarized": Format("Binarized", "vocab_files", PAIR, (".bin", ".idx"), "binarised pairs"),
}
MEDIA_FORMS = ("pictures", "recordings")
CHAT_FORMS = ("chats", "preferences", "judged", "prompts")
OLD_NAMES = {form.reader: name for name, form in FORMATS.items()}  # as configs name the readers


def format_of(reader: type[Reader]) -> str:
    """The name of the form that a reader reads."""
    return OLD_NAMES[reader.__name__]


def check_format(name: str) -> str:
    """The name of a form, `auto` included; the name of its reader is accepted too."""
    name = OLD_NAMES.get(name, name)
    if name != "auto" and name not in FORMATS:
        raise DataError(f"{name!r} is not a form of a file; choose from auto, {', '.join(FORMATS)}")
    return name


def detect_format(paths: Sequence[str | Path]) -> str:
    """The name of the form of the files."""
    if len(paths) == 2 and detect_file_format(paths[0]) == "text" == detect_file_format(paths[1]):
        names = [strip_compression(path) for path in paths]
        if names[0].suffix != names[1].suffix or count_lines(paths[0]) == count_lines(paths[1]):
            return "pairs"
    return detect_file_format(paths[0])


def detect_file_format(path: str | Path) -> str:
    """The name of the form of one file; `text` if it is none of the others."""
    suffix = strip_compression(path).suffix.lower()
    for name, form in FORMATS.items():
        if suffix in form.suffixes:
            head = first_lines(path, SAMPLE_LINES) if name == "jsonl" else []
            return detect_chats("\n".join(head)) or name
    return detect_lines(first_lines(path, SAMPLE_LINES))


def detect_lines(head: Sequence[str]) -> str:
    """The name of the form of a file that begins with these lines."""
    rows = [line for line in head if line.strip()]
    if not rows:
        return "text"
    if SQUAD_START.match("\n".join(rows)):
        return "squad"
    if form := detect_chats("\n".join(head)):
        return form
    if rows[0].lstrip().startswith("{") and is_object(rows[0]):
        return "jsonl"
    words = [row for row in rows if not row.startswith("#")]
    if words and all(is_conllu(row) for row in words):
        return "conllu"
    entries = [row for row in rows if not row.startswith(";;;")]
    if STRESS.search("\n".join(entries)) and all(PHONEMES.fullmatch(row.rstrip()) for row in entries):
        return "dictionary"
    if is_columns(head):
        return "conll"
    if len({row.count("\t") for row in rows}) == 1 and "\t" in rows[0]:
        return "table"
    return "text"


def detect_chats(head: str) -> str | None:
    """The form of chats that a file begins with, by the fields of its first object or by its first turns; None if it has none."""
    from seqloom.text.chat_records import ANSWER_KEYS, CHAT_KEYS, is_turns

    start = head.lstrip()
    if start.startswith("["):
        start = start[1:].lstrip()
    elif not start.startswith("{"):
        lines = [line for line in head.split("\n") if line.strip()]
        return "chats" if len(lines) > 1 and all(is_turns(line) for line in lines[:2]) else None
    try:
        first, _ = json.JSONDecoder().raw_decode(start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(first, dict):
        return None
    if {"chosen", "rejected"} <= set(first) or {"preferred_output", "non_preferred_output"} <= set(first):
        return "preferences"
    talks = any(isinstance(first.get(key), list) for key in CHAT_KEYS)
    if "completion" in first and "label" in first and (talks or "prompt" in first):
        return "judged"
    instructs = "instruction" in first and any(key in first for key in ANSWER_KEYS)
    return "chats" if talks or instructs or {"prompt", "completion"} <= set(first) else None


def is_object(line: str) -> bool:
    """Whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def is_conllu(row: str) -> bool:
    """Whether a line is a row of CoNLL-U."""
    from seqloom.text import annotated

    cells = row.split("\t")
    return len(cells) == len(annotated.FIELDS) and annotated.id_type(cells[0]) is not None


def is_columns(head: Sequence[str]) -> bool:
    """Whether lines are words with tags: rows of equally many short cells, several sentences between blank lines."""
    from seqloom.text import annotated

    groups = list(annotated.sentences(head))
    rows = [annotated.split(row) for _, group in groups for row in group if not row.startswith("-DOCSTART-")]
    widths = {len(cells) for cells in rows}
    if len(groups) < 2 or len(rows) < 4 or len(widths) != 1 or widths == {1}:
        return False
    tags = {cells[-1] for cells in rows}
    return len(tags) <= (len(rows) + 1) // 2 and not any(" " in cell for cells in rows for cell in cells)


def count_lines(path: str | Path) -> int:
    """The number of lines of a file."""
    return sum(1 for _ in lines(path))

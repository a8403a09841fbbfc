"""Finds quotes of CSV in tables with tabs, where quotes have no meaning: they would stay in the texts and labels.

A program that writes CSV puts a cell with a quote, a tab or a newline in it, or every cell, between quotes, and doubles the quotes inside. A
cell that only begins and ends with a quote is a quotation, as texts have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from seqloom.text.lines import lines

SAMPLE_LINES = 200_000  # of each file
REMEDY = "write the table with commas as .csv, where quotes are read, or without quotes"


def is_between_quotes(cell: str) -> bool:
    """Whether a cell is written as in CSV, between quotes, with doubled quotes inside."""
    return len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")


def has_quoted_cells(cells: Sequence[str]) -> bool:
    """Whether a row is surely quoted as CSV: a quoted cell has doubled quotes in it, or all cells are quoted."""
    quoted = [cell for cell in cells if is_between_quotes(cell)]
    return any('""' in cell[1:-1] for cell in quoted) or len(quoted) == len(cells) > 1


def quotes_warning(path: str | Path) -> str:
    """What to say of a table with tabs that is quoted as CSV; empty if it is not."""
    count, first = 0, 0
    for number, line in islice(enumerate(lines(path), 1), SAMPLE_LINES):
        if '"' in line and has_quoted_cells(line.split("\t")):
            count += 1
            first = first or number
    if not count:
        return ""
    rows = "1 row" if count == 1 else f"{count:,} rows"
    return f"{path}:{first}: {rows} with cells between quotes, which stay in the text: in a table with tabs they have no meaning; {REMEDY}"


def row_remedy(cells: Sequence[str], separator: str) -> str:
    """What to do about a row with the wrong number of cells."""
    if separator == "\t" and any(cell[:1] == '"' or cell[-1:] == '"' for cell in cells):
        return f"quotes do not hold a tab or a newline in a table with tabs: {REMEDY}"
    return "repair the row"

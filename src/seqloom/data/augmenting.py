"""More records from those that are there: the molecules of a table, written in other ways."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from seqloom.errors import DataError, UserError
from seqloom.files import write_atomic
from seqloom.results import Result
from seqloom.text.corpus import table_rows, table_separator
from seqloom.text.smiles import random_smiles
from seqloom.text.tables import column_numbers, has_header, is_name


@dataclass(frozen=True)
class AugmentedTable(Result):
    """The table that was written, and how many molecules and rows it has."""

    file: Path
    molecules: int
    rows: int

    def lines(self) -> list[str]:
        """The result in one line."""
        return [f"{self.file}: {self.rows:,} rows for {self.molecules:,} molecules"]


def augment(
    file: str | Path, out: str | Path, *, copies: int = 10, column: int | str | None = None, seed: int = 0
) -> AugmentedTable:
    """Writes a table in which each molecule is followed by up to `copies` random SMILES of it, with the other cells of its row.

    Needs rdkit. Row i has the same copies for the same seed. Augment the training file only, and hold out other files: the copies of one
    molecule must not be on both sides of a split.

    >>> seqloom.data.augment("solubility.tsv", "more.tsv", copies=0)
    Traceback (most recent call last):
    seqloom.errors.UserError: --copies 0: give at least 1
    """
    if copies < 1:
        raise UserError(f"--copies {copies}: give at least 1")
    if Path(out).exists():
        raise UserError(f"{out}: the file exists; give another name, or remove it")
    separator = table_separator(file)
    rows = list(table_rows(file, separator))
    if not rows:
        raise DataError(f"{file}: no records; give a table of SMILES and values")
    cells = [row for _, row in rows]
    kinds = ["smiles", *["number"] * (len(cells[0]) - 1)]
    header = isinstance(column, str) or has_header(cells, range(len(cells[0])), kinds)
    index = smiles_column(cells[0] if header else [], column, f"{file}:1")
    if not -len(cells[0]) <= index < len(cells[0]):
        raise DataError(f"{file}:1: no column {index} among {len(cells[0])}; count from 0")
    buffer = io.StringIO()
    write_row = (
        (lambda row: buffer.write("\t".join(row) + "\n"))
        if separator == "\t"
        else csv.writer(buffer, delimiter=separator, lineterminator="\n").writerow
    )
    count = 0
    if header:
        write_row(cells[0])
    for number, row in rows[header:]:
        location = f"{file}:{number}"
        if len(row) != len(cells[0]):
            raise DataError(
                f"{location}: {len(row)} cells, but the first row has {len(cells[0])}; repair the row"
            )
        for smiles in [row[index].strip(), *random_smiles(row[index], copies, seed + number, location)]:
            write_row([smiles if place == index % len(row) else cell for place, cell in enumerate(row)])
            count += 1
    write_atomic(Path(out), buffer.getvalue())
    return AugmentedTable(Path(out), len(rows) - header, count)


def smiles_column(names: list[str], column: int | str | None, location: str) -> int:
    """The column of the molecules: the one that is given, the one with a well-known name, or the first."""
    if column is not None:
        return column_numbers([column], names, location)[0]
    return next((index for index, name in enumerate(names) if is_name(name, "smiles")), 0)

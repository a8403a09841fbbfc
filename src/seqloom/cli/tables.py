"""Tables and short numbers for the terminal."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines with aligned columns; the first `left` columns are flush left, the others flush right."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]


def short_number(number: float) -> str:
    """Three digits and a unit: 1,702,528 is 1.7M."""
    return scaled(number, ("", "k", "M", "B", "T"))


def short_bytes(number: float) -> str:
    """Three digits and a unit: 27,240,448 is 27.2 MB."""
    return scaled(number, (" B", " kB", " MB", " GB", " TB"))


def scaled(number: float, units: Sequence[str]) -> str:
    for unit in units[:-1]:
        if abs(number) < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}{units[-1]}"

"""The objects of a JSON Lines file, or the items of a JSON array, streamed: one item in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqloom.errors import DataError
from seqloom.text.lines import blocks, lines, starts_with

SPACE = " \n\r\t"
MAX_ITEM = 64 << 20  # characters of one item of an array


def json_items(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yields (location, item) of each line of JSON Lines, or of each item of an array."""
    return array_items(path) if starts_with(path) == "[" else line_items(path)


def line_items(path: str | Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(lines(path), 1):
        if line.strip():
            location = f"{path}:{number}"
            try:
                yield location, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{location}: not JSON ({error}); write one object per line") from None


def array_items(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yields the items of an array; the location is their number."""
    stream = blocks(path)
    decoder = json.JSONDecoder()
    text = ""
    position = 0
    number = 0
    expected = "["
    while True:
        while position < len(text) and text[position] in SPACE:
            position += 1
        if position < len(text) and expected != "item":
            if text[position] == "]" and expected == ",":
                return
            if text[position] != expected:
                raise DataError(
                    f"{path}: item {number + 1}: {expected!r} is missing before it; correct the JSON"
                )
            position += 1
            expected = "item"
            continue
        if position < len(text) and text[position] == "]" and number == 0:
            return
        item: Any = None
        end = len(text)
        if position < len(text):
            try:
                item, end = decoder.raw_decode(text, position)
            except (ValueError, RecursionError):
                end = len(text)
        if end < len(text):  # a number may go on in the next block
            number += 1
            yield f"{path}: item {number}", item
            position = end
            expected = ","
            continue
        block = next(stream, None)
        if block is None or len(text) - position > MAX_ITEM:
            raise DataError(f"{path}: item {number + 1}: not JSON, or the file ends inside it; correct it")
        text = text[position:] + block
        position = 0

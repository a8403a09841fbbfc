"""Records are held out by a hash of what a model reads of them.

Equal inputs are on the same side, whatever their targets, so that no model is measured on what it has learnt by heart; the order of the
file does not matter, nor does the tokenizer. If records have one label each, every label gives its share (stratification).

The hash is the first eight bytes of a SHA-256, read as a fraction from 0 to 1. Without labels a record is held out if its fraction is
below the share, so that a record stays on its side when the file grows; with labels, each label gives the records with the smallest
fractions.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.errors import DataError
from seqloom.files import open_atomic
from seqloom.text.corpus import Reader
from seqloom.text.encoder import TEXTS

logger = logging.getLogger("seqloom.text")
BLOCK = 1 << 14  # records that are hashed at a time
INPUTS = (*TEXTS, "words", "passage", "chat", "answer", "prompt", "image", "audio")


def key_fields(kinds: Sequence[str]) -> list[int]:
    """The fields whose content decides the side of a record: what the model reads. Of a pair that is the source; of a question
    with a passage, the passage, since questions on one passage are alike; of a chat, its prompt."""
    if "passage" in kinds:
        return [kinds.index("passage")]
    inputs = [index for index, kind in enumerate(kinds) if kind in INPUTS]
    return inputs if len(inputs) < len(kinds) else inputs[:1]


def record_key(values: Sequence[Any]) -> bytes:
    """Eight bytes of the SHA-256 of the values. One text is hashed as it is."""
    texts = [input_text(value) for value in values]
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()[:8]


def input_text(value: Any) -> str:
    """A field that a model reads as one text: words joined by spaces, the prompt of a chat as its turns."""
    if isinstance(value, str):
        return value
    if hasattr(value, "key"):  # a picture or a sound
        return value.key()
    if value and not isinstance(value[0], str):
        from seqloom.text.chat_records import parse_messages, prompt_of

        if isinstance(value[0], dict):  # a chat of Python's caller
            value = parse_messages("the chat", value)
        return "\n".join(f"{message.role}: {message.content}" for message in prompt_of(value))
    return " ".join(value)


def record_keys(reader: Reader, folder: Path | None = None) -> np.ndarray:
    """The key of each record of a reader, (n,) uint64. They are stored in the cache `folder`, if one is given."""
    path = folder / f"keys-{reader.digest()[:32]}.npy" if folder else None
    if path and path.exists():
        return np.load(path)
    fields = key_fields(reader.kinds)
    blocks: list[np.ndarray] = []
    keys: list[bytes] = []
    for record in reader:
        keys.append(record_key([record[index] for index in fields]))
        if len(keys) == BLOCK:
            blocks.append(np.frombuffer(b"".join(keys), ">u8"))
            keys = []
    blocks.append(np.frombuffer(b"".join(keys), ">u8"))
    joined = np.concatenate(blocks).astype(np.uint64)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path, 0o600) as file:
            np.save(file, joined)
    return joined


def assign_sides(keys: np.ndarray, shares: Sequence[float], strata: np.ndarray | None = None) -> np.ndarray:
    """The side of each record, (n,) uint8: 0 for training, k for the k-th share. Equal keys are on one side.

    `strata` (n,) are label numbers. Every side gets at least one record. Where there are fewer different records than sides, the last
    ones are held out, with a warning.
    """
    if not all(0 < share < 1 for share in shares) or sum(shares) >= 1:
        given = " and ".join(map(str, shares))
        raise DataError(f"a held-out share of {given} is not between 0 and 1; give for example 0.1")
    distinct, first, group, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    if len(distinct) <= len(shares):
        return sides_by_position(len(keys), len(distinct), shares)
    if strata is None:
        sides = sides_by_threshold(distinct, shares)
    else:
        sides = sides_by_rank(counts, strata[first], shares)
    for side in range(len(shares) + 1):  # few records: the one with the smallest key that its side can spare
        if not (sides == side).any():
            spare = np.flatnonzero(np.bincount(sides, minlength=len(shares) + 1)[sides] > 1)
            sides[spare[0]] = side
    return sides[group]


def sides_by_position(count: int, distinct: int, shares: Sequence[float]) -> np.ndarray:
    """The side of each of `count` records that are nearly all equal: the last are held out."""
    if count <= len(shares):
        what = "one record" if count == 1 else f"{count} records"
        raise DataError(f"{what} cannot be split; give more data, or a file for validation with --valid")
    logger.warning(
        "only %d of %s records differ: equal ones are held out, so what is measured on them says little",
        distinct,
        f"{count:,}",
    )
    sides = np.zeros(count, np.uint8)
    sizes = [max(1, round(share * count)) for share in shares]
    for side, (size, end) in enumerate(zip(sizes, count - np.cumsum([0, *sizes[:-1]]), strict=True), 1):
        sides[max(end - size, 1) : end] = side
    return sides


def sides_by_threshold(keys: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """The side of each key, by its fraction of the largest key."""
    limits = np.cumsum(shares)
    sides = np.searchsorted(limits, keys / 2.0**64, side="right") + 1
    return np.where(sides > len(shares), 0, sides).astype(np.uint8)


def sides_by_rank(counts: np.ndarray, strata: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """The side of each group of records, sorted by key: of each stratum the first groups, up to its shares.

    Rounding is carried from one stratum to the next, so that many small strata together give their share. At least one group of
    each stratum is left for training.
    """
    order = np.argsort(strata, kind="stable")
    sizes = counts[order]
    ends = np.cumsum(sizes)
    last = np.flatnonzero(np.diff(strata[order], append=-1))  # the last group of each stratum
    totals = np.diff(ends[last], prepend=0)
    group_stratum = np.repeat(np.arange(len(last)), np.diff(last, prepend=-1))
    middle = (
        ends - sizes / 2 - (ends[last] - totals)[group_stratum]
    )  # of each group, counted within its stratum
    sides = np.zeros(len(order), np.uint8)
    for side in range(len(shares), 0, -1):
        limits = np.round(np.cumsum(totals) * sum(shares[:side])) - np.round(
            (np.cumsum(totals) - totals) * sum(shares[:side])
        )
        sides[middle < limits[group_stratum]] = side
    sides[last] = 0
    result = np.empty_like(sides)
    result[order] = sides
    return result

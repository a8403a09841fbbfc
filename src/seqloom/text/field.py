"""The base class of the fields of a record, the field of one text, and helpers that they share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.text.corpus import is_valid_unicode
from seqloom.text.encoder import Encoded, RecordEncoder, utf8_lengths
from seqloom.text.special_tokens import special_tokens

TEXTS = ("text", "smiles", "document", "summary")  # kinds whose column is the ids of one text


class Field:
    """Encodes the values of one field as columns. `names`
    are the names of the columns, `dtypes` their types."""

    names: tuple[str, ...]
    dtypes: tuple[np.dtype, ...]
    is_input: ClassVar[bool] = True  # whether a model reads the field; otherwise a model predicts it
    names_labels: ClassVar[bool] = False  # whether values name labels
    template: str | None = None  # how chats become text, if values are chats

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool, labels: dict[str, int]):
        self.tokenizer = tokenizer
        self.labels = labels
        specials = special_tokens(tokenizer)
        self.unk_id = specials.eos if specials.unk is None else specials.unk

    @classmethod
    def labels_in(cls, value: Any, location: str) -> list[str]:
        """Returns the labels that a value names."""
        return []

    def check(self, value: Any, location: str) -> Any:
        """Returns the value in the form that `encode` takes; raises
        an error that names the location if it is invalid."""
        return value

    def encode(self, values: list) -> list[Encoded]:
        """Encodes the values of this field in many records, column by column."""
        raise NotImplementedError


class TextField(Field):
    """A string, as ids."""

    names: tuple[str, ...] = ("text",)

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool, labels: dict[str, int]):
        super().__init__(tokenizer, adds_eos, labels)
        self.encoder = RecordEncoder(tokenizer, adds_eos)
        self.dtypes = (self.encoder.dtype,)

    def check(self, value: Any, location: str) -> str:
        if not isinstance(value, str):
            raise DataError(f"{location}: a {type(value).__name__} instead of text; use another reader")
        return check_unicode(value, location)

    def encode(self, values: list[str]) -> list[Encoded]:
        return [(*self.encoder(values), utf8_lengths(values))]


def check_unicode(text: str, location: str) -> str:
    """Returns the text; raises if UTF-8 cannot encode it."""
    if not is_valid_unicode(text):
        raise DataError(f"{location}: half a surrogate pair in the text; write the complete character")
    return text


def integers(values: Iterable[int]) -> np.ndarray:
    """Returns the values as an int64 array."""
    return np.array(list(values), np.int64)


def preview(labels: Iterable[str]) -> str:
    """Returns the first few labels, for an error message."""
    names = list(labels)
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")

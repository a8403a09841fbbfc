"""What a caller gives as a text, or as texts: checked once, with the same words in every function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqloom.errors import DataError
from seqloom.text.encoder import check_unicode


def check_text(text: object, what: str = "the text") -> str:
    """The text; raises if it is something else, is empty, or cannot be written as UTF-8."""
    found = check_str(text, what)
    if not found.strip():
        raise DataError(f"{what} is empty; give one with at least one word")
    return check_unicode(found, what)


def check_target(target: object, what: str = "the target") -> str | None:
    """The text that a model is asked for, which may be empty; None is the model's own."""
    return None if target is None else check_unicode(check_str(target, what), what)


def check_str(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise DataError(f"{what} is {a_type(text)}; give one text, as a str")
    return text


def check_texts(texts: object, least: int = 1) -> Sequence[str]:
    """The texts; raises if they are something else than a list, a tuple or an array of so many texts."""
    if isinstance(texts, np.ndarray) and texts.ndim == 1:
        texts = texts.tolist()
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise DataError(f"the texts are {a_type(texts)}; give a list of texts")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise DataError(f"text {number} is {a_type(text)}; give a list of texts, each a str")
        check_unicode(text, f"text {number}")
    if len(texts) < least:
        raise DataError("no texts: give at least one")
    return texts


def a_type(value: object) -> str:
    """The type of a value in words."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"

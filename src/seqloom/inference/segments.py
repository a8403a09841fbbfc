"""Splits a text into what is translated and what is kept: tags and placeholders stay where they are, long texts are
translated sentence by sentence.

Left out: moving tags as the model would. The text on either side of a tag is translated by itself, so a tag is never lost
or doubled, but a sentence around it is cut.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

PROTECTED = re.compile(
    r"<[^<>]+>"  # tags
    r"|https?://\S+|\S+@\S+\.\w+"  # addresses
    r"|\$?\{[^{}]*\}|%\(\w+\)[#0\- +]*\d*(?:\.\d+)?[a-zA-Z]|%(?:\d+\$)?[#0\-+]*\d*(?:\.\d+)?[diouxXeEfgGcsrp]\b|%%"  # placeholders
    r"|&(?:\w+|#\d+|#x[0-9a-fA-F]+);"  # entities
    r"|\\[nrt]"
)
SENTENCE_END = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*\s+")
MAX_WORDS = 60  # words translated at once
T = TypeVar("T")


def pieces(text: str) -> list[tuple[str, bool]]:
    """The text cut into pieces that join to it again, each with whether it is to be translated."""
    parts: list[tuple[str, bool]] = []
    position = 0
    for match in [*PROTECTED.finditer(text), None]:
        end = match.start() if match else len(text)
        for sentence in sentences(text[position:end]):
            body = sentence.strip()
            if any(letter.isalpha() for letter in body):
                start = sentence.index(body)
                parts.append((sentence[:start], False))
                parts.append((body, True))
                parts.append((sentence[start + len(body) :], False))
            else:
                parts.append((sentence, False))
        if match:
            parts.append((match.group(), False))
            position = match.end()
    return [(part, translatable) for part, translatable in parts if part]


def without_protected(text: str) -> list[str]:
    """What is translated of a text, without tags, addresses and placeholders."""
    return [PROTECTED.sub(" ", text)]


def sentences(text: str) -> list[str]:
    """A text of at most MAX_WORDS words in one piece; a longer one by sentences, and a longer sentence by words."""
    if len(text.split()) <= MAX_WORDS:
        return [text]
    cuts = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    return [part for start, end in itertools.pairwise(cuts) for part in split_by_words(text[start:end])]


def split_by_words(text: str) -> list[str]:
    """Parts of at most MAX_WORDS words, cut before a word."""
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    cuts = [0, *starts[MAX_WORDS::MAX_WORDS], len(text)]
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


def map_pieces(
    texts: Sequence[str],
    work: Callable[[list[str]], list[T]],
    join: Callable[[list[str | T]], T],
) -> list[T]:
    """Each text with its translatable pieces replaced by their results; all texts' pieces go to `work` in one call, and `join`
    makes one result of the parts of a text."""
    pieces_of = [pieces(text) for text in texts]
    translatable = [part for parts in pieces_of for part, is_translatable in parts if is_translatable]
    results = iter(work(translatable))
    return [
        join([next(results) if is_translatable else part for part, is_translatable in parts])
        for parts in pieces_of
    ]

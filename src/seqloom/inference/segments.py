"""What is translated and what is kept: tags and placeholders stand where they stood, long texts go sentence by sentence.

Left out: a model's own idea of where a tag belongs. The text on either side of one is translated on its own, so a tag is never lost or
doubled, at the price of what it cuts apart.
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
Found = TypeVar("Found")


def pieces(text: str) -> list[tuple[str, bool]]:
    """The text cut into pieces that join to it again, each with whether it is to be translated."""
    found: list[tuple[str, bool]] = []
    place = 0
    for match in [*PROTECTED.finditer(text), None]:
        end = match.start() if match else len(text)
        for part in sentences(text[place:end]):
            body = part.strip()
            if any(letter.isalpha() for letter in body):
                start = part.index(body)
                found += [(part[:start], False), (body, True), (part[start + len(body) :], False)]
            else:
                found.append((part, False))
        if match:
            found.append((match.group(), False))
            place = match.end()
    return [(part, asked) for part, asked in found if part]


def sentences(text: str) -> list[str]:
    """A text of at most MOST words whole; a longer one by sentences, and a sentence without end by words."""
    if len(text.split()) <= MAX_WORDS:
        return [text]
    cuts = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    parts = [text[a:b] for a, b in itertools.pairwise(cuts)]
    return [short for part in parts for short in by_words(part)]


def by_words(text: str) -> list[str]:
    """At most MOST words each, cut before a word."""
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    cuts = [0, *starts[MAX_WORDS::MAX_WORDS], len(text)]
    return [text[a:b] for a, b in itertools.pairwise(cuts)]


def map_pieces(
    texts: Sequence[str], work: Callable[[list[str]], list[Found]], join: Callable[[list[str | Found]], Found]
) -> list[Found]:
    """Each text with its pieces worked on, all texts' pieces in one call; `join` puts a text together again."""
    cut = [pieces(text) for text in texts]
    done = iter(work([part for text in cut for part, asked in text if asked]))
    return [join([next(done) if asked else part for part, asked in text]) for text in cut]

"""The same texts for several runs: of a text that one of them cannot read to its end, the part that every run reads whole.

What a run reads of a text ends with its context. A comparison of runs is one of models only if all read the same characters, so a longer text
is cut for all, before a word if it has several.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from seqloom.errors import DataError
from seqloom.run import Run

CHUNK = 1024  # texts that are tokenized together


class SharedTexts(NamedTuple):
    """The texts as every run reads them, and how many of them are cut."""

    texts: list[str]
    cut: int


def token_limit(run: Run, max_tokens: int) -> int:
    """The tokens of a text, special ones included, that a run reads at most; of a translator, of its source."""
    translates = run.model.task in ("translation", "summarization")
    context = run.model.source_context if translates else run.model.context
    return max_tokens if context is None else min(max_tokens, context)


def share(runs: Sequence[Run], texts: Sequence[str], max_tokens: int) -> SharedTexts:
    """The part of each text that every run reads whole; of one run, and of texts that all can read, the texts themselves."""
    shared = list(texts)
    if len(runs) < 2:
        return SharedTexts(shared, 0)
    limits = [token_limit(run, max_tokens) for run in runs]
    long: set[int] = set()
    for run, limit in zip(runs, limits, strict=True):
        for start in range(0, len(texts), CHUNK):
            _, mask = run.encode(list(texts[start : start + CHUNK]))
            long.update((start + (mask.sum(1) > limit).nonzero()[:, 0]).tolist())
    for number in long:
        shared[number] = shared_part(runs, limits, texts[number], number + 1)
    return SharedTexts(shared, len(long))


def shared_part(runs: Sequence[Run], limits: Sequence[int], text: str, number: int) -> str:
    """The longest beginning of a text that every run reads whole. Cut text may have other tokens, so it is tokenized again."""
    part = text
    while True:
        end = min(characters_read(run, part, limit) for run, limit in zip(runs, limits, strict=True))
        if end >= len(part):
            return part
        part = before_word(part, end)
        if not part.strip():
            raise DataError(
                f"text {number}: the runs have no part of it that all can read: {min(limits)} tokens are too few; leave it out"
            )


def characters_read(run: Run, text: str, limit: int) -> int:
    """How many characters of a text a run reads whole within so many tokens; the tokens that it adds around the text count too."""
    before, after = run.specials.frame(run.adds_eos)
    spans = run.tokenizer.encode(text, add_special_tokens=False).offsets
    room = max(0, limit - len(before) - len(after))
    if len(spans) <= room:
        return len(text)
    # A character of several tokens is read whole if all of them are.
    read = max((end for _, end in spans[:room]), default=0)
    return min(read, *(start for start, _ in spans[room:]), len(text) - 1)


def before_word(text: str, end: int) -> str:
    """The text up to `end`, without the beginning of a word, unless it has only that."""
    part = text[:end]
    if not text[end : end + 1].isspace():
        words = re.match(r"(.*\S)\s+\S*$", part, re.DOTALL)
        part = words[1] if words else part
    return part.rstrip()

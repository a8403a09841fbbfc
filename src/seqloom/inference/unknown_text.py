"""Warns of characters or words that a run does not know. Only the verbs of the command line ask, because every text is read once more."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from seqloom.run import Run

SHOWN = 5  # examples in the warning
logger = logging.getLogger("seqloom.inference")


def warn_of_unknown(run: Run, texts: Iterable[str], name: str = "texts") -> Iterator[str]:
    """The texts; after the last one, a warning if the run's tokenizer does not know all that they hold."""
    unk = run.specials.unk
    unknown: Counter[str] = Counter()
    for text in texts:
        yield text
        encoding = run.tokenizer.encode(text, add_special_tokens=False)
        if unk in encoding.ids:
            spans = zip(encoding.ids, encoding.offsets, strict=True)
            unknown.update(text[start:end] for index, (start, end) in spans if index == unk)
    if unknown:
        count = unknown.total()
        unit = "word" if type(run.tokenizer.model).__name__ in ("WordLevel", "WordPiece") else "character"
        logger.warning(
            "%s: %d %s of the %s %s not in its vocabulary (%s) and read as unknown; train on text that has %s",
            run.folder,
            count,
            unit if count == 1 else f"{unit}s",
            name,
            "is" if count == 1 else "are",
            ", ".join(map(repr, list(unknown)[:SHOWN])) + (", …" if len(unknown) > SHOWN else ""),
            "it" if count == 1 else "them",
        )


def check_known(run: Run, text: str, name: str) -> None:
    """A warning if the run's tokenizer does not know all of one text."""
    for _ in warn_of_unknown(run, [text], name):
        pass

"""Counts characters or words that a run does not know. Only the verbs of the command line ask, because every text is read once more."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from seqloom.run import Run

SHOWN = 5  # examples in the warning
logger = logging.getLogger("seqloom.inference")


class UnknownText:
    """What a run's tokenizer does not know of the texts that pass."""

    def __init__(self, run: Run):
        self.run = run
        self.pieces: Counter[str] = Counter()

    def counted(self, texts: Iterable[str]) -> Iterator[str]:
        """The texts, which are counted as they pass."""
        for text in texts:
            self.add(text)
            yield text

    def add(self, text: str) -> None:
        """Counts one text."""
        unk = self.run.specials.unk
        encoding = self.run.tokenizer.encode(text, add_special_tokens=False)
        if unk in encoding.ids:
            spans = zip(encoding.ids, encoding.offsets, strict=True)
            self.pieces.update(text[start:end] for index, (start, end) in spans if index == unk)

    def warn(self) -> None:
        """A warning if there was something unknown."""
        if not self.pieces:
            return
        count = self.pieces.total()
        by_word = type(self.run.tokenizer.model).__name__ in ("WordLevel", "WordPiece")
        unit = "word" if by_word else "character"
        logger.warning(
            "%s: %d %s of the input %s not in its vocabulary (%s) and read as unknown; train on text that has %s",
            self.run.folder,
            count,
            unit if count == 1 else f"{unit}s",
            "is" if count == 1 else "are",
            ", ".join(map(repr, list(self.pieces)[:SHOWN])) + (", …" if len(self.pieces) > SHOWN else ""),
            "it" if count == 1 else "them",
        )

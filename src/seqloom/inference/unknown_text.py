"""Counts the characters and words that a run does not know, for one warning after the results of a call.

A character is unknown if no token of the vocabulary has it; of a vocabulary over bytes, if its first byte is only a token by itself, so
that nothing of its script was learnt. A word is unknown if it has an unknown character. Other words outside a word vocabulary are rare
words, which every text has: they count only in a text most of whose tokens are <unk>.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
from tokenizers import pre_tokenizers

from seqloom.run import Run

Item = TypeVar("Item")
Out = TypeVar("Out")

LONG = 100_000  # characters of a text that are looked at
SHOWN = 5  # examples in the warning
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
logger = logging.getLogger("seqloom.inference")


class UnknownText:
    """What a run's tokenizer does not know of the texts that pass."""

    def __init__(self, run: Run):
        self.run = run
        self.pieces: Counter[str] = Counter()
        self.reads_bytes = type(run.tokenizer.decoder).__name__ == "ByteLevel"
        self.known: dict[str, bool] = {}  # characters beyond ASCII of a vocabulary over bytes

    def watch(
        self,
        work: Callable[[list[Item]], Sequence[Out]],
        texts_of: Callable[[Item], Sequence[str]] = lambda item: [str(item)],
    ) -> Callable[[list[Item]], Sequence[Out]]:
        """`work`, which also counts the items after it has dealt with them: if it raises, nothing is counted."""

        def watched(items: list[Item]) -> Sequence[Out]:
            results = work(items)
            self.add_all([text for item in items for text in texts_of(item)])
            return results

        return watched

    def counted(self, texts: Iterable[str]) -> Iterator[str]:
        """The texts, which are counted as they pass."""
        for text in texts:
            self.add(text)
            yield text

    def add(self, text: str) -> None:
        """Counts one text."""
        self.add_all([text])

    def add_all(self, texts: Sequence[str]) -> None:
        """Counts texts; of a long one, its beginning."""
        texts = [text[:LONG] for text in texts]
        if self.reads_bytes:
            for text in texts:
                if not text.isascii():
                    self.add_bytes(text)
            return
        unk = self.run.specials.unk
        if unk is None:
            return
        encodings = self.run.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for text, encoding in zip(texts, encodings, strict=True):
            if unk in encoding.ids:
                self.add_unknown(text, unk)

    def add_unknown(self, text: str, unk: int) -> None:
        """Counts a text that has unknown tokens, whose id is `unk`."""
        encoding = self.run.tokenizer.encode(text, add_special_tokens=False)
        is_unknown = np.array(encoding.ids) == unk
        spans = np.array(encoding.offsets)[is_unknown].tolist()
        name = self.run.tokenizer.id_to_token(unk)
        found = [piece for start, end in spans if (piece := text[start:end]) and piece != name]
        if 2 * is_unknown.sum() <= len(is_unknown):
            found = [piece for piece in found if not self.letters.issuperset(self.normalized(piece))]
        self.pieces.update(found)

    def add_bytes(self, text: str) -> None:
        """Counts the unknown characters of a text that is read as bytes."""
        for character, count in Counter(text).items():
            if not character.isascii():
                if character not in self.known:
                    [(spelling, _), *_] = BYTES.pre_tokenize_str(character)
                    self.known[character] = spelling[0] in self.letters
                if not self.known[character]:
                    self.pieces[character] += count

    def normalized(self, piece: str) -> str:
        """A piece of text as the vocabulary spells it."""
        normalizer = self.run.tokenizer.normalizer
        return normalizer.normalize_str(piece) if normalizer else piece

    @cached_property
    def tokens(self) -> list[str]:
        """The vocabulary without special tokens."""
        specials = {*self.run.specials.without_text, self.run.specials.unk}
        return [token for token, index in self.run.tokenizer.get_vocab().items() if index not in specials]

    @cached_property
    def letters(self) -> set[str]:
        """The characters of all tokens; of a vocabulary over bytes, which has each byte, those of longer tokens."""
        return set().union(*(token for token in self.tokens if len(token) > 1 or not self.reads_bytes))

    @cached_property
    def unit(self) -> str:
        """What is unknown: words, or single characters."""
        by_word = type(self.run.tokenizer.model).__name__ in ("WordLevel", "WordPiece")
        return "word" if by_word and any(len(token) > 1 for token in self.tokens) else "character"

    def warn(self) -> None:
        """A warning if there was something unknown."""
        if not self.pieces:
            return
        count = self.pieces.total()
        logger.warning(
            "%s: %d %s of the input %s not in its vocabulary (%s) and read as %s; train on text that has %s",
            self.run.folder,
            count,
            self.unit if count == 1 else f"{self.unit}s",
            "is" if count == 1 else "are",
            ", ".join(map(repr, list(self.pieces)[:SHOWN])) + (", …" if len(self.pieces) > SHOWN else ""),
            "single bytes" if self.reads_bytes else "unknown",
            "it" if count == 1 else "them",
        )

"""Trains a tokenizer on data files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqloom.data.options import Data
from seqloom.data.viewing import open_reader
from seqloom.errors import DataError
from seqloom.results import Result

TYPES = ("BPE", "Unigram", "WordPiece", "Words", "Characters")


@dataclass(frozen=True)
class TrainedTokenizer(Result):
    """A trained tokenizer: its file, its type, its size, and how many characters a token has on a sample of the text."""

    path: Path
    type: str
    size: int
    characters_per_token: float


def train_tokenizer(
    data: Data,
    out: str | Path = "tokenizer.json",
    *,
    type: str = "BPE",
    size: int = 8000,
    format: str = "auto",
) -> TrainedTokenizer:
    """Trains a tokenizer of `type` with at most `size` tokens and writes it as a `tokenizer.json`, which a config reads with
    `tokenizer: {type: File, path: tokenizer.json}`.

    >>> seqloom.data.train_tokenizer("input.txt", type="Words", out="tokenizer.json").size
    17
    """
    from seqloom.text import tokenizer
    from seqloom.text.records import iter_texts

    if type not in TYPES:
        raise DataError(f"{type!r} is not a type of a tokenizer; choose from {', '.join(TYPES)}")
    reader = open_reader(data, format)
    texts = iter_texts(reader)
    if type == "Characters":
        trained = tokenizer.Characters(texts)
    else:
        makers = {
            "BPE": tokenizer.BPE,
            "Unigram": tokenizer.Unigram,
            "WordPiece": tokenizer.WordPiece,
            "Words": tokenizer.Words,
        }
        trained = makers[type](texts, size=size)
    sample = [text for _, text in zip(range(1000), iter_texts(reader), strict=False)]
    tokens = sum(len(trained.encode(text, add_special_tokens=False).ids) for text in sample)
    tokenizer.save(trained, out)
    return TrainedTokenizer(Path(out), type, trained.get_vocab_size(), sum(map(len, sample)) / max(tokens, 1))

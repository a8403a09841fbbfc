"""Words that a word tokenizer does not know, with ids of their own, so that a summary can copy them (See et al. 2017).

A word tokenizer gives every unknown word the id of <unk>. In documents and summaries an unknown word gets `UNKNOWN` + a hash of the word
instead: ids say which unknown words are the same. A model reads them all as <unk>; a pointer also says from which position of the source it
copies (models/summarizer.py).
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
from tokenizers import Encoding, Tokenizer

from seqloom.text.encoder import ChunkCache, RecordEncoder, TextField

UNKNOWN = 1 << 31  # the first id of unknown words; every token of a vocabulary is below it


def has_unknown_words(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer has one token for each word, and so words that it does not know."""
    return json.loads(tokenizer.to_str())["model"]["type"] == "WordLevel"


def unknown_id(word: str) -> int:
    """The id of an unknown word: a function of its spelling."""
    return (
        UNKNOWN + int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "little") % UNKNOWN
    )


def word_ids(tokenizer: Tokenizer, encoding: Encoding, text: str) -> np.ndarray:
    """The ids of a text in which each unknown word has its own id."""
    ids = np.array(encoding.ids, np.int64)
    unk = tokenizer.token_to_id("<unk>")
    for index in np.flatnonzero(ids == unk):
        start, end = encoding.offsets[index]
        word = text[start:end]
        ids[index] = unknown_id(tokenizer.normalizer.normalize_str(word) if tokenizer.normalizer else word)
    return ids


def source_words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The word of each token of a text, as it is written there."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    return [text[start:end] for start, end in encoding.offsets]


class WordEncoder(RecordEncoder):
    """Encodes records of words; each unknown word has its own id."""

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool):
        super().__init__(tokenizer, adds_eos)
        self.dtype = np.dtype(np.uint32)
        if self.encode == self._encode_chunks:
            self.chunks = ChunkCache(self.text_bytes)
        else:
            self.encode = self._encode_texts

    def text_bytes(self, text: str) -> bytes:
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return word_ids(self.tokenizer, encoding, text).astype(self.dtype).tobytes()

    def _encode_texts(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        return self._concat([self.text_bytes(record) for record in records])


class DocumentField(TextField):
    """A document or a summary, as ids; each unknown word has its own."""

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool, labels: dict[str, int]):
        super().__init__(tokenizer, adds_eos, labels)
        if has_unknown_words(tokenizer):
            self.encoder = WordEncoder(tokenizer, adds_eos)
            self.dtypes = (self.encoder.dtype,)

"""Records → ids: the same ids as the tokenizers library, several times faster than with the library alone; the base class of the fields of
a record, each of which encodes its values as columns, and the field of one text.

Our tokenizers never merge across the boundary between a word and the white space after it. So a text is
divided there into chunks (white space, then a word), and the ids of each chunk are cached: text repeats its
words. A character tokenizer needs one table lookup per character. This is correct only for tokenizers made of
the components in `tokenizer.py`. Any other tokenizer encodes each record separately, or all records joined if
they are the lines of one text, since it may put tokens before a text or merge line ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol

import numpy as np
from tokenizers import Encoding, Tokenizer, normalizers, pre_tokenizers

from seqloom.errors import DataError
from seqloom.text.corpus import is_valid_unicode
from seqloom.text.tokenizer import BYTES, LITERALS, SPACE, UNK, special_tokens

Encoded = tuple[
    bytes, np.ndarray, np.ndarray
]  # ids or other values; their number per record; UTF-8 bytes per record
CACHE_BYTES = 64 << 20  # approximate memory of cached chunks
CHUNKS = re.compile(f"[{SPACE}]*+[^{SPACE}]++|[{SPACE}]++").findall
TEXTS = ("text", "smiles", "document", "summary")  # kinds whose column is the ids of one text


class _Component(Protocol):
    """A component of a tokenizer, which the library serialises as JSON."""

    def __getstate__(self) -> Any: ...


def _state(component: _Component) -> dict:
    return json.loads(component.__getstate__())


# Each of these gives the same result on a chunk as on the full text: splits end where white space begins, and
# normalizers read no further than a word.
SPLITS = [
    _state(BYTES),
    _state(pre_tokenizers.WhitespaceSplit()),
    _state(pre_tokenizers.BertPreTokenizer()),
]
NORMALIZERS = [
    None,
    _state(LITERALS),
    _state(normalizers.Lowercase()),
    _state(normalizers.Sequence([normalizers.Lowercase(), LITERALS])),
]


class ChunkCache(dict[str, bytes]):
    """Maps a chunk to its ids, encoded at first use.

    Chunks are encoded one by one: for such short texts, threads cost more time than they save.
    """

    def __init__(self, encode: Callable[[str], bytes]):
        self.encode = encode
        self.estimated_bytes = 0

    def __missing__(self, chunk: str) -> bytes:
        ids = self[chunk] = self.encode(chunk)
        self.estimated_bytes += 200 + 4 * len(chunk)
        return ids


class RecordEncoder:
    """`encoder(records)` returns the ids of all records, concatenated
    as bytes of `dtype`, and the number of ids of each.

    With `adds_eos`, the tokenizer's <eos> follows each record.
    """

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool):
        self.tokenizer = tokenizer
        self.adds_eos = adds_eos
        self.eos = special_tokens(tokenizer).eos
        self.dtype = np.dtype(np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32)
        parts = json.loads(tokenizer.to_str())
        model = parts["model"]
        # A template has no effect, since records are encoded without special tokens.
        processor = parts["post_processor"]
        has_plain_processor = processor is None or processor["type"] == "TemplateProcessing"
        is_plain = has_plain_processor and not (
            parts["added_tokens"] or parts["truncation"] or parts["padding"]
        )
        has_no_stages = parts["pre_tokenizer"] is None and parts["normalizer"] is None
        has_known_stages = parts["pre_tokenizer"] in SPLITS and parts["normalizer"] in NORMALIZERS
        self.encode = self._encode_records if adds_eos else self._encode_joined
        if is_plain and has_no_stages and _is_character_model(model):
            self.table = np.full(0x110000, UNK, self.dtype)
            for token, index in model["vocab"].items():
                if len(token) == 1:
                    self.table[ord(token)] = index
            self.encode = self._encode_characters
        elif is_plain and has_known_stages and not model.get("dropout"):
            self.chunks = ChunkCache(
                lambda chunk: self._bytes(tokenizer.encode(chunk, add_special_tokens=False))
            )
            self.encode = self._encode_chunks

    @property
    def is_stateful(self) -> bool:
        """Whether the ids of a record depend on the records before it."""
        return self.encode == self._encode_joined

    def __call__(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        return self.encode(records)

    def _encode_characters(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        counts = np.fromiter(map(len, records), np.int64, len(records))
        ids = self.table[np.frombuffer("".join(records).encode("utf-32-le"), np.uint32)]
        if self.adds_eos:
            ids = np.insert(ids, np.cumsum(counts), self.eos)
            counts += 1
        return ids.tobytes(), counts

    def _encode_chunks(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        if self.chunks.estimated_bytes > CACHE_BYTES:
            self.chunks = ChunkCache(self.chunks.encode)
        ids_of = self.chunks.__getitem__
        return self._concat([b"".join(map(ids_of, CHUNKS(record))) for record in records])

    def _encode_records(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        encodings = self.tokenizer.encode_batch_fast(records, add_special_tokens=False)
        return self._concat(list(map(self._bytes, encodings)))

    def _encode_joined(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        """Encodes all records as one text; a token belongs to the record in which it starts."""
        (encoding,) = self.tokenizer.encode_batch(["".join(records)], add_special_tokens=False)
        starts = np.array(encoding.offsets, np.int64).reshape(-1, 2)[:, 0]
        record_ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
        record_of_token = np.searchsorted(record_ends, starts, "right").clip(max=len(records) - 1)
        return self._bytes(encoding), np.bincount(record_of_token, minlength=len(records))

    def _bytes(self, encoding: Encoding) -> bytes:
        return np.array(encoding.ids, self.dtype).tobytes()

    def _concat(self, encoded: list[bytes]) -> tuple[bytes, np.ndarray]:
        counts = np.fromiter(map(len, encoded), np.int64, len(encoded)) // self.dtype.itemsize
        if not self.adds_eos:
            return b"".join(encoded), counts
        eos = np.array(self.eos, self.dtype).tobytes()
        return eos.join([*encoded, b""]), counts + 1


def _is_character_model(model: dict) -> bool:
    """Returns whether a model in JSON gives each character its own id: byte-pair encoding without merges."""
    special_options = (
        "dropout",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "fuse_unk",
        "byte_fallback",
        "ignore_merges",
    )
    return (
        model["type"] == "BPE"
        and not model["merges"]
        and model["unk_token"] == "<unk>"
        and model["vocab"].get("<unk>") == UNK
        and not any(model.get(name) for name in special_options)
    )


def utf8_lengths(texts: list[str]) -> np.ndarray:
    """Returns the number of UTF-8 bytes of each text."""
    all_ascii = all(map(str.isascii, texts))
    sizes = map(len, texts) if all_ascii else (len(text.encode()) for text in texts)
    return np.fromiter(sizes, np.int64, len(texts))


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

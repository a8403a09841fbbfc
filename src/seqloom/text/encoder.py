"""Records → ids, several times faster than the tokenizers library alone and with its very ids.

Our tokenizers never join two sides of the border between a word and the white space after it, so a text is cut there into chunks
(white space, then a word), and what a chunk becomes is remembered: text repeats its words. Characters are one table lookup.
Only tokenizers made of the parts in `tokenizer.py` are known to allow that; any other is asked for each record as a whole, or for all of them
at once where they are the lines of one text: it may put something before a text, or join line ends.
"""

import json
import re
from collections.abc import Callable

import numpy as np
from tokenizers import Encoding, Tokenizer, normalizers, pre_tokenizers

from seqloom.text.special_tokens import UNK, special_tokens
from seqloom.text.tokenizer import BYTES, LITERALS, SPACE

CACHE_BYTES = 64 << 20  # bytes, roughly, that remembered chunks may take
CHUNKS = re.compile(f"[{SPACE}]*+[^{SPACE}]++|[{SPACE}]++").findall


def _state(part: object) -> dict:
    return json.loads(part.__getstate__())


# Each works on a chunk as it does on the whole text: splits end where white space begins, and normalizers look no further than a word.
SPLITS = [
    _state(part) for part in (BYTES, pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer())
]
NORMALIZERS = [
    None,
    _state(LITERALS),
    _state(normalizers.Lowercase()),
    _state(normalizers.Sequence([normalizers.Lowercase(), LITERALS])),
]


class ChunkCache(dict[str, bytes]):
    """chunk → its ids, worked out when first asked for. One by one: threads cost more than they bring for texts so short."""

    def __init__(self, encode: Callable[[str], bytes]):
        self.encode, self.weight = encode, 0

    def __missing__(self, chunk: str) -> bytes:
        ids = self[chunk] = self.encode(chunk)
        self.weight += 200 + 4 * len(chunk)
        return ids


class RecordEncoder:
    """`encoder(records)` → their ids in a row, as bytes of `dtype`, and the count of each. `ends` puts the tokenizer's <eos> after each."""

    def __init__(self, tokenizer: Tokenizer, ends: bool):
        self.tokenizer, self.ends, self.end = tokenizer, ends, special_tokens(tokenizer).eos
        self.dtype = np.dtype(np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32)
        parts = json.loads(tokenizer.to_str())
        plain = (
            parts["post_processor"] is None or parts["post_processor"]["type"] == "TemplateProcessing"
        )  # whose frame is not asked for
        bare = plain and not (parts["added_tokens"] or parts["truncation"] or parts["padding"])
        model = parts["model"]
        self.encode = self._whole if ends else self._joint
        if (
            bare
            and parts["pre_tokenizer"] is None
            and parts["normalizer"] is None
            and _is_character_model(model)
        ):
            self.table = np.full(0x110000, UNK, self.dtype)
            for token, index in model["vocab"].items():
                if len(token) == 1:
                    self.table[ord(token)] = index
            self.encode = self._characters
        elif (
            bare
            and parts["pre_tokenizer"] in SPLITS
            and parts["normalizer"] in NORMALIZERS
            and not model.get("dropout")
        ):
            self.chunks = ChunkCache(
                lambda chunk: self._bytes(tokenizer.encode(chunk, add_special_tokens=False))
            )
            self.encode = self._chunked

    @property
    def joins(self) -> bool:
        """Whether what a record becomes depends on those before it."""
        return self.encode == self._joint

    def __call__(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        return self.encode(records)

    def _characters(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        counts = np.fromiter(map(len, records), np.int64, len(records))
        ids = self.table[np.frombuffer("".join(records).encode("utf-32-le"), np.uint32)]
        if self.ends:
            ids = np.insert(ids, np.cumsum(counts), self.end)
            counts += 1
        return ids.tobytes(), counts

    def _chunked(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        if self.chunks.weight > CACHE_BYTES:
            self.chunks = ChunkCache(self.chunks.encode)
        find = self.chunks.__getitem__
        return self._joined([b"".join(map(find, CHUNKS(record))) for record in records])

    def _whole(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        encoded = self.tokenizer.encode_batch_fast(records, add_special_tokens=False)
        return self._joined(list(map(self._bytes, encoded)))

    def _joint(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        (encoding,) = self.tokenizer.encode_batch(["".join(records)], add_special_tokens=False)
        begins = np.array(encoding.offsets, np.int64).reshape(-1, 2)[:, 0]
        ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
        return self._bytes(encoding), np.bincount(
            np.searchsorted(ends, begins, "right").clip(max=len(records) - 1), minlength=len(records)
        )

    def _bytes(self, encoding: Encoding) -> bytes:
        return np.array(encoding.ids, self.dtype).tobytes()

    def _joined(self, found: list[bytes]) -> tuple[bytes, np.ndarray]:
        counts = np.fromiter(map(len, found), np.int64, len(found)) // self.dtype.itemsize
        if not self.ends:
            return b"".join(found), counts
        end = np.array(self.end, self.dtype).tobytes()
        return end.join([*found, b""]), counts + 1


def _is_character_model(model: dict) -> bool:
    """Whether a model in JSON gives each character its own id: byte pairs without a pair."""
    odd = (
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
        and not any(model.get(name) for name in odd)
    )

"""Records → ids, several times faster than the tokenizers library alone and with its very ids.

Our tokenizers never join two sides of the border between a word and the white space after it, so a text is cut there into chunks
(white space, then a word), and what a chunk becomes is remembered: text repeats its words. Characters are one table lookup.
Only tokenizers made of the parts in `tokenizer.py` are known to allow that; any other is asked for each record as a whole.
"""

import json
import re

import numpy as np
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from seqloom.text.tokenizer import BYTES, EOS, LITERALS, SPACE, UNK

REMEMBERED = 64 << 20  # bytes, roughly, that remembered chunks may take
CHUNKS = re.compile(f"[{SPACE}]*+[^{SPACE}]++|[{SPACE}]++").findall


def _state(part: object) -> dict:
    return json.loads(part.__getstate__())


# Each works on a chunk as it does on the whole text: splits end where white space begins, and normalizers look no further than a word.
SPLITS = [_state(part) for part in (BYTES, pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer())]
NORMALIZERS = [None, _state(LITERALS), _state(normalizers.Lowercase()),
               _state(normalizers.Sequence([normalizers.Lowercase(), LITERALS]))]


class Encoder:
    """`encoder(records)` → their ids in a row, as bytes of `dtype`, and the count of each. `ends` puts <eos> after each."""

    def __init__(self, tokenizer: Tokenizer, ends: bool):
        self.tokenizer, self.ends = tokenizer, ends
        self.dtype = np.dtype(np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32)
        parts = json.loads(tokenizer.to_str())
        bare = not (parts["added_tokens"] or parts["post_processor"] or parts["truncation"] or parts["padding"])
        model = parts["model"]
        self.encode = self._whole
        if bare and parts["pre_tokenizer"] is None and parts["normalizer"] is None and _single(model):
            self.table = np.full(0x110000, UNK, self.dtype)
            for token, index in model["vocab"].items():
                if len(token) == 1:
                    self.table[ord(token)] = index
            self.encode = self._characters
        elif bare and parts["pre_tokenizer"] in SPLITS and parts["normalizer"] in NORMALIZERS and not model.get("dropout"):
            self.chunks: dict[str, bytes] = {}  # chunk → its ids
            self.weight = 0
            self.encode = self._chunked

    def __call__(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        return self.encode(records)

    def _characters(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        counts = np.fromiter(map(len, records), np.int64, len(records))
        ids = self.table[np.frombuffer("".join(records).encode("utf-32-le"), np.uint32)]
        if self.ends:
            ids = np.insert(ids, np.cumsum(counts), EOS)
            counts += 1
        return ids.tobytes(), counts

    def _chunked(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        if self.weight > REMEMBERED:
            self.chunks, self.weight = {}, 0
        find, found, later, asked = self.chunks.get, [], [], set()
        for record in records:
            cut = CHUNKS(record)
            try:
                found.append(b"".join(map(find, cut)))
            except TypeError:  # a chunk not seen before gave None
                later.append((len(found), cut))
                asked.update(cut)
                found.append(b"")
        if later:
            self._learn(list(asked.difference(self.chunks)))
        for index, cut in later:
            found[index] = b"".join(map(find, cut))
        return self._joined(found)

    def _learn(self, chunks: list[str]) -> None:
        self.chunks.update(zip(chunks, self._ids(chunks), strict=True))
        self.weight += sum(200 + 4 * len(chunk) for chunk in chunks)

    def _whole(self, records: list[str]) -> tuple[bytes, np.ndarray]:
        return self._joined(self._ids(records))

    def _ids(self, texts: list[str]) -> list[bytes]:
        encoded = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, self.dtype).tobytes() for encoding in encoded]

    def _joined(self, found: list[bytes]) -> tuple[bytes, np.ndarray]:
        counts = np.fromiter(map(len, found), np.int64, len(found)) // self.dtype.itemsize
        if not self.ends:
            return b"".join(found), counts
        end = np.array(EOS, self.dtype).tobytes()
        return end.join([*found, b""]), counts + 1


def _single(model: dict) -> bool:
    """Whether a model in JSON gives each character its own id: byte pairs without a pair."""
    odd = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges")
    return (model["type"] == "BPE" and not model["merges"] and model["unk_token"] == "<unk>" and model["vocab"].get("<unk>") == UNK
            and not any(model.get(name) for name in odd))

"""Vocabularies and binarised data of other toolkits for translation.

    joeynmt    one token a line, the number of the line is its id; <unk> <pad> <s> </s> come first
    opennmt    OpenNMT-py: token TAB count; <unk> <blank> <s> </s> come first, and are not in the file
    fairseq    dict.txt: token SPACE count; <s> <pad> </s> <unk> come first, and are not in the file

`VocabFile` makes a tokenizer with the same ids. `Binarized` reads what fairseq-preprocess writes (.idx and .bin, the mmap form) with the
dictionaries beside it. The other data of these toolkits is parallel text, which `Parallel` reads.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from seqloom.errors import DataError
from seqloom.text import tokenizer_file
from seqloom.text.corpus import Paths, Reader
from seqloom.text.lines import lines
from seqloom.text.tokenizer_file import with_special_ids

Form = Literal["auto", "joeynmt", "opennmt", "fairseq"]
MAX_TOKENS = 10_000_000
MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f8", 8: "<u2", 9: "<u4", 10: "<u8"}


class VocabForm(NamedTuple):
    """The special tokens of a toolkit in the order of their ids, and the token of each role."""

    specials: tuple[str, ...]
    roles: dict[str, str]


FORMS = {
    "joeynmt": VocabForm(
        ("<unk>", "<pad>", "<s>", "</s>"), {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    ),
    "opennmt": VocabForm(
        ("<unk>", "<blank>", "<s>", "</s>"), {"unk": "<unk>", "pad": "<blank>", "bos": "<s>", "eos": "</s>"}
    ),
    "fairseq": VocabForm(
        ("<s>", "<pad>", "</s>", "<unk>"), {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    ),
}


def VocabFile(texts: Iterable[str], path: str, form: Form = "auto") -> Tokenizer:
    """Words separated by white space, with the ids of the vocabulary file of JoeyNMT, OpenNMT-py or fairseq at `path`."""
    tokens, found = read_vocabulary(path, form)
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=FORMS[found].roles["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    roles = {role: [vocab[token]] for role, token in FORMS[found].roles.items()}
    parts = with_special_ids(json.loads(tokenizer.to_str()), roles)
    return tokenizer_file.parse(json.dumps(parts), path)


def read_vocabulary(path: str | Path, form: Form = "auto") -> tuple[list[str], str]:
    """The tokens of a vocabulary file in the order of their ids, and the toolkit whose form it has."""
    rows = [row for row in lines(path) if row.strip("\n")]
    found = detect(rows) if form == "auto" else form
    if not rows or len(rows) > MAX_TOKENS:
        raise DataError(f"{path}: {len(rows):,} tokens; give a vocabulary file")
    tokens: dict[str, None] = dict.fromkeys(FORMS[found].specials)
    for number, row in enumerate(rows, 1):
        token = parse_row(row, found, f"{path}:{number}")
        if token in tokens and token not in FORMS[found].specials:
            raise DataError(
                f"{path}:{number}: the token {token[:60]!r} is in it twice; is it a {found} vocabulary?"
            )
        tokens[token] = None
    return list(tokens), found


def detect(rows: list[str]) -> str:
    """The toolkit whose form the rows have."""
    sample = rows[:1000]
    if all(is_count(row.rpartition("\t")[2]) and "\t" in row for row in sample):
        return "opennmt"
    if all(
        is_count(row.removesuffix(" #fairseq:overwrite").rpartition(" ")[2]) and " " in row for row in sample
    ):
        return "fairseq"
    return "joeynmt"


def is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()


def parse_row(row: str, form: str, location: str) -> str:
    """The token of a row."""
    if form == "joeynmt":
        token = row
    else:
        separator = "\t" if form == "opennmt" else " "
        token, found, count = row.removesuffix(" #fairseq:overwrite").rpartition(separator)
        if not found or not is_count(count):
            name = "a tab" if form == "opennmt" else "a space"
            raise DataError(f"{location}: not a token, {name} and a count; is it a {form} vocabulary?")
    if not token or any(letter.isspace() for letter in token):
        raise DataError(f"{location}: {token[:60]!r} is not a token; is it a {form} vocabulary?")
    return token


class Binarized(Reader):
    """(source, target) of the pairs that fairseq-preprocess has binarised: two .bin files, such as train.de-en.de.bin and
    train.de-en.en.bin, with their .idx files and dict.de.txt and dict.en.txt beside them. Tokens are joined by spaces; the end of each
    sentence is left out."""

    kinds = ("text", "text")

    def __init__(self, paths: Paths):
        super().__init__(paths)
        if len(self.paths) != 2:
            raise DataError(f"binarised pairs are two .bin files, source and target, not {len(self.paths)}")

    def __iter__(self) -> Iterator[tuple[str, str]]:
        source, target = (BinarizedFile(Path(path)) for path in self.paths)
        if len(source) != len(target):
            raise DataError(
                f"{self.paths[0]}: {len(source):,} sentences, but {self.paths[1]} has {len(target):,}; give files that belong together"
            )
        for number in range(len(source)):
            self.location = f"{self.paths[0]}: sentence {number + 1}"
            yield source[number], target[number]


class BinarizedFile:
    """The sentences of one .bin file."""

    def __init__(self, path: Path):
        self.path = path
        index = path.with_suffix(".idx")
        names = path.name.removesuffix(".bin").split(".")
        dictionary = path.with_name(f"dict.{names[-1]}.txt")
        for needed in (index, dictionary):
            if not needed.is_file():
                raise DataError(
                    f"{path}: {needed.name} is missing beside it; get the whole folder of fairseq-preprocess"
                )
        tokens, _ = read_vocabulary(dictionary, "fairseq")
        self.tokens = np.array(tokens, dtype=object)
        data = index.read_bytes()
        start = len(MAGIC) + 17
        if data[: len(MAGIC)] != MAGIC or len(data) < start:
            raise DataError(
                f"{index}: not an index of fairseq in the mmap form; write it with --dataset-impl mmap"
            )
        version, code, count = struct.unpack_from("<QBQ", data, len(MAGIC))
        if version != 1 or code not in DTYPES or len(data) != start + 12 * count:
            raise DataError(f"{index}: damaged, or of another version; write it again")
        self.sizes = np.frombuffer(data, "<i4", count, start)
        self.pointers = np.frombuffer(data, "<i8", count, start + 4 * count)
        dtype = np.dtype(DTYPES[code])
        self.data = np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)
        ends = self.pointers // dtype.itemsize + self.sizes
        if count and (self.sizes.min() < 0 or self.pointers.min() < 0 or ends.max() > len(self.data)):
            raise DataError(f"{path}: it ends before its last sentence; get the file again")
        self.starts = self.pointers // dtype.itemsize

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: int) -> str:
        start = int(self.starts[number])
        ids = self.data[start : start + int(self.sizes[number])].astype(np.int64)
        if len(ids) and (ids.min() < 0 or ids.max() >= len(self.tokens)):
            raise DataError(
                f"{self.path}: sentence {number + 1} has an id that the dictionary has not; they do not belong together"
            )
        end = len(ids) - 1 if len(ids) and ids[-1] == 2 else len(ids)
        return " ".join(self.tokens[ids[:end]])

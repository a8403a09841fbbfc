"""Checkpoints of llama2.c in its first format: seven whole numbers, then 32-bit floats, and a tokenizer of pieces with scores.

Left out: the later formats with a magic number, which hold the same models, some of them quantised.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from torch import Tensor, nn

from seqloom.files import read_limited
from seqloom.interop.import_run import ForeignCheckpoint, shapes
from seqloom.layouts.llama import config_tree
from seqloom.text import tokenizer_file as tokenizers
from seqloom.text.special_tokens import with_special_ids

UNK, BOS, EOS = range(3)
MOST = 1 << 20  # of any of its sizes
LONGEST = 256  # bytes of a piece
EPSILON = 1e-5


def read(path: Path, tokenizer: Path | None = None) -> ForeignCheckpoint:
    """The checkpoint at `path`; its tokenizer is the only other .bin beside it where none is said."""
    try:
        length = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(28)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    if len(head) < 28:
        raise ValueError(
            f"{path}: {length} bytes are too few for a checkpoint of llama2.c; get the file again"
        )
    if head[:4] == b"24ka":
        raise ValueError(
            f"{path}: this is a later format of llama2.c; write the model in its first (version 0), which is read here"
        )
    dim, inner, layers, heads, groups, vocabulary, context = struct.unpack("<7i", head)
    tied, vocabulary = vocabulary > 0, abs(vocabulary)
    sizes = (dim, inner, layers, heads, groups, vocabulary, context)
    if (
        not all(0 < size < MOST for size in sizes)
        or vocabulary <= EOS
        or dim % heads
        or heads % groups
        or (dim // heads) % 2
    ):
        raise ValueError(
            f"{path}: its sizes {sizes} are those of no model; this is not a checkpoint of llama2.c"
        )
    half, keys = dim // heads // 2, dim // heads * groups
    parts = {
        "embedding": (vocabulary, dim),
        "attention_norm": (layers, dim),
        "q": (layers, dim, dim),
        "k": (layers, keys, dim),
        "v": (layers, keys, dim),
        "o": (layers, dim, dim),
        "feedforward_norm": (layers, dim),
        "gate": (layers, inner, dim),
        "down": (layers, dim, inner),
        "up": (layers, inner, dim),
        "norm": (dim,),
        "angles": (2, context, half),  # of the rotary positions, which are computed
        **({} if tied else {"output": (vocabulary, dim)}),
    }
    wanted = 28 + 4 * sum(int(np.prod(shape, dtype=object)) for shape in parts.values())
    if wanted != length:
        raise ValueError(
            f"{path}: {length:,} bytes where its sizes mean {wanted:,}; the file is cut short or is no checkpoint of llama2.c"
        )
    tree = config_tree(dim, layers, heads, groups, dim // heads, inner, EPSILON, {"type": "Rotary"}, tied)

    def get(model: nn.Module) -> dict[str, Tensor]:
        numbers, place = np.memmap(path, "<f4", "r", 28), 0
        found: dict[str, Tensor] = {}
        for name, shape in parts.items():
            count = int(np.prod(shape))
            found[name] = torch.from_numpy(np.array(numbers[place : place + count]).reshape(shape))
            place += count
            if not found[name].isfinite().all():
                raise ValueError(f"{path}: {name} holds NaN or infinity; get the file again")
        ours = {"embedding.table": found["embedding"], "stack.norm.gain": found["norm"]}
        for number in range(layers):
            block = f"stack.blocks.{number}"
            for norm in ("attention_norm", "feedforward_norm"):
                ours[f"{block}.{norm}.gain"] = found[norm][number]
            ours[f"{block}.attention.project.weight"] = torch.cat([found[one][number] for one in "qkv"])
            ours[f"{block}.attention.last.weight"] = found["o"][number]
            ours[f"{block}.feedforward.first.weight"] = torch.cat(
                [found["gate"][number], found["up"][number]]
            )
            ours[f"{block}.feedforward.last.weight"] = found["down"][number]
        if not tied:
            ours["output.table"] = found["output"]
        return {name: ours[name] for name in shapes(model)}

    return ForeignCheckpoint(
        "llama2.c", tree, read_tokenizer(tokenizer or find_tokenizer(path), vocabulary), get
    )


def find_tokenizer(path: Path) -> Path:
    """The tokenizer in the checkpoint's folder."""
    found = [one for one in sorted(path.parent.glob("*.bin")) if one.name.startswith("tok")]
    if len(found) != 1:
        raise ValueError(
            f"{path.parent}: {len(found)} files tok*.bin beside {path.name}; say which is its tokenizer with --tokenizer FILE"
        )
    return found[0]


def read_tokenizer(path: Path, vocabulary: int) -> Tokenizer:
    """The tokenizer of a tok….bin: byte pairs over pieces, the pair that makes the best-scored piece first."""
    try:
        data = read_limited(path, MOST * LONGEST)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    found: list[tuple[str, float]] = []
    place = 4
    try:
        for index in range(vocabulary):
            score, length = struct.unpack_from("<fi", data, place)
            text = data[place + 8 : place + 8 + length]
            if not 0 <= length <= LONGEST or len(text) != length:
                raise ValueError
            place += 8 + length
            found.append(
                (("<unk>", "<s>", "</s>")[index] if index < 3 else text.decode().replace(" ", "▁"), score)
            )
    except (struct.error, ValueError):
        raise ValueError(
            f"{path}: not a tokenizer of llama2.c with {vocabulary} pieces; say which is with --tokenizer FILE"
        ) from None
    table = {text: index for index, (text, _) in enumerate(found)}
    if len(table) != vocabulary or place != len(data):
        raise ValueError(
            f"{path}: not a tokenizer of llama2.c with {vocabulary} pieces; say which is with --tokenizer FILE"
        )
    pairs = [
        (-score, table[text[:cut]], table[text[cut:]], text[:cut], text[cut:])
        for text, score in found[3:]
        for cut in range(1, len(text))
        if text[:cut] in table and text[cut:] in table
    ]
    made = Tokenizer(
        models.BPE(
            table, [pair[3:] for pair in sorted(pairs)], unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
    )
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(
        [AddedToken(one, normalized=False, special=True) for one in ("<unk>", "<s>", "</s>")]
    )
    parts = json.loads(made.to_str())
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    parts["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [start, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
    }
    # its stories are divided by <s> alone, so that ends one too
    return tokenizers.parse(
        json.dumps(with_special_ids(parts, {"unk": [UNK], "bos": [BOS], "eos": [BOS, EOS]})), path
    )

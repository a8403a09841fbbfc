"""Reads checkpoints of llama2.c, version 0: seven integers, then 32-bit floats, and a tokenizer of pieces.

Left out: the later versions, which start with a magic number and hold the same models, some of them
quantised.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from seqloom.errors import DataError
from seqloom.files import read_limited
from seqloom.interop.bpe_pieces import add_special, scored_bpe
from seqloom.interop.import_run import ForeignCheckpoint, shapes
from seqloom.layouts.llama import config_tree
from seqloom.text import tokenizer_file as tokenizers
from seqloom.text.tokenizer_file import with_special_ids

UNK, BOS, EOS = range(3)
SPECIAL_PIECES = ("<unk>", "<s>", "</s>")
MAX_SIZE = 1 << 20  # of any size in the header
MAX_PIECE_BYTES = 256
HEADER_BYTES = 28
EPSILON = 1e-5


def read(path: Path, tokenizer: Path | None = None) -> ForeignCheckpoint:
    """Reads the checkpoint at `path`. The default tokenizer is the only tok*.bin beside it."""
    try:
        length = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    if len(header) < HEADER_BYTES:
        raise DataError(
            f"{path}: {length} bytes are too few for a checkpoint of llama2.c; get the file again"
        )
    if header[:4] == b"24ka":
        raise DataError(
            f"{path}: this is a later version of llama2.c's format; export the model as version 0"
        )
    dim, ffn_dim, layers, heads, kv_heads, signed_vocabulary, context = struct.unpack("<7i", header)
    tied = signed_vocabulary > 0
    vocabulary = abs(signed_vocabulary)
    sizes = (dim, ffn_dim, layers, heads, kv_heads, vocabulary, context)
    if (
        not all(0 < size < MAX_SIZE for size in sizes)
        or vocabulary <= EOS
        or dim % heads
        or heads % kv_heads
        or (dim // heads) % 2
    ):
        raise DataError(f"{path}: no model has the sizes {sizes}; this is not a checkpoint of llama2.c")
    head_dim = dim // heads
    key_width = head_dim * kv_heads
    parts: dict[str, tuple[int, ...]] = {
        "embedding": (vocabulary, dim),
        "attention_norm": (layers, dim),
        "q": (layers, dim, dim),
        "k": (layers, key_width, dim),
        "v": (layers, key_width, dim),
        "o": (layers, dim, dim),
        "feedforward_norm": (layers, dim),
        "gate": (layers, ffn_dim, dim),
        "down": (layers, dim, ffn_dim),
        "up": (layers, ffn_dim, dim),
        "norm": (dim,),
        "angles": (2, context, head_dim // 2),  # of the rotary positions; we compute them
        **({} if tied else {"output": (vocabulary, dim)}),
    }
    expected = HEADER_BYTES + 4 * sum(int(np.prod(shape, dtype=object)) for shape in parts.values())
    if expected != length:
        raise DataError(
            f"{path}: it has {length:,} bytes, but its sizes mean {expected:,}; "
            "the file is cut short or is not a checkpoint of llama2.c"
        )
    tree = config_tree(dim, layers, heads, kv_heads, head_dim, ffn_dim, EPSILON, {"type": "Rotary"}, tied)

    def weights(model: nn.Module) -> dict[str, Tensor]:
        values = np.memmap(path, "<f4", "r", HEADER_BYTES)
        offset = 0
        tensors: dict[str, Tensor] = {}
        for name, shape in parts.items():
            count = int(np.prod(shape))
            tensors[name] = torch.from_numpy(np.array(values[offset : offset + count]).reshape(shape))
            offset += count
            if not tensors[name].isfinite().all():
                raise DataError(f"{path}: {name} holds NaN or infinity; get the file again")
        ours = {"embedding.table": tensors["embedding"], "stack.norm.gain": tensors["norm"]}
        for layer in range(layers):
            block = f"stack.blocks.{layer}"
            for norm in ("attention_norm", "feedforward_norm"):
                ours[f"{block}.{norm}.gain"] = tensors[norm][layer]
            qkv = torch.cat([tensors[name][layer] for name in "qkv"])
            gate_and_up = torch.cat([tensors["gate"][layer], tensors["up"][layer]])
            ours[f"{block}.attention.qkv_proj.weight"] = qkv
            ours[f"{block}.attention.out_proj.weight"] = tensors["o"][layer]
            ours[f"{block}.feedforward.in_proj.weight"] = gate_and_up
            ours[f"{block}.feedforward.out_proj.weight"] = tensors["down"][layer]
        if not tied:
            ours["output.table"] = tensors["output"]
        return {name: ours[name] for name in shapes(model)}

    loaded = read_tokenizer(tokenizer or find_tokenizer(path), vocabulary)
    return ForeignCheckpoint("llama2.c", tree, loaded, weights)


def find_tokenizer(path: Path) -> Path:
    """The tokenizer in the checkpoint's folder."""
    candidates = sorted(path.parent.glob("tok*.bin"))
    if len(candidates) != 1:
        raise DataError(
            f"{path.parent}: {len(candidates)} files tok*.bin beside {path.name}; "
            "pass its tokenizer with --tokenizer FILE"
        )
    return candidates[0]


def read_tokenizer(path: Path, vocabulary: int) -> Tokenizer:
    """The tokenizer of a tok*.bin: byte-pair encoding that merges the pair with the best score first."""
    try:
        data = read_limited(path, MAX_SIZE * MAX_PIECE_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    message = (
        f"{path}: not a tokenizer of llama2.c with {vocabulary} pieces; "
        "pass the right one with --tokenizer FILE"
    )
    pieces: list[tuple[str, float]] = []
    offset = 4
    try:
        for index in range(vocabulary):
            score, length = struct.unpack_from("<fi", data, offset)
            text = data[offset + 8 : offset + 8 + length]
            if not 0 <= length <= MAX_PIECE_BYTES or len(text) != length:
                raise ValueError
            offset += 8 + length
            piece = SPECIAL_PIECES[index] if index < 3 else text.decode().replace(" ", "▁")
            pieces.append((piece, score))
    except (struct.error, ValueError):
        raise DataError(message) from None
    vocab = {piece: index for index, (piece, _) in enumerate(pieces)}
    if len(vocab) != vocabulary or offset != len(data):
        raise DataError(message)
    tokenizer = scored_bpe(pieces, len(SPECIAL_PIECES))
    add_special(tokenizer, SPECIAL_PIECES)
    tokenizer_json = json.loads(tokenizer.to_str())
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    tokenizer_json["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [start, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
    }
    # the training stories were separated by <s> alone, so <s> ends a text too
    tokenizer_json = with_special_ids(tokenizer_json, {"unk": [UNK], "bos": [BOS], "eos": [BOS, EOS]})
    return tokenizers.parse(json.dumps(tokenizer_json), path)

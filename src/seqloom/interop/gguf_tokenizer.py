"""The tokenizer inside a GGUF file: byte-level byte-pair encoding (`gpt2`), SentencePiece's (`llama`), or a whole tokenizer.json."""

from __future__ import annotations

import json

from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.interop.bpe_pieces import add_special, byte_level_bpe, byte_level_pieces, scored_bpe
from seqloom.interop.gguf_header import GGUFHeader
from seqloom.text import tokenizer_file
from seqloom.text.tokenizer import special_tokens
from seqloom.text.tokenizer_file import with_special_ids, with_template

PREFIX = "tokenizer.ggml."
JSON_KEY = "tokenizer.huggingface.json"
CONTROL, USER_DEFINED = 3, 4  # types of tokens
ROLE_KEYS = {"pad": "padding", "unk": "unknown", "bos": "bos", "eos": "eos", "mask": "mask"}
END_KEYS = ("eot", "eom")  # tokens that end a turn, besides the one that ends a text
MAX_PIECE = 1000  # characters; each way to divide a piece is looked at


def read(header: GGUFHeader) -> Tokenizer:
    """The tokenizer of a file, with its special ids stored in it."""
    text = header.get(JSON_KEY, str)
    if text is not None:
        tokenizer = tokenizer_file.parse(text, header.path)
        specials = special_tokens(tokenizer)
        if all(getattr(specials, role) == ids[0] for role, ids in role_ids(header).items()):
            return tokenizer
    else:
        tokenizer = build(header)
    parts = json.loads(tokenizer.to_str())
    roles = role_ids(header)
    try:
        parts = with_special_ids(parts, roles)
    except ValueError as error:
        raise DataError(f"{header.path}: {error}; pass a tokenizer with --tokenizer FILE") from None
    adds_bos = header.get(f"{PREFIX}add_bos_token", bool, header.values.get(f"{PREFIX}model") == "llama")
    if adds_bos and roles.get("bos"):
        parts = with_template(parts, roles["bos"][:1], [])
    return tokenizer_file.parse(json.dumps(parts), header.path)


def role_ids(header: GGUFHeader) -> dict[str, list[int]]:
    """The ids of the special tokens; several may end a text."""
    roles: dict[str, list[int]] = {}
    for role, name in ROLE_KEYS.items():
        index = header.get(f"{PREFIX}{name}_token_id", int)
        if index is not None:
            roles[role] = [index]
    for name in END_KEYS:
        index = header.get(f"{PREFIX}{name}_token_id", int)
        if index is not None and index not in roles.setdefault("eos", []):
            roles["eos"].append(index)
    return roles


def build(header: GGUFHeader) -> Tokenizer:
    """The tokenizer of the lists of tokens, merges and scores."""
    path = header.path
    model = header.get(f"{PREFIX}model", str)
    tokens = header.texts(f"{PREFIX}tokens")
    types = header.get(f"{PREFIX}token_type", list, [1] * len(tokens))
    vocab = {token: index for index, token in enumerate(tokens)}
    if not tokens or len(vocab) != len(tokens) or len(types) != len(tokens):
        raise DataError(
            f"{path}: its list of tokens is missing or damaged; pass a tokenizer with --tokenizer FILE"
        )
    if max(map(len, tokens)) > MAX_PIECE:
        raise DataError(f"{path}: a token has more than {MAX_PIECE} characters; it is not a real checkpoint")
    if model == "gpt2":
        name = header.get(f"{PREFIX}pre", str, "default")
        pieces = byte_level_pieces(name)
        if pieces is None:
            raise DataError(
                f"{path}: its tokenizer divides texts as {name[:40]!r}, which is not known; pass one with --tokenizer FILE"
            )
        pairs = [merge.split(" ") for merge in header.texts(f"{PREFIX}merges")]
        if any(len(pair) != 2 or pair[0] not in vocab or pair[1] not in vocab for pair in pairs):
            raise DataError(f"{path}: its list of merges is damaged; pass a tokenizer with --tokenizer FILE")
        tokenizer = byte_level_bpe(vocab, [(left, right) for left, right in pairs], pieces)
    elif model == "llama":
        scores = header.get(f"{PREFIX}scores", list, [])
        if len(scores) != len(tokens):
            raise DataError(
                f"{path}: its list of scores is missing or damaged; pass a tokenizer with --tokenizer FILE"
            )
        unk = header.get(f"{PREFIX}unknown_token_id", int, 0)
        space = header.get(f"{PREFIX}add_space_prefix", bool, True)
        if not 0 <= unk < len(tokens):
            raise DataError(
                f"{path}: the unknown token has id {unk}, which is none; it is not a real checkpoint"
            )
        tokenizer = scored_bpe(list(zip(tokens, scores, strict=True)), 0, space, tokens[unk])
    else:
        raise DataError(
            f"{path}: tokenizers of type {str(model)[:40]!r} cannot be read; pass a tokenizer.json with --tokenizer FILE"
        )
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    user = [token for token, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED]
    add_special(tokenizer, special, user)
    return tokenizer

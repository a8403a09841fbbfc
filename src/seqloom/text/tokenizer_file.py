"""tokenizer.json: reads the file, and changes its special ids and the template that frames a text.

It is read defensively: a missing, damaged or crafted file raises a ValueError of one line.

The tokenizers library aborts or panics on some files, and allocates memory without bound on others, so they
are checked before the library reads them. Left out: regular expressions that take long on crafted texts.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.files import read_limited
from seqloom.text.tokenizer import NAMES, PREFIX, SPECIALS, SpecialTokens, special_tokens, template_of

PAIR_PROCESSORS = (
    "BertProcessing",
    "RobertaProcessing",
)  # post-processors that add [CLS] and [SEP] without a template

JSON = dict[str, Any]
MAX_FILE_BYTES = 1 << 28
MAX_EXPANSION = 100  # how many times longer a normalizer or a decoder may make a text


def load(path: str | Path) -> Tokenizer:
    """Reads the tokenizer saved at `path`; raises a ValueError if the file is not a tokenizer."""
    try:
        text = read_limited(path, MAX_FILE_BYTES).decode()
    except OSError as error:
        raise DataError(
            f"{path}: cannot read a tokenizer: {error.strerror}; give a tokenizer.json"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: cannot read a tokenizer: {error}; give a tokenizer.json") from error
    return parse(text, path)


def parse(text: str, path: str | Path) -> Tokenizer:
    """Builds the tokenizer of a JSON text, without padding
    and truncation, which would change the ids of a text."""
    # A crafted file raises PanicException, which is a BaseException, when it is read or only when it is used:
    # so use it once.
    try:
        parts = json.loads(text)
        _check_merges(parts["model"])
        for name in ("normalizer", "decoder"):
            if _expansion_factor(parts.get(name)) > MAX_EXPANSION:
                raise DataError(f"its {name} makes texts too long")
        with _silence_stderr():
            tokenizer = Tokenizer.from_str(json.dumps(parts | {"padding": None, "truncation": None}))
            highest_id = max(tokenizer.get_vocab().values(), default=-1)
            count = tokenizer.get_vocab_size()
            _check_template(parts.get("post_processor"), count)
            tokenizer.decode(tokenizer.encode("Hello, <wörld>\n 1").ids)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path}: not a tokenizer.json of the tokenizers library ({reason}); give another file"
        ) from None
    if highest_id != count - 1:
        raise DataError(
            f"{path}: {count} tokens but the highest id is {highest_id}; number them 0 to {count - 1}"
        )
    return tokenizer


def File(texts: Iterable[str], path: str) -> Tokenizer:
    """The tokenizer of the tokenizer.json at `path`; `texts` are not read.

    A file that does not begin with our special tokens gets them, and its own ids are increased by five.
    A file that declares its own special tokens, as those of imported runs do, stays unchanged.
    """
    tokenizer = load(path)
    first_tokens = [tokenizer.id_to_token(index) for index in range(len(SPECIALS))]
    if special_tokens(tokenizer) != SpecialTokens() or first_tokens == list(SPECIALS):
        return tokenizer
    taken = [token for token in SPECIALS if tokenizer.token_to_id(token) is not None]
    if taken:
        raise DataError(
            f"{path}: {taken[0]} has id {tokenizer.token_to_id(taken[0])}, but {' '.join(SPECIALS)} must be ids 0 to 4; "
            "rename it in the file, or remove it"
        )
    return parse(json.dumps(_shift_ids(json.loads(tokenizer.to_str()))), path)


def with_special_ids(parts: JSON, roles: Mapping[str, Sequence[int]]) -> JSON:
    """Returns the JSON of a tokenizer that stores its special ids;
    `roles` has pad, unk, bos, eos and mask as far as they exist."""
    tokens = {index: token for token, index in vocabulary(parts).items()}
    table = {}
    for name in NAMES:
        if ids := list(roles.get(name, ())):
            if missing := [index for index in ids if index not in tokens]:
                raise DataError(
                    f"the {name} token has id {missing[0]}, which the tokenizer does not have; its settings do not belong to it"
                )
            table[PREFIX + name] = {
                "id": PREFIX + name,
                "ids": ids,
                "tokens": [tokens[index] for index in ids],
            }
    if not table.keys() & {f"{PREFIX}eos", f"{PREFIX}bos"}:
        raise DataError("the tokenizer's settings name no token that begins or ends a text")
    processor = _ensure_template(parts.get("post_processor"))
    template = template_of(processor)
    if template is not None:
        template["special_tokens"] = template["special_tokens"] | table
    return parts | {"post_processor": processor}


def with_template(parts: JSON, before: Sequence[int], after: Sequence[int]) -> JSON:
    """Returns the JSON of a tokenizer whose template puts the given ids around every text."""
    tokens = {index: token for token, index in vocabulary(parts).items()}
    pieces_before = [_special_piece(tokens[index]) for index in before]
    pieces_after = [_special_piece(tokens[index]) for index in after]
    processor = parts.get("post_processor")
    old_template = None if processor is None else template_of(processor)
    table = {} if old_template is None else old_template["special_tokens"]
    table = table | {tokens[index]: _special_entry(tokens[index], index) for index in (*before, *after)}
    return parts | {"post_processor": _template_json(pieces_before, pieces_after, table)}


def vocabulary(parts: JSON) -> dict[str, int]:
    """Returns token → id of a tokenizer in JSON, including added tokens."""
    vocab = parts["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {entry[0]: i for i, entry in enumerate(vocab)}
    return ids | {token["content"]: token["id"] for token in parts.get("added_tokens", [])}


def _ensure_template(processor: JSON | None) -> JSON:
    """Returns a post-processor's JSON that contains a template: its own, or one that adds nothing."""
    empty = _template_json([], [], {})
    if processor is None:
        return empty
    if processor["type"] in PAIR_PROCESSORS:
        cls_token, cls_id = processor["cls"]
        sep_token, sep_id = processor["sep"]
        table = {cls_token: _special_entry(cls_token, cls_id), sep_token: _special_entry(sep_token, sep_id)}
        return _template_json([_special_piece(cls_token)], [_special_piece(sep_token)], table)
    if processor["type"] == "Sequence":
        inner = [
            _ensure_template(part) if part["type"] in PAIR_PROCESSORS else part
            for part in processor["processors"]
        ]
        processor = {**processor, "processors": inner}
    if template_of(processor) is not None:
        return processor
    return {"type": "Sequence", "processors": [processor, empty]}


def _special_piece(token: str, type_id: int = 0) -> JSON:
    return {"SpecialToken": {"id": token, "type_id": type_id}}


def _special_entry(token: str, index: int) -> JSON:
    return {"id": token, "ids": [index], "tokens": [token]}


def _template_json(before: list[JSON], after: list[JSON], table: JSON) -> JSON:
    """Returns the JSON of a template with these pieces: for
    one text, and for two of which the second is segment 1."""
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    after_second = [_special_piece(piece["SpecialToken"]["id"], 1) for piece in after]
    return {
        "type": "TemplateProcessing",
        "single": [*before, first, *after],
        "pair": [*before, first, *after, second, *after_second],
        "special_tokens": table,
    }


def _shift_ids(parts: dict) -> dict:
    """Returns the JSON of a foreign tokenizer with our special
    tokens first and every other id five higher."""
    model = parts["model"]
    shift = len(SPECIALS)
    if isinstance(model["vocab"], dict):
        specials = dict(zip(SPECIALS, range(shift), strict=True))
        model["vocab"] = specials | {token: index + shift for token, index in model["vocab"].items()}
    else:
        model["vocab"] = [[token, 0.0] for token in SPECIALS] + model["vocab"]
        model["unk_id"] = None if model["unk_id"] is None else model["unk_id"] + shift
    for token in parts["added_tokens"]:
        token["id"] += shift
    return parts | {"post_processor": None}


def _check_merges(model: dict) -> None:
    """Raises if the second part of a merge lacks its prefix: the library
    strips it without checking, and may abort the process."""
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges", []) if prefix else []:
        second = merge.split(" ")[-1] if isinstance(merge, str) else merge[-1]
        if not second.startswith(prefix):
            raise DataError(f"the second part of the merge {merge} does not start with {prefix}")


def _expansion_factor(component: dict | None) -> float:
    """Returns how many times longer a normalizer or a decoder
    may make a text; raises if its table is truncated."""
    if not component:
        return 1
    if component["type"] == "Sequence":
        inner = component.get("normalizers") or component.get("decoders") or []
        return math.prod(_expansion_factor(part) for part in inner)
    if component["type"] == "Replace":
        replaced = component["pattern"].get("String")
        size = len(component["content"])
        return max(1, size / len(replaced)) if replaced else 1 + size
    if component["type"] == "Precompiled":
        table = base64.b64decode(component["precompiled_charsmap"])
        if len(table) < 4 or int.from_bytes(table[:4], "little") > len(table) - 4:
            raise DataError("its normalizer's table is cut short")
    return 1 + len(component["prepend"]) if component["type"] == "Prepend" else 1


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Silences stderr while the library reads a file, since a panic would print there."""
    saved = os.dup(2)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(devnull)


def _check_template(processor: dict | None, count: int) -> None:
    """Raises if a template uses a token that is not in its table,
    on which the library panics, or an id that does not exist."""
    for part in [processor, *(processor or {}).get("processors", [])]:
        if not part:
            continue
        ids = [part[name][1] for name in ("cls", "sep")] if part["type"] in PAIR_PROCESSORS else []
        if part["type"] == "TemplateProcessing":
            names = [
                piece["SpecialToken"]["id"]
                for side in ("single", "pair")
                for piece in part[side]
                if "SpecialToken" in piece
            ]
            if missing := [name for name in names if name not in part["special_tokens"]]:
                raise DataError(f"the template uses {missing[0]} without giving its id")
            ids = [index for token in part["special_tokens"].values() for index in token["ids"]]
        if invalid := [index for index in ids if index >= count]:
            raise DataError(f"the template has the id {invalid[0]} but there are only {count} tokens")

"""Reads a tokenizer.json defensively: a missing, damaged or crafted file raises a ValueError of one line.

The tokenizers library aborts or panics on some files, and allocates memory without bound on others, so they
are checked before the library reads them. Left out: regular expressions that take long on crafted texts.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.files import read_limited
from seqloom.text.special_tokens import PAIR_PROCESSORS

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

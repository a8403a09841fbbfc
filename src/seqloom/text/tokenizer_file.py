"""A tokenizer.json read with suspicion: whatever is missing, damaged or crafted is a ValueError of one line, before the library meets it.

The library aborts or panics over some files, and over others takes memory without end. Left out: patterns that take long on crafted texts.
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

from seqloom.files import read_limited
from seqloom.text.special_tokens import PAIRS

MOST = 1 << 28  # bytes of a file
GROWTH = 100  # times that what a tokenizer puts in place of characters may lengthen a text


def load(path: str | Path) -> Tokenizer:
    """The tokenizer saved at `path`; a file that is none is a ValueError."""
    try:
        text = read_limited(path, MOST).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: cannot read a tokenizer: {getattr(error, 'strerror', error)}; give a tokenizer.json"
        ) from error
    return parse(text, path)


def parse(text: str, path: str | Path) -> Tokenizer:
    """The tokenizer of a JSON text, without padding and truncation, which would change what a text is."""
    # A crafted file raises PanicException, which is a BaseException, when read or only when used: so use it once.
    try:
        parts = json.loads(text)
        _check_merges(parts["model"])
        for name in ("normalizer", "decoder"):
            if _expansion_factor(parts.get(name)) > GROWTH:
                raise ValueError(f"its {name} makes texts too long")
        with _silence_stderr():
            tokenizer = Tokenizer.from_str(json.dumps(parts | {"padding": None, "truncation": None}))
            top = max(tokenizer.get_vocab().values(), default=-1)
            count = tokenizer.get_vocab_size()
            _check_template(parts.get("post_processor"), count)
            tokenizer.decode(tokenizer.encode("Hello, <wörld>\n 1").ids)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{path}: not a tokenizer.json of the tokenizers library ({reason}); give another file"
        ) from None
    if top != count - 1:
        raise ValueError(f"{path}: {count} tokens but the highest id is {top}; number them 0 to {count - 1}")
    return tokenizer


def _check_merges(model: dict) -> None:
    """Refuse merges whose second half lacks the prefix it should have: the library cuts it off blindly, and may abort the process."""
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges", []) if prefix else []:
        second = merge.split(" ")[-1] if isinstance(merge, str) else merge[-1]
        if not second.startswith(prefix):
            raise ValueError(f"the merge {merge} does not go on with {prefix}")


def _expansion_factor(part: dict | None) -> float:
    """How many times longer a normalizer or a decoder may make a text, as far as it says what to put there; and a table it can stand on."""
    if not part:
        return 1
    if part["type"] == "Sequence":
        return math.prod(
            _expansion_factor(one) for one in part.get("normalizers") or part.get("decoders") or []
        )
    if part["type"] == "Replace":
        return (
            max(1, len(part["content"]) / len(part["pattern"]["String"]))
            if part["pattern"].get("String")
            else 1 + len(part["content"])
        )
    if part["type"] == "Precompiled":
        table = base64.b64decode(part["precompiled_charsmap"])
        if len(table) < 4 or int.from_bytes(table[:4], "little") > len(table) - 4:
            raise ValueError("its normalizer's table is cut short")
    return 1 + len(part["prepend"]) if part["type"] == "Prepend" else 1


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Keeps what the library writes straight to the terminal, when a file drives it to panic, from being seen: the error tells it."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _check_template(frame: dict | None, count: int) -> None:
    """Refuse a template with a token that its table has not, over which the library stops the program's thread, or that has no id."""
    for one in [frame, *(frame or {}).get("processors", [])]:
        ids = [one[name][1] for name in ("cls", "sep")] if one and one["type"] in PAIRS else []
        if one and one["type"] == "TemplateProcessing":
            names = [
                piece["SpecialToken"]["id"]
                for side in ("single", "pair")
                for piece in one[side]
                if "SpecialToken" in piece
            ]
            if missing := [name for name in names if name not in one["special_tokens"]]:
                raise ValueError(f"the template names {missing[0]} and does not say its id")
            ids = [index for token in one["special_tokens"].values() for index in token["ids"]]
        if beyond := [index for index in ids if index >= count]:
            raise ValueError(f"the template has the id {beyond[0]} and there are {count} tokens")

"""Tokenizers of checkpoints: which of their tokens are special, said in the tokenizer.json itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from seqloom.layouts.hf_folder import HFConfig, read_json
from seqloom.text import tokenizer_file as tokenizers
from seqloom.text.special_tokens import special_tokens, vocabulary, with_special_ids, with_template

ROLE_KEYS = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
    "mask": ("mask_token",),
}
DEFAULT_TOKENS = {
    "pad": ("[PAD]",),
    "unk": ("[UNK]",),
    "bos": ("[CLS]",),
    "eos": ("[SEP]",),
    "mask": ("[MASK]", "<mask>"),
}


def read(
    path: Path,
    said: HFConfig | None = None,
    roles: dict[str, str] | None = None,
    frame: tuple[str, ...] = (),
    usual: Mapping[str, tuple[str, ...]] = DEFAULT_TOKENS,
) -> Tokenizer:
    """The tokenizer at `path`, which says its special ids itself.

    They are those that config.json gives for `roles`, else those of the tokens that tokenizer_config.json names, else those of the `usual` names.
    A file without a template gets that of `frame`: whether a beginning stands before each text, and an end after it.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no tokenizer.json; say which to use with --tokenizer FILE")
    parts = json.loads(tokenizers.load(path).to_str())
    known = vocabulary(parts)
    ids = set(known.values())
    found: dict[str, list[int]] = {}
    names: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (path.parent / name).is_file():
            names |= read_json(path.parent / name)
    for role, words in ROLE_KEYS.items():
        given = said.id(roles[role]) if said and roles and role in roles else []
        tokens = [names.get(word) for word in words]
        tokens = [one.get("content") if isinstance(one, dict) else one for one in tokens]
        unknown = [parts["model"].get("unk_token")] if role == "unk" else []
        by_name = [
            known[one]
            for one in (*tokens, *unknown, *usual.get(role, ()))
            if isinstance(one, str) and one in known
        ]
        if chosen := [one for one in given if one in ids] or by_name[:1]:
            found[role] = chosen
    for role in frame:
        if role not in found:
            raise ValueError(f"{path}: it has no token that {'begins' if role == 'bos' else 'ends'} a text, as this kind of model needs; "
                             f"say it in tokenizer_config.json beside it ({ROLE_KEYS[role][-1]})")  # fmt: skip
    _apply_tokenizer_config(parts.get("normalizer"), names)
    try:
        parts = with_special_ids(parts, found)
        one = special_tokens(Tokenizer.from_str(json.dumps(parts)))
        if frame and not one.before and not one.after:
            parts = with_template(
                parts,
                *(found[role][:1] if role in frame and role in found else [] for role in ("bos", "eos")),
            )
    except ValueError as error:
        raise ValueError(
            f"{path}: {error}; say it in tokenizer_config.json beside it (bos_token, eos_token)"
        ) from None
    return tokenizers.parse(json.dumps(parts), path)


def _apply_tokenizer_config(normalizer: dict[str, Any] | None, names: dict[str, Any]) -> None:
    """What tokenizer_config.json says of capitals and accents goes before what BERT's normalizer says itself."""
    if normalizer and normalizer.get("type") == "BertNormalizer":
        for theirs, own in (
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ):
            if isinstance(names.get(theirs), bool):
                normalizer[own] = names[theirs]

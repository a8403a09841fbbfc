"""Reads the tokenizer of a checkpoint and stores in its tokenizer.json which of its tokens are special."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.layouts.hf_folder import HFConfig, read_json
from seqloom.text import tokenizer_file as tokenizers
from seqloom.text.tokenizer import special_tokens
from seqloom.text.tokenizer_file import vocabulary, with_special_ids, with_template

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
    hf_config: HFConfig | None = None,
    roles: dict[str, str] | None = None,
    special_frame: tuple[str, ...] = (),
    default_tokens: Mapping[str, tuple[str, ...]] = DEFAULT_TOKENS,
) -> Tokenizer:
    """The tokenizer at `path`, with its special ids stored in it.

    The ids are those of config.json for `roles`, else those of the tokens that tokenizer_config.json names,
    else those of `default_tokens`. A file without a template gets one from `special_frame`: the roles among
    "bos" and "eos" that are put before and after each text.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no tokenizer.json; pass one with --tokenizer FILE")
    tokenizer_json = json.loads(tokenizers.load(path).to_str())
    vocab = vocabulary(tokenizer_json)
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (path.parent / name).is_file():
            config |= read_json(path.parent / name)
    special_ids: dict[str, list[int]] = {}
    for role in ROLE_KEYS:
        configured = hf_config.id(roles[role]) if hf_config and roles and role in roles else []
        ids = [index for index in configured if index in set(vocab.values())]
        ids = ids or _ids_by_name(role, config, tokenizer_json, vocab, default_tokens)[:1]
        if ids:
            special_ids[role] = ids
    for role in special_frame:
        if role not in special_ids:
            verb = "begins" if role == "bos" else "ends"
            raise DataError(
                f"{path}: it has no token that {verb} a text, which this kind of model needs; "
                f"name it in tokenizer_config.json beside it ({ROLE_KEYS[role][-1]})"
            )
    _apply_tokenizer_config(tokenizer_json.get("normalizer"), config)
    try:
        tokenizer_json = with_special_ids(tokenizer_json, special_ids)
        specials = special_tokens(Tokenizer.from_str(json.dumps(tokenizer_json)))
        if special_frame and not specials.before and not specials.after:
            before, after = (
                special_ids[role][:1] if role in special_frame and role in special_ids else []
                for role in ("bos", "eos")
            )
            tokenizer_json = with_template(tokenizer_json, before, after)
    except ValueError as error:
        raise DataError(
            f"{path}: {error}; name it in tokenizer_config.json beside it (bos_token, eos_token)"
        ) from None
    return tokenizers.parse(json.dumps(tokenizer_json), path)


def _ids_by_name(
    role: str,
    config: dict[str, Any],
    tokenizer_json: dict[str, Any],
    vocab: dict[str, int],
    default_tokens: Mapping[str, tuple[str, ...]],
) -> list[int]:
    """The ids of a role's tokens, as tokenizer_config.json, the tokenizer and the defaults name them."""
    values = [config.get(key) for key in ROLE_KEYS[role]]
    tokens = [value.get("content") if isinstance(value, dict) else value for value in values]
    if role == "unk":
        tokens.append(tokenizer_json["model"].get("unk_token"))
    tokens += default_tokens.get(role, ())
    return [vocab[token] for token in tokens if isinstance(token, str) and token in vocab]


def _apply_tokenizer_config(normalizer: dict[str, Any] | None, config: dict[str, Any]) -> None:
    """Overrides the options of BERT's normalizer (case, accents) by those of tokenizer_config.json."""
    if normalizer and normalizer.get("type") == "BertNormalizer":
        for key, option in (
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ):
            if isinstance(config.get(key), bool):
                normalizer[option] = config[key]

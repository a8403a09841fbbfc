"""Tokenizers of checkpoints: which of their tokens are special, said in the tokenizer.json itself on the way in, and in files of their own on
the way out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from seqloom.interop.folder import Settings, read_json
from seqloom.text import tokenizer as tokenizers
from seqloom.text.special import Specials, carrying, framed, specials, vocabulary

WORDS = {"pad": ("pad_token",), "unk": ("unk_token",), "bos": ("bos_token", "cls_token"), "eos": ("eos_token", "sep_token"), "mask": ("mask_token",)}
USUAL = {"pad": ("[PAD]",), "unk": ("[UNK]",), "bos": ("[CLS]",), "eos": ("[SEP]",), "mask": ("[MASK]", "<mask>")}


def read(
    path: Path,
    said: Settings | None = None,
    roles: dict[str, str] | None = None,
    frame: tuple[str, ...] = (),
    usual: Mapping[str, tuple[str, ...]] = USUAL,
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
    for role, words in WORDS.items():
        given = said.id(roles[role]) if said and roles and role in roles else []
        tokens = [names.get(word) for word in words]
        tokens = [one.get("content") if isinstance(one, dict) else one for one in tokens]
        unknown = [parts["model"].get("unk_token")] if role == "unk" else []
        by_name = [known[one] for one in (*tokens, *unknown, *usual.get(role, ())) if isinstance(one, str) and one in known]
        if chosen := [one for one in given if one in ids] or by_name[:1]:
            found[role] = chosen
    try:
        parts = carrying(parts, found)
        one = specials(Tokenizer.from_str(json.dumps(parts)))
        if frame and not one.before and not one.after:
            parts = framed(parts, *(found[role][:1] if role in frame and role in found else [] for role in ("bos", "eos")))
    except ValueError as error:
        raise ValueError(f"{path}: {error}; say it in tokenizer_config.json beside it (bos_token, eos_token)") from None
    return tokenizers.parse(json.dumps(parts), path)


def written(learnt: Tokenizer, kind: str, context: int | None) -> tuple[dict[str, str], dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json as texts by name, and the ids that config.json says."""
    one, parts = specials(learnt), json.loads(learnt.to_str())
    if one == Specials():
        if kind in ("bert", "distilbert"):
            parts = framed(parts, [one.bos], [one.eos])
        elif kind == "marian":
            parts = framed(parts, [], [one.eos])
    named: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for role, index in (("pad", one.pad), ("unk", one.unk), ("bos", one.bos), ("eos", one.eos if one.stops else None), ("mask", one.mask)):
        if index is not None and not (kind == "marian" and role == "bos"):
            named[f"{role}_token"] = learnt.id_to_token(index)
    if kind in ("bert", "distilbert"):
        named |= {"cls_token": named["bos_token"], "sep_token": named["eos_token"]}
    if context is not None:
        named["model_max_length"] = context
    stops = list(one.stops)
    ids: dict[str, Any] = {"eos_token_id": stops[0] if len(stops) == 1 else stops or None, "pad_token_id": one.pad}
    if kind == "marian":
        ids |= {"decoder_start_token_id": one.bos, "forced_eos_token_id": one.eos, "pad_token_id": one.bos if one.pad is None else one.pad}
    elif kind not in ("bert", "distilbert"):
        ids["bos_token_id"] = one.bos
    else:
        ids.pop("eos_token_id")
    texts = {"tokenizer.json": json.dumps(parts, ensure_ascii=False), "tokenizer_config.json": json.dumps(named, indent=1, ensure_ascii=False)}
    return texts, {name: value for name, value in ids.items() if value is not None}

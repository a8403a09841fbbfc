"""Tokenizers as others expect them: what they put around a text, and which of their tokens are special, in a file of its own."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from seqloom.text.special_tokens import SpecialTokens, special_tokens, with_template


def template_json(learnt: Tokenizer, kind: str) -> dict[str, Any]:
    """The JSON of a tokenizer, with the family's template where it is one of ours; an imported one has its own."""
    one, parts = special_tokens(learnt), json.loads(learnt.to_str())
    if one == SpecialTokens() and kind in ("bert", "distilbert"):
        return with_template(parts, [one.bos], [one.eos])
    if one == SpecialTokens() and kind == "marian":
        return with_template(parts, [], [one.eos])
    return parts


def tokenizer_files(
    learnt: Tokenizer, kind: str, context: int | None
) -> tuple[dict[str, str], dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json as texts by name, and the ids that config.json says; null where there is none, not a class's own."""
    one = special_tokens(learnt)
    named: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for role, index in (
        ("pad", one.pad),
        ("unk", one.unk),
        ("bos", one.bos),
        ("eos", one.eos if one.stop_ids else None),
        ("mask", one.mask),
    ):
        if index is not None and not (kind == "marian" and role == "bos"):
            named[f"{role}_token"] = learnt.id_to_token(index)
    if kind in ("bert", "distilbert"):
        named |= {"cls_token": named["bos_token"], "sep_token": named["eos_token"]}
    if context is not None:
        named["model_max_length"] = context
    stops = list(one.stop_ids)
    ids: dict[str, Any] = {
        "eos_token_id": stops[0] if len(stops) == 1 else stops or None,
        "pad_token_id": one.pad,
    }
    if kind == "marian":
        ids |= {
            "decoder_start_token_id": one.bos,
            "forced_eos_token_id": one.eos,
            "pad_token_id": one.bos if one.pad is None else one.pad,
        }
    elif kind not in ("bert", "distilbert"):
        ids["bos_token_id"] = one.bos
    else:
        ids.pop("eos_token_id")
    texts = {"tokenizer.json": template_json(learnt, kind), "tokenizer_config.json": named}
    return {
        name: json.dumps(value, ensure_ascii=False, indent=1 if value is named else None)
        for name, value in texts.items()
    }, ids

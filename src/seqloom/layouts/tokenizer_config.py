"""Tokenizers as `transformers` expects them: the family's template, and tokenizer_config.json."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from seqloom.text.special_tokens import BOS, EOS, SpecialTokens, special_tokens, with_template


def template_json(tokenizer: Tokenizer, model_type: str) -> dict[str, Any]:
    """The JSON of a tokenizer, with the family's template; an imported tokenizer keeps its own."""
    tokenizer_json = json.loads(tokenizer.to_str())
    if special_tokens(tokenizer) != SpecialTokens():
        return tokenizer_json
    if model_type in ("bert", "distilbert"):
        return with_template(tokenizer_json, [BOS], [EOS])
    if model_type == "marian":
        return with_template(tokenizer_json, [], [EOS])
    return tokenizer_json


def tokenizer_files(
    tokenizer: Tokenizer, model_type: str, context: int | None
) -> tuple[dict[str, str], dict[str, Any]]:
    """The text of tokenizer.json and tokenizer_config.json by file name, and the token ids for config.json.

    An id that the tokenizer does not have is null there, since `transformers` would use its class's default.
    """
    specials = special_tokens(tokenizer)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for role, index in (
        ("pad", specials.pad),
        ("unk", specials.unk),
        ("bos", specials.bos),
        ("eos", specials.eos if specials.stop_ids else None),
        ("mask", specials.mask),
    ):
        if index is not None and not (model_type == "marian" and role == "bos"):
            config[f"{role}_token"] = tokenizer.id_to_token(index)
    if model_type in ("bert", "distilbert"):
        config |= {"cls_token": config["bos_token"], "sep_token": config["eos_token"]}
    if context is not None:
        config["model_max_length"] = context
    stops = list(specials.stop_ids)
    ids: dict[str, Any] = {
        "eos_token_id": stops[0] if len(stops) == 1 else stops or None,
        "pad_token_id": specials.pad,
    }
    if model_type == "marian":
        ids |= {
            "decoder_start_token_id": specials.bos,
            "forced_eos_token_id": specials.eos,
            "pad_token_id": specials.bos if specials.pad is None else specials.pad,
        }
    elif model_type not in ("bert", "distilbert"):
        ids["bos_token_id"] = specials.bos
    else:
        ids.pop("eos_token_id")
    texts = {
        "tokenizer.json": json.dumps(template_json(tokenizer, model_type), ensure_ascii=False),
        "tokenizer_config.json": json.dumps(config, ensure_ascii=False, indent=1),
    }
    return texts, ids

"""Special tokens: which ids a tokenizer's padding, unknown word, beginning, end and mask have, known here and nowhere else.

Our own tokenizers have ids 0–4 for `<pad> <unk> <bos> <eos> <mask>` (A16). One that came with a checkpoint keeps its own: its
tokenizer.json says them where the library keeps special tokens, in the table of the template that frames a text, as seqloom:eos and so on.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tokenizers import Tokenizer

SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>")
PAD, UNK, BOS, EOS, MASK = range(5)
NAMES = ("pad", "unk", "bos", "eos", "mask")
PREFIX = "seqloom:"
PAIRS = ("BertProcessing", "RobertaProcessing")  # what says [CLS] and [SEP] without a template


class SpecialTokens(NamedTuple):
    """The ids of one tokenizer. Each of `stop_ids` ends a text; `before` and `after` are what its template puts around one. Where texts have no end
    there are no stop_ids, and `eos` is what they begin with."""

    pad: int | None = PAD
    unk: int | None = UNK
    bos: int | None = BOS
    eos: int = EOS
    mask: int | None = MASK
    stop_ids: tuple[int, ...] = (EOS,)
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def banned(self) -> tuple[int, ...]:
        """What no text should hold."""
        found = {one for one in (self.pad, self.unk, self.bos, self.mask) if one is not None}
        return tuple(sorted(found - {self.eos, *self.stop_ids}))

    @property
    def first_id(self) -> int:
        """What stands before the first token of a text."""
        return self.before[-1] if self.before else self.eos

    def frame(self, ends: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What goes around a text: what the template says, and an end in any case where records end."""
        return self.before, self.after or ((self.eos,) if ends else ())


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """The special ids of a tokenizer."""
    if tokenizer.post_processor is None:
        return SpecialTokens()
    template = _template(json.loads(tokenizer.post_processor.__getstate__()))
    ids = (
        {}
        if template is None
        else {name: tuple(one["ids"]) for name, one in template["special_tokens"].items()}
    )
    first = {name: (ids.get(PREFIX + name) or (None,))[0] for name in NAMES}
    if first["eos"] is None and first["bos"] is None:
        return SpecialTokens()
    first["eos"] = first["bos"] if first["eos"] is None else first["eos"]
    sides: tuple[list[int], list[int]] = ([], [])
    passed = 0
    for piece in template["single"]:
        if "Sequence" in piece:
            passed = 1
        else:
            sides[passed].extend(ids[piece["SpecialToken"]["id"]])
    return SpecialTokens(
        **first, stop_ids=ids.get(f"{PREFIX}eos", ()), before=tuple(sides[0]), after=tuple(sides[1])
    )


def with_special_ids(parts: dict[str, Any], roles: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The JSON of a tokenizer that says its special ids itself: `roles` are pad, unk, bos, eos and mask where there are such."""
    names = {index: token for token, index in vocabulary(parts).items()}
    table = {}
    for name in NAMES:
        if ids := list(roles.get(name, ())):
            if missing := [index for index in ids if index not in names]:
                raise ValueError(
                    f"the {name} token has id {missing[0]}, which the tokenizer has not; its settings do not belong to it"
                )
            table[PREFIX + name] = {
                "id": PREFIX + name,
                "ids": ids,
                "tokens": [names[index] for index in ids],
            }
    if not table.keys() & {f"{PREFIX}eos", f"{PREFIX}bos"}:
        raise ValueError("nothing says which token begins or ends a text")
    frame = _ensure_template(parts.get("post_processor"))
    template = _template(frame)
    template["special_tokens"] = template["special_tokens"] | table
    return parts | {"post_processor": frame}


def with_template(parts: dict[str, Any], before: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
    """The JSON of a tokenizer whose template puts the given ids around every text."""
    names = {index: token for token, index in vocabulary(parts).items()}
    sides = [
        [{"SpecialToken": {"id": names[index], "type_id": 0}} for index in side] for side in (before, after)
    ]
    old = parts.get("post_processor")
    table = {} if old is None or _template(old) is None else _template(old)["special_tokens"]
    table = table | {
        names[index]: {"id": names[index], "ids": [index], "tokens": [names[index]]}
        for index in (*before, *after)
    }
    return parts | {"post_processor": _template_json(*sides, table)}


def vocabulary(parts: dict[str, Any]) -> dict[str, int]:
    """Token → id, added tokens included."""
    vocab = parts["model"]["vocab"]
    found = dict(vocab) if isinstance(vocab, dict) else {one[0]: index for index, one in enumerate(vocab)}
    return found | {one["content"]: one["id"] for one in parts.get("added_tokens", [])}


def _template(state: dict[str, Any]) -> dict[str, Any] | None:
    """The template within a post-processor's JSON."""
    if state["type"] == "TemplateProcessing":
        return state
    return next((found for one in state.get("processors", []) if (found := _template(one)) is not None), None)


def _ensure_template(state: dict[str, Any] | None) -> dict[str, Any]:
    """A post-processor's JSON with a template in it: its own, or one that adds nothing."""
    empty = _template_json([], [], {})
    if state is None:
        return empty
    if state["type"] in PAIRS:
        before, after = ([{"SpecialToken": {"id": state[name][0], "type_id": 0}}] for name in ("cls", "sep"))
        return _template_json(
            before,
            after,
            {
                token: {"id": token, "ids": [index], "tokens": [token]}
                for token, index in (state["cls"], state["sep"])
            },
        )
    if state["type"] == "Sequence":
        state = {
            **state,
            "processors": [
                _ensure_template(one) if one["type"] in PAIRS else one for one in state["processors"]
            ],
        }
    return state if _template(state) is not None else {"type": "Sequence", "processors": [state, empty]}


def _template_json(before: list[dict], after: list[dict], table: dict[str, Any]) -> dict[str, Any]:
    """A template of those pieces: around one text, and around two of which the second is segment 1."""
    first, second = ({"Sequence": {"id": side, "type_id": number}} for number, side in enumerate("AB"))
    later = [{"SpecialToken": {"id": one["SpecialToken"]["id"], "type_id": 1}} for one in after]
    pieces = {"single": [*before, first, *after], "pair": [*before, first, *after, second, *later]}
    return {"type": "TemplateProcessing", **pieces, "special_tokens": table}

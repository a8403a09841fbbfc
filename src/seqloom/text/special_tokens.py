"""Special tokens: the ids of a tokenizer's padding, unknown word, beginning, end and mask.

Our own tokenizers use ids 0–4 for `<pad> <unk> <bos> <eos> <mask>` (A16). A tokenizer that came with a
checkpoint keeps its own ids: its tokenizer.json stores them among the special tokens of the template that
frames a text, as seqloom:eos and so on.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from seqloom.errors import DataError

SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>")
PAD, UNK, BOS, EOS, MASK = range(5)
NAMES = ("pad", "unk", "bos", "eos", "mask")
PREFIX = "seqloom:"  # of names in tokenizer.json; part of the file format
PAIR_PROCESSORS = (
    "BertProcessing",
    "RobertaProcessing",
)  # post-processors that add [CLS] and [SEP] without a template

JSON = dict[str, Any]


class SpecialTokens(NamedTuple):
    """The special ids of one tokenizer. Each of `stop_ids` ends a
    text; the template puts `before` and `after` around a text.

    If texts have no end, there are no stop ids, and `eos` is the id that texts begin with.
    """

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
        """The ids that a generated text must not contain."""
        ids = {
            special_id for special_id in (self.pad, self.unk, self.bos, self.mask) if special_id is not None
        }
        return tuple(sorted(ids - {self.eos, *self.stop_ids}))

    @property
    def without_text(self) -> frozenset[int]:
        """The ids that are no text: padding, beginning, end and mask."""
        found = {self.pad, self.bos, self.eos, self.mask, *self.stop_ids}
        return frozenset(index for index in found if index is not None)

    @property
    def first_id(self) -> int:
        """The id before the first token of a text."""
        return self.before[-1] if self.before else self.eos

    def frame(self, adds_eos: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the ids before and after a text: those of
        the template, and <eos> at the end if records end."""
        return self.before, self.after or ((self.eos,) if adds_eos else ())


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Returns the special ids of a tokenizer."""
    if tokenizer.post_processor is None:
        return SpecialTokens()
    template = _template(json.loads(tokenizer.post_processor.__getstate__()))
    if template is None:
        return SpecialTokens()
    ids = {name: tuple(token["ids"]) for name, token in template["special_tokens"].items()}
    roles = {name: (ids.get(PREFIX + name) or (None,))[0] for name in NAMES}
    if roles["eos"] is None and roles["bos"] is None:
        return SpecialTokens()
    roles["eos"] = roles["bos"] if roles["eos"] is None else roles["eos"]
    before: list[int] = []
    after: list[int] = []
    side = before
    for piece in template["single"]:
        if "Sequence" in piece:
            side = after
        else:
            side.extend(ids[piece["SpecialToken"]["id"]])
    return SpecialTokens(
        **roles, stop_ids=ids.get(f"{PREFIX}eos", ()), before=tuple(before), after=tuple(after)
    )


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
    template = _template(processor)
    if template is not None:
        template["special_tokens"] = template["special_tokens"] | table
    return parts | {"post_processor": processor}


def with_template(parts: JSON, before: Sequence[int], after: Sequence[int]) -> JSON:
    """Returns the JSON of a tokenizer whose template puts the given ids around every text."""
    tokens = {index: token for token, index in vocabulary(parts).items()}
    pieces_before = [_special_piece(tokens[index]) for index in before]
    pieces_after = [_special_piece(tokens[index]) for index in after]
    processor = parts.get("post_processor")
    old_template = None if processor is None else _template(processor)
    table = {} if old_template is None else old_template["special_tokens"]
    table = table | {tokens[index]: _special_entry(tokens[index], index) for index in (*before, *after)}
    return parts | {"post_processor": _template_json(pieces_before, pieces_after, table)}


def vocabulary(parts: JSON) -> dict[str, int]:
    """Returns token → id of a tokenizer in JSON, including added tokens."""
    vocab = parts["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {entry[0]: i for i, entry in enumerate(vocab)}
    return ids | {token["content"]: token["id"] for token in parts.get("added_tokens", [])}


def _template(processor: JSON) -> JSON | None:
    """Returns the template inside a post-processor's JSON, or None."""
    if processor["type"] == "TemplateProcessing":
        return processor
    templates = (_template(inner) for inner in processor.get("processors", []))
    return next((template for template in templates if template is not None), None)


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
    if _template(processor) is not None:
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

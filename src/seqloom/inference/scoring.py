"""`score`: how probable a model finds given texts, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from seqloom.batches import pad
from seqloom.decoding import forced_log_probs
from seqloom.decoding.ensemble import output_log_probs
from seqloom.errors import UserError
from seqloom.inference.completion import length_groups, prepare_prompt
from seqloom.inference.mask_filling import encode as encode_masked
from seqloom.inference.mask_filling import pseudo_log_probs
from seqloom.inference.one_or_many import Texts, apply, many, require_texts
from seqloom.inference.unknown_text import UnknownText
from seqloom.inference.verbs import wrong_verb
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run

BATCH_TOKENS = 4096
OUTPUT_POSITIONS = 256  # positions whose whole distribution is in memory at a time


@dataclass(frozen=True)
class TextScore(Result):
    """ln P of a text, or of the target after it, of each of its tokens, and exp(-ln P / tokens), None without tokens."""

    logprob: float
    tokens: tuple[str, ...]
    token_logprobs: tuple[float, ...]
    perplexity: float | None
    text: str = ""
    target: str | None = None


class Pair(NamedTuple):
    """A text, and the target that is scored after it; without a target the text itself is scored."""

    text: str
    target: str | None


class ScoredRow(NamedTuple):
    """Ids that a language model reads at once; of the tokens that follow them, those from `skip` on are counted."""

    ids: list[int]
    next_ids: list[int]
    skip: int


Alternatives = list[tuple[int, float]]  # ids and ln p, most probable first


@overload
def score(run: RunLike, texts: str, targets: str | None = None) -> TextScore: ...
@overload
def score(run: RunLike, texts: Texts, targets: Texts | None = None) -> list[TextScore]: ...
@overload
def score(
    run: RunLike, texts: Iterator[str], targets: Iterator[str] | None = None
) -> Iterator[TextScore]: ...
def score(
    run: RunLike,
    texts: str | Texts | Iterator[str],
    targets: str | Texts | Iterator[str] | None = None,
) -> Any:
    """ln P of each text under a language model, or of each target after its text: a continuation, or a translation.

    It is the ln P that `generate` and `translate` report for the same tokens: without a target, after the empty prompt; with the end
    of the text, where the model learnt to end texts. Where the source of an imported model adds no token to the beginning of a text, the
    first token is context: `tokens` begin with the second. A text that is longer than the model's context is read in windows that overlap
    by half. A masked language model gives the pseudo-log-likelihood, Σₜ ln P(wₜ | all the other tokens), which is no probability of
    the text (Salazar et al. 2020).

    >>> found = seqloom.score(run, "the cat")
    >>> found.tokens
    ('the', 'cat', '<eos>')
    >>> abs(sum(found.token_logprobs) - found.logprob) < 1e-6
    True
    >>> seqloom.score(translator, ["the cat"], ["THE CAT"])[0].perplexity > 1
    True
    """
    run = as_run(run)
    unknown = UnknownText(run)
    work = unknown.watch(scorer(run), partial(texts_read, run))
    return apply(pairs(texts, targets), work, is_one=lambda item: isinstance(item, Pair), after=unknown.warn)


def scorer(run: Run) -> Callable[[list[Pair]], list[TextScore]]:
    """The function that scores pairs under a run; raises for a run that scores nothing."""
    if run.model.task not in SCORERS:
        raise wrong_verb(run, "score")
    return partial(SCORERS[run.model.task], run)


def texts_read(run: Run, record: Pair) -> list[str]:
    """What a run reads as text of a record: not the name of a picture."""
    return [text for text in (record.text if run.model.reads == "text" else "", record.target) if text]


def pairs(
    texts: str | Texts | Iterator[str], targets: str | Texts | Iterator[str] | None
) -> Pair | list[Pair] | Iterator[Pair]:
    """Texts with their targets, in the form in which they are given."""
    if isinstance(texts, str):
        if targets is not None and not isinstance(targets, str):
            raise UserError(f"one text and a {type(targets).__name__} of targets: give one target")
        return Pair(texts, targets)
    if isinstance(targets, str):
        raise UserError("several texts and one target: give a target for each text")
    texts = texts if isinstance(texts, Iterator) else many(texts)
    joined: Iterator[Pair]
    if targets is None:
        joined = (Pair(text, None) for text in texts)
    else:
        joined = joined_pairs(texts, targets if isinstance(targets, Iterator) else many(targets, "target"))
    return joined if isinstance(texts, Iterator) else list(joined)


def joined_pairs(texts: list[str] | Iterator[str], targets: list[str] | Iterator[str]) -> Iterator[Pair]:
    for number, (text, target) in enumerate(zip_longest(texts, targets), 1):
        if text is None or target is None:
            side = "text" if text is None else "target"
            raise UserError(f"there is no {side} {number}: give a target for each text")
        yield Pair(text, target)


def check_pairs(records: Sequence[Pair], needs_target: bool | None) -> None:
    """Raises unless texts and targets are strings, and targets are there if they must (None: they may)."""
    require_texts([record.text for record in records])
    if needs_target is False and any(record.target is not None for record in records):
        raise UserError("a masked language model scores texts without targets: leave the targets out")
    if needs_target and any(record.target is None for record in records):
        raise UserError(
            "this run scores pairs: give a target for each text or picture, its translation or caption"
        )
    require_texts([record.target for record in records if record.target is not None], "target")


def score_continuations(run: Run, records: Sequence[Pair]) -> list[TextScore]:
    """The scores of texts under a language model."""
    check_pairs(records, None)
    rows: list[ScoredRow] = []
    counts: list[int] = []
    for record in records:
        prompt_ids, ids = continuation_ids(run, record)
        windows = list(split_into_windows(prompt_ids, ids, run.model.context))
        rows += windows
        counts.append(len(windows))
    scored = iter(score_rows(run, rows))
    results = []
    for record, count in zip(records, counts, strict=True):
        _, ids = continuation_ids(run, record)
        log_probs = [log_p for _ in range(count) for log_p in next(scored)[0]]
        results.append(text_score(run, record, ids, log_probs))
    return results


def continuation_ids(run: Run, record: Pair) -> tuple[list[int], list[int]]:
    """The ids of the prompt, and those that are scored after it."""
    text = "" if record.target is None else record.text
    target = record.text if record.target is None else record.target
    prompt_ids = run.encode([text], as_prompt=True)[0][0].tolist()
    if record.target is None and target and run.starts_bare:
        ids = run.tokenizer.encode(target, add_special_tokens=False).ids
        return ids[:1] or prompt_ids, ids[1:]
    end = [run.specials.eos] if run.adds_eos else []
    before = run.tokenizer.encode(text, add_special_tokens=False).ids
    both = run.tokenizer.encode(text + target, add_special_tokens=False).ids
    if both[: len(before)] != before:  # a token of both would cross the border
        return prompt_ids, [*run.tokenizer.encode(target, add_special_tokens=False).ids, *end]
    return prompt_ids, [*both[len(before) :], *end]


def split_into_windows(prompt_ids: list[int], ids: list[int], context: int | None) -> Iterator[ScoredRow]:
    """The rows in which a language model reads a text. A window begins in the middle of the one before it."""
    sequence = [*prompt_ids, *ids]
    first = len(prompt_ids) - 1  # the position that predicts the first of `ids`
    width = len(sequence) if context is None else context
    begin = max(0, first - width // 2) if len(sequence) - 1 > width else 0
    while first < len(sequence) - 1:
        end = min(begin + width, len(sequence) - 1)
        yield ScoredRow(sequence[begin:end], sequence[begin + 1 : end + 1], first - begin)
        first = end
        begin = end - width // 2


@torch.inference_mode()
def score_rows(
    run: Run, rows: Sequence[ScoredRow], top: int = 0
) -> list[tuple[list[float], list[Alternatives]]]:
    """ln p of the counted tokens of each row, and the `top` most probable tokens in the place of each."""
    lengths = torch.tensor([len(row.ids) for row in rows], dtype=torch.int64)
    results: dict[int, tuple[list[float], list[Alternatives]]] = {}
    for group in length_groups(lengths, BATCH_TOKENS, len(rows)):
        ids, mask = pad([np.array(rows[row].ids, dtype=np.int64) for row in group])
        h = features(run, ids, None if mask.all() else mask)
        for index, row in enumerate(group):
            counted = h[index, rows[row].skip : len(rows[row].ids)]
            results[row] = read_output(run, counted, rows[row].next_ids[rows[row].skip :], top)
    return [results[row] for row in range(len(rows))]


def features(run: Run, ids: Tensor, mask: Tensor | None) -> Tensor:
    """What the output layer reads (B, T, D). A long row, which is alone, is read in blocks."""
    if mask is not None:
        return run.model.features(ids, None, mask)[0]
    state = None
    blocks = []
    for block in ids.split(BATCH_TOKENS, 1):
        h, state = run.model.features(block, state, None)
        blocks.append(h)
    return torch.cat(blocks, 1)


def read_output(run: Run, h: Tensor, next_ids: list[int], top: int) -> tuple[list[float], list[Alternatives]]:
    """ln p of the token that follows each of the features (T, D), and the `top` most probable tokens there."""
    log_probs: list[float] = []
    alternatives: list[Alternatives] = []
    targets = torch.tensor(next_ids, dtype=torch.int64)
    for part, part_targets in zip(h.split(OUTPUT_POSITIONS), targets.split(OUTPUT_POSITIONS), strict=True):
        log_p = output_log_probs(run.model, part[None])[0]  # (T, V)
        log_probs += log_p.gather(1, part_targets[:, None])[:, 0].tolist()
        if top:
            log_p[:, list(run.banned_ids)] = -torch.inf
            best = log_p.topk(min(top, log_p.shape[1]), 1)
            alternatives += [
                list(zip(tokens, values, strict=True))
                for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            ]
    return log_probs, alternatives


def top_alternatives(run: Run, prompt: str, ids: Sequence[int], top: int) -> list[list[tuple[str, float]]]:
    """The `top` most probable tokens, with ln p, in the place of each token of a continuation that fits into the context."""
    prompt_ids = run.encode([prompt], as_prompt=True)[0][0].tolist()
    row = ScoredRow([*prompt_ids, *ids][:-1], [*prompt_ids, *ids][1:], len(prompt_ids) - 1)
    context = run.model.context
    if context is not None and len(row.ids) > context:
        raise UserError(
            f"--top-logprobs needs a text within the context of {context} tokens: use fewer --max-tokens"
        )
    [(_, alternatives)] = score_rows(run, [row], top)
    return [[(token_string(run, token), log_p) for token, log_p in place] for place in alternatives]


def score_translations(run: Run, records: Sequence[Pair]) -> list[TextScore]:
    """The scores of translations of texts."""
    check_pairs(records, True)
    ids, mask = run.encode([record.text for record in records])
    targets = [run.tokenizer.encode(record.target or "", add_special_tokens=False).ids for record in records]
    lengths = mask.sum(1)
    eos = run.specials.eos
    results: dict[int, TextScore] = {}
    longest = lengths.maximum(torch.tensor([len(target) + 1 for target in targets]))
    for group in length_groups(longest, BATCH_TOKENS, len(records)):
        max_length = int(lengths[group].max())
        prompt, state, prompt_mask = prepare_prompt(run, ids[group, :max_length], mask[group, :max_length])
        rows = [targets[row] for row in group]
        log_probs = forced_log_probs(run.model, prompt, rows, state, prompt_mask, eos_id=eos)
        for row, target, values in zip(group, rows, log_probs, strict=True):
            results[row] = text_score(run, records[row], [*target, eos], values)
    return [results[row] for row in range(len(records))]


def score_masked(run: Run, records: Sequence[Pair]) -> list[TextScore]:
    """The pseudo-log-likelihoods of texts."""
    check_pairs(records, False)
    rows = [encode_masked(run, record.text) for record in records]
    return [
        text_score(run, record, row[1:-1], pseudo_log_probs(run, row))
        for record, row in zip(records, rows, strict=True)
    ]


def text_score(run: Run, record: Pair, ids: Sequence[int], log_probs: Sequence[float]) -> TextScore:
    total = math.fsum(log_probs)
    perplexity = math.exp(min(-total / len(ids), 700)) if ids else None
    tokens = tuple(token_string(run, token) for token in ids)
    return TextScore(total, tokens, tuple(log_probs), perplexity, *record)


def token_string(run: Run, token: int) -> str:
    """The text of a token, or the name of a special token."""
    return run.decode([token]) or run.tokenizer.id_to_token(token) or ""


def score_described(run: Run, records: Sequence[Pair]) -> list[TextScore]:
    """The scores of captions of pictures: ln P(caption | picture)."""
    from seqloom.inference.captioning import score_captions

    check_pairs(records, True)
    captions = [record.target or "" for record in records]
    found = score_captions(run, [record.text for record in records], captions)
    encodings = run.tokenizer.encode_batch(captions, add_special_tokens=False)
    return [
        text_score(run, record, [*encoding.ids, run.specials.eos], values)
        for record, encoding, values in zip(records, encodings, found, strict=True)
    ]


SCORERS = {
    "captioning": score_described,
    "language modelling": score_continuations,
    "translation": score_translations,
    "masked language modelling": score_masked,
}

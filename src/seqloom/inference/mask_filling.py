"""Filling in masked tokens with a masked language model, and its pseudo-likelihood of texts  [T15]."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from seqloom.batches import masked, pad
from seqloom.errors import UserError
from seqloom.inference.one_or_many import Texts, apply, require_texts
from seqloom.inference.unknown_text import UnknownText
from seqloom.inference.verbs import wrong_verb
from seqloom.measure.number import Number, RecordSums, make_signature, nats_interval
from seqloom.models import MaskedLM
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run
from seqloom.text.tokenizer import signature

MASK_PATTERN = re.compile(r"\[MASK\]|<mask>", re.IGNORECASE)


@dataclass(frozen=True)
class Guess(Result):
    """One token for a mask."""

    token: str
    probability: float


@dataclass(frozen=True)
class Filled(Result):
    """A text with each mask replaced by its most probable token, the guesses for each mask, most probable first, and the `source`, which has
    the masks."""

    text: str
    gaps: tuple[tuple[Guess, ...], ...]
    source: str = ""


def masked_model(run: Run, verb: str = "fill-mask") -> MaskedLM:
    """The run's model; raises if it is not a masked language model, which the verb needs."""
    if not isinstance(run.model, MaskedLM):
        raise wrong_verb(run, verb)
    return run.model


def frame_ids(run: Run) -> tuple[int, int, int]:
    """The ids before a text, after it and of its masks."""
    masked_model(run)
    return masked.frame_ids(run.specials)


def encode(run: Run, text: str) -> list[int]:
    """The ids of a text with masks, framed, that the model can read at once."""
    ids = encode_whole(run, text)
    context = run.model.context
    if context is not None and len(ids) > context:
        raise UserError(
            f"{text[:40]!r}…: {len(ids)} tokens are more than the {context} that the model reads at once; shorten the text"
        )
    return ids


def encode_whole(run: Run, text: str) -> list[int]:
    """The ids of a text of any length with masks, framed. If tokens begin with their space, a mask covers the space before it too."""
    first_id, last_id, mask_id = frame_ids(run)
    pieces = MASK_PATTERN.split(text)
    if len(pieces) > 1 and tokens_carry_space(run):
        pieces = [*(piece.removesuffix(" ") for piece in pieces[:-1]), pieces[-1]]
    ids = [first_id]
    for index, piece in enumerate(pieces):
        if index > 0:
            ids.append(mask_id)
        if piece:
            ids += run.tokenizer.encode(piece, add_special_tokens=False).ids
    ids.append(last_id)
    return ids


def tokens_carry_space(run: Run) -> bool:
    """Whether tokens begin with their space."""
    return (run.tokenizer.encode(" a", add_special_tokens=False).tokens or [""])[0].startswith("Ġ")


@overload
def fill_mask(run: RunLike, texts: str, *, top: int = 5) -> Filled: ...
@overload
def fill_mask(run: RunLike, texts: Texts, *, top: int = 5) -> list[Filled]: ...
@overload
def fill_mask(run: RunLike, texts: Iterator[str], *, top: int = 5) -> Iterator[Filled]: ...
def fill_mask(run: RunLike, texts: str | Texts | Iterator[str], *, top: int = 5) -> Any:
    """The `top` most probable tokens for each [MASK] of each text, P(w | the rest of the text). Several masks of one text are
    predicted independently.

    >>> found = seqloom.fill_mask(masked, "the [MASK] sees a dog", top=2)
    >>> len(found.gaps), len(found.gaps[0])
    (1, 2)
    >>> found.text == f"the {found.gaps[0][0].token} sees a dog"
    True
    """
    run = as_run(run)
    masked_model(run)
    unknown = UnknownText(run)
    return apply(texts, unknown.watch(partial(fill_texts, run, top), without_masks), after=unknown.warn)


def without_masks(text: str) -> list[str]:
    """What a text says around its masks."""
    return [MASK_PATTERN.sub(" ", text)]


@torch.inference_mode()
def fill_texts(
    run: Run, top: int, texts: list[str], batch: int = 32, needs_masks: bool = True
) -> list[Filled]:
    """`fill_mask` of several texts, `batch` at a time. A text without a mask stays as it is, or is an error if each needs one."""
    require_texts(texts)
    if top < 1:
        raise UserError(f"top must be at least 1, not {top}")
    for text in texts:
        if needs_masks and not MASK_PATTERN.search(text):
            raise UserError(f"{text[:60]!r}: nothing to fill; write [MASK] where a token is missing")
    model = masked_model(run)
    *_, mask_id = frame_ids(run)
    rows = [encode(run, text) for text in texts]
    results: list[Filled] = []
    for start in range(0, len(rows), batch):
        batch_rows = rows[start : start + batch]
        ids, mask = pad([np.array(row) for row in batch_rows])
        h, _ = model.features(ids, None, mask)
        for index, row in enumerate(batch_rows):
            positions = [position for position, token in enumerate(row) if token == mask_id]
            probs = model.output(h[index, positions]).float().softmax(-1)  # (masks, V)
            probs[:, [*run.banned_ids, run.specials.eos]] = 0  # they occur in no text
            results.append(fill_text(run, texts[start + index], probs, top))
    return results


def fill_text(run: Run, text: str, probs: Tensor, top: int) -> Filled:
    """The text and its guesses from the probabilities of each mask (masks, V)."""
    best = probs.topk(min(top, probs.shape[1]), -1)
    gaps = tuple(
        tuple(Guess(token_text(run, token), p) for p, token in zip(mask_probs, tokens, strict=True))
        for mask_probs, tokens in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )
    return Filled(insert_tokens(run, text, best.indices[:, 0].tolist()), gaps, text)


def insert_tokens(run: Run, text: str, tokens: Sequence[int]) -> str:
    """The text with a token in place of each mask. A token that continues a word joins the text before it."""
    filled, *pieces = MASK_PATTERN.split(text)
    carry_space = tokens_carry_space(run)
    for token, piece in zip(tokens, pieces, strict=True):
        spelling = token_text(run, token)
        if spelling.startswith("##"):
            filled = filled.rstrip()
            spelling = spelling[2:]
        elif carry_space:
            filled = filled.removesuffix(" ")
            spelling = run.decode([token])
            spelling = spelling if filled else spelling.lstrip(" ")
        filled += spelling + piece
    return filled


def token_text(run: Run, token: int) -> str:
    """The spelling of a token, with the `##` of a piece inside a word and without a space before it."""
    spelling = run.tokenizer.id_to_token(token) or ""
    return spelling if spelling.startswith("##") else run.decode([token]).strip() or spelling


def pseudo_perplexity(
    run: Run,
    paths: list[str],
    progress: Callable[[int], None] | None = None,
    limit: int | None = None,
) -> Number:
    """exp(Σ -ln P(wₜ | all the other tokens of its line) / N) over every line of the files that is not empty, or of the first `limit`."""
    texts = [line for record in islice(run.config.reader(paths), limit) if (line := record[0].strip())]
    if not texts:
        raise UserError(f"{', '.join(paths)}: no line with text to measure on; give another file")
    results = pseudo_nll(run, texts, progress=progress)
    nll = sum(text_nll for text_nll, _ in results)
    count = sum(text_count for _, text_count in results)
    conditions = {
        "tokens": count,
        "lines": len(texts),
        "tokenizer": signature(run.tokenizer),
        "seed": run.config.seed,
    }
    perplexity = math.exp(min(nll / max(count, 1), 700))
    sums = RecordSums(2)
    for text_nll, text_count in results:
        sums.add(text_nll, text_count)
    low, high = (None if bound is None else math.exp(min(bound, 700)) for bound in nats_interval(sums))
    return Number(
        "pseudo_perplexity", perplexity, make_signature("pseudo-perplexity", conditions), low, high, count
    )


def pseudo_nll(
    run: Run, texts: Sequence[str], batch: int = 64, progress: Callable[[int], None] | None = None
) -> list[tuple[float, int]]:
    """Σₜ -ln P(wₜ | all the other tokens) of each text, and the number of its tokens."""
    results: list[tuple[float, int]] = []
    for text in texts:
        log_probs = pseudo_log_probs(run, encode(run, text), batch)
        results.append((-math.fsum(log_probs), len(log_probs)))
        if progress:
            progress(1)
    return results


@torch.inference_mode()
def pseudo_log_probs(run: Run, ids: list[int], batch: int = 64) -> list[float]:
    """ln P(wₜ | all the other tokens) of each token of a framed text, with one token masked at a time (Salazar et al.)."""
    model = masked_model(run)
    *_, mask_id = frame_ids(run)
    text_ids = torch.tensor(ids)
    log_probs: list[float] = []
    for positions in torch.arange(1, len(ids) - 1).split(batch):
        rows = torch.arange(len(positions))
        masked_ids = text_ids.repeat(len(rows), 1)
        masked_ids[rows, positions] = mask_id
        h, _ = model.features(masked_ids)
        log_probs += (-model.output.nll(h[rows, positions], text_ids[positions])).tolist()
    return log_probs

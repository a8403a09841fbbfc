"""Filling gaps: what a masked language model says of hidden tokens, and how likely it finds whole texts  [T15]."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches import masked, pad
from seqloom.measure import Number, make_signature
from seqloom.models import MaskedLM
from seqloom.run import Run
from seqloom.text.tokenizer import signature

MASK_PATTERN = re.compile(r"\[MASK\]|<mask>", re.IGNORECASE)


class Guess(NamedTuple):
    """One token for a gap."""

    token: str
    probability: float


class Filled(NamedTuple):
    """A text with each gap filled by its likeliest token, as it stood otherwise, and the guesses for each gap, likeliest first."""

    text: str
    gaps: list[list[Guess]]


def frame_ids(run: Run) -> tuple[int, int, int]:
    """The ids before a text, after it and in its gaps."""
    if not isinstance(run.model, MaskedLM):
        raise ValueError(
            f"{run.folder}: fills no gaps, since it is no masked language model; train one with: seqloom train bert-small --data FILE"
        )
    return masked.frame_ids(run.specials)


def encode(run: Run, text: str) -> list[int]:
    """The ids of a text with gaps, framed. A tokenizer whose tokens begin with their space hides it with the word."""
    opens, ends, mask = frame_ids(run)
    pieces = MASK_PATTERN.split(text)
    if len(pieces) > 1 and tokens_carry_space(run):
        pieces = [*(piece.removesuffix(" ") for piece in pieces[:-1]), pieces[-1]]
    ids = [opens]
    for number, piece in enumerate(pieces):
        ids += [mask] * (number > 0) + (
            run.tokenizer.encode(piece, add_special_tokens=False).ids if piece else []
        )
    ids.append(ends)
    context = run.model.context
    if context is not None and len(ids) > context:
        raise ValueError(
            f"{text[:40]!r}…: {len(ids)} tokens are more than the {context} that the model reads at once; shorten the text"
        )
    return ids


def tokens_carry_space(run: Run) -> bool:
    """Whether tokens begin with their space."""
    return (run.tokenizer.encode(" a", add_special_tokens=False).tokens or [""])[0].startswith("Ġ")


@torch.inference_mode()
def fill_mask(run: Run, texts: str | Sequence[str], top: int = 5, batch: int = 32) -> list[Filled]:
    """The `top` likeliest tokens for each [MASK] of each text, P(w | the rest of the text). Gaps of one text are guessed each for itself."""
    texts = [texts] if isinstance(texts, str) else texts
    if top < 1:
        raise ValueError(f"top must be at least 1, not {top}")
    for text in texts:
        if not MASK_PATTERN.search(text):
            raise ValueError(f"{text[:60]!r}: nothing to fill; write [MASK] where a token is missing")
    rows, result = [encode(run, text) for text in texts], []
    *_, mask = frame_ids(run)
    for begin in range(0, len(rows), batch):
        ids, real = pad([np.array(row) for row in rows[begin : begin + batch]])
        h, _ = run.model.features(ids, None, real)
        for row, (text, own) in enumerate(
            zip(texts[begin : begin + batch], rows[begin : begin + batch], strict=True)
        ):
            places = [place for place, token in enumerate(own) if token == mask]
            chances = run.model.output(h[row, places]).float().softmax(-1)  # (gaps, V)
            chances[:, [*run.banned_ids, run.specials.eos]] = 0  # no text holds them
            result.append(fill_text(run, text, chances, top))
    return result


def fill_text(run: Run, text: str, chances: Tensor, top: int) -> Filled:
    best = chances.topk(min(top, chances.shape[1]), -1)
    gaps = [
        [Guess(token_text(run, token), p) for p, token in zip(ps, tokens, strict=True)]
        for ps, tokens in zip(*map(Tensor.tolist, best), strict=True)
    ]
    return Filled(insert_tokens(run, text, best.indices[:, 0].tolist()), gaps)


def insert_tokens(run: Run, text: str, tokens: Sequence[int]) -> str:
    """The text with a token in each gap. A piece inside a word joins what stands before it."""
    (whole, *pieces), own = MASK_PATTERN.split(text), tokens_carry_space(run)
    for token, piece in zip(tokens, pieces, strict=True):
        spelt = token_text(run, token)
        if spelt.startswith("##"):
            whole, spelt = whole.rstrip(), spelt[2:]
        elif own:
            whole, spelt = whole.removesuffix(" "), run.decode([token])
            spelt = spelt if whole else spelt.lstrip(" ")
        whole += spelt + piece
    return whole


def token_text(run: Run, token: int) -> str:
    """A token as it is written: `##` of a piece inside a word stays, a space before it goes."""
    spelt = run.tokenizer.id_to_token(token) or ""
    return spelt if spelt.startswith("##") else run.decode([token]).strip() or spelt


def pseudo_perplexity(run: Run, paths: list[str], progress: Callable[[int], None] | None = None) -> Number:
    """exp(Σ -ln P(wₜ | all the other tokens of its line) / N) over every line of the files that is not empty."""
    texts = [line for record in run.recipe.reader(paths) if (line := record[0].strip())]
    if not texts:
        raise ValueError(f"{', '.join(paths)}: no line with text to measure on; give another file")
    found = pseudo_nll(run, texts, progress=progress)
    nats, count = (sum(column) for column in zip(*found, strict=True))
    facts = {
        "tokens": count,
        "lines": len(texts),
        "tokenizer": signature(run.tokenizer),
        "seed": run.recipe.seed,
    }
    return Number(
        "pseudo-perplexity",
        math.exp(min(nats / max(count, 1), 700)),
        make_signature("pseudo-perplexity", facts),
    )


@torch.inference_mode()
def pseudo_nll(
    run: Run, texts: Sequence[str], batch: int = 64, progress: Callable[[int], None] | None = None
) -> list[tuple[float, int]]:
    """Σₜ -ln P(wₜ | all the other tokens) of each text, each token hidden alone, and how many tokens it has (Salazar et al.)."""
    (*_, mask), result = frame_ids(run), []
    for text in texts:
        whole = torch.tensor(encode(run, text))
        places, total = torch.arange(1, len(whole) - 1), 0.0
        for some in places.split(batch):
            ids = whole.repeat(len(some), 1)
            ids[torch.arange(len(some)), some] = mask
            h, _ = run.model.features(ids)
            total += float(run.model.output.nll(h[torch.arange(len(some)), some], whole[some]).sum())
        result.append((total, len(places)))
        if progress:
            progress(1)
    return result

"""Filling in masked tokens with a masked language model, and its pseudo-likelihood of texts  [T15]."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches import masked, pad
from seqloom.measure.number import Number, make_signature
from seqloom.models import MaskedLM
from seqloom.run import Run
from seqloom.text.tokenizer import signature

MASK_PATTERN = re.compile(r"\[MASK\]|<mask>", re.IGNORECASE)


class Guess(NamedTuple):
    """One token for a mask."""

    token: str
    probability: float


class Filled(NamedTuple):
    """A text with each mask replaced by its most probable token, and the guesses for each mask, most probable first."""

    text: str
    gaps: list[list[Guess]]


def masked_model(run: Run) -> MaskedLM:
    """The run's model; raises if it is not a masked language model."""
    if not isinstance(run.model, MaskedLM):
        raise ValueError(
            f"{run.folder}: a {type(run.model).__name__} is not a masked language model; train one with: "
            "seqloom train bert-small --data FILE"
        )
    return run.model


def frame_ids(run: Run) -> tuple[int, int, int]:
    """The ids before a text, after it and of its masks."""
    masked_model(run)
    return masked.frame_ids(run.specials)


def encode(run: Run, text: str) -> list[int]:
    """The ids of a text with masks, framed. If tokens begin with their space, a mask covers the space before it too."""
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
    """The `top` most probable tokens for each [MASK] of each text, P(w | the rest of the text). Several masks of one text are
    predicted independently."""
    texts = [texts] if isinstance(texts, str) else texts
    if top < 1:
        raise ValueError(f"top must be at least 1, not {top}")
    for text in texts:
        if not MASK_PATTERN.search(text):
            raise ValueError(f"{text[:60]!r}: nothing to fill; write [MASK] where a token is missing")
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
    gaps = [
        [Guess(token_text(run, token), p) for p, token in zip(mask_probs, tokens, strict=True)]
        for mask_probs, tokens in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
    return Filled(insert_tokens(run, text, best.indices[:, 0].tolist()), gaps)


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


def pseudo_perplexity(run: Run, paths: list[str], progress: Callable[[int], None] | None = None) -> Number:
    """exp(Σ -ln P(wₜ | all the other tokens of its line) / N) over every line of the files that is not empty."""
    texts = [line for record in run.recipe.reader(paths) if (line := record[0].strip())]
    if not texts:
        raise ValueError(f"{', '.join(paths)}: no line with text to measure on; give another file")
    results = pseudo_nll(run, texts, progress=progress)
    nll = sum(text_nll for text_nll, _ in results)
    count = sum(text_count for _, text_count in results)
    conditions = {
        "tokens": count,
        "lines": len(texts),
        "tokenizer": signature(run.tokenizer),
        "seed": run.recipe.seed,
    }
    perplexity = math.exp(min(nll / max(count, 1), 700))
    return Number("pseudo-perplexity", perplexity, make_signature("pseudo-perplexity", conditions))


@torch.inference_mode()
def pseudo_nll(
    run: Run, texts: Sequence[str], batch: int = 64, progress: Callable[[int], None] | None = None
) -> list[tuple[float, int]]:
    """Σₜ -ln P(wₜ | all the other tokens) of each text, with one token masked at a time, and the number of its tokens
    (Salazar et al.)."""
    model = masked_model(run)
    *_, mask_id = frame_ids(run)
    results: list[tuple[float, int]] = []
    for text in texts:
        text_ids = torch.tensor(encode(run, text))
        positions = torch.arange(1, len(text_ids) - 1)
        total = 0.0
        for masked_positions in positions.split(batch):
            rows = torch.arange(len(masked_positions))
            ids = text_ids.repeat(len(rows), 1)
            ids[rows, masked_positions] = mask_id
            h, _ = model.features(ids)
            total += float(model.output.nll(h[rows, masked_positions], text_ids[masked_positions]).sum())
        results.append((total, len(positions)))
        if progress:
            progress(1)
    return results

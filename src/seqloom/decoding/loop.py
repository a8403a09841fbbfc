"""The loop: one token at a time, for every model. Prefill is one call with the prompt, each step the same call with T = 1.

A row that ends leaves the batch, so no work is done for it. Left out: text, tokenizers and `model.eval()`, which are the caller's;
several samples per prompt, which are repeated rows; a search over whole texts, which is `beam`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.decoding.protocol import (
    Model,
    Prompt,
    State,
    check_prompts,
    log_probs,
    next_logits,
    top_log_probs,
)
from seqloom.decoding.sampling import Greedy, Sampler, apply_repetition_penalty, row_seeds, uniforms
from seqloom.nn.state import select


class DecodeStep(NamedTuple):
    """One step of all B rows. A row that ended at an earlier step has token −1 and log-probability 0."""

    tokens: Tensor  # (B,)
    log_probabilities: Tensor  # (B,) under the model's own distribution, whatever the pick did to it
    finished: Tensor  # (B,) True once the text has ended


@dataclass
class DecodedSequence:
    """What came out of one row: ids without the stop token, log P with it, whether it ended by itself or was cut, and log p of each token, the
    stop token among them."""

    ids: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finished: bool = False
    log_probabilities: list[float] = field(default_factory=list, compare=False)


def generate_steps(
    model: Model,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    pick: Sampler = Greedy(),
    length: int = 100,
    stop: Sequence[int] = (3,),
    ban: Sequence[int] = (0, 2),
    seed: int | Sequence[int] = 0,
    repetition: float = 1.0,
    until: Callable[[int, list[int]], bool] | None = None,
    earlier: Tensor | None = None,
) -> Iterator[DecodeStep]:
    """Stream the continuation of each prompt: y_t ~ pick(p(· | prompt, y_<t)) until a stop token, `length` or the model's context.

    `ids` (B, T) are right-padded where `mask` is False. `seed` is one number, or one per row (`seeds`); the same seed and prompt
    give the same text, alone or in any batch. `repetition` above 1 makes tokens of prompt and text less likely to come again, and those of
    `earlier` (B, t), which was said before the prompt. `until` is asked after each token, with the row and its new ids, whether the text has
    ended. Mistakes are raised here, before any work.
    """
    prompt = check_prompts(model, ids, mask, length)
    seed_of_row = row_seeds(seed, len(ids)) if isinstance(seed, int) else list(seed)
    if len(seed_of_row) != len(ids):
        raise ValueError(
            f"{len(seed_of_row)} seeds for {len(ids)} prompts: give one number, or one per prompt"
        )
    if not 0.01 <= repetition <= 100:
        raise ValueError(
            f"repetition is {repetition}: give a number from 0.01 to 100, beyond which logits leave all bounds; 1 changes nothing"
        )
    return _steps(model, prompt, state, pick, stop, ban, seed_of_row, repetition, until, earlier)


def _steps(
    model: Model,
    prompt: Prompt,
    state: State,
    pick: Sampler,
    stop: Sequence[int],
    ban: Sequence[int],
    seed_of_row: list[int],
    repetition: float,
    until: Callable[[int, list[int]], bool] | None,
    earlier: Tensor | None,
) -> Iterator[DecodeStep]:
    # Only `ahead` runs in inference mode: a generator must not leave the mode on in its caller, and what it yields must be
    # fit for training on.
    ids, mask, lengths, limits = prompt
    rows = torch.arange(len(ids), device=ids.device)  # the rows still at work
    if not len(rows):
        return
    stops = torch.tensor(list(stop), dtype=torch.int64, device=ids.device)
    finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    texts: list[list[int]] = [[] for _ in range(len(ids))]
    seen = None if repetition == 1 else ids if mask is None else torch.where(mask, ids, ids[:, :1])
    seen = seen if seen is None or earlier is None else torch.cat([earlier, seen], 1)
    logits, state = next_logits(model, ids, state, mask, lengths)  # (rows, V)
    for step in range(int(limits.max())):
        picked, log_p = _sample(
            logits, pick, ban, [seed_of_row[row] for row in rows.tolist()], step, seen, repetition
        )
        ended = torch.isin(picked, stops)
        if until is not None:
            for place, (row, token) in enumerate(zip(rows.tolist(), picked.tolist(), strict=True)):
                texts[row].append(token)
                ended[place] |= until(row, texts[row])
        if len(rows) == len(ids):
            tokens, log_probabilities, finished = picked, log_p, ended
        else:
            tokens = torch.full_like(lengths, -1).index_copy(0, rows, picked)
            log_probabilities = log_p.new_zeros(len(ids)).index_copy(0, rows, log_p)
            finished = finished.index_copy(0, rows, ended)
        yield DecodeStep(tokens, log_probabilities, finished)
        stay = (~ended & (limits[rows] > step + 1)).nonzero()[:, 0]
        if not len(stay):
            return
        if len(stay) < len(rows):
            rows, picked, state = rows[stay], picked[stay], select(state, stay)
            seen = None if seen is None else seen[stay]
        seen = None if seen is None else torch.cat([seen, picked[:, None]], 1)
        logits, state = next_logits(model, picked[:, None], state)


@torch.no_grad()
def _sample(
    logits: Tensor,
    pick: Sampler,
    ban: Sequence[int],
    seed_of_row: list[int],
    step: int,
    seen: Tensor | None,
    repetition: float,
) -> tuple[Tensor, Tensor]:
    """The tokens picked (rows,), and their log p under the model's own distribution (rows,)."""
    count = getattr(pick, "few", None)
    changed = logits if seen is None else apply_repetition_penalty(logits, seen, repetition)
    if count is None:
        log_p = log_probs(changed, ban)  # (rows, V)
        hopeless, columns = log_p.amax(-1), None
    else:
        log_p, columns, _ = top_log_probs(changed, count, ban)  # (rows, count)
        hopeless = log_p[:, 0]
        if count > 1:
            columns, order = columns.masked_fill(log_p == -torch.inf, logits.shape[1]).sort(
                1
            )  # in the order of ids
            log_p = log_p.gather(1, order)
    if (hopeless == -torch.inf).any():
        raise ValueError("every token with any probability is banned: ban fewer tokens")
    if count == 1:
        picked, log_p = columns[:, 0], log_p[:, 0]
    else:
        uniform = torch.tensor(uniforms(seed_of_row, step), dtype=torch.float64, device=logits.device)
        place = pick(log_p, uniform)
        picked = place if columns is None else columns.gather(1, place[:, None])[:, 0]
        log_p = log_p.gather(1, place[:, None])[:, 0]
    if seen is not None:
        log_p = logits.gather(1, picked[:, None])[:, 0] - logits.logsumexp(-1)
    return picked, log_p


def generate_batch(
    model: Model,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    pick: Sampler = Greedy(),
    length: int = 100,
    stop: Sequence[int] = (3,),
    ban: Sequence[int] = (0, 2),
    seed: int | Sequence[int] = 0,
    repetition: float = 1.0,
    until: Callable[[int, list[int]], bool] | None = None,
    earlier: Tensor | None = None,
) -> list[DecodedSequence]:
    """The texts that `generate` streams, gathered: one per prompt, in order."""
    texts, ends = [DecodedSequence() for _ in range(len(ids))], set(stop)
    options = {
        "pick": pick,
        "length": length,
        "stop": stop,
        "ban": ban,
        "seed": seed,
        "repetition": repetition,
        "until": until,
    }
    for step in generate_steps(model, ids, state, mask, **options, earlier=earlier):
        for text, token, log_p, finished in zip(texts, *(part.tolist() for part in step), strict=True):
            if token >= 0:
                text.log_probability += log_p
                text.log_probabilities.append(log_p)
                text.finished = finished
                if token not in ends:
                    text.ids.append(token)
    return texts

"""The loop: one token at a time, for every model. Prefill is one call with the prompt, each step the same call with T = 1.

A row that ends leaves the batch, so no work is done for it. Left out: text, tokenizers and `model.eval()`, which are the caller's;
several samples per prompt, which are repeated rows; a search over whole texts, which is `beam`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.generate.picks import Greedy, Pick, seeds, uniforms
from seqloom.generate.protocol import Model, Prompt, State, advance, read_prompt
from seqloom.nn.state import select


class Step(NamedTuple):
    """One step of all B rows. A row that ended at an earlier step has token −1 and log-probability 0."""

    tokens: Tensor  # (B,)
    log_probabilities: Tensor  # (B,) under the model's own distribution, whatever the pick did to it
    finished: Tensor  # (B,) True once a stop token came out


@dataclass
class Text:
    """What came out of one row: ids without the stop token, log P with it, and whether it ended by itself or was cut."""

    ids: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finished: bool = False


def generate(
    model: Model,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    pick: Pick = Greedy(),
    length: int = 100,
    stop: Sequence[int] = (3,),
    ban: Sequence[int] = (0, 2),
    seed: int | Sequence[int] = 0,
) -> Iterator[Step]:
    """Stream the continuation of each prompt: y_t ~ pick(p(· | prompt, y_<t)) until a stop token, `length` or the model's context.

    `ids` (B, T) are right-padded where `mask` is False. `seed` is one number, or one per row (`seeds`); the same seed and prompt
    give the same text, alone or in any batch. Mistakes are raised here, before any work.
    """
    prompt = read_prompt(model, ids, mask, length)
    row_seeds = seeds(seed, len(ids)) if isinstance(seed, int) else list(seed)
    if len(row_seeds) != len(ids):
        raise ValueError(f"{len(row_seeds)} seeds for {len(ids)} prompts: give one number, or one per prompt")
    return _steps(model, prompt, state, pick, stop, ban, row_seeds)


def _steps(
    model: Model, prompt: Prompt, state: State, pick: Pick, stop: Sequence[int], ban: Sequence[int], row_seeds: list[int]
) -> Iterator[Step]:
    # Only `advance` runs in inference mode: a generator must not leave the mode on in its caller, and what it yields must be
    # fit for training on.
    ids, mask, lengths, limits = prompt
    rows = torch.arange(len(ids), device=ids.device)  # the rows still at work
    if not len(rows):
        return
    stops = torch.tensor(list(stop), dtype=torch.int64, device=ids.device)
    finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    log_p, state = advance(model, ids, state, mask, lengths, ban)  # (rows, V)
    for step in range(int(limits.max())):
        if (log_p.amax(-1) == -torch.inf).any():
            raise ValueError("every token with any probability is banned: ban fewer tokens")
        uniform = torch.tensor(uniforms([row_seeds[row] for row in rows.tolist()], step), dtype=torch.float64, device=ids.device)
        picked = pick(log_p, uniform)
        tokens = torch.full_like(lengths, -1).index_copy(0, rows, picked)
        log_probabilities = log_p.new_zeros(len(ids)).index_copy(0, rows, log_p.gather(1, picked[:, None])[:, 0])
        finished = finished.index_copy(0, rows, torch.isin(picked, stops))
        yield Step(tokens, log_probabilities, finished)
        stay = (~finished[rows] & (limits[rows] > step + 1)).nonzero()[:, 0]
        if not len(stay):
            return
        if len(stay) < len(rows):
            rows, picked, state = rows[stay], picked[stay], select(state, stay)
        log_p, state = advance(model, picked[:, None], state, ban=ban)


def complete(
    model: Model,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    pick: Pick = Greedy(),
    length: int = 100,
    stop: Sequence[int] = (3,),
    ban: Sequence[int] = (0, 2),
    seed: int | Sequence[int] = 0,
) -> list[Text]:
    """The texts that `generate` streams, gathered: one per prompt, in order."""
    texts = [Text() for _ in range(len(ids))]
    for step in generate(model, ids, state, mask, pick=pick, length=length, stop=stop, ban=ban, seed=seed):
        for text, token, log_p, finished in zip(texts, *(part.tolist() for part in step), strict=True):
            if token >= 0:
                text.log_probability += log_p
                text.finished = finished
                if not finished:
                    text.ids.append(token)
    return texts

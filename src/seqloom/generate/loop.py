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

from seqloom.generate.picks import Greedy, Pick, repeated, seeds, uniforms
from seqloom.generate.protocol import Model, Prompt, State, ahead, few, read_prompt, whole
from seqloom.nn.state import select


class Step(NamedTuple):
    """One step of all B rows. A row that ended at an earlier step has token −1 and log-probability 0."""

    tokens: Tensor  # (B,)
    log_probabilities: Tensor  # (B,) under the model's own distribution, whatever the pick did to it
    finished: Tensor  # (B,) True once the text has ended


@dataclass
class Text:
    """What came out of one row: ids without the stop token, log P with it, whether it ended by itself or was cut, and log p of each token, the
    stop token among them."""

    ids: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finished: bool = False
    log_probabilities: list[float] = field(default_factory=list, compare=False)


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
    repetition: float = 1.0,
    until: Callable[[int, list[int]], bool] | None = None,
    earlier: Tensor | None = None,
) -> Iterator[Step]:
    """Stream the continuation of each prompt: y_t ~ pick(p(· | prompt, y_<t)) until a stop token, `length` or the model's context.

    `ids` (B, T) are right-padded where `mask` is False. `seed` is one number, or one per row (`seeds`); the same seed and prompt
    give the same text, alone or in any batch. `repetition` above 1 makes tokens of prompt and text less likely to come again, and those of
    `earlier` (B, t), which was said before the prompt. `until` is asked after each token, with the row and its new ids, whether the text has
    ended. Mistakes are raised here, before any work.
    """
    prompt = read_prompt(model, ids, mask, length)
    row_seeds = seeds(seed, len(ids)) if isinstance(seed, int) else list(seed)
    if len(row_seeds) != len(ids):
        raise ValueError(f"{len(row_seeds)} seeds for {len(ids)} prompts: give one number, or one per prompt")
    if not 0.01 <= repetition <= 100:
        raise ValueError(
            f"repetition is {repetition}: give a number from 0.01 to 100, beyond which logits leave all bounds; 1 changes nothing"
        )
    return _steps(model, prompt, state, pick, stop, ban, row_seeds, repetition, until, earlier)


def _steps(
    model: Model,
    prompt: Prompt,
    state: State,
    pick: Pick,
    stop: Sequence[int],
    ban: Sequence[int],
    row_seeds: list[int],
    repetition: float,
    until: Callable[[int, list[int]], bool] | None,
    earlier: Tensor | None,
) -> Iterator[Step]:
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
    logits, state = ahead(model, ids, state, mask, lengths)  # (rows, V)
    for step in range(int(limits.max())):
        picked, log_p = _choose(
            logits, pick, ban, [row_seeds[row] for row in rows.tolist()], step, seen, repetition
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
        yield Step(tokens, log_probabilities, finished)
        stay = (~ended & (limits[rows] > step + 1)).nonzero()[:, 0]
        if not len(stay):
            return
        if len(stay) < len(rows):
            rows, picked, state = rows[stay], picked[stay], select(state, stay)
            seen = None if seen is None else seen[stay]
        seen = None if seen is None else torch.cat([seen, picked[:, None]], 1)
        logits, state = ahead(model, picked[:, None], state)


@torch.no_grad()
def _choose(
    logits: Tensor,
    pick: Pick,
    ban: Sequence[int],
    row_seeds: list[int],
    step: int,
    seen: Tensor | None,
    repetition: float,
) -> tuple[Tensor, Tensor]:
    """The tokens picked (rows,), and their log p under the model's own distribution (rows,)."""
    count = getattr(pick, "few", None)
    changed = logits if seen is None else repeated(logits, seen, repetition)
    if count is None:
        log_p = whole(changed, ban)  # (rows, V)
        hopeless, columns = log_p.amax(-1), None
    else:
        log_p, columns, _ = few(changed, count, ban)  # (rows, count)
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
        uniform = torch.tensor(uniforms(row_seeds, step), dtype=torch.float64, device=logits.device)
        place = pick(log_p, uniform)
        picked = place if columns is None else columns.gather(1, place[:, None])[:, 0]
        log_p = log_p.gather(1, place[:, None])[:, 0]
    if seen is not None:
        log_p = logits.gather(1, picked[:, None])[:, 0] - logits.logsumexp(-1)
    return picked, log_p


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
    repetition: float = 1.0,
    until: Callable[[int, list[int]], bool] | None = None,
    earlier: Tensor | None = None,
) -> list[Text]:
    """The texts that `generate` streams, gathered: one per prompt, in order."""
    texts, ends = [Text() for _ in range(len(ids))], set(stop)
    options = {
        "pick": pick,
        "length": length,
        "stop": stop,
        "ban": ban,
        "seed": seed,
        "repetition": repetition,
        "until": until,
    }
    for step in generate(model, ids, state, mask, **options, earlier=earlier):
        for text, token, log_p, finished in zip(texts, *(part.tolist() for part in step), strict=True):
            if token >= 0:
                text.log_probability += log_p
                text.log_probabilities.append(log_p)
                text.finished = finished
                if token not in ends:
                    text.ids.append(token)
    return texts

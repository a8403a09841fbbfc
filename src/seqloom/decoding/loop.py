"""The generation loop: one token at a time, for every model. Prefill is one call with the prompt, each step the same
call with T = 1.

A row that ends leaves the batch and costs nothing more. Left out: text, tokenizers and `model.eval()`, which are the
caller's task; several samples per prompt, which are repeated rows; the search for the best text, which is `beam_search`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.decoding.protocol import (
    AutoregressiveModel,
    Prompt,
    State,
    check_prompts,
    log_probs,
    next_logits,
    top_log_probs,
)
from seqloom.decoding.sampling import Greedy, Sampler, apply_repetition_penalty, row_seeds, uniforms
from seqloom.errors import UserError
from seqloom.nn.layer import select

StopWhen = Callable[[int, list[int]], bool]


class DecodeStep(NamedTuple):
    """One step of all B rows. A row that ended at an earlier step has token −1 and log-probability 0."""

    tokens: Tensor  # (B,)
    log_probabilities: Tensor  # (B,) under the model's distribution, before the sampler changes it
    finished: Tensor  # (B,) True once the text has ended


@dataclass
class DecodedSequence:
    """The generated text of one row.

    `ids` do not contain the stop token; `log_probability` is log P of the text with it. `finished` is False if the text was
    cut at its maximum length. `log_probabilities` has log p of each token, the stop token included.
    """

    ids: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finished: bool = False
    log_probabilities: list[float] = field(default_factory=list, compare=False)


class _Options(NamedTuple):
    """The checked options of a loop."""

    sampler: Sampler
    stop_ids: Sequence[int]
    banned: Sequence[int]
    row_seeds: list[int]
    repetition_penalty: float
    stop_when: StopWhen | None
    penalty_ids: Tensor | None


def generate_steps(
    model: AutoregressiveModel,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    sampler: Sampler = Greedy(),
    max_tokens: int = 100,
    stop_ids: Sequence[int] = (3,),
    banned: Sequence[int] = (0, 2),
    seed: int | Sequence[int] = 0,
    repetition_penalty: float = 1.0,
    stop_when: StopWhen | None = None,
    penalty_ids: Tensor | None = None,
) -> Iterator[DecodeStep]:
    """Streams the continuation of each prompt: y_t ~ sampler(p(· | prompt, y_<t)) until a stop token, `max_tokens` or the
    model's context.

    `ids` (B, T) are right-padded where `mask` is False. `seed` is one number, or one per row (`row_seeds`); the same seed
    and prompt give the same text, alone or in any batch. `repetition_penalty` above 1 makes the tokens of prompt and text
    less probable, and those of `penalty_ids` (B, t), which preceded the prompt. `stop_when(row, new_ids)` is called after
    each token and returns whether the text has ended. Wrong arguments raise here, before any work.
    """
    prompt = check_prompts(model, ids, mask, max_tokens)
    seeds = row_seeds(seed, len(ids)) if isinstance(seed, int) else list(seed)
    if len(seeds) != len(ids):
        raise UserError(f"{len(seeds)} seeds for {len(ids)} prompts: give one number, or one per prompt")
    if not 0.01 <= repetition_penalty <= 100:
        raise UserError(
            f"the repetition penalty is {repetition_penalty}: give a number from 0.01 to 100; 1 changes nothing"
        )
    options = _Options(sampler, stop_ids, banned, seeds, repetition_penalty, stop_when, penalty_ids)
    return _steps(model, prompt, state, options)


def _steps(
    model: AutoregressiveModel, prompt: Prompt, state: State, options: _Options
) -> Iterator[DecodeStep]:
    # Only `next_logits` runs in inference mode: a generator must not leave the mode on in its caller, and the tensors it
    # yields must be usable in training.
    ids, mask, lengths, limits = prompt
    rows = torch.arange(len(ids), device=ids.device)  # the rows that have not ended
    if not len(rows):
        return
    stop_ids = torch.tensor(list(options.stop_ids), dtype=torch.int64, device=ids.device)
    finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    texts: list[list[int]] = [[] for _ in range(len(ids))]
    penalized_ids = None
    if options.repetition_penalty != 1:
        penalized_ids = ids if mask is None else torch.where(mask, ids, ids[:, :1])
        if options.penalty_ids is not None:
            penalized_ids = torch.cat([options.penalty_ids, penalized_ids], 1)
    logits, state = next_logits(model, ids, state, mask, lengths)  # (rows, V)
    for step in range(int(limits.max())):
        seeds = [options.row_seeds[row] for row in rows.tolist()]
        sampled, log_p = _sample(logits, options, seeds, step, penalized_ids)
        ended = torch.isin(sampled, stop_ids)
        if options.stop_when is not None:
            for index, (row, token) in enumerate(zip(rows.tolist(), sampled.tolist(), strict=True)):
                texts[row].append(token)
                ended[index] |= options.stop_when(row, texts[row])
        if len(rows) == len(ids):
            tokens, log_probabilities, finished = sampled, log_p, ended
        else:
            tokens = torch.full_like(lengths, -1).index_copy(0, rows, sampled)
            log_probabilities = log_p.new_zeros(len(ids)).index_copy(0, rows, log_p)
            finished = finished.index_copy(0, rows, ended)
        yield DecodeStep(tokens, log_probabilities, finished)
        remaining = (~ended & (limits[rows] > step + 1)).nonzero()[:, 0]
        if not len(remaining):
            return
        if len(remaining) < len(rows):
            rows = rows[remaining]
            sampled = sampled[remaining]
            state = select(state, remaining)
            penalized_ids = None if penalized_ids is None else penalized_ids[remaining]
        if penalized_ids is not None:
            penalized_ids = torch.cat([penalized_ids, sampled[:, None]], 1)
        logits, state = next_logits(model, sampled[:, None], state)


@torch.no_grad()
def _sample(
    logits: Tensor, options: _Options, seeds: list[int], step: int, penalized_ids: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The sampled tokens (rows,), and their log p under the model's distribution (rows,)."""
    count = options.sampler.num_candidates
    penalized = (
        logits
        if penalized_ids is None
        else apply_repetition_penalty(logits, penalized_ids, options.repetition_penalty)
    )
    candidates = None  # (rows, count) the ids to choose from, None for the entire vocabulary
    if count is None:
        log_p = log_probs(penalized, options.banned)  # (rows, V)
        best_log_prob = log_p.amax(-1)
    else:
        log_p, candidates, _ = top_log_probs(penalized, count, options.banned)  # (rows, count)
        best_log_prob = log_p[:, 0]
        if count > 1:
            in_id_order = candidates.masked_fill(log_p == -torch.inf, logits.shape[1])
            candidates, order = in_id_order.sort(1)
            log_p = log_p.gather(1, order)
    if (best_log_prob == -torch.inf).any():
        raise UserError("every token with any probability is banned: ban fewer tokens")
    if count == 1 and candidates is not None:
        sampled = candidates[:, 0]
        log_p = log_p[:, 0]
    else:
        uniform = torch.tensor(uniforms(seeds, step), dtype=torch.float64, device=logits.device)
        index = options.sampler(log_p, uniform)
        sampled = index if candidates is None else candidates.gather(1, index[:, None])[:, 0]
        log_p = log_p.gather(1, index[:, None])[:, 0]
    if penalized_ids is not None:
        log_p = logits.gather(1, sampled[:, None])[:, 0] - logits.logsumexp(-1)
    return sampled, log_p


def generate_batch(
    model: AutoregressiveModel,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    sampler: Sampler = Greedy(),
    max_tokens: int = 100,
    stop_ids: Sequence[int] = (3,),
    banned: Sequence[int] = (0, 2),
    seed: int | Sequence[int] = 0,
    repetition_penalty: float = 1.0,
    stop_when: StopWhen | None = None,
    penalty_ids: Tensor | None = None,
) -> list[DecodedSequence]:
    """The texts that `generate_steps` streams, complete: one per prompt, in order."""
    steps = generate_steps(
        model,
        ids,
        state,
        mask,
        sampler=sampler,
        max_tokens=max_tokens,
        stop_ids=stop_ids,
        banned=banned,
        seed=seed,
        repetition_penalty=repetition_penalty,
        stop_when=stop_when,
        penalty_ids=penalty_ids,
    )
    texts = [DecodedSequence() for _ in range(len(ids))]
    stops = set(stop_ids)
    for step in steps:
        columns = zip(texts, *(part.tolist() for part in step), strict=True)
        for text, token, log_p, finished in columns:
            if token >= 0:
                text.log_probability += log_p
                text.log_probabilities.append(log_p)
                text.finished = finished
                if token not in stops:
                    text.ids.append(token)
    return texts

"""Beam search (J2), batched over sentences and without a Python loop over beams or tokens.

It searches the same outcomes as the loop: texts that end with a stop token, and texts cut at `max_tokens`; both are
scored alike. Left out: words that must or must not occur, which `banned` or a wrapped model can do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from seqloom.decoding.coverage import Coverage
from seqloom.decoding.protocol import (
    AutoregressiveModel,
    State,
    check_prompts,
    log_probs,
    next_logits,
    top_log_probs,
)
from seqloom.errors import UserError
from seqloom.nn.layer import select

Length = TypeVar("Length", float, Tensor)


@dataclass
class Hypothesis:
    """One outcome of a search: ids without the stop token, log P with it, the score, and whether it ended by itself."""

    ids: list[int]
    log_probability: float
    score: float
    finished: bool


class BestSoFar(NamedTuple):
    """The best outcomes so far of N sentences, best first: K slots each, score −inf = empty."""

    scores: Tensor  # (N, K)
    log_p: Tensor  # (N, K)
    finished: Tensor  # (N, K)
    texts: Tensor  # (N, K, longest so far), −1 after the end

    def select(self, rows: Tensor) -> BestSoFar:
        """The sentences with these indices."""
        return BestSoFar(self.scores[rows], self.log_p[rows], self.finished[rows], self.texts[rows])


class Expansion(NamedTuple):
    """One step of the search after ranking, for `on_step`: the prefixes that were continued, and which continuations are
    kept."""

    sentence: Tensor  # (N,) the prompt that each searched sentence belongs to
    texts: Tensor  # (N, W, t - 1) the live prefixes
    totals: Tensor  # (N, W, V) log P of every continuation, −inf for an empty slot
    kept: Tensor  # (N, W, V) the continuations that stay in the beam
    outcomes: Tensor  # (N, W, V) the continuations that are outcomes: ended, or at the maximum length


def length_normalizer(length: Length, length_penalty: float) -> Length:
    """lp(Y) = ((5 + |Y|) / 6)^α, |Y| counting the stop token; score(Y) = log P(Y) / lp(Y). α = 0 leaves log P
    (Wu et al. 2016)."""
    return ((5 + length) / 6) ** length_penalty


@torch.inference_mode()
def beam_search(
    model: AutoregressiveModel,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    width: int = 4,
    max_tokens: int = 100,
    stop_ids: Sequence[int] = (3,),
    banned: Sequence[int] = (0, 2),
    length_penalty: float = 0.6,
    nbest: int = 1,
    coverage: Coverage | None = None,
    on_step: Callable[[Expansion], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `nbest` outcomes with the highest score for each prompt, best first; fewer only if the tree has fewer.

    Each step ranks all continuations y_<t · w of a sentence's live prefixes by log P. Those that end and are among the
    `width` best are outcomes; the `width` best of the others stay in the beam. With width 1 and α = 0 this is greedy.

    A prefix with log P = ℓ is pruned as soon as there are `nbest` outcomes and ℓ / lp(L) ≤ the worst of them, where L is
    the maximum length: log P only falls and lp is largest at L, so no continuation can have a higher score. A sentence
    without live prefixes is finished and leaves the batch. Hence a smaller `max_tokens` makes the search faster.
    `coverage` adds its penalty to the score of an outcome; prefixes are ranked without it. `on_step` is called after
    every step.
    """
    if width < 1 or not 1 <= nbest <= width:
        raise UserError(f"width is {width} and nbest {nbest}: keep 1 <= nbest <= width")
    if not (length_penalty >= 0 and math.isfinite(length_penalty)):
        raise UserError(f"the length penalty is {length_penalty}: give a finite number of at least 0")
    ids, mask, lengths, limits = check_prompts(model, ids, mask, max_tokens)
    results: list[list[Hypothesis]] = [[] for _ in range(len(ids))]
    if not results:
        return results

    if coverage is not None:
        model, state = coverage.wrap(model, state)
    logits, state = next_logits(model, ids, state, mask, lengths)  # (rows, V)
    stop_tensor = torch.tensor(list(stop_ids), dtype=torch.int64, device=ids.device)
    is_stop = torch.isin(torch.arange(logits.shape[1], device=ids.device), stop_tensor)  # (V,)
    count = width * (1 + int(is_stop.sum()))  # candidates: enough that `width` of them do not end
    sentence = torch.arange(
        len(ids), device=ids.device
    )  # (N,) the prompt that each searched sentence belongs to
    live_log_probs = logits.new_zeros(
        len(ids), 1
    )  # (N, W) of the live prefixes, best first, −inf = empty slot
    alive = torch.ones_like(
        live_log_probs, dtype=torch.bool
    )  # (N, W); the model's rows are the True ones, in order
    texts = ids.new_empty(len(ids), 1, 0)  # (N, W, t)
    empty = logits.new_full((len(ids), nbest), -torch.inf)
    best = BestSoFar(empty, empty, empty > 0, ids.new_empty(len(ids), nbest, 0))

    for t in range(1, int(limits.max()) + 1):
        ranking = _rank(logits, live_log_probs, alive, is_stop, count, width, banned)
        values, parents, tokens, ends, order = ranking
        at_limit = (limits[sentence] == t)[:, None]  # (N, 1)
        in_width = torch.arange(ends.shape[1], device=ids.device) < width
        continues = torch.zeros_like(ends).scatter(1, order, True) & ~ends
        is_outcome = ((ends & in_width) | (continues & at_limit)) & (values > -torch.inf)
        if is_outcome.any():
            new_tokens = tokens.masked_fill(ends, -1)
            new_texts = torch.cat([_gather(texts, parents), new_tokens[:, :, None]], -1)  # (N, C, t)
            outcome_log_p = values.masked_fill(~is_outcome, -torch.inf)
            scores = outcome_log_p / length_normalizer(float(t), length_penalty)
            if coverage is not None:
                penalties = _spread(coverage.penalty(state)[:, None], alive, -torch.inf)
                scores = scores + penalties.gather(1, parents)
            best = _merge(best, BestSoFar(scores, outcome_log_p, ends, new_texts))

        previous_log_probs, previous_alive = live_log_probs, alive
        live_log_probs = values.masked_fill(ends, -torch.inf).gather(1, order)  # (N, width)
        max_normalizer = length_normalizer(limits[sentence].to(live_log_probs.dtype), length_penalty)
        bound = live_log_probs / max_normalizer[:, None]
        # The last slot of `best` is −inf until there are `nbest` outcomes.
        alive = (live_log_probs > -torch.inf) & ~at_limit & (bound > best.scores[:, -1:])
        if on_step:
            row_totals = log_probs(logits, banned) + previous_log_probs[previous_alive][:, None]
            totals = _spread(row_totals, previous_alive, -torch.inf).view(*previous_alive.shape, -1)
            kept, outcomes = _marks(totals, ranking, alive, is_outcome)
            on_step(Expansion(sentence, texts, totals, kept, outcomes))
        parents = parents.gather(1, order)
        tokens = tokens.gather(1, order)
        finished_sentences = ~alive.any(1)
        for n in finished_sentences.nonzero()[:, 0].tolist():
            results[int(sentence[n])] = _hypotheses(best, n)
        if finished_sentences.all():
            break

        # Live prefixes are the first slots of each sentence: slots that no sentence uses are cut off at the end.
        remaining = (~finished_sentences).nonzero()[:, 0]
        slots = int(alive.sum(1).max())
        parent_rows = (previous_alive.flatten().cumsum(0) - 1).view_as(previous_alive).gather(1, parents)
        parent_rows = parent_rows[remaining, :slots]  # (N, W) the model's row of each parent
        live_log_probs = live_log_probs[remaining, :slots]
        alive = alive[remaining, :slots]
        parents = parents[remaining, :slots]
        tokens = tokens[remaining, :slots]
        sentence = sentence[remaining]
        best = best.select(remaining)
        texts = torch.cat([_gather(texts[remaining], parents), tokens[:, :, None]], -1)
        rows = parent_rows[alive]
        if len(rows) != len(logits) or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            state = select(state, rows)
        logits, state = next_logits(model, tokens[alive][:, None], state)
    if not all(results):
        raise UserError("every token with any probability is banned: ban fewer tokens")
    return results


class Ranking(NamedTuple):
    """The best C continuations of each sentence's live prefixes, best first."""

    values: Tensor  # (N, C) log P, −inf for none
    parents: Tensor  # (N, C) the slot of the prefix
    tokens: Tensor  # (N, C)
    ends: Tensor  # (N, C) whether the token is a stop token
    order: Tensor  # (N, width) the best that do not end


def _rank(
    logits: Tensor,
    live_log_probs: Tensor,
    alive: Tensor,
    is_stop: Tensor,
    count: int,
    width: int,
    banned: Sequence[int],
) -> Ranking:
    # The best of a sentence are among the best of its rows.
    row_log_p, row_tokens, _ = top_log_probs(logits, count, banned)  # (rows, C)
    row_totals = row_log_p + live_log_probs[alive][:, None]
    values, candidates = _topk(_spread(row_totals, alive, -torch.inf), count)  # (N, C) of (N, W · C)
    tokens = _spread(row_tokens, alive, 0).gather(1, candidates)
    ends = is_stop[tokens]
    order = ends.to(torch.int8).argsort(dim=1, stable=True)[:, :width]
    return Ranking(values, candidates // row_tokens.shape[1], tokens, ends, order)


def _marks(totals: Tensor, ranking: Ranking, alive: Tensor, is_outcome: Tensor) -> tuple[Tensor, Tensor]:
    """Which of all continuations, (N, W, V), are kept and which are outcomes."""
    index = ranking.parents * totals.shape[2] + ranking.tokens  # (N, C) of (N, W · V)
    zeros = torch.zeros_like(totals.flatten(1), dtype=torch.int8)
    # "amax", because empty slots may have the index of a real continuation.
    kept = zeros.scatter_reduce(1, index.gather(1, ranking.order), alive.to(torch.int8), "amax").bool()
    outcomes = zeros.scatter_reduce(1, index, is_outcome.to(torch.int8), "amax").bool()
    return kept.view(totals.shape), outcomes.view(totals.shape)


def _spread(values: Tensor, alive: Tensor, empty: float) -> Tensor:
    """The rows (R, C) written into their slots, `empty` elsewhere: (N, W · C)."""
    if alive.all():
        return values.view(len(alive), -1)
    slots = values.new_full((*alive.shape, values.shape[1]), empty)
    return slots.masked_scatter(alive[:, :, None], values).flatten(1)


def _topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest `count` of each row and their indices, largest first."""
    top = values.topk(min(count, values.shape[1]), 1)
    return top.values, top.indices


def _gather(texts: Tensor, slots: Tensor) -> Tensor:
    """texts (N, W, t) at slots (N, C) → (N, C, t)."""
    return texts.gather(1, slots[:, :, None].expand(-1, -1, texts.shape[2]))


def _merge(best: BestSoFar, new: BestSoFar) -> BestSoFar:
    """The best K of both; the older wins a tie."""
    longer = new.texts.shape[2] - best.texts.shape[2]
    padded = best._replace(texts=torch.nn.functional.pad(best.texts, (0, longer), value=-1))
    scores, log_p, finished, texts = (torch.cat(pair, 1) for pair in zip(padded, new, strict=True))
    order = scores.argsort(dim=1, descending=True, stable=True)[:, : best.scores.shape[1]]
    return BestSoFar(
        scores.gather(1, order), log_p.gather(1, order), finished.gather(1, order), _gather(texts, order)
    )


def _hypotheses(best: BestSoFar, n: int) -> list[Hypothesis]:
    """The outcomes of one sentence as Python values."""
    columns = zip(*(part[n].tolist() for part in best), strict=True)
    return [
        Hypothesis([token for token in text if token >= 0], log_p, score, finished)
        for score, log_p, finished, text in columns
        if score > -math.inf
    ]

"""Beam search (J2), batched over sentences and without a Python loop over beams or tokens.

The outcomes searched are the same as the loop's: texts that end with a stop token, and texts cut at the length; both are scored
alike. Left out: forcing or forbidding words, which a `ban` or a model of its own does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.decoding.coverage import Coverage
from seqloom.decoding.protocol import Model, State, check_prompts, log_probs, next_logits, top_log_probs
from seqloom.nn.state import select


@dataclass
class Hypothesis:
    """One outcome of a search: ids without the stop token, log P with it, its score, and whether it ended by itself or was cut."""

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


class Expansion(NamedTuple):
    """One step of the search as it stands after ranking, for those who watch: which prefixes were continued, and what became of them."""

    sentence: Tensor  # (N,) the prompt each searched sentence belongs to
    texts: Tensor  # (N, W, t - 1) the live prefixes
    totals: Tensor  # (N, W, V) log P of every continuation, −inf where a slot is empty
    lives: Tensor  # (N, W, V) the continuations that live on
    outcomes: Tensor  # (N, W, V) those that are outcomes: ended, or as long as allowed


def length_normalizer(length: Tensor | int, penalty: float) -> Tensor | float:
    """lp(Y) = ((5 + |Y|) / 6)^α, |Y| counting the stop token; score(Y) = log P(Y) / lp(Y). α = 0 leaves log P (Wu et al. 2016)."""
    return ((5 + length) / 6) ** penalty


@torch.inference_mode()
def beam_search(
    model: Model,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    width: int = 4,
    length: int = 100,
    stop: Sequence[int] = (3,),
    ban: Sequence[int] = (0, 2),
    penalty: float = 0.6,
    nbest: int = 1,
    coverage: Coverage | None = None,
    watch: Callable[[Expansion], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `nbest` best-scored outcomes found for each prompt, best first; fewer only if the tree has fewer.

    Each step ranks all continuations y_<t · w of a sentence's live prefixes by log P. Those that end and stand among the `width`
    best are outcomes; the `width` best of the others live on. With width 1 and α = 0 this is greedy.

    A prefix with log P = ℓ is dropped as soon as `nbest` outcomes are kept and ℓ / lp(L) ≤ the worst of them, L being the most
    tokens allowed: log P only falls and lp is largest at L, so no continuation can beat it. A sentence without live prefixes is
    certain and leaves the batch. Hence a smaller `length` makes the search faster. `coverage` adds its penalty to the score of an
    outcome; prefixes are ranked without it. `watch` is told of every step.
    """
    if width < 1 or not 1 <= nbest <= width:
        raise ValueError(f"width is {width} and nbest {nbest}: keep 1 <= nbest <= width")
    if not (penalty >= 0 and math.isfinite(penalty)):
        raise ValueError(f"the length penalty is {penalty}: give a finite number of at least 0")
    ids, mask, lengths, limits = check_prompts(model, ids, mask, length)
    found: list[list[Hypothesis]] = [[] for _ in range(len(ids))]
    if not found:
        return found

    if coverage is not None:
        model, state = coverage.over(model, state)
    logits, state = next_logits(model, ids, state, mask, lengths)  # (rows, V)
    V = logits.shape[1]
    stops = torch.isin(
        torch.arange(V, device=ids.device), torch.tensor(list(stop), dtype=torch.int64, device=ids.device)
    )
    sentence = torch.arange(len(ids), device=ids.device)  # (N,) the prompt each searched sentence belongs to
    live = logits.new_zeros(len(ids), 1)  # (N, W) log P of the live prefixes, best first, −inf = empty slot
    alive = torch.ones_like(live, dtype=torch.bool)  # (N, W); the model's rows are the True ones, in order
    texts = ids.new_empty(len(ids), 1, 0)  # (N, W, t)
    empty = logits.new_full((len(ids), nbest), -torch.inf)
    count = width * (1 + int(stops.sum()))  # candidates: enough that `width` of them do not end
    kept = BestSoFar(empty, empty, empty > 0, ids.new_empty(len(ids), nbest, 0))

    for t in range(1, int(limits.max()) + 1):
        each = top_log_probs(
            logits, count, ban
        )  # the best of each row are all that can be among the best of its sentence
        values, places = _topk(
            _spread(each.log_probs + live[alive][:, None], alive, -torch.inf), count
        )  # (N, C) of (N, W · C)
        parents, tokens = places // each.tokens.shape[1], _spread(each.tokens, alive, 0).gather(1, places)
        totals = (
            _spread(log_probs(logits, ban) + live[alive][:, None], alive, -torch.inf) if watch else None
        )  # (N, W · V)
        everywhere = parents * V + tokens  # (N, C)
        ends = stops[tokens]
        order = ends.to(torch.int8).argsort(dim=1, stable=True)[
            :, :width
        ]  # the best that do not end; enough of them by the choice of C
        last = (limits[sentence] == t)[:, None]  # (N, 1)
        among = torch.arange(ends.shape[1], device=ids.device) < width
        stays = torch.zeros_like(ends).scatter(1, order, True) & ~ends
        outcome = ((ends & among) | (stays & last)) & (values > -torch.inf)
        if outcome.any():
            longer = torch.cat(
                [_gather(texts, parents), tokens.masked_fill(ends, -1)[:, :, None]], -1
            )  # (N, C, t)
            totals_found = values.masked_fill(~outcome, -torch.inf)
            scores = totals_found / length_normalizer(t, penalty)
            if coverage is not None:
                scores = scores + _spread(coverage.penalty(state)[:, None], alive, -torch.inf).gather(
                    1, parents
                )
            kept = _merge(kept, scores, totals_found, ends, longer)

        live = values.masked_fill(ends, -torch.inf).gather(1, order)  # (N, width)
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        bound = live / length_normalizer(limits[sentence].to(live.dtype), penalty)[:, None]
        before, alive = (
            alive,
            (live > -torch.inf) & ~last & (bound > kept.scores[:, -1:]),
        )  # kept is full once its last slot is
        if watch:
            shape, none = (
                (*before.shape, V),
                torch.zeros_like(totals, dtype=torch.int8),
            )  # empty slots may stand where others do
            lives = none.scatter_reduce(1, everywhere.gather(1, order), alive.to(torch.int8), "amax").bool()
            ended = none.scatter_reduce(1, everywhere, outcome.to(torch.int8), "amax").bool()
            watch(Expansion(sentence, texts, totals.view(shape), lives.view(shape), ended.view(shape)))
        certain = ~alive.any(1)
        for n in certain.nonzero()[:, 0].tolist():
            found[int(sentence[n])] = _hypotheses(kept, n)
        if certain.all():
            break

        # Live prefixes stand first in each sentence, so slots no sentence uses are cut off at the end.
        stay, slots = (~certain).nonzero()[:, 0], int(alive.sum(1).max())
        row = (
            (before.flatten().cumsum(0) - 1).view_as(before).gather(1, parents)
        )  # (N, W) the model's row of each parent
        row, live, alive, parents, tokens = (
            part[stay, :slots] for part in (row, live, alive, parents, tokens)
        )
        sentence, kept = sentence[stay], BestSoFar(*(part[stay] for part in kept))
        texts = torch.cat([_gather(texts[stay], parents), tokens[:, :, None]], -1)
        rows = row[alive]
        if len(rows) != len(logits) or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            state = select(state, rows)
        logits, state = next_logits(model, tokens[alive][:, None], state)
    if not all(found):
        raise ValueError("every token with any probability is banned: ban fewer tokens")
    return found


def _spread(values: Tensor, alive: Tensor, empty: float) -> Tensor:
    """The rows (R, C) set into their slots, `empty` elsewhere: (N, W · C)."""
    if alive.all():
        return values.view(len(alive), -1)
    return (
        values.new_full((*alive.shape, values.shape[1]), empty)
        .masked_scatter(alive[:, :, None], values)
        .flatten(1)
    )


def _topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest `count` of each row and their places, largest first."""
    return values.topk(min(count, values.shape[1]), 1)


def _gather(texts: Tensor, slots: Tensor) -> Tensor:
    """texts (N, W, t) at slots (N, C) → (N, C, t)."""
    return texts.gather(1, slots[:, :, None].expand(-1, -1, texts.shape[2]))


def _merge(kept: BestSoFar, scores: Tensor, log_p: Tensor, finished: Tensor, texts: Tensor) -> BestSoFar:
    """The best K of those kept and the new ones; the older wins a tie."""
    kept = kept._replace(
        texts=torch.nn.functional.pad(kept.texts, (0, texts.shape[2] - kept.texts.shape[2]), value=-1)
    )
    both = BestSoFar(
        *(torch.cat(pair, 1) for pair in zip(kept, (scores, log_p, finished, texts), strict=True))
    )
    order = both.scores.argsort(dim=1, descending=True, stable=True)[:, : kept.scores.shape[1]]
    return BestSoFar(*(part.gather(1, order) for part in both[:3]), _gather(both.texts, order))


def _hypotheses(kept: BestSoFar, n: int) -> list[Hypothesis]:
    """The outcomes of one sentence as plain Python."""
    columns = zip(*(part[n].tolist() for part in kept), strict=True)
    return [
        Hypothesis([i for i in text if i >= 0], log_p, score, done)
        for score, log_p, done, text in columns
        if score > -math.inf
    ]

"""Exact search (J5): the most probable outcome, proven, for trees small enough to prove it.

It tells a search error (the beam missed a better text) from a model error (the best text is a bad one). Length
penalties are left out: with them a score can rise again, and the proof fails.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.decoding.beam import Hypothesis
from seqloom.decoding.protocol import AutoregressiveModel, State, check_prompts, next_log_probs
from seqloom.errors import UserError


class Siblings(NamedTuple):
    """The continuations of one prefix by one token, most probable first, and the state after the prefix."""

    totals: list[float]  # log P of prefix and token
    tokens: list[int]
    state: State
    prefix: tuple[int, ...]


def _expand(log_p: Tensor, state: State, prefix_log_prob: float, prefix: tuple[int, ...]) -> Siblings:
    sorted_log_p, tokens = log_p[0].double().sort(descending=True, stable=True)
    return Siblings((prefix_log_prob + sorted_log_p).tolist(), tokens.tolist(), state, prefix)


@torch.inference_mode()
def exact_search(
    model: AutoregressiveModel,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    max_tokens: int = 10,
    stop_ids: Sequence[int] = (3,),
    banned: Sequence[int] = (0, 2),
    max_calls: int = 10_000,
) -> Hypothesis:
    """argmax_Y P(Y | prompt) over texts that end with a stop token or have `max_tokens` tokens, for one prompt (1, T).

    Dijkstra's search with distance −log P: the most probable prefix of the frontier is taken first, and since log P only
    falls along a path, the first complete text taken is the best of all. Raises after `max_calls` calls of the model.
    """
    ids, mask, lengths, limits = check_prompts(model, ids, mask, max_tokens)
    if len(ids) != 1:
        raise UserError(f"exact search got {len(ids)} prompts: give one")
    stops = set(stop_ids)
    siblings = _expand(*next_log_probs(model, ids, state, mask, lengths, banned), 0.0, ())
    # Of each expanded prefix, the frontier holds only the best child not yet taken: (−log P, order of arrival, rank,
    # siblings).
    frontier = [(-siblings.totals[0], 0, 0, siblings)]
    arrivals = 0
    num_calls = 1
    while frontier:
        distance, _, rank, siblings = heapq.heappop(frontier)
        totals, tokens, state, prefix = siblings
        if distance == torch.inf:
            break
        text = (*prefix, tokens[rank])
        if tokens[rank] in stops:
            return Hypothesis(list(prefix), -distance, -distance, True)
        if len(text) == int(limits[0]):
            return Hypothesis(list(text), -distance, -distance, False)
        if num_calls == max_calls:
            raise UserError(
                f"exact search has no proof after {max_calls} calls of the model: lower max_tokens (now {max_tokens}) "
                "or raise max_calls"
            )
        num_calls += 1
        log_p, after = next_log_probs(model, ids.new_tensor([[tokens[rank]]]), state, banned=banned)
        children = _expand(log_p, after, totals[rank], text)
        heapq.heappush(frontier, (-children.totals[0], arrivals + 1, 0, children))
        if rank + 1 < len(tokens):
            heapq.heappush(frontier, (-totals[rank + 1], arrivals + 2, rank + 1, siblings))
        arrivals += 2
    raise UserError("every token with any probability is banned: ban fewer tokens")

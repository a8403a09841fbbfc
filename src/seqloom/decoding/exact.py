"""Exact search (J5): the most probable outcome, proven, on trees small enough to prove it.

It tells a search error (the beam missed a better text) from a model error (the best text is a bad one). Left out: length penalties,
under which a score can rise again and the proof fails.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch
from torch import Tensor

from seqloom.decoding.beam import Hypothesis
from seqloom.decoding.protocol import Model, State, check_prompts, next_log_probs


@torch.inference_mode()
def exact_search(
    model: Model,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    *,
    length: int = 10,
    stop: Sequence[int] = (3,),
    ban: Sequence[int] = (0, 2),
    calls: int = 10_000,
) -> Hypothesis:
    """argmax_Y P(Y | prompt) over texts that end with a stop token or have `length` tokens, for one prompt (1, T).

    Dijkstra's search with distance −log P: the frontier's most probable prefix is taken first, and since log P only falls along a
    path, the first complete text taken is the best of all. Gives up after `calls` calls of the model.
    """
    ids, mask, lengths, limits = check_prompts(model, ids, mask, length)
    if len(ids) != 1:
        raise ValueError(f"exact search got {len(ids)} prompts: give one")
    ends = set(stop)

    def expand(log_p: Tensor, state: State, before: float, prefix: tuple[int, ...]) -> tuple:
        steps, tokens = log_p[0].double().sort(descending=True, stable=True)
        return (before + steps).tolist(), tokens.tolist(), state, prefix

    # The frontier holds, of each expanded prefix, only its best child not yet taken: (−log P, order of arrival, rank, the siblings).
    siblings = expand(*next_log_probs(model, ids, state, mask, lengths, ban), 0.0, ())
    frontier, arrivals, called = [(-siblings[0][0], 0, 0, siblings)], 0, 1
    while frontier:
        distance, _, rank, siblings = heapq.heappop(frontier)
        totals, tokens, state, prefix = siblings
        if distance == torch.inf:
            break
        text = (*prefix, tokens[rank])
        if tokens[rank] in ends:
            return Hypothesis(list(prefix), -distance, -distance, True)
        if len(text) == int(limits[0]):
            return Hypothesis(list(text), -distance, -distance, False)
        if called == calls:
            raise ValueError(
                f"exact search has no proof after {calls} calls of the model: shorten length (now {length}) or raise calls"
            )
        called += 1
        log_p, after = next_log_probs(model, ids.new_tensor([[tokens[rank]]]), state, ban=ban)
        below = expand(log_p, after, totals[rank], text)
        heapq.heappush(frontier, (-below[0][0], arrivals + 1, 0, below))
        if rank + 1 < len(tokens):
            heapq.heappush(frontier, (-totals[rank + 1], arrivals + 2, rank + 1, siblings))
        arrivals += 2
    raise ValueError("every token with any probability is banned: ban fewer tokens")

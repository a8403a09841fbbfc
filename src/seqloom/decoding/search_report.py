"""Beam search with its tree, and why a given text was not chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from seqloom.decoding.beam import Expansion, Hypothesis, beam_search, length_normalizer
from seqloom.decoding.forced import forced_log_probs
from seqloom.decoding.protocol import AutoregressiveModel, State
from seqloom.errors import UserError

BranchStatus = Literal["lives", "outcome", "pruned"]
Verdict = Literal["found", "search error", "model error"]


@dataclass
class Branch:
    """One continuation that the search ranked: the text so far, its log P, its rank among all of its step, its status."""

    ids: list[int]
    log_probability: float
    rank: int
    status: BranchStatus


@dataclass
class SearchTree:
    """The search tree of one sentence: the best `max_branches` continuations of each step, kept or pruned. Pass `on_step`
    to `beam_search`."""

    max_branches: int = 10
    sentence: int = 0
    steps: list[list[Branch]] = field(default_factory=list)

    def on_step(self, step: Expansion) -> None:
        matches = (step.sentence == self.sentence).nonzero()[:, 0]
        if not len(matches):
            return
        n = int(matches[0])
        totals = step.totals[n].flatten()
        kept = step.kept[n].flatten()
        outcomes = step.outcomes[n].flatten()
        survives = kept | outcomes
        best = totals.topk(min(max(self.max_branches, int(survives.sum())), len(totals))).indices
        indices = torch.unique(torch.cat([best, survives.nonzero()[:, 0]]))
        indices = indices[totals[indices].argsort(descending=True, stable=True)]
        branches = []
        for index in indices.tolist():
            if totals[index] == -torch.inf:
                continue
            slot, token = divmod(index, step.totals.shape[2])
            status: BranchStatus = "pruned"
            if outcomes[index]:
                status = "outcome"
            elif kept[index]:
                status = "lives"
            rank = 1 + int((totals > totals[index]).sum())
            ids = [*step.texts[n, slot].tolist(), token]
            branches.append(Branch(ids, float(totals[index]), rank, status))
        self.steps.append(branches)


@dataclass
class SearchReport:
    """Why a text is not the result of the search.

    `pruned_at` is the step (from 1) at which the search dropped the text's prefix, None if it never did. At that step the
    prefix had rank `rank` of all continuations and was `gap` nats below the last one kept; `gap` is None if its rank was
    high enough but it could no longer win. `verdict`: the text is the result ("found"); the search missed a text that the
    model scores higher ("search error"); or the model itself prefers another text ("model error").
    """

    verdict: Verdict
    log_probability: float
    score: float
    answer: Hypothesis
    pruned_at: int | None
    rank: int | None
    gap: float | None
    tokens: list[float]  # ln P of each token of the text, the stop token included


class _Pruned(NamedTuple):
    """The step at which a prefix was dropped, its rank there, and its distance to the last one kept."""

    step: int
    rank: int
    gap: float | None


def explain_search(
    model: AutoregressiveModel,
    ids: Tensor,
    text: Sequence[int],
    state: State = None,
    mask: Tensor | None = None,
    *,
    width: int = 4,
    max_tokens: int = 100,
    eos_id: int = 3,
    banned: Sequence[int] = (0, 2),
    length_penalty: float = 0.6,
) -> SearchReport:
    """Why is this text not the result? For one prompt (1, T), searched as `beam_search` does with the same options."""
    if len(ids) != 1:
        raise UserError(f"explain_search got {len(ids)} prompts: give one")
    if len(text) >= max_tokens or eos_id in text or any(token in banned for token in text):
        raise UserError(
            f"the search cannot produce this text: keep it below {max_tokens} tokens, without stop or banned tokens"
        )
    target = [*text, eos_id]
    pruned: list[_Pruned] = []

    def on_step(step: Expansion) -> None:
        t = step.texts.shape[2] + 1
        if pruned or t > len(target):
            return
        prefix = torch.tensor(target[: t - 1], device=step.texts.device)
        occupied = (step.totals[0] > -torch.inf).any(-1)
        is_prefix = (step.texts[0] == prefix).all(-1) & occupied  # (W,) True at one slot
        index = int(is_prefix.int().argmax()), target[t - 1]
        survives = step.kept[0] | step.outcomes[0]
        if survives[index]:
            return
        total = step.totals[0][index]
        kept_totals = step.totals[0][survives]
        could_not_win = not len(kept_totals) or bool(kept_totals.min() <= total)
        gap = None if could_not_win else float(kept_totals.min() - total)
        pruned.append(_Pruned(t, 1 + int((step.totals[0] > total).sum()), gap))

    [[answer]] = beam_search(
        model,
        ids,
        state,
        mask,
        width=width,
        max_tokens=max_tokens,
        stop_ids=(eos_id,),
        banned=banned,
        length_penalty=length_penalty,
        on_step=on_step,
    )
    [tokens] = forced_log_probs(model, ids, [text], state, mask, eos_id=eos_id)
    score = sum(tokens) / length_normalizer(float(len(target)), length_penalty)
    verdict: Verdict = "search error" if score > answer.score else "model error"
    if answer.finished and answer.ids == list(text):
        verdict = "found"
    pruned_at, rank, gap = pruned[0] if pruned and verdict != "found" else (None, None, None)
    return SearchReport(verdict, sum(tokens), score, answer, pruned_at, rank, gap, tokens)

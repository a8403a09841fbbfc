"""Search one can look into: the tree with its pruned branches, and why a given text was not the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from seqloom.decoding.beam import Expansion, Hypothesis, beam_search, length_normalizer
from seqloom.decoding.forced import forced_log_probs
from seqloom.decoding.protocol import Model, State

BranchStatus = Literal["lives", "outcome", "pruned"]


@dataclass
class Branch:
    """One continuation that the search looked at: the whole text so far, its log P, its place among all of its step, what became of it."""

    ids: list[int]
    log_probability: float
    rank: int
    fate: BranchStatus


@dataclass
class SearchTree:
    """The search tree of one sentence: for each step its best `shown` continuations, kept or pruned. Hand `watch` to `beam`."""

    shown: int = 10
    sentence: int = 0
    steps: list[list[Branch]] = field(default_factory=list)

    def watch(self, step: Expansion) -> None:
        here = (step.sentence == self.sentence).nonzero()[:, 0]
        if not len(here):
            return
        n = int(here[0])
        totals, vocabulary = step.totals[n].flatten(), step.totals.shape[2]
        kept = step.lives[n].flatten() | step.outcomes[n].flatten()
        best = totals.topk(min(max(self.shown, int(kept.sum())), len(totals))).indices
        places = torch.unique(torch.cat([best, kept.nonzero()[:, 0]]))
        places = places[totals[places].argsort(descending=True, stable=True)]
        branches = []
        for place in places.tolist():
            if totals[place] == -torch.inf:
                continue
            slot, token = divmod(place, vocabulary)
            fate: BranchStatus = (
                "outcome"
                if step.outcomes[n, slot, token]
                else "lives"
                if step.lives[n, slot, token]
                else "pruned"
            )
            rank = 1 + int((totals > totals[place]).sum())
            branches.append(Branch([*step.texts[n, slot].tolist(), token], float(totals[place]), rank, fate))
        self.steps.append(branches)


@dataclass
class SearchReport:
    """Why a text is not the answer. `fell` is the step (from 1) at which the search dropped its prefix, None where it never did; there it
    stood at `rank` of all continuations, `gap` nats below the last one kept; no gap where it stood high enough, but could no longer win.
    `verdict`: the text is the answer ("found"); the search missed a text that the model scores higher ("search error"); or the model
    itself prefers its answer ("model error")."""

    verdict: Literal["found", "search error", "model error"]
    log_probability: float
    score: float
    answer: Hypothesis
    fell: int | None
    rank: int | None
    gap: float | None
    tokens: list[float]  # ln P of each of its tokens, the stop token included


def explain_search(
    model: Model,
    ids: Tensor,
    text: Sequence[int],
    state: State = None,
    mask: Tensor | None = None,
    *,
    width: int = 4,
    length: int = 100,
    end: int = 3,
    ban: Sequence[int] = (0, 2),
    penalty: float = 0.6,
) -> SearchReport:
    """Why not this text? For one prompt (1, T), searched as `beam` does with the same options."""
    if len(ids) != 1:
        raise ValueError(f"why got {len(ids)} prompts: give one")
    if len(text) >= length or end in text or any(token in ban for token in text):
        raise ValueError(
            f"the text cannot come out: keep it below {length} tokens, without stop or banned tokens"
        )
    wanted = [*text, end]
    lost: list[tuple[int, int, float | None]] = []

    def follow(step: Expansion) -> None:
        t = step.texts.shape[2] + 1
        if lost or t > len(wanted):
            return
        before = torch.tensor(wanted[: t - 1], device=step.texts.device)
        there = (step.texts[0] == before).all(-1) & (step.totals[0] > -torch.inf).any(
            -1
        )  # (W,) True at one slot
        place = int(there.int().argmax()), wanted[t - 1]
        if step.lives[0][place] or step.outcomes[0][place]:
            return
        kept = step.totals[0][step.lives[0] | step.outcomes[0]]
        here = step.totals[0][place]
        bounded = not len(kept) or kept.min() <= here
        lost.append(
            (t, 1 + int((step.totals[0] > here).sum()), None if bounded else float(kept.min() - here))
        )

    [[answer]] = beam_search(
        model,
        ids,
        state,
        mask,
        width=width,
        length=length,
        stop=(end,),
        ban=ban,
        penalty=penalty,
        watch=follow,
    )
    [tokens] = forced_log_probs(model, ids, [text], state, mask, end=end)
    score = sum(tokens) / length_normalizer(len(wanted), penalty)
    found = answer.finished and answer.ids == list(text)
    verdict = "found" if found else "search error" if score > answer.score else "model error"
    fell, rank, gap = lost[0] if lost and not found else (None, None, None)
    return SearchReport(verdict, sum(tokens), score, answer, fell, rank, gap, tokens)

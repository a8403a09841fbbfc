"""A mixture of experts: the router sends each token to a few of many feed-forward networks."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused.dispatch import fused_enabled
from seqloom.nn import layer
from seqloom.nn.basic import FFN, FeedForward
from seqloom.nn.layer import Factory, Point, Points, record, require


class Experts(FFN):
    """y = Σᵢ gᵢ Eᵢ(x) over the `top_k` largest sᵢ,   g = softmax over those,   s = W_g x   [I7, L5]

    With top_k = 1 that softmax would be 1 for every s, and W_g would not learn: then gᵢ = softmax(s)ᵢ over
    all experts (Fedus et al.).
    balance: in training, adds the loss  balance · n Σᵢ fᵢ Pᵢ,  fᵢ the fraction of choices that fall on expert
    i, Pᵢ the mean of softmax(s)ᵢ over the tokens of one call, that is, of a micro-batch; it equals `balance`
    if all experts are used equally.
    noisy: in training, s + ε ⊙ softplus(W_n x), ε ~ N(0, 1) (Shazeer et al.).
    capacity: in training, an expert takes at most ⌈capacity · top_k · tokens / n⌉ choices, first choices
    before second ones, earlier tokens before later ones. A choice beyond that contributes 0, so the token
    passes by the residual path; a token's output then depends on the other tokens of the batch, later ones
    included. In evaluation nothing is dropped. Padding is not routed and gives 0.
    """

    points: ClassVar[Points] = {"scores": Point("s", "NE"), "gates": Point("g", "NK"), "": Point("y", "BTD")}

    def __init__(
        self,
        size: int,
        experts: int = 8,
        top_k: int = 2,
        expert: Factory[FFN] = FeedForward,
        balance: float = 0.01,
        noisy: bool = False,
        capacity: float | None = None,
    ):
        super().__init__()
        require(
            0 < top_k <= experts,
            f"a token cannot choose {top_k} of {experts} experts: top_k must be at least 1 and at most experts",
        )
        require(
            capacity is None or capacity > 0,
            f"an expert needs a capacity above 0, not {capacity}; leave it out to drop nothing",
        )
        self.top_k = top_k
        self.balance = balance
        self.capacity = capacity
        self.experts = nn.ModuleList(expert(size) for _ in range(experts))
        self.router = nn.Linear(size, experts, bias=False)
        self.noise = nn.Linear(size, experts, bias=False) if noisy else None
        nn.init.normal_(self.router.weight, std=0.02)  # near 0, so that all experts start equal
        if self.noise is not None:
            nn.init.zeros_(self.noise.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        tokens = x.flatten(0, -2) if mask is None else x[mask]  # (N, D)
        gates, expert_ids = self.route(tokens)
        if fused_enabled():
            y = self.grouped_by_expert(tokens, gates, expert_ids)
        else:
            y = self.expert_loop(tokens, gates, expert_ids)
        if mask is None:
            return record(self, "", y.view(x.shape))
        return record(self, "", torch.zeros_like(x, dtype=y.dtype).masked_scatter(mask[..., None], y))

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The gates and the ids of the chosen experts, (N, top_k) each; the gate of a choice beyond the
        capacity is 0.
        """
        scores = record(self, "scores", self.router(tokens))  # (N, n)
        if self.noise is not None and self.training:
            scores = scores + torch.randn_like(scores) * F.softplus(self.noise(tokens))
        best, expert_ids = scores.topk(self.top_k, -1)
        if self.training and self.balance and layer.collecting_losses():
            layer.add_aux_loss(self.balance * load_balance_loss(scores, expert_ids))
        gates = best.softmax(-1) if self.top_k > 1 else (best - scores.logsumexp(-1, keepdim=True)).exp()
        if self.training and self.capacity is not None:
            gates = gates * self.within_capacity(expert_ids, self.capacity)
        return record(self, "gates", gates), expert_ids

    def within_capacity(self, expert_ids: Tensor, capacity: float) -> Tensor:
        """Whether each choice (N, top_k) is within the capacity of its expert."""
        count = len(self.experts)
        queue = expert_ids.T.flatten()  # all first choices, then all second ones
        limit = math.ceil(capacity * len(queue) / count)
        rank = (
            F.one_hot(queue, count).cumsum(0).gather(1, queue[:, None])[:, 0]
        )  # from 1, among its expert's choices
        return (rank <= limit).view(self.top_k, -1).T

    def expert_loop(self, tokens: Tensor, gates: Tensor, expert_ids: Tensor) -> Tensor:
        """The plain form: runs each expert on the tokens that chose it.

        Meta tensors have sizes but no values: there the choices are spread evenly over the experts.
        """
        y = torch.zeros_like(tokens)
        count = len(self.experts)
        num_used = min(expert_ids.numel(), count) if expert_ids.is_meta else count
        for index, expert in enumerate(self.experts[:num_used]):
            gate = torch.where(expert_ids == index, gates, 0).sum(-1)  # (N,)
            chose_expert = ((expert_ids == index) & (gates > 0)).any(-1)
            if chose_expert.is_meta:
                rows = chose_expert.new_ones(
                    (expert_ids.numel() + count - 1 - index) // count, dtype=torch.long
                )
            else:
                rows = chose_expert.nonzero()[:, 0]
            outputs = gate[rows, None] * expert(tokens[rows][None])[0]
            y = y + torch.zeros_like(tokens).index_copy(0, rows, outputs)
        return y

    def grouped_by_expert(self, tokens: Tensor, gates: Tensor, expert_ids: Tensor) -> Tensor:
        """The fast form: sorts the choices by expert, so that each expert reads one slice, and adds the
        outputs to their tokens. In training an expert without tokens reads an empty slice, so that every
        parameter has a gradient in every process.
        """
        gates = gates.flatten()  # (N · top_k,)
        expert_ids = expert_ids.flatten()
        order = expert_ids.argsort(stable=True)
        if self.training and self.capacity is not None:
            order = order[gates.index_select(0, order) > 0]
        rows = order // self.top_k  # the token of each choice
        counts = torch.bincount(expert_ids[order], minlength=len(self.experts)).tolist()
        slices = tokens.index_select(0, rows).split(counts)
        run_all = self.training or not len(rows)
        outputs = [
            expert(expert_tokens[None]).squeeze(0)
            for expert, expert_tokens in zip(self.experts, slices, strict=True)
            if run_all or len(expert_tokens)
        ]
        y = torch.cat(outputs) * gates.index_select(0, order)[:, None]
        return torch.zeros_like(tokens, dtype=y.dtype).index_add(0, rows, y)


def load_balance_loss(scores: Tensor, expert_ids: Tensor) -> Tensor:
    """n Σᵢ fᵢ Pᵢ: 1 if all experts are used equally, n if one takes every token, 0 without tokens."""
    count = scores.shape[-1]
    fractions = torch.bincount(expert_ids.flatten(), minlength=count) / max(1, expert_ids.numel())  # f
    return count * (fractions * scores.softmax(-1).sum(0)).sum() / max(1, len(scores))

"""A mixture of experts: each token uses a few of many feed-forward networks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused.dispatch import fused_enabled
from seqloom.nn import layer
from seqloom.nn.feedforward import FFN, FeedForward
from seqloom.nn.layer import Factory, require


class Experts(FFN):
    """y = Σᵢ gᵢ Eᵢ(x) over the `top_k` largest sᵢ,   g = softmax over those,   s = W_g x   [I7, L5]

    With top_k = 1 that softmax would be 1 whatever s is, and W_g would not learn: there gᵢ = softmax(s)ᵢ over all experts (Fedus et al.).
    balance: the loss  balance · n Σᵢ fᵢ Pᵢ  while training, fᵢ the share of choices that fall on expert i, Pᵢ the mean of softmax(s)ᵢ over
    the tokens; it is 1 · balance where all experts are used alike. It is taken over the tokens of one call, so over a micro-batch.
    noisy: s + ε ⊙ softplus(W_n x), ε ~ N(0, 1), while training (Shazeer et al.).
    capacity: while training an expert takes at most ⌈capacity · top_k · tokens / n⌉ choices, first choices before second ones, earlier
    tokens before later ones; a choice beyond that gives 0, which leaves the token to the residual path. A token's output then depends on
    the other tokens of the batch, later ones too; in use nothing is dropped. Padding has no choices and gives 0.
    """

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
        self.top_k, self.balance, self.capacity = top_k, balance, capacity
        self.experts = nn.ModuleList(expert(size) for _ in range(experts))
        self.router = nn.Linear(size, experts, bias=False)
        self.noise = nn.Linear(size, experts, bias=False) if noisy else None
        nn.init.normal_(self.router.weight, std=0.02)  # near 0, all experts begin alike
        if noisy:
            nn.init.zeros_(self.noise.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        tokens = x.flatten(0, -2) if mask is None else x[mask]  # (N, D)
        gates, chosen = self.route(tokens)
        y = (self.grouped_by_expert if fused_enabled() else self.expert_loop)(tokens, gates, chosen)
        return (
            y.view(x.shape)
            if mask is None
            else torch.zeros_like(x, dtype=y.dtype).masked_scatter(mask[..., None], y)
        )

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The gates and the numbers of the chosen experts, (N, top_k) each; the gate of a choice beyond the capacity is 0."""
        scores = self.router(tokens)  # (N, n)
        if self.noise is not None and self.training:
            scores = scores + torch.randn_like(scores) * F.softplus(self.noise(tokens))
        best, chosen = scores.topk(self.top_k, -1)
        if self.training and self.balance and layer.collecting_losses():
            layer.add_aux_loss(self.balance * load_balance_loss(scores, chosen))
        gates = best.softmax(-1) if self.top_k > 1 else (best - scores.logsumexp(-1, keepdim=True)).exp()
        if self.training and self.capacity is not None:
            gates = gates * self.within_capacity(chosen)
        return gates, chosen

    def within_capacity(self, chosen: Tensor) -> Tensor:
        """Which choices (N, top_k) stand within the capacity of their expert."""
        count, queue = len(self.experts), chosen.T.flatten()  # all first choices, then all second ones
        room = math.ceil(self.capacity * len(queue) / count)
        place = (
            F.one_hot(queue, count).cumsum(0).gather(1, queue[:, None])[:, 0]
        )  # from 1, in each expert's queue
        return (place <= room).view(self.top_k, -1).T

    def expert_loop(self, tokens: Tensor, gates: Tensor, chosen: Tensor) -> Tensor:
        """Expert by expert: those that chose it."""
        y = 0
        used = (
            min(chosen.numel(), len(self.experts)) if chosen.is_meta else None
        )  # sizes without numbers: all experts have their share, if any
        for number, expert in enumerate(self.experts[:used]):
            share = torch.where(chosen == number, gates, 0).sum(-1)  # (N,)
            rows = ((chosen == number) & (gates > 0)).any(-1)
            if rows.is_meta:
                rows = rows.new_ones(
                    (chosen.numel() + len(self.experts) - 1 - number) // len(self.experts), dtype=torch.long
                )
            else:
                rows = rows.nonzero()[:, 0]
            y = y + torch.zeros_like(tokens).index_copy(
                0, rows, share[rows, None] * expert(tokens[rows][None])[0]
            )
        return y

    def grouped_by_expert(self, tokens: Tensor, gates: Tensor, chosen: Tensor) -> Tensor:
        """All choices in the order of their experts, so that each expert reads one slice; then back to their tokens. An expert without
        a token reads an empty slice while training: every parameter has a gradient in every process."""
        gates, chosen = gates.flatten(), chosen.flatten()  # (N · top,)
        order = chosen.argsort(stable=True)
        if self.training and self.capacity is not None:
            order = order[gates.index_select(0, order) > 0]
        rows = order // self.top_k  # the token of each choice
        counts = torch.bincount(chosen[order], minlength=len(self.experts)).tolist()
        pieces = tokens.index_select(0, rows).split(counts)
        every = self.training or not len(rows)
        outputs = [
            expert(piece[None]).squeeze(0)
            for expert, piece in zip(self.experts, pieces, strict=True)
            if every or len(piece)
        ]
        y = torch.cat(outputs) * gates.index_select(0, order)[:, None]
        return torch.zeros_like(tokens, dtype=y.dtype).index_add(0, rows, y)


def load_balance_loss(scores: Tensor, chosen: Tensor) -> Tensor:
    """n Σᵢ fᵢ Pᵢ: 1 where every expert has its share, n where one has everything. No token, no load: 0."""
    count = scores.shape[-1]
    share = torch.bincount(chosen.flatten(), minlength=count) / max(1, chosen.numel())  # f
    return count * (share * scores.softmax(-1).sum(0)).sum() / max(1, len(scores))

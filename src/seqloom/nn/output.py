"""Output layers: logits over the vocabulary and the negative log-likelihood of given tokens; the adaptive softmax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused import cross_entropy as fused
from seqloom.fused.linear import linear
from seqloom.nn.basic import LayerNorm, Norm
from seqloom.nn.embedding import Embedding
from seqloom.nn.feedforward import ACTIVATIONS, Activation
from seqloom.nn.layer import Factory, require


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """ℓ = (1 - ε) (-ln P(w)) + ε mean_v (-ln P(v)) for each target w   [E3], and the part without ε: (…, V), (…) → (…), (…).

    The second takes no gradient where ε is above 0."""
    result = fused.cross_entropy(logits, targets, smoothing)
    if result is not None:
        return result
    log_p = logits.log_softmax(-1)
    nats = -log_p.gather(-1, targets[..., None])[..., 0]
    return (
        (nats, nats)
        if not smoothing
        else ((1 - smoothing) * nats - smoothing * log_p.mean(-1), nats.detach())
    )


def to_float32(logits: Tensor) -> Tensor:
    """Casts float16 and bfloat16 to float32."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


class OutputLayer(nn.Module):
    """Output layer: `forward` gives the logits of every word, `nll` the negative log-likelihood of given words."""

    vocabulary: int

    def forward(self, h: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        raise NotImplementedError

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        """-ln P(w) for each target w: (…, D), (…) → (…)."""
        return cross_entropy(to_float32(self(h)), targets)[0]

    def smoothed_nll(self, h: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """ℓ = (1 - ε) (-ln P(w)) + ε mean_v (-ln P(v)) for each target w, and the part without ε."""
        if not smoothing:
            nats = self.nll(h, targets)
            return nats, nats
        return cross_entropy(to_float32(self(h)), targets, smoothing)


class Output(OutputLayer):
    """logits = E h   with E the embedding's own table where `tied` is given [E5, D-20], else logits = W h + b with a matrix of its own.

    `bias` says otherwise: a tied output with b, or one of its own without; `head` is a part that h passes first.
    """

    def __init__(
        self,
        size: int,
        vocabulary: int,
        tied: Embedding | None = None,
        bias: bool | None = None,
        head: Factory[HeadTransform] | None = None,
    ):
        super().__init__()
        own = None if tied is not None else torch.randn(vocabulary, size) * 0.02
        require(tied is None or tied.table.shape[1] == size, "a tied output needs the embedding's size")
        self.head = None if head is None else head(size)
        self.vocabulary = vocabulary
        self.table = tied.table if own is None else nn.Parameter(own)
        self.bias = (
            None
            if not (bias if bias is not None else own is not None)
            else nn.Parameter(torch.zeros(vocabulary))
        )

    def forward(self, h: Tensor) -> Tensor:
        return linear(h if self.head is None else self.head(h), self.table, self.bias)  # (…, V)


class HeadTransform(nn.Module):
    """h' = norm(f(W h + b)): what BERT puts before its output layer."""

    def __init__(self, size: int, activation: Activation = "gelu", norm: Factory[Norm] = LayerNorm):
        super().__init__()
        self.dense, self.norm, self.activation = nn.Linear(size, size), norm(size), activation

    def forward(self, h: Tensor) -> Tensor:
        return self.norm(ACTIVATIONS[self.activation](self.dense(h)))


class AdaptiveSoftmax(OutputLayer):
    """P(w) = softmax(W₀ h)[w] for a frequent w,   P(w) = softmax(W₀ h)[g] softmax(W_g U_g h)[w] for a w of group g   [E2, E5]

    (Grave et al.) Ids are ordered by frequency, as tokenizers of words give them, and nearly so those of subwords: ids below the first of `cutoffs`
    are frequent, each further cutoff ends a group. U_g h has D / shrinkᵍ numbers. Tied, W₀ and W_g are the embedding's own rows, and
    there is no U. A likelihood computes only the groups that its words are in; `forward` gives ln P of every word.
    """

    def __init__(
        self,
        size: int,
        vocabulary: int,
        tied: Embedding | None = None,
        cutoffs: tuple[int, ...] | None = None,
        shrink: float = 4.0,
    ):
        super().__init__()
        cutoffs = (
            tuple(cutoffs) if cutoffs is not None else (max(1, vocabulary // 16), max(2, vocabulary // 4))
        )
        inside = all(a < b for a, b in zip((0, *cutoffs), (*cutoffs, vocabulary), strict=True))
        require(
            len(cutoffs) > 0 and inside,
            f"cutoffs {list(cutoffs)} must grow from above 0 to below the vocabulary of {vocabulary}",
        )
        require(tied is None or tied.table.shape[1] == size, "a tied output needs the embedding's size")
        require(shrink >= 1, f"rare words are given a smaller size, so shrink is at least 1, not {shrink}")
        self.vocabulary, self.cutoffs = vocabulary, cutoffs
        self.cluster_sizes = [
            b - a for a, b in zip((0, *cutoffs), (*cutoffs, vocabulary), strict=True)
        ]  # ids that are frequent, in group 1, 2, …
        self.groups = nn.Parameter(torch.randn(len(cutoffs), size) * 0.02)
        self.table, self.common, self.tails = None if tied is None else tied.table, None, None
        if tied is None:
            self.common = nn.Parameter(torch.randn(self.cluster_sizes[0], size) * 0.02)
            widths = [max(1, int(size // shrink ** (number + 1))) for number in range(len(cutoffs))]
            self.tails = nn.ModuleList(
                nn.Sequential(nn.Linear(size, width, bias=False), nn.Linear(width, span, bias=False))
                for width, span in zip(widths, self.cluster_sizes[1:], strict=True)
            )

    def cluster_logits(self, h: Tensor) -> tuple[Tensor, list[Callable[[Tensor], Tensor]]]:
        """The logits (…, c + G) of the frequent words and the groups, and what makes the logits of each group's words."""
        if self.table is None:
            common, rare = self.common, list(self.tails)
        else:
            common, *rows = self.table.split(self.cluster_sizes)
            rare = [partial(F.linear, weight=weight) for weight in rows]
        return to_float32(torch.cat([F.linear(h, common), F.linear(h, self.groups)], -1)), rare

    def forward(self, h: Tensor) -> Tensor:
        head, rare = self.cluster_logits(h)
        head, *chosen = head.log_softmax(-1).split([self.cluster_sizes[0], *[1] * len(rare)], -1)
        tails = [
            chance + to_float32(logits(h)).log_softmax(-1)
            for chance, logits in zip(chosen, rare, strict=True)
        ]
        return torch.cat([head, *tails], -1)  # (…, V)

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        shape, h, targets = targets.shape, h.reshape(-1, h.shape[-1]), targets.reshape(-1)
        head, rare = self.cluster_logits(h)
        cuts = torch.tensor(self.cutoffs, device=targets.device)
        group = torch.bucketize(targets, cuts, right=True)  # 0 for the frequent
        place = torch.where(group > 0, self.cluster_sizes[0] + group - 1, targets)
        losses = cross_entropy(head, place)[0]
        for number, logits in enumerate(rare):
            rows = (group == number + 1).nonzero()[:, 0]
            if len(rows) or self.training:  # every parameter has a gradient in every process
                own = targets[rows] - self.cutoffs[number]
                losses = losses.index_add(0, rows, cross_entropy(to_float32(logits(h[rows])), own)[0])
        return losses.view(shape)

    def smoothed_nll(self, h: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        require(
            not smoothing,
            "an adaptive output computes a few words at a time, so it has no label smoothing: say objective.smoothing=0",
        )
        return super().smoothed_nll(h, targets)

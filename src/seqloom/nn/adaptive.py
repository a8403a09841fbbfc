"""The adaptive softmax: frequent words at once, rare ones by groups, each only where it is needed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.embedding import Embedding, Readout, single
from seqloom.nn.layer import need


class AdaptiveOutput(Readout):
    """P(w) = softmax(W₀ h)[w] for a frequent w,   P(w) = softmax(W₀ h)[g] softmax(Wᵍ Uᵍ h)[w] for one of group g   [E2]

    (Grave et al.) Ids are ordered by frequency, as tokenizers give them: those below the first of `cutoffs` are frequent, each further cutoff ends
    a group. The size of Uᵍ h is D / shrinkᵍ. Tied, W₀ and Wᵍ are the embedding's own rows, and there is no U. A likelihood computes only the
    groups that its words are in; `forward` gives ln P of every word.
    """

    def __init__(
        self, size: int, vocabulary: int, tied: Embedding | None = None, cutoffs: tuple[int, ...] | None = None, shrink: float = 4.0
    ):
        super().__init__()
        cutoffs = tuple(cutoffs) if cutoffs is not None else (max(1, vocabulary // 16), max(2, vocabulary // 4))
        inside = all(a < b for a, b in zip((0, *cutoffs), (*cutoffs, vocabulary), strict=True))
        need(len(cutoffs) > 0 and inside, f"cutoffs {list(cutoffs)} must grow from above 0 to below the vocabulary of {vocabulary}")
        need(tied is None or tied.table.shape[1] == size, "a tied output needs the embedding's size")
        need(shrink >= 1, f"rare words are given a smaller size, so shrink is at least 1, not {shrink}")
        self.vocabulary, self.ends = vocabulary, [*cutoffs, vocabulary]
        self.groups = nn.Parameter(torch.randn(len(cutoffs), size) * 0.02)
        self.table = None if tied is None else tied.table
        self.common = None if tied is not None else nn.Parameter(torch.randn(cutoffs[0], size) * 0.02)
        self.tails = None
        if tied is None:
            spans = [b - a for a, b in zip(self.ends[:-1], self.ends[1:], strict=True)]
            widths = [max(1, int(size // shrink ** (number + 1))) for number in range(len(spans))]
            self.tails = nn.ModuleList(
                nn.Sequential(nn.Linear(size, width, bias=False), nn.Linear(width, span, bias=False))
                for width, span in zip(widths, spans, strict=True)
            )

    def frequent(self, h: Tensor) -> Tensor:
        """ln P of the frequent words and of the groups: (N, c + G)."""
        head = self.table[: self.ends[0]] if self.common is None else self.common
        return single(F.linear(h, torch.cat([head, self.groups]))).log_softmax(-1)

    def rare(self, h: Tensor, group: int) -> Tensor:
        """ln P of the words of a group, given the group: (N, n)."""
        logits = F.linear(h, self.table[self.ends[group] : self.ends[group + 1]]) if self.tails is None else self.tails[group](h)
        return single(logits).log_softmax(-1)

    def forward(self, h: Tensor) -> Tensor:
        head = self.frequent(h)
        first = self.ends[0]
        tails = [head[..., first + g, None] + self.rare(h, g) for g in range(len(self.groups))]
        return torch.cat([head[..., :first], *tails], -1)  # (…, V)

    def nats(self, h: Tensor, targets: Tensor) -> Tensor:
        shape, h, targets = targets.shape, h.reshape(-1, h.shape[-1]), targets.reshape(-1)
        group = torch.bucketize(targets, torch.tensor(self.ends[:-1], device=targets.device), right=True)  # 0 for the frequent
        place = torch.where(group > 0, self.ends[0] + group - 1, targets)
        losses = -self.frequent(h).gather(1, place[:, None])[:, 0]
        for number in range(len(self.groups)):
            rows = (group == number + 1).nonzero()[:, 0]
            if len(rows) or self.training:  # every parameter has a gradient in every process
                own = (targets[rows] - self.ends[number])[:, None]
                losses = losses.index_add(0, rows, -self.rare(h[rows], number).gather(1, own)[:, 0])
        return losses.view(shape)

    def losses(self, h: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        need(not smoothing, "an adaptive output computes a few words at a time, so it has no label smoothing: say objective.smoothing=0")
        return super().losses(h, targets)

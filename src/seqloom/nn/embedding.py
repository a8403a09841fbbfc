"""From ids to vectors and from vectors to logits: embeddings, and output layers with the negative log-likelihood of target tokens; the
adaptive softmax. Both may share one table."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused import linear as fused
from seqloom.nn.basic import ACTIVATIONS, Activation, LayerNorm, Norm
from seqloom.nn.layer import Factory, HasPoints, Point, Points, record, require


class Embedding(HasPoints):
    """x = W_e one-hot(s), which is row s of the table   [A2]. `scale` multiplies by √D (Vaswani et al.).

    `vectors` names word vectors from which training initialises the rows, matched by word; `frozen` keeps the table
    fixed.
    """

    points: ClassVar[Points] = {"": Point("x", "BTD")}
    needs_full_sequence = False  # whether a token's vector depends on the tokens before it

    def __init__(
        self, vocabulary: int, dim: int, scale: bool = False, vectors: str | None = None, frozen: bool = False
    ):
        super().__init__()
        require(
            not frozen or vectors is not None,
            "a frozen embedding needs vectors to start from: set vectors: FOLDER, or leave frozen out",
        )
        require(
            vocabulary > 0 and dim > 0,
            f"an embedding needs a vocabulary and a size, not {vocabulary} × {dim}",
        )
        self.table = nn.Parameter(torch.randn(vocabulary, dim) * (dim**-0.5 if scale else 0.02))
        self.table.requires_grad_(not frozen)
        self.factor = math.sqrt(dim) if scale else 1.0
        self.vectors = vectors

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` (B, T) is for subclasses whose vectors depend on other tokens."""
        return record(self, "", self.look_up(ids))

    def look_up(self, ids: Tensor) -> Tensor:
        """The rows of the table."""
        x = F.embedding(ids, self.table)
        return x * self.factor if self.factor != 1 else x


class SegmentEmbedding(Embedding):
    """x = W_e one-hot(s) + S one-hot(g),   g = how many of the tokens before it are the `separator`, at most `segments` - 1 (BERT)

    The first text and its separator are segment 0, the rest is segment 1. It needs the full sequence in one call, so
    it is for encoders.
    """

    needs_full_sequence = True

    def __init__(self, vocabulary: int, dim: int, scale: bool = False, segments: int = 2, separator: int = 3):
        super().__init__(vocabulary, dim, scale)
        require(segments > 0, f"an embedding needs at least one segment, not {segments}")
        self.segments = nn.Parameter(torch.randn(segments, dim) * 0.02)
        self.separator = separator

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        ends = (ids == self.separator) if mask is None else (ids == self.separator) & mask
        ends = ends.long()
        segment = (ends.cumsum(1) - ends).clamp(max=len(self.segments) - 1)  # (B, T)
        return record(self, "", self.look_up(ids) + F.embedding(segment, self.segments))


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """ℓ = (1 - ε) (-ln P(w)) + ε mean_v (-ln P(v)) for each target w   [E3], and -ln P(w)

    (…, V), (…) → (…), (…). The second result has no gradient if ε > 0.
    """
    result = fused.cross_entropy(logits, targets, smoothing)
    if result is not None:
        return result
    log_p = logits.log_softmax(-1)
    nll = -log_p.gather(-1, targets[..., None])[..., 0]
    if not smoothing:
        return nll, nll
    return (1 - smoothing) * nll - smoothing * log_p.mean(-1), nll.detach()


def to_float32(logits: Tensor) -> Tensor:
    """Casts float16 and bfloat16 to float32."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


class OutputLayer(HasPoints):
    """Output layer: `forward` gives the logits of every word, `nll` the negative log-likelihood of target
    words.
    """

    points: ClassVar[Points] = {"": Point("logits", "BTW")}
    vocabulary: int

    def forward(self, h: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        raise NotImplementedError

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        """-ln P(w) for each target w: (…, D), (…) → (…)."""
        return cross_entropy(to_float32(self(h)), targets)[0]

    def smoothed_nll(self, h: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """ℓ = (1 - ε) (-ln P(w)) + ε mean_v (-ln P(v)) for each target w, and -ln P(w)."""
        if not smoothing:
            nll = self.nll(h, targets)
            return nll, nll
        return cross_entropy(to_float32(self(h)), targets, smoothing)


class Output(OutputLayer):
    """logits = E h   with E the table of the `tied` embedding [E5, D-20]; without one, logits = W h + b

    `bias` overrides whether b is added; `head` is a part that transforms h first.
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
        table = nn.Parameter(torch.randn(vocabulary, size) * 0.02) if tied is None else tied.table
        require(tied is None or tied.table.shape[1] == size, "a tied output needs the embedding's size")
        self.head = None if head is None else head(size)
        self.vocabulary = vocabulary
        self.table = table
        has_bias = tied is None if bias is None else bias
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if has_bias else None

    def forward(self, h: Tensor) -> Tensor:
        h = h if self.head is None else self.head(h)
        return record(self, "", fused.linear(h, self.table, self.bias))  # (…, V)


class HeadTransform(nn.Module):
    """h' = norm(f(W h + b)): BERT's transform before the output layer."""

    def __init__(self, size: int, activation: Activation = "gelu", norm: Factory[Norm] = LayerNorm):
        super().__init__()
        self.dense = nn.Linear(size, size)
        self.norm = norm(size)
        self.activation = activation

    def forward(self, h: Tensor) -> Tensor:
        return self.norm(ACTIVATIONS[self.activation](self.dense(h)))


class AdaptiveSoftmax(OutputLayer):
    """P(w) = softmax(W₀ h)[w] for a frequent w,
    P(w) = softmax(W₀ h)[g] softmax(W_g U_g h)[w] for w in group g   [E2, E5]

    (Grave et al.) Ids must be ordered by frequency, as word tokenizers number them, and subword tokenizers
    nearly do. Ids below the first of `cutoffs` are frequent; each further cutoff ends a group. U_g h has size
    D / shrinkᵍ. With a tied embedding W₀ and W_g are rows of its table, and there is no U. `nll` computes
    only the groups that contain its targets; `forward` gives ln P of every word.
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
        if cutoffs is None:
            cutoffs = (max(1, vocabulary // 16), max(2, vocabulary // 4))
        cutoffs = tuple(cutoffs)
        # the number of frequent ids, of ids in group 1, 2, …
        cluster_sizes = [b - a for a, b in zip((0, *cutoffs), (*cutoffs, vocabulary), strict=True)]
        require(
            len(cutoffs) > 0 and min(cluster_sizes) > 0,
            f"cutoffs {list(cutoffs)} must grow from above 0 to below the vocabulary of {vocabulary}",
        )
        require(tied is None or tied.table.shape[1] == size, "a tied output needs the embedding's size")
        require(shrink >= 1, f"shrink divides the size of rare words and must be at least 1, not {shrink}")
        self.vocabulary = vocabulary
        self.cutoffs = cutoffs
        self.cluster_sizes = cluster_sizes
        self.groups = nn.Parameter(torch.randn(len(cutoffs), size) * 0.02)
        self.table = None if tied is None else tied.table
        if tied is None:  # W₀ without its group rows, and U_g and W_g of each group
            self.common = nn.Parameter(torch.randn(cluster_sizes[0], size) * 0.02)
            widths = [max(1, int(size // shrink**group)) for group in range(1, len(cutoffs) + 1)]
            self.tails = nn.ModuleList(
                nn.Sequential(nn.Linear(size, width, bias=False), nn.Linear(width, words, bias=False))
                for width, words in zip(widths, cluster_sizes[1:], strict=True)
            )

    def cluster_logits(self, h: Tensor) -> tuple[Tensor, list[Callable[[Tensor], Tensor]]]:
        """The logits (…, c + G) of the c frequent words and the G groups, and for each group the layer that
        computes the logits of its words.
        """
        common: Tensor
        tail_layers: list[Callable[[Tensor], Tensor]]
        if self.table is None:
            common = self.common
            tail_layers = [*self.tails]
        else:
            common, *tables = self.table.split(self.cluster_sizes)
            tail_layers = [partial(F.linear, weight=table) for table in tables]
        head = torch.cat([F.linear(h, common), F.linear(h, self.groups)], -1)
        return to_float32(head), tail_layers

    def forward(self, h: Tensor) -> Tensor:
        head, tail_layers = self.cluster_logits(h)
        widths = [self.cluster_sizes[0], *[1] * len(tail_layers)]
        common_log_p, *group_log_p = head.log_softmax(-1).split(widths, -1)
        tails = [
            log_p + to_float32(tail(h)).log_softmax(-1)
            for log_p, tail in zip(group_log_p, tail_layers, strict=True)
        ]
        return record(self, "", torch.cat([common_log_p, *tails], -1))  # (…, V)

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        shape = targets.shape
        h = h.reshape(-1, h.shape[-1])
        targets = targets.reshape(-1)
        head, tail_layers = self.cluster_logits(h)
        cutoffs = torch.tensor(self.cutoffs, device=targets.device)
        group = torch.bucketize(targets, cutoffs, right=True)  # 0 for frequent words
        head_targets = torch.where(group > 0, self.cluster_sizes[0] + group - 1, targets)
        losses = cross_entropy(head, head_targets)[0]
        for index, tail in enumerate(tail_layers):
            rows = (group == index + 1).nonzero()[:, 0]
            if len(rows) or self.training:  # in training every parameter has a gradient in every process
                tail_targets = targets[rows] - self.cutoffs[index]
                tail_losses = cross_entropy(to_float32(tail(h[rows])), tail_targets)[0]
                losses = losses.index_add(0, rows, tail_losses)
        return losses.view(shape)

    def smoothed_nll(self, h: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        require(
            not smoothing,
            "AdaptiveSoftmax does not compute all words and has no label smoothing: set objective.smoothing=0",
        )
        return super().smoothed_nll(h, targets)

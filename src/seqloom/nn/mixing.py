"""Mixing layers: a sentence of at most `length` tokens is one matrix, and a network reads all of it, its rows or its
columns [C1-C4].

A shorter sentence is padded with zeros. A network over the features of one token takes any length; one over tokens is
built for one length and refuses a longer sentence [C5]. Only the former is causal.
"""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.basic import FFN, Dropout, FeedForward, LayerNorm, Norm
from seqloom.nn.layer import (
    Factory,
    HasPoints,
    Layer,
    Memory,
    Point,
    Points,
    gather_steps,
    left_align,
    real_lengths,
    record,
    require,
)


class MixFeatures(Layer):
    """yₜ = f(xₜ):   tokens stacked, (n, p), so f: p → p mixes the features of each token   [C2]. Takes any length."""

    def __init__(self, size: int, network: Factory[FFN] = FeedForward):
        super().__init__()
        self.dim = size
        self.network = network(size)

    def start(self, batch: int, memory: Memory | None = None) -> None:
        return None

    def forward(self, x: Tensor, state: None = None, mask: Tensor | None = None) -> tuple[Tensor, None]:
        return self.network(x, mask), None


class FixedLengthLayer(Layer):
    """A layer over exactly `length` positions: `mix` maps (B, n, D) → (B, n, D)."""

    causal = False

    def __init__(self, size: int, length: int):
        super().__init__()
        require(length > 0, f"mixing over tokens needs a length of at least 1, not {length}")
        self.dim = size
        self.length = length
        self.context = length

    def start(self, batch: int, memory: Memory | None = None) -> None:
        return None

    def mix(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, state: None = None, mask: Tensor | None = None) -> tuple[Tensor, None]:
        total = x.shape[1]
        x, mask, order = left_align(x, mask)
        max_len = total if mask is None or not len(mask) else int(real_lengths(mask).max())
        require(
            max_len <= self.length,
            f"{type(self).__name__} takes sentences of at most {self.length} tokens, and this one has {max_len}: "
            "shorten it, train with a larger length, or use MixFeatures, a convolution, recurrence or attention, "
            "which take any length",
        )
        x = x if mask is None else x.masked_fill(~mask[..., None], 0)
        # (B, n, D); a negative amount removes padding
        y = self.mix(F.pad(x, (0, 0, 0, self.length - total)))
        return gather_steps(F.pad(y, (0, 0, 0, total - self.length)), order), None


class MixAll(FixedLengthLayer):
    """[y₁; …; y_n] = f([x₁; …; x_n]):   f: np → np mixes all features of all tokens   [C1]

    Refuses a longer sentence [C5].
    """

    def __init__(self, size: int, length: int, network: Factory[FFN] = FeedForward):
        super().__init__(size, length)
        self.network = network(length * size)

    def mix(self, x: Tensor) -> Tensor:
        return self.network(x.flatten(1)[:, None])[:, 0].view(x.shape)  # over (B, 1, n p)


class MixTokens(FixedLengthLayer):
    """Yᵀ = f(Xᵀ):   tokens stacked and transposed, (p, n), so f: n → n mixes one feature over all tokens   [C3]

    Refuses a longer sentence [C5].
    """

    def __init__(self, size: int, length: int, network: Factory[FFN] = FeedForward):
        super().__init__(size, length)
        self.network = network(length)

    def mix(self, x: Tensor) -> Tensor:
        return self.network(x.transpose(1, 2)).transpose(1, 2)  # over (B, p, n)


class MixerBlock(HasPoints):
    """X ← X + f(norm(X)ᵀ)ᵀ,   X ← X + g(norm(X)),   f: n → n,  g: p → p   [C4, L12]"""

    points: ClassVar[Points] = {"after_tokens": Point("X", "BTD"), "": Point("X", "BTD")}

    def __init__(
        self,
        size: int,
        length: int,
        tokens: Factory[FFN],
        features: Factory[FFN],
        norm: Factory[Norm],
        dropout: float,
    ):
        super().__init__()
        self.tokens = tokens(length)
        self.features = features(size)
        self.tokens_norm = norm(size)
        self.features_norm = norm(size)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.tokens(self.tokens_norm(x).transpose(1, 2)).transpose(1, 2))
        x = record(self, "after_tokens", x)
        return record(self, "", x + self.dropout(self.features(self.features_norm(x))))


class Mixer(FixedLengthLayer):
    """MLP-Mixer (Tolstikhin et al.): blocks that mix tokens, then features, and a final norm   [C4, L12]

    Tokens take the place of the paper's image patches.
    """

    def __init__(
        self,
        size: int,
        length: int,
        layers: int = 4,
        tokens: Factory[FFN] = FeedForward,
        features: Factory[FFN] = FeedForward,
        norm: Factory[Norm] = LayerNorm,
        dropout: float = 0.0,
    ):
        super().__init__(size, length)
        require(layers > 0, f"a Mixer needs at least one layer, not {layers}")
        self.blocks = nn.ModuleList(
            MixerBlock(size, length, tokens, features, norm, dropout) for _ in range(layers)
        )
        self.norm = norm(size)

    def mix(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

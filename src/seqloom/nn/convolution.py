"""Convolution over time, and the two arrangements of it that translate: ByteNet and ConvS2S.

Each row's real tokens are moved to the front, so that padding is never between two tokens of a kernel. Zeros precede
the first token and, if a layer is not causal, follow the last. Left out: strides and channel groups, which no model of
the lectures uses, and weight normalisation (ConvS2S), in place of which the initial weights keep the variance.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused.dispatch import fused_enabled
from seqloom.nn import mask as masks
from seqloom.nn.attention_core import attend
from seqloom.nn.basic import Dropout, LayerNorm, Norm
from seqloom.nn.layer import Factory, Layer, Memory, require
from seqloom.nn.mask import gather_steps, left_align
from seqloom.nn.position import NoPosition, Position, positions_after
from seqloom.nn.score import Dot, Score
from seqloom.nn.state import State


def count_seen(seen: Tensor, length: int, mask: Tensor | None) -> Tensor:
    """The number of real tokens of each row after this call."""
    return seen + (length if mask is None else masks.lengths(mask))


class Convolution(Layer):
    """y[t] = b + Σᵢ Wᵢ x[t - i d],   i = k-1 … 0:   k inputs, d apart, the last one at t   [L1]

    Causal, its state is the last (k-1) d inputs. Not causal, the kernel stands around t, i = (k-1)/2 … -(k-1)/2, and k is odd. The Wᵢ stand
    side by side in one matrix, so the fast form lays the k inputs side by side and makes one product.
    """

    def __init__(
        self,
        size: int,
        dim: int | None = None,
        kernel: int = 3,
        dilation: int = 1,
        causal: bool = True,
        bias: bool = True,
    ):
        super().__init__()
        require(
            kernel > 0 and dilation > 0,
            f"a convolution needs a kernel and a dilation of at least 1, not {kernel} and {dilation}",
        )
        require(
            causal or kernel % 2 == 1,
            f"a non-causal convolution needs an odd kernel, not {kernel}",
        )
        self.size, self.dim, self.causal = size, dim or size, causal
        self.kernel, self.dilation, self.reach = kernel, dilation, (kernel - 1) * dilation
        self.taps = nn.Linear(kernel * size, self.dim, bias)

    def start(self, batch: int, memory: Memory | None = None) -> Tensor | None:
        return self.taps.weight.new_zeros(batch, self.reach, self.size) if self.causal else None

    def forward(
        self, x: Tensor, state: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        x, mask, back = left_align(x, mask)
        y, state = self.convolve(x, state, mask)
        return gather_steps(y, back), state

    def convolve(self, x: Tensor, state: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`forward` for inputs that are padded on the right only."""
        length = x.shape[1]
        if self.causal:
            x = torch.cat([self.start(len(x)) if state is None else state, x], 1)  # (B, reach + T, size)
            state = x[:, length:] if mask is None else self.last_inputs(x, masks.lengths(mask))
        else:
            x = x if mask is None else x.masked_fill(~mask[..., None], 0)
            x = F.pad(x, (0, 0, self.reach // 2, self.reach // 2))
        views = [
            x[:, i * self.dilation : i * self.dilation + length] for i in range(self.kernel)
        ]  # each (B, T, size)
        if fused_enabled():
            return self.taps(torch.cat(views, -1)), state
        y = sum(
            F.linear(view, weight)
            for view, weight in zip(views, self.taps.weight.chunk(self.kernel, 1), strict=True)
        )
        return y if self.taps.bias is None else y + self.taps.bias, state

    def last_inputs(self, x: Tensor, count: Tensor) -> Tensor:
        """The last inputs up to each row's last real token."""
        return gather_steps(x, count[:, None] + torch.arange(self.reach, device=x.device))


class ByteNetBlock(nn.Module):
    """x ← x + W₂ r(norm(conv(r(norm(W₁ r(norm(x)))))))   with r = ReLU, W₁: D → D/2, a dilated convolution D/2 → D/2, W₂: D/2 → D   [L1]"""

    def __init__(
        self, size: int, kernel: int, dilation: int, causal: bool, norm: Factory[Norm], dropout: float
    ):
        super().__init__()
        inner = max(1, size // 2)
        self.norms = nn.ModuleList([norm(size), norm(inner), norm(inner)])
        self.in_proj = nn.Linear(size, inner)
        self.convolution = Convolution(inner, inner, kernel, dilation, causal)
        self.out_proj = nn.Linear(inner, size)
        self.dropout = Dropout(dropout)

    def convolve(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        h = self.in_proj(self.norms[0](x).relu())
        h, state = self.convolution.convolve(self.norms[1](h).relu(), state, mask)
        return x + self.dropout(self.out_proj(self.norms[2](h).relu())), state


class ByteNetState(NamedTuple):
    """What a ByteNet remembers: the memory (B, S + 1, D), its last row zeros; how many tokens each row has seen (B,); its blocks' states."""

    source: Tensor | None
    seen: Tensor | None
    blocks: tuple


class ByteNet(Layer):
    """`sets` times blocks of the given dilations (Kalchbrenner et al.); a last norm closes them   [L1]

    As a decoder it reads the memory unfolding: target position t reads the source's representation at t, xₜ + U mₜ, and 0 beyond the
    source's end. The source is not stretched to a longer one (the paper's a|s| + b is a = 1, b = 0), and the paper's last 1 × 1 products
    are the model's output layer.
    """

    def __init__(
        self,
        size: int,
        sets: int = 6,
        dilations: tuple[int, ...] = (1, 2, 4, 8, 16),
        kernel: int = 3,
        causal: bool = True,
        norm: Factory[Norm] = LayerNorm,
        dropout: float = 0.0,
        memory: int | None = None,
    ):
        super().__init__()
        require(
            sets > 0 and len(dilations) > 0,
            f"a ByteNet needs at least one block, not {sets} sets of {len(dilations)} dilations",
        )
        self.dim, self.causal = size, causal
        self.blocks = nn.ModuleList(
            ByteNetBlock(size, kernel, d, causal, norm, dropout) for _ in range(sets) for d in dilations
        )
        self.source_proj = nn.Linear(memory, size, bias=False) if memory else None
        self.norm = norm(size)
        with torch.no_grad():
            for block in self.blocks:
                block.out_proj.weight /= math.sqrt(
                    len(self.blocks)
                )  # the sum of all blocks is then as large as its input

    def start(self, batch: int, memory: Memory | None = None) -> ByteNetState:
        blocks = tuple(block.convolution.start(batch) for block in self.blocks)
        if self.source_proj is None:
            return ByteNetState(None, None, blocks)
        require(
            memory is not None,
            "a ByteNet decoder needs a memory: start it with the encoder's outputs",
        )
        values, mask, _ = left_align(self.source_proj(memory.values), memory.mask)
        values = values if mask is None else values.masked_fill(~mask[..., None], 0)
        return ByteNetState(
            F.pad(values, (0, 0, 0, 1)), torch.zeros(batch, dtype=torch.long, device=values.device), blocks
        )

    def forward(
        self, x: Tensor, state: ByteNetState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, ByteNetState]:
        source, seen, blocks = state or self.start(len(x))
        x, mask, back = left_align(x, mask)
        if source is not None:
            places = (seen[:, None] + torch.arange(x.shape[1], device=x.device)).clamp(
                max=source.shape[1] - 1
            )
            x, seen = x + gather_steps(source, places), count_seen(seen, x.shape[1], mask)
        after = []
        for block, before in zip(self.blocks, blocks, strict=True):
            x, now = block.convolve(x, before, mask)
            after.append(now)
        return gather_steps(self.norm(x), back), ByteNetState(source, seen, tuple(after))


class ConvS2SMemory(NamedTuple):
    """What ConvS2S keeps of the memory: keys (B, 1, S, E), the memory itself (B, 1, S, M), its mask, and √m for m source tokens (B, 1, 1)."""

    keys: Tensor
    values: Tensor
    visible: Tensor | None
    scale: Tensor


class GatedBlock(nn.Module):
    """u = a ⊙ σ(b),  [a; b] = conv(h);   h ← √½ (h + u)   [L4]

    With a memory it looks at it first: u ← √½ (u + W_c √m c),  c = Σⱼ αⱼ zⱼ,  α = softmaxⱼ s(W_d u + b_d + g, kⱼ),  where g is the target's
    embedding and m the number of source tokens.
    """

    def __init__(
        self,
        dim: int,
        kernel: int,
        causal: bool,
        width: int,
        memory: int | None,
        score: Factory[Score],
        dropout: float,
    ):
        super().__init__()
        self.convolution = Convolution(dim, 2 * dim, kernel, 1, causal)
        self.query = nn.Linear(dim, width) if memory else None
        self.context_proj = nn.Linear(memory, dim) if memory else None
        self.score = score(width) if memory else None
        self.dropout = Dropout(dropout)
        nn.init.normal_(
            self.convolution.taps.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * dim))
        )  # a gate halves, so b near 0 keeps the variance
        nn.init.zeros_(self.convolution.taps.bias)

    def convolve(
        self, h: Tensor, g: Tensor, source: ConvS2SMemory | None, state: State, mask: Tensor | None
    ) -> tuple[Tensor, State]:
        u, state = self.convolution.convolve(self.dropout(h), state, mask)
        u = F.glu(u, -1)
        if source is not None:
            c, _ = attend(
                (self.query(u) + g)[:, None], source.keys, source.values, self.score, source.visible
            )  # (B, 1, T, M)
            u = (u + self.context_proj(c[:, 0] * source.scale)) * math.sqrt(0.5)
        return (h + u) * math.sqrt(0.5), state


class ConvS2SState(NamedTuple):
    """What a ConvS2S remembers: how many tokens each row has seen (B,), the memory, the states of its blocks."""

    seen: Tensor
    source: ConvS2SMemory | None
    blocks: tuple


class ConvS2S(Layer):
    """Positions, a product to `dim`, `layers` gated blocks, a product back (Gehring et al.); with a memory every block looks at it   [L4]

    The keys of all blocks are the same, kⱼ = W_k zⱼ; the paper's score is q · k, made for embeddings as small as its own (0.1). Left out: the
    source's embeddings in the values, zⱼ + eⱼ, since a memory holds the encoder's outputs alone, on whose residual path eⱼ stands; and the
    smaller gradient that the paper gives the encoder.
    """

    def __init__(
        self,
        size: int,
        dim: int | None = None,
        layers: int = 4,
        kernel: int = 3,
        position: Factory[Position] = NoPosition,
        causal: bool = True,
        score: Factory[Score] = Dot,
        dropout: float = 0.0,
        memory: int | None = None,
    ):
        super().__init__()
        require(layers > 0, f"a ConvS2S needs at least one layer, not {layers}")
        self.position = position(size)
        width, dim = self.position.dim, dim or size
        self.dim, self.causal, self.context = size, causal, self.position.context
        self.in_proj, self.out_proj = nn.Linear(width, dim), nn.Linear(dim, size)
        self.key = nn.Linear(memory, width) if memory else None
        self.blocks = nn.ModuleList(
            GatedBlock(dim, kernel, causal, width, memory, score, dropout) for _ in range(layers)
        )
        self.dropout = Dropout(dropout)
        for part in (self.in_proj, self.out_proj):
            nn.init.normal_(part.weight, std=math.sqrt((1 - dropout) / part.in_features))
            nn.init.zeros_(part.bias)

    def start(self, batch: int, memory: Memory | None = None) -> ConvS2SState:
        seen = torch.zeros(batch, dtype=torch.long, device=self.in_proj.weight.device)
        blocks = tuple(block.convolution.start(batch) for block in self.blocks)
        if self.key is None:
            return ConvS2SState(seen, None, blocks)
        require(
            memory is not None,
            "a ConvS2S decoder needs a memory: start it with the encoder's outputs",
        )
        values, mask = memory
        count = seen + values.shape[1] if mask is None else masks.lengths(mask)
        scale = count.to(values.dtype).sqrt()[:, None, None]
        return ConvS2SState(
            seen,
            ConvS2SMemory(
                self.key(values)[:, None],
                values[:, None],
                None if mask is None else mask[:, None, None],
                scale,
            ),
            blocks,
        )

    def forward(
        self, x: Tensor, state: ConvS2SState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, ConvS2SState]:
        seen, source, blocks = state or self.start(len(x))
        x, mask, back = left_align(x, mask)
        batch, length, _ = x.shape
        g = self.dropout(self.position.embed(x, positions_after(seen, mask, batch, length, x.device)))
        h, after = self.in_proj(g), []
        for block, before in zip(self.blocks, blocks, strict=True):
            h, now = block.convolve(h, g, source, before, mask)
            after.append(now)
        return gather_steps(self.out_proj(h), back), ConvS2SState(
            count_seen(seen, length, mask), source, tuple(after)
        )

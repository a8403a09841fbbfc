"""Convolution over time, and two translation models that use it: ByteNet and ConvS2S.

Each row's real tokens are moved to the front, so that padding is never between two tokens of a kernel. Zeros precede
the first token and, if a layer is not causal, follow the last. Left out: strides and channel groups, which no model of
the lectures uses, and the weight normalisation of ConvS2S; the initial weights preserve the variance instead.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.fused.dispatch import fused_enabled
from seqloom.nn.attention_core import Dot, Score, Softmax, attend
from seqloom.nn.basic import Dropout, LayerNorm, Norm
from seqloom.nn.layer import (
    Factory,
    HasPoints,
    Layer,
    Memory,
    Point,
    Points,
    State,
    gather_steps,
    left_align,
    real_lengths,
    record,
    require,
)
from seqloom.nn.position import NoPosition, Position, positions_after


def count_seen(num_seen: Tensor, length: int, mask: Tensor | None) -> Tensor:
    """The number of real tokens of each row after this call."""
    return num_seen + (length if mask is None else real_lengths(mask))


class Convolution(Layer):
    """y[t] = b + Σᵢ Wᵢ x[t - i d],   i = k-1 … 0:   k inputs, d apart, the last one at t   [L1]

    The state of a causal convolution is its last (k-1) d inputs. If it is not causal, the kernel is centred at t,
    i = (k-1)/2 … -(k-1)/2, and k is odd. One matrix holds all Wᵢ, concatenated along the input dimension, so the
    fast form concatenates the k inputs and computes one product.
    """

    points: ClassVar[Points] = {"": Point("y", "BTD")}

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
        self.size = size
        self.dim = dim or size
        self.causal = causal
        self.kernel = kernel
        self.dilation = dilation
        self.reach = (kernel - 1) * dilation
        self.taps = nn.Linear(kernel * size, self.dim, bias)

    def start(self, batch: int, memory: Memory | None = None) -> Tensor | None:
        return self.zero_inputs(batch) if self.causal else None

    def zero_inputs(self, batch: int) -> Tensor:
        """The inputs before the first position: (B, reach, size)."""
        return self.taps.weight.new_zeros(batch, self.reach, self.size)

    def forward(
        self, x: Tensor, state: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        x, mask, order = left_align(x, mask)
        y, state = self.convolve(x, state, mask)
        return gather_steps(y, order), state

    def convolve(self, x: Tensor, state: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`forward` for inputs that are padded on the right only."""
        length = x.shape[1]
        if self.causal:
            past = self.zero_inputs(len(x)) if state is None else state
            x = torch.cat([past, x], 1)  # (B, reach + T, size)
            state = x[:, length:] if mask is None else self.last_inputs(x, real_lengths(mask))
        else:
            x = x if mask is None else x.masked_fill(~mask[..., None], 0)
            x = F.pad(x, (0, 0, self.reach // 2, self.reach // 2))
        offsets = [i * self.dilation for i in range(self.kernel)]
        shifted = [x[:, offset : offset + length] for offset in offsets]  # each (B, T, size)
        if fused_enabled():
            return self.taps(torch.cat(shifted, -1)), state
        weights = self.taps.weight.chunk(self.kernel, 1)
        terms = (F.linear(inputs, weight) for inputs, weight in zip(shifted, weights, strict=True))
        y = cast(Tensor, sum(terms))
        return record(self, "", y if self.taps.bias is None else y + self.taps.bias), state

    def last_inputs(self, x: Tensor, count: Tensor) -> Tensor:
        """The last `reach` inputs up to each row's last real token."""
        return gather_steps(x, count[:, None] + torch.arange(self.reach, device=x.device))


class ByteNetBlock(HasPoints):
    """x ← x + W₂ r(norm(conv(r(norm(W₁ r(norm(x)))))))   [L1]

    with r = ReLU, W₁: D → D/2, a dilated convolution D/2 → D/2, W₂: D/2 → D.
    """

    points: ClassVar[Points] = {"": Point("x", "BTD")}

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
        return record(self, "", x + self.dropout(self.out_proj(self.norms[2](h).relu()))), state


class ByteNetState(NamedTuple):
    """The state of a ByteNet; `source` and `num_seen` are set in a decoder only."""

    source: Tensor | None  # (B, S + 1, D), the projected memory; the last position is zeros
    num_seen: Tensor | None  # (B,), the number of real tokens so far
    blocks: tuple[Tensor | None, ...]


class ByteNet(Layer):
    """Blocks of the given dilations, repeated `sets` times, and a final norm (Kalchbrenner et al.)   [L1]

    As a decoder it unfolds dynamically: target position t reads the source's representation at t, xₜ + U mₜ, and 0
    beyond the end of the source. The source is not padded to a greater length (in the paper's a|s| + b, a = 1 and
    b = 0), and the model's output layer replaces the paper's final 1 × 1 products.
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
        self.dim = size
        self.causal = causal
        self.blocks = nn.ModuleList(
            ByteNetBlock(size, kernel, dilation, causal, norm, dropout)
            for _ in range(sets)
            for dilation in dilations
        )
        self.source_proj = nn.Linear(memory, size, bias=False) if memory else None
        self.norm = norm(size)
        # scales the blocks, so that their sum is about as large as the input
        with torch.no_grad():
            for block in self.bytenet_blocks:
                block.out_proj.weight /= math.sqrt(len(self.blocks))

    @property
    def bytenet_blocks(self) -> list[ByteNetBlock]:
        return [cast(ByteNetBlock, block) for block in self.blocks]

    def start(self, batch: int, memory: Memory | None = None) -> ByteNetState:
        blocks = tuple(block.convolution.start(batch) for block in self.bytenet_blocks)
        if self.source_proj is None:
            return ByteNetState(None, None, blocks)
        if memory is None:
            raise ConfigError("a ByteNet decoder needs a memory: start it with the encoder's outputs")
        values, mask, _ = left_align(self.source_proj(memory.values), memory.mask)
        values = values if mask is None else values.masked_fill(~mask[..., None], 0)
        num_seen = torch.zeros(batch, dtype=torch.long, device=values.device)
        return ByteNetState(F.pad(values, (0, 0, 0, 1)), num_seen, blocks)

    def forward(
        self, x: Tensor, state: ByteNetState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, ByteNetState]:
        source, num_seen, block_states = state or self.start(len(x))
        x, mask, order = left_align(x, mask)
        if source is not None and num_seen is not None:
            positions = num_seen[:, None] + torch.arange(x.shape[1], device=x.device)
            x = x + gather_steps(source, positions.clamp(max=source.shape[1] - 1))
            num_seen = count_seen(num_seen, x.shape[1], mask)
        new_states: list[Tensor | None] = []
        for block, block_state in zip(self.bytenet_blocks, block_states, strict=True):
            x, new_state = block.convolve(x, block_state, mask)
            new_states.append(new_state)
        return gather_steps(self.norm(x), order), ByteNetState(source, num_seen, tuple(new_states))


class ConvS2SMemory(NamedTuple):
    """The memory as the blocks of ConvS2S read it."""

    keys: Tensor  # (B, 1, S, E)
    values: Tensor  # (B, 1, S, M), the memory itself
    visible: Tensor | None  # (B, 1, 1, S)
    scale: Tensor  # (B, 1, 1), √m for m source tokens


class GatedBlock(HasPoints):
    """u = a ⊙ σ(b),  [a; b] = conv(h);   h ← √½ (h + u)   [L4]

    With a memory it attends before the residual sum:

    u ← √½ (u + W_c √m c),  c = Σⱼ αⱼ zⱼ,  α = softmaxⱼ s(W_d u + b_d + g, kⱼ)

    where g is the target's embedding and m the number of source tokens.
    """

    points: ClassVar[Points] = {
        "gated": Point("u", "BTD"),
        "context": Point("c", "BTD"),
        "": Point("h", "BTD"),
    }
    reads_memory = True

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
        self.weights = Softmax() if memory else None
        self.dropout = Dropout(dropout)
        # the 4 makes up for the gate, which is about ½ at the start: the variance is preserved
        nn.init.normal_(self.convolution.taps.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * dim)))
        nn.init.zeros_(self.convolution.taps.bias)

    def convolve(
        self, h: Tensor, g: Tensor, source: ConvS2SMemory | None, state: State, mask: Tensor | None
    ) -> tuple[Tensor, State]:
        u, state = self.convolution.convolve(self.dropout(h), state, mask)
        u = record(self, "gated", F.glu(u, -1))
        if source is not None:
            u = (u + self.read_source(u, g, source)) * math.sqrt(0.5)
        return record(self, "", (h + u) * math.sqrt(0.5)), state

    def read_source(self, u: Tensor, g: Tensor, source: ConvS2SMemory) -> Tensor:
        """W_c √m c: (B, T, D)."""
        if self.query is None or self.score is None or self.weights is None or self.context_proj is None:
            raise ConfigError("this block was built without a memory: build ConvS2S with the memory's size")
        queries = (self.query(u) + g)[:, None]
        keys, values, visible, scale = source
        c, _ = attend(queries, keys, values, self.score, visible, weights=self.weights)  # (B, 1, T, M)
        return self.context_proj(record(self, "context", c[:, 0]) * scale)


class ConvS2SState(NamedTuple):
    """The state of a ConvS2S; `source` is set in a decoder only."""

    num_seen: Tensor  # (B,), the number of real tokens so far
    source: ConvS2SMemory | None
    blocks: tuple[Tensor | None, ...]


class ConvS2S(Layer):
    """Positions, a projection to `dim`, `layers` gated blocks, a projection back (Gehring et al.)   [L4]

    With a memory every block attends to it. The keys of all blocks are the same, kⱼ = W_k zⱼ; the paper's score is
    q · k, which suits embeddings initialised as small as the paper's (0.1). Left out: the source's embeddings in the
    values, zⱼ + eⱼ, since a memory holds only the encoder's outputs, which contain eⱼ through the residual path; and
    the scaling of the encoder's gradient.
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
        width = self.position.dim
        dim = dim or size
        self.dim = size
        self.causal = causal
        self.context = self.position.context
        self.in_proj = nn.Linear(width, dim)
        self.out_proj = nn.Linear(dim, size)
        self.key = nn.Linear(memory, width) if memory else None
        self.blocks = nn.ModuleList(
            GatedBlock(dim, kernel, causal, width, memory, score, dropout) for _ in range(layers)
        )
        self.dropout = Dropout(dropout)
        for linear in (self.in_proj, self.out_proj):
            nn.init.normal_(linear.weight, std=math.sqrt((1 - dropout) / linear.in_features))
            nn.init.zeros_(linear.bias)

    @property
    def gated_blocks(self) -> list[GatedBlock]:
        return [cast(GatedBlock, block) for block in self.blocks]

    def start(self, batch: int, memory: Memory | None = None) -> ConvS2SState:
        num_seen = torch.zeros(batch, dtype=torch.long, device=self.in_proj.weight.device)
        blocks = tuple(block.convolution.start(batch) for block in self.gated_blocks)
        if self.key is None:
            return ConvS2SState(num_seen, None, blocks)
        if memory is None:
            raise ConfigError("a ConvS2S decoder needs a memory: start it with the encoder's outputs")
        values, mask = memory
        lengths = num_seen + values.shape[1] if mask is None else real_lengths(mask)
        scale = lengths.to(values.dtype).sqrt()[:, None, None]
        visible = None if mask is None else mask[:, None, None]
        source = ConvS2SMemory(self.key(values)[:, None], values[:, None], visible, scale)
        return ConvS2SState(num_seen, source, blocks)

    def forward(
        self, x: Tensor, state: ConvS2SState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, ConvS2SState]:
        num_seen, source, block_states = state or self.start(len(x))
        x, mask, order = left_align(x, mask)
        batch, length, _ = x.shape
        positions = positions_after(num_seen, mask, batch, length, x.device)
        g = self.dropout(self.position.embed(x, positions))
        h = self.in_proj(g)
        new_states: list[Tensor | None] = []
        for block, block_state in zip(self.gated_blocks, block_states, strict=True):
            h, new_state = block.convolve(h, g, source, block_state, mask)
            new_states.append(new_state)
        new_num_seen = count_seen(num_seen, length, mask)
        return gather_steps(self.out_proj(h), order), ConvS2SState(new_num_seen, source, tuple(new_states))

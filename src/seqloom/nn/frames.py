"""Encoders of sound: frames (B, T, F) become fewer and wider vectors, which any layer then reads.

A front reduces the frames: y = front(x, mask), (B, T, F) → (B, ⌈T / step⌉, dim). Vector i is real if frame i · step is; zeros
follow the last frame, so padding changes nothing.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.basic import Dropout
from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.layer import Factory, HasPoints, Layer, Memory, Point, Points, State, record, require
from seqloom.nn.recurrent import RNN
from seqloom.nn.source import SourceEncoder


class Front(HasPoints):
    """y = front(x, mask), of which one vector stands for `step` frames. `causal` says that vector i needs `width` frames from i · step on
    and no others."""

    dim: int
    step: int = 1
    width: int = 1
    causal: bool = False

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def reduce_mask(self, mask: Tensor) -> Tensor:
        """The mask of the outputs: (B, T) → (B, ⌈T / step⌉)."""
        return mask[:, :: self.step]


class StackFrames(Front):
    """yᵢ = [x_{is}; x_{is+1}; …; x_{is+n-1}]: n neighbouring frames as one, every s frames (Sak et al.)   [L9]

    n is `frames` and s is `step`, by default n too. `dim` projects the result by a matrix.
    """

    points: ClassVar[Points] = {"": Point("y", "BTD")}
    causal = True

    def __init__(self, size: int, frames: int = 3, step: int | None = None, dim: int | None = None):
        super().__init__()
        step = step or frames
        require(
            0 < step <= frames,
            f"stacking {frames} frames every {step} would skip some: give a step of at most `frames`",
        )
        self.width = frames
        self.step = step
        self.project = nn.Linear(frames * size, dim) if dim else None
        self.dim = dim or frames * size

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x if mask is None else x * mask[..., None]
        count = -(-x.shape[1] // self.step)
        x = F.pad(x, (0, 0, 0, (count - 1) * self.step + self.width - x.shape[1]))
        stacked = x.unfold(1, self.width, self.step).transpose(2, 3).flatten(2)  # (B, T', n F)
        return record(self, "", stacked if self.project is None else self.project(stacked))


class ConvolutionFront(Front):
    """y = W relu(K₂ * relu(K₁ * x)) + b: two convolutions of 3 × 3 over time and bins, each with a stride of 2 in both   [T9]"""

    points: ClassVar[Points] = {"": Point("y", "BTD")}
    step = 4

    def __init__(self, size: int, dim: int, channels: int = 32):
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, 2, 1)
        self.second = nn.Conv2d(channels, channels, 3, 2, 1)
        self.project = nn.Linear(channels * -(-size // 4), dim)
        self.dim = dim

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        h = x[:, None]  # (B, 1, T, F)
        for convolution in (self.first, self.second):
            if mask is not None:
                h = h * mask[:, None, :, None]
                mask = mask[:, ::2]
            h = convolution(h).relu()
        return record(self, "", self.project(h.transpose(1, 2).flatten(2)))


class Pyramid(Front):
    """hˡᵢ = RNNˡ([hˡ⁻¹₂ᵢ; hˡ⁻¹₂ᵢ₊₁]): every layer reads pairs of the one below and halves their number (Chan et al.)   [T9]"""

    def __init__(
        self, size: int, dim: int, layers: int = 2, cell: Factory[Cell] = LSTM, dropout: float = 0.0
    ):
        super().__init__()
        require(layers > 0, f"a pyramid has at least one layer, not {layers}")
        self.pairs = nn.ModuleList()
        self.layers = nn.ModuleList()
        for _ in range(layers):
            self.pairs.append(StackFrames(size, 2))
            self.layers.append(RNN(2 * size, dim, cell, 1, "both"))
            size = 2 * dim
        self.step = 2**layers
        self.dim = size
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for index, (pair, layer) in enumerate(zip(self.pairs, self.layers, strict=True)):
            x = cast(StackFrames, pair)(self.dropout(x) if index else x, mask)
            mask = None if mask is None else mask[:, ::2]
            x, _ = cast(RNN, layer)(x, None, mask)
        return x


class SoundStream(NamedTuple):
    """What an encoder remembers between two pieces of a sound: frames that do not fill a stack yet, and the state of its layers."""

    frames: Tensor  # (B, t, F)
    state: State


class SoundEncoder(SourceEncoder):
    """m = stack(front((x - μ) / σ))   [L9, T9]

    μ and σ are the mean and the standard deviation of the training frames; they are set once, before the first step. `front` reduces
    the frames, `stack` is any layer: an RNN in both directions hears the whole recording; one that reads left to right can be read
    while somebody speaks (`stream`).
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        stack: Factory[Layer],
        front: Factory[Front] = StackFrames,
        dropout: float = 0.0,
    ):
        super().__init__()
        require(
            len(shape) == 1,
            f"sound is frames of numbers, but the source has shape {shape}: use corpus Speech",
        )
        self.mean = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.deviation = nn.Parameter(torch.ones(shape), requires_grad=False)
        self.front = front(shape[0])
        self.stack = stack(self.front.dim)
        self.dropout = Dropout(dropout)
        self.dim = self.stack.dim
        self.step = self.front.step
        self.streams = self.front.causal and self.stack.causal
        self.context = None if self.stack.context is None else self.stack.context * self.step

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        x = self.front((source - self.mean) / self.deviation, mask)
        mask = None if mask is None else self.front.reduce_mask(mask)
        y, _ = self.stack(self.dropout(x), None, mask)
        return Memory(y, mask)

    def memory_mask(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.front.reduce_mask(super().memory_mask(source, mask))

    def start_stream(self, batch: int = 1) -> SoundStream:
        """The state before the first piece of a sound."""
        require(self.streams, "an encoder that reads to the end of a recording cannot stream: train ctc-lstm")
        return SoundStream(self.mean.new_zeros(batch, 0, len(self.mean)), None)

    def stream(self, source: Tensor, past: SoundStream, last: bool = False) -> tuple[Tensor, SoundStream]:
        """The outputs of the next piece of a sound, (B, t, F) → (B, t', D), as if all pieces were read at once; fewer than a stack
        of frames wait for the next piece, or are read at the `last`."""
        frames = torch.cat([past.frames, source], 1)
        available, width, step = frames.shape[1], self.front.width, self.step
        count = -(-available // step) if last else max(0, (available - width) // step + 1)
        if not count:
            return self.mean.new_zeros(len(frames), 0, self.dim), SoundStream(frames, past.state)
        used = frames[:, : (count - 1) * step + width]
        x = self.front((used - self.mean) / self.deviation)[:, :count]
        y, state = self.stack(x, past.state, None)
        return y, SoundStream(frames[:, count * step :], state)

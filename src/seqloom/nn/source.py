"""Encoders of input that is not text: a picture as regions, a sound as frames, both as a memory for any decoder."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.nn.layer import HasPoints, Memory


class SourceEncoder(HasPoints):
    """memory = encoder(source, mask)

    `source` holds the pixels of pictures (B, H, W, 3), uint8, or the features of sounds (B, T, F); `shape` is that of one
    source without its time axis: (H, W, 3), or (F,). The memory's values are (B, S, dim). `mask` (B, T) is True at real
    frames, None if there is no padding; the memory's mask may be shorter, where an encoder joins frames.
    """

    dim: int
    grid: tuple[int, int] | None = None  # rows and columns of the regions of a picture
    context: int | None = None  # the most frames it can take; None is any number

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        raise NotImplementedError

    def position_names(self, count: int) -> list[str]:
        """What a reader calls the `count` positions of one memory, for pages of `inspect`: their numbers, from 1."""
        return [str(number) for number in range(1, count + 1)]

    def memory_mask(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """The mask of the memory, (B, S), without computing its values."""
        if mask is not None:
            return mask
        return torch.ones(source.shape[:2], dtype=torch.bool, device=source.device)

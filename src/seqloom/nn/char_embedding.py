"""Word vectors from characters, also for words that are not in the vocabulary."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused.dispatch import fused_enabled
from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Factory, require
from seqloom.nn.pool import EndsPool, MaxPool
from seqloom.nn.recurrent import RNN


class CharEncoder(nn.Module):
    """y = read(c₁ … c_n): the vectors of a word's characters, (N, C, size) with mask (N, C), as one of the word, (N, dim)."""

    def __init__(self, size: int, dim: int):
        super().__init__()
        require(
            size > 0 and dim > 0,
            f"a spelling needs characters and words of at least one number, not {size} and {dim}",
        )
        self.dim = dim

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        raise NotImplementedError


class CharCNN(CharEncoder):
    """y = [y_w for each width w],   y_w = maxₜ tanh(b + Σᵢ Wᵢ cₜ₊ᵢ),   i = 0 … w-1

    Every window that holds a character of the word, with zeros around it, so that prefixes and suffixes show (Kim et al.; Ma and Hovy). The widths
    share `dim` evenly.
    """

    def __init__(self, size: int, dim: int, widths: tuple[int, ...] = (3,)):
        super().__init__(size, dim)
        require(
            len(widths) > 0 and min(widths) > 0,
            f"a convolution needs widths of at least 1, not {list(widths)}",
        )
        require(dim >= len(widths), f"{len(widths)} widths cannot share {dim} numbers: give fewer widths")
        self.widths = tuple(widths)
        shares = [dim // len(widths) + (number < dim % len(widths)) for number in range(len(widths))]
        self.taps = nn.ModuleList(
            nn.Linear(width * size, share) for width, share in zip(widths, shares, strict=True)
        )
        self.pool = MaxPool(dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        found = []
        for width, taps in zip(self.widths, self.taps, strict=True):
            around = F.pad(x.masked_fill(~mask[..., None], 0), (0, 0, width - 1, width - 1))
            windows = around.unfold(1, width, 1).transpose(2, 3).flatten(2)  # (N, C + w - 1, w · size)
            there = F.pad(mask, (width - 1, width - 1)).unfold(1, width, 1).any(2)
            found.append(self.pool(taps(windows), there).tanh())  # the largest of tanh is tanh of the largest
        return torch.cat(found, -1)


class CharRNN(CharEncoder):
    """y = [h→_n; h←₁]   [D7]: a recurrent layer of any cell that reads the characters both ways, each direction where it ends."""

    def __init__(self, size: int, dim: int, cell: Factory[Cell] = LSTM):
        super().__init__(size, dim)
        require(dim % 2 == 0, f"two directions share the numbers of a word: {dim} is odd")
        self.rnn, self.pool = RNN(size, dim // 2, cell, direction="both"), EndsPool(dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.pool(self.rnn(x, None, mask)[0], mask)


class CharEmbedding(nn.Module):
    """x_w = read(e(c₁) … e(c_n)) for a word w = c₁ … c_n; 0 for one without characters   [A2]

    (B, T, C) → (B, T, dim). `encoder` reads the characters, `char_dim` is the width of a character's vector.
    The fast form computes each distinct word of a batch once.
    """

    def __init__(
        self, characters: int, dim: int, char_dim: int = 25, encoder: Factory[CharEncoder] = CharCNN
    ):
        super().__init__()
        self.dim = dim
        self.embedding = Embedding(characters, char_dim, scale=True)
        self.encoder = encoder(char_dim, dim)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        keys = (ids + 1 if mask is None else torch.where(mask, ids + 1, 0)).flatten(
            0, 1
        )  # (N, C), 0 at padding
        if not keys.any():
            return self.embedding.table.new_zeros(*ids.shape[:2], self.dim)
        place = None
        if fused_enabled():
            keys, place = unique_rows(keys)
        keys = keys[:, : int(keys.any(0).nonzero()[-1]) + 1]  # up to the end of the longest word
        words = self.encoder(self.embedding((keys - 1).clamp(min=0)), keys > 0)
        return (words if place is None else words.index_select(0, place)).view(*ids.shape[:2], self.dim)


def unique_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, and which of them each row is: by a number for each row, and should two of them share it, by the rows themselves."""
    factors = torch.full_like(rows[0], 6364136223846793005).cumprod(0)
    numbers, place = (rows * factors).sum(1).unique(return_inverse=True)
    words = rows[torch.zeros_like(numbers).scatter_(0, place, torch.arange(len(rows), device=rows.device))]
    return (words, place) if torch.equal(words[place], rows) else rows.unique(dim=0, return_inverse=True)

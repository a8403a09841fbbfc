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
    """y = read(c₁ … c_n)

    Maps the vectors of a word's characters, (N, C, size) with mask (N, C), to one vector of the word, (N, dim).
    """

    def __init__(self, size: int, dim: int):
        super().__init__()
        require(
            size > 0 and dim > 0,
            f"a character encoder needs an input and an output of at least one dimension, not {size} and {dim}",
        )
        self.dim = dim

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        raise NotImplementedError


class CharCNN(CharEncoder):
    """y = [y_w for each width w],   y_w = maxₜ tanh(b + Σᵢ Wᵢ cₜ₊ᵢ),   i = 0 … w-1

    The maximum is over every window with at least one character of the word; zeros around the word make prefixes and
    suffixes visible (Kim et al.; Ma and Hovy). `dim` is divided evenly among the widths.
    """

    def __init__(self, size: int, dim: int, widths: tuple[int, ...] = (3,)):
        super().__init__(size, dim)
        require(
            len(widths) > 0 and min(widths) > 0,
            f"a convolution needs widths of at least 1, not {list(widths)}",
        )
        require(
            dim >= len(widths),
            f"{len(widths)} widths need at least {len(widths)} dimensions, not {dim}: use fewer widths",
        )
        self.widths = tuple(widths)
        dims = [dim // len(widths) + (index < dim % len(widths)) for index in range(len(widths))]
        self.taps = nn.ModuleList(
            nn.Linear(width * size, out_dim) for width, out_dim in zip(widths, dims, strict=True)
        )
        self.pool = MaxPool(dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        outputs: list[Tensor] = []
        for width, taps in zip(self.widths, self.taps, strict=True):
            padded = F.pad(x.masked_fill(~mask[..., None], 0), (0, 0, width - 1, width - 1))
            windows = padded.unfold(1, width, 1).transpose(2, 3).flatten(2)  # (N, C + w - 1, w · size)
            window_mask = F.pad(mask, (width - 1, width - 1)).unfold(1, width, 1).any(2)
            # tanh is monotonic, so it may follow the maximum
            outputs.append(self.pool(taps(windows), window_mask).tanh())
        return torch.cat(outputs, -1)


class CharRNN(CharEncoder):
    """y = [h→_n; h←₁]   [D7]

    A recurrent layer of any cell reads the characters in both directions; the output is each direction's last state.
    """

    def __init__(self, size: int, dim: int, cell: Factory[Cell] = LSTM):
        super().__init__(size, dim)
        require(dim % 2 == 0, f"CharRNN splits dim between two directions, and {dim} is odd: use an even dim")
        self.rnn = RNN(size, dim // 2, cell, direction="both")
        self.pool = EndsPool(dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.pool(self.rnn(x, None, mask)[0], mask)


class CharEmbedding(nn.Module):
    """x_w = read(e(c₁) … e(c_n)) for a word w = c₁ … c_n; 0 for a word without characters   [A2]

    (B, T, C) → (B, T, dim). `encoder` is the function read, `char_dim` the width of a character's vector.
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
        shifted = ids + 1 if mask is None else torch.where(mask, ids + 1, 0)  # 0 at padding
        words = shifted.flatten(0, 1)  # (N, C)
        if not words.any():
            return self.embedding.table.new_zeros(*ids.shape[:2], self.dim)
        inverse = None
        if fused_enabled():
            words, inverse = unique_rows(words)
        words = words[:, : int(words.any(0).nonzero()[-1]) + 1]  # up to the end of the longest word
        vectors = self.encoder(self.embedding((words - 1).clamp(min=0)), words > 0)
        if inverse is not None:
            vectors = vectors.index_select(0, inverse)
        return vectors.view(*ids.shape[:2], self.dim)


def unique_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, and the index among them of each row. Compares hashes of the rows, and the rows themselves if
    two different rows have the same hash."""
    factors = torch.full_like(rows[0], 6364136223846793005).cumprod(0)
    hashes, inverse = (rows * factors).sum(1).unique(return_inverse=True)
    indices = torch.arange(len(rows), device=rows.device)
    distinct = rows[torch.zeros_like(hashes).scatter_(0, inverse, indices)]
    if torch.equal(distinct[inverse], rows):
        return distinct, inverse
    return rows.unique(dim=0, return_inverse=True)

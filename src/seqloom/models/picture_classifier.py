"""A label for a picture: any picture encoder, pooled over its regions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqloom.models.classifier import IdsAndMask, TextClassifier
from seqloom.models.encoder import scoring_layer
from seqloom.nn.basic import Dropout
from seqloom.nn.layer import Factory, State
from seqloom.nn.pictures import PictureEncoder
from seqloom.nn.pool import MeanPool, Pool


class PictureClassifier(TextClassifier):
    """P(y | picture) = softmax(W v + b),   v = pool(encoder(picture))   [G8]

    With patches and a Transformer it is the ViT of Dosovitskiy et al. 2021 if the encoder has a class token, which `FirstPool`
    reads; `MeanPool` reads the mean of the regions.
    """

    reads = "image"
    label_names: tuple[str, ...] = ()

    def __init__(
        self,
        source_shape: tuple[int, ...],
        labels: int,
        encoder: Factory[PictureEncoder],
        pool: Factory[Pool] = MeanPool,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.source_shape = tuple(source_shape)
        self.encoder = encoder(self.source_shape)
        self.grid = self.encoder.grid
        self.pool = pool(self.encoder.dim)
        self.dropout = Dropout(dropout)
        self.labels = labels
        self.score = scoring_layer(self.pool.dim, labels)

    def set_labels(self, labels: Sequence[str]) -> None:
        self.label_names = tuple(labels)

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B, H, W, 3) → (B, K)"""
        values, mask = self.encoder(first[0])
        return self.score(self.dropout(self.pool(values, mask)))

    def forward(self, pixels: Tensor, state: State = None) -> Tensor:
        """(B, H, W, 3) → (B, K); of ids, whose costs are counted, the scores of an empty picture."""
        if pixels.dim() == 2:
            pixels = torch.zeros(len(pixels), *self.source_shape, device=pixels.device)
        return self.scores((pixels, pixels.new_ones(len(pixels), 1, dtype=torch.bool)))

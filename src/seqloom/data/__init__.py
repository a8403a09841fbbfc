"""Ids to batches. Knows text/ only."""

from seqloom.data.batch import Batch, Batches, Cursor, Pair, Tokens
from seqloom.data.pairs import Pairs, padded
from seqloom.data.windows import Blocks, Windows

__all__ = ["Batch", "Batches", "Blocks", "Cursor", "Pair", "Pairs", "Tokens", "Windows", "padded"]

"""Ids to batches. Knows text/ only."""

from seqloom.data.batch import Batch, Batches, Cursor, Pair, Tokens
from seqloom.data.buckets import padded
from seqloom.data.labelled import Asked, Labelled, Questions, Sentences, Tagged, Texts
from seqloom.data.masked import Cloze, Masked
from seqloom.data.pairs import Pairs
from seqloom.data.windows import Blocks, Windows

__all__ = [
    "Asked",
    "Batch",
    "Batches",
    "Blocks",
    "Cloze",
    "Cursor",
    "Labelled",
    "Masked",
    "Pair",
    "Pairs",
    "Questions",
    "Sentences",
    "Tagged",
    "Texts",
    "Tokens",
    "Windows",
    "padded",
]

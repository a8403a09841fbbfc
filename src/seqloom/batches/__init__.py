"""Turns stored token ids into batches: windows, blocks,
pairs, masked and labelled records, chats. Imports text/ only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

if TYPE_CHECKING:
    from seqloom.batches.batch import (
        Batch,
        Batches,
        Blocks,
        Cursor,
        PairBatch,
        SourceBatch,
        TokenBatch,
        Windows,
    )
    from seqloom.batches.buckets import pad
    from seqloom.batches.chats import Turns
    from seqloom.batches.labelled import Labelled, LabelledBatch, QABatch, Questions, Tagged, TaggedBatch
    from seqloom.batches.masked import Masked, MaskedBatch
    from seqloom.batches.pairs import Pairs
    from seqloom.batches.pictures import Augment, Captions, LabelledPictures
    from seqloom.batches.preference import Comparisons, JudgedBatch, Judgements, PreferenceBatch
    from seqloom.batches.prompts import PromptBatch, PromptGroups
    from seqloom.batches.recordings import Recordings
    from seqloom.batches.rollout import RolloutBatch
    from seqloom.batches.summaries import Summaries

__all__ = [
    "Augment",
    "Batch",
    "Batches",
    "Blocks",
    "Captions",
    "Comparisons",
    "Cursor",
    "JudgedBatch",
    "Judgements",
    "Labelled",
    "LabelledBatch",
    "LabelledPictures",
    "Masked",
    "MaskedBatch",
    "PairBatch",
    "Pairs",
    "PreferenceBatch",
    "PromptBatch",
    "PromptGroups",
    "QABatch",
    "Questions",
    "Recordings",
    "RolloutBatch",
    "SourceBatch",
    "Summaries",
    "Tagged",
    "TaggedBatch",
    "TokenBatch",
    "Turns",
    "Windows",
    "pad",
]

NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)

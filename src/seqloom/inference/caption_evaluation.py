"""How well a run describes pictures: its captions against the given ones, and whether it finds a picture's caption among others."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.decoding.options import DecodingPlan
from seqloom.inference.caption_attention import WordRegions, attention_hits, read_regions
from seqloom.inference.captioning import caption_log_probs, caption_pictures
from seqloom.inference.completion import Execution
from seqloom.measure.by_length import ScoredRecords
from seqloom.measure.captions import bleu_counts, bleu_of_order, caption_numbers, caption_words
from seqloom.measure.number import Number, make_signature, percent, wilson
from seqloom.results import ProgressOption, Reporter
from seqloom.run import Run
from seqloom.text.pictures import Pictures

RETRIEVED = 50  # pictures whose captions are told apart


def evaluate_captions(
    run: Run,
    records: Iterable[tuple[Any, ...]],
    plan: DecodingPlan,
    progress: ProgressOption,
    conditions: dict[str, object],
) -> tuple[list[Number], ScoredRecords]:
    """The scores of the captions that the run writes for the picture of each record."""
    regions = known_regions(records)
    pairs = [(picture, [texts] if isinstance(texts, str) else list(texts)) for picture, texts in records]
    pictures = [picture for picture, _ in pairs]
    references = [texts for _, texts in pairs]
    with Reporter("captioning", len(pairs), progress) as report:
        captions = caption_pictures(run, plan, pictures, Execution(progress=report.advance))
    outputs = [found.text for found in captions]
    numbers = caption_numbers(outputs, references, conditions)
    numbers += retrieval_numbers(
        run, [(picture, texts[0]) for picture, texts in islice(pairs, RETRIEVED)], conditions
    )
    if regions and run.model.grid is not None:
        numbers += attention_hits(run, pairs, regions, conditions)
    words = [caption_words(text) for text in outputs]
    wanted = [[caption_words(text) for text in texts] for texts in references]
    lengths = [len(texts[0]) for texts in wanted]
    return numbers, ScoredRecords(
        "bleu_4", lengths, bleu_counts(words, wanted), lambda sums: bleu_of_order(sums, 4)
    )


def known_regions(records: Iterable[tuple[Any, ...]]) -> dict[str, WordRegions]:
    """The regions of the words of captions, if regions.jsonl is beside the list of the pictures, as it is in the world."""
    if not isinstance(records, Pictures):
        return {}
    path = Path(records.paths[0]).parent / "regions.jsonl"
    return read_regions(path) if path.is_file() else {}


def retrieval_numbers(run: Run, pairs: list[tuple[Any, str]], conditions: dict[str, object]) -> list[Number]:
    """How often the first caption of a picture is the most probable of all of these pictures' captions, by ln P(caption | picture)."""
    captions = list(dict.fromkeys(text for _, text in pairs))
    if len(captions) < 2:
        return []
    found = caption_log_probs(run, [picture.array() for picture, _ in pairs], captions)
    scores = np.array([[sum(values) for values in row] for row in found])  # (pictures, captions)
    right = np.array([captions.index(text) for _, text in pairs])
    ranks = (scores > scores[np.arange(len(pairs)), right][:, None]).sum(1)
    hits = int((ranks == 0).sum())
    signature = make_signature("recall@1", {"by": "lnP", "among": len(captions), **conditions})
    return [
        Number(
            "retrieval_recall_1",
            100 * hits / len(pairs),
            signature,
            *percent(wilson(hits, len(pairs))),
            n=len(pairs),
        )
    ]

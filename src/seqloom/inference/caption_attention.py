"""Where in a picture a captioner looks for each word   [K6, X23], and how often that is where the word's thing is.

The weights are those with which the model computes P(word | words before it, picture), for the caption that it writes or for
a given one. Weights of several heads and layers are averaged; those of several tokens of a word too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.batches.sources import stack_sources
from seqloom.decoding import DecodingPlan, forced_attention
from seqloom.errors import DataError, RunError
from seqloom.inference.alignment import decode_with_spans, word_of_char
from seqloom.inference.captioning import Picture, caption_pictures, check_captions
from seqloom.inference.completion import prepare_prompt
from seqloom.inference.sources import source_of
from seqloom.measure.number import Number, make_signature, percent, wilson
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run

GROUP = 32  # pictures that are read together
MAX_PICTURES = 500  # whose words are compared with their regions

Box = Sequence[float]
"""Left, top, right and bottom, in pixels of the picture as the model reads it."""


@dataclass(frozen=True)
class CaptionAttention(Result):
    """A caption of a picture, its words, and the weight of each region for each word, (words, rows, columns). The weights of a word
    sum to 1, less that of the class token if the encoder has one."""

    file: str
    caption: str
    words: tuple[str, ...]
    weights: np.ndarray = field(repr=False, compare=False)
    pixels: np.ndarray = field(repr=False, compare=False, metadata={"json": False})

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "caption": self.caption,
            "words": list(self.words),
            "weights": np.round(self.weights.astype(np.float64), 6).tolist(),
        }


class WordRegions(NamedTuple):
    """The words of a picture's caption, and the box of what each describes, None for words that describe nothing."""

    words: Sequence[str]
    boxes: Sequence[Box | None]


def caption_attention(
    run: RunLike, picture: Picture, caption: str | None = None, *, plan: DecodingPlan | None = None
) -> CaptionAttention:
    """Where the model looks for each word of a caption: of the best one that it writes, or of a given one.

    >>> import pathlib
    >>> from PIL import Image
    >>> Image.fromarray(seqloom.world.drawing(seed=0, index=0).pixels).save("tree.png")
    >>> size = pathlib.Path("captions.tsv").write_text("tree.png\\tA big blue tree.\\n")
    >>> captioner = seqloom.fit("show-attend-tell", data="captions.tsv", valid="captions.tsv", steps=1, progress=False)
    >>> seqloom.inspect.picture(captioner, "tree.png", "A big blue tree.").words
    ('A', 'big', 'blue', 'tree.')
    """
    opened = as_run(run)
    check_captions(opened)
    require_grid(opened)
    source = source_of(opened, picture, "picture")
    if caption is None:
        caption = caption_pictures(opened, plan or opened.decoding.plan(), [source])[0].text
    [found] = attend(opened, [source.array()], [caption])
    return found_for(source.name, found)


def require_grid(run: Run) -> tuple[int, int]:
    """The rows and columns of the regions of a run's pictures; raises if it attends to none."""
    grid = run.model.grid
    if grid is None:
        raise RunError(
            f"{run.folder}: the model does not attend to regions of a picture; use a captioner that does"
        )
    return grid


def found_for(name: str, found: CaptionAttention) -> CaptionAttention:
    """The attention under the name of its file."""
    return CaptionAttention(name, found.caption, found.words, found.weights, found.pixels)


def attend(run: Run, pictures: Sequence[np.ndarray], captions: Sequence[str]) -> Iterator[CaptionAttention]:
    """The attention of each word of a caption of each picture."""
    grid = require_grid(run)
    regions = grid[0] * grid[1]
    encodings = run.tokenizer.encode_batch(list(captions), add_special_tokens=False)
    prompt, state, _ = prepare_prompt(run, *stack_sources(pictures))
    rows = forced_attention(run.model, prompt, [encoding.ids for encoding in encodings], state)
    for pixels, encoding, alpha in zip(pictures, encodings, rows, strict=True):
        text, spans = decode_with_spans(run.tokenizer, encoding.ids)
        words = text.split()
        word_of = word_of_char(text)
        sums = np.zeros((len(words), *grid))
        counts = np.zeros(len(words))
        for (start, end), weights in zip(spans, alpha.float().numpy(), strict=True):
            if end > start and word_of[end - 1] >= 0:
                sums[word_of[end - 1]] += weights[-regions:].reshape(grid)  # a class token is before them
                counts[word_of[end - 1]] += 1
        yield CaptionAttention("", text, tuple(words), sums / counts.clip(1)[:, None, None], pixels)


def read_regions(path: Path) -> dict[str, WordRegions]:
    """The regions of words by picture: JSON Lines of {"file", "words", "boxes"}."""
    regions = {}
    with path.open(encoding="utf-8") as rows:
        for number, row in enumerate(rows, 1):
            try:
                record = json.loads(row)
                regions[record["file"]] = WordRegions(record["words"], record["boxes"])
            except (ValueError, KeyError, TypeError):
                raise DataError(
                    f'{path}:{number}: not regions of words; write {{"file": …, "words": […], "boxes": […]}}'
                ) from None
    return regions


def touches(box: Box, row: int, column: int, grid: tuple[int, int], shape: Sequence[int]) -> bool:
    """Whether a region of the grid and a box share a pixel."""
    height, width = shape[0] / grid[0], shape[1] / grid[1]
    left, top, right, bottom = box
    return (
        left < (column + 1) * width
        and right > column * width
        and top < (row + 1) * height
        and bottom > row * height
    )


def attention_hits(
    run: Run,
    records: Iterable[tuple[Any, ...]],
    regions: dict[str, WordRegions],
    conditions: dict[str, object],
) -> list[Number]:
    """For each word that describes a thing: whether the region with the largest weight is one of the thing's. Beside it, how often
    a region drawn at random would be."""
    grid = require_grid(run)
    known = (
        (picture, texts if isinstance(texts, str) else texts[0], regions[picture.name])
        for picture, texts in records
        if picture.name in regions
    )
    pairs = list(islice(known, MAX_PICTURES))
    hits = total = 0
    chance = 0.0
    for start in range(0, len(pairs), GROUP):
        group = pairs[start : start + GROUP]
        pictures = [picture.array() for picture, _, _ in group]
        captions = [caption for _, caption, _ in group]
        for found, (_, _, (words, boxes)) in zip(attend(run, pictures, captions), group, strict=True):
            if len(found.words) != len(words):
                continue  # the tokenizer does not know these words as such
            for weights, box in zip(found.weights, boxes, strict=True):
                if box is None:
                    continue
                row, column = divmod(int(weights.argmax()), grid[1])
                hits += touches(box, row, column, grid, found.pixels.shape)
                inside = [
                    touches(box, i, j, grid, found.pixels.shape)
                    for i in range(grid[0])
                    for j in range(grid[1])
                ]
                chance += sum(inside) / len(inside)
                total += 1
    if not total:
        return []
    signature = make_signature(
        "attention", {"hit": "largest region touches the box", "grid": f"{grid[0]}x{grid[1]}", **conditions}
    )
    return [
        Number("attention_hits", 100 * hits / total, signature, *percent(wilson(hits, total)), n=total),
        Number("attention_hits_by_chance", 100 * chance / total, signature, n=total),
    ]

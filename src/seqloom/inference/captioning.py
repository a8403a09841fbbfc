"""Captions of pictures, and captions ranked by how probable a picture makes them   [T8]."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack, overload

import numpy as np
import torch

from seqloom.batches.sources import stack_sources
from seqloom.decoding import Decoding, DecodingOptions, DecodingPlan, forced_log_probs
from seqloom.errors import UserError
from seqloom.inference.completion import Completion, Execution, prepare_prompt
from seqloom.inference.one_or_many import apply
from seqloom.inference.source_completion import complete_sources, source_log_probs
from seqloom.inference.sources import is_source, source_of
from seqloom.inference.verbs import wrong_verb
from seqloom.nn.layer import select
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run
from seqloom.text.lazy_array import LazyArray

ROWS = 128  # captions that are scored together

Picture = str | os.PathLike[str] | np.ndarray | LazyArray
"""A file, or pixels, uint8 of shape (height, width, 3); a record of a corpus has a `LazyArray`."""


@dataclass(frozen=True)
class Caption(Result):
    """A picture and its captions, best first."""

    file: str
    outputs: tuple[Completion, ...]

    @property
    def text(self) -> str:
        """The best caption."""
        return self.outputs[0].text


@dataclass(frozen=True)
class RankedCaption(Result):
    """A given caption, ln P(caption | picture), and the same for each of its tokens and its end."""

    text: str
    logprob: float
    logprob_per_token: float


@overload
def caption(run: RunLike, pictures: Picture, **decoding: Unpack[DecodingOptions]) -> Caption: ...
@overload
def caption(run: RunLike, pictures: list[Any], **decoding: Unpack[DecodingOptions]) -> list[Caption]: ...
@overload
def caption(
    run: RunLike, pictures: Iterator[Any], **decoding: Unpack[DecodingOptions]
) -> Iterator[Caption]: ...
def caption(run: RunLike, pictures: Any, **decoding: Unpack[DecodingOptions]) -> Any:
    """The captions of each picture, `n` of each, best first. A picture is a file, or an array of its pixels.

    The options are those of `Decoding`; what they leave open is the run's own, `run.decoding`: usually a beam of 5.

    >>> import pathlib
    >>> from PIL import Image
    >>> Image.fromarray(seqloom.world.drawing(seed=0, index=0).pixels).save("tree.png")
    >>> size = pathlib.Path("captions.tsv").write_text("tree.png\\tA big blue tree.\\n")
    >>> captioner = seqloom.fit("show-attend-tell", data="captions.tsv", valid="captions.tsv", steps=1, progress=False)
    >>> seqloom.caption(captioner, "tree.png").file
    'tree.png'
    """
    opened = as_run(run)
    check_captions(opened)
    plan = Decoding().with_options(decoding).plan(opened.decoding)
    return apply(pictures, partial(caption_pictures, opened, plan), is_one=is_source, noun="picture")


def check_captions(run: Run) -> None:
    """Raises if a run does not write captions, and says what it is for."""
    if run.model.reads != "image" or not run.model.generates:
        raise wrong_verb(run, "caption")


def caption_pictures(
    run: Run, plan: DecodingPlan, pictures: Sequence[Picture], execution: Execution = Execution()
) -> list[Caption]:
    """The captions of some pictures. All of them are decoded before the first caption is written, if they are few."""
    sources = [source_of(run, picture, f"picture {number}") for number, picture in enumerate(pictures, 1)]
    names = [source.name for source in sources]
    found = complete_sources(run, names, lambda index: sources[index].array(), plan, execution)
    return [Caption(name, tuple(outputs)) for name, outputs in zip(names, found, strict=True)]


def rank_captions(run: RunLike, picture: Picture, captions: Sequence[str]) -> list[RankedCaption]:
    """Given captions, the most probable for a picture first: retrieval by ln P(caption | picture)."""
    opened = as_run(run)
    check_captions(opened)
    if not captions:
        raise UserError("no captions to rank; give some")
    [log_probs] = caption_log_probs(opened, [source_of(opened, picture, "picture").array()], captions)
    ranked = [
        RankedCaption(text, float(sum(values)), float(sum(values) / len(values)))
        for text, values in zip(captions, log_probs, strict=True)
    ]
    return sorted(ranked, key=lambda found: -found.logprob)


@torch.inference_mode()
def caption_log_probs(
    run: Run, pictures: Sequence[np.ndarray], captions: Sequence[str]
) -> list[list[list[float]]]:
    """ln p of each token of each caption, and of its end, after each picture. A picture is encoded once."""
    encodings = run.tokenizer.encode_batch(list(captions), add_special_tokens=False)
    texts = [encoding.ids for encoding in encodings]
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    results = []
    for picture in pictures:
        prompt, state, _ = prepare_prompt(run, *stack_sources([picture]))
        found: dict[int, list[float]] = {}
        for start in range(0, len(order), ROWS):
            group = order[start : start + ROWS]
            rows = torch.zeros(len(group), dtype=torch.int64)
            log_probs = forced_log_probs(
                run.model,
                prompt[rows],
                [texts[index] for index in group],
                select(state, rows),
                eos_id=run.specials.eos,
            )
            found.update(zip(group, log_probs, strict=True))
        results.append([found[index] for index in range(len(texts))])
    return results


def score_captions(run: Run, pictures: Sequence[Picture], captions: Sequence[str]) -> list[list[float]]:
    """ln p of each token of a caption and of its end; one caption for each picture."""
    arrays = [
        source_of(run, picture, f"picture {number}").array() for number, picture in enumerate(pictures, 1)
    ]
    return source_log_probs(run, arrays, captions)

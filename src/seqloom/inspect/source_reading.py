"""A picture or a sound as a run's model reads it, and ln P of what it says of it: a text, a label, or a token at each frame.

A model that writes text reads two sides: its source has the positions of the encoder's memory, its tokens are those of the text. Of the others the
tokens are the positions themselves. `SourceEncoder.position_names` says what a reader calls them, such as rows and columns of a picture; those
of a sound are times.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.sources import stack_sources
from seqloom.decoding import Decoding
from seqloom.decoding.ctc import BLANK, align_text
from seqloom.errors import DataError, RunError, UserError
from seqloom.inference.source_completion import complete_sources
from seqloom.inference.sources import source_of
from seqloom.inference.transcription import allowed, features_of
from seqloom.inspect.reading import Reading, Window, choose_part, picked, pieces
from seqloom.models.classifier import TextClassifier
from seqloom.models.recognizer import Recognizer
from seqloom.models.source_to_text import SourceToText
from seqloom.nn.source import SourceEncoder
from seqloom.run import Run

Copies = Callable[[int], tuple[Tensor, Tensor | None]]
"""So many copies of one source, and their mask."""


def read_source(run: Run, file: str, target: str | None, max_tokens: int | None, number: int) -> Reading:
    """The reading of a file, and of its text or label, the run's own or a given one. Of a text at most `max_tokens` tokens are read; of a
    sound without one, one window of so many frames."""
    model = run.model
    array = source_of(run, file, file).array()
    if isinstance(model, SourceToText):
        return read_written(run, model, file, array, target, max_tokens)
    if isinstance(model, Recognizer):
        array, window = cut_sound(run, model.encoder, array, max_tokens, number)
        return read_frames(run, model, array, target, window)
    if isinstance(model, TextClassifier):
        encoder = model.get_submodule("encoder")
        if isinstance(encoder, SourceEncoder):
            array, window = cut_sound(run, encoder, array, max_tokens, number)
            return read_label(run, model, encoder, array, target, window)
    raise RunError(
        f"{run.folder}: a {type(model).__name__} is not read position by position; inspect a recognizer, a captioner or a classifier"
    )


def read_written(
    run: Run, model: SourceToText, file: str, array: np.ndarray, target: str | None, max_tokens: int | None
) -> Reading:
    """A source and the text that the model writes for it."""
    if target is None:
        limit = None if max_tokens is None else max(1, max_tokens - 1)
        plan = Decoding(max_tokens=limit).plan(run.decoding)
        [[best, *_]] = complete_sources(run, [file], lambda _: array, plan)
        written = list(best.ids)
    else:
        written = run.tokenizer.encode(target, add_special_tokens=False).ids
    written = written if max_tokens is None else written[: max(1, max_tokens - 1)]
    targets = torch.tensor([[*written, run.specials.eos]])
    bos = run.specials.bos
    first = run.specials.first_id if bos is None else bos
    copies = copies_of(array)

    def scores(batch: int) -> Tensor:
        start, state, _ = model.prepare_prompt(*copies(batch), first)
        ids = torch.cat([start, targets[:, :-1].expand(batch, -1)], 1)
        return picked(model(ids, state)[0], targets)

    names = source_names(run, model.encoder, array, None)
    tokens = pieces(run, [first, *written])
    return Reading(tokens, names, pieces(run, targets[0].tolist()), "ln P of the next token", scores)


def read_frames(
    run: Run, model: Recognizer, array: np.ndarray, target: str | None, window: Window | None
) -> Reading:
    """A sound with the token of each frame: the most probable one, or that of the best alignment of a given text."""
    copies = copies_of(array)
    log_probs, _ = model.frame_log_probs(*copies(1))
    best = allowed(run, log_probs[0].numpy())
    ids = best.argmax(-1)
    if target is not None:
        text = run.tokenizer.encode(target, add_special_tokens=False).ids
        try:
            spans, _ = align_text(best, text)
        except UserError as error:
            raise DataError(f"the target {target!r}: {error}") from None
        ids = np.full(len(best), BLANK)
        for token, (start, stop) in zip(text, spans, strict=True):
            ids[start:stop] = token
    targets = torch.from_numpy(ids.astype(np.int64))[None]

    def scores(batch: int) -> Tensor:
        return picked(model(*copies(batch)), targets)

    names = tuple(
        "blank" if token == BLANK else piece
        for token, piece in zip(ids.tolist(), pieces(run, ids.tolist()), strict=True)
    )
    tokens = source_names(run, model.encoder, array, window)
    return Reading(tokens, (), names, "ln P of the frame's token", scores, window, "frames")


def read_label(
    run: Run,
    model: TextClassifier,
    encoder: SourceEncoder,
    array: np.ndarray,
    target: str | None,
    window: Window | None,
) -> Reading:
    """A picture or a sound with its label: the most probable one, or a given one."""
    if target is not None and target not in run.labels:
        raise DataError(
            f"the target {target!r} is no label of this run; its labels are {', '.join(map(repr, run.labels))}"
        )
    copies = copies_of(array)

    def label_scores(batch: int) -> Tensor:
        source, mask = copies(batch)
        real = source.new_ones(source.shape[:2], dtype=torch.bool) if mask is None else mask
        return model.scores((source, real))[:, None]  # (B, 1, K)

    best = label_scores(1).argmax(-1) if target is None else torch.tensor([[run.labels.index(target)]])
    tokens = source_names(run, encoder, array, window)
    name = run.labels[int(best)]
    unit = "regions" if model.reads == "image" else "frames"
    return Reading(
        tokens,
        (),
        (name,),
        "ln P of the label",
        lambda batch: picked(label_scores(batch), best),
        window,
        unit,
    )


def copies_of(array: np.ndarray) -> Copies:
    """Gives copies of one source."""
    source, mask = stack_sources([array])

    def copies(batch: int) -> tuple[Tensor, Tensor | None]:
        expanded = None if mask is None else mask.expand(batch, -1)
        return source.expand(batch, *source.shape[1:]), expanded

    return copies


def cut_sound(
    run: Run, encoder: SourceEncoder, array: np.ndarray, max_tokens: int | None, number: int
) -> tuple[np.ndarray, Window | None]:
    """The frames of one window of so many positions; a picture is read whole."""
    if array.ndim == 3:
        if number != 1:
            raise DataError(f"window {number}: a picture is read whole; leave the window out")
        return array, None
    total = memory_length(encoder, array)
    step = -(-len(array) // total)  # frames of a position
    context = None if encoder.context is None else encoder.context // step
    window = choose_part(total, (max_tokens, context), number, "frames")
    return (array, None) if window is None else (array[window.start * step : window.stop * step], window)


def memory_length(encoder: SourceEncoder, array: np.ndarray) -> int:
    """How many positions the encoder makes of a source."""
    return encoder.memory_mask(*stack_sources([array])).shape[1]


def source_names(
    run: Run, encoder: SourceEncoder, array: np.ndarray, window: Window | None
) -> tuple[str, ...]:
    """What a reader calls the positions: rows and columns of a picture, seconds of a sound."""
    count = memory_length(encoder, array)
    if run.model.reads != "audio":
        return tuple(encoder.position_names(count))
    seconds = features_of(run).step * len(array) / max(1, count)
    first = 0 if window is None else window.start
    return tuple(f"{(first + index) * seconds:.2f} s" for index in range(count))

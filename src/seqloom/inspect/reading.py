"""A text as a run's model reads it: its tokens, and ln P of what the model is asked for, for any task.

A language model is asked for the next token at each position, a translator for the translation (its own, or a given one), a masked model
for the tokens themselves (its own choice at a mask), a model of labels for the label that it finds most probable. An encoder has no output: its
score is minus the distance of its sentence vector, of norm 1, from the unchanged one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from seqloom.decoding import Decoding
from seqloom.errors import DataError, RunError
from seqloom.inference.completion import complete
from seqloom.inference.mask_filling import encode_whole as encode_masked
from seqloom.inspect.given_texts import check_target, check_text
from seqloom.run import Run
from seqloom.text.encoder import TEXTS
from seqloom.text.records import RecordSchema
from seqloom.text.store import in_memory_store
from seqloom.text.unknown_words import source_words, unknown_id

logger = logging.getLogger("seqloom.inspect")
Score = Callable[[int], Tensor]

WITH_SOURCE = ("translation", "summarization")  # tasks of models that read a source and write a text


class Window(NamedTuple):
    """Which tokens of a long text are read: from `start` up to `stop`."""

    start: int
    stop: int
    total: int
    number: int  # from 1
    windows: int
    unit: str = "tokens"  # or frames

    def __str__(self) -> str:
        return f"{self.unit} {self.start + 1:,} to {self.stop:,} of {self.total:,}: window {self.number:,} of {self.windows:,}"


@dataclass(frozen=True)
class Reading:
    """One text, ready to be run through its model. `scores(batch)` runs `batch` copies of it and returns the score of each target,
    (batch, targets); inside `capture` and `change` its values can be seen and changed, one copy at a time."""

    tokens: tuple[str, ...]  # of the positions that the model, or its decoder, reads
    source: tuple[str, ...]  # of the encoder's positions, empty without an encoder
    targets: tuple[str, ...]  # what is predicted
    score: str  # what the scores are
    scores: Score
    window: Window | None = None  # of a text that is too long to be read at once
    unit: str = "tokens"  # what the tokens are: tokens, regions of a picture, or frames of a sound


def read(
    run: Run,
    text: str | os.PathLike[str],
    target: str | None = None,
    max_tokens: int | None = None,
    window: int = 1,
) -> Reading:
    """The reading of a text, or of a source and its translation; for a model of pictures or sounds `text` is their file, and `target` its
    text or label. Of a text that is longer than `max_tokens` or the model's context one window is read, the first by default.

    >>> seqloom.inspect.read(run, "the cat").tokens
    ('<eos>', 'the', 'cat')
    """
    text = check_text(
        os.fspath(text) if run.model.reads != "text" and isinstance(text, os.PathLike) else text
    )
    check_target(target)
    task = run.model.task
    with torch.no_grad():
        if run.model.reads != "text":
            from seqloom.inspect.source_reading import read_source

            return read_source(run, text, target, max_tokens, window)
        if task in WITH_SOURCE:
            return read_pair(run, text, target, max_tokens, window)
        if target is not None:
            raise RunError(
                f"{run.folder}: the target is for runs that read something else than they write, and this one is for {task}; leave it out"
            )
        if task == "masked language modelling":
            return read_masked(run, text, max_tokens, window)
        if run.model.continues:
            return read_language_model(run, text, max_tokens, window)
        if run.model.predicts_labels:
            return read_labelled(run, text, max_tokens)
        return read_encoder(run, text, max_tokens, window)


def read_given(run: Run, text: str, max_tokens: int | None = None, seed: int = 0) -> Reading:
    """As `read`, but only what the text itself says is scored, so that the mean score is minus the loss: no token after the end; of a
    masked model 15 % of the tokens, drawn with the seed and hidden; of a translator the translation after a tab, if there is
    one, and of a model of files the text after the name.
    """
    with torch.no_grad():
        if (run.model.task in WITH_SOURCE or run.model.reads != "text") and "\t" in text:
            source, _, target = text.partition("\t")
            return read(run, source, target)
        if run.model.task == "masked language modelling":
            return read_hidden(run, text, max_tokens, seed)
        if run.model.continues and text.strip():
            return read_next(run, text, max_tokens)
        return read(run, text, None, max_tokens)


def report_own_targets(run: Run, texts: Sequence[str]) -> None:
    """Says for how many of the texts of `read_given` the model's own output is the target, because none is given after a tab."""
    if run.model.task not in WITH_SOURCE and run.model.reads == "text":
        return
    own = sum("\t" not in text for text in texts)
    if own:
        what = {"translation": "translation", "summarization": "summary"}.get(run.model.task, "target")
        logger.warning(
            "%d of %d lines have no tab and %s: the model's own output is their target, which it finds more probable than a given one",
            own,
            len(texts),
            what,
        )


def one_of(unit: str) -> str:
    """What a reader calls one position: a word, a region, a frame."""
    return {"regions": "region", "frames": "frame"}.get(unit, "word")


def read_next(run: Run, text: str, max_tokens: int | None) -> Reading:
    """Each token of a text after the first, predicted from those before it."""
    most = None if max_tokens is None else max_tokens + 1
    ids, window = choose_window(run.encode([text], as_prompt=True)[0], (most, run.model.context), 1)
    if ids.shape[1] < 2:
        raise DataError(f"{text!r}: one token has no next one; give a longer text")
    targets = ids[:, 1:]

    def scores(batch: int) -> Tensor:
        return picked(run.model(ids[:, :-1].expand(batch, -1))[0], targets)

    tokens = pieces(run, ids[0].tolist())
    return Reading(tokens[:-1], (), tokens[1:], "ln P of the next token", scores, window)


def read_hidden(run: Run, text: str, max_tokens: int | None, seed: int) -> Reading:
    """15 % of the tokens, at least one, hidden and predicted from the others."""
    ids, window = choose_window(torch.tensor([encode_masked(run, text)]), (max_tokens, run.model.context), 1)
    if ids.shape[1] < 3 or run.specials.mask is None:
        raise DataError(f"{text!r}: no word that could be hidden; give a longer text")
    inner = torch.arange(1, ids.shape[1] - 1)
    order = torch.randperm(len(inner), generator=torch.Generator().manual_seed(seed))
    hidden = inner[order[: max(1, round(0.15 * len(inner)))]].sort().values
    targets = ids[:, hidden]
    masked = ids.clone()
    masked[:, hidden] = run.specials.mask

    def scores(batch: int) -> Tensor:
        return picked(run.model(masked.expand(batch, -1))[0][:, hidden], targets)

    names = pieces(run, targets[0].tolist())
    return Reading(pieces(run, masked[0].tolist()), (), names, "ln P of the hidden token", scores, window)


def pieces(run: Run, ids: Sequence[int]) -> tuple[str, ...]:
    """Each token as text; a special token by its name."""
    return tuple(run.decode([token]).strip("\n") or str(run.tokenizer.id_to_token(token)) for token in ids)


def source_pieces(run: Run, words: Sequence[str], ids: Sequence[int]) -> tuple[str, ...]:
    """Each token as text, if ids may be unknown words: those of the source by their place, V + j, or by an id of their own."""
    vocabulary = run.tokenizer.get_vocab_size()
    by_id = {unknown_id(normal_word(run, word)): word for word in words}
    return tuple(
        pieces(run, [token])[0]
        if token < vocabulary
        else by_id.get(token) or "".join(words[token - vocabulary : token - vocabulary + 1])
        for token in ids
    )


def normal_word(run: Run, word: str) -> str:
    """A word as the tokenizer compares it."""
    return run.tokenizer.normalizer.normalize_str(word) if run.tokenizer.normalizer else word


def choose_window(ids: Tensor, limits: Sequence[int | None], number: int) -> tuple[Tensor, Window | None]:
    """The ids (1, T) of one window, and which it is; None if all fit."""
    window = choose_part(ids.shape[1], limits, number)
    return (ids, None) if window is None else (ids[:, window.start : window.stop], window)


def choose_part(total: int, limits: Sequence[int | None], number: int, unit: str = "tokens") -> Window | None:
    """The window of that number of so many tokens; None if all fit."""
    size = max(1, min((limit for limit in limits if limit is not None), default=total))
    count = max(1, -(-total // size))
    if not 1 <= number <= count:
        windows = "1 window" if count == 1 else f"{count:,} windows"
        raise DataError(f"window {number}: the text has {windows} of {size} {unit}; choose one of them")
    if count == 1:
        return None
    start = (number - 1) * size
    stop = min(start + size, total)
    return Window(start, stop, total, number, count, unit)


def picked(logits: Tensor, targets: Tensor) -> Tensor:
    """ln P of the targets (1, T) under the logits (B, T, V): (B, T)."""
    return logits.log_softmax(-1).gather(-1, targets.expand(len(logits), -1)[..., None])[..., 0]


def read_language_model(run: Run, text: str, max_tokens: int | None, number: int) -> Reading:
    ids = run.encode([text], as_prompt=True)[0]
    ids, window = choose_window(ids, (max_tokens, run.model.context), number)
    logits, _ = run.model(ids)
    targets = torch.cat(
        [ids[:, 1:], logits[:, -1:].argmax(-1)], 1
    )  # after the last token: the model's own choice

    def scores(batch: int) -> Tensor:
        return picked(run.model(ids.expand(batch, -1))[0], targets)

    tokens = pieces(run, ids[0].tolist())
    names = pieces(run, targets[0].tolist())
    return Reading(tokens, (), names, "ln P of the next token", scores, window)


def read_pair(run: Run, text: str, target: str | None, max_tokens: int | None, number: int) -> Reading:
    """A source, or one window of it, and its translation, of which at most `max_tokens` are read."""
    source, window = choose_window(run.encode([text])[0], (max_tokens, run.model.source_context), number)
    mask = torch.ones_like(source, dtype=torch.bool)
    if target is None:
        part = text if window is None else run.decode(source[0].tolist())
        limit = None if max_tokens is None else max(1, max_tokens - 1)
        plan = Decoding(max_tokens=limit).plan(run.decoding)
        [[best]] = complete(run, [part], plan)
        written = list(best.ids)
    else:
        written = run.tokenizer.encode(target, add_special_tokens=False).ids
    written = written if max_tokens is None else written[: max(1, max_tokens - 1)]
    targets = torch.tensor([[*written, run.specials.eos]])
    bos = run.specials.bos
    first = run.specials.first_id if bos is None else bos

    def scores(batch: int) -> Tensor:
        start, state, _ = run.model.prepare_prompt(source.expand(batch, -1), mask.expand(batch, -1), first)
        ids = torch.cat([start, targets[:, :-1].expand(batch, -1)], 1)
        return picked(run.model(ids, state)[0], targets)

    spelt = (
        partial(source_pieces, run, source_words(run.tokenizer, text))
        if run.model.copies
        else partial(pieces, run)
    )
    tokens = spelt([first, *written])
    names = spelt(targets[0].tolist())
    read_source = spelt(source[0].tolist())
    return Reading(tokens, read_source, names, "ln P of the next token", scores, window)


def read_masked(run: Run, text: str, max_tokens: int | None, number: int) -> Reading:
    ids = torch.tensor([encode_masked(run, text)])
    ids, window = choose_window(ids, (max_tokens, run.model.context), number)
    best = run.model(ids)[0].argmax(-1)
    is_mask = ids.eq(-1 if run.specials.mask is None else run.specials.mask)
    targets = torch.where(is_mask, best, ids)

    def scores(batch: int) -> Tensor:
        return picked(run.model(ids.expand(batch, -1))[0], targets)

    names = pieces(run, targets[0].tolist())
    return Reading(pieces(run, ids[0].tolist()), (), names, "ln P of the token", scores, window)


def read_encoder(run: Run, text: str, max_tokens: int | None, number: int) -> Reading:
    ids, window = choose_window(run.encode([text])[0], (max_tokens, run.model.context), number)

    def vectors(batch: int) -> Tensor:
        h, _ = run.model.features(ids.expand(batch, -1))
        return torch.nn.functional.normalize(h.mean(1), dim=-1)

    unchanged = vectors(1)

    def scores(batch: int) -> Tensor:
        return -torch.linalg.vector_norm(vectors(batch) - unchanged, dim=-1, keepdim=True)

    tokens = pieces(run, ids[0].tolist())
    return Reading(tokens, (), ("sentence",), "minus the distance from the unchanged vector", scores, window)


def read_labelled(run: Run, text: str, max_tokens: int | None) -> Reading:
    """A text of a model of labels; a tab separates the two texts of a pair, or a question and its passage. At most `max_tokens` words of
    each are read."""
    kinds = [kind for kind in run.config.kinds() if kind in (*TEXTS, "words", "passage")]
    parts = [first_words(part, max_tokens) for part in text.split("\t")]
    if len(parts) != len(kinds):
        raise DataError(f"the model reads {len(kinds)} texts, not {len(parts)}; separate them by a tab")
    record = [part.split() if kind == "words" else part for part, kind in zip(parts, kinds, strict=True)]
    schema = RecordSchema(run.config.kinds(), [run.tokenizer], run.adds_eos, run.labels, with_targets=False)
    data = run.config.data(in_memory_store([record], schema))
    inputs = label_inputs(run, data)

    def run_model(batch: int) -> Tensor:
        """The scores of `batch` copies: (B, targets, choices), or (B, 1) for a number."""
        found = cast(Callable[..., Any], run.model.scores)(*repeat(inputs, batch))
        found = found[0] if isinstance(found, tuple) else found
        return found.view(batch, -1, found.shape[-1]) if found.dim() > 1 else found[:, None]

    tokens = pieces(run, token_ids(inputs))
    scores = run_model(1)
    if scores.dim() == 2:
        return Reading(tokens, (), ("value",), "the predicted number", run_model)
    best = scores.argmax(-1)  # (1, targets)
    chosen = best[0].tolist()
    if run.model.task == "question answering":
        names = [f"{end} at {position}" for end, position in zip(("first", "last"), chosen, strict=True)]
    else:
        names = [run.labels[label] for label in chosen]
    return Reading(
        tokens, (), tuple(names), "ln P of the label", lambda batch: picked(run_model(batch), best)
    )


def first_words(text: str, count: int | None) -> str:
    """The text up to its `count`-th word."""
    words = text.split()
    return text if count is None or len(words) <= count else " ".join(words[:count])


def label_inputs(run: Run, data: Any) -> tuple[Any, ...]:
    """The arguments of the model's `scores` for the only record of the data."""
    batch = data.collate(np.array([0]), **({} if run.model.task == "question answering" else {"full": True}))
    if run.model.task == "tagging":
        return batch.ids, batch.input_mask, batch.word_starts, Shared(batch.char_ids), batch.word_ids
    return batch.inputs


class Shared(NamedTuple):
    """A tensor that all records of a batch share."""

    tensor: Tensor


def token_ids(inputs: Any) -> list[int]:
    """The ids of the first tensor of the inputs."""
    while not isinstance(inputs, Tensor):
        inputs = inputs[0]
    return inputs[0].tolist()


def repeat(inputs: Any, batch: int) -> Any:
    """The inputs of one record, `batch` times."""
    if isinstance(inputs, Shared):
        return inputs.tensor
    if isinstance(inputs, Tensor):
        return inputs.expand(batch, *inputs.shape[1:])
    if isinstance(inputs, tuple):
        copies = [repeat(value, batch) for value in inputs]
        return type(inputs)(*copies) if type(inputs) is not tuple else tuple(copies)
    return inputs

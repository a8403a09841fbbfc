"""What a model is worth on data: likelihood for all, and BLEU and chrF where records are pairs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqloom import nn as equations
from seqloom.decoding import (
    Coverage,
    DecodedSequence,
    DecodeStep,
    Ensemble,
    Greedy,
    Hypothesis,
    Sampler,
    beam_search,
    generate_batch,
    generate_steps,
    parallel_map,
)
from seqloom.run import Run
from seqloom.text.tokenizer import signature


class Completion(NamedTuple):
    """One text that a model wrote: ln P with its end, the score of the search, whether it ended by itself, and what ended it: a stop string
    (`stop`), the model (`end`), the length asked for (`length`) or a full context (`context`). A continuation begins with the space that its
    first word needs after the prompt."""

    text: str
    log_probability: float
    score: float
    finished: bool
    ids: tuple[int, ...] = ()
    log_probabilities: tuple[float, ...] = ()  # ln p of each token and of the end; a beam has none
    ended: str = "end"


def ensemble(runs: Sequence[Run]) -> Run:
    """Several runs as one that averages their probabilities [L6]: models of any kinds, with one tokenizer. It has the first one's config."""
    first, *others = runs
    for other in others:
        if signature(other.tokenizer) != signature(first.tokenizer) or other.adds_eos != first.adds_eos:
            raise ValueError(
                f"{other.folder}: its tokenizer is not that of {first.folder}; an ensemble needs one: train both on the same text, or with "
                f"tokenizer.type=File tokenizer.path={first.folder / 'tokenizer.json'}"
            )
    return (
        Run(first.folder, first.recipe, first.tokenizer, Ensemble([run.model for run in runs]))
        if others
        else first
    )


def generate(
    run: Run,
    texts: Sequence[str],
    pick: Sampler = Greedy(),
    width: int = 1,
    penalty: float = 0.6,
    length: int = 200,
    nbest: int = 1,
    seed: int = 0,
    tokens: int = 4096,
    progress: Callable[[int], None] | None = None,
    coverage: float = 0.0,
    unknown: bool = False,
    repetition: float = 1.0,
    stop: Sequence[str] = (),
    workers: int = 1,
    samples: int = 1,
) -> list[list[Completion]]:
    """What the model writes for each text, `nbest` or `samples` of each: a translator's translation, a language model's continuation.

    Texts of like length go together, as many as fit `tokens`; several `workers` of one thread each share them. `width` above 1 is beam search,
    as is any with a `coverage` penalty. With `unknown` the model may write <unk>, which the text leaves out and `ids` show. `repetition` above 1
    makes what was said less likely; a text ends before the first of the strings `stop`; neither is for beams. The same `seed`
    gives a text the same samples, alone or beside any others.
    """
    if not run.model.generates:
        raise ValueError(
            f"{run.folder}: a {type(run.model).__name__} writes no text; use a language model or a translator"
        )
    search = width > 1 or bool(coverage)
    if search and (repetition != 1 or stop):
        raise ValueError("a beam knows neither --repetition nor --stop; say --beam 1, or leave them out")
    if samples < 1 or (search and samples > 1):
        raise ValueError(
            f"{samples} samples: draw at least 1, and leave a beam, which draws none, without them"
        )
    ban, stops = (
        tuple(token for token in run.banned_ids if not (unknown and token == run.specials.unk)),
        run.specials.stop_ids,
    )
    ids, mask = run.encode(list(texts), as_prompt=run.model.continues)
    check_prompt_length(run, mask.sum(1))
    ids, mask = (part.repeat_interleave(samples, 0) for part in (ids, mask))
    lengths, chances = mask.sum(1), text_seeds(seed, texts, samples)
    order, groups = lengths.argsort(stable=True).tolist(), list[list[int]]()
    while order:
        rows = [order.pop()]
        most = min(
            tokens // max(1, int(lengths[rows[0]]) * max(width, nbest)), -(-len(ids) // max(1, workers))
        )
        while order and len(rows) < most:
            rows.append(order.pop())
        groups.append(rows)

    def work(rows: list[int]) -> list[list[Completion]]:
        longest = int(lengths[rows[0]])
        known = [ids[row, : lengths[row]].tolist() for row in rows]
        readings = [
            Detokenizer(run, texts[row // samples], prompt) for row, prompt in zip(rows, known, strict=True)
        ]
        with torch.inference_mode():
            prompt, state, real = run.model.prepare_prompt(
                ids[rows, :longest], mask[rows, :longest], run.specials.bos
            )
        if search:
            cover = Coverage(coverage, mask[rows, :longest]) if coverage else None
            search_for = partial(
                beam_search,
                width=width,
                max_tokens=length,
                length_penalty=penalty,
                nbest=nbest,
                stop_ids=stops,
                banned=ban,
                coverage=cover,
            )
            found = search_for(run.model, prompt, state, real)
        else:
            endings = [StopStrings(read, stop) for read in readings] if stop else [None] * len(rows)
            write = partial(
                generate_batch,
                run.model,
                sampler=pick,
                stop_ids=stops,
                banned=ban,
                repetition_penalty=repetition,
            )
            until = (lambda place, new: endings[place](new)) if stop else None
            written = write(
                prompt, state, real, max_tokens=length, seed=[chances[row] for row in rows], stop_when=until
            )
            for row, begun, text, ending in zip(rows, known, written, endings, strict=True):
                continue_past_context(run.model, begun, text, length, chances[row], ending, write)
            found = [[text] for text in written]
        if progress:
            progress(len(rows))
        return [
            [to_completion(one, read, stop, length) for one in texts_found]
            for texts_found, read in zip(found, readings, strict=True)
        ]

    results = dict(
        zip(
            (row for rows in groups for row in rows),
            (one for part in parallel_map(work, groups, workers) for one in part),
            strict=True,
        )
    )
    return [
        [one for sample in range(samples) for one in results[number * samples + sample]]
        for number in range(len(texts))
    ]


def text_seeds(seed: int, texts: Sequence[str], samples: int = 1) -> list[int]:
    """A seed for each sample of each text, made of `seed`, the text, how often the same text stands before it, and the number of the sample."""
    before, made = Counter[str](), list[int]()
    for text in texts:
        keys = (f"{seed} {before[text]} {sample} {text}" for sample in range(samples))
        made += [
            int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") for key in keys
        ]
        before[text] += 1
    return made


def check_prompt_length(run: Run, lengths: Tensor) -> None:
    """Find the prompt that is longer than the model's context, counted from 1."""
    context = run.model.context
    if run.model.continues and context is not None and (over := (lengths > context).nonzero()[:, 0].tolist()):
        raise ValueError(
            f"prompt {over[0] + 1} has {lengths[over[0]]} tokens but the model takes {context} at most: shorten the prompt"
        )


class Detokenizer:
    """How new ids read after their prompt: the text of both without the prompt's, so words stand apart as the tokenizer sets them. The last ids of
    the prompt are enough; a translation has no prompt before it."""

    def __init__(self, run: Run, text: str, ids: list[int]):
        self.run, self.before = run, ids[-16:] if run.model.continues else []
        begun = run.decode(self.before)
        self.spaced = text[-1:].isspace() and not begun[-1:].isspace()
        self.unknown = bool(self.before and text.strip() and not begun)

    def __call__(self, ids: list[int]) -> str:
        before = ids[:1] if self.unknown else self.before  # any word shows how the next one stands after it
        begun, whole = self.run.decode(before), self.run.decode([*before, *ids])
        text = whole[len(begun) :] if whole.startswith(begun) else self.run.decode(ids)
        return text.removeprefix(" ") if self.spaced else text


def truncate_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first of the strings."""
    return text[: min((place for one in stop if (place := text.find(one)) >= 0), default=len(text))]


def to_completion(
    found: DecodedSequence | Hypothesis, read: Detokenizer, stop: Sequence[str], length: int
) -> Completion:
    """What was found as text, without its stop string and what came with it."""
    whole, each = read(found.ids), tuple(getattr(found, "log_probabilities", ()))
    text = truncate_at_stop(whole, stop)
    ended = (
        "stop"
        if text != whole
        else "end"
        if found.finished
        else "length"
        if len(found.ids) >= length
        else "context"
    )
    return Completion(
        text,
        found.log_probability,
        getattr(found, "score", found.log_probability),
        found.finished,
        tuple(found.ids),
        each,
        ended,
    )


class StopStrings:
    """Whether new ids end with one of the strings, wherever tokens begin and end. Only the last of them are read."""

    def __init__(self, read: Detokenizer, stop: Sequence[str]):
        if any(not one for one in stop):
            raise ValueError("an empty stop string ends every text at once: give some text, or leave it out")
        self.read, self.stop, self.reach = (
            read,
            stop,
            8 + 4 * max((len(one) for one in stop), default=0),
        )  # a character has four bytes at most

    def __call__(self, ids: list[int]) -> bool:
        text = self.read(ids) if len(ids) <= self.reach else self.read.run.decode(ids[-self.reach :])
        return any(one in text for one in self.stop)


def continue_past_context(
    model: nn.Module,
    prompt: list[int],
    text: DecodedSequence,
    length: int,
    seed: int,
    ending: StopStrings | None,
    write: Callable[..., list[DecodedSequence]],
) -> None:
    """Lengthen a continuation that a full context cut short, from the last half of what fits, as often as it takes."""
    while model.continues and model.context is not None and not text.finished and len(text.ids) < length:
        before = list(text.ids)
        known = torch.tensor([[*prompt, *before]])
        until = None if ending is None else lambda _, ids, before=before: ending(before + ids)
        tail = known[:, -max(1, model.context // 2) :]
        (more,) = write(
            tail,
            max_tokens=length - len(before),
            seed=[seed + len(before)],
            stop_when=until,
            penalty_ids=known,
        )
        text.ids += more.ids
        text.log_probabilities += more.log_probabilities
        text.log_probability, text.finished = text.log_probability + more.log_probability, more.finished


def stream(
    run: Run,
    text: str,
    pick: Sampler,
    length: int,
    seed: int = 0,
    repetition: float = 1.0,
    stop: Sequence[str] = (),
) -> Iterator[str]:
    """What `answer` gives for one text to continue, piece by piece as it comes. What may be the beginning of a stop string waits. Mistakes are
    raised here, before any work."""
    ids, mask = run.encode([text], as_prompt=True)
    check_prompt_length(run, mask.sum(1))
    write = partial(
        generate_steps,
        run.model,
        sampler=pick,
        stop_ids=run.specials.stop_ids,
        banned=run.banned_ids,
        repetition_penalty=repetition,
    )
    (chance,) = text_seeds(seed, [text])
    return stream_text(
        write(ids, max_tokens=length, seed=[chance]),
        ids[0].tolist(),
        StopStrings(Detokenizer(run, text, ids[0].tolist()), stop),
        length,
        chance,
        write,
    )


def stream_text(
    steps: Iterator[DecodeStep],
    known: list[int],
    ending: StopStrings,
    length: int,
    seed: int,
    write: Callable[..., Iterator[DecodeStep]],
) -> Iterator[str]:
    """The steps as text, and what comes after them where a full context cuts them short, as `go_on` has it."""
    begun, written, whole, finished, stop, context = (
        len(known),
        "",
        "",
        False,
        ending.stop,
        ending.read.run.model.context,
    )
    while not finished and (left := begun + length - len(known)) > 0:
        if len(known) > begun:
            earlier = torch.tensor([known])
            steps = write(
                earlier[:, -max(1, context // 2) :],
                max_tokens=left,
                seed=[seed + len(known) - begun],
                penalty_ids=earlier,
            )
        for step in steps:
            if finished := bool(step.finished[0]):
                break
            known.append(int(step.tokens[0]))
            whole = ending.read(known[begun:])
            if finished := bool(stop) and ending(known[begun:]):
                break
            if not whole.endswith("\ufffd"):  # a character may take several tokens
                safe = len(whole) - max(
                    (n for one in stop for n in range(1, len(one)) if whole.endswith(one[:n])), default=0
                )
                yield whole[len(written) : safe]
                written = whole[:safe]
    if len(rest := truncate_at_stop(whole, stop)) > len(written):
        yield rest[len(written) :]


def quantize(run: Run, kind: str = "int8") -> list[str]:
    """Put a run's matrices into bytes, in place: quicker to generate with, a quarter of the memory. Gives the names of those that stay."""
    return equations.quantize(run.model, kind)

"""Translates texts and documents, with tags and placeholders kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Unpack, overload

from seqloom.decoding import Decoding, DecodingOptions, DecodingPlan
from seqloom.inference.alignment import (
    Aligned,
    AlignedSegment,
    align_segments,
    decode_with_spans,
    identity_segment,
)
from seqloom.inference.completion import Completion, Execution, complete
from seqloom.inference.language_check import SwapCheck
from seqloom.inference.lexicon import Lexicon, read_lexicon, replace_unk
from seqloom.inference.one_or_many import Texts, apply, require_texts
from seqloom.inference.segments import map_pieces, without_protected
from seqloom.inference.unknown_text import UnknownText
from seqloom.inference.verbs import wrong_verb
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run


@dataclass(frozen=True)
class Translation(Result):
    """A text and its translations, best first. `alignments` has one for each if they were asked for, else none."""

    source: str
    outputs: tuple[Completion, ...]
    alignments: tuple[Aligned, ...] = ()

    @property
    def text(self) -> str:
        """The best translation."""
        return self.outputs[0].text

    @property
    def alignment(self) -> Aligned | None:
        """The alignment of the best translation, None if it was not asked for."""
        return self.alignments[0] if self.alignments else None


class TranslationJob(NamedTuple):
    """How to translate: the search, whether to align, the lexicon for unknown words (None if the model is to generate none), and how the
    work is shared."""

    plan: DecodingPlan
    align: bool = False
    lexicon: Lexicon | None = None
    execution: Execution = Execution()


class AlignedCompletion(NamedTuple):
    """A translation, and its alignment if it was asked for."""

    completion: Completion
    alignment: Aligned | None


@overload
def translate(
    run: RunLike,
    texts: str,
    *,
    align: bool = False,
    lexicon: Lexicon | str | os.PathLike[str] | None = None,
    **decoding: Unpack[DecodingOptions],
) -> Translation: ...
@overload
def translate(
    run: RunLike,
    texts: Texts,
    *,
    align: bool = False,
    lexicon: Lexicon | str | os.PathLike[str] | None = None,
    **decoding: Unpack[DecodingOptions],
) -> list[Translation]: ...
@overload
def translate(
    run: RunLike,
    texts: Iterator[str],
    *,
    align: bool = False,
    lexicon: Lexicon | str | os.PathLike[str] | None = None,
    **decoding: Unpack[DecodingOptions],
) -> Iterator[Translation]: ...
def translate(
    run: RunLike,
    texts: str | Texts | Iterator[str],
    *,
    align: bool = False,
    lexicon: Lexicon | str | os.PathLike[str] | None = None,
    **decoding: Unpack[DecodingOptions],
) -> Any:
    """The translations of each text, `n` of each, best first.

    The options are those of `Decoding`; what they leave open is the run's own, `run.decoding`: usually a beam of 5. With `align` each
    translation has its word alignment. With a `lexicon`, a mapping or a file, which may be empty, the model may generate unknown words,
    and each is replaced by way of the source word that it attends to. A long text is translated sentence by sentence; tags and placeholders
    are kept. A text of several pieces joins the best of each, then the second best.

    >>> seqloom.translate(translator, "the cat", beam=2).text == seqloom.translate(translator, ["the cat"], beam=2)[0].text
    True
    """
    run = as_run(run)
    words = lexicon if lexicon is None or isinstance(lexicon, Mapping) else read_lexicon(os.fspath(lexicon))
    plan = Decoding().with_options(decoding).plan(run.decoding, allow_unk=words is not None)
    job = TranslationJob(plan, align, words)
    check_job(run, job)
    unknown = UnknownText(run)
    return apply(texts, checked_translation(run, job, unknown), after=unknown.warn)


def check_translates(run: Run, verb: str = "translate") -> None:
    """Raises if a run does not translate, and says what it is for."""
    if not run.model.generates or run.model.continues or run.model.reads != "text":
        raise wrong_verb(run, verb)


def check_job(run: Run, job: TranslationJob) -> None:
    """Raises before any work if the run cannot translate so."""
    check_translates(run)
    if job.align or job.lexicon is not None:
        # Raises for a model without attention.
        align_segments(run, ["a"], [[run.specials.eos]], [[(0, 0)]])


def checked_translation(
    run: Run, job: TranslationJob, unknown: UnknownText
) -> Callable[[list[str]], Sequence[Translation]]:
    """`translate_texts` as a function of the texts, which warns once if they look like the target language and counts what is unknown."""
    check = SwapCheck(run)

    def translate_block(texts: list[str]) -> list[Translation]:
        require_texts(texts)
        check.add(texts)
        return translate_texts(run, job, texts)

    return unknown.watch(translate_block, without_protected)


def translate_texts(run: Run, job: TranslationJob, texts: list[str]) -> list[Translation]:
    """Translates texts piece by piece; tags and placeholders are kept."""
    require_texts(texts)

    def translate_pieces(pieces: list[str]) -> list[list[AlignedCompletion]]:
        if not pieces:
            return []
        return add_alignments(run, pieces, complete(run, pieces, job.plan, job.execution), job)

    joined = map_pieces(texts, translate_pieces, partial(join_pieces, align=job.align))
    return [
        Translation(
            text,
            tuple(found.completion for found in outputs),
            tuple(found.alignment for found in outputs if found.alignment is not None),
        )
        for text, outputs in zip(texts, joined, strict=True)
    ]


def add_alignments(
    run: Run, pieces: list[str], completions: list[list[Completion]], job: TranslationJob
) -> list[list[AlignedCompletion]]:
    """The completions, aligned and with unknown words replaced as the job asks."""
    pairs = [
        (piece, completion)
        for piece, piece_completions in zip(pieces, completions, strict=True)
        for completion in piece_completions
    ]
    needs_alignment = [
        job.align or (job.lexicon is not None and run.specials.unk in completion.ids)
        for _, completion in pairs
    ]
    aligned = align_completions(
        run,
        [pair for pair, needed in zip(pairs, needs_alignment, strict=True) if needed],
        job.lexicon or {},
    )
    results = []
    for (_, completion), needed in zip(pairs, needs_alignment, strict=True):
        alignment = next(aligned) if needed else None
        if alignment is not None:
            completion = replace(completion, text=alignment.target)
        results.append(AlignedCompletion(completion, alignment if job.align else None))
    remaining = iter(results)
    return [[next(remaining) for _ in piece_completions] for piece_completions in completions]


def align_completions(
    run: Run, pairs: Sequence[tuple[str, Completion]], lexicon: Lexicon
) -> Iterator[Aligned]:
    """The alignment of each source and its completion, with unknown words replaced."""
    if not pairs:
        return
    texts = [decode_with_spans(run.tokenizer, completion.ids) for _, completion in pairs]
    segments = align_segments(
        run,
        [source for source, _ in pairs],
        [completion.ids for _, completion in pairs],
        [spans for _, spans in texts],
    )
    for (source, completion), (text, _), segment in zip(pairs, texts, segments, strict=True):
        yield replace_unk(source, text, completion.ids, segment, lexicon, run.specials.unk)


def join_pieces(parts: list[str | list[AlignedCompletion]], align: bool) -> list[AlignedCompletion]:
    """The translations of a text from those of its pieces; parts that are strings are kept between them."""
    counts = [len(part) for part in parts if not isinstance(part, str)]
    joined = []
    for rank in range(max(counts, default=1)):
        chosen = [part if isinstance(part, str) else part[min(rank, len(part) - 1)] for part in parts]
        completion = join_completions([part if isinstance(part, str) else part.completion for part in chosen])
        joined.append(AlignedCompletion(completion, join_alignments(chosen) if align else None))
    return joined


def join_completions(parts: list[str | Completion]) -> Completion:
    """The translations of the pieces of one text as one: probabilities and scores add up."""
    pieces = [part for part in parts if isinstance(part, Completion)]
    return Completion(
        text="".join(part if isinstance(part, str) else part.text for part in parts),
        ids=tuple(token for piece in pieces for token in piece.ids),
        logprob=sum(piece.logprob for piece in pieces),
        token_logprobs=tuple(logprob for piece in pieces for logprob in piece.token_logprobs),
        score=sum(piece.score for piece in pieces),
        finish_reason="length" if any(piece.finish_reason == "length" for piece in pieces) else "stop",
        stop_reason=next((piece.stop_reason for piece in pieces if piece.stop_reason), None),
    )


def join_alignments(parts: list[str | AlignedCompletion]) -> Aligned:
    """The alignments of the parts of one text as one."""
    source = ""
    target = ""
    segments: list[AlignedSegment] = []
    for part in parts:
        if isinstance(part, str):
            aligned = Aligned(part, part, [identity_segment(part)])
        elif part.alignment is not None:
            aligned = part.alignment
        else:
            continue
        segments += [segment.shifted(len(source), len(target)) for segment in aligned.segments]
        source += aligned.source
        target += aligned.target
    return Aligned(source, target, segments)

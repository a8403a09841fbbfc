"""Translates lines and documents, with tags and placeholders kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from seqloom.decoding import Decoding
from seqloom.inference.alignment import (
    Aligned,
    AlignedSegment,
    align,
    align_segments,
    decode_with_spans,
    identity_segment,
)
from seqloom.inference.generation import Completion, Execution, ensemble, generate
from seqloom.inference.lexicon import Lexicon, learn_lexicon, read_lexicon, replace_unk
from seqloom.inference.search_report import explain_translation
from seqloom.inference.segments import map_pieces
from seqloom.run import Run

__all__ = [
    "TranslateOptions",
    "Translation",
    "align",
    "ensemble",
    "explain_translation",
    "learn_lexicon",
    "read_lexicon",
    "translate",
    "translate_stream",
]

MAX_LINES = 256  # lines translated together
MAX_TOKENS = 200  # of a translation


class TranslateOptions(NamedTuple):
    """How to translate. `n` is the number of translations of each text. A `lexicon`, which may be empty, replaces unknown
    words; with None the model generates none."""

    beam: int = 5
    length_penalty: float = 0.6
    n: int = 1
    coverage_penalty: float = 0.0
    align: bool = False
    lexicon: Lexicon | None = None
    workers: int = 1

    @property
    def decoding(self) -> Decoding:
        return Decoding(
            max_tokens=MAX_TOKENS,
            beam=self.beam,
            length_penalty=self.length_penalty,
            coverage_penalty=self.coverage_penalty,
            n=self.n,
            allow_unk=self.lexicon is not None,
        )

    def check(self, run: Run) -> None:
        """Raises before any work if the run cannot translate with these options."""
        if run.model.continues:
            raise ValueError(
                f"{run.folder}: the run is a language model; translate with a run of transformer, rnnsearch or the like"
            )
        if self.n > self.beam:
            raise ValueError(f"{self.n} translations need a beam at least as wide: use --beam {self.n}")
        if self.align or self.lexicon is not None:
            # Raises for a model without attention.
            align_segments(run, ["a"], [[run.specials.eos]], [[(0, 0)]])


class Translation(NamedTuple):
    """One translation: ln P with its end, the score of the search, whether it ended by itself, and its alignment."""

    text: str
    log_probability: float
    score: float
    finished: bool
    alignment: Aligned | None = None


def translate(
    run: Run,
    texts: Sequence[str],
    beam: int = 5,
    length_penalty: float = 0.6,
    n: int = 1,
    coverage_penalty: float = 0.0,
    align: bool = False,
    lexicon: Lexicon | None = None,
) -> list[list[Translation]]:
    """`n` translations of each text, best first.

    A text of several pieces joins the best of each, then the second best. With a `lexicon`, which may be empty, the model
    may generate unknown words, and each is replaced by way of the source word it attends to.
    """
    options = TranslateOptions(beam, length_penalty, n, coverage_penalty, align, lexicon)
    return translate_with(run, texts, options)


def translate_with(run: Run, texts: Sequence[str], options: TranslateOptions) -> list[list[Translation]]:
    """Translates texts piece by piece; tags and placeholders are kept."""
    options.check(run)

    def translate_pieces(pieces: list[str]) -> list[list[Translation]]:
        if not pieces:
            return []
        completions = generate(run, pieces, options.decoding, Execution(workers=options.workers))
        return add_alignments(run, pieces, completions, options)

    return map_pieces(texts, translate_pieces, partial(join_pieces, align=options.align))


def add_alignments(
    run: Run, pieces: list[str], completions: list[list[Completion]], options: TranslateOptions
) -> list[list[Translation]]:
    """The completions as translations, aligned and with unknown words replaced as the options ask."""
    pairs = [
        (piece, completion)
        for piece, piece_completions in zip(pieces, completions, strict=True)
        for completion in piece_completions
    ]
    needs_alignment = [
        options.align or (options.lexicon is not None and run.specials.unk in completion.ids)
        for _, completion in pairs
    ]
    aligned = align_completions(
        run, [pair for pair, needed in zip(pairs, needs_alignment, strict=True) if needed], options
    )
    translations = []
    for (_, completion), needed in zip(pairs, needs_alignment, strict=True):
        alignment = next(aligned) if needed else None
        text = completion.text if alignment is None else alignment.target
        _, log_probability, score, finished, *_ = completion
        translations.append(
            Translation(text, log_probability, score, finished, alignment if options.align else None)
        )
    remaining = iter(translations)
    return [[next(remaining) for _ in piece_completions] for piece_completions in completions]


def align_completions(
    run: Run, pairs: Sequence[tuple[str, Completion]], options: TranslateOptions
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
        yield replace_unk(source, text, completion.ids, segment, options.lexicon or {}, run.specials.unk)


def join_pieces(parts: list[str | list[Translation]], align: bool) -> list[Translation]:
    """The translations of a text from those of its pieces; parts that are strings are kept between them."""
    counts = [len(part) for part in parts if not isinstance(part, str)]
    joined = []
    for rank in range(max(counts, default=1)):
        chosen = [part if isinstance(part, str) else part[min(rank, len(part) - 1)] for part in parts]
        translations = [part for part in chosen if isinstance(part, Translation)]
        joined.append(
            Translation(
                "".join(part if isinstance(part, str) else part.text for part in chosen),
                sum(translation.log_probability for translation in translations),
                sum(translation.score for translation in translations),
                all(translation.finished for translation in translations),
                join_alignments(chosen) if align else None,
            )
        )
    return joined


def join_alignments(parts: list[str | Translation]) -> Aligned:
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


def translate_stream(
    run: Run, lines: Iterable[str], options: TranslateOptions = TranslateOptions()
) -> Iterator[tuple[str, list[Translation]]]:
    """Each line with its translations, in order.

    The first block is one line, each next one twice as long: a reader at the other end of a pipe sees the first result
    soon, and memory does not grow with the document.
    """
    block: list[str] = []
    size = 1
    for line in lines:
        block.append(line.rstrip("\r\n"))
        if len(block) == size:
            yield from zip(block, translate_with(run, block, options), strict=True)
            block = []
            size = min(2 * size, MAX_LINES)
    if block:
        yield from zip(block, translate_with(run, block, options), strict=True)

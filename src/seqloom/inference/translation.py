"""Translation for use: lines, documents, PO and TMX files, with tags and placeholders kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from seqloom.inference.alignment import (
    Aligned,
    AlignedSegment,
    align,
    align_segments,
    decode_with_spans,
    identity_segment,
)
from seqloom.inference.generation import Completion, ensemble, generate
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

BLOCK = 256  # most lines worked on together


class TranslateOptions(NamedTuple):
    """How to translate: the beam, its penalties, how many translations of each text; whether to align them, and what to put in the place
    of unknown words: a lexicon, which may be empty, or None to have none written; how many workers share the texts."""

    width: int = 5
    penalty: float = 0.6
    nbest: int = 1
    coverage: float = 0.0
    align: bool = False
    lexicon: Lexicon | None = None
    workers: int = 1

    def check(self, run: Run) -> None:
        """Find what does not fit before any work."""
        if run.model.continues:
            raise ValueError(
                f"{run.folder}: the run is a language model; translate with a run of transformer, rnnsearch or the like"
            )
        if self.nbest > self.width:
            raise ValueError(
                f"{self.nbest} translations need a beam at least as wide: say --beam {self.nbest}"
            )
        if self.align or self.lexicon is not None:
            align_segments(run, ["a"], [[run.specials.eos]], [[(0, 0)]])  # a model without attention says so


class Translation(NamedTuple):
    """One translation: ln P with its end, the score of the search, whether it ended by itself, and its alignment where asked."""

    text: str
    log_probability: float
    score: float
    finished: bool
    aligned: Aligned | None = None


def translate(
    run: Run,
    texts: Sequence[str],
    width: int = 5,
    penalty: float = 0.6,
    nbest: int = 1,
    coverage: float = 0.0,
    align: bool = False,
    lexicon: Lexicon | None = None,
) -> list[list[Translation]]:
    """`nbest` translations of each text, best first. A text of several pieces joins the best of each, then the second best. With a
    `lexicon`, {} included, the model may write unknown words, and each is replaced through what it looked at."""
    return translate_with(run, texts, TranslateOptions(width, penalty, nbest, coverage, align, lexicon))


def translate_with(run: Run, texts: Sequence[str], search: TranslateOptions) -> list[list[Translation]]:
    search.check(run)

    def work(parts: list[str]) -> list[list[Translation]]:
        if not parts:
            return []
        width, penalty, nbest, coverage, _, lexicon, workers = search
        options = partial(
            generate,
            width=width,
            penalty=penalty,
            nbest=nbest,
            length=200,
            coverage=coverage,
            unknown=lexicon is not None,
        )
        written = options(run, parts, workers=workers)
        return add_alignments(run, parts, written, search)

    return map_pieces(texts, work, partial(join_pieces, aligned=search.align))


def add_alignments(
    run: Run, parts: list[str], written: list[list[Completion]], search: TranslateOptions
) -> list[list[Translation]]:
    """The answers with unknown words replaced and alignments, those that need either."""
    flat = [(part, one) for part, found in zip(parts, written, strict=True) for one in found]
    needed = [search.align or (search.lexicon is not None and run.specials.unk in one.ids) for _, one in flat]
    chosen = [pair for pair, wanted in zip(flat, needed, strict=True) if wanted]
    texts = [decode_with_spans(run.tokenizer, one.ids) for _, one in chosen]
    made = iter(
        align_segments(
            run, [part for part, _ in chosen], [one.ids for _, one in chosen], [spans for _, spans in texts]
        )
        if chosen
        else ()
    )
    spellings = iter(text for text, _ in texts)
    results = []
    for (part, one), wanted in zip(flat, needed, strict=True):
        found = (
            replace_unk(part, next(spellings), one.ids, next(made), search.lexicon or {}, run.specials.unk)
            if wanted
            else None
        )
        results.append(
            Translation(found.target if found else one.text, *one[1:4], found if search.align else None)
        )
    rest = iter(results)
    return [[next(rest) for _ in found] for found in written]


def join_pieces(parts: list[str | list[Translation]], aligned: bool) -> list[Translation]:
    """One list of translations from those of the pieces; what is kept stands between them."""
    worked = [part for part in parts if not isinstance(part, str)]
    result = []
    for rank in range(max((len(part) for part in worked), default=1)):
        chosen = [part if isinstance(part, str) else part[min(rank, len(part) - 1)] for part in parts]
        told = [one for one in chosen if isinstance(one, Translation)]
        text = "".join(one if isinstance(one, str) else one.text for one in chosen)
        numbers = (
            sum(one.log_probability for one in told),
            sum(one.score for one in told),
            all(one.finished for one in told),
        )
        result.append(Translation(text, *numbers, join_alignments(chosen) if aligned else None))
    return result


def join_alignments(chosen: list[str | Translation]) -> Aligned:
    """The pieces' alignments as one."""
    source, target, found = "", "", list[AlignedSegment]()
    for one in chosen:
        piece = Aligned(one, one, [identity_segment(one)]) if isinstance(one, str) else one.aligned
        found += [block.moved(len(source), len(target)) for block in piece.blocks]
        source, target = source + piece.source, target + piece.target
    return Aligned(source, target, found)


def translate_stream(
    run: Run, lines: Iterable[str], search: TranslateOptions = TranslateOptions()
) -> Iterator[tuple[str, list[Translation]]]:
    """Each line with its translations, in order. The first block is one line, each next one twice as long: a reader at the other end of a
    pipe waits for little, and memory does not grow with the document."""
    block: list[str] = []
    size = 1
    for line in lines:
        block.append(line.rstrip("\r\n"))
        if len(block) == size:
            yield from zip(block, translate_with(run, block, search), strict=True)
            block, size = [], min(2 * size, BLOCK)
    if block:
        yield from zip(block, translate_with(run, block, search), strict=True)

"""Translation for use: lines, documents, PO and TMX files, with tags and placeholders kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from seqloom.evaluate import Answer, answer
from seqloom.run import Run
from seqloom.translate.reason import reason
from seqloom.translate.segments import through

__all__ = ["reason", "stream", "translate"]
BLOCK = 256  # most lines worked on together


def translate(run: Run, texts: Sequence[str], width: int = 5, penalty: float = 0.6, nbest: int = 1) -> list[list[Answer]]:
    """`nbest` translations of each text, best first. A text of several pieces joins the best of each, then the second best."""
    if run.model.continues:
        raise ValueError(f"{run.folder}: the run is a language model; translate with a run of transformer, rnnsearch or the like")
    if nbest > width:
        raise ValueError(f"{nbest} translations need a beam at least as wide: say --beam {nbest}")

    def work(parts: list[str]) -> list[list[Answer]]:
        return answer(run, parts, width=width, penalty=penalty, nbest=nbest, length=200) if parts else []

    return through(texts, work, joined)


def joined(parts: list[str | list[Answer]]) -> list[Answer]:
    """One list of answers from those of the pieces; what is kept stands between them."""
    worked = [part for part in parts if not isinstance(part, str)]
    result = []
    for rank in range(max((len(part) for part in worked), default=1)):
        chosen = [part if isinstance(part, str) else part[min(rank, len(part) - 1)] for part in parts]
        told = [one for one in chosen if isinstance(one, Answer)]
        text = "".join(one if isinstance(one, str) else one.text for one in chosen)
        result.append(Answer(text, sum(one.log_probability for one in told), sum(one.score for one in told), all(one.finished for one in told)))
    return result


def stream(run: Run, lines: Iterable[str], width: int, penalty: float, nbest: int) -> Iterator[tuple[str, list[Answer]]]:
    """Each line with its translations, in order. The first block is one line, each next one twice as long: a reader at the other end of a
    pipe waits for little, and memory does not grow with the document."""
    block: list[str] = []
    size = 1
    for line in lines:
        block.append(line.rstrip("\r\n"))
        if len(block) == size:
            yield from zip(block, translate(run, block, width, penalty, nbest), strict=True)
            block, size = [], min(2 * size, BLOCK)
    if block:
        yield from zip(block, translate(run, block, width, penalty, nbest), strict=True)

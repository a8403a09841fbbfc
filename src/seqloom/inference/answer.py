"""`answer`: generation with its options as keyword arguments, under their older names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

from seqloom.decoding import Decoding, Greedy, Sampler
from seqloom.inference.generation import Completion, Execution, generate
from seqloom.run import Run


class AnswerOptions(TypedDict, total=False):
    """The options of `answer` and what they are in `Decoding` and `Execution`."""

    width: int  # beam
    penalty: float  # length_penalty
    length: int  # max_tokens
    nbest: int  # n of beam search
    samples: int  # n of sampling
    seed: int
    coverage: float  # coverage_penalty
    unknown: bool  # allow_unk
    repetition: float  # repetition_penalty
    stop: Sequence[str]
    tokens: int  # batch_tokens
    workers: int
    progress: Callable[[int], None] | None


def answer(
    run: Run, texts: Sequence[str], pick: Sampler = Greedy(), **options: Unpack[AnswerOptions]
) -> list[list[Completion]]:
    """The texts that the model generates for each of `texts`, `nbest` or `samples` of each; see `Decoding` for the options.

    A translator translates, a language model continues. `width` above 1 or a `coverage` penalty means beam search.
    """
    unknown = sorted(set(options) - set(AnswerOptions.__annotations__))
    if unknown:
        raise TypeError(
            f"answer has no option {unknown[0]!r}: choose from {', '.join(AnswerOptions.__annotations__)}"
        )
    width = options.get("width", 1)
    coverage = options.get("coverage", 0.0)
    samples = options.get("samples", 1)
    searches = width > 1 or bool(coverage)
    if searches and samples > 1:
        raise ValueError("beam search does not sample: drop --samples or use --beam 1")
    decoding = Decoding(
        max_tokens=options.get("length", 200),
        sampler=pick,
        beam=width,
        length_penalty=options.get("penalty", 0.6),
        coverage_penalty=coverage,
        repetition_penalty=options.get("repetition", 1.0),
        n=options.get("nbest", 1) if searches else samples,
        stop=tuple(options.get("stop", ())),
        seed=options.get("seed", 0),
        allow_unk=options.get("unknown", False),
    )
    execution = Execution(options.get("tokens", 4096), options.get("workers", 1), options.get("progress"))
    return generate(run, texts, decoding, execution)

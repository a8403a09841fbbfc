"""Functions under their older names, with their older options and results: `answer` is now `generate` and `translate`, `fill` is
`fill_mask`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypedDict, Unpack

from seqloom.decoding import DecodingPlan, Greedy, Sampler
from seqloom.errors import UserError
from seqloom.inference.completion import Completion, Execution, complete
from seqloom.inference.mask_filling import Filled, fill_texts
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


class AnsweredText(NamedTuple):
    """One generated text, under the older names of its fields."""

    text: str
    log_probability: float
    score: float
    finished: bool
    ids: tuple[int, ...] = ()
    log_probabilities: tuple[float, ...] = ()
    finish_reason: str = "end"  # stop, end, length or context


def answered_text(found: Completion) -> AnsweredText:
    finished = found.finish_reason == "stop"
    if found.finish_reason == "length":
        reason = found.stop_reason or "length"
    else:
        reason = "end" if found.stop_reason is None else "stop"
    return AnsweredText(
        found.text, found.logprob, found.score, finished, found.ids, found.token_logprobs, reason
    )


def answer(
    run: Run, texts: Sequence[str], pick: Sampler = Greedy(), **options: Unpack[AnswerOptions]
) -> list[list[AnsweredText]]:
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
        raise UserError("beam search does not sample: drop --samples or use --beam 1")
    plan = DecodingPlan(
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
    found = complete(run, texts, plan, execution)
    return [[answered_text(completion) for completion in completions] for completions in found]


def fill(run: Run, texts: str | Sequence[str], top: int = 5, batch: int = 32) -> list[Filled]:
    """The `top` most probable tokens for each [MASK] of each text; a list for one text too."""
    return fill_texts(run, top, [texts] if isinstance(texts, str) else list(texts), batch)

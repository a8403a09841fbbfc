"""`generate`: texts that continue prompts, all at once or as a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack, overload

from seqloom.decoding import Decoding, DecodingOptions, DecodingPlan
from seqloom.inference.completion import Completion, Execution, complete
from seqloom.inference.one_or_many import Texts, apply, require_texts
from seqloom.inference.unknown_text import UnknownText
from seqloom.inference.verbs import wrong_verb
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run


@dataclass(frozen=True)
class Generation(Result):
    """A prompt and the texts that continue it."""

    prompt: str
    outputs: tuple[Completion, ...]

    @property
    def text(self) -> str:
        """The text of the first output, without the prompt."""
        return self.outputs[0].text


@overload
def generate(
    run: RunLike, prompts: str, settings: Decoding | None = None, **decoding: Unpack[DecodingOptions]
) -> Generation: ...
@overload
def generate(
    run: RunLike, prompts: Texts, settings: Decoding | None = None, **decoding: Unpack[DecodingOptions]
) -> list[Generation]: ...
@overload
def generate(
    run: RunLike,
    prompts: Iterator[str],
    settings: Decoding | None = None,
    **decoding: Unpack[DecodingOptions],
) -> Iterator[Generation]: ...
def generate(
    run: RunLike,
    prompts: str | Texts | Iterator[str],
    settings: Decoding | None = None,
    **decoding: Unpack[DecodingOptions],
) -> Any:
    """The texts with which a language model continues each prompt, `n` of each.

    The options are those of `Decoding`, as one value or as keyword arguments, which win; what both leave open is the run's own,
    `run.decoding`. The text of a prompt does not depend on the prompts beside it. An iterator is read as its results are used;
    sampling remembers a hash of each of its prompts, because a repeated prompt gets another text.

    >>> seqloom.generate(run, "the king", max_tokens=3, temperature=0).text
    ' a a a'
    >>> [len(found.outputs) for found in seqloom.generate(run, ["the", "a"], max_tokens=2, n=3, top_p=0.9)]
    [3, 3]
    """
    run = as_run(run)
    check_continues(run)
    plan = (settings or Decoding()).with_options(decoding).plan(run.decoding)
    work = partial(generations, run, plan, Execution(), Counter[int]())
    unknown = UnknownText(run)
    return apply(prompts, unknown.watch(work), noun="prompt", after=unknown.warn)


def generations(
    run: Run, plan: DecodingPlan, execution: Execution, occurrences: Counter[int] | None, prompts: list[str]
) -> list[Generation]:
    """The texts that a language model generates for several prompts."""
    require_texts(prompts, "prompt")
    results = complete(run, prompts, plan, execution, occurrences)
    return [
        Generation(prompt, tuple(completions)) for prompt, completions in zip(prompts, results, strict=True)
    ]


def check_continues(run: Run, verb: str = "generate") -> None:
    """Raises if a run does not continue texts, which the verb needs."""
    if not run.model.continues:
        raise wrong_verb(run, verb)

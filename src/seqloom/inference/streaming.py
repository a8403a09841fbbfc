"""`stream`: the text that `generate` returns for one prompt, token by token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Unpack

import torch

from seqloom.decoding import DecodeStep, Decoding, DecodingOptions, DecodingPlan
from seqloom.errors import UserError
from seqloom.inference.completion import TokenGenerator, check_prompt_length, last_half, text_seeds
from seqloom.inference.detokenizer import Detokenizer, StopStrings
from seqloom.inference.generation import check_continues
from seqloom.inference.one_or_many import require_texts
from seqloom.inference.unknown_text import UnknownText
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run


@dataclass(frozen=True)
class Token(Result):
    """A generated token. `text` is what it adds to the text that is certain so far: it is empty while a character is incomplete, or
    while the text may be the beginning of a stop string."""

    text: str
    id: int
    logprob: float


def stream(
    run: RunLike, prompt: str, settings: Decoding | None = None, **decoding: Unpack[DecodingOptions]
) -> Iterator[Token]:
    """The tokens of the text that `generate` returns for one prompt, as they are generated; their texts joined are its text.

    Wrong arguments raise here, before any work.

    >>> "".join(token.text for token in seqloom.stream(run, "the king", max_tokens=3, temperature=0))
    ' a a a'
    """
    run = as_run(run)
    check_continues(run)
    require_texts([prompt], "prompt")
    plan = (settings or Decoding()).with_options(decoding).plan(run.decoding)
    if plan.searches or plan.n > 1:
        raise UserError("only one text can be streamed, and not that of a beam search: drop n and beam")
    return warned_at_the_end(run, prompt, stream_plan(run, prompt, plan))


def warned_at_the_end(run: Run, prompt: str, tokens: Iterator[Token]) -> Iterator[Token]:
    """The tokens, and after them a warning if the run does not know the text of the prompt."""
    yield from tokens
    unknown = UnknownText(run)
    unknown.add(prompt)
    unknown.warn()


def stream_plan(run: Run, prompt: str, plan: DecodingPlan) -> Iterator[Token]:
    """`stream` with its options in a plan."""
    ids, mask = run.encode([prompt], as_prompt=True)
    check_prompt_length(run, mask.sum(1))
    generator = TokenGenerator(run, plan)
    [seed] = text_seeds(plan.seed, [prompt])
    prompt_ids = ids[0].tolist()
    ending = StopStrings(Detokenizer(run, prompt, prompt_ids), plan.stop)
    return stream_tokens(generator, generator.steps(ids, plan.max_tokens, seed), prompt_ids, ending, seed)


def stream_tokens(
    generator: TokenGenerator,
    steps: Iterator[DecodeStep],
    prompt_ids: list[int],
    ending: StopStrings,
    seed: int,
) -> Iterator[Token]:
    """The steps as tokens, continued past a full context as `continue_past_context` does."""
    context = generator.run.model.context
    new_ids: list[int] = []
    held: list[Token] = []  # tokens whose text is not certain yet
    text = ""
    num_streamed = 0
    finished = False
    while not finished and len(new_ids) < generator.plan.max_tokens:
        if new_ids and context is not None:
            history = torch.tensor([[*prompt_ids, *new_ids]])
            remaining = generator.plan.max_tokens - len(new_ids)
            steps = generator.steps(last_half(history, context), remaining, seed + len(new_ids), history)
        for step in steps:
            finished = bool(step.finished[0])
            if finished:
                break
            new_ids.append(int(step.tokens[0]))
            token = Token("", new_ids[-1], float(step.log_probabilities[0]))
            text = ending.detokenizer(new_ids)
            finished = bool(ending.strings) and ending(new_ids)
            # A character may take several tokens.
            certain = num_streamed if text.endswith("\ufffd") else ending.complete_length(text)
            if finished or certain < len(text):
                held.append(token)
                if finished:
                    break
                continue
            yield from held
            held = []
            yield dataclasses.replace(token, text=text[num_streamed:])
            num_streamed = len(text)
    if held:
        yield from held[:-1]
        yield dataclasses.replace(held[-1], text=ending.truncate(text)[num_streamed:])

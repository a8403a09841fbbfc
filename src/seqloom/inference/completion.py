"""The texts that a model generates for prompts: a language model continues them, a translator translates them.

This is what `generate`, `translate` and `evaluate` have in common: `complete` takes prompts and a plan.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from seqloom.decoding import (
    Coverage,
    DecodedSequence,
    DecodeStep,
    DecodingPlan,
    Hypothesis,
    beam_search,
    generate_batch,
    generate_steps,
    parallel_map,
)
from seqloom.errors import UserError
from seqloom.inference.detokenizer import Detokenizer, StopStrings, truncate_at_stop
from seqloom.nn.layer import State
from seqloom.results import Result
from seqloom.run import Run


@dataclass(frozen=True)
class Completion(Result):
    """One generated text. `logprob` is ln P of the text with its end, `score` that of the search.

    `token_logprobs` has ln p of each token and of the end; it is empty after beam search. `finish_reason` is "stop" if the model or a
    stop string ended the text, and "length" if `max_tokens` or a full context did. `stop_reason` is the stop string, or "context" for a
    full context, else None. A continuation begins with the space that its first word needs after the prompt.
    """

    text: str
    ids: tuple[int, ...]
    logprob: float
    token_logprobs: tuple[float, ...]
    score: float
    finish_reason: Literal["stop", "length"]
    stop_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The text as JSON, without `token_logprobs` if there are none."""
        return {name: value for name, value in super().to_dict().items() if name != "token_logprobs" or value}


@dataclass(frozen=True)
class Execution:
    """How a call runs, which does not change its result: tokens per batch, the number of workers with one thread each, and
    a callback that receives the number of prompts done."""

    batch_tokens: int = 4096
    workers: int = 1
    progress: Callable[[int], None] | None = None


class TokenGenerator:
    """Generates token by token with one run and one set of options."""

    def __init__(self, run: Run, plan: DecodingPlan):
        self.run = run
        self.plan = plan
        self.banned = banned_ids(run, plan.allow_unk)

    def steps(
        self, ids: Tensor, max_tokens: int, seed: int, penalty_ids: Tensor | None = None
    ) -> Iterator[DecodeStep]:
        """The continuation of one prompt (1, T), step by step."""
        return generate_steps(
            self.run.model,
            ids,
            sampler=self.plan.sampler,
            max_tokens=max_tokens,
            stop_ids=self.run.specials.stop_ids,
            banned=self.banned,
            seed=[seed],
            repetition_penalty=self.plan.repetition_penalty,
            penalty_ids=penalty_ids,
        )

    def generate(
        self, ids: Tensor, mask: Tensor | None, seeds: list[int], endings: list[StopStrings]
    ) -> list[DecodedSequence]:
        """The texts for a batch of prompts (B, T), or of other sources. A full context does not end a continuation."""
        prompt, state, prompt_mask = prepare_prompt(self.run, ids, mask)
        texts = generate_batch(
            self.run.model,
            prompt,
            state,
            prompt_mask,
            sampler=self.plan.sampler,
            max_tokens=self.plan.max_tokens,
            stop_ids=self.run.specials.stop_ids,
            banned=self.banned,
            seed=seeds,
            repetition_penalty=self.plan.repetition_penalty,
            stop_when=(lambda row, new_ids: endings[row](new_ids)) if self.plan.stop else None,
        )
        if self.run.model.continues and mask is not None:
            for row, text in enumerate(texts):
                self.continue_past_context(ids[row][mask[row]].tolist(), text, seeds[row], endings[row])
        return texts

    def continue_past_context(
        self, prompt_ids: list[int], text: DecodedSequence, seed: int, ending: StopStrings
    ) -> None:
        """Continues a text that a full context has cut, from the last half of the context, as often as needed."""
        model = self.run.model
        while model.context is not None and self.remaining(text) > 0:
            previous = list(text.ids)
            history = torch.tensor([[*prompt_ids, *previous]])

            def stop_when(_: int, new_ids: list[int], previous: list[int] = previous) -> bool:
                return ending(previous + new_ids)

            [more] = generate_batch(
                model,
                last_half(history, model.context),
                sampler=self.plan.sampler,
                max_tokens=self.remaining(text),
                stop_ids=self.run.specials.stop_ids,
                banned=self.banned,
                seed=[seed + len(previous)],
                repetition_penalty=self.plan.repetition_penalty,
                stop_when=stop_when if self.plan.stop else None,
                penalty_ids=history,
            )
            text.ids += more.ids
            text.log_probabilities += more.log_probabilities
            text.log_probability += more.log_probability
            text.finished = more.finished

    def remaining(self, text: DecodedSequence) -> int:
        """How many tokens a text may still get."""
        return 0 if text.finished else self.plan.max_tokens - len(text.ids)

    def search(self, ids: Tensor, mask: Tensor | None) -> list[list[Hypothesis]]:
        """The best texts of a beam search for a batch of prompts (B, T), or of other sources."""
        prompt, state, prompt_mask = prepare_prompt(self.run, ids, mask)
        coverage = None
        if self.plan.coverage_penalty:
            memory_mask = self.run.model.memory_mask(ids, mask)
            if memory_mask is not None:
                coverage = Coverage(self.plan.coverage_penalty, memory_mask)
        return beam_search(
            self.run.model,
            prompt,
            state,
            prompt_mask,
            width=self.plan.beam,
            max_tokens=self.plan.max_tokens,
            length_penalty=self.plan.length_penalty,
            nbest=self.plan.n,
            stop_ids=self.run.specials.stop_ids,
            banned=self.banned,
            coverage=coverage,
        )


def complete(
    run: Run,
    prompts: Sequence[str],
    plan: DecodingPlan = DecodingPlan(),
    execution: Execution = Execution(),
    occurrences: Counter[int] | None = None,
) -> list[list[Completion]]:
    """The `plan.n` texts that the model generates for each prompt: a continuation, or a translation.

    Prompts of similar length form a batch; the result does not depend on the batch. `occurrences` counts the prompts of earlier
    calls, so that a prompt that is repeated later in a stream gets another sample, as it does in a list.
    """
    if run.model.reads != "text":
        raise wrong_input(run)
    if not run.model.generates:
        raise UserError(
            f"{run.folder}: a {type(run.model).__name__} cannot generate text; use a language model or a translator"
        )
    samples = 1 if plan.searches else plan.n
    ids, mask = run.encode(list(prompts), as_prompt=run.model.continues)
    check_prompt_length(run, mask.sum(1))
    ids = ids.repeat_interleave(samples, 0)
    mask = mask.repeat_interleave(samples, 0)
    lengths = mask.sum(1)
    seeds = text_seeds(plan.seed, prompts, samples, occurrences)
    generator = TokenGenerator(run, plan)

    def generate_group(rows: list[int]) -> list[list[Completion]]:
        max_length = int(lengths[rows[0]])
        group_ids, group_mask = ids[rows, :max_length], mask[rows, :max_length]
        detokenizers = [
            Detokenizer(run, prompts[row // samples], ids[row, : lengths[row]].tolist()) for row in rows
        ]
        results: Sequence[Sequence[DecodedSequence | Hypothesis]]
        if plan.searches:
            results = generator.search(group_ids, group_mask)
        else:
            endings = [StopStrings(detokenizer, plan.stop) for detokenizer in detokenizers]
            texts = generator.generate(group_ids, group_mask, [seeds[row] for row in rows], endings)
            results = [[text] for text in texts]
        if execution.progress:
            execution.progress(len(rows))
        return [
            [to_completion(text, detokenizer, plan) for text in row_texts]
            for row_texts, detokenizer in zip(results, detokenizers, strict=True)
        ]

    rows_per_worker = -(-len(ids) // max(1, execution.workers))
    groups = length_groups(lengths, execution.batch_tokens // plan.beam, rows_per_worker)
    completions: dict[int, list[Completion]] = {}
    for rows, results in zip(groups, parallel_map(generate_group, groups, execution.workers), strict=True):
        completions.update(zip(rows, results, strict=True))
    return [
        [text for row in range(first, first + samples) for text in completions[row]]
        for first in range(0, len(ids), samples)
    ]


def wrong_input(run: Run) -> UserError:
    """The error for a text that is given to a model of something else."""
    from seqloom.inference.verbs import wrong_verb

    return wrong_verb(run, "a text")


def prepare_prompt(run: Run, ids: Tensor, mask: Tensor | None) -> tuple[Tensor, State, Tensor | None]:
    """The ids to feed first, the state before them, and their mask."""
    bos = run.specials.bos
    with torch.inference_mode():
        return run.model.prepare_prompt(ids, mask, run.specials.first_id if bos is None else bos)


def banned_ids(run: Run, allow_unk: bool = False) -> tuple[int, ...]:
    """The ids that must not be generated."""
    return tuple(token for token in run.banned_ids if not (allow_unk and token == run.specials.unk))


def length_groups(lengths: Tensor, batch_tokens: int, max_rows: int) -> list[list[int]]:
    """Groups of rows of similar length, longest first, with at most `batch_tokens` tokens and `max_rows` rows each."""
    order = lengths.argsort(stable=True).tolist()
    groups: list[list[int]] = []
    while order:
        rows = [order.pop()]
        limit = min(batch_tokens // max(1, int(lengths[rows[0]])), max_rows)
        while order and len(rows) < limit:
            rows.append(order.pop())
        groups.append(rows)
    return groups


def text_seeds(
    seed: int, texts: Sequence[str], samples: int = 1, occurrences: Counter[int] | None = None
) -> list[int]:
    """A seed for each sample of each text, hashed from `seed`, the text, how often it occurred before, and the sample's
    index. `occurrences` counts texts by their hash."""
    counts = Counter[int]() if occurrences is None else occurrences
    seeds: list[int] = []
    for text in texts:
        key = hash64(text)
        seeds += [hash64(f"{seed} {counts[key]} {sample} {text}") for sample in range(samples)]
        counts[key] += 1
    return seeds


def hash64(text: str) -> int:
    """64 bits that depend on every character of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def check_prompt_length(run: Run, lengths: Tensor) -> None:
    """Raises if a prompt is longer than the model's context; prompts are counted from 1."""
    context = run.model.context
    if not run.model.continues or context is None:
        return
    too_long = (lengths > context).nonzero()[:, 0].tolist()
    if too_long:
        raise UserError(
            f"prompt {too_long[0] + 1} has {lengths[too_long[0]]} tokens but the model takes {context} at most: "
            "shorten the prompt"
        )


def to_completion(
    result: DecodedSequence | Hypothesis, detokenizer: Detokenizer, plan: DecodingPlan
) -> Completion:
    """The result as text, without its stop string and what follows it."""
    full_text = detokenizer(result.ids)
    text = truncate_at_stop(full_text, plan.stop)
    stop_reason = None
    if text != full_text:
        stop_reason = next(string for string in plan.stop if full_text.startswith(string, len(text)))
    elif not result.finished and len(result.ids) < plan.max_tokens:
        stop_reason = "context"
    return Completion(
        text,
        tuple(result.ids),
        result.log_probability,
        () if isinstance(result, Hypothesis) else tuple(result.log_probabilities),
        result.score if isinstance(result, Hypothesis) else result.log_probability,
        "stop" if result.finished or text != full_text else "length",
        stop_reason,
    )


def last_half(ids: Tensor, context: int) -> Tensor:
    """The last ids (1, T) that fill half of a context."""
    return ids[:, -max(1, context // 2) :]

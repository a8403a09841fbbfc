"""Generates text with a run: a language model continues its prompts, a translator translates them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from seqloom import nn as equations
from seqloom.decoding import (
    Coverage,
    DecodedSequence,
    DecodeStep,
    Decoding,
    Ensemble,
    Hypothesis,
    beam_search,
    generate_batch,
    generate_steps,
    parallel_map,
)
from seqloom.inference.detokenizer import Detokenizer, StopStrings, truncate_at_stop
from seqloom.models import Model
from seqloom.nn.state import State
from seqloom.run import Run
from seqloom.text.tokenizer import signature


class Completion(NamedTuple):
    """One generated text.

    `log_probability` is ln P of the text with its end, `score` that of the search. `finished` says whether the text ended by
    itself; `finish_reason` is a stop string (`stop`), the model (`end`), the maximum length (`length`) or a full context
    (`context`). A continuation begins with the space that its first word needs after the prompt.
    """

    text: str
    log_probability: float
    score: float
    finished: bool
    ids: tuple[int, ...] = ()
    log_probabilities: tuple[float, ...] = ()  # ln p of each token and of the end; empty after beam search
    finish_reason: str = "end"


@dataclass(frozen=True)
class Execution:
    """How a call runs, which does not change its result: tokens per batch, the number of workers with one thread each, and
    a callback that receives the number of prompts done."""

    batch_tokens: int = 4096
    workers: int = 1
    progress: Callable[[int], None] | None = None


def ensemble(runs: Sequence[Run]) -> Run:
    """Several runs as one that averages their probabilities [L6]: models of any types, with one tokenizer. It has the
    config of the first."""
    first, *others = runs
    if not others:
        return first
    for run in others:
        if signature(run.tokenizer) != signature(first.tokenizer) or run.adds_eos != first.adds_eos:
            raise ValueError(
                f"{run.folder}: its tokenizer differs from that of {first.folder}, but an ensemble needs one tokenizer: "
                "train both on the same text, or with "
                f"tokenizer.type=File tokenizer.path={first.folder / 'tokenizer.json'}"
            )
    # An Ensemble is not a Model, but has all that generation reads of one.
    model = cast(Model, Ensemble([run.model for run in runs]))
    return Run(first.folder, first.recipe, first.tokenizer, model)


class TokenGenerator:
    """Generates token by token with one run and one set of options."""

    def __init__(self, run: Run, decoding: Decoding):
        self.run = run
        self.decoding = decoding
        self.banned = banned_ids(run, decoding.allow_unk)

    def steps(
        self, ids: Tensor, max_tokens: int, seed: int, penalty_ids: Tensor | None = None
    ) -> Iterator[DecodeStep]:
        """The continuation of one prompt (1, T), step by step."""
        return generate_steps(
            self.run.model,
            ids,
            sampler=self.decoding.sampler,
            max_tokens=max_tokens,
            stop_ids=self.run.specials.stop_ids,
            banned=self.banned,
            seed=[seed],
            repetition_penalty=self.decoding.repetition_penalty,
            penalty_ids=penalty_ids,
        )

    def generate(
        self, ids: Tensor, mask: Tensor, seeds: list[int], endings: list[StopStrings]
    ) -> list[DecodedSequence]:
        """The texts for a batch of prompts (B, T). A full context does not end a continuation."""
        prompt, state, prompt_mask = prepare_prompt(self.run, ids, mask)
        texts = generate_batch(
            self.run.model,
            prompt,
            state,
            prompt_mask,
            sampler=self.decoding.sampler,
            max_tokens=self.decoding.max_tokens,
            stop_ids=self.run.specials.stop_ids,
            banned=self.banned,
            seed=seeds,
            repetition_penalty=self.decoding.repetition_penalty,
            stop_when=(lambda row, new_ids: endings[row](new_ids)) if self.decoding.stop else None,
        )
        for row, text in enumerate(texts):
            self.continue_past_context(ids[row][mask[row]].tolist(), text, seeds[row], endings[row])
        return texts

    def continue_past_context(
        self, prompt_ids: list[int], text: DecodedSequence, seed: int, ending: StopStrings
    ) -> None:
        """Continues a text that a full context has cut, from the last half of the context, as often as needed."""
        model = self.run.model
        while model.continues and model.context is not None and self.remaining(text) > 0:
            previous = list(text.ids)
            history = torch.tensor([[*prompt_ids, *previous]])

            def stop_when(_: int, new_ids: list[int], previous: list[int] = previous) -> bool:
                return ending(previous + new_ids)

            [more] = generate_batch(
                model,
                last_half(history, model.context),
                sampler=self.decoding.sampler,
                max_tokens=self.remaining(text),
                stop_ids=self.run.specials.stop_ids,
                banned=self.banned,
                seed=[seed + len(previous)],
                repetition_penalty=self.decoding.repetition_penalty,
                stop_when=stop_when if self.decoding.stop else None,
                penalty_ids=history,
            )
            text.ids += more.ids
            text.log_probabilities += more.log_probabilities
            text.log_probability += more.log_probability
            text.finished = more.finished

    def remaining(self, text: DecodedSequence) -> int:
        """How many tokens a text may still get."""
        return 0 if text.finished else self.decoding.max_tokens - len(text.ids)

    def search(self, ids: Tensor, mask: Tensor) -> list[list[Hypothesis]]:
        """The best texts of a beam search for a batch of prompts (B, T)."""
        prompt, state, prompt_mask = prepare_prompt(self.run, ids, mask)
        coverage_penalty = self.decoding.coverage_penalty
        return beam_search(
            self.run.model,
            prompt,
            state,
            prompt_mask,
            width=self.decoding.beam,
            max_tokens=self.decoding.max_tokens,
            length_penalty=self.decoding.length_penalty,
            nbest=self.decoding.n,
            stop_ids=self.run.specials.stop_ids,
            banned=self.banned,
            coverage=Coverage(coverage_penalty, mask) if coverage_penalty else None,
        )


def generate(
    run: Run,
    prompts: Sequence[str],
    decoding: Decoding = Decoding(),
    execution: Execution = Execution(),
) -> list[list[Completion]]:
    """The `decoding.n` texts that the model generates for each prompt: a continuation, or a translation.

    Prompts of similar length form a batch; the result does not depend on the batch.
    """
    if not run.model.generates:
        raise ValueError(
            f"{run.folder}: a {type(run.model).__name__} cannot generate text; use a language model or a translator"
        )
    samples = 1 if decoding.searches else decoding.n
    ids, mask = run.encode(list(prompts), as_prompt=run.model.continues)
    check_prompt_length(run, mask.sum(1))
    ids = ids.repeat_interleave(samples, 0)
    mask = mask.repeat_interleave(samples, 0)
    lengths = mask.sum(1)
    seeds = text_seeds(decoding.seed, prompts, samples)
    generator = TokenGenerator(run, decoding)

    def generate_group(rows: list[int]) -> list[list[Completion]]:
        max_length = int(lengths[rows[0]])
        group_ids, group_mask = ids[rows, :max_length], mask[rows, :max_length]
        detokenizers = [
            Detokenizer(run, prompts[row // samples], ids[row, : lengths[row]].tolist()) for row in rows
        ]
        results: Sequence[Sequence[DecodedSequence | Hypothesis]]
        if decoding.searches:
            results = generator.search(group_ids, group_mask)
        else:
            endings = [StopStrings(detokenizer, decoding.stop) for detokenizer in detokenizers]
            texts = generator.generate(group_ids, group_mask, [seeds[row] for row in rows], endings)
            results = [[text] for text in texts]
        if execution.progress:
            execution.progress(len(rows))
        return [
            [to_completion(text, detokenizer, decoding) for text in row_texts]
            for row_texts, detokenizer in zip(results, detokenizers, strict=True)
        ]

    rows_per_worker = -(-len(ids) // max(1, execution.workers))
    groups = length_groups(lengths, execution.batch_tokens // decoding.beam, rows_per_worker)
    completions: dict[int, list[Completion]] = {}
    for rows, results in zip(groups, parallel_map(generate_group, groups, execution.workers), strict=True):
        completions.update(zip(rows, results, strict=True))
    return [
        [text for row in range(first, first + samples) for text in completions[row]]
        for first in range(0, len(ids), samples)
    ]


def prepare_prompt(run: Run, ids: Tensor, mask: Tensor) -> tuple[Tensor, State, Tensor | None]:
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


def text_seeds(seed: int, texts: Sequence[str], samples: int = 1) -> list[int]:
    """A seed for each sample of each text, hashed from `seed`, the text, how often it occurred before, and the sample's
    index."""
    occurrences = Counter[str]()
    seeds: list[int] = []
    for text in texts:
        for sample in range(samples):
            key = f"{seed} {occurrences[text]} {sample} {text}"
            digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
            seeds.append(int.from_bytes(digest, "little"))
        occurrences[text] += 1
    return seeds


def check_prompt_length(run: Run, lengths: Tensor) -> None:
    """Raises if a prompt is longer than the model's context; prompts are counted from 1."""
    context = run.model.context
    if not run.model.continues or context is None:
        return
    too_long = (lengths > context).nonzero()[:, 0].tolist()
    if too_long:
        raise ValueError(
            f"prompt {too_long[0] + 1} has {lengths[too_long[0]]} tokens but the model takes {context} at most: "
            "shorten the prompt"
        )


def to_completion(
    result: DecodedSequence | Hypothesis, detokenizer: Detokenizer, decoding: Decoding
) -> Completion:
    """The result as text, without its stop string and what follows it."""
    full_text = detokenizer(result.ids)
    text = truncate_at_stop(full_text, decoding.stop)
    if text != full_text:
        finish_reason = "stop"
    elif result.finished:
        finish_reason = "end"
    elif len(result.ids) >= decoding.max_tokens:
        finish_reason = "length"
    else:
        finish_reason = "context"
    return Completion(
        text,
        result.log_probability,
        result.score if isinstance(result, Hypothesis) else result.log_probability,
        result.finished,
        tuple(result.ids),
        () if isinstance(result, Hypothesis) else tuple(result.log_probabilities),
        finish_reason,
    )


def stream(run: Run, prompt: str, decoding: Decoding) -> Iterator[str]:
    """The text that `generate` returns for one prompt to continue, piece by piece as it is generated.

    Text that may be the beginning of a stop string is held back. Wrong arguments raise here, before any work.
    """
    ids, mask = run.encode([prompt], as_prompt=True)
    check_prompt_length(run, mask.sum(1))
    generator = TokenGenerator(run, decoding)
    [seed] = text_seeds(decoding.seed, [prompt])
    prompt_ids = ids[0].tolist()
    ending = StopStrings(Detokenizer(run, prompt, prompt_ids), decoding.stop)
    return stream_text(generator, generator.steps(ids, decoding.max_tokens, seed), prompt_ids, ending, seed)


def stream_text(
    generator: TokenGenerator,
    steps: Iterator[DecodeStep],
    prompt_ids: list[int],
    ending: StopStrings,
    seed: int,
) -> Iterator[str]:
    """The steps as text, continued past a full context as `continue_past_context` does."""
    context = generator.run.model.context
    new_ids: list[int] = []
    text = ""
    num_streamed = 0
    finished = False
    while not finished and len(new_ids) < generator.decoding.max_tokens:
        if new_ids and context is not None:
            history = torch.tensor([[*prompt_ids, *new_ids]])
            remaining = generator.decoding.max_tokens - len(new_ids)
            steps = generator.steps(last_half(history, context), remaining, seed + len(new_ids), history)
        for step in steps:
            finished = bool(step.finished[0])
            if finished:
                break
            new_ids.append(int(step.tokens[0]))
            text = ending.detokenizer(new_ids)
            finished = bool(ending.strings) and ending(new_ids)
            if finished:
                break
            if not text.endswith("\ufffd"):  # a character may take several tokens
                complete = ending.complete_length(text)
                yield text[num_streamed:complete]
                num_streamed = complete
    rest = ending.truncate(text)[num_streamed:]
    if rest:
        yield rest


def last_half(ids: Tensor, context: int) -> Tensor:
    """The last ids (1, T) that fill half of a context."""
    return ids[:, -max(1, context // 2) :]


def quantize(run: Run, kind: str = "int8") -> list[str]:
    """Quantises a run's matrices to int8, in place: faster generation and a quarter of the memory. Returns the names of the
    matrices that stay in float32."""
    return equations.quantize(run.model, kind)

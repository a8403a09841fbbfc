"""Answers that a language model samples for prompts under its chat template, with their ids: for rollouts, preferences and measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.buckets import pad
from seqloom.batches.prompts import PromptBatch
from seqloom.decoding import RandomSampler, generate_steps
from seqloom.errors import UserError
from seqloom.inference.verbs import wrong_verb
from seqloom.models.base import Model
from seqloom.objectives.policy import token_log_probs
from seqloom.run import Run
from seqloom.text.chat_field import ChatEncoder
from seqloom.text.chat_records import Message, Messages
from seqloom.text.chats import PLAIN

ROWS = 64  # answers that are sampled or scored at a time


class SampledTexts(NamedTuple):
    """Texts after their prompts."""

    tokens: Tensor  # (B, T + 1)
    mask: Tensor  # (B, T): the targets that were sampled
    finished: Tensor  # (B,): whether the text has ended by itself


class Answer(NamedTuple):
    """An answer to a prompt: its text, the ids of the prompt, and those of the answer with its end."""

    text: str
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    finished: bool


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """The model without dropout and gradients, and then as it was."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def sample_texts(
    model: Model, prompts: PromptBatch, max_tokens: int, stop_ids: tuple[int, ...], seed: int | Sequence[int]
) -> SampledTexts:
    """y ~ π(· | x) for each prompt, its end included."""
    steps = [
        step.tokens
        for step in generate_steps(
            model,
            prompts.ids,
            mask=prompts.mask,
            sampler=RandomSampler(),
            max_tokens=max_tokens,
            stop_ids=stop_ids,
            banned=(),
            seed=seed,
        )
    ]
    texts = torch.stack(steps, 1)  # (B, S), -1 after the end
    sizes = (texts >= 0).sum(1, keepdim=True)
    starts = prompts.mask.sum(1, keepdim=True)
    positions = torch.arange(int((starts + sizes).max()), device=texts.device)
    is_text = (positions >= starts) & (positions < starts + sizes)  # (B, T + 1)
    tokens = torch.zeros_like(is_text, dtype=torch.long)
    tokens[:, : prompts.ids.shape[1]] = torch.where(prompts.mask, prompts.ids, 0)[:, : tokens.shape[1]]
    tokens = tokens.masked_scatter(is_text, texts[texts >= 0])
    ends = texts.gather(1, sizes - 1)[:, 0]
    finished = torch.isin(ends, torch.tensor(stop_ids, dtype=torch.long, device=ends.device))
    return SampledTexts(tokens, is_text[:, 1:], finished)


def prompt_ids(run: Run, prompts: Sequence[str | Messages]) -> list[list[int]]:
    """The ids after which the run answers; a text is a question of the user."""
    if not run.model.continues:
        raise wrong_verb(run, "generate")
    encoder = ChatEncoder(run.tokenizer, run.chat_template or PLAIN)
    chats = [[Message("user", prompt)] if isinstance(prompt, str) else prompt for prompt in prompts]
    rows = encoder.prompts(chats)
    context = run.model.context
    for number, row in enumerate(rows, 1):
        if context is not None and len(row) > context:
            raise UserError(
                f"prompt {number} has {len(row)} tokens but the model takes {context}: shorten it"
            )
    return rows


def sample_answers(
    run: Run, prompts: Sequence[str | Messages], n: int = 1, max_tokens: int = 64, seed: int = 0
) -> list[list[Answer]]:
    """`n` answers to each prompt, sampled at temperature 1."""
    rows = [row for row in prompt_ids(run, prompts) for _ in range(n)]
    answers: list[Answer] = []
    for first in range(0, len(rows), ROWS):
        part = rows[first : first + ROWS]
        ids, mask = pad([np.array(row) for row in part])
        seeds = [seed * 1_000_003 + first + number for number in range(len(part))]
        with evaluating(run.model):
            texts = sample_texts(
                run.model, PromptBatch.of(ids, mask), max_tokens, run.specials.stop_ids, seeds
            )
        for row, tokens, is_text, finished in zip(
            part, texts.tokens, texts.mask, texts.finished, strict=True
        ):
            new = tokens[1:][is_text].tolist()
            words = [index for index in new if index not in run.specials.without_text]
            text = run.tokenizer.decode(words, skip_special_tokens=True).strip()
            answers.append(Answer(text, tuple(row), tuple(new), bool(finished)))
    return [answers[first : first + n] for first in range(0, len(answers), n)]


def padded_answers(answers: Sequence[Answer]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Tokens (B, T), the real ones, and those of the answer, a few rows at a time."""
    for first in range(0, len(answers), ROWS):
        part = answers[first : first + ROWS]
        tokens, real = pad([np.array(answer.prompt_ids + answer.ids) for answer in part])
        starts = torch.tensor([[len(answer.prompt_ids)] for answer in part])
        yield tokens, real, real & (torch.arange(tokens.shape[1]) >= starts)


def answer_log_probs(run: Run, answers: Sequence[Answer]) -> list[float]:
    """ln P(answer | prompt) under another run with the same tokenizer."""
    found: list[float] = []
    for tokens, _, is_answer in padded_answers(answers):
        with evaluating(run.model):
            log_probs, _ = token_log_probs(run.model, tokens[:, :-1], tokens[:, 1:], is_answer[:, 1:])
        found += log_probs.sum(1).tolist()
    return found


def answer_scores(run: Run, answers: Sequence[Answer]) -> list[float]:
    """The rewards of answers under a run that the preset `reward` has trained."""
    if run.model.task != "reward":
        raise UserError(
            f"{run.folder}: a {type(run.model).__name__} scores no answers; train one with: "
            "seqloom train reward --from RUN --data PREFERENCES"
        )
    found: list[float] = []
    for tokens, real, _ in padded_answers(answers):
        with evaluating(run.model):
            found += run.model.scores((tokens, real)).tolist()  # type: ignore[operator]
    return found

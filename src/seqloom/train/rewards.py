"""Rewards of sampled texts  [I8]: by rule, by a trained run, by the answer of the data, or by a function of the user's own.

A reward of texts is a callable (prompts, texts, answers) → numbers; `answers` are those of the data, empty if there are none. A function
of the user's own, reward(prompt, text) or reward(prompt, text, answer), comes from `--code FILE.py`: a config can name it, but never
import it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from seqloom.batches.prompts import PromptBatch
from seqloom.errors import ConfigError, UserError
from seqloom.text.tokenizer import special_tokens


class TextReward:
    """How good each text is as an answer to its prompt."""

    def __call__(
        self, prompts: Sequence[str], texts: Sequence[str], answers: Sequence[str]
    ) -> Sequence[float]:
        raise NotImplementedError


class Length(TextReward):
    """r = -|words - target| / target: texts of `target` words."""

    def __init__(self, target: int = 20):
        if target < 1:
            raise ConfigError("rollouts.reward.target must be at least 1")
        self.target = target

    def __call__(
        self, prompts: Sequence[str], texts: Sequence[str], answers: Sequence[str]
    ) -> Sequence[float]:
        return [-abs(len(text.split()) - self.target) / self.target for text in texts]


class Regex(TextReward):
    """r = 1 if the pattern occurs in the text, else 0."""

    def __init__(self, pattern: str):
        try:
            self.pattern = re.compile(pattern)
        except re.error as error:
            raise ConfigError(
                f"rollouts.reward.pattern: {pattern!r} is not a regular expression ({error}); correct it"
            ) from None

    def __call__(
        self, prompts: Sequence[str], texts: Sequence[str], answers: Sequence[str]
    ) -> Sequence[float]:
        return [float(self.pattern.search(text) is not None) for text in texts]


class ExactAnswer(TextReward):
    """r = 1 if the text is the answer of the data, but for case, spaces and a full stop at its end, else 0."""

    def __call__(
        self, prompts: Sequence[str], texts: Sequence[str], answers: Sequence[str]
    ) -> Sequence[float]:
        return [
            float(normalized(text) == normalized(answer)) for text, answer in zip(texts, answers, strict=True)
        ]


def normalized(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(".! ")


class RewardRun(TextReward):
    """r = scale · (the score of a run that the preset `reward` has trained)"""

    def __init__(self, run: str, scale: float = 1.0):
        from seqloom.run import load

        self.run = load(Path(run))
        if self.run.model.task != "reward":
            raise ConfigError(
                f"{run}: a {type(self.run.model).__name__} scores no answers; train one with: "
                "seqloom train reward --from RUN --data PREFERENCES"
            )
        self.scale = scale

    @torch.no_grad()
    def scores(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Ids of prompts with their texts, (B, T), and the real ones → (B,)"""
        scorer: Any = self.run.model.eval()
        return self.scale * scorer.scores((tokens, mask)).float()


class LabelRun(TextReward):
    """r = P(label | text) of a classifier run"""

    def __init__(self, run: str, label: str):
        from seqloom.run import load

        self.run = load(Path(run))
        self.label = label
        if self.run.model.task != "classification" or label not in self.run.labels:
            known = ", ".join(self.run.labels) or "none"
            raise ConfigError(f"{run}: no classifier with the label {label!r}; its labels are {known}")

    def __call__(
        self, prompts: Sequence[str], texts: Sequence[str], answers: Sequence[str]
    ) -> Sequence[float]:
        from seqloom.inference.prediction import predict

        found: list[Any] = predict(self.run, [text.strip() or "." for text in texts])
        return [row.probabilities[self.label] for row in found]


REWARDS: dict[str, Callable[..., Any]] = {
    part.__name__: part for part in (Length, Regex, ExactAnswer, RewardRun, LabelRun)
}


class OwnReward(TextReward):
    """A function of the user's own, called for each text."""

    def __init__(self, function: Callable[..., float]):
        self.function = function
        self.takes_answer = len(inspect.signature(function).parameters) > 2

    def __call__(
        self, prompts: Sequence[str], texts: Sequence[str], answers: Sequence[str]
    ) -> Sequence[float]:
        name = self.function.__name__
        values = []
        for prompt, text, answer in zip(prompts, texts, answers, strict=True):
            arguments = (prompt, text, answer) if self.takes_answer else (prompt, text)
            try:
                values.append(float(self.function(*arguments)))
            except Exception as error:  # the function is the user's: it can fail in any way
                raise UserError(f"{name}({prompt!r}, {text!r}): {type(error).__name__}: {error}") from error
        return values


def reward_names(functions: Sequence[Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The names that `rollouts.reward` may use: the built-in rewards and the user's own functions."""

    def factory(function: Callable[..., float]) -> Callable[[], TextReward]:
        def make() -> TextReward:
            return OwnReward(function)

        return make

    return {**REWARDS, **{function.__name__: factory(function) for function in functions}}


class RewardOnIds:
    """A reward of texts, for sampled ids: (tokens, mask, prompts) → (B,)"""

    def __init__(self, reward: TextReward, tokenizer: Tokenizer):
        self.reward = reward
        self.tokenizer = tokenizer
        self.specials = special_tokens(tokenizer).without_text
        if isinstance(reward, RewardRun) and reward.run.tokenizer.to_str() != tokenizer.to_str():
            raise ConfigError(
                f"{reward.run.folder}: the reward run has another tokenizer than the policy; train it with --from the same run"
            )

    def __call__(self, tokens: Tensor, mask: Tensor, prompts: PromptBatch) -> Tensor:
        if isinstance(self.reward, RewardRun):
            lengths = prompts.mask.sum(1, keepdim=True) + mask.sum(1, keepdim=True)
            return self.reward.scores(tokens, torch.arange(tokens.shape[1]) < lengths)
        texts = self.decode(tokens[:, 1:], mask)
        values = self.reward(
            self.decode(prompts.ids, prompts.mask), texts, self.decode(prompts.answers, prompts.answer_mask)
        )
        return torch.tensor([float(value) for value in values])

    def decode(self, ids: Tensor, mask: Tensor) -> list[str]:
        """The texts of the ids where the mask is True, without special tokens."""
        rows = [
            [index for index in row[keep].tolist() if index not in self.specials]
            for row, keep in zip(ids, mask, strict=True)
        ]
        return [text.strip() for text in self.tokenizer.decode_batch(rows, skip_special_tokens=True)]

"""Training from feedback  [I8, T16]: the reference policy, the rewards and the sampled data that a config asks for.

A config with the section `rollouts` samples its batches (`rollouts.py`); the objective `dpo` compares with the reference. The reference
is the run that training begins from: a frozen copy of its weights, or, under LoRA, the model itself without its adapters.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from seqloom import config_tree, objectives
from seqloom.batches.batch import Batches, Cursor
from seqloom.batches.preference import PreferenceBatch
from seqloom.errors import ConfigError
from seqloom.inference.answers import evaluating
from seqloom.inference.feedback_numbers import feedback_numbers
from seqloom.measure.number import Number
from seqloom.models.base import Model
from seqloom.nn import lora
from seqloom.objectives.policy import token_log_probs
from seqloom.run_config import Config
from seqloom.text.store import Store
from seqloom.text.tokenizer import special_tokens
from seqloom.train import finetune
from seqloom.train.options import TrainJob
from seqloom.train.process import ProcessGroup
from seqloom.train.rewards import ExactAnswer, RewardOnIds, reward_names
from seqloom.train.rollouts import Reference, RolloutOptions, Rollouts

NO_ANSWERS = (
    "the prompts have no answers, and rollouts.reward=ExactAnswer rewards nothing else: give another reward, as in "
    "'rollouts.reward={type: RewardRun, run: RUN}', {type: LabelRun, run: RUN, label: LABEL}, {type: Regex, pattern: PATTERN}, "
    "{type: Length, target: 20}, or a function of --code FILE.py"
)


def has_answers(store: Store) -> bool:
    """Whether a record has an answer that a text can be compared with."""
    return any(field.num_tokens > 0 for field in store.columns("text"))


def needs_reference(config: Config) -> bool:
    """Whether training compares the model with the run it begins from."""
    return "rollouts" in config.tree or config.objective.func is objectives.dpo


def held_out_numbers(job: TrainJob, eval_batches: int, shared: dict[str, object]) -> list[Number]:
    """The scores on at most `eval_batches` held-out batches, by preferences or rewards."""
    return feedback_numbers(job.model, job.objective, islice(job.valid.sequential(), eval_batches), shared)


def rollout_options(config: Config) -> RolloutOptions:
    """The section `rollouts` of a config."""
    names = reward_names(config.own_functions)
    return config_tree.options(RolloutOptions, config.tree["rollouts"], names, "rollouts", config.lines)()


class FeedbackData:
    """Makes the data of a training, and keeps the reference that they share."""

    def __init__(
        self, config: Config, model: Model, tokenizer: Tokenizer, group: ProcessGroup = ProcessGroup()
    ):
        self.config = config
        self.model = model
        self.tokenizer = tokenizer
        self.group = group
        self.reference: Reference | None = None
        self.options: RolloutOptions | None = None
        if not needs_reference(config):
            return
        if not finetune.FinetuneOptions(config).source:
            raise ConfigError(
                f"{config.lines.source}: training from feedback begins from a language model: pass --from RUN"
            )
        self.reference = make_reference(config, model, tokenizer)
        if "rollouts" in config.tree:
            self.options = rollout_options(config)

    def data(self, store: Store) -> Batches:
        """The batches of a store, with what the objective needs of the reference."""
        data = self.config.data(store)
        if self.reference is None:
            return data
        if self.options is None:
            return ReferenceScores(data, self.reference)
        reward = RewardOnIds(self.options.reward(), self.tokenizer)
        if isinstance(reward.reward, ExactAnswer) and not has_answers(store):
            raise ConfigError(NO_ANSWERS)
        stop_ids = special_tokens(self.tokenizer).stop_ids
        return Rollouts(data, self.model, self.reference, reward, self.options, stop_ids, self.group)


def make_reference(config: Config, model: Model, tokenizer: Tokenizer) -> Reference:
    """ln π_ref by the model without its adapters if it has some, else by a copy of the run that training begins from."""
    if any(isinstance(part, lora.LoRA) for part in model.modules()):
        return partial(reference_log_probs, model, True)
    state = torch.get_rng_state()
    frozen = config.model(tokenizer.get_vocab_size())
    torch.set_rng_state(state)
    finetune.load_matching(frozen, finetune.FinetuneOptions(config).source)
    return partial(reference_log_probs, frozen.eval().requires_grad_(False), False)


def reference_log_probs(
    model: Model, has_adapters: bool, ids: Tensor, targets: Tensor, mask: Tensor
) -> Tensor:
    """ln π_ref of the targets where the mask is True, (B, T)"""
    with evaluating(model), lora.without_adapters(model if has_adapters else None):
        return token_log_probs(model, ids, targets, mask)[0]


class ReferenceScores:
    """Preferences with the reference's ln P of each text."""

    def __init__(self, data: Batches, reference: Reference):
        self.preferences = data
        self.reference = reference

    def epoch_batches(self) -> int:
        return self.preferences.epoch_batches()

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[PreferenceBatch, Cursor]]:
        for batch, place in self.preferences.batches(cursor, rank, world_size):
            yield self.scored(batch), place

    def sequential(self, rank: int = 0, world_size: int = 1) -> Iterator[PreferenceBatch]:
        for batch in self.preferences.sequential(rank, world_size):
            yield self.scored(batch)

    def scored(self, batch: Any) -> PreferenceBatch:
        """The batch with ln π_ref of its texts."""
        if not isinstance(batch, PreferenceBatch):
            raise ConfigError("objective dpo needs preferences: set batches.type=Comparisons")
        return batch._replace(reference=self.reference(batch.ids, batch.targets, batch.mask).sum(1))

"""Rollouts: batches that the model under training samples itself, scored by a reward  [I8, T16].

`Rollouts` is a source of batches like any other, so reinforcement runs through the one training loop. It reads prompts, samples texts
with the batched generation loop, computes rewards, KL to the reference and advantages, and yields the texts in minibatches, several
times over. A checkpoint holds the texts that are in use, so a resumed run continues with the same bits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from seqloom.batches.batch import Batch, Batches, Cursor, hash_key
from seqloom.batches.prompts import PromptBatch
from seqloom.batches.rollout import RolloutBatch
from seqloom.errors import ConfigError
from seqloom.inference.answers import evaluating, sample_texts
from seqloom.models.base import Model
from seqloom.nn.basic import Dropout
from seqloom.nn.layer import Factory
from seqloom.objectives.advantages import KL, gae, group_relative, kl_estimate, leave_one_out
from seqloom.objectives.policy import token_log_probs
from seqloom.train import process
from seqloom.train.process import ProcessGroup
from seqloom.train.rewards import ExactAnswer, TextReward

logger = logging.getLogger("seqloom.train")
Reward = Callable[[Tensor, Tensor, PromptBatch], Tensor]
"""Prompts with their texts, (B, T + 1) ids, which targets (B, T) belong to the text, and the prompts → (B,)."""
Advantage = Literal["gae", "grpo", "grpo-undivided", "rloo"]
ADAPTATION = 0.1  # of β, for each rollout
MANY_CONSTANT = 4  # rollouts of equal rewards before a warning
EVALUATION_SEED = 20  # of held-out texts, which are the same draws in every evaluation


class Reference(Protocol):
    """ln π_ref of the targets where the mask is True, (B, T)."""

    def __call__(self, ids: Tensor, targets: Tensor, mask: Tensor) -> Tensor: ...


class RolloutOptions:
    """The options of the `rollouts` section of a config.

    reward: Length, Regex, ExactAnswer, RewardRun, LabelRun (see `rewards.py`), or a function of your own from --code.
    advantage: gae (PPO, needs a critic), grpo, grpo-undivided, rloo (REINFORCE leave-one-out).
    samples: texts for each prompt; groups need at least 2.
    max_tokens: of a text.
    beta: the weight β of KL(π ‖ π_ref) in the reward.
    kl_target: if given, β adapts so that the KL comes near it.
    kl: the estimator, k1 or k3 (see `kl_estimate`).
    epochs: passes over the texts before new ones are sampled.
    minibatches: the parts into which a pass is divided, one optimizer step each.
    discount, decay: γ and λ of GAE.
    cut_penalty: what a text loses that `max_tokens` has cut.
    kl_limit: training ends when the KL of a rollout exceeds it.
    """

    def __init__(
        self,
        reward: Factory[TextReward] = ExactAnswer,
        advantage: Advantage = "gae",
        samples: int = 4,
        max_tokens: int = 64,
        beta: float = 0.05,
        kl_target: float | None = None,
        kl: KL = "k1",
        epochs: int = 2,
        minibatches: int = 1,
        discount: float = 1.0,
        decay: float = 0.95,
        cut_penalty: float = 0.0,
        kl_limit: float | None = None,
    ):
        counts = {"samples": samples, "max_tokens": max_tokens, "epochs": epochs, "minibatches": minibatches}
        for name, count in counts.items():
            if count < 1:
                raise ConfigError(f"rollouts.{name} must be at least 1, not {count}")
        if samples < 2 and advantage != "gae":
            raise ConfigError(
                f"rollouts.samples: {advantage} compares the texts of a prompt; sample at least 2"
            )
        if (
            beta < 0
            or (kl_target is not None and kl_target <= 0)
            or not 0 <= discount <= 1
            or not 0 <= decay <= 1
        ):
            raise ConfigError(
                "rollouts: beta must be at least 0, kl_target above 0, discount and decay from 0 to 1"
            )
        self.reward = reward
        self.advantage = advantage
        self.samples = samples
        self.max_tokens = max_tokens
        self.beta = beta
        self.kl_target = kl_target
        self.kl: KL = kl
        self.epochs = epochs
        self.minibatches = minibatches
        self.discount = discount
        self.decay = decay
        self.cut_penalty = cut_penalty
        self.kl_limit = kl_limit


class Rollouts:
    """Batches of texts that the model samples for the prompts of another source.

    `reference` gives ln π_ref. One prompt batch makes epochs · minibatches batches; the last number of the cursor counts them.
    """

    def __init__(
        self,
        prompts: Batches,
        model: Model,
        reference: Reference,
        reward: Reward,
        options: RolloutOptions,
        stop_ids: tuple[int, ...],
        group: ProcessGroup = ProcessGroup(),
    ):
        self.prompts = prompts
        self.model = model
        self.reference = reference
        self.reward = reward
        self.options = options
        self.stop_ids = stop_ids
        self.group = group
        self.beta = options.beta
        self.batch: RolloutBatch | None = None  # the texts in use
        self.order = torch.zeros(0)  # (epochs, B): the order of the texts in each pass
        self.ended = False
        self.num_constant: int | None = (
            0  # rollouts of which all rewards are equal; None after one with others
        )
        for part in model.modules():  # dropout would make π another policy than the one that samples
            if isinstance(part, Dropout):
                part.rate = 0.0
        if options.advantage == "gae" and not model.has_critic:
            raise ConfigError("rollouts.advantage=gae needs a critic: set model.type=ActorCritic")

    def epoch_batches(self) -> int:
        return self.prompts.epoch_batches() * self.options.epochs * self.options.minibatches

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[RolloutBatch, Cursor]]:
        *place, done = cursor or (0,)
        if not cursor:
            self.beta, self.batch, self.ended = self.options.beta, None, False
        per_rollout = self.options.epochs * self.options.minibatches
        if self.batch is not None and done < per_rollout:
            yield from self.minibatches(self.batch, tuple(place), done)
        for batch, position in self.prompts.batches(tuple(place), rank, world_size):
            prompts = as_prompts(batch).repeated(self.options.samples)
            # The seed comes from the run's own generator, so that a resumed run samples the same texts.
            self.batch = self.rollout(prompts, int(torch.randint(2**62, ())))
            self.warn_if_constant(self.batch.rewards)
            size = len(self.batch.tokens)
            self.order = torch.stack([torch.randperm(size) for _ in range(self.options.epochs)])
            self.adapt(self.batch)
            yield from self.minibatches(self.batch, position, 0)

    def minibatches(
        self, batch: RolloutBatch, place: Cursor, done: int
    ) -> Iterator[tuple[RolloutBatch, Cursor]]:
        """The parts of each pass over the texts, from the part `done` on."""
        parts = self.options.minibatches
        for part in range(done, self.options.epochs * parts):
            rows = self.order[part // parts].tensor_split(parts)[part % parts]
            yield select_rows(batch, rows), (*place, part + 1)

    def sequential(self, rank: int = 0, world_size: int = 1) -> Iterator[RolloutBatch]:
        """One text for each prompt, always from the same random numbers."""
        for number, batch in enumerate(self.prompts.sequential(rank, world_size)):
            yield self.rollout(as_prompts(batch), hash_key(EVALUATION_SEED, number), grouped=False)

    def rollout(self, prompts: PromptBatch, seed: int, grouped: bool = True) -> RolloutBatch:
        """Texts of the present policy with their rewards and advantages."""
        options = self.options
        with evaluating(self.model):
            texts = sample_texts(self.model, prompts, options.max_tokens, self.stop_ids, seed)
            ids, targets, mask = texts.tokens[:, :-1], texts.tokens[:, 1:], texts.mask
            log_probs, h = token_log_probs(self.model, ids, targets, mask)
            reference = self.reference(ids, targets, mask)
            rewards = self.reward(texts.tokens, mask, prompts).float() - options.cut_penalty * ~texts.finished
            penalties = self.beta * torch.where(mask, kl_estimate(log_probs, reference, options.kl), 0.0)
            scores = rewards - penalties.sum(1)
            values = returns = None
            if options.advantage == "gae":
                values = torch.where(mask, self.model.values(h).float(), 0.0)
                advantages = gae(
                    token_rewards(rewards, penalties, mask), values, mask, options.discount, options.decay
                )
                returns = advantages + values
            else:
                grouped_scores = scores.view(-1, options.samples if grouped else 1)
                advantages = self.group_advantages(grouped_scores).flatten()[:, None] * mask
        kl = torch.where(mask, log_probs - reference, 0.0).sum(1)
        return RolloutBatch(
            texts.tokens, mask, log_probs, reference, advantages, rewards, kl, scores, returns, values
        )

    def group_advantages(self, scores: Tensor) -> Tensor:
        """The advantages of the texts of each prompt, (prompts, samples); 0 if there is one."""
        if scores.shape[1] < 2:
            return torch.zeros_like(scores)
        if self.options.advantage == "rloo":
            return leave_one_out(scores)
        return group_relative(scores, divide=self.options.advantage == "grpo")

    def adapt(self, batch: RolloutBatch) -> None:
        """β ← β (1 + 0.1 clamp(KL / target - 1, -0.2, 0.2))   (Ziegler et al. 2019) for the next rollout; and whether the KL is
        above its limit"""
        total, count = process.all_sum(self.group, float(batch.kl.sum()), float(len(batch.kl)))
        divergence = total / max(count, 1)
        if self.options.kl_target is not None:
            error = min(max(divergence / self.options.kl_target - 1, -0.2), 0.2)
            self.beta *= 1 + ADAPTATION * error
        limit = self.options.kl_limit
        self.ended = limit is not None and divergence > limit

    def warn_if_constant(self, rewards: Tensor) -> None:
        """Logs a warning if the rewards of several rollouts, from the first one on, are all the same: nothing is learnt from them."""
        if self.num_constant is None:
            return
        self.num_constant = self.num_constant + 1 if bool((rewards == rewards[0]).all()) else None
        if self.num_constant == MANY_CONSTANT and self.group.is_main:
            logger.warning(
                "the reward of every answer so far is %.4g, so there is nothing to learn: check the reward, sample more answers with "
                "rollouts.samples, or begin from a run that sometimes earns another reward",
                float(rewards[0]),
            )

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold to continue: β, and the texts in use with their order."""
        found = {"beta": torch.tensor(self.beta, dtype=torch.float64), "ended": torch.tensor(self.ended)}
        if self.batch is not None:
            found["order"] = self.order
            fields = self.batch._asdict()
            found |= {name: value for name, value in fields.items() if isinstance(value, Tensor)}
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over the tensors of a checkpoint."""
        fields = dict(tensors)
        self.beta = float(fields.pop("beta"))
        self.ended = bool(fields.pop("ended"))
        if "order" in fields:
            self.order = fields.pop("order")
            self.batch = RolloutBatch(**fields)  # type: ignore[arg-type]  # the names of its fields


def as_prompts(batch: Batch) -> PromptBatch:
    if not isinstance(batch, PromptBatch):
        raise ConfigError("rollouts need prompts: set corpus.type=Prompts and batches.type=PromptGroups")
    return batch


def token_rewards(rewards: Tensor, penalties: Tensor, mask: Tensor) -> Tensor:
    """rₜ = -β k(yₜ), and the reward of the text at its last token, (B, T)"""
    positions = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, positions, -1).amax(1)
    return torch.where(positions == last[:, None], rewards[:, None], 0.0) - penalties


def select_rows(batch: RolloutBatch, rows: Tensor) -> RolloutBatch:
    """Some of the texts, without the columns in which all of them are padded."""
    parts: dict[str, Any] = {
        name: value[rows] if isinstance(value, Tensor) else value for name, value in batch._asdict().items()
    }
    width = int(torch.where(parts["mask"], torch.arange(1, parts["mask"].shape[1] + 1), 0).max())
    for name, value in parts.items():
        if isinstance(value, Tensor) and value.dim() == 2:
            parts[name] = value[:, : width + (name == "tokens")]
    return RolloutBatch(**parts)

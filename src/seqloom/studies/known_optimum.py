"""Reinforcement on a problem whose optimum is known  [I8, T16].

A small world has three subjects (prompts) and four adjectives; an answer is at most three tokens, so every answer can be enumerated.
The policy that maximises J(π) = E[r(x, y)] - β KL(π ‖ π_ref) is

    π*(y | x) = π_ref(y | x) exp(r(x, y)/β) / Z(x),     J(π*) = β E[ln Z(x)],     J(π*) - J(π) = β KL(π ‖ π*)

so the distance of every method from it is exact. Methods are trained through the one training loop, with the objectives and rollouts
that the presets use. `grpo-paper` is GRPO as its authors write it: rewards divided by the deviation of their group, and the KL estimate
k3 in the loss, so the weight of the penalty differs from prompt to prompt. DPO sees every pair of answers with its exact probability,
which is what infinitely many preferences give.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from seqloom.batches.batch import Batch, Batches, Cursor, TokenBatch
from seqloom.batches.prompts import PromptBatch
from seqloom.errors import UserError
from seqloom.models.feedback import ActorCritic
from seqloom.models.language_model import LanguageModel
from seqloom.nn import Learned, Transformer
from seqloom.nn.layer import State
from seqloom.objectives.likelihood import Result as LossResult
from seqloom.objectives.likelihood import next_token
from seqloom.objectives.policy import clipped_policy, token_log_probs
from seqloom.objectives.preference import preference_loss
from seqloom.results import Result
from seqloom.train.loop import TrainLoop
from seqloom.train.options import AdamW, GlobalNorm, LinearDecay, TrainJob, TrainOptions
from seqloom.train.rollouts import Advantage, RolloutOptions, Rollouts

END = 0
ADJECTIVES = ("tired", "wide", "muddy", "old")  # ids 1 to 4
SUBJECTS = ("animal", "street", "bank")  # ids 5 to 7
WORDS = ("</s>", *ADJECTIVES, *SUBJECTS)
MAX_TOKENS = 3
# What the judge thinks of an adjective after a subject; an answer that does not end, and a repeated word, cost 1.
JUDGEMENTS = {
    "animal": {"tired": 1.0, "old": 0.5, "muddy": 0.0, "wide": -1.0},
    "street": {"wide": 1.0, "muddy": 0.5, "old": 0.0, "tired": -1.0},
    "bank": {"muddy": 1.0, "old": 0.25, "wide": 0.5, "tired": -1.0},
}
BETA = 0.5
Method = Literal["ppo", "rloo", "grpo-undivided", "grpo", "grpo-paper", "dpo"]
METHODS: tuple[Method, ...] = get_args(Method)
ADVANTAGES: dict[Method, Advantage] = {
    "ppo": "gae",
    "rloo": "rloo",
    "grpo-undivided": "grpo-undivided",
    "grpo": "grpo",
    "grpo-paper": "grpo",
}


class PolicyPoint(NamedTuple):
    """Exact numbers of a policy."""

    step: int
    reward: float  # E[r]
    kl: float  # KL(π ‖ π_ref), nats
    value: float  # J(π)
    kl_from_optimum: float  # KL(π* ‖ π)


@dataclass(frozen=True)
class Outcome(Result):
    """One method with one seed. `reached` is (J(π) - J(π_ref)) / (J(π*) - J(π_ref)), 1 at the optimum."""

    method: str
    seed: int
    reached: float
    seconds: float
    final: PolicyPoint
    path: tuple[PolicyPoint, ...] = field(repr=False)


@dataclass(frozen=True)
class OptimumStudy(Result):
    """Every method with every seed, beside the exact optimum and the exact frontier, (β, reward, KL)."""

    beta: float
    start: PolicyPoint  # the reference
    optimum: PolicyPoint
    frontier: tuple[tuple[float, float, float], ...]
    outcomes: tuple[Outcome, ...]


class Answers:
    """Every answer to every prompt, with its reward: N answers of at most MAX_TOKENS tokens."""

    def __init__(self) -> None:
        texts: list[tuple[int, ...]] = []
        open_texts: list[tuple[int, ...]] = [()]
        for length in range(1, MAX_TOKENS + 1):
            longer = [(*text, token) for text in open_texts for token in range(len(WORDS))]
            done = [text for text in longer if text[-1] == END or length == MAX_TOKENS]
            texts += done
            open_texts = [text for text in longer if text not in set(done)] if length < MAX_TOKENS else []
        self.texts = texts
        self.prompts = torch.arange(len(ADJECTIVES) + 1, len(WORDS))  # (P,)
        padded = torch.tensor([[*text, *[END] * (MAX_TOKENS - len(text))] for text in texts])
        lengths = torch.tensor([[len(text)] for text in texts])
        rows = torch.cat(
            [self.prompts.repeat_interleave(len(texts))[:, None], padded.repeat(len(self.prompts), 1)], 1
        )
        self.tokens = rows  # (P · N, 1 + MAX_TOKENS)
        self.mask = (torch.arange(MAX_TOKENS) < lengths).repeat(len(self.prompts), 1)
        self.rewards = torch.tensor(
            [[judge(prompt, text) for text in texts] for prompt in self.prompts.tolist()]
        )
        self.rewards = self.rewards.double()  # (P, N)

    def log_probs(self, model: LanguageModel) -> Tensor:
        """ln π(y | x) of every answer, (P, N), in double precision."""
        log_probs, _ = token_log_probs(model, self.tokens[:, :-1], self.tokens[:, 1:], self.mask)
        return log_probs.double().sum(1).view(self.rewards.shape)

    def reward(self, tokens: Tensor, mask: Tensor, prompts: PromptBatch | None = None) -> Tensor:
        """The rewards of sampled answers."""
        return torch.tensor(
            [
                judge(int(row[0]), tuple(row[1:][keep].tolist()))
                for row, keep in zip(tokens, mask, strict=True)
            ]
        )


def judge(prompt: int, text: tuple[int, ...]) -> float:
    """r(x, y): the sum of what the judge thinks of each word."""
    table = JUDGEMENTS[WORDS[prompt]]
    words = [WORDS[token] for token in text if token != END]
    repeated = len(words) - len(set(words))
    unfinished = text[-1] != END
    return sum(table.get(word, -1.0) for word in words) - repeated - unfinished


def optimal_log_probs(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """ln π* = ln π_ref + r/β - ln Z,   (P, N)"""
    return (reference + rewards / beta).log_softmax(1)


def measure(log_probs: Tensor, reference: Tensor, rewards: Tensor, beta: float, step: int = 0) -> PolicyPoint:
    """The exact numbers of a policy; prompts are equally frequent."""
    p = log_probs.exp()
    reward = float((p * rewards).sum(1).mean())
    kl = float((p * (log_probs - reference)).sum(1).mean())
    best = optimal_log_probs(reference, rewards, beta)
    from_optimum = float((best.exp() * (best - log_probs)).sum(1).mean())
    return PolicyPoint(step, reward, kl, reward - beta * kl, from_optimum)


class RepeatedBatch:
    """The same batch for ever."""

    def __init__(self, batch: Batch):
        self.batch = batch

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[Batch, Cursor]]:
        (step,) = cursor or (0,)
        while True:
            step += 1
            yield self.batch, (step,)

    def epoch_batches(self) -> int:
        return 1

    def sequential(self, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        yield self.batch


def small_model(seed: int) -> ActorCritic:
    """A Transformer of one layer over the words."""
    torch.manual_seed(seed)
    return ActorCritic(
        len(WORDS), 32, partial(Transformer, layers=1, heads=2, position=partial(Learned, length=8))
    )


def train_model(
    model: LanguageModel,
    objective: Callable[..., LossResult],
    train: Batches,
    options: TrainOptions,
    seed: int,
) -> float:
    """Trains through the one loop in a temporary folder; the seconds of its steps."""
    with tempfile.TemporaryDirectory(prefix="seqloom-") as folder:
        source = RepeatedBatch(
            PromptBatch.of(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool))
        )
        job = TrainJob(Path(folder), model, objective, train, source, seed=seed)
        start = time.perf_counter()
        TrainLoop(options, job, progress=False).run()
        return time.perf_counter() - start


def training_options(steps: int, lr: float, eval_every: int) -> TrainOptions:
    return TrainOptions(
        steps=steps,
        optimizer=partial(AdamW, lr=lr, weight_decay=0.0),
        schedule=partial(LinearDecay, warmup=10, floor=0.05),
        clip=partial(GlobalNorm, limit=1.0),
        eval_every=eval_every,
        save_every=steps,
        precision="float32",
    )


def train_reference(answers: Answers, seed: int, steps: int = 150) -> ActorCritic:
    """π_ref: a model of sentences such as "street old wide": one or two words that are drawn for each subject."""
    model = small_model(seed)
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for prompt in answers.prompts.tolist() * 200:
        weights = torch.tensor([2.0 + JUDGEMENTS[WORDS[prompt]][word] for word in ADJECTIVES])
        size = 1 + int(torch.randint(2, (), generator=generator))
        drawn = 1 + torch.multinomial(weights, size, generator=generator)
        rows.append([prompt, *drawn.tolist(), *[END] * (MAX_TOKENS - size)])
    tokens = torch.tensor(rows)
    before = torch.cat([tokens[:, :1], tokens[:, 1:-1]], 1)
    mask = torch.cat([torch.ones(len(rows), 1, dtype=torch.bool), before[:, 1:] != END], 1)
    batch = TokenBatch(tokens[:, :-1], tokens[:, 1:], mask)

    def objective(model: LanguageModel, part: Batch, state: State) -> LossResult:
        return next_token(model, batch, None) if model.training else (tokens.sum(), {"nats": 0.0}, None)

    train_model(model, objective, RepeatedBatch(batch), training_options(steps, 0.01, steps), seed)
    return model


class Trial:
    """One method from one reference: the objective, its data, and the exact path."""

    def __init__(self, answers: Answers, reference: ActorCritic, beta: float, seed: int):
        self.answers = answers
        self.beta = beta
        self.seed = seed
        self.base = reference
        self.model = small_model(seed)
        self.model.load_state_dict(reference.state_dict())
        with torch.no_grad():
            self.reference = answers.log_probs(reference)
        self.path: list[PolicyPoint] = []
        self.step = 0

    def measure(self) -> PolicyPoint:
        with torch.no_grad():
            return measure(
                self.answers.log_probs(self.model), self.reference, self.answers.rewards, self.beta, self.step
            )

    def reference_log_probs(self, ids: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        return token_log_probs(self.base, ids, targets, mask)[0]

    def dpo_loss(self, model: LanguageModel) -> LossResult:
        """E over y₁, y₂ ~ μ and the judge's choice, P(y₁ preferred) = σ(r₁ - r₂), of the loss of DPO.

        μ is the mean of π_ref and the uniform distribution: answers that no preference is about would be free to gain probability.
        """
        ratios = (self.answers.log_probs(model) - self.reference).float()  # (P, N)
        weights = (self.reference.exp().float() + 1 / ratios.shape[1]) / 2
        rewards = self.answers.rewards.float()
        prefers = torch.sigmoid(rewards[:, :, None] - rewards[:, None])
        losses = preference_loss(ratios[:, :, None], ratios[:, None], "dpo", self.beta)  # (P, N, N)
        loss = (weights[:, :, None] * weights[:, None] * prefers * losses).sum((1, 2)).mean()
        return loss, {"nats": float(loss.detach())}, None

    def objective(self, model: ActorCritic, batch: Batch, state: State) -> LossResult:
        """The objective of the method; in evaluation it notes the exact numbers."""
        if not model.training:
            if model is self.model:  # and not the copy of a rehearsal
                self.path.append(self.measure())
            return batch.ids.sum(), {"nats": -self.path[-1].value if self.path else 0.0}, None
        if self.method == "dpo":
            return self.dpo_loss(model)
        in_loss = self.beta if self.method == "grpo-paper" else 0.0
        return clipped_policy(model, batch, clip=self.clip, kl_weight=in_loss)  # type: ignore[arg-type]

    def train(self, method: Method, steps: int, lr: float, samples: int, clip: float, epochs: int) -> Outcome:
        self.method = method
        self.clip = clip
        prompts = self.answers.prompts[:, None]
        source: Batches = RepeatedBatch(PromptBatch.of(prompts, torch.ones_like(prompts, dtype=torch.bool)))
        if method != "dpo":
            rollouts = RolloutOptions(
                advantage=ADVANTAGES[method],
                samples=samples,
                max_tokens=MAX_TOKENS,
                beta=0.0 if method == "grpo-paper" else self.beta,
                epochs=epochs,
                decay=1.0,
            )
            source = Rollouts(
                source,
                self.model,
                self.reference_log_probs,
                self.answers.reward,
                rollouts,
                (END,),
            )
        self.step = 0
        start = self.measure()
        options = training_options(steps, lr, max(1, steps // 20))
        seconds = train_model(self.model, self.objective, source, options, self.seed)
        every = options.eval_every
        path = [start, *(point._replace(step=every * (i + 1)) for i, point in enumerate(self.path))]
        best = measure(
            optimal_log_probs(self.reference, self.answers.rewards, self.beta),
            self.reference,
            self.answers.rewards,
            self.beta,
        )
        reached = (path[-1].value - start.value) / (best.value - start.value)
        return Outcome(method, self.seed, reached, seconds, path[-1], tuple(path))


def run_trial(
    answers: Answers,
    reference: ActorCritic,
    method: Method,
    seed: int = 0,
    beta: float = BETA,
    steps: int = 300,
    samples: int = 64,
    lr: float = 5e-3,
    clip: float = 0.2,
    epochs: int = 2,
) -> Outcome:
    """Trains one method from a reference; `steps` are optimizer steps, `epochs` of them for each sample of answers."""
    return Trial(answers, reference, beta, seed).train(method, steps, lr, samples, clip, epochs)


def exact_frontier(
    reference: Tensor, rewards: Tensor, betas: Sequence[float]
) -> tuple[tuple[float, float, float], ...]:
    """(β, E[r], KL) of the optimum for each β: no policy has more reward at the same KL."""
    points = [
        measure(optimal_log_probs(reference, rewards, beta), reference, rewards, beta) for beta in betas
    ]
    return tuple((beta, point.reward, point.kl) for beta, point in zip(betas, points, strict=True))


def known_optimum(
    methods: Sequence[Method] = METHODS, seeds: int = 3, beta: float = BETA, steps: int = 400
) -> OptimumStudy:
    """Trains each method `seeds` times and measures how far it is from the optimum, which is known.

    All trials begin from the same reference, so that they share the optimum.
    """
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise UserError(f"{unknown[0]}: no such method; choose from {', '.join(METHODS)}")
    answers = Answers()
    base = train_reference(answers, seed=0)
    with torch.no_grad():
        reference = answers.log_probs(base)
    best = measure(optimal_log_probs(reference, answers.rewards, beta), reference, answers.rewards, beta)
    betas = [beta * 2.0 ** (power / 2) for power in range(12, -9, -1)]
    outcomes = [
        run_trial(answers, base, method, seed, beta, steps) for method in methods for seed in range(seeds)
    ]
    start = measure(reference, reference, answers.rewards, beta)
    return OptimumStudy(beta, start, best, exact_frontier(reference, answers.rewards, betas), tuple(outcomes))

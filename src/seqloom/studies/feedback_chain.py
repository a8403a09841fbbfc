"""The chain of human feedback in a few minutes  [I6, I8]: supervised tuning, a reward model from few preferences, PPO against it, and how
the reward model is over-optimised: the score that PPO maximises still rises while the exact reward falls (Gao et al. 2023).

The prompts ask for a sentence about a thing of the built-in world, whose judge is exact (`world/judge.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seqloom import files
from seqloom.batches.batch import hash_key
from seqloom.inference.answers import Answer, answer_scores, sample_answers
from seqloom.results import ProgressOption, Result
from seqloom.run import Run, load
from seqloom.studies.policy_measures import PolicyMeasures, chat_answers, mean, measure_policy
from seqloom.train.fit import fit
from seqloom.world.judge import NOUNS, described_nouns, gold_reward, prompt_for

CHATS = 3000
HELD_OUT_CHATS = 200
HELD_OUT_PAIRS = 200
MAX_TOKENS = 40
CHECKPOINTS = 12
BEST_OF = (1, 2, 4, 8, 16, 32)
STEPS = {
    "sft": 250,
    "ppo": 100,
}  # for each minute: steps, not seconds, so that the same command gives the same bits
MODEL = {
    "tokenizer": {"type": "BPE", "size": 400},
    "model.dim": 96,
    "model.stack.layers": 2,
    "model.stack.heads": 4,
    "model.stack.position.length": 96,
    "train.optimizer.lr": 3e-3,
}


class BestOf(NamedTuple):
    """The answer with the best score among n; its KL from the policy that wrote them is ln n - (n - 1)/n."""

    n: int
    kl: float
    proxy: float
    gold: float


class SampledPair(NamedTuple):
    """Answers to one prompt before and after, and at the end of the over-optimisation."""

    prompt: str
    before: str
    after: str
    last: str


@dataclass(frozen=True)
class FeedbackChain(Result):
    """What the chain has found. `path` are the checkpoints of PPO in order, `chosen` the one that stopping at the KL limit takes."""

    folder: Path
    preferences: int
    reward_accuracy: float
    reward_low: float | None
    reward_high: float | None
    kl_limit: float
    before: PolicyMeasures
    path: tuple[PolicyMeasures, ...]
    chosen: PolicyMeasures
    best_of: tuple[BestOf, ...]
    samples: tuple[SampledPair, ...]

    @property
    def peak(self) -> PolicyMeasures:
        """The checkpoint with the best exact reward, which nobody without the judge could choose."""
        return max(self.path, key=lambda point: -math.inf if point.gold is None else point.gold)


def write_jsonl(path: Path, records: Sequence[dict[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return path


def write_data(folder: Path, seed: int) -> dict[str, Path]:
    """Chats to learn from and to hold out, and the prompts."""
    chats = [
        {"prompt": prompt, "completion": text}
        for prompt, text in described_nouns(CHATS + HELD_OUT_CHATS, seed)
    ]
    return {
        "chats": write_jsonl(folder / "chats.jsonl", chats[:CHATS]),
        "held_out": write_jsonl(folder / "held-out.jsonl", chats[CHATS:]),
        "prompts": write_jsonl(folder / "prompts.jsonl", [{"prompt": prompt_for(noun)} for noun in NOUNS]),
    }


def judged_pairs(run: Run, count: int, seed: int, sharpness: float = 4.0) -> list[dict[str, str]]:
    """Pairs of the run's own answers, of which the judge chooses one: P(first) = σ(sharpness · (r₁ - r₂))."""
    prompts = [prompt_for(NOUNS[index % len(NOUNS)]) for index in range(count)]
    pairs = sample_answers(run, prompts, 2, MAX_TOKENS, seed)
    records = []
    for index, (prompt, (one, two)) in enumerate(zip(prompts, pairs, strict=True)):
        margin = sharpness * (gold_reward(prompt, one.text) - gold_reward(prompt, two.text))
        draw = hash_key(seed, index) / 2**64
        if one.text == two.text or not one.text or not two.text:
            continue
        chosen, rejected = (one, two) if draw < 1 / (1 + math.exp(-margin)) else (two, one)
        records.append({"prompt": prompt, "chosen": chosen.text, "rejected": rejected.text})
    return records


def best_of_n(sft: Run, reward: Run, prompts: Sequence[str], seed: int) -> list[BestOf]:
    """Best-of-n by the reward model, for each n, from the same answers."""
    most = max(BEST_OF)
    groups = sample_answers(sft, prompts, most, MAX_TOKENS, seed)
    scored: list[tuple[str, list[Answer], list[float]]] = [
        (prompt, group, answer_scores(reward, group)) for prompt, group in zip(prompts, groups, strict=True)
    ]
    found = []
    for n in BEST_OF:
        proxy, gold = [], []
        for prompt, group, scores in scored:
            for first in range(0, most, n):
                best = max(range(first, first + n), key=scores.__getitem__)
                proxy.append(scores[best])
                gold.append(gold_reward(prompt, group[best].text))
        found.append(BestOf(n, math.log(n) - (n - 1) / n, mean(proxy), mean(gold)))
    return found


def feedback_chain(
    out: str | Path,
    minutes: float = 4.0,
    preferences: int = 400,
    kl_limit: float = 6.0,
    beta: float = 0.0,
    seed: int = 0,
    threads: int | None = None,
    progress: ProgressOption = True,
) -> FeedbackChain:
    """Trains and measures the chain into the runs OUT/sft, OUT/reward and OUT/ppo, in about so many minutes of two cores.

    `beta` 0 lets PPO go as far as it can.
    """
    folder = Path(out)
    data = write_data(folder / "data", seed)
    shared = {"seed": seed, "threads": threads, "progress": progress}
    sft = fit(
        "sft",
        MODEL,
        data=data["chats"],
        valid=data["held_out"],
        out=folder / "sft",
        steps=max(1, round(STEPS["sft"] * minutes)),
        **shared,  # type: ignore[arg-type]
    )
    pairs = write_jsonl(folder / "data" / "preferences.jsonl", judged_pairs(sft, preferences, seed + 1))
    test_pairs = write_jsonl(
        folder / "data" / "held-out-preferences.jsonl", judged_pairs(sft, HELD_OUT_PAIRS, seed + 2)
    )
    reward = fit(
        "reward",
        {"train.eval_every": 10, "train.optimizer.lr": 1e-3},
        data=pairs,
        valid=test_pairs,
        base=sft.folder,
        out=folder / "reward",
        steps=80,
        **shared,  # type: ignore[arg-type]
    )
    changes = {
        "rollouts.reward": {"type": "RewardRun", "run": str(reward.folder.resolve())},
        "rollouts.max_tokens": MAX_TOKENS,
        "rollouts.beta": beta,
        "rollouts.samples": 6,
        "rollouts.cut_penalty": 1.0,
        "batches.batch": len(NOUNS),
        "train.optimizer.lr": 1e-4,
        "train.schedule": {"type": "Constant", "warmup": 10},
        "train.eval_every": 8,
        "train.keep_checkpoints": 1000,
    }
    ppo = fit(
        "ppo",
        changes,
        data=data["prompts"],
        valid=data["prompts"],
        base=sft.folder,
        out=folder / "ppo",
        steps=max(1, round(STEPS["ppo"] * minutes)),
        **shared,  # type: ignore[arg-type]
    )
    return measure_chain(folder, sft, reward, ppo, kl_limit, preferences, seed)


def measure_chain(
    folder: Path, sft: Run, reward: Run, ppo: Run, kl_limit: float, preferences: int, seed: int
) -> FeedbackChain:
    """Measures the checkpoints of PPO by the reward model and by the judge."""
    prompts = [prompt_for(noun) for noun in NOUNS]
    held_out = chat_answers(sft, str(folder / "data" / "held-out.jsonl"))

    def measured(name: str, run: Run) -> PolicyMeasures:
        return measure_policy(
            name, run, sft, prompts, 8, MAX_TOKENS, reward, gold_reward, held_out, seed + 10
        )

    before = measured("sft", sft)
    steps = sorted(
        int(path.name.removeprefix("step-")) for path in (ppo.folder / "checkpoints").glob("step-*")
    )
    every = max(1, len(steps) // CHECKPOINTS)
    chosen_steps = sorted({*steps[::every], *steps[-1:]})
    path = [before]
    for step in chosen_steps:
        path.append(measured(f"step {step}", load(f"{ppo.folder}@{step}")))
    within = [point for point in path if point.kl <= kl_limit]
    chosen = within[-1] if within else before
    last = load(f"{ppo.folder}@{chosen_steps[-1]}")
    stopped = sft if chosen is before else load(f"{ppo.folder}@{chosen.name.removeprefix('step ')}")
    texts = [
        [row[0].text for row in sample_answers(run, prompts[:8], 1, MAX_TOKENS, seed + 20)]
        for run in (sft, stopped, last)
    ]
    accuracy = next(number for number in reward.results.valid if number.name == "preference_accuracy")
    return FeedbackChain(
        folder,
        preferences,
        accuracy.value,
        accuracy.low,
        accuracy.high,
        kl_limit,
        before,
        tuple(path),
        chosen,
        tuple(best_of_n(sft, reward, prompts, seed + 30)),
        tuple(SampledPair(*row) for row in zip(prompts, *texts, strict=False)),
    )

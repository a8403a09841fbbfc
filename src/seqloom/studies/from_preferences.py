"""From preferences to a policy in one call  [I8]: a reward model learns them, and PPO raises its score on the prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seqloom.config_tree import Tree
from seqloom.results import ProgressOption
from seqloom.run import Run
from seqloom.train.fit import fit


class TrainedPolicy(NamedTuple):
    """What was trained from preferences."""

    reward: Run
    policy: Run


def train_from_preferences(
    run: str | Path,
    preferences: str | Path,
    prompts: Sequence[str],
    *,
    steps: int | None = None,
    max_tokens: int = 64,
    kl_limit: float = 6.0,
    seed: int | None = None,
    threads: int | None = None,
    progress: ProgressOption = True,
) -> TrainedPolicy:
    """Trains RUN-reward on the preferences and RUN-ppo on the prompts, both from the run; what is there already goes on or is kept.

    `steps` are those of each, by default the presets'. Few preferences are soon over-optimised, so PPO ends when its KL to the
    run exceeds `kl_limit`.
    """
    folder = Path(run)
    length = {} if steps is None else {"train.steps": steps}
    reward = fit(
        "reward",
        length,
        data=str(preferences),
        base=folder,
        out=folder.with_name(f"{folder.name}-reward"),
        seed=seed,
        threads=threads,
        progress=progress,
    )
    rollouts: Tree = {
        "rollouts.reward": {"type": "RewardRun", "run": str(reward.folder)},
        "rollouts.max_tokens": max_tokens,
        "rollouts.kl_limit": kl_limit,
    }
    policy = fit(
        "ppo",
        rollouts,
        length,
        data=list(prompts),
        base=folder,
        out=folder.with_name(f"{folder.name}-ppo"),
        seed=seed,
        threads=threads,
        progress=progress,
    )
    return TrainedPolicy(reward, policy)

"""Methods of reinforcement reach the optimum that is known, and a planted bug moves them visibly away from it."""

import pytest
import torch

from seqloom.errors import UserError
from seqloom.studies import known_optimum as study
from seqloom.studies.known_optimum import BETA, Answers, measure, optimal_log_probs
from seqloom.train import rollouts


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers()


@pytest.fixture(scope="module")
def reference(answers: Answers) -> study.ActorCritic:
    return study.train_reference(answers, seed=0)


def test_the_answers_are_all_there_are(answers: Answers, reference: study.ActorCritic) -> None:
    with torch.no_grad():
        masses = answers.log_probs(reference).exp().sum(1)
    torch.testing.assert_close(masses, torch.ones_like(masses), rtol=0, atol=1e-5)
    assert len(set(answers.texts)) == len(answers.texts) == 1 + 7 + 7 * 7 * 8


def test_the_optimum_is_one(answers: Answers, reference: study.ActorCritic) -> None:
    """J(π*) = β E[ln Z], and J(π*) - J(π) = β KL(π ‖ π*) for any π."""
    rewards = answers.rewards
    with torch.no_grad():
        base = answers.log_probs(reference).log_softmax(1)
    best = optimal_log_probs(base, rewards, BETA)
    top = measure(best, base, rewards, BETA).value
    assert top == pytest.approx(BETA * float(torch.logsumexp(base + rewards / BETA, 1).mean()))
    torch.manual_seed(0)
    for _ in range(5):
        other = (best + torch.randn_like(best)).log_softmax(1)
        distance = float((other.exp() * (other - best)).sum(1).mean())
        assert top - measure(other, base, rewards, BETA).value == pytest.approx(BETA * distance)


def test_rewards_of_samples_are_those_of_the_table(answers: Answers) -> None:
    table = answers.rewards.flatten()
    rows = torch.randperm(len(table), generator=torch.Generator().manual_seed(1))[:200]
    got = answers.reward(answers.tokens[rows], answers.mask[rows])
    assert got.tolist() == pytest.approx(table[rows].tolist())


@pytest.mark.parametrize("method", ["ppo", "rloo", "grpo-undivided"])
def test_sampling_methods_reach_the_optimum(
    answers: Answers, reference: study.ActorCritic, method: study.Method
) -> None:
    outcome = study.run_trial(answers, reference, method, steps=300, lr=1e-2)
    assert outcome.reached > 0.95 and outcome.final.kl_from_optimum < 0.05
    assert [point.step for point in outcome.path[:3]] == [0, 15, 30]


def test_dpo_reaches_it_without_a_reward(answers: Answers, reference: study.ActorCritic) -> None:
    outcome = study.run_trial(answers, reference, "dpo", steps=250, lr=1e-2)
    assert outcome.reached > 0.95 and outcome.final.kl_from_optimum < 0.05


def test_grpo_with_an_undivided_penalty_has_another_optimum(
    answers: Answers, reference: study.ActorCritic
) -> None:
    """More reward and a larger KL than the optimum of the same β."""
    outcome = study.run_trial(answers, reference, "grpo-paper", steps=300, lr=1e-2)
    best = measure(
        optimal_log_probs(*reference_and_rewards(answers, reference)),
        *reference_and_rewards(answers, reference),
    )
    assert outcome.reached < 0.8 and outcome.final.kl > 1.5 * best.kl and outcome.final.reward > best.reward


def reference_and_rewards(
    answers: Answers, reference: study.ActorCritic
) -> tuple[torch.Tensor, torch.Tensor, float]:
    with torch.no_grad():
        return answers.log_probs(reference), answers.rewards, BETA


def test_the_wrong_sign_of_the_kl_shows(
    answers: Answers, reference: study.ActorCritic, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = rollouts.kl_estimate
    monkeypatch.setattr(rollouts, "kl_estimate", lambda *given: -right(*given))
    assert study.run_trial(answers, reference, "ppo", steps=150, samples=32, lr=1e-2).reached < 0.5


@pytest.mark.parametrize("shift", [1, -1])
def test_advantages_that_are_off_by_one_show(
    answers: Answers, reference: study.ActorCritic, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    right = rollouts.gae
    monkeypatch.setattr(rollouts, "gae", lambda *given: right(*given).roll(shift, 1) * given[2])
    assert study.run_trial(answers, reference, "ppo", steps=150, samples=32, lr=1e-2).reached < 0.5


def test_a_missing_clip_shows(answers: Answers, reference: study.ActorCritic) -> None:
    """With many passes over few answers only the clip keeps the policy near the one that wrote them."""
    options = {"steps": 240, "samples": 16, "lr": 1e-2, "epochs": 8}
    clipped = study.run_trial(answers, reference, "ppo", **options)  # type: ignore[arg-type]
    free = study.run_trial(answers, reference, "ppo", clip=1e9, **options)  # type: ignore[arg-type]
    assert clipped.reached > free.reached + 0.3


def test_the_frontier_rises_with_the_kl(answers: Answers, reference: study.ActorCritic) -> None:
    with torch.no_grad():
        base = answers.log_probs(reference)
    frontier = study.exact_frontier(base, answers.rewards, [4.0, 1.0, 0.5, 0.1])
    rewards, divergences = [point[1] for point in frontier], [point[2] for point in frontier]
    assert rewards == sorted(rewards) and divergences == sorted(divergences)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(UserError, match="pppo"):
        study.known_optimum(["pppo"])  # type: ignore[list-item]

"""Advantages, KL estimates and the clipped loss equal independent forms: sums, enumeration, REINFORCE."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch

from seqloom.batches.rollout import RolloutBatch
from seqloom.models import LanguageModel
from seqloom.nn import RNN
from seqloom.objectives.advantages import gae, group_relative, kl_estimate, leave_one_out
from seqloom.objectives.policy import clipped_loss, clipped_policy, token_log_probs, value_loss


def test_gae_equals_the_double_sum() -> None:
    generator = np.random.default_rng(0)
    rewards, values = generator.normal(size=(2, 4, 9))
    starts, ends = [0, 2, 3, 1], [9, 7, 4, 8]
    mask = np.array([[start <= t < end for t in range(9)] for start, end in zip(starts, ends, strict=True)])
    for discount, decay in ((1.0, 0.95), (0.9, 0.5), (1.0, 1.0), (0.97, 0.0)):
        got = gae(*map(torch.tensor, (rewards, values, mask)), discount, decay).numpy()
        expected = np.zeros_like(rewards)
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            for t in range(start, end):
                for s in range(t, end):
                    after = values[row, s + 1] if s + 1 < end else 0.0
                    delta = rewards[row, s] + discount * after - values[row, s]
                    expected[row, t] += (discount * decay) ** (s - t) * delta
        assert got == pytest.approx(expected)


def test_gae_with_decay_one_is_the_return_less_the_value() -> None:
    rewards, values = torch.rand(2, 5).double(), torch.rand(2, 5).double()
    mask = torch.ones(2, 5, dtype=torch.bool)
    to_come = rewards.flip(1).cumsum(1).flip(1)
    torch.testing.assert_close(gae(rewards, values, mask, 1.0, 1.0), to_come - values)


def test_groups_by_hand() -> None:
    rewards = torch.tensor([[1.0, 2.0, 6.0], [0.5, 0.5, 0.5]])
    assert leave_one_out(rewards).tolist() == [[1 - 4, 2 - 3.5, 6 - 1.5], [0, 0, 0]]
    assert group_relative(rewards, divide=False).tolist() == [[-2, -1, 3], [0, 0, 0]]
    deviation = np.std([1, 2, 6], ddof=1)
    assert group_relative(rewards)[0].tolist() == pytest.approx(
        [-2 / deviation, -1 / deviation, 3 / deviation]
    )
    assert group_relative(rewards)[1].tolist() == [0, 0, 0]


def test_k1_and_k3_are_unbiased_and_k2_is_not() -> None:
    """Exact means over an enumerable distribution."""
    torch.manual_seed(0)
    log_p, log_q = (torch.randn(50).double().mul(1.5).log_softmax(0) for _ in range(2))
    exact = float((log_p.exp() * (log_p - log_q)).sum())
    means = {
        kind: float((log_p.exp() * kl_estimate(log_p, log_q, kind)).sum()) for kind in ("k1", "k2", "k3")
    }
    assert means["k1"] == pytest.approx(exact, rel=1e-12) and means["k3"] == pytest.approx(exact, rel=1e-12)
    assert abs(means["k2"] - exact) > 0.05 * exact
    assert (kl_estimate(log_p, log_q, "k3") >= 0).all() and (kl_estimate(log_p, log_q, "k1") < 0).any()


def test_the_gradient_of_k2_is_that_of_the_divergence_and_that_of_k3_is_not() -> None:
    """At the sampling policy: E[∇k2] = ∇KL(π ‖ π_ref), E[∇k3] = ∇KL(π_ref ‖ π), E[∇k1] = 0."""
    torch.manual_seed(1)
    logits = torch.randn(20, dtype=torch.float64, requires_grad=True)
    log_q = torch.randn(20).double().log_softmax(0)
    log_p = logits.log_softmax(0)
    p = log_p.exp().detach()

    def gradient(value: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(value, logits, retain_graph=True)[0]

    forward = gradient((log_p.exp() * (log_p - log_q)).sum())
    reverse = gradient((log_q.exp() * (log_q - log_p)).sum())
    torch.testing.assert_close(gradient((p * kl_estimate(log_p, log_q, "k2")).sum()), forward)
    torch.testing.assert_close(gradient((p * kl_estimate(log_p, log_q, "k3")).sum()), reverse)
    assert gradient((p * kl_estimate(log_p, log_q, "k1")).sum()).abs().max() < 1e-12
    assert (forward - reverse).abs().max() > 0.01


def test_the_clip_by_hand() -> None:
    """Four tokens: ratio 1.5 and 0.5, each with a good and a bad advantage, ε = 0.2."""
    log_probs = torch.tensor([1.5, 1.5, 0.5, 0.5]).log().requires_grad_()
    advantages = torch.tensor([2.0, -2.0, 2.0, -2.0])
    loss, is_clipped = clipped_loss(log_probs, torch.zeros(4), advantages, 0.2)
    assert loss.tolist() == pytest.approx([-2.4, 3.0, -1.0, 1.6])
    assert is_clipped.tolist() == [True, False, False, True]
    (gradient,) = torch.autograd.grad(loss.sum(), log_probs)
    assert gradient.tolist() == pytest.approx([0, 3.0, -1.0, 0])


def test_the_value_loss_by_hand() -> None:
    values, old, returns = (
        torch.tensor([1.0, 1.0, 0.0]),
        torch.tensor([0.0, 0.9, 0.0]),
        torch.tensor([2.0, 2.0, 1.0]),
    )
    assert value_loss(values, old, returns, None).tolist() == pytest.approx([0.5, 0.5, 0.5])
    assert value_loss(values, old, returns, 0.2).tolist() == pytest.approx([1.8**2 / 2, 0.5, 0.5])


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(0)
    made = LanguageModel(6, 5, partial(RNN, dim=5)).double()
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.7)
    return made


def rollout_batch(model: LanguageModel) -> RolloutBatch:
    tokens = torch.tensor([[4, 5, 1, 3, 0], [5, 2, 4, 1, 3], [4, 3, 0, 0, 0]])
    mask = torch.tensor([[0, 1, 1, 0], [0, 1, 1, 1], [1, 0, 0, 0]]).bool()
    with torch.no_grad():
        log_probs, _ = token_log_probs(model, tokens[:, :-1], tokens[:, 1:], mask)
    advantages = torch.randn(3, 4) * mask
    zeros = torch.zeros(3)
    return RolloutBatch(tokens, mask, log_probs, torch.zeros(3, 4), advantages, zeros, zeros, zeros)


def test_the_first_gradient_of_ppo_is_that_of_reinforce_with_a_baseline(model: LanguageModel) -> None:
    batch = rollout_batch(model)
    loss, _, _ = clipped_policy(model.train(), batch)  # type: ignore[arg-type]
    weights = list(model.parameters())
    got = torch.autograd.grad(loss, weights)
    total = torch.zeros((), dtype=torch.float64)  # a token at a time, with advantages = reward - baseline
    for row, t in itertools.product(range(3), range(4)):
        if batch.mask[row, t]:
            logits, _ = model(batch.tokens[row : row + 1, : t + 1])
            log_p = logits[0, -1].log_softmax(-1)[batch.tokens[row, t + 1]]
            total = total - batch.advantages[row, t] * log_p
    for a, b in zip(got, torch.autograd.grad(total, weights), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_evaluation_is_minus_the_penalised_reward(model: LanguageModel) -> None:
    batch = rollout_batch(model)._replace(scores=torch.tensor([1.0, 2.0, -0.5]))
    loss, numbers, _ = clipped_policy(model.eval(), batch)  # type: ignore[arg-type]
    assert float(loss) == numbers["nats"] == -2.5 and batch.num_targets == 3

"""The mixture of experts: closed forms of its mixture and its balance, and a queue played through by hand for its capacity."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import pytest
import torch

from seqloom.fused.dispatch import plain
from seqloom.nn import Experts, FeedForward, SwiGLU, Transformer, layer
from seqloom.nn.experts import load_balance_loss

SIZE = 6
tiny = partial(FeedForward, dim=5)


def made(training: bool = True, **options) -> Experts:
    torch.manual_seed(3)
    part = Experts(SIZE, expert=tiny, **options)
    torch.nn.init.normal_(part.router.weight)
    return part.train(training)


def choices(part: Experts, x: torch.Tensor) -> torch.Tensor:
    return (x @ part.router.weight.T).argsort(-1, descending=True)[..., : part.top_k]


def test_all_experts_chosen_is_the_dense_mixture():
    part, x = made(experts=4, top_k=4), torch.randn(2, 5, SIZE)
    gates = (x @ part.router.weight.T).softmax(-1)
    expected = sum(gates[..., i, None] * expert(x) for i, expert in enumerate(part.experts))
    torch.testing.assert_close(part(x), expected)


@pytest.mark.parametrize("training", [True, False])
def test_one_chosen_expert_counts_by_its_probability_among_all(training: bool):
    part, x = made(training, experts=4, top_k=1), torch.randn(2, 5, SIZE)
    y, chosen, gates = part(x), choices(part, x), (x @ part.router.weight.T).softmax(-1)
    assert len(chosen.unique()) > 1
    for b in range(2):
        for t in range(5):
            i = int(chosen[b, t])
            torch.testing.assert_close(y[b, t], gates[b, t, i] * part.experts[i](x[b, t]))


@pytest.mark.parametrize("top", [1, 2, 3])
def test_the_router_learns_from_the_task_itself(top: int):
    part = made(experts=4, top_k=top, balance=0.0)
    part(torch.randn(2, 5, SIZE)).square().sum().backward()
    assert float(part.router.weight.grad.abs().max()) > 1e-3


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (1, 1), (7, 9)])
def test_any_number_of_tokens(training: bool, shape: tuple[int, int]):
    part, x = made(training, experts=5), torch.randn(*shape, SIZE)
    with plain():
        expected = part(x)
    assert part(x).shape == x.shape
    torch.testing.assert_close(part(x), expected)
    torch.testing.assert_close(part(x, torch.zeros(shape, dtype=torch.bool)), torch.zeros_like(x))


# Balance


def test_balance_is_one_where_all_are_used_alike_and_n_where_one_has_all():
    alike = torch.full((8, 4), -50.0).scatter(1, torch.arange(8)[:, None] % 4, 50.0)
    assert float(load_balance_loss(alike, alike.topk(1).indices)) == pytest.approx(1)
    alone = torch.tensor([[50.0, -50.0, -50.0, -50.0]]).repeat(8, 1)
    assert float(load_balance_loss(alone, alone.topk(1).indices)) == pytest.approx(4)
    assert float(load_balance_loss(alone[:0], alone[:0].topk(1).indices)) == 0


def test_balance_is_its_formula_and_padding_has_no_share():
    part, x = made(experts=3, top_k=2, balance=0.7), torch.randn(2, 4, SIZE)
    mask = torch.tensor([[True, True, False, True], [False, True, True, True]])
    with layer.collect_aux_losses() as losses:
        part(x, mask)
    rows = x[mask]
    chosen = Counter(choices(part, rows).flatten().tolist())
    probabilities = [[math.exp(s) for s in row] for row in (rows @ part.router.weight.T).tolist()]
    expected = 0.0
    for i in range(3):
        mean = sum(row[i] / sum(row) for row in probabilities) / len(rows)
        expected += 0.7 * 3 * chosen[i] / (2 * len(rows)) * mean
    assert [float(loss.detach()) for loss in losses] == pytest.approx([expected])


def test_balance_teaches_the_router_to_use_all():
    part, x = made(experts=4, top_k=1, balance=1.0), torch.randn(40, 5, SIZE)
    with torch.no_grad():
        part.router.weight[0] = 0.1
        part.router.weight[1:] *= 0.01  # nearly all tokens with a positive sum go to the first
    optimizer, history = torch.optim.SGD(part.router.parameters(), 0.5), []
    for _ in range(60):
        with layer.collect_aux_losses() as losses:
            part(x)
        losses[0].backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(float(losses[0].detach()))
    counts = torch.bincount(choices(part, x).flatten(), minlength=4)
    assert history[-1] < history[0] and int(counts.min()) > 20  # 50 each would be even


def test_nothing_is_added_in_use_without_balance_or_uncollected():
    x = torch.randn(1, 3, SIZE)
    for part in (made(False), made(balance=0.0)):
        with layer.collect_aux_losses() as losses:
            part(x)
        assert losses == []
    made()(x)
    assert not layer.collecting_losses()


def test_every_parameter_has_a_gradient_though_its_expert_has_no_token():
    """Several processes must agree on which gradients there are."""
    part = made(experts=6, top_k=1)
    part(torch.randn(1, 1, SIZE)).sum().backward()
    assert all(weight.grad is not None for weight in part.experts.parameters())


# Capacity


def queued(part: Experts, x: torch.Tensor, room: int) -> torch.Tensor:
    """By hand: all first choices in order, then all second ones; a full expert turns away."""
    scores = x @ part.router.weight.T
    best, chosen = scores.topk(part.top_k, -1)
    gates = best.softmax(-1) if part.top_k > 1 else scores.softmax(-1).amax(-1, keepdim=True)
    taken, y = Counter(), torch.zeros_like(x)
    for rank in range(part.top_k):
        for t in range(len(x)):
            i = int(chosen[t, rank])
            taken[i] += 1
            if taken[i] <= room:
                y[t] += gates[t, rank] * part.experts[i](x[t])
    return y


@pytest.mark.parametrize(
    "top, capacity, room", [(1, 1.0, 4), (2, 1.0, 8), (2, 0.5, 4), (2, 0.01, 1), (3, 1.3, 16)]
)
def test_a_full_expert_turns_away(top: int, capacity: float, room: int):
    part, x = made(experts=3, top_k=top, capacity=capacity), torch.randn(12, SIZE)
    expected = queued(part, x, room)
    for form in (plain, lambda: torch.enable_grad()):
        with form():
            torch.testing.assert_close(part(x.view(3, 4, SIZE)).view(12, SIZE), expected)
    if room < 12:
        free = made(experts=3, top_k=top)(x[None])[0]
        assert not torch.allclose(expected, free)


def test_padding_takes_no_capacity():
    part, x = made(experts=3, top_k=2, capacity=0.5), torch.randn(3, 4, SIZE)
    mask = torch.tensor([[1, 0, 1, 1], [0, 0, 1, 1], [1, 1, 1, 0]], dtype=torch.bool)
    y = part(x, mask)
    torch.testing.assert_close(y[mask], queued(part, x[mask], math.ceil(0.5 * 2 * 8 / 3)))
    assert not y[~mask].any()


def test_capacity_and_noise_act_in_training_alone():
    x = torch.randn(4, 5, SIZE)
    same = made(False)
    free = same(x)
    for options in ({"capacity": 0.1}, {"noisy": True}):
        part = made(**options)
        part.load_state_dict(same.state_dict(), strict=False)
        assert not torch.allclose(part(x), free)
        part.eval()
        torch.testing.assert_close(part(x), free)


def test_noise_is_softplus_wide():
    """Scores of 0 and W_n = 0 leave ε softplus(0) = ε ln 2: two of them differ by √2 ln 2 in the root of the mean square."""
    part = Experts(SIZE, experts=2, top_k=2, expert=tiny, noisy=True)
    torch.nn.init.zeros_(part.router.weight)
    with torch.no_grad():
        gates, chosen = part.route(torch.randn(20000, SIZE))
    differences = (gates[:, 0] / gates[:, 1]).log()
    assert float(differences.square().mean().sqrt()) == pytest.approx(math.sqrt(2) * math.log(2), rel=0.025)
    assert float((chosen[:, 0] == 0).double().mean()) == pytest.approx(
        0.5, abs=0.018
    )  # five standard deviations


# In a Transformer


def test_a_transformer_gives_experts_its_first_weights():
    stack = Transformer(64, layers=8, heads=4, feedforward=partial(Experts, experts=4, top_k=2))
    for expert in stack.blocks[3].feedforward.experts.requires_grad_(False):
        assert float(expert.out_proj.weight.std()) == pytest.approx(0.02 / 4, rel=0.05)
        assert float(expert.in_proj.weight.std()) == pytest.approx(0.02, rel=0.05)


def test_any_forward_can_be_an_expert():
    inner = partial(Experts, experts=2, top_k=1, expert=partial(SwiGLU, dim=3))
    part, x = Experts(SIZE, experts=3, top_k=2, expert=inner).eval(), torch.randn(2, 5, SIZE)
    with plain():
        expected = part(x)
    torch.testing.assert_close(part(x), expected)


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"experts": 2, "top_k": 3}, "a token cannot choose 3 of 2 experts"),
        ({"top_k": 0}, "a token cannot choose 0 of 8 experts"),
        ({"capacity": 0.0}, "an expert needs a capacity above 0, not 0.0"),
    ],
)
def test_mistakes_are_one_sentence(options: dict, sentence: str):
    with pytest.raises(ValueError) as caught:
        Experts(SIZE, **options)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)

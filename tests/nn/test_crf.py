"""Paths of labels against all paths written out: every sequence, its score, and nothing else."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from seqloom.fused.dispatch import plain
from seqloom.nn import CRF, SoftmaxHead
from seqloom.nn.crf import allowed_transitions

LABELS = 3
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)
HOLES = torch.tensor([[0, 1, 1, 1], [1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
both = pytest.mark.parametrize("kind", [CRF, SoftmaxHead])
masks = pytest.mark.parametrize("mask", [MASK, HOLES, None], ids=["right", "holes", "none"])


@pytest.fixture(params=["fast", "plain"], autouse=True)
def form(request: pytest.FixtureRequest):
    """Everything holds for both forms."""
    if request.param == "fast":
        yield
        return
    with plain():
        yield


def made(kind: type, allowed: Tensor | None = None) -> torch.nn.Module:
    part = kind(LABELS, allowed)
    for weight in part.parameters():
        torch.nn.init.normal_(weight)
    return part


def score(part: torch.nn.Module, scores: list[list[float]], path: tuple[int, ...]) -> float:
    """s(y), term by term; a SoftmaxHead has only the tokens' own."""
    total = sum(row[k] for row, k in zip(scores, path, strict=True))
    if isinstance(part, CRF) and path:
        total += part.start_transitions[path[0]].item() + part.end_transitions[path[-1]].item()
        total += sum(part.transitions[a, b].item() for a, b in itertools.pairwise(path))
    return total


def legal(path: tuple[int, ...], allowed: Tensor | None) -> bool:
    if allowed is None or not path:
        return True
    edge = len(allowed) > LABELS
    around = [LABELS, *path, LABELS] if edge else path
    return all(bool(allowed[a, b]) for a, b in itertools.pairwise(around))


def paths(
    part: torch.nn.Module, scores: Tensor, allowed: Tensor | None = None
) -> dict[tuple[int, ...], float]:
    """Every legal path of one sentence (n, K) and its probability among them."""
    rows = scores.tolist()
    powers = {
        p: math.exp(score(part, rows, p))
        for p in itertools.product(range(LABELS), repeat=len(rows))
        if legal(p, allowed)
    }
    total = sum(powers.values())
    return {path: power / total for path, power in powers.items()}


def given() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 4, LABELS) * 2, torch.randint(LABELS, (4, 4))


@both
@masks
def test_nats_are_those_of_one_path_among_all(kind: type, mask: Tensor | None):
    part, (scores, tags) = made(kind), given()
    real = torch.ones(4, 4, dtype=torch.bool) if mask is None else mask
    found = part.nll(scores, tags.masked_fill(~real, -100), mask)
    expected = [
        -math.log(paths(part, s[m])[tuple(t[m].tolist())]) for s, t, m in zip(scores, tags, real, strict=True)
    ]
    torch.testing.assert_close(found.detach(), torch.tensor(expected))


@both
@masks
def test_the_best_path_is_the_best_of_all(kind: type, mask: Tensor | None):
    part, (scores, _) = made(kind), given()
    real = torch.ones(4, 4, dtype=torch.bool) if mask is None else mask
    found = part.decode(scores, mask)
    assert not found[~real].any()
    for row, s, m in zip(found, scores, real, strict=True):
        all_paths = paths(part, s[m])
        assert tuple(row[m].tolist()) == max(all_paths, key=all_paths.get)


@both
@masks
def test_marginals_are_sums_over_paths(kind: type, mask: Tensor | None):
    part, (scores, _) = made(kind), given()
    real = torch.ones(4, 4, dtype=torch.bool) if mask is None else mask
    found = part.marginals(scores, mask).detach()
    assert not found[~real].any()
    for row, s, m in zip(found, scores, real, strict=True):
        expected = torch.zeros(int(m.sum()), LABELS)
        for path, p in paths(part, s[m]).items():
            for t, k in enumerate(path):
                expected[t, k] += p
        torch.testing.assert_close(row[m], expected)


RULES = {
    "steps": torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1]]),
    "border": torch.tensor([[1, 1, 0, 1], [1, 1, 1, 0], [1, 0, 1, 1], [1, 0, 0, 1]]),
}


@pytest.mark.parametrize("rule", RULES)
def test_only_allowed_paths_count(rule: str):
    allowed = RULES[rule]
    part, (scores, _) = made(CRF, allowed), given()
    found, chances, nearest = (
        part.decode(scores, MASK),
        part.marginals(scores, MASK).detach(),
        made(SoftmaxHead, allowed).decode(scores, MASK),
    )
    for row in range(3):
        m = MASK[row]
        all_paths = paths(part, scores[row][m], allowed)
        assert tuple(found[row][m].tolist()) == max(all_paths, key=all_paths.get)
        alone = paths(made(SoftmaxHead), scores[row][m], allowed)
        assert tuple(nearest[row][m].tolist()) == max(alone, key=alone.get)
        expected = torch.zeros(int(m.sum()), LABELS)
        for path, p in all_paths.items():
            for t, k in enumerate(path):
                expected[t, k] += p
        torch.testing.assert_close(chances[row][m], expected)
        for path, p in all_paths.items():
            tags = torch.zeros(1, 4, dtype=torch.long)
            tags[0, : len(path)] = torch.tensor(path)
            assert part.nll(scores[row, None], tags, MASK[row, None]).item() == pytest.approx(-math.log(p))


def test_a_forbidden_path_costs_more_than_any_other_and_is_no_nan():
    part, scores = made(CRF, RULES["steps"]), torch.randn(1, 2, LABELS).requires_grad_()
    loss = part.nll(scores, torch.tensor([[0, 2]]))
    loss.backward()
    assert loss > 1000 and scores.grad.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in part.parameters())


def test_gradients_are_finite_differences():
    part, (scores, tags) = made(CRF), given()
    weights = [w.detach().requires_grad_() for w in part.parameters()]

    def nats(scores: Tensor, *values: Tensor) -> Tensor:
        there = dict(zip(dict(part.named_parameters()), values, strict=True))
        return torch.func.functional_call(
            Call(part), {f"part.{k}": v for k, v in there.items()}, (scores, tags)
        )

    assert torch.autograd.gradcheck(nats, [scores.requires_grad_(), *weights])


class Call(torch.nn.Module):
    def __init__(self, part: CRF):
        super().__init__()
        self.part = part

    def forward(self, scores: Tensor, tags: Tensor) -> Tensor:
        return self.part.nll(scores, tags, HOLES)


@both
def test_the_gradient_of_nats_is_marginals_less_the_path(kind: type):
    part, (scores, tags) = made(kind), given()
    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(part.nll(scores, tags, HOLES).sum(), scores)
    expected = part.marginals(scores, HOLES) - torch.nn.functional.one_hot(tags, LABELS) * HOLES[..., None]
    torch.testing.assert_close(gradient, expected)


@both
def test_padding_may_hold_anything(kind: type):
    part, (scores, tags) = made(kind), given()
    for junk in (math.nan, math.inf, 1e30):
        other = scores.masked_fill(~MASK[..., None], junk).requires_grad_()
        loss = part.nll(other, tags, MASK)
        torch.testing.assert_close(loss, part.nll(scores, tags, MASK))
        (gradient,) = torch.autograd.grad(loss.sum(), other)
        assert not gradient[~MASK].any() and gradient.isfinite().all()
        assert torch.equal(part.decode(other, MASK), part.decode(scores, MASK))
        torch.testing.assert_close(part.marginals(other, MASK), part.marginals(scores, MASK))


@pytest.mark.parametrize("size", [50.0, 500.0])
def test_large_scores_overflow_nowhere(size: float):
    """In single precision, over a long sentence whose best path is all that counts."""
    part = made(CRF).float()
    scores = (torch.randn(2, 60, LABELS) * size).float().requires_grad_()
    best = part.decode(scores)
    loss = part.nll(scores, best)
    loss.sum().backward()
    assert (
        loss.isfinite().all()
        and (loss < 60).all()
        and (loss > -0.1 * size).all()
        and scores.grad.isfinite().all()
    )


@pytest.mark.parametrize("spread", [1.0, 300.0, 3000.0])
@pytest.mark.parametrize("ruled", [False, True])
def test_what_exponentials_cannot_hold(spread: float, ruled: bool):
    """Scores far apart, and a label that is reached only through one a thousand nats below the best: against sums taken by torch in one piece."""
    labels, length = 6, 9
    allowed = torch.rand(labels, labels) < 0.5 if ruled else None
    part = CRF(labels, allowed)
    for weight in part.parameters():
        torch.nn.init.normal_(weight, std=spread)
    scores, tags = (
        (torch.randn(3, length, labels) * spread).requires_grad_(),
        torch.randint(labels, (3, length)),
    )
    mask = torch.arange(length) < torch.tensor([[length], [4], [1]])
    wanted = [scores, *part.parameters()]
    loss = part.nll(scores, tags, mask)
    steps, first, last = part.transition_scores()
    expected = []
    for s, y, m in zip(scores, tags, mask, strict=True):
        n, total = int(m.sum()), (first + s[0])
        for t in range(1, n):
            total = torch.stack([torch.logsumexp(total + steps[:, k], 0) + s[t, k] for k in range(labels)])
        own = (
            first[y[0]]
            + last[y[n - 1]]
            + sum(s[t, y[t]] for t in range(n))
            + sum(steps[y[t - 1], y[t]] for t in range(1, n))
        )
        expected.append(torch.logsumexp(total + last, 0) - own)
    expected = torch.stack(expected)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-7)
    gradients = torch.autograd.grad(loss.sum(), wanted), torch.autograd.grad(expected.sum(), wanted)
    for a, b in zip(*gradients, strict=True):
        assert a.isfinite().all()
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@both
def test_no_words_no_loss(kind: type):
    part = made(kind)
    assert part.nll(torch.zeros(2, 0, LABELS), torch.zeros(2, 0, dtype=torch.long)).tolist() == [0, 0]
    assert part.decode(torch.zeros(2, 0, LABELS)).shape == (2, 0) and part.marginals(
        torch.zeros(2, 0, LABELS)
    ).shape == (2, 0, LABELS)


def test_bio_and_its_kin():
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    table = allowed_transitions(labels)
    for a, before in enumerate([*labels, "border"]):
        for b, after in enumerate([*labels, "border"]):
            assert bool(table[a, b]) == (
                not after.startswith("I-") or before in (f"B-{after[2:]}", f"I-{after[2:]}")
            ), (before, after)
    closing = ["O", "B-X", "I-X", "E-X", "S-X", "S-Y"]
    table = allowed_transitions(closing)
    after = {
        before: {closing[b] if b < 6 else "end" for b in range(7) if table[a, b]}
        for a, before in enumerate([*closing, "begin"])
    }
    fresh = {"O", "B-X", "S-X", "S-Y", "end"}
    assert after == {
        "O": fresh,
        "B-X": {"I-X", "E-X"},
        "I-X": {"I-X", "E-X"},
        "E-X": fresh,
        "S-X": fresh,
        "S-Y": fresh,
        "begin": fresh,
    }
    assert allowed_transitions(["NOUN", "VERB", "B", "I"]).all()


@pytest.mark.parametrize(
    "make", [lambda: CRF(0), lambda: CRF(3, torch.ones(2, 2)), lambda: SoftmaxHead(3, torch.ones(3, 4))]
)
def test_sizes_that_do_not_fit(make):
    with pytest.raises(ValueError, match="label"):
        make()

"""Preference losses equal a literal numpy computation over one pair at a time; their objectives gather the right rows."""

import math

import numpy as np
import pytest
import torch

from seqloom.batches.preference import JudgedBatch, PreferenceBatch
from seqloom.errors import ConfigError
from seqloom.models import LanguageModel
from seqloom.nn import RNN
from seqloom.objectives.preference import bradley_terry, bradley_terry_loss, dpo, judged, preference_loss


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def literal(loss: str, chosen: list[float], rejected: list[float], beta: float, z: float) -> list[float]:
    """The formulas of the papers, one pair at a time."""
    values = []
    for plus, minus in zip(chosen, rejected, strict=True):
        if loss == "dpo":
            values.append(-math.log(sigmoid(beta * plus - beta * minus)))
        elif loss == "ipo":
            values.append((plus - minus - 1 / (2 * beta)) ** 2)
        else:
            values.append((1 - sigmoid(beta * (plus - z))) + (1 - sigmoid(beta * (z - minus))))
    return values


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto"])
def test_losses_equal_the_papers(loss: str) -> None:
    generator = np.random.default_rng(0)
    chosen, rejected = generator.normal(0, 5, (2, 50))
    for beta, z in ((0.1, 0.0), (0.7, 1.3)):
        got = preference_loss(torch.tensor(chosen), torch.tensor(rejected), loss, beta, baseline=z)  # type: ignore[arg-type]
        assert got.numpy() == pytest.approx(literal(loss, chosen.tolist(), rejected.tolist(), beta, z))


def test_smoothing_is_the_loss_of_labels_that_are_wrong_at_that_rate() -> None:
    chosen, rejected = torch.tensor([1.5, -2.0]), torch.tensor([0.3, 1.0])
    right, wrong = preference_loss(chosen, rejected), preference_loss(rejected, chosen)
    torch.testing.assert_close(preference_loss(chosen, rejected, smoothing=0.2), 0.8 * right + 0.2 * wrong)


def test_bradley_terry_by_hand() -> None:
    chosen, rejected, margins = torch.tensor([2.0, -1.0]), torch.tensor([0.5, 0.0]), torch.tensor([1.0, 0.5])
    expected = [-math.log(sigmoid(2 - 0.5 - 1)), -math.log(sigmoid(-1 - 0.5))]
    assert bradley_terry_loss(chosen, rejected, margins).tolist() == pytest.approx(expected)


def batch_of(
    pairs: list[tuple[list[int], list[int], list[int]]], mismatched: bool = False
) -> PreferenceBatch:
    """Prompt, chosen and rejected ids of each pair."""
    rows = [(x, plus) for x, plus, _ in pairs] + [(x, minus) for x, _, minus in pairs]
    if mismatched:
        rows += [(x, pairs[(i + 1) % len(pairs)][1]) for i, (x, _, _) in enumerate(pairs)]
    width = max(len(x) + len(y) for x, y in rows)
    tokens = torch.tensor([[*x, *y] + [0] * (width - len(x) - len(y)) for x, y in rows])
    positions = torch.arange(width)
    ends = torch.tensor([[len(x) + len(y)] for x, y in rows])
    starts = torch.tensor([[len(x)] for x, _ in rows])
    mask = (positions >= starts) & (positions < ends)
    counted = torch.ones(len(pairs), dtype=torch.bool)
    return PreferenceBatch(tokens, positions < ends, mask[:, 1:], torch.zeros(len(pairs)), counted)


PAIRS = [([4, 5], [6, 3], [7, 7, 3]), ([5], [4, 4, 3], [3]), ([6, 4], [5, 3], [4, 3])]


@pytest.fixture
def model() -> LanguageModel:
    from functools import partial

    torch.manual_seed(0)
    made = LanguageModel(8, 6, partial(RNN, dim=6)).double()
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.randn(weight.shape))
    return made


def text_log_prob(model: LanguageModel, prompt: list[int], text: list[int]) -> float:
    """ln P(text | prompt), a token at a time."""
    total = 0.0
    for index, token in enumerate(text):
        logits, _ = model(torch.tensor([prompt + text[:index]]))
        total += float(logits[0, -1].log_softmax(-1)[token])
    return total


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto"])
def test_the_objective_is_the_loss_of_texts_after_their_prompts(model: LanguageModel, loss: str) -> None:
    batch = batch_of(PAIRS, mismatched=loss == "kto")
    reference = torch.linspace(-9, -2, len(batch.tokens))
    got, numbers, _ = dpo(model, batch._replace(reference=reference), loss=loss, beta=0.3)  # type: ignore[arg-type]
    rows = [(x, plus) for x, plus, _ in PAIRS] + [(x, minus) for x, _, minus in PAIRS]
    rows += [(x, PAIRS[(i + 1) % 3][1]) for i, (x, _, _) in enumerate(PAIRS)]
    ratios = [
        text_log_prob(model, x, y) - float(r) for (x, y), r in zip(rows, reference.tolist(), strict=False)
    ]
    z = max(0.0, sum(ratios[6:9]) / 3)
    expected = sum(literal(loss, ratios[:3], ratios[3:6], 0.3, z))
    assert float(got) == pytest.approx(expected, rel=1e-5)
    assert numbers["correct"] == sum(a > b for a, b in zip(ratios[:3], ratios[3:6], strict=True))


def test_the_chosen_text_can_be_kept_probable(model: LanguageModel) -> None:
    pairs = [([1, 2], [3, 4, 2], [4]), ([3], [2], [1, 1, 4])]
    batch = batch_of(pairs)._replace(reference=torch.zeros(4))
    plain, numbers, _ = dpo(model, batch)
    kept, same, _ = dpo(model, batch, chosen_weight=0.5)
    means = [text_log_prob(model, prompt, chosen) / len(chosen) for prompt, chosen, _ in pairs]
    assert float(kept) == pytest.approx(float(plain) - 0.5 * sum(means), rel=1e-5)
    assert same == numbers


def test_pairs_that_do_not_count_change_nothing(model: LanguageModel) -> None:
    batch = batch_of(PAIRS)._replace(reference=torch.zeros(6))
    two = dpo(model, batch._replace(counted=torch.tensor([True, False, True])))
    alone = dpo(model, batch_of([PAIRS[0], PAIRS[2]])._replace(reference=torch.zeros(4)))
    assert (
        float(two[0]) == pytest.approx(float(alone[0]), rel=1e-5) and two[1]["correct"] == alone[1]["correct"]
    )


def test_what_is_missing_is_named(model: LanguageModel) -> None:
    with pytest.raises(ConfigError, match="--from RUN"):
        dpo(model, batch_of(PAIRS))
    with pytest.raises(ConfigError, match="mismatched"):
        dpo(model, batch_of(PAIRS)._replace(reference=torch.zeros(6)), loss="kto")


def test_a_reward_model_is_trained_by_bradley_terry() -> None:
    class Scorer:
        training = True

        def scores(self, text: tuple[torch.Tensor, torch.Tensor], pair: None = None) -> torch.Tensor:
            return (text[0] * text[1]).sum(1).float() / 4

    batch = batch_of(PAIRS)._replace(margins=torch.tensor([1.0, 0.0, 2.0]))
    rewards = [sum(x + y) / 4 for x, y in [(x, p) for x, p, _ in PAIRS] + [(x, m) for x, _, m in PAIRS]]
    plain = [-math.log(sigmoid(a - b)) for a, b in zip(rewards[:3], rewards[3:], strict=True)]
    with_margin = [
        -math.log(sigmoid(a - b - 0.5 * m)) + 0.1 * (a + b) ** 2
        for a, b, m in zip(rewards[:3], rewards[3:], [1, 0, 2], strict=True)
    ]
    loss, numbers, _ = bradley_terry(Scorer(), batch, margin_weight=0.5, center=0.1)
    assert numbers["nats"] == pytest.approx(sum(plain)) and float(loss) == pytest.approx(
        sum(with_margin), rel=1e-6
    )
    assert numbers["correct"] == sum(a > b for a, b in zip(rewards[:3], rewards[3:], strict=True))


def test_single_judgements_are_a_logistic_regression() -> None:
    class Scorer:
        training = True

        def scores(self, text: tuple[torch.Tensor, torch.Tensor], pair: None = None) -> torch.Tensor:
            return text[0][:, 0].float() / 3

    tokens = torch.tensor([[1], [-2], [4], [9]])
    batch = JudgedBatch(
        tokens, tokens > 0, torch.tensor([1.0, 1.0, 0.0, 1.0]), torch.tensor([True, True, True, False])
    )
    expected = -math.log(sigmoid(1 / 3)) - math.log(sigmoid(-2 / 3)) - math.log(sigmoid(-4 / 3))
    loss, numbers, _ = judged(Scorer(), batch)
    assert float(loss) == pytest.approx(expected) and numbers["correct"] == 1 and batch.num_targets == 3

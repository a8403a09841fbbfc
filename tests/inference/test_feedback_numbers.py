"""Scores on preferences leave the model as it was: a policy is measured in the middle of its training."""

import math

import pytest
import torch

from seqloom.batches.preference import PreferenceBatch
from seqloom.inference.feedback_numbers import accuracy_number, implicit_reward_numbers, likelihood_numbers
from seqloom.models import LanguageModel
from seqloom.nn import RNN


def preferences() -> PreferenceBatch:
    """Two pairs of the same width; the second does not count."""
    tokens = torch.tensor([[4, 5, 6, 3], [5, 4, 4, 3], [4, 7, 7, 3], [5, 6, 6, 3]])
    mask = torch.ones(4, 3, dtype=torch.bool)
    counted = torch.tensor([True, False])
    return PreferenceBatch(tokens, torch.ones(4, 4, dtype=torch.bool), mask, torch.zeros(2), counted)


def policy(seed: int) -> LanguageModel:
    torch.manual_seed(seed)
    return LanguageModel(9, 6, RNN).train()


def test_models_in_training_stay_in_training() -> None:
    model, reference = policy(0), policy(1).eval()
    numbers = {number.name: number for number in likelihood_numbers(model, [preferences()], {})}
    assert model.training and numbers["preference_accuracy"].n == 1
    accuracy, *_ = implicit_reward_numbers(model, reference, [preferences()], {}, beta=0.1)
    assert accuracy.name == "implicit_reward_accuracy"
    assert model.training and not reference.training


def test_models_in_training_stay_in_training_after_an_error() -> None:
    model = policy(0)
    with pytest.raises(TypeError, match="has no preferences"):
        likelihood_numbers(model, [object()], {})  # type: ignore[list-item]
    assert model.training


def test_an_accuracy_has_the_interval_of_whole_pairs() -> None:
    half = accuracy_number("a", 1.5, 3, "pairs:3")
    assert half.value == 50 and half.low is not None and half.low < 50 < (half.high or math.nan)
    assert accuracy_number("a", 0, 0, "pairs:0").value == 0

"""The masked objective: only what was picked counts, and pairs add the mean of theirs."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from seqloom.batches import MaskedBatch
from seqloom.models import MaskedLM
from seqloom.models.encoder import Pooler
from seqloom.nn import SegmentEmbedding, Transformer
from seqloom.objectives import masked

IDS = torch.tensor([[2, 7, 4, 9, 3], [2, 6, 8, 11, 3]])
WAS = torch.tensor([[2, 7, 8, 9, 3], [2, 6, 8, 10, 3]])
PICKED = torch.tensor([[0, 0, 1, 0, 0], [0, 1, 0, 1, 0]], dtype=torch.bool)


@pytest.fixture
def model() -> MaskedLM:
    torch.manual_seed(0)
    return MaskedLM(
        12, 8, partial(Transformer, layers=1, heads=2, causal=False), SegmentEmbedding, pooler=Pooler
    ).eval()


def test_x17_only_the_picked_count(model: MaskedLM) -> None:
    """Against a sum over the three of them; what else was there before is no matter."""
    loss, numbers, state = masked(model, MaskedBatch(IDS, WAS, PICKED))
    log_p = model(IDS)[0].log_softmax(-1)
    expected = -(log_p[0, 2, 8] + log_p[1, 1, 6] + log_p[1, 3, 10])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5) == numbers["nats"] and state is None
    other = torch.where(PICKED, WAS, 5)
    assert masked(model, MaskedBatch(IDS, other, PICKED))[0].item() == loss.item()
    assert numbers["correct"] == sum(
        int(log_p[r, t].argmax() == WAS[r, t]) for r, t in PICKED.nonzero().tolist()
    )


def test_pairs_add_the_mean_of_their_loss(model: MaskedLM) -> None:
    alone, _, _ = masked(model, MaskedBatch(IDS, WAS, PICKED))
    follows = torch.tensor([1, 0])
    both, numbers, _ = masked(model, MaskedBatch(IDS, WAS, PICKED, follows), nsp_weight=0.5)
    nsp_log_probs = model.nsp_head(model.pooler(model.features(IDS)[0])).log_softmax(-1)
    expected = alone - 0.5 * 3 * (nsp_log_probs[0, 1] + nsp_log_probs[1, 0]) / 2
    assert both.item() == pytest.approx(expected.item(), rel=1e-5)
    assert numbers["pairs"] == 2 and numbers["nsp_correct"] == int(
        nsp_log_probs[0, 1] > nsp_log_probs[0, 0]
    ) + int(nsp_log_probs[1, 0] > nsp_log_probs[1, 1])


def test_a_model_without_a_pooler_is_told_to_get_one() -> None:
    model = MaskedLM(12, 8, partial(Transformer, layers=1, heads=2, causal=False))
    with pytest.raises(ValueError, match=r"model\.pooler=Pooler"):
        masked(model, MaskedBatch(IDS, WAS, PICKED, torch.tensor([1, 0])))

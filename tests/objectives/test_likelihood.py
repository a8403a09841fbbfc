"""The objectives equal their definitions, token by token, and any split of a batch gives the same sums."""

from functools import partial

import pytest
import torch

from seqloom.batches import PairBatch, TokenBatch
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import RNN, Transformer
from seqloom.objectives import next_token, translation

torch.manual_seed(0)
MODEL = LanguageModel(9, 8, partial(RNN, layers=1)).double()
PAIRS = Seq2Seq(
    9, 9, 8, partial(Transformer, layers=1, heads=2, causal=False), partial(Transformer, layers=1, heads=2)
).double()


def smoothed(log_p: torch.Tensor, target: int, epsilon: float) -> torch.Tensor:
    return -(1 - epsilon) * log_p[target] - epsilon * log_p.mean()


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_next_token_is_the_sum_over_counted_tokens(epsilon: float) -> None:
    ids, targets = torch.randint(0, 9, (2, 5)), torch.randint(0, 9, (2, 5))
    mask = torch.tensor([[True] * 5, [True, True, False, True, False]])
    loss, numbers, state = next_token(MODEL.train(), TokenBatch(ids, targets, mask), None, epsilon)
    log_p = MODEL(ids)[0].log_softmax(-1)
    expected = sum(
        smoothed(log_p[b, t], targets[b, t], epsilon) for b in range(2) for t in range(5) if mask[b, t]
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)  # logits go to single precision
    assert numbers["nats"] == pytest.approx(
        sum(-log_p[b, t, targets[b, t]].item() for b in range(2) for t in range(5) if mask[b, t]), rel=1e-5
    )
    whole = MODEL.stack(MODEL.embedding(ids))[1]
    assert torch.allclose(state[0][0].h, whole[0][0].h)


def test_the_state_goes_on_where_the_batch_ended() -> None:
    ids = torch.randint(0, 9, (3, 8))
    targets, mask = ids.roll(-1, 1), torch.ones(3, 8, dtype=torch.bool)
    whole, _, _ = next_token(MODEL, TokenBatch(ids, targets, mask))
    first, _, state = next_token(MODEL, TokenBatch(ids[:, :3], targets[:, :3], mask[:, :3]))
    second, _, _ = next_token(MODEL, TokenBatch(ids[:, 3:], targets[:, 3:], mask[:, 3:]), state)
    assert (first + second).item() == pytest.approx(whole.item(), rel=1e-6)


def test_translation_of_a_batch_is_the_sum_over_its_pairs() -> None:
    source, ids, targets = (
        torch.randint(0, 9, (3, 6)),
        torch.randint(0, 9, (3, 5)),
        torch.randint(0, 9, (3, 5)),
    )
    source_mask = torch.arange(6) < torch.tensor([[6], [2], [4]])
    mask = torch.arange(5) < torch.tensor([[3], [5], [1]])
    whole, _, state = translation(PAIRS, PairBatch(source, source_mask, ids, targets, mask))
    alone = [
        translation(
            PAIRS,
            PairBatch(
                *(
                    part[b : b + 1]
                    for part in (source[:, :s], source_mask[:, :s], ids[:, :t], targets[:, :t], mask[:, :t])
                )
            ),
        )[0]
        for b, (s, t) in enumerate([(6, 3), (2, 5), (4, 1)])
    ]
    assert state is None
    assert sum(alone).item() == pytest.approx(whole.item(), rel=1e-5)


def test_smoothing_is_left_out_of_evaluation() -> None:
    batch = TokenBatch(
        torch.randint(0, 9, (2, 5)), torch.randint(0, 9, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    )
    loss, numbers, _ = next_token(MODEL.eval(), batch, None, 0.3)
    assert loss.item() == pytest.approx(numbers["nats"])

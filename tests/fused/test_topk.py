"""The best few tokens against a sort of the whole row."""

import pytest
import torch

from seqloom.fused.topk import topk_log_probs


@pytest.fixture(autouse=True)
def precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows, vocabulary", [(1, 1), (3, 5), (2, 64), (5, 1000), (33, 129)])
@pytest.mark.parametrize("count", [1, 4, 10, 100])
def test_the_best_are_those_of_a_sort(threads, rows, vocabulary, count):
    torch.set_num_threads(threads)
    logits = torch.randn(rows, vocabulary) * 5
    ban = [0, vocabulary // 2] if vocabulary > 2 else []
    log_p = logits.double().log_softmax(-1)
    free = log_p.clone()
    free[:, ban] = -torch.inf
    wanted, order = free.sort(dim=-1, descending=True, stable=True)
    count = min(count, vocabulary)
    for grad in (False, True):  # compiled, and torch's
        with torch.set_grad_enabled(grad):
            found = topk_log_probs(logits.clone(), count, ban)
        torch.testing.assert_close(found.log_probs.double(), wanted[:, :count], rtol=1e-5, atol=1e-5)
        real = wanted[:, :count] > -torch.inf
        assert torch.equal(found.tokens[real], order[:, :count][real])
        torch.testing.assert_close(
            found.logsumexp.double(), logits.double().logsumexp(-1), rtol=1e-5, atol=1e-5
        )


def test_equals_come_in_order_and_extremes_stay_finite():
    with torch.no_grad():
        found = topk_log_probs(torch.zeros(2, 300), 5)
        assert found.tokens.tolist() == [[0, 1, 2, 3, 4]] * 2
        found = topk_log_probs(torch.tensor([[1e30, -1e30, 0.0], [-1e30, -1e30, -1e30]]), 2)
        assert found.log_probs[0].tolist() == [0.0, pytest.approx(-1e30)] and found.tokens[0].tolist() == [
            0,
            2,
        ]
        assert found.log_probs[1, 0].item() == pytest.approx(-1.0986, abs=1e-3) or found.logsumexp[1] == -1e30
        found = topk_log_probs(torch.full((1, 4), -torch.inf).index_fill(1, torch.tensor([2]), 1.0), 3)
        assert found.tokens[0, 0] == 2 and found.log_probs[0].tolist() == [0.0, -torch.inf, -torch.inf]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 7, 63, 64, 99])
def test_a_damaged_row_says_so(value, place):
    logits = torch.randn(3, 100)
    logits[1, place] = value
    with torch.no_grad():
        found = topk_log_probs(logits, 2)
    assert found.logsumexp.isfinite().tolist() == [True, False, True]

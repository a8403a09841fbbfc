"""When fast forms may run: in the plain form, for other dtypes, and without kernels every fast form says that it does not apply."""

import pytest
import torch

from seqloom.fused import crf, dispatch
from seqloom.fused.linear import cross_entropy, linear_int8
from seqloom.fused.rotary import rotary, rotary_table
from seqloom.kernels import available, parallel


def test_supports_one_precision_on_the_cpu_outside_plain_and_autocast():
    single, double = torch.zeros(1, dtype=torch.float32), torch.zeros(1, dtype=torch.float64)
    assert dispatch.supports(single, single)
    assert dispatch.supports(double)
    assert not dispatch.supports(single, double)
    assert not dispatch.supports(single.half())
    assert not dispatch.supports(single.to("meta"))
    with dispatch.plain():
        assert not dispatch.supports(single)
    with torch.autocast("cpu", torch.bfloat16):
        assert not dispatch.supports(single)


def test_decoding_kernels_need_float32_without_gradients():
    x = torch.zeros(1, dtype=torch.float32)
    assert not dispatch.is_f32_inference(x)
    with torch.no_grad():
        assert dispatch.is_f32_inference(x)
        assert not dispatch.is_f32_inference(x.double())
        with dispatch.plain():
            assert not dispatch.is_f32_inference(x)


@pytest.fixture(params=["plain", "no kernels"])
def without_fast_forms(request, monkeypatch):
    if request.param == "plain":
        with dispatch.plain():
            yield
    else:
        monkeypatch.setattr(available, "AVAILABLE", False)
        yield


def test_a_fast_form_that_does_not_apply_returns_none(without_fast_forms):
    logits, targets = torch.randn(3, 5), torch.tensor([0, 1, 2])
    assert cross_entropy(logits, targets, 0.1) is None
    scores, lengths = torch.randn(2, 3, 4), torch.tensor([3, 1])
    transitions = torch.randn(4, 4), torch.randn(4), torch.randn(4)
    assert crf.log_partition(scores, lengths, transitions) is None
    assert crf.marginals(scores, lengths, transitions) is None
    assert crf.viterbi(scores, lengths, transitions) is None
    panels = torch.zeros(1, 2, 16, 2, dtype=torch.int8)
    x = torch.zeros(2, 4, dtype=torch.float32)
    assert linear_int8(x, 16, panels, torch.zeros(16), torch.zeros(16)) is None


def test_rotary_reads_its_table_only_where_it_applies():
    def table():
        return rotary_table(torch.randn(3, 2), torch.float64, halves=True)

    def unread():
        raise AssertionError("read")

    x = torch.randn(1, 3, 2, 4, dtype=torch.float64)
    y = rotary(x, table)
    assert y is not None and y.shape == x.shape
    assert rotary(x.half(), unread) is None
    with dispatch.plain():
        assert rotary(x, unread) is None


def test_without_libgomp_one_thread_runs(monkeypatch):
    assert dispatch.num_threads() == torch.get_num_threads()
    monkeypatch.setattr(parallel, "HAS_GOMP", False)
    assert dispatch.num_threads() == 1

"""Weights in bytes: the product is the one that is written down, its error is bounded, and models keep their parts."""

from functools import partial

import pytest
import torch
from torch import nn

from seqloom.fused.dispatch import plain
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import RNN, AttentiveRNN, Output, Transformer, quantize
from seqloom.nn.int8 import Int8Linear


@pytest.fixture(autouse=True)
def precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 13, 200])
@pytest.mark.parametrize("columns, size", [(1, 2), (16, 8), (17, 30), (100, 64)])
def test_the_product_is_its_definition(rows, columns, size):
    """ŷ = Σ (sₙ wₙₖ)(t xₖ) + b with whole numbers w and x, computed in numbers of double precision."""
    torch.manual_seed(rows)
    x, weight, bias = (
        torch.randn(rows, size) * 10 ** torch.randn(rows, 1),
        torch.randn(columns, size),
        torch.randn(columns),
    )
    layer = Int8Linear(weight, bias)
    scale = weight.double().abs().amax(1, keepdim=True) / 127
    top, most = x.abs().amax(1, keepdim=True), min(2**15 - 1, (2**31 - 1) // (127 * size))
    rounded = (x * (torch.tensor(float(most)) / top)).round().double() * (
        top / most
    ).double()  # in single precision, so that ties fall alike
    whole = (layer.weight.double() / scale).round()
    assert (whole.abs() <= 127).all() and ((whole - weight / scale).abs() < 0.50001).all()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        y = layer(x)
        wanted = rounded @ (whole * scale).T + bias
        assert ((y - wanted).abs() <= 1e-6 * (1 + rounded.abs() @ (whole * scale).abs().T)).all()
    with plain():
        assert ((layer(x) - wanted).abs() <= 1e-5 * (1 + rounded.abs() @ (whole * scale).abs().T)).all()
    torch.testing.assert_close(layer.quantize_input(x).double(), rounded, rtol=1e-6, atol=0)
    assert ((rounded - x).abs() <= 0.51 * top / most).all()


def test_the_error_is_bounded_by_half_a_step_of_each_weight():
    x, weight = torch.randn(50, 96), torch.randn(64, 96)
    y, exact = Int8Linear(weight)(x), x.double() @ weight.double().T
    scale, step = weight.abs().amax(1) / 127, x.abs().amax(1, keepdim=True) / 32767
    bound = x.abs().sum(1, keepdim=True) * scale / 2 + step / 2 * (weight.abs().sum(1) + 96 * scale)
    assert ((y - exact).abs() <= bound * 1.01).all()
    assert (y - exact).std() / exact.std() < 0.008  # uniform rounding: (max |w| / 127) / √12 of w's deviation


def test_no_sum_overflows():
    """The largest inputs against the largest weights, as many as a row may have."""
    for size in (2, 768, 4096, 20000):
        x = torch.full((7, size), 3.0)
        y = Int8Linear(torch.full((3, size), -2.0))(x)
        torch.testing.assert_close(y, torch.full((7, 3), -6.0 * size), rtol=1e-5, atol=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_is_not_hidden(value):
    x = torch.randn(3, 8)
    x[1, 2] = value
    y = Int8Linear(torch.randn(5, 8))(x)
    assert y[1].isnan().all() and y[[0, 2]].isfinite().all()


def test_zeros_and_tiny_numbers():
    layer = Int8Linear(torch.zeros(5, 8), torch.arange(5.0))
    assert torch.equal(layer(torch.randn(2, 8)), torch.arange(5.0).expand(2, 5))
    layer = Int8Linear(torch.randn(5, 8), torch.arange(5.0))
    torch.testing.assert_close(layer(torch.full((2, 8), 1e-42)), torch.arange(5.0).expand(2, 5))
    assert torch.equal(layer(torch.zeros(2, 8)), torch.arange(5.0).expand(2, 5))


MODELS = {
    "gpt": lambda: LanguageModel(50, 32, partial(Transformer, layers=2, heads=4)),
    "untied": lambda: LanguageModel(50, 32, partial(Transformer, layers=2, heads=4), tied=False),
    "biased": lambda: LanguageModel(
        50, 32, partial(Transformer, layers=2, heads=4), output=partial(Output, bias=True)
    ),
    "lstm": lambda: LanguageModel(50, 32, partial(RNN, dim=24, layers=2)),
    "transformer": lambda: Seq2Seq(
        50,
        50,
        32,
        partial(Transformer, layers=2, heads=4, causal=False),
        partial(Transformer, layers=2, heads=4),
    ),
    "rnnsearch": lambda: Seq2Seq(
        50, 50, 32, partial(RNN, dim=16, direction="both"), partial(AttentiveRNN, dim=24)
    ),
}
STAYS = {
    "gpt": set(), "untied": set(), "biased": set(), "transformer": set(),
    "lstm": {f"stack.layers.{n}.0.cell.{name}" for n in (0, 1) for name in ("input", "hidden")},
    "rnnsearch": {
        "encoder.layers.0.0.cell.input", "encoder.layers.0.0.cell.hidden", "encoder.layers.0.1.cell.input", "encoder.layers.0.1.cell.hidden",
        "decoder.layers.0.cell.input", "decoder.layers.0.cell.hidden", "decoder.context_proj.weight", "decoder.attention.query.weight",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_say_nearly_the_same(name):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3) if weight.dim() > 1 else None
    ids = torch.randint(0, 50, (3, 7))
    start = (lambda: None) if model.continues else (lambda: model.start(ids))
    with torch.inference_mode():
        before, _ = model(ids, start())
        bytes_before = sum(weight.numel() * 4 for weight in model.parameters())
        assert set(quantize(model)) == STAYS[name]
        after, state = model(ids, start())
        with plain():
            literal, _ = model(ids, start())
        step, _ = model(ids[:, :1], state)
    assert 0 < (after - before).std() / before.std() < 0.05 and step.shape == (3, 1, 50)
    torch.testing.assert_close(after, literal, rtol=2e-3, atol=2e-3)
    held = [*model.parameters(), *model.buffers()]
    assert sum(part.numel() * part.element_size() for part in held) < bytes_before * (
        0.5 if not STAYS[name] else 0.9
    )
    assert not any(weight.requires_grad for weight in model.parameters())


def test_a_tied_table_is_held_once():
    model = MODELS["biased"]()
    with torch.no_grad():
        model.output.bias.normal_()
    table, bias = model.output.table.detach().clone(), model.output.bias.detach().clone()
    quantize(model)
    assert model.output.product is model.embedding.product
    torch.testing.assert_close(
        model.embedding(torch.arange(50)), table, rtol=0, atol=float(table.abs().max()) / 127
    )
    h = torch.randn(2, 32)
    torch.testing.assert_close(
        model.output(h), h @ model.embedding(torch.arange(50)).T + bias, rtol=1e-3, atol=1e-4
    )


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="int8, not 'int3'"):
        quantize(nn.Identity(), "int3")
    with pytest.raises(ValueError, match="even number of columns"):
        Int8Linear(torch.randn(4, 3))

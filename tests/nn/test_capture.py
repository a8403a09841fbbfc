"""Values inside a model: what is captured made the output, a change has its effect, and a wrong name raises."""

from __future__ import annotations

import re
import threading
from functools import partial

import pytest
import torch

from seqloom import nn
from seqloom.errors import ConfigError
from seqloom.fused.dispatch import plain
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn.capture import capture, change
from seqloom.nn.layer import HasPoints, record, recording
from support.case import Case
from support.parts import CASES

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
OPTIONAL = {"after_cross", "candidate.new", "context"}  # in a decoder; with a simple candidate
IDS = torch.randint(0, 30, (2, 7), generator=torch.Generator().manual_seed(3))


def gpt(layers: int = 2) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(30, 16, partial(nn.Transformer, layers=layers, heads=4)).eval()


@every
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_a_captured_run_is_the_plain_run_bit_for_bit(case: Case, padded: bool):
    part = case.build().eval()
    torch.manual_seed(2)
    x, source = case.sequence(2, 5), case.source(2)
    mask = torch.tensor([[True] * 5, [False, True, True, True, False]]) if padded else None

    def run() -> torch.Tensor:
        with torch.no_grad():
            y, _ = part(x, case.start(part, 2, source), mask)
        return y

    with plain():
        expected = run()
    with capture(part) as captured:
        assert torch.equal(run(), expected)
    assert all(value.isfinite().all() or "score" in name for name, value in captured.all().items())
    assert not recording()


@every
def test_every_point_that_a_part_declares_is_recorded_with_its_axes(case: Case):
    part = case.build().eval()
    x, source = case.sequence(2, 5), case.source(2)
    with torch.no_grad(), capture(part) as captured:
        part(x, case.start(part, 2, source))
    names = {name.split("#")[0] for name in captured}
    for name, value in captured.all().items():
        assert captured.point(name).axes == "" or len(captured.point(name).axes) == value.dim(), name
    for path, child in part.named_modules():
        if isinstance(child, HasPoints) and not re.search(r"candidate|gate$|layers.\d+$", path):
            for name in child.points.keys() - OPTIONAL:
                full = ".".join(filter(None, (path, name))) or type(child).__name__
                assert full in names or f"{full}.0" in names


def test_the_output_is_recomputed_from_captured_values():
    model = gpt()
    with torch.no_grad(), capture(model, "stack.blocks.0.attention*") as captured:
        model(IDS)
    q, k, v = (captured[f"stack.blocks.0.attention.{name}"] for name in "qkv")
    scores = torch.einsum("bhtk,bhsk->bhts", q, k) / 2  # √4
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    assert torch.allclose(weights, captured["stack.blocks.0.attention.weights"], atol=1e-6)
    heads = weights @ v
    assert torch.allclose(heads, captured["stack.blocks.0.attention.head"], atol=1e-6)
    y = model.stack.blocks[0].attention.out_proj(heads.transpose(1, 2).flatten(2))
    assert torch.allclose(y, captured["stack.blocks.0.attention"], atol=1e-6)


def test_gates_of_a_lstm_make_its_memory():
    torch.manual_seed(0)
    model = LanguageModel(30, 16, nn.RNN).eval()
    with torch.no_grad(), capture(model, "stack.layers.0.0.cell.*") as captured:
        model(IDS)
    i, f, g, o, h, c = (
        captured[f"stack.layers.0.0.cell.{name}"] for name in ("input", "forget", "new", "output", "h", "c")
    )
    before = torch.cat([torch.zeros_like(c[:, :1]), c[:, :-1]], 1)
    assert torch.equal(c, f * before + i * g) and torch.equal(h, o * c.tanh())


@pytest.mark.parametrize("mask", [None, [[True] * 7, [False, False, True, True, True, True, False]]])
def test_values_of_a_backward_cell_stand_at_their_positions(mask):
    torch.manual_seed(0)
    rnn = nn.RNN(16, cell=nn.GRU, direction="backward").eval()
    x = torch.randn(2, 7, 16)
    mask = None if mask is None else torch.tensor(mask)
    with torch.no_grad(), capture(rnn, "*.cell.h") as captured:
        y, _ = rnn(x, None, mask)
    [h] = captured.values()
    real = torch.ones(2, 7, dtype=torch.bool) if mask is None else mask
    assert torch.equal(h[real], y[real])


@pytest.mark.parametrize("head", range(4))
def test_removing_a_head_is_zeroing_its_columns_of_the_output_projection(head: int):
    model = gpt()
    with torch.no_grad(), change(model, {f"stack.blocks.1.attention.head.{head}": torch.zeros_like}):
        changed, _ = model(IDS)
    with torch.no_grad(), plain():
        model.stack.blocks[1].attention.out_proj.weight[:, 4 * head : 4 * head + 4] = 0
        assert torch.allclose(model(IDS)[0], changed, atol=1e-6)


def test_removing_an_edge_is_hiding_the_key():
    model = gpt(1)

    def remove(scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, :, 6, 2] = float("-inf")
        return scores

    visible = torch.ones(7, 7, dtype=torch.bool)
    visible[6, 2] = False
    with torch.no_grad(), change(model, {"stack.blocks.0.attention.score": remove}):
        changed, _ = model(IDS)
    with torch.no_grad(), plain():
        hidden, _ = model.stack(model.embedding(IDS), None, None, visible)
        assert torch.allclose(model.output(hidden), changed, atol=1e-6)


def test_changes_reach_each_step_of_a_loop_over_time():
    """Without its forget gate an LSTM remembers nothing: the state is that of the last word alone."""
    torch.manual_seed(0)
    model = LanguageModel(30, 16, partial(nn.RNN, cell=nn.LSTM)).eval()
    cell = "stack.layers.0.0.cell"
    with (
        torch.no_grad(),
        change(model, {f"{cell}.forget": torch.zeros_like}),
        capture(model, f"{cell}.*") as captured,
    ):
        model(IDS)
    assert torch.equal(captured[f"{cell}.c"], captured[f"{cell}.input"] * captured[f"{cell}.new"])
    assert not captured[f"{cell}.forget"].any()


def test_a_part_that_is_called_twice_has_two_values():
    torch.manual_seed(0)
    model = Seq2Seq(30, 30, 16, partial(nn.RNN, direction="both"), nn.AttentiveRNN).eval()
    with torch.no_grad(), capture(model, "embedding") as captured:
        model(IDS[:, :4], model.start(IDS))
    assert {name: value.shape[1] for name, value in captured.all().items()} == {
        "embedding": 7,
        "embedding#2": 4,
    }
    with pytest.raises(ConfigError, match="2 times"):
        captured["embedding"]
    assert torch.equal(captured["embedding#2"], model.embedding(IDS[:, :4]))


def test_windows_of_a_long_text_do_not_pile_up():
    model = gpt()
    with torch.no_grad(), capture(model, "output") as captured:
        for start in range(0, 7, 2):
            model(IDS[:, start : start + 2])
            assert len(captured) == 1
            captured.clear()


@pytest.mark.parametrize("name", ["stack.block.0.attention", "stack.blocks.0.attention.head.9.x", "weights"])
def test_a_name_without_a_value_raises_and_says_the_nearest(name: str):
    model = gpt()
    with (
        pytest.raises(ConfigError, match=r"no value has this name; the nearest are .*stack"),
        capture(model, name),
    ):
        model(IDS)
    with pytest.raises(ConfigError, match="no value has this name"), change(model, {name: torch.zeros_like}):
        model(IDS)


def test_a_change_that_never_applies_raises():
    with pytest.raises(ConfigError, match="output: no value"), change(gpt(), {"output": torch.zeros_like}):
        pass


def test_a_change_of_shape_is_refused():
    model = gpt()
    with (
        pytest.raises(ConfigError, match=r"makes \(2, 3, 30\) of a value of shape \(2, 7, 30\)"),
        change(model, {"output": lambda value: value[:, :3]}),
    ):
        model(IDS)


def test_a_head_that_is_not_there_is_named():
    model = gpt()
    with (
        pytest.raises(ConfigError, match=r"head\.9: there are 4 heads"),
        change(model, {"*.head.9": torch.zeros_like}),
    ):
        model(IDS)


def test_errors_inside_are_not_hidden():
    with pytest.raises(ZeroDivisionError), capture(gpt(), "nothing"):
        raise ZeroDivisionError
    assert not recording()


def test_gradients_flow_through_captured_values():
    model = gpt()
    with capture(model, "stack.blocks.0") as captured:
        logits, _ = model(IDS)
    [gradient] = torch.autograd.grad(logits.sum(), [captured["stack.blocks.0"]])
    assert gradient.shape == (2, 7, 16) and gradient.abs().sum() > 0


def test_each_thread_has_its_own():
    model, seen = gpt(), []

    def other() -> None:
        seen.append(recording())

    with torch.no_grad(), capture(model, "output"):
        model(IDS)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [False]


def test_a_part_of_ones_own_names_its_values():
    class Twice(HasPoints):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return record(self, "doubled", 2 * x) + 1

    part = Twice()
    with change(part, {"doubled": torch.zeros_like}):
        assert part(torch.ones(3)).tolist() == [1, 1, 1]
    assert part(torch.ones(3)).tolist() == [3, 3, 3]

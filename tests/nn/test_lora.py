"""Low-rank adapters: nothing changes at first, only they learn, and merging gives the same outputs under the old names."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from seqloom.fused.dispatch import plain
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import RNN, AttentiveRNN, ByteNet, ConvS2S, LoRA, Transformer, add_lora, merge_lora

STACKS = {
    "Transformer": partial(Transformer, layers=2, heads=2),
    "ByteNet": partial(ByteNet, sets=1, dilations=(1, 2)),
    "ConvS2S": partial(ConvS2S, layers=2),
    "RNN": partial(RNN, dim=3),
}


def made(stack: str) -> LanguageModel:
    torch.manual_seed(4)
    return LanguageModel(9, 4, STACKS[stack])


def stirred(model: nn.Module) -> nn.Module:
    for name, weight in model.named_parameters():
        if weight.requires_grad and name.rpartition(".")[2] in ("lora_a", "lora_b"):
            nn.init.normal_(weight)
    return model


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("form", ["fast", "plain"])
def test_same_at_first_other_when_learnt_same_when_merged(stack: str, form: str):
    model, ids = made(stack), torch.randint(9, (2, 6))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]], dtype=torch.bool)
    names = list(dict(model.named_parameters()))
    run = lambda: plain_or_fast(model, ids, mask, form)  # noqa: E731
    before = run()
    adapted = add_lora(model, 2, 8.0, ["*"])
    assert adapted and torch.equal(run(), before)
    stirred(model)
    learnt = run()
    assert (learnt - before)[mask].abs().max() > 1e-3
    assert merge_lora(model) == adapted
    assert list(dict(model.named_parameters())) == names and all(
        weight.requires_grad for weight in model.parameters()
    )
    torch.testing.assert_close(run()[mask], learnt[mask], rtol=1e-9, atol=1e-9)
    assert merge_lora(model) == []


def plain_or_fast(model, ids, mask, form):
    if form == "fast":
        return model(ids, None, mask)[0].detach()
    with plain():
        return model(ids, None, mask)[0].detach()


def test_merged_in_single_precision():
    model, ids = made("Transformer").float(), torch.randint(9, (2, 6))
    add_lora(model, 3, 6.0, ["*"])
    learnt = stirred(model)(ids)[0]
    merge_lora(model)
    torch.testing.assert_close(model(ids)[0], learnt, rtol=1e-5, atol=1e-5)


def test_the_equation():
    base, x = nn.Linear(5, 3), torch.randn(4, 5)
    w, b = base.weight.detach().clone(), base.bias.detach().clone()
    part = LoRA(base, rank=2, alpha=6.0)
    nn.init.normal_(part.lora_b)
    expected = torch.stack([w @ row + b + 6.0 / 2 * part.lora_b @ (part.lora_a @ row) for row in x])
    torch.testing.assert_close(part(x), expected)
    torch.testing.assert_close(x @ part.weight.T + part.bias, expected)
    assert (part.in_features, part.out_features) == (5, 3)


def test_only_the_adapters_learn():
    model = made("Transformer")
    model.requires_grad_(False)
    add_lora(model, 2, 4.0, ["stack.blocks.*.attention.qkv_proj", "stack.blocks.0.feedforward.*"])
    learns = [name for name, weight in model.named_parameters() if weight.requires_grad]
    places = [
        "blocks.0.attention.qkv_proj",
        "blocks.0.feedforward.in_proj",
        "blocks.0.feedforward.out_proj",
        "blocks.1.attention.qkv_proj",
    ]
    assert learns == [f"stack.{place}.{side}" for place in places for side in ("lora_a", "lora_b")]
    frozen = {name: weight.clone() for name, weight in model.named_parameters() if not weight.requires_grad}
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], 0.5)
    ids, losses = torch.randint(9, (4, 6)), []
    for _ in range(30):
        loss = model.output.nll(model.features(ids)[0][:, :-1], ids[:, 1:]).mean()
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0]
    assert all(
        torch.equal(weight, frozen[name]) for name, weight in model.named_parameters() if name in frozen
    )


def test_gradients_pass_through_the_weight_that_parts_read():
    """A convolution's plain form takes the matrix apart: what it learns is what the fast form learns."""
    model, ids = made("ByteNet"), torch.randint(9, (2, 6))
    add_lora(model, 2, 4.0, ["*.taps"])
    stirred(model)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    quick = torch.autograd.grad(model(ids)[0].square().sum(), weights)
    with plain():
        slow = torch.autograd.grad(model(ids)[0].square().sum(), weights)
    for a, b in zip(quick, slow, strict=True):
        torch.testing.assert_close(a, b)


def test_a_layer_that_stands_in_two_places_stays_one():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(3, 3)
            self.other = self.one

    model = Twice()
    assert (
        add_lora(model, 1, 1.0, ["*"]) == ["one", "other"]
        and model.one is model.other
        and isinstance(model.one, LoRA)
    )
    assert (
        merge_lora(model) == ["one", "other"]
        and model.one is model.other
        and isinstance(model.one, nn.Linear)
    )


def test_a_decoder_whose_loop_is_compiled_reads_the_adapters():
    """Its attention's matrices go into the loop by themselves: outputs and gradients are those of the plain form."""
    model = Seq2Seq(9, 9, 4, partial(Transformer, layers=1, heads=2, causal=False), AttentiveRNN).eval()
    source, ids = torch.randint(9, (2, 5)), torch.randint(9, (2, 3))
    before = model(ids, model.start(source))[0]
    add_lora(model, 1, 2.0, ["encoder.*", "decoder.attention.*", "decoder.context_proj"])
    torch.testing.assert_close(model(ids, model.start(source))[0], before)
    assert not any(part.training for part in model.modules())
    stirred(model)
    weights = [weight for weight in model.parameters() if weight.requires_grad]

    def run() -> list[torch.Tensor]:
        y = model(ids, model.start(source))[0]
        return [y, *torch.autograd.grad(y.square().sum(), weights)]

    quick = run()
    assert not torch.allclose(quick[0], before)
    with plain():
        for a, b in zip(quick, run(), strict=True):
            torch.testing.assert_close(a, b)
    merge_lora(model)
    torch.testing.assert_close(model(ids, model.start(source))[0], quick[0])


def test_few_rows_in_use_are_those_of_training():
    """Single precision and nothing to differentiate take a product of their own."""
    model = LanguageModel(9, 16, STACKS["Transformer"]).float().eval()
    add_lora(model, 2, 4.0, ["*"])
    ids, learnt = torch.randint(9, (1, 6)), stirred(model)
    expected = learnt(ids)[0]
    with torch.inference_mode():
        torch.testing.assert_close(learnt(ids)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "names, rank, said",
    [(["*.atention.*"], 2, "no linear layer is called"), (["*"], 0, "rank must be at least 1")],
)
def test_what_cannot_be_adapted(names: list[str], rank: int, said: str):
    model = made("Transformer")
    with pytest.raises(ValueError, match=said):
        add_lora(model, rank, 1.0, names)
    assert not any(isinstance(part, LoRA) for part in model.modules())

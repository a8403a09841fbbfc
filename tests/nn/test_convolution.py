"""Convolutions against torch's own, how far the stacks see, and the sentence each mistake gets."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from seqloom.fused.dispatch import plain
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import ByteNet, Convolution, ConvS2S, Learned, Memory
from seqloom.nn.layer import state_tensors


@pytest.mark.parametrize("kernel, dilation", [(1, 1), (2, 1), (3, 1), (3, 4), (5, 2)])
def test_a_causal_convolution_is_torchs_with_zeros_before_it(kernel: int, dilation: int):
    part, x = Convolution(5, 7, kernel, dilation), torch.randn(3, 11, 5)
    weight = part.taps.weight.view(7, kernel, 5).transpose(1, 2)  # torch: (out, in, kernel)
    padded = F.pad(x.transpose(1, 2), ((kernel - 1) * dilation, 0))
    expected = F.conv1d(padded, weight, part.taps.bias, dilation=dilation).transpose(1, 2)
    torch.testing.assert_close(part(x)[0], expected)


@pytest.mark.parametrize("kernel, dilation", [(1, 1), (3, 1), (3, 4), (5, 2)])
def test_a_whole_convolution_is_torchs_same_convolution(kernel: int, dilation: int):
    part, x = Convolution(5, 7, kernel, dilation, causal=False), torch.randn(3, 11, 5)
    weight = part.taps.weight.view(7, kernel, 5).transpose(1, 2)
    expected = F.conv1d(
        x.transpose(1, 2), weight, part.taps.bias, padding="same", dilation=dilation
    ).transpose(1, 2)
    torch.testing.assert_close(part(x)[0], expected)


def seen_from(part, x: torch.Tensor, t: int) -> list[int]:
    """The input positions that output t depends on."""
    x = x.clone().requires_grad_()
    part(x)[0][0, t].square().sum().backward()
    return x.grad[0].abs().sum(-1).nonzero()[:, 0].tolist()


def test_a_bytenet_sees_as_far_as_its_dilations_add_up():
    """1 + (k - 1) Σ d positions: 1 + 2 · (1 + 2 + 4) = 15 behind, or half of it on each side."""
    x = torch.randn(1, 40, 8)
    assert seen_from(ByteNet(8, sets=1, dilations=(1, 2, 4)), x, 30) == list(range(30 - 14, 31))
    assert seen_from(ByteNet(8, sets=1, dilations=(1, 2, 4), causal=False), x, 20) == list(
        range(20 - 7, 20 + 8)
    )
    assert seen_from(ByteNet(8, sets=2, dilations=(1, 2), kernel=2), x, 30) == list(range(30 - 6, 31))


def test_a_convs2s_sees_kernel_minus_one_more_with_each_layer():
    x = torch.randn(1, 30, 8)
    assert seen_from(ConvS2S(8, layers=3), x, 20) == list(range(20 - 6, 21))
    assert seen_from(ConvS2S(8, layers=2, kernel=5, causal=False), x, 15) == list(range(15 - 4, 15 + 5))


@pytest.mark.parametrize("make", [Convolution, ByteNet, ConvS2S])
def test_what_is_remembered_does_not_grow(make):
    part = make(8)
    sizes = [sum(t.numel() for t in state_tensors(part(torch.randn(1, length, 8))[1])) for length in (1, 50)]
    assert sizes[0] == sizes[1]


def test_unfolding_reads_the_source_at_the_same_position_and_nothing_beyond_its_end():
    """With a kernel of one, output t depends on the source at t alone, and from the source's end on on nothing of it."""
    part = ByteNet(6, sets=1, dilations=(1,), kernel=1, memory=5)
    source, x = torch.randn(1, 3, 5, requires_grad=True), torch.randn(1, 5, 6)
    y, _ = part(x, part.start(1, Memory(source, None)))
    for t in range(5):
        (gradient,) = torch.autograd.grad(y[0, t].square().sum(), source, retain_graph=True)
        assert gradient[0].abs().sum(-1).nonzero()[:, 0].tolist() == ([t] if t < 3 else [])
    nothing, _ = part(x[:, 3:], part.start(1, Memory(source[:, :0], None)))
    torch.testing.assert_close(y[:, 3:], nothing)


def test_every_block_of_a_convs2s_decoder_looks():
    """Without the first block's look the others' still reach the source, and the other way round."""
    part = ConvS2S(6, layers=2, memory=5)
    source, x = torch.randn(1, 3, 5), torch.randn(1, 4, 6)

    def moves() -> bool:
        a, b = (part(x, part.start(1, Memory(values, None)))[0] for values in (source, source + 1))
        return not torch.allclose(a, b)

    kept = [block.context_proj.weight.detach().clone() for block in part.blocks]
    for silent in (0, 1):
        with torch.no_grad():
            for number, block in enumerate(part.blocks):
                block.context_proj.weight.copy_(kept[number] * (number != silent))
        assert moves()
    with torch.no_grad():
        for block in part.blocks:
            block.context_proj.weight.zero_()
    assert not moves()


@pytest.mark.parametrize(
    "make", [partial(ConvS2S, layers=15), partial(ConvS2S, layers=15, dim=128), partial(ByteNet, sets=3)]
)
def test_first_weights_keep_the_variance_through_depth(make):
    """Of inputs as small as embeddings are, which is where a gate halves."""
    torch.manual_seed(0)
    x = 0.1 * torch.randn(4, 30, 64)
    part = make(64)
    if isinstance(part, ByteNet):
        x, part.norm = 10 * x, torch.nn.Identity()
    with torch.no_grad():
        assert 0.5 < float(part(x)[0].var() / x.var()) < 2


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: Convolution(4, kernel=0), "a kernel and a dilation of at least 1, not 0 and 1"),
        (lambda: Convolution(4, dilation=-1), "a kernel and a dilation of at least 1, not 3 and -1"),
        (lambda: Convolution(4, kernel=4, causal=False), "needs an odd kernel, not 4"),
        (lambda: ByteNet(4, sets=0), "at least one block, not 0 sets of 5 dilations"),
        (lambda: ByteNet(4, dilations=()), "at least one block, not 6 sets of 0 dilations"),
        (lambda: ByteNet(4, memory=3).start(1), "a ByteNet decoder needs a memory"),
        (lambda: ConvS2S(4, layers=0), "at least one layer, not 0"),
        (lambda: ConvS2S(4, memory=3).start(1), "a ConvS2S decoder needs a memory"),
        (
            lambda: LanguageModel(9, 4, partial(ByteNet, causal=False)),
            "a language model needs a causal stack",
        ),
        (lambda: Seq2Seq(9, 9, 4, ByteNet, partial(ConvS2S, causal=False)), "a decoder needs a causal layer"),
        (
            lambda: ConvS2S(4, position=partial(Learned, length=3))(torch.randn(1, 4, 4)),
            "a sequence of 4 positions is longer than the 3",
        ),
    ],
)
def test_mistakes_are_one_sentence(make, sentence: str):
    with pytest.raises(ValueError) as caught:
        make()
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_learned_positions_limit_what_a_model_takes():
    model = Seq2Seq(9, 9, 4, partial(ConvS2S, causal=False, position=partial(Learned, length=5)), ByteNet)
    assert (model.source_context, model.context) == (5, None)


def test_the_plain_form_makes_one_product_for_each_tap():
    """FLOPs are counted in the plain form: 2 · k · D · D' for each position."""
    from torch.utils.flop_counter import FlopCounterMode

    part = Convolution(5, 7, 3)
    with plain(), FlopCounterMode(display=False) as counter:
        part(torch.randn(2, 10, 5))
    assert counter.get_total_flops() == 2 * 3 * 5 * 7 * 20

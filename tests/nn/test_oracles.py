"""Parts against torch's own modules, with the weights copied over, and positions against what their papers promise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from seqloom.fused.dispatch import plain
from seqloom.nn import (
    LSTM,
    RNN,
    ALiBi,
    Block,
    CrossAttention,
    FeedForward,
    LayerNorm,
    Learned,
    Memory,
    RMSNorm,
    Rotary,
    ScaledDot,
    SelfAttention,
    Sinusoidal,
    Transformer,
    attend,
)
from seqloom.nn.layer import causal_mask
from seqloom.nn.position import slopes
from support import reference

literal = reference.reference_attention


def same(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def shaken(part: nn.Module) -> nn.Module:
    """The part with random weights, so that no bias of 0 or gain of 1 hides a mistake."""
    with torch.no_grad():
        for weight in part.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.4)
    return part


@torch.no_grad()
def copied(ours: nn.Linear, theirs: nn.Linear) -> None:
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


# Recurrence


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("direction", ["forward", "both"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "packed"])
def test_lstm_is_torchs(layers: int, direction: str, padded: bool):
    """Outputs and final h and c equal torch.nn.LSTM's; on padded batches, those of its packed sequences."""
    ours = shaken(RNN(5, 3, layers=layers, direction=direction))
    theirs = nn.LSTM(5, 3, layers, batch_first=True, bidirectional=direction == "both")
    with torch.no_grad():
        for number, layer in enumerate(ours.layers):
            for way, end in zip(layer, ("", "_reverse"), strict=False):
                for name, value in (
                    ("weight_ih", way.cell.input),
                    ("weight_hh", way.cell.hidden),
                    ("bias_ih", way.cell.bias),
                ):
                    getattr(theirs, f"{name}_l{number}{end}").copy_(value)
                getattr(theirs, f"bias_hh_l{number}{end}").zero_()
    x, lengths = torch.randn(4, 6, 5), torch.tensor([6, 2, 5, 1]) if padded else torch.tensor([6] * 4)
    y, state = ours(x, None, torch.arange(6) < lengths[:, None] if padded else None)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, (h, c) = theirs(packed)
    same(y, nn.utils.rnn.pad_packed_sequence(expected, batch_first=True, total_length=6)[0])
    same(torch.stack([way.h for layer in state for way in layer]), h)
    same(torch.stack([way.c for layer in state for way in layer]), c)


def test_one_lstm_step_is_torchs_cell():
    ours, theirs = shaken(LSTM(5, 3)), nn.LSTMCell(5, 3)
    with torch.no_grad():
        theirs.weight_ih.copy_(ours.input)
        theirs.weight_hh.copy_(ours.hidden)
        theirs.bias_ih.copy_(ours.bias)
        theirs.bias_hh.zero_()
    x, state = torch.randn(2, 5), (torch.randn(2, 3), torch.randn(2, 3))
    after = ours.step(ours.project_input(x), type(ours.start(2))(*state))
    h, c = theirs(x, state)
    same(after.h, h)
    same(after.c, c)


# Attention


@pytest.mark.parametrize("causal", [True, False])
def test_self_attention_is_torchs(causal: bool):
    """Outputs, and the weights of every head in the plain form."""
    ours, theirs = shaken(SelfAttention(8, 2, causal=causal)), nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv_proj.weight)
        theirs.in_proj_bias.copy_(ours.qkv_proj.bias)
    copied(ours.out_proj, theirs.out_proj)
    x, mask = torch.randn(3, 5, 8), torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    hidden = ~causal_mask(5, 5) if causal else None
    expected, weights = theirs(x, x, x, key_padding_mask=~mask, attn_mask=hidden, average_attn_weights=False)
    y, _ = ours(x, None, mask)
    same(y[mask], expected[mask])
    with plain():
        _, alpha, _ = ours.forward_with_weights(x, None, mask)
    real = mask[:, None, :, None].expand_as(alpha)
    same(alpha[real], weights[real])


def test_cross_attention_is_torchs():
    ours = shaken(CrossAttention(8, 6, 2))
    theirs = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
    with torch.no_grad():
        theirs.q_proj_weight.copy_(ours.q_proj.weight)
        theirs.k_proj_weight.copy_(ours.kv_proj.weight[:8])
        theirs.v_proj_weight.copy_(ours.kv_proj.weight[8:])
        theirs.in_proj_bias.copy_(torch.cat([ours.q_proj.bias, ours.kv_proj.bias]))
    copied(ours.out_proj, theirs.out_proj)
    x, memory, mask = (
        torch.randn(3, 4, 8),
        torch.randn(3, 5, 6),
        torch.arange(5) < torch.tensor([5, 3, 1])[:, None],
    )
    expected, _ = theirs(x, memory, memory, key_padding_mask=~mask)
    same(ours(x, ours.start(3, Memory(memory, mask)))[0], expected)


@pytest.mark.parametrize("with_bias", [False, True])
def test_attend_hides_what_either_mask_hides(with_bias: bool):
    """`visible` and `causal` together hide what either hides, in both forms."""
    q, k, v = torch.randn(3, 2, 2, 4, 6).unbind()
    visible = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 1]], dtype=torch.bool)[:, None, None]
    bias = torch.randn(2, 1, 4, 4) if with_bias else None
    score = ScaledDot(6)
    expected, _ = attend(q, k, v, score, visible & causal_mask(4, 4), bias)
    same(attend(q, k, v, score, visible, bias, causal=True)[0], expected)
    with plain():
        same(attend(q, k, v, score, visible, bias, causal=True)[0], expected)
    assert not expected[1, :, 0].any()  # sees nothing


# Blocks


def block_of(size: int, order: str, activation: str, cross: bool, causal: bool) -> Block:
    looking = CrossAttention(size, size, 2) if cross else None
    return shaken(
        Block(
            SelfAttention(size, 2, causal=causal),
            looking,
            FeedForward(size, 11, activation),
            LayerNorm,
            order,
            0.0,
        )
    )


@torch.no_grad()
def copy_block(ours: Block, theirs: nn.Module) -> None:
    theirs.self_attn.in_proj_weight.copy_(ours.attention.qkv_proj.weight)
    theirs.self_attn.in_proj_bias.copy_(ours.attention.qkv_proj.bias)
    copied(ours.attention.out_proj, theirs.self_attn.out_proj)
    copied(ours.feedforward.in_proj, theirs.linear1)
    copied(ours.feedforward.out_proj, theirs.linear2)
    if ours.cross:
        theirs.multihead_attn.in_proj_weight.copy_(
            torch.cat([ours.cross.q_proj.weight, ours.cross.kv_proj.weight])
        )
        theirs.multihead_attn.in_proj_bias.copy_(torch.cat([ours.cross.q_proj.bias, ours.cross.kv_proj.bias]))
        copied(ours.cross.out_proj, theirs.multihead_attn.out_proj)
    norms = [ours.attention_norm, *([ours.cross_norm] if ours.cross else []), ours.feedforward_norm]
    for number, norm in enumerate(norms, 1):
        getattr(theirs, f"norm{number}").weight.copy_(norm.gain)
        getattr(theirs, f"norm{number}").bias.copy_(norm.bias)


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_block_is_torchs(order: str, activation: str):
    ours = block_of(8, order, activation, cross=False, causal=False)
    theirs = nn.TransformerEncoderLayer(
        8, 2, 11, 0.0, activation, batch_first=True, norm_first=order == "pre"
    )
    copy_block(ours, theirs)
    x, mask = torch.randn(3, 5, 8), torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    same(ours(x, None, mask)[0][mask], theirs(x, src_key_padding_mask=~mask)[mask])


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_decoder_block_is_torchs(order: str):
    ours = block_of(8, order, "relu", cross=True, causal=True)
    theirs = nn.TransformerDecoderLayer(8, 2, 11, 0.0, "relu", batch_first=True, norm_first=order == "pre")
    copy_block(ours, theirs)
    x, memory, mask = (
        torch.randn(3, 4, 8),
        torch.randn(3, 5, 8),
        torch.arange(5) < torch.tensor([5, 3, 1])[:, None],
    )
    expected = theirs(x, memory, tgt_mask=~causal_mask(4, 4), memory_key_padding_mask=~mask)
    same(ours(x, ours.start(3, Memory(memory, mask)))[0], expected)


def test_norms_are_torchs():
    x = torch.randn(4, 3, 8) * 3 + 1
    for ours, theirs in ((LayerNorm(8), nn.LayerNorm(8)), (LayerNorm(8, affine=False), nn.LayerNorm(8, elementwise_affine=False)),
                         (RMSNorm(8), nn.RMSNorm(8, eps=1e-5))):  # fmt: skip
        shaken(ours)
        with torch.no_grad():
            if theirs.weight is not None:
                theirs.weight.copy_(ours.gain)
            if getattr(theirs, "bias", None) is not None:
                theirs.bias.copy_(ours.bias)
        same(ours(x), theirs(x))
        with plain():
            same(ours(x), theirs(x))


# Positions


def test_rotary_turns_as_the_loop_does():
    x, places = torch.randn(2, 3, 5, 8), torch.tensor([[0, 1, 2, 3, 4], [7, 7, 100, 3, 0]])
    turned = Rotary(24, 3).rotate(x.transpose(1, 2), places).transpose(1, 2)
    for b in range(2):
        for h in range(3):
            for t in range(5):
                same(
                    turned[b, h, t], torch.from_numpy(literal.rotated(x[b, h, t].numpy(), int(places[b, t])))
                )


def test_rotary_products_depend_on_the_distance_alone():
    rotary, q, k = Rotary(8), torch.randn(8), torch.randn(8)

    def product(t: int, j: int) -> Tensor:
        turned = rotary.rotate(torch.stack([q, k])[None, :, None], torch.tensor([t, j]))[0, :, 0]
        return turned[0] @ turned[1]

    for distance in (-5, 0, 1, 9):
        for t in (9, 20, 333):
            same(product(t, t - distance), product(9, 9 - distance))
    assert abs(product(9, 8) - product(9, 7)) > 1e-3


def test_alibi_slopes_are_the_papers():
    """1/2, 1/4 … 1/256 for 8 heads; for 12 heads those of 8, then the first four odd ones of 16."""
    assert slopes(8) == [1 / 2**h for h in range(1, 9)]
    assert slopes(16) == pytest.approx([2 ** (-h / 2) for h in range(1, 17)], rel=1e-12)
    assert slopes(12) == pytest.approx(slopes(8) + slopes(16)[0:8:2], rel=1e-12)
    assert slopes(1) == [1 / 256]


def test_alibi_bias_is_minus_slope_times_distance():
    bias = ALiBi(16, 8).bias(torch.tensor([[3, 5]]), torch.tensor([[0, 1, 5, 9]]))
    for h in range(8):
        for i, t in enumerate((3, 5)):
            for n, j in enumerate((0, 1, 5, 9)):
                assert bias[0, h, i, n] == -(2.0 ** -(h + 1)) * abs(t - j)


def test_sinusoids_are_the_loop():
    codes = Sinusoidal(12).encoding(torch.tensor([0, 1, 17, 999]))
    for row, t in zip(codes, (0, 1, 17, 999), strict=True):
        same(row, torch.from_numpy(literal.sinusoid(t, 12)))


def test_learned_positions_are_rows_of_the_table():
    learned = Learned(4, length=9)
    for places in ([0, 1, 2], [3, 4], [0, 5, 2], [], [[0, 0, 8], [1, 2, 3]]):
        index = torch.tensor(places, dtype=torch.long)
        same(learned.encoding(index), learned.table[index])


def test_padding_may_stand_beyond_the_learned_positions():
    """A batch is often padded to a round width; only real tokens need a position."""
    part = shaken(Transformer(8, 1, 2, position=lambda dim, heads: Learned(dim, heads, length=3)))
    x = torch.randn(2, 8, 8)
    for mask in (torch.arange(8) < torch.tensor([[3], [2]]), torch.arange(8) >= torch.tensor([[5], [6]])):
        y, _ = part(x, None, mask)
        same(y[0][mask[0]], part(x[:1, mask[0]])[0][0])


def test_a_finished_row_may_wait_at_the_last_position():
    """A row that has used all learned positions takes padding while another row goes on."""
    part = shaken(Transformer(8, 1, 2, position=lambda dim, heads: Learned(dim, heads, length=3)))
    x = torch.randn(2, 5, 8)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 1, 1]], dtype=torch.bool)
    _, state = part(x[:, :3], None, mask[:, :3])
    for t in (3, 4):
        y, state = part(x[:, t : t + 1], state, mask[:, t : t + 1])
    same(y[1, 0], part(x[1:, mask[1]])[0][0, -1])
    part(x[:, :1], state, torch.zeros(2, 1, dtype=torch.bool))


# Single precision, where torch takes other paths


@pytest.mark.parametrize(
    "make", [lambda: RNN(64, 64, layers=2, direction="both"), lambda: Transformer(64, 2, 4, position=Rotary)]
)
def test_fast_equals_plain_in_single_precision(make):
    part = make().float()
    x = torch.randn(5, 40, 64, dtype=torch.float32)
    for mask in (None, torch.arange(40) < torch.tensor([40, 3, 17, 0, 1])[:, None], torch.rand(5, 40) < 0.5):
        fast, _ = part(x, None, mask)
        with plain():
            slow, _ = part(x, None, mask)
        real = slice(None) if mask is None else mask
        same(fast[real], slow[real], 2e-5)


def test_a_head_of_equal_scores_averages():
    """With W_Q = 0 every visible key has the same weight, so the output is the running mean of the values."""
    part = shaken(SelfAttention(4, 1))
    with torch.no_grad():
        part.qkv_proj.weight[:4] = 0
        part.qkv_proj.bias[:4] = 0
    x = torch.randn(1, 6, 4)
    values = x[0] @ part.qkv_proj.weight[8:].T + part.qkv_proj.bias[8:]
    means = values.cumsum(0) / torch.arange(1, 7)[:, None]
    same(part(x)[0][0], means @ part.out_proj.weight.T + part.out_proj.bias)
    assert math.isclose(ScaledDot(64).scale, 1 / 8)

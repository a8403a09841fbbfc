"""Attention and positions beyond the five promises: against Llama's block, in chunks, with any mask, and what the lectures claim of them."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import seqloom.nn
from seqloom import config_tree
from seqloom.fused.dispatch import plain
from seqloom.fused.sdpa import BandedAttention
from seqloom.nn import (
    GRU,
    LSTM,
    RNN,
    UGRNN,
    Additive,
    ALiBi,
    AttentiveRNN,
    Bilinear,
    CrossAttention,
    Dot,
    FeedForward,
    GlobalAttention,
    Learned,
    Memory,
    NoPosition,
    Raw,
    RMSNorm,
    RNNDecoder,
    Rotary,
    ScaledDot,
    SelfAttention,
    Sinusoidal,
    SwiGLU,
    Transformer,
    Vanilla,
    attend,
    attention_core,
)
from seqloom.nn.layer import masked_softmax


def same(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def shaken(part: nn.Module) -> nn.Module:
    with torch.no_grad():
        for weight in part.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.4)
    return part


# Llama


def test_a_transformer_can_be_llama():
    """RoPE in halves, RMS norm, SwiGLU, fewer heads of keys and values: outputs and each step of decoding are those of `transformers`."""
    pytest.importorskip("transformers")
    from transformers import LlamaConfig, LlamaModel

    sizes = LlamaConfig(
        vocab_size=11, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5
    )  # fmt: skip
    theirs = shaken(LlamaModel(sizes)).double().eval()
    ours = Transformer(
        16, 2, 4, partial(Rotary, layout="halves"), RMSNorm, feedforward=partial(SwiGLU, dim=24), bias=False,
        attention=partial(SelfAttention, kv_heads=2),
    )  # fmt: skip
    with torch.no_grad():
        for here, there in zip(ours.blocks, theirs.layers, strict=True):
            attention = there.self_attn
            here.attention.qkv_proj.weight.copy_(
                torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
            )
            here.attention.out_proj.weight.copy_(attention.o_proj.weight)
            here.feedforward.in_proj.weight.copy_(
                torch.cat([there.mlp.gate_proj.weight, there.mlp.up_proj.weight])
            )
            here.feedforward.out_proj.weight.copy_(there.mlp.down_proj.weight)
            here.attention_norm.gain.copy_(there.input_layernorm.weight)
            here.feedforward_norm.gain.copy_(there.post_attention_layernorm.weight)
        ours.norm.gain.copy_(theirs.norm.weight)
    x = torch.randn(3, 9, 16)
    mask = torch.arange(9) < torch.tensor([9, 5, 1])[:, None]
    with torch.no_grad():
        expected = theirs(inputs_embeds=x, attention_mask=mask.long()).last_hidden_state
        same(ours(x, None, mask)[0][mask], expected[mask], 1e-5)
        state = None
        for t in range(9):
            y, state = ours(x[:1, t : t + 1], state)
            same(y[:, 0], expected[:1, t], 1e-5)
    assert state[0][0].keys.shape == (1, 2, 9, 4)  # the cache holds the shared heads alone


def test_shared_heads_are_equal_heads():
    """Grouped heads are ordinary ones whose keys and values are the same within a group; multi-query is one group."""
    for groups in (1, 2):
        few, many = shaken(SelfAttention(8, 4, kv_heads=groups)), SelfAttention(8, 4)
        with torch.no_grad():
            for name in ("weight", "bias"):
                q, k, v = getattr(few.qkv_proj, name).split([8, 2 * groups, 2 * groups])
                spread = [
                    part.unflatten(0, (groups, 2)).repeat_interleave(4 // groups, 0).flatten(0, 1)
                    for part in (k, v)
                ]
                getattr(many.qkv_proj, name).copy_(torch.cat([q, *spread]))
            many.out_proj.load_state_dict(few.out_proj.state_dict())
        x = torch.randn(2, 5, 8)
        same(few(x)[0], many(x)[0])


# Chunks


OPTIONS = [
    (position, window, causal)
    for position in (NoPosition, ALiBi, Rotary)
    for window in (None, 1, 4)
    for causal in (True, False)
]


@pytest.mark.parametrize("position, window, causal", OPTIONS)
def test_chunks_change_nothing(monkeypatch, position, window, causal: bool):
    """Queries in chunks of three, with the keys each may reach, give the outputs and gradients of the whole table; so do pieces of a text."""
    monkeypatch.setattr(attention_core, "CHUNK", 3)
    part = shaken(SelfAttention(8, 4, position=position(8, 4), causal=causal, window=window, kv_heads=2))
    x = torch.randn(2, 11, 8, requires_grad=True)
    mask = torch.arange(11) < torch.tensor([[11], [7]])
    found = []
    for form in (contextlib.nullcontext, plain):
        with form():
            whole, padded = part(x)[0], part(x, None, mask)[0][mask]
            pieces = [whole, padded]
            if causal:
                first, state = part(x[:, :5])
                pieces.append(torch.cat([first, part(x[:, 5:], state)[0]], 1))
            score = sum(
                (piece * torch.linspace(-1, 1, piece.numel()).view(piece.shape)).sum() for piece in pieces
            )
            found.append([*pieces, *torch.autograd.grad(score, [x, *part.parameters()])])
    for fast, slow in zip(*found, strict=True):
        same(fast, slow)
    if causal:
        same(found[0][2], found[0][0])


def test_a_window_costs_what_it_holds(monkeypatch):
    """Each chunk meets the keys that its queries can see and no others: work is linear in the length."""
    monkeypatch.setattr(attention_core, "CHUNK", 4)
    view = SelfAttention(4, 1, window=3).visibility(torch.randn(1, 10, 4)).plan
    assert isinstance(view, BandedAttention) and view.chunks(10, 10) == [
        (0, 4, 0, 4),
        (4, 8, 2, 8),
        (8, 10, 6, 10),
    ]
    both = SelfAttention(4, 1, window=3, causal=False).visibility(torch.randn(1, 10, 4)).plan
    assert both.chunks(10, 10) == [(0, 4, 0, 6), (4, 8, 2, 10), (8, 10, 6, 10)]
    whole = SelfAttention(4, 1, position=ALiBi(4)).visibility(torch.randn(1, 10, 4)).plan
    assert whole.chunks(10, 10) == [(0, 4, 0, 4), (4, 8, 0, 8), (8, 10, 0, 10)]


def test_a_window_as_long_as_the_text_hides_nothing():
    for causal in (True, False):
        near, far = shaken(SelfAttention(4, 2, causal=causal, window=6)), SelfAttention(4, 2, causal=causal)
        far.load_state_dict(near.state_dict())
        x = torch.randn(2, 7, 4)
        same(near(x[:, :6])[0], far(x[:, :6])[0])
        assert not torch.allclose(near(x)[0], far(x)[0])


# Any mask


@pytest.mark.parametrize("position", [NoPosition, ALiBi, Rotary])
@pytest.mark.parametrize("form", [contextlib.nullcontext, plain], ids=["fast", "plain"])
def test_any_mask_may_hide_more(position, form):
    """Two documents in one row, kept apart by a mask, read as they do alone. Only distances count, so the second need not start at 0."""
    part = shaken(Transformer(8, 2, 2, position=position))
    x, document = torch.randn(1, 9, 8), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1])
    with form():
        y, _ = part(x, visible=document[:, None] == document)
        same(y, torch.cat([part(x[:, :4])[0], part(x[:, 4:])[0]], 1))


def test_masked_softmax_is_never_nan():
    scores, visible = torch.randn(2, 3, 4), torch.zeros(2, 3, 4, dtype=torch.bool)
    assert not masked_softmax(scores.clone(), visible).any()
    visible[0, 1, 2] = True
    weights = masked_softmax(scores, visible)
    assert weights[0, 1].tolist() == [0, 0, 1, 0] and weights.sum() == 1


def test_weights_are_for_those_who_ask():
    part, x = SelfAttention(8, 2), torch.randn(2, 5, 8)
    assert part.forward_with_weights(x)[1] is None
    with plain():
        same(part.forward_with_weights(x)[1].sum(-1), torch.ones(2, 2, 5))


def test_raw_weights_are_the_scores():
    """α = h·m, without a softmax: the context is linear in the query, and nothing sums to 1   [F5]."""
    part = GlobalAttention(3, 3, Dot, weights=Raw, project=False)
    memory, h = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    state = part.start(Memory(memory, None))
    c, _ = part(h, state)
    same(c, h @ memory.transpose(1, 2) @ memory)
    same(part(2 * h, state)[0], 2 * c)
    assert not list(part.parameters())


# Tables


def test_tables_serve_whoever_comes_next():
    """A table made while decoding serves training, and one made in single precision does not spoil double."""
    for position in (Rotary, partial(Rotary, layout="halves"), ALiBi, Sinusoidal):
        part = shaken(Transformer(8, 1, 2, position=position))
        x = torch.randn(1, 70, 8)
        expected = Transformer(8, 1, 2, position=position)
        expected.load_state_dict(part.state_dict())
        part.float()
        with torch.inference_mode():
            part(x.float())
        part(x.float())[0].sum().backward()
        part.double().load_state_dict(expected.state_dict())
        same(part(x)[0], expected(x)[0])


# The lectures' claims


def test_h9_longer_than_trained():
    """Learned positions have no vector for the ninth word; sinusoids, angles and distances have one for any."""
    x = torch.randn(1, 9, 8)
    with pytest.raises(ValueError, match="9 positions is longer than the 8 learned"):
        Transformer(8, 1, 2, position=partial(Learned, length=8))(x)
    for position in (Sinusoidal, Rotary, ALiBi, partial(Sinusoidal, layout="halves")):
        part = shaken(Transformer(8, 1, 2, position=position))
        y, _ = part(x)
        same(y[:, :8], part(x[:, :8])[0])


def test_f3_the_bottleneck():
    """Sources that end alike are one and the same to a decoder that starts from a thought, and are not to one that attends."""
    long, short = torch.randn(1, 40, 3), torch.randn(1, 5, 3)
    long[:, -1] = short[:, -1]
    x = torch.randn(1, 4, 6)
    through_one, attending = shaken(RNNDecoder(6, 3)), shaken(AttentiveRNN(6, 3, init_from="last"))
    first, second = (
        through_one(x, through_one.start(1, Memory(source, None)))[0] for source in (long, short)
    )
    assert torch.equal(first, second)
    first, second = (attending(x, attending.start(1, Memory(source, None)))[0] for source in (long, short))
    assert not torch.allclose(first, second)


def test_f1_and_f2_the_encoders_last_state_is_the_decoders_first():
    """Left to right it stands at the last real word, right to left at the first; both equal the state the encoder itself ends in."""
    source, mask = torch.randn(3, 6, 4), torch.arange(6) < torch.tensor([[6], [3], [1]])
    for direction, read in (("forward", "last"), ("backward", "first")):
        encoder = shaken(RNN(4, 5, direction=direction))
        values, final = encoder(source, None, mask)
        begun = RNNDecoder(4, 5, init_from=read).start(3, Memory(values, mask))
        same(begun[0].h, final[0][0].h)


def test_f14_weights_read_as_an_alignment():
    """With keys that answer to one word each, the largest weight of a written word points at the word it translates."""
    part, order = CrossAttention(6, 6, 1, bias=False), [2, 0, 1, 5, 3, 4]
    with torch.no_grad():
        part.q_proj.weight.copy_(20 * torch.eye(6))
        part.kv_proj.weight.copy_(torch.eye(6).repeat(2, 1))
    with plain():
        _, weights, _ = part.forward_with_weights(
            torch.eye(6)[None, order], part.start(1, Memory(torch.eye(6)[None], None))
        )
    assert weights[0, 0].argmax(-1).tolist() == order


def work(part: nn.Module, length: int) -> int:
    with plain(), FlopCounterMode(display=False) as counter, torch.no_grad():
        part(torch.randn(1, length, 8))
    return counter.get_total_flops()


def test_f15_cost():
    """Twice the length is twice the work of an RNN; attention adds 4 D T², two products of T × T × D, all at once."""
    rnn, attention = RNN(8), SelfAttention(8, 2)
    assert work(rnn, 20) == 2 * work(rnn, 10)
    assert work(attention, 20) - 2 * work(attention, 10) == 4 * 8 * (20**2 - 2 * 10**2)


def test_g6_keys_smaller_than_the_model():
    """A key of 2 for a model of 8 with 2 heads: fewer weights, values of full size, and scores over √2."""
    part = SelfAttention(8, 2, key_dim=2)
    assert part.qkv_proj.weight.shape == (2 * 2 + 2 * 2 + 8, 8) and part.score.scale == pytest.approx(2**-0.5)
    assert part(torch.randn(1, 3, 8))[1].keys.shape == (1, 2, 3, 2)


def test_g7_the_feedforward_has_most_parameters():
    """8 D² of a block's 12 D² stand in the feed-forward, 4 D² in attention."""
    block = Transformer(64, 1, 4, bias=False, feedforward=partial(FeedForward, bias=False)).blocks[0]
    count = {name: sum(w.numel() for w in part.parameters()) for name, part in block.named_children()}
    assert count["feedforward"] == 8 * 64**2 and count["attention"] == 4 * 64**2
    assert count["feedforward"] > sum(number for name, number in count.items() if name != "feedforward")


def test_g8_input_that_is_no_text():
    """Atoms of a molecule have features and no order: without positions and mask the stack gives each its vector, whatever the order."""
    part, atoms, order = (
        shaken(Transformer(8, 2, 2, position=NoPosition, causal=False)),
        torch.randn(2, 6, 8),
        torch.randperm(6),
    )
    same(part(atoms[:, order])[0], part(atoms)[0][:, order])


def test_d15_one_slope_and_d16_one_angle():
    bias = ALiBi(8, 2, slope=0.25).bias(torch.tensor([3]), torch.arange(6))
    assert bias.tolist() == [[[[-0.75, -0.5, -0.25, 0.0, -0.25, -0.5]]] * 2]
    x = torch.randn(1, 4, 1, 6)
    turned = Rotary(6, theta=torch.pi / 2).rotate(x, slice(0, 4))
    same(turned[0, 1, 0, 0::2], -x[0, 1, 0, 1::2])  # a quarter turn
    same(turned[0, 2], -x[0, 2])  # half a turn


def test_a_config_reaches_every_option():
    names = {name: getattr(seqloom.nn, name) for name in seqloom.nn.__all__}
    tree = {
        "type": "Transformer",
        "layers": 1,
        "heads": 4,
        "position": {"type": "Rotary", "layout": "halves", "theta": 0.5},
        "attention": {"type": "SelfAttention", "kv_heads": 2, "key_dim": 6, "window": 3, "weights": "Raw"},
        "cross": {"type": "CrossAttention", "key_dim": 3, "weights": "Softmax"},
        "score": "Bilinear",
    }
    part = config_tree.build(tree, names, "stack")(8, memory=5)
    attention = part.blocks[0].attention
    assert (
        attention.shape == (4, 2, 6, 2)
        and attention.visibility_rule.window == 3
        and part.blocks[0].cross.shape.key_dim == 3
    )
    assert type(attention.weights) is Raw and type(attention.score) is Bilinear and part.position.theta == 0.5


def test_bilinear_without_w_is_dot():
    q, k, v = torch.randn(3, 2, 2, 4, 6).unbind()
    score = Bilinear(6)
    with torch.no_grad():
        score.weight.copy_(torch.eye(6) / 6**0.5)
    same(attend(q, k, v, score)[0], attend(q, k, v, ScaledDot(6))[0])


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: SelfAttention(8, 3), "cannot be divided into 3 heads"),
        (lambda: SelfAttention(8, 4, kv_heads=3), "4 heads cannot share 3 key"),
        (lambda: SelfAttention(8, 4, kv_heads=0), "4 heads cannot share 0 key"),
        (lambda: SelfAttention(8, 4, key_dim=0), "key_dim must be at least 1"),
        (lambda: SelfAttention(8, 4, window=0), "window must be at least 1"),
        (lambda: Transformer(6, 1, 2, position=Rotary), "even head size, not 3"),
        (lambda: SelfAttention(8, 2, position=Rotary(8, 2), key_dim=3), "even head size, not 3"),
        (lambda: ALiBi(8, 2, slope=-1.0), "slope of ALiBi must be above 0"),
        (lambda: GlobalAttention(3, 4, project=False), "make them equal"),
        (lambda: RNNDecoder(4, 3, init_from="middle"), "init_from must be last, first or mean"),
        (lambda: RNNDecoder(4, 3).start(1), "start it with the encoder's outputs"),
        (lambda: AttentiveRNN(4, 3, query="next"), "query must be previous, current or word"),
        (lambda: FeedForward(4, activation="squash"), "activation must be"),
    ],
)
def test_sizes_that_do_not_fit(make, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize("score", [Additive, Dot, ScaledDot, Bilinear])
@pytest.mark.parametrize("cell", [LSTM, GRU, partial(GRU, reset="inside"), Vanilla, UGRNN])
def test_the_compiled_decoder_is_the_plain_one_with_any_padding(cell, score):
    """Outputs, last state and every gradient, of rows of unequal length over memories with holes."""
    torch.manual_seed(0)
    decoder = AttentiveRNN(
        6, 5, dim=7, cell=cell, attention=partial(GlobalAttention, score=score, dim=4)
    ).double()
    x, values = torch.randn(3, 4, 6).double().requires_grad_(), torch.randn(3, 5, 5).double().requires_grad_()
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]]).bool()
    seen = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 0, 0]]).bool()
    weight = torch.randn(3, 4, 7).double()
    inputs = [x, values, *decoder.parameters()]
    found = []
    for way in (contextlib.nullcontext, plain):
        with way():
            y, state = decoder(x, decoder.start(3, Memory(values, seen)), mask)
            loss = (y * weight)[mask].sum() + state.cells[0][0].square().sum()
            found.append([y[mask], state.cells[0][0], *torch.autograd.grad(loss, inputs)])
    for quick, slow in zip(*found, strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-10, atol=1e-12)

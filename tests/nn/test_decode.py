"""Decoding in single precision without gradients, where compiled code takes over: the same as the equations, whatever rows a search picks."""

import itertools
from functools import partial

import pytest
import torch
from torch import nn

from seqloom.fused import linear as fused_linear
from seqloom.fused.decode_attention import decode_attention
from seqloom.fused.dispatch import plain
from seqloom.nn import (
    ALiBi,
    CrossAttention,
    Experts,
    FeedForward,
    LayerNorm,
    Learned,
    Memory,
    NoPosition,
    RMSNorm,
    Rotary,
    SelfAttention,
    SwiGLU,
    Transformer,
    basic,
    decode,
    quantize,
    select,
)
from seqloom.nn.attention import KVCache
from seqloom.nn.cross_attention import CrossKV


@pytest.fixture(autouse=True)
def precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 11, 16, 40, 157])
@pytest.mark.parametrize("columns, size", [(1, 8), (2, 5), (3, 8), (4, 17), (50, 24), (1000, 63), (20, 2050)])
def test_few_rows_are_the_product_of_many(threads, rows, columns, size):
    torch.manual_seed(rows)
    x, weight, bias = torch.randn(rows, 1, size), torch.randn(columns, size) / size**0.5, torch.randn(columns)
    for b in (None, bias):
        wanted = nn.functional.linear(x.double(), weight.double(), None if b is None else b.double())
        with torch.no_grad():
            torch.testing.assert_close(
                fused_linear.linear(x, weight, b).double(), wanted, rtol=1e-5, atol=1e-5
            )


def test_the_compiled_product_is_taken_for_few_rows_only(monkeypatch):
    taken = []
    monkeypatch.setattr(fused_linear, "load_kernels", lambda name: taken.append(1))
    layer, x = basic.Linear(16, 8), torch.randn(4, 16)
    layer(x)  # gradients
    with torch.no_grad():
        layer(torch.randn(fused_linear.SMALL_GEMM_ROWS + 1, 16))
        layer.double()(x.double())
        assert not taken
        with pytest.raises(AttributeError):
            layer.float()(x)
    assert taken


@pytest.mark.parametrize("width", [2, 4, 8, 32])
def test_vectors_of_another_width_are_refused(width):
    """Also if they hold a whole number of rows."""
    with torch.no_grad(), pytest.raises(RuntimeError, match="shapes"):
        basic.Linear(16, 8)(torch.randn(8, width))


def test_strided_rows_and_no_rows():
    layer = basic.Linear(16, 8)
    x = torch.randn(3, 5, 32)[:, 2:3, ::2]
    with torch.no_grad():
        torch.testing.assert_close(layer(x), layer(x.contiguous()))
        torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
        assert layer(x[:0]).shape == (0, 1, 8)


def test_not_a_number_stays_one():
    layer, x = basic.Linear(16, 8), torch.randn(2, 16)
    x[1, 3] = float("nan")
    with torch.no_grad():
        y = layer(x)
    assert y[0].isfinite().all() and y[1].isnan().all()


ATTENTION = {
    "plain": {},
    "groups": {"kv_heads": 2},
    "multi-query": {"kv_heads": 1, "key_dim": 24},
    "window": {"window": 3},
    "alibi": {"position": ALiBi(32, 4)},
    "alibi window": {"position": ALiBi(32, 4), "window": 4},
    "rotary": {"position": Rotary(32, 4)},
}


def test_the_compiled_attention_is_taken(monkeypatch):
    """One query in single precision, without gradients: nothing else reaches the parts through it."""
    taken = []
    monkeypatch.setattr(
        "seqloom.nn.attention.decode_attention",
        lambda *args: taken.append(args) or decode_attention(*args),
    )
    for options in ATTENTION.values():
        part = SelfAttention(32, 4, **options)
        with torch.no_grad():
            _, state = part(torch.randn(2, 3, 32))
            assert not taken
            part(torch.randn(2, 1, 32), state)
        assert len(taken) == 1
        taken.clear()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ATTENTION)
def test_whatever_rows_a_search_picks_each_sees_its_own_past(threads, name, padded):
    """Random rows are picked before each step, more or fewer; every output is that of the row's own inputs, read whole in double precision."""
    torch.manual_seed(len(name))
    part = SelfAttention(32, 4, **ATTENTION[name])
    double = SelfAttention(32, 4, **ATTENTION[name]).double()
    double.load_state_dict(part.state_dict())
    first = torch.randn(3, 4, 32)
    lengths = [4, 2, 3] if padded else [4, 4, 4]
    mask = torch.arange(4) < torch.tensor(lengths)[:, None] if padded else None
    pasts = [first[row, :count] for row, count in enumerate(lengths)]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        _, state = part(first, None, mask)
        others = []
        for count in [3, 8, 8, 5, 9, 2, 2, 7] + [7] * 40:
            rows = torch.randint(0, len(pasts), (count,), generator=generator)
            others.append((state, pasts))
            state, pasts = select(state, rows), [pasts[row] for row in rows]
            x = torch.randn(count, 1, 32)
            y, state = part(x, state)
            pasts = [torch.cat([past, new]) for past, new in zip(pasts, x, strict=True)]
            check(double, y, pasts)
        for state, pasts in others[
            :: 9 if padded else 5
        ]:  # an earlier state goes on as if nothing had happened since
            x = torch.randn(len(pasts), 1, 32)
            y, _ = part(x, state)
            check(double, y, [torch.cat([past, new]) for past, new in zip(pasts, x, strict=True)])


def check(part, y, pasts):
    for row, past in enumerate(pasts):
        with plain():
            wanted, _ = part(past[None].double())
        torch.testing.assert_close(y[row].double(), wanted[0, -1:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [4, 2])
def test_the_beams_of_a_sentence_share_its_memory(threads, groups):
    torch.manual_seed(0)
    part = CrossAttention(32, 16, 4, kv_heads=groups)
    memory = Memory(
        torch.randn(3, 5, 16), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    )
    with torch.no_grad():
        state = part.start(3, memory)
        for rows in ([0, 1, 2], [0, 0, 1, 1, 2, 2], [5, 0, 1, 2, 2], [1, 3]):
            state = select(state, torch.tensor(rows))
            x = torch.randn(len(rows), 1, 32)
            y, state = part(x, state)
            with plain():
                wanted, _ = part(x, state)
            torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-6)
            assert state.key_buffer.shape[0] == 3 and state.keys.shape[0] == len(rows)
    assert state.rows.tolist() == [0, 1]  # rows 1 and 3 of [2, 0, 0, 1, 1]


def test_picking_rows_moves_no_keys():
    part = SelfAttention(32, 4)
    with torch.no_grad():
        _, state = part(torch.randn(2, 3, 32))
        state = select(state, torch.tensor([0, 0, 1, 1]))
        _, state = part(torch.randn(4, 1, 32), state)
        place = state.key_buffer.data_ptr()
        for _ in range(20):
            state = select(state, torch.tensor([3, 0, 1, 1]))
            _, state = part(torch.randn(4, 1, 32), state)
    assert state.key_buffer.data_ptr() == place and state.length == 24


def test_states_are_made_of_the_right_kinds():
    state = Transformer(16, 1, 2, memory=16).start(1, Memory(torch.randn(1, 2, 16), None))
    assert isinstance(state[0][0], KVCache) and isinstance(state[0][1], CrossKV)


@pytest.mark.parametrize("position", [NoPosition, partial(Learned, length=64), ALiBi])
def test_a_padded_batch_is_each_row_alone(position):
    torch.manual_seed(0)
    part = Transformer(32, 2, 4, position)
    x, mask = torch.randn(3, 6, 32), torch.arange(6) < torch.tensor([6, 2, 5])[:, None]
    with torch.no_grad():
        _, together = part(x, None, mask)
        alone = [part(x[row : row + 1, : int(mask[row].sum())])[1] for row in range(3)]
        for _ in range(5):
            new = torch.randn(3, 1, 32)
            y, together = part(new, together)
            for row in range(3):
                z, alone[row] = part(new[row : row + 1], alone[row])
                torch.testing.assert_close(y[row], z[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [8, 24, 64, 72])
def test_one_query_sees_any_number_of_keys(threads, size):
    for keys in range(1, 20):
        q, k, v = torch.randn(2, 3, 1, size), torch.randn(2, 3, keys, size), torch.randn(2, 3, keys, size)
        weights = (torch.einsum("bhtk,bhsk->bhts", q, k) * 0.3).softmax(-1)
        with torch.no_grad():
            found = decode_attention(q, k, v, 0.3, (None, 0, keys), None, False)
        torch.testing.assert_close(found, torch.einsum("bhts,bhsk->bhtk", weights, v), rtol=1e-4, atol=1e-5)


STACKS = {
    "pre": {},
    "post": {"order": "post"},
    "rms and swiglu": {"norm": RMSNorm, "feedforward": partial(SwiGLU, dim=48), "bias": False},
    "relu, bare norms": {
        "norm": partial(LayerNorm, affine=False),
        "feedforward": partial(FeedForward, activation="relu"),
    },
    "gelu by tanh": {"feedforward": partial(FeedForward, activation="gelu_tanh", dim=40)},
    "swish": {"feedforward": partial(FeedForward, activation="swish")},
    "sigmoid": {"feedforward": partial(FeedForward, activation="sigmoid")},
    "tanh": {"feedforward": partial(FeedForward, activation="tanh")},
    "learned": {"position": partial(Learned, length=64)},
    "alibi": {"position": ALiBi},
    "window and groups": {"attention": partial(SelfAttention, window=5, kv_heads=2)},
    "memory": {"memory": 24},
    "memory, post": {"memory": 24, "order": "post", "cross": partial(CrossAttention, kv_heads=2)},
    "rotary": {"position": Rotary},
    "rotary in halves": {
        "position": partial(Rotary, layout="halves"),
        "attention": partial(SelfAttention, kv_heads=2),
    },
    "experts": {"feedforward": partial(Experts, experts=2)},
}


@pytest.mark.parametrize("kind", ["single", "int8"])
@pytest.mark.parametrize("name", STACKS)
def test_a_compiled_step_is_the_step_of_the_blocks(monkeypatch, threads, name, kind):
    """Random rows are picked before each step; what comes out is what the blocks compute as their equations stand."""
    torch.manual_seed(0)
    part = Transformer(32, 3, 4, **STACKS[name]).eval()
    for weight in part.parameters():
        nn.init.normal_(weight, std=0.3)
    if kind == "int8":
        quantize(part)
    read = Memory(
        torch.randn(3, 5, 24), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]).bool()
    )
    memory = read if "memory" in STACKS[name] else None
    first, mask = torch.randn(3, 4, 32), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
    done = []
    monkeypatch.setattr(
        decode, "decode_step", lambda *args, run=decode.decode_step: done.append(run(*args)) or done[-1]
    )
    with torch.no_grad():
        _, state = part(first, part.start(3, memory), mask)
        with plain():
            _, other = part(first, part.start(3, memory), mask)
        for before, count in itertools.pairwise((3, 3, 6, 40, 40, 9, 4, *[5] * 35)):
            rows = torch.randint(0, before, (count,))
            state, other = select(state, rows), select(other, rows)
            x = torch.randn(count, 1, 32)
            y, state = part(x, state)
            with plain():
                z, other = part(x, other)
            torch.testing.assert_close(y, z, rtol=1e-3, atol=2e-3 if kind == "int8" else 1e-4)
    taken = [result is not None for result in done]
    assert len(taken) >= 41 and (not any(taken) if name == "experts" else sum(taken) >= 41)


def test_a_step_goes_on_with_the_weights_the_model_has():
    """A plan made for other weights is not used: neither those of before quantising, nor any that were put in since."""
    torch.manual_seed(0)
    part = Transformer(32, 2, 4).eval()
    with torch.no_grad():
        _, state = part(torch.randn(2, 3, 32))
        _, state = part(torch.randn(2, 1, 32), state)
        x = torch.randn(2, 1, 32)
        before, _ = part(x, state)
        for weight in part.parameters():
            weight.mul_(1.5)
        changed, _ = part(x, state)
        with plain():
            torch.testing.assert_close(changed, part(x, state)[0], rtol=1e-3, atol=1e-4)
        assert not torch.allclose(before, changed, atol=1e-2)
        quantize(part)
        rounded, _ = part(x, state)
        with plain():
            torch.testing.assert_close(rounded, part(x, state)[0], rtol=1e-3, atol=1e-3)


def test_dropout_and_many_rows_take_the_usual_way(monkeypatch):
    part, found = Transformer(32, 1, 4, dropout=0.5), []
    monkeypatch.setattr(
        decode, "decode_step", lambda *args, run=decode.decode_step: found.append(run(*args)) or found[-1]
    )
    with torch.no_grad():
        _, state = part(torch.randn(2, 3, 32))
        part(torch.randn(2, 1, 32), state)
        part.eval()
        _, state = part(torch.randn(fused_linear.SMALL_GEMM_ROWS + 1, 3, 32))
        part(torch.randn(fused_linear.SMALL_GEMM_ROWS + 1, 1, 32), state)
        quantize(part)
        part(torch.randn(fused_linear.SMALL_GEMM_ROWS + 1, 1, 32), state)
    assert [one is not None for one in found] == [False, False, True]

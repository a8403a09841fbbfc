"""Recurrent cells against torch, the lectures' worked cases, back-propagation through time written out, dropout and zoneout by definition."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.fused import recurrence as fused_recurrence
from seqloom.fused.dispatch import plain, supports
from seqloom.nn import (
    GRU,
    LSTM,
    RNN,
    UGRNN,
    Additive,
    AttentiveRNN,
    Cell,
    Gated,
    GlobalAttention,
    Memory,
    ScaledDot,
    Vanilla,
    detach,
)
from seqloom.nn.cells import HiddenState, units_for_parameters
from seqloom.nn.layer import state_tensors
from support.case import named
from support.parts_recurrent import CELLS, Square

both_forms = pytest.mark.parametrize("form", [contextlib.nullcontext, plain], ids=["fast", "plain"])
OPEN, SHUT = 1e4, -1e4


every_cell = pytest.mark.parametrize("cell", [LSTM, *CELLS], ids=named)


def same(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def shaken(part: nn.Module, scale: float = 0.5) -> nn.Module:
    with torch.no_grad():
        for weight in part.parameters():
            weight.copy_(torch.randn(weight.shape) * scale)
    return part


def gradients(y: Tensor, more: list[Tensor], wanted: list[Tensor]) -> tuple[Tensor, ...]:
    """Of a mixture of outputs and final states."""
    mixture = sum((t * torch.linspace(-1, 1, t.numel()).view(t.shape)).sum() for t in (y, *more))
    return torch.autograd.grad(mixture, wanted)


# torch's own modules


THEIRS = {
    "LSTM": (LSTM, nn.LSTM),
    "GRU": (GRU, nn.GRU),
    "tanh": (Vanilla, nn.RNN),
}


def theirs_of(ours: Cell, make: type[nn.RNNBase], size: int) -> nn.RNNBase:
    """torch's module with our weights; of its two biases, ours has one, except where the reset gate multiplies the other."""
    theirs = make(size, ours.dim, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.input)
        theirs.weight_hh_l0.copy_(ours.hidden)
        theirs.bias_ih_l0.copy_(ours.bias)
        theirs.bias_hh_l0.zero_()
        if isinstance(ours, GRU):
            theirs.bias_hh_l0[2 * ours.dim :] = ours.hidden_bias
    return theirs


@pytest.mark.parametrize("kind", THEIRS)
@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 2e-5)], ids=["double", "single"]
)
@both_forms
def test_equal_to_torchs(kind: str, dtype: torch.dtype, tolerance: float, form):
    """Outputs, final state, and the gradients of weights, inputs and initial state."""
    torch.set_default_dtype(dtype)
    make, module = THEIRS[kind]
    ours = shaken(RNN(5, 37, cell=make), 0.3)
    cell = ours.layers[0][0].cell
    theirs = theirs_of(cell, module, 5)
    x, start = (
        torch.randn(4, 6, 5, requires_grad=True),
        [torch.randn(4, 37, requires_grad=True) for _ in cell.start(1)],
    )
    with form():
        y, ((state,),) = ours(x, ((type(cell.start(1))(*start),),))
        found = gradients(y, list(state), [cell.input, cell.hidden, cell.bias, x, *start])
    given = tuple(s[None] for s in start)
    expected, final = theirs(x, given if len(given) > 1 else given[0])
    final = [t[0] for t in (final if isinstance(final, tuple) else (final,))]
    wanted = gradients(
        expected, final, [theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0, x, *start]
    )
    for a, b in zip([y, *state, *found], [expected, *final, *wanted], strict=True):
        same(a, b, tolerance)


def test_the_inner_bias_of_the_gru_is_torchs():
    """Its gradient too, which the reset gate weighs."""
    ours = shaken(RNN(3, 4, cell=GRU))
    cell = ours.layers[0][0].cell
    theirs, x = theirs_of(cell, nn.GRU, 3), torch.randn(2, 5, 3)
    found = torch.autograd.grad(ours(x)[0].square().sum(), cell.hidden_bias)[0]
    same(found, torch.autograd.grad(theirs(x)[0].square().sum(), theirs.bias_hh_l0)[0][8:])


def test_reset_inside_is_another_cell():
    """The lecture's GRU and torch's have the same weights and different outputs [D-5]; with r = 1 they are the same."""
    inside, outside = RNN(3, 4, cell=partial(GRU, reset="inside")), RNN(3, 4, cell=GRU)
    shaken(inside)
    outside.load_state_dict(inside.state_dict(), strict=False)
    x = torch.randn(2, 6, 3)
    assert (inside(x)[0] - outside(x)[0]).abs().max() > 1e-3
    for part in (inside, outside):
        with torch.no_grad():
            part.layers[0][0].cell.bias[:4] = OPEN
    same(inside(x)[0], outside(x)[0])


# Single precision, padding, states


@every_cell
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_fast_equals_plain_in_single_precision(cell, padded: bool):
    """Wide enough for vector instructions and a rest; outputs, states and gradients, from a state that is not zero."""
    torch.set_default_dtype(torch.float32)
    part = shaken(RNN(8, 43, cell=cell, layers=2), 0.2)
    x, mask = (
        torch.randn(5, 9, 8, requires_grad=True),
        torch.arange(9) < torch.tensor([4, 9, 0, 1, 7])[:, None] if padded else None,
    )
    start = tuple(
        tuple(type(s)(*(torch.randn(t.shape, requires_grad=True) for t in s)) for s in layer)
        for layer in part.start(5)
    )
    wanted = [x, *part.parameters(), *state_tensors(start)]
    results = []
    for form in (contextlib.nullcontext, plain):
        with form():
            y, state = part(x, start, mask)
            results.append([y, *state_tensors(state), *gradients(y, list(state_tensors(state)), wanted)])
    for a, b in zip(*results, strict=True):
        same(a, b, 3e-5)


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell(2, 2).kernel], ids=named)
def test_the_fused_way_is_taken_where_there_is_one(cell):
    """Otherwise fast = plain would compare the loop with itself; `plain()` switches it off, and so does a look at the gates."""

    def made_by(y: Tensor) -> set[str]:
        seen, nodes = set(), [y.grad_fn]
        while nodes:
            node = nodes.pop()
            seen.add(node)
            nodes += [
                following
                for following, _ in node.next_functions
                if following is not None and following not in seen
            ]
        return {node.name() for node in seen}

    part, x = RNN(3, 4, cell=cell, zoneout=0.1), torch.randn(2, 5, 3)
    assert "RecurrenceBackward" in made_by(part(x)[0])
    assert "RecurrenceBackward" not in made_by(part.forward_with_gates(x)[0])
    with plain():
        assert "RecurrenceBackward" not in made_by(part(x)[0])


@every_cell
def test_a_gradient_may_be_taken_twice(cell):
    """Going back changes nothing that was kept for it."""
    part = shaken(RNN(3, 4, cell=cell))
    y, _ = part(torch.randn(2, 5, 3))
    once, twice = (
        torch.autograd.grad(y.square().sum(), list(part.parameters()), retain_graph=True) for _ in range(2)
    )
    for a, b in zip(once, twice, strict=True):
        assert torch.equal(a, b)


def test_values_that_are_no_numbers_stay_so():
    """A fast exponential must not turn NaN into a number: training would not notice."""
    torch.set_default_dtype(torch.float32)
    for cell in (Vanilla, partial(Vanilla, activation="sigmoid"), GRU, partial(LSTM, output="linear"), UGRNN):
        x = torch.randn(2, 3, 16)
        x[1, 1, 0] = torch.nan
        y, _ = RNN(16, cell=cell)(x)
        assert y[1, 1:].isnan().all() and y[0].isfinite().all() and y[1, 0].isfinite().all()


@pytest.mark.parametrize("bound", [1.0, 100.0, 1e30])
def test_activations_in_single_precision_are_exact_to_the_seventh_digit(bound: float):
    """σ and tanh through a cell of one step that reads its input alone, from tiny to huge arguments."""
    torch.set_default_dtype(torch.float32)
    x = torch.cat(
        [
            torch.linspace(-bound, bound, 4000),
            torch.logspace(-30, 0, 95) * bound,
            torch.tensor([torch.inf, -torch.inf]),
        ]
    )[:, None, None]
    for activation, exact in (("tanh", torch.tanh), ("sigmoid", torch.sigmoid)):
        part = RNN(1, 1, cell=partial(Vanilla, activation=activation, bias="none"))
        with torch.no_grad():
            part.layers[0][0].cell.input.fill_(1.0)
            part.layers[0][0].cell.hidden.fill_(0.0)
            y, _ = part(x)
        assert (y.double() - exact(x.double())).abs().max() < 5e-7


def test_other_precisions_take_the_plain_loop():
    part = RNN(3, 4, cell=GRU).to(torch.bfloat16)
    assert part(torch.randn(1, 2, 3, dtype=torch.bfloat16))[0].dtype == torch.bfloat16
    assert not supports(torch.zeros(1), torch.zeros(1, dtype=torch.float32))


# The lectures' worked cases


def biased(cell: Cell, *values: float) -> Cell:
    """The cell with gates that read nothing but their biases."""
    with torch.no_grad():
        for number, part in enumerate((cell.gate, cell.candidate) if isinstance(cell, Gated) else (cell,)):
            part.input.zero_()
            part.hidden.zero_()
            here = values[number : number + 1] if isinstance(cell, Gated) else values
            part.bias.copy_(torch.tensor(here).repeat_interleave(cell.dim) * part.sign)
    return cell


@both_forms
@pytest.mark.parametrize("reset", ["outside", "inside"])
def test_x13(form, reset: str):
    """A GRU that updates nothing, u = 1 - z = 0, keeps its state exactly; one that updates all forgets it."""
    start = torch.randn(2, 3)
    for z, expected, tolerance in ((OPEN, start, 0.0), (SHUT, torch.full((2, 3), 0.7).tanh(), 1e-15)):
        part = RNN(2, 3, cell=lambda size, dim, z=z: biased(GRU(size, dim, reset), 0.0, z, 0.7))
        with form():
            _, ((state,),) = part(torch.randn(2, 9, 2), ((HiddenState(start),),))
        same(state.h, expected, tolerance)


@both_forms
def test_x14(form):
    """UGRNN: G = 1 keeps h, G = 0 takes R."""
    start = torch.randn(2, 3)
    for g, expected, tolerance in ((OPEN, start, 0.0), (SHUT, torch.full((2, 3), 0.7).tanh(), 1e-15)):
        part = RNN(2, 3, cell=lambda size, dim, g=g: biased(UGRNN(size, dim), g, 0.7))
        with form():
            _, ((state,),) = part(torch.randn(2, 9, 2), ((HiddenState(start),),))
        same(state.h, expected, tolerance)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.floats(0.1, 30), number=st.integers(0, 5))
def test_x29(seed: int, scale: float, number: int):
    """Whatever the candidate and the weights, each coordinate of h lies between the old h and R; so does the GRU's."""
    torch.manual_seed(seed)
    make = [
        UGRNN,
        GRU,
        partial(GRU, reset="inside"),
        Gated,
        partial(Gated, candidate=Square),
        partial(Gated, candidate=LSTM),
    ][number]
    cell = shaken(make(3, 4), scale)
    state = type(cell.start(1))(*(torch.randn(2, 4) * 2 for _ in cell.start(1)))
    share = cell.project_input(torch.randn(2, 3))
    gates = cell.gates(share, state, state.h)
    candidate = (
        cell.candidate.step(share[:, : cell.candidate.width], state)[0]
        if isinstance(cell, Gated)
        else gates["new"]
    )
    h = cell.step(share, state)[0]
    assert (h >= torch.minimum(state.h, candidate) - 1e-12).all() and (
        h <= torch.maximum(state.h, candidate) + 1e-12
    ).all()
    assert (gates["keep"] >= 0).all() and (gates["keep"] <= 1).all()


@pytest.mark.parametrize("make", [Vanilla, LSTM, GRU, UGRNN, Gated])
def test_minus_b_is_plus_b_with_the_sign_turned(make):
    """Which of the two is meant decides no more than the sign of what is learnt [D-2]."""
    plus, minus = RNN(3, 4, cell=partial(make, bias="plus")), RNN(3, 4, cell=partial(make, bias="minus"))
    shaken(plus)
    minus.load_state_dict(
        {key: -value if key.endswith("bias") else value for key, value in plus.state_dict().items()},
        strict=True,
    )
    if make is Gated:
        minus.layers[0][0].cell.candidate.bias.data.neg_()  # its candidate has the default, plus
    x = torch.randn(2, 5, 3)
    same(plus(x)[0], minus(x)[0])
    assert not any(
        key.endswith("bias")
        for key in RNN(3, 4, cell=partial(make, bias="none")).state_dict()
        if "candidate" not in key
    )


# Gates


@every_cell
@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_gates_are_those_that_made_the_outputs(cell, direction: str):
    """What `look` shows of each layer, direction and step takes the state before to the state after; outputs are those of the layer."""
    part = shaken(RNN(3, 4, cell=cell, layers=2, direction=direction))
    x, mask = (
        torch.randn(3, 5, 3),
        torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.bool),
    )
    y, gates, state = part.forward_with_gates(x, None, mask)
    expected, expected_state = part(x, None, mask)
    same(y, expected)
    for a, b in zip(state_tensors(state), state_tensors(expected_state), strict=True):
        same(a, b)
    for way, shown, final in zip(part.layers[1], gates[1], state[1], strict=True):
        assert all(value.shape == (3, 5, 4) for value in shown.values())
        for row in range(2):
            now = way.cell.start(1)
            places = mask[row].nonzero().flatten().tolist()
            for t in reversed(places) if way.backward else places:
                now = way.cell.update({key: value[row : row + 1, t] for key, value in shown.items()}, now)
            same(now[0][0], final[0][row])


def test_gates_erase_write_and_read():
    """f = 0 erases, i = 1 writes, o = 1 reads, coordinate by coordinate."""
    cell = biased(LSTM(1, 3), 0.0, 0.0, 0.5, 0.0)
    with torch.no_grad():
        i, f, _, o = cell.bias.view(4, 3)
        i.copy_(torch.tensor([SHUT, OPEN, SHUT]))
        f.copy_(torch.tensor([SHUT, SHUT, OPEN]))
        o.copy_(torch.tensor([OPEN, OPEN, SHUT]))
    part = RNN(1, 3, cell=lambda size, dim: cell)
    before = torch.tensor([[0.3, 0.4, 0.6]])
    y, [[gates]], ((state,),) = part.forward_with_gates(
        torch.zeros(1, 1, 1), ((type(cell.start(1))(torch.zeros(1, 3), before),),)
    )
    assert [gates[key][0, 0].tolist() for key in ("forget", "input", "output")] == [
        [0, 0, 1],
        [0, 1, 0],
        [1, 1, 0],
    ]
    written = torch.tensor(0.5).tanh()
    same(state.c[0], torch.stack([torch.tensor(0.0), written, before[0, 2]]))
    same(y[0, 0], torch.stack([torch.tensor(0.0), written.tanh(), torch.tensor(0.0)]))


def test_a_cell_of_ones_own_may_give_only_its_step():
    class Sum(Cell):
        def __init__(self, size: int, dim: int):
            super().__init__()
            self.dim = self.width = dim

        def start(self, batch: int) -> HiddenState:
            return HiddenState(torch.zeros(batch, self.dim))

        def project_input(self, x: Tensor) -> Tensor:
            return x

        def step(self, share: Tensor, state: HiddenState) -> HiddenState:
            return HiddenState(state.h + share)

    x = torch.randn(2, 4, 3)
    same(RNN(3, cell=Sum)(x)[0], x.cumsum(1))
    with pytest.raises(ValueError, match="Sum defines no gates"):
        RNN(3, cell=Sum).forward_with_gates(x)


# Back-propagation through time


def test_bptt_written_out():
    """∂h_T/∂h_t is the product of the steps' Jacobians diag(1 - h²) U, and ∂ℓ/∂U the sum over t of what each step adds   [D14]"""
    part = shaken(RNN(2, 3, cell=Vanilla))
    cell, x, start = part.layers[0][0].cell, torch.randn(1, 6, 2), torch.randn(1, 3)
    y, _ = part(x, ((HiddenState(start),),))
    hs = [start[0], *y[0].detach()]
    dloss = torch.randn(3)  # ∂ℓ/∂h_T

    def jacobian(t: int) -> Tensor:  # ∂h_t/∂h_{t-1}
        return torch.diag(1 - hs[t] ** 2) @ cell.hidden.detach()

    for t in range(6):
        product = torch.eye(3)
        for step in range(6, t, -1):
            product = product @ jacobian(step)
        _, ((first,),) = part(x[:, :t], ((HiddenState(start),),))
        h = first.h.detach().requires_grad_()
        rest, _ = part(x[:, t:], ((HiddenState(h),),))
        same(
            torch.stack(
                [torch.autograd.grad(rest[0, -1, unit], h, retain_graph=True)[0][0] for unit in range(3)]
            ),
            product,
        )

    total, back = torch.zeros(3, 3), dloss.clone()
    for t in range(6, 0, -1):
        total += torch.outer(back * (1 - hs[t] ** 2), hs[t - 1])
        back = back @ jacobian(t)
    same(torch.autograd.grad(y[0, -1] @ dloss, cell.hidden)[0], total)


@pytest.mark.parametrize("radius", [0.5, 0.9, 1.1, 1.5])
def test_the_eigenvalues_of_the_hidden_matrix_decide_growth(radius: float):
    """Near h = 0, where tanh is the identity, the gradient over T steps is U^T: it grows or decays as the largest eigenvalue does   [D14]"""
    part = RNN(1, 6, cell=partial(Vanilla, bias="none"))
    hidden = torch.randn(6, 6)
    with torch.no_grad():
        part.layers[0][0].cell.hidden.copy_(hidden * radius / torch.linalg.eigvals(hidden).abs().max())
    sizes = []
    for steps in (60, 61, 80, 81):
        h = torch.zeros(1, 6, requires_grad=True)
        y, _ = part(torch.zeros(1, steps, 1), ((HiddenState(h),),))
        whole = torch.stack(
            [torch.autograd.grad(y[0, -1, unit], h, retain_graph=True)[0][0] for unit in range(6)]
        )
        sizes.append(torch.linalg.matrix_norm(whole).item())
    growth = (sizes[2] * sizes[3] / (sizes[0] * sizes[1])) ** (
        1 / 40
    )  # two neighbours: complex eigenvalues swing
    assert growth == pytest.approx(radius, rel=0.05)
    assert (sizes[2] > sizes[0]) == (radius > 1)


def test_forward_is_bounded_while_the_gradient_explodes():
    """|h| ≤ 1 at every step, and still the gradient by the first state passes a billion   [D17]"""
    part = RNN(1, 8, cell=partial(Vanilla, bias="none"))
    with torch.no_grad():
        part.layers[0][0].cell.hidden.copy_(torch.linalg.qr(torch.randn(8, 8))[0] * 2)
    h = (torch.randn(1, 8) * 1e-12).requires_grad_()
    y, _ = part(torch.zeros(1, 34, 1), ((HiddenState(h),),))
    gradient = torch.autograd.grad(y[0, -1].sum(), h)[0]
    assert y.abs().max() <= 1 and gradient.norm() > 1e9


@every_cell
def test_truncated_bptt_keeps_values_and_cuts_gradients(cell):
    """Cut k steps back the values are those of the whole, and what came before has no influence on the gradient   [D15]"""
    part, x = shaken(RNN(3, 4, cell=cell)), torch.randn(2, 6, 3, requires_grad=True)
    _, state = part(x[:, :4])
    y, _ = part(x[:, 4:], detach(state))
    same(y, part(x)[0][:, 4:])
    gradient = torch.autograd.grad(y.square().sum(), x)[0]
    assert not gradient[:, :4].any() and gradient[:, 4:].abs().min() > 0


# Equal parameters


@pytest.mark.parametrize(
    "make, blocks", [(Vanilla, 1), (UGRNN, 2), (GRU, 3), (LSTM, 4), (partial(GRU, reset="inside"), 3)]
)
def test_blocks_and_equal_parameters(make, blocks: int):
    """A GRU has three blocks of weights, an LSTM four [D19]; `units` finds the width that a budget pays for."""

    def count(dim: int) -> int:
        return sum(weight.numel() for weight in make(50, dim).parameters())

    own = 20 if make is GRU else 0  # the bias that the reset gate multiplies
    assert count(20) == blocks * (20 * 50 + 20 * 20 + 20) + own
    dim = units_for_parameters(make, 50, 100_000)
    assert count(dim) <= 100_000 < count(dim + 1)
    with pytest.raises(ValueError, match="are too few: one unit"):
        units_for_parameters(make, 50, 40)


# Dropout and zoneout


@every_cell
@pytest.mark.parametrize(
    "options", [{"variational": 0.5}, {"zoneout": 0.3}, {"variational": 0.25, "zoneout": 0.5}], ids=str
)
def test_fast_equals_plain_while_training(cell, options: dict):
    """With the same draws: outputs, states, gradients, on padded rows and in both directions."""
    part = shaken(RNN(3, 4, cell=cell, layers=2, direction="both", **options))
    x, mask = torch.randn(4, 6, 3, requires_grad=True), torch.arange(6) < torch.tensor([2, 6, 0, 5])[:, None]
    results = []
    for form in (contextlib.nullcontext, plain):
        torch.manual_seed(3)
        with form():
            y, state = part(x, None, mask)
            results.append(
                [y, *state_tensors(state), *gradients(y, list(state_tensors(state)), [x, *part.parameters()])]
            )
    for a, b in zip(*results, strict=True):
        same(a, b)
    assert (part(x, None, mask)[0] - results[0][0]).abs().max() > 1e-3  # other draws, other outputs


@both_forms
def test_variational_dropout_is_one_mask_for_all_steps(form):
    """h = tanh(W (x ⊙ m) + U (h ⊙ m') + b) with m, m' in {0, 1/(1-p)}, the same at all steps, different for each row"""
    part = shaken(RNN(5, 6, cell=Vanilla, variational=0.5))
    cell, x = part.layers[0][0].cell, torch.randn(1, 7, 5).expand(40, 7, 5)
    with form(), torch.no_grad():
        y, _ = part(x)
    first = torch.atanh(y[:, 0]) - cell.bias  # the input's mask shows at the first step, h's at the second
    found = 0
    for row in range(40):
        read = torch.linalg.lstsq(cell.input.detach() * x[row, 0], first[row][:, None]).solution[:, 0]
        second = torch.atanh(y[row, 1]) - cell.bias - cell.input @ (x[row, 1] * read)
        seen = torch.linalg.solve(cell.hidden.detach() * y[row, 0], second.detach())
        assert all(min(abs(v), abs(v - 2)) < 1e-6 for v in [*read.tolist(), *seen.tolist()])
        h = torch.zeros(6)
        for t in range(7):
            h = torch.tanh(
                cell.input @ (x[row, t] * read.round()) + cell.hidden @ (h * seen.round()) + cell.bias
            )
            same(y[row, t], h.detach(), 1e-6)
        found += int(seen.round().sum() / 2)
    assert 80 < found < 160  # of 240


@both_forms
def test_zoneout_keeps_each_unit_with_its_probability(form):
    """While training each coordinate of h and c is either the old one or the new one; the share of old ones is p."""
    part = shaken(RNN(3, 50, cell=LSTM, zoneout=0.3), 0.2)
    cell, x, state = part.layers[0][0].cell, torch.randn(20, 8, 3), part.start(20)
    kept, total = 0, 0
    for t in range(8):
        before = state[0][0]
        new = cell.step(cell.project_input(x[:, t]), before)
        with form(), torch.no_grad():
            _, state = part(x[:, t : t + 1], state)
        for old, fresh, now in zip(before, new, state[0][0], strict=True):
            stays = (now - old).abs() < 1e-12
            assert (stays | ((now - fresh).abs() < 1e-12)).all()
            if t:
                kept, total = kept + int(stays.sum()), total + stays.numel()
    assert kept / total == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: RNN(3, zoneout=1.0), "zoneout must be at least 0 and below 1"),
        (lambda: RNN(3, variational=-0.1), "dropout must be at least 0 and below 1"),
        (lambda: GRU(3, 4, reset="left"), "reset must be outside or inside, not 'left'"),
        (lambda: LSTM(3, 4, output="c"), "output must be tanh or linear, not 'c'"),
        (lambda: LSTM(3, 4, bias=False), "bias must be plus, minus or none, not False"),
        (lambda: Vanilla(3, 4, activation="relu"), "activation must be tanh or sigmoid, not 'relu'"),
    ],
)
def test_wrong_options_are_one_sentence(make, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        make()


# Single precision, whose products of few rows are our own, and threads


@pytest.fixture
def single():
    before = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before[0])
    torch.set_num_threads(before[1])


def outcome(layer: nn.Module, x: Tensor, mask: Tensor, count: int = 1) -> list[Tensor]:
    """Outputs and all gradients, with the same noise each time."""
    torch.set_num_threads(count)
    torch.manual_seed(5)
    x = x.clone().requires_grad_()
    y, state = layer(x, mask=mask)
    return [y, *gradients(y, list(state_tensors(state)), [x, *layer.parameters()])]


@every_cell
@pytest.mark.parametrize("batch", [1, 2, 9, 40, 171])
def test_single_precision_is_the_plain_form(single, cell, batch):
    torch.manual_seed(batch)
    layer, x = shaken(RNN(7, 13, cell, variational=0.2, zoneout=0.1), 0.3), torch.randn(batch, 6, 7)
    mask = torch.arange(6) < torch.randint(1, 7, (batch, 1))
    mask[0] = True
    found = outcome(layer, x, mask, 2)
    with plain():
        wanted = outcome(layer, x, mask)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * max(1.0, b.abs().max().item()))


@every_cell
@pytest.mark.parametrize("batch", [3, 12, 30])
def test_threads_change_no_bit(single, monkeypatch, cell, batch):
    """Torch's own products may: they stay with one thread here."""
    torch.manual_seed(0)
    layer, x = RNN(7, 13, cell, variational=0.2), torch.randn(batch, 6, 7)
    mask = torch.arange(6) < torch.randint(1, 7, (batch, 1))
    mask[-1] = True
    wanted = outcome(layer, x, mask)
    for count in (2, 3):
        monkeypatch.setattr(fused_recurrence, "num_threads", lambda count=count: count)
        for a, b in zip(wanted, outcome(layer, x, mask), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("score", [Additive, ScaledDot], ids=named)
@pytest.mark.parametrize("batch", [3, 21])
def test_a_decoder_that_asks_the_memory_in_single_precision(single, monkeypatch, score, batch):
    torch.manual_seed(batch)
    layer = shaken(AttentiveRNN(7, 6, dim=13, attention=partial(GlobalAttention, score=score, dim=5)), 0.3)
    x, source = torch.randn(batch, 6, 7), torch.randn(batch, 4, 6, requires_grad=True)
    mask, seen = (torch.arange(n) < torch.randint(1, n + 1, (batch, 1)) for n in (6, 4))

    def found() -> list[Tensor]:
        y = layer(x, layer.start(batch, Memory(source, seen)), mask)[0] * mask[..., None]
        return [y, *gradients(y, [], [source, *layer.parameters()])]

    with plain():
        wanted = found()
    for count in (1, 2, 3):
        monkeypatch.setattr(fused_recurrence, "num_threads", lambda count=count: count)
        for a, b in zip(found(), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * max(1.0, b.abs().max().item()))


class RectifiedVanilla(Vanilla):
    def gates(self, x_proj, state, h_in):
        return {"new": (x_proj + h_in @ self.hidden.T).relu()}


class HalfLSTM(LSTM):
    def update(self, gates, state):
        return type(state)(*(value / 2 for value in super().update(gates, state)))


class SlowGRU(GRU):
    def update(self, gates, state):
        return super().update({**gates, "keep": (1 + gates["keep"]) / 2}, state)


@pytest.mark.parametrize("cell", [RectifiedVanilla, HalfLSTM, SlowGRU])
def test_a_subclass_with_another_equation_does_not_use_the_kernel(cell):
    """The compiled form belongs to the equation it was written for."""
    part, x = RNN(3, cell=cell, dim=4), torch.randn(2, 5, 3)
    fast, _ = part(x)
    with plain():
        literal, _ = part(x)
    torch.testing.assert_close(fast, literal)
    base = RNN(3, cell=cell.__mro__[1], dim=4)
    base.load_state_dict(part.state_dict())
    assert not torch.allclose(base(x)[0], fast)


def test_every_kernel_of_a_cell_has_its_branches():
    import inspect

    from seqloom.kernels import recurrence

    for function in (recurrence.cell_forward, recurrence.cell_backward):
        source = inspect.getsource(function.py_func)
        assert all(f"cell == {index}:" in source for index in range(len(recurrence.CELLS)))

"""The five promises that every part keeps, each stated once for all parts of the list:

1. equation: the part equals its literal form;   2. gradient: it equals finite differences;
3. whole = steps, and causal parts never look ahead;   4. padding changes nothing;   5. fast = plain.
"""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from seqloom.fused.dispatch import plain
from seqloom.nn import RNN, detach, select
from seqloom.nn.layer import state_tensors
from support import reference
from support.case import SIZE, Case
from support.parts import CASES

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
causal = pytest.mark.parametrize(
    "case", [case for case in CASES if case.causal()], ids=lambda case: case.name
)
both_forms = pytest.mark.parametrize("form", [contextlib.nullcontext, plain], ids=["fast", "plain"])
modes = pytest.mark.parametrize(
    "mode",
    [contextlib.nullcontext, torch.no_grad, torch.inference_mode],
    ids=["grad", "no_grad", "inference"],
)


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def same_state(a, b) -> None:
    for left, right in zip(state_tensors(a), state_tensors(b), strict=True):
        same(left, right)


class Whole(nn.Module):
    """Start and one call together, so that all that the outputs depend on is an argument."""

    def __init__(self, case: Case):
        super().__init__()
        self.case, self.part = case, case.build()

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        mask: Tensor | None = None,
        source_mask: Tensor | None = None,
    ):
        return self.part(x, self.case.start(self.part, len(x), source, source_mask), mask)


def results(whole: Whole, x: Tensor, source: Tensor | None, mask: Tensor | None, source_mask: Tensor | None):
    """Outputs at the real tokens, and the gradient of a mixture of them with respect to all that is real-valued."""
    reals = [t.requires_grad_() for t in (x, source) if t is not None and t.is_floating_point()] + list(
        whole.parameters()
    )
    y, _ = whole(x, source, mask, source_mask)
    y = y if mask is None else y[mask]
    weights = torch.linspace(-1, 1, y.numel()).view(y.shape)
    return y.detach(), torch.autograd.grad(
        (y * weights).sum(), reals, allow_unused=True, materialize_grads=True
    )


# 1. Equation


@every
@both_forms
def test_equation(case: Case, form):
    """Each row of a batch equals the literal loop over that example alone."""
    part, x, source = case.build(), case.sequence(2, 5), case.source(2)
    with form():
        y, _ = part(x, case.start(part, 2, source))
    for row in range(2):
        expected = reference.of(part, x[row].numpy(), None if source is None else source[row].numpy())
        same(y[row].detach(), torch.from_numpy(expected))


# 2. Gradient


@every
@both_forms
def test_gradient(case: Case, form):
    """Finite differences agree, for outputs and state, with respect to inputs, memory and parameters, with padding in both."""
    whole, x, source = Whole(case), case.sequence(2, 3), case.source(2)
    mask = torch.tensor([[True, True, True], [False, True, False]])
    source_mask = None if source is None else torch.tensor([[True, False, True], [True, True, True]])
    weights = list(whole.parameters())
    order = {id(weight): number for number, weight in enumerate(weights)}
    # each place once: torch's functional_call spoils a module that stands in two places, as a shared embedding does
    places = {
        f"{m}.{p}": order[id(w)]
        for m, part in whole.named_modules()
        for p, w in part.named_parameters(recurse=False)
    }
    reals = [t for t in (x, source) if t is not None and t.is_floating_point()] + [
        w.detach() for w in weights
    ]

    def function(vector: Tensor) -> Tensor:
        given = iter(
            piece.view(real.shape)
            for piece, real in zip(vector.split([r.numel() for r in reals]), reals, strict=True)
        )
        read, look = (next(given) if t is not None and t.is_floating_point() else t for t in (x, source))
        values = list(given)
        there = {name: values[number] for name, number in places.items()}
        y, state = functional_call(whole, there, (read, look, mask, source_mask), tie_weights=False)
        return torch.cat(
            [y[mask].flatten(), *(t.flatten() for t in state_tensors(state) if t.is_floating_point())]
        )

    with form():
        vector = torch.cat([real.flatten() for real in reals]).requires_grad_()
        assert torch.autograd.gradcheck(function, [vector], fast_mode=True, atol=1e-6)


# 3. Whole = steps


def cut(length: int, pieces: random.Random) -> list[slice]:
    """Random pieces that make up the length; one of them is empty."""
    ends = sorted([pieces.randint(0, length) for _ in range(pieces.randint(1, length))])
    ends = [0, *ends, pieces.choice([0, *ends]), length]
    ends.sort()
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


SPLITS = [[slice(t, t + 1) for t in range(6)], *(cut(6, random.Random(seed)) for seed in range(3))]


@causal
@modes
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_whole_equals_steps(case: Case, mode, padded: bool):
    """However the time axis is cut, outputs, state and what comes next are the same; a piece without padding may leave its mask out."""
    part, x, source, more = case.build(), case.sequence(3, 6), case.source(3), case.sequence(3, 2)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1]], dtype=torch.bool)
    mask = mask if padded else torch.ones_like(mask)
    y, final = part(x, case.start(part, 3, source), mask if padded else None)
    after, _ = part(more, final)
    for split in SPLITS:
        with mode():
            state, pieces = case.start(part, 3, source), []
            for number, piece in enumerate(split):
                here = mask[:, piece]
                out, state = part(x[:, piece], state, None if here.all() and number % 2 else here)
                assert out.shape[1] == here.shape[1]
                pieces.append(out)
            next_out, _ = part(more, state)
        same(torch.cat(pieces, 1)[mask], y[mask])
        same(next_out, after)
        if not padded:
            exact = [t for t in state_tensors(state) if t.dtype != torch.bool]
            same_state(exact, [t for t in state_tensors(final) if t.dtype != torch.bool])


@every
def test_no_state_is_a_fresh_start(case: Case):
    if case.memory:
        pytest.skip("a decoder starts from its memory")
    part, x = case.build(), case.sequence(2, 4)
    same(part(x)[0], part(x, case.start(part, 2))[0])


@causal
@both_forms
def test_never_looks_ahead(case: Case, form):
    """What comes after t changes nothing up to t, and something after it."""
    part, x, source = case.build(), case.sequence(2, 5), case.source(2)
    other = case.sequence(2, 5)
    other = (x + 1) % 7 if case.ids else other
    with form():
        y, _ = part(x, case.start(part, 2, source))
        for t in range(4):
            changed, _ = part(torch.cat([x[:, : t + 1], other[:, t + 1 :]], 1), case.start(part, 2, source))
            same(changed[:, : t + 1], y[:, : t + 1])
            assert not torch.allclose(changed[:, t + 1 :], y[:, t + 1 :])


@causal
@modes
def test_branches_of_one_state_are_apart(case: Case, mode):
    """Two continuations of one state, taken in turns, give what each gives alone; the state itself stays as it was."""
    part, source = case.build(), case.source(2)
    prompt, left, right = case.sequence(2, 3), case.sequence(2, 4), case.sequence(2, 4)
    expected = [
        part(torch.cat([prompt, more], 1), case.start(part, 2, source))[0][:, 3:] for more in (left, right)
    ]
    with mode():
        _, root = part(prompt[:, :2], case.start(part, 2, source))
        _, root = part(prompt[:, 2:], root)
        states, outputs = [root, root], [[], []]
        for t in range(4):
            for branch, more in enumerate((left, right)):
                y, states[branch] = part(more[:, t : t + 1], states[branch])
                outputs[branch].append(y)
        again, _ = part(left, root)
    for branch in range(2):
        same(torch.cat(outputs[branch], 1), expected[branch])
    same(again, expected[0])


MIXED = {
    "grad then no_grad": (contextlib.nullcontext, torch.no_grad),
    "grad then inference": (contextlib.nullcontext, torch.inference_mode),
    "no_grad then grad": (torch.no_grad, contextlib.nullcontext),
    "no_grad then inference": (torch.no_grad, torch.inference_mode),
    "inference then no_grad": (torch.inference_mode, torch.no_grad),
}


@causal
@pytest.mark.parametrize("way", MIXED)
def test_a_state_passes_from_one_mode_to_another(case: Case, way: str):
    """A prompt read in one mode continues in another, and what the first mode recorded can still be differentiated."""
    part, source, x = case.build(), case.source(2), case.sequence(2, 6)
    first, then = MIXED[way]
    expected, _ = part(x, case.start(part, 2, source))
    with first():
        state = case.start(part, 2, source)
        y0, state = part(x[:, :2], state)
        y1, state = part(x[:, 2:3], state)
    with then():
        y2, later = part(x[:, 3:3], state)
        y3, later = part(x[:, 3:4], later)
        y4, _ = part(x[:, 4:], later)
    same(torch.cat([y0.clone(), y1, y2, y3, y4], 1), expected)
    if first is contextlib.nullcontext:
        assert all(
            g.isfinite().all()
            for g in torch.autograd.grad(
                (y0.sum() + y1.sum()), list(part.parameters()), materialize_grads=True
            )
        )


@causal
@modes
def test_select_then_continue_equals_continue_then_select(case: Case, mode):
    part, source, x = case.build(), case.source(3), case.sequence(3, 5)
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, 1]], dtype=torch.bool)
    rows = torch.tensor([2, 0, 0, 1, 2])
    with mode():
        _, state = part(x[:, :3], case.start(part, 3, source), mask)
        chosen = select(state, rows)
        picked = []
        for t in (3, 4):
            y, state = part(x[:, t : t + 1], state)
            z, chosen = part(x[rows, t : t + 1], chosen)
            picked.append((y[rows], z))
    for y, z in picked:
        same(z, y)


@causal
def test_detach_keeps_values_and_cuts_the_graph(case: Case):
    part, source, x = case.build(), case.source(2), case.sequence(2, 5)
    _, state = part(x[:, :3], case.start(part, 2, source))
    cut_off = detach(state)
    same_state(state, cut_off)
    assert not any(t.requires_grad for t in state_tensors(cut_off))
    same(part(x[:, 3:], cut_off)[0], part(x[:, 3:], state)[0])


# 4. Padding changes nothing

LENGTHS = (5, 3, 1, 0)


def layouts() -> dict[str, Tensor]:
    """Where the real tokens of four rows, the last all padding, stand among six positions. Padding on the right alone has a path of its own."""
    right = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    middle = torch.tensor(
        [[1, 1, 1, 0, 1, 1], [1, 0, 0, 1, 0, 1], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.bool
    )
    return {"right": right, "left and middle": torch.cat([right.flip(1), middle])}


@every
@both_forms
@pytest.mark.parametrize("layout", layouts())
def test_padding_changes_nothing(case: Case, form, layout: str):
    """A sentence alone = the same sentence among padding that holds anything, in the outputs and in what comes next; the source likewise,
    down to one without a single token."""
    part, mask = case.build(), layouts()[layout]
    rows = len(mask)
    x, source, more = case.sequence(rows, 6), case.source(rows, 6), case.sequence(rows, 1)
    source_mask = None if source is None else mask.flip(0)
    with form():
        y, state = part(x, case.start(part, rows, source, source_mask), mask)
        assert y.isfinite().all()
        after, _ = part(more, state)
        for row in range(rows):
            one = slice(row, row + 1)
            look = None if source is None else source[one][:, source_mask[row]]
            y_alone, state_alone = part(x[one][:, mask[row]], case.start(part, 1, look))
            same(y[row][mask[row]], y_alone[0])
            if getattr(part, "causal", True):
                same(after[row], part(more[one], state_alone)[0][0])


@every
@both_forms
@pytest.mark.parametrize("layout", layouts())
def test_padding_has_no_gradient(case: Case, form, layout: str):
    """Padding gets a gradient of exactly 0, nothing gets NaN, even where a row or its memory is all padding."""
    whole, mask = Whole(case), layouts()[layout]
    x, source = case.sequence(len(mask), 6), case.source(len(mask), 6)
    source_mask = None if source is None else mask.flip(0)
    with form():
        _, gradients = results(whole, x, source, mask, source_mask)
    assert all(g.isfinite().all() for g in gradients)
    assert any(g.abs().max() > 0 for g in gradients)
    if not case.ids:
        assert not gradients[0][~mask].any()
    if not case.ids and source is not None:
        assert not gradients[1][~source_mask].any()


@every
@both_forms
def test_all_padding_steps_leave_the_state(case: Case, form):
    """Steps of padding alone, of any rows, change nothing that comes later."""
    part, source, x, more = case.build(), case.source(2), case.sequence(2, 3), case.sequence(2, 2)
    if not getattr(part, "causal", True):
        pytest.skip("takes a sequence whole")
    nothing = torch.zeros(2, 2, dtype=torch.bool)
    with form():
        _, state = part(x, case.start(part, 2, source))
        expected, _ = part(more, state)
        _, state = part(case.sequence(2, 2), state, nothing)
        same(part(more, state)[0], expected)


# 5. Fast = plain


@every
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_fast_equals_plain(case: Case, padded: bool):
    """Outputs, state and gradients."""
    whole, x, source, more = Whole(case), case.sequence(4, 6), case.source(4, 6), case.sequence(4, 2)
    mask = layouts()["right"] if padded else None
    source_mask = mask if source is not None else None
    y, gradients = results(whole, x, source, mask, source_mask)
    state = whole(x, source, mask, source_mask)[1]
    with plain():
        y_plain, gradients_plain = results(whole, x, source, mask, source_mask)
        state_plain = whole(x, source, mask, source_mask)[1]
    same(y, y_plain)
    for g, g_plain in zip(gradients, gradients_plain, strict=True):
        same(g, g_plain)
    if getattr(whole.part, "causal", True):
        same(whole.part(more, state)[0], whole.part(more, state_plain)[0])


def test_the_list_names_each_case_once():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert RNN(SIZE).dim == SIZE

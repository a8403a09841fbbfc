"""Recurrent cells: each class computes one time step. `gates` and `update` state a cell's equation; its kernel is
the fused form, and tests compare the two.

The lectures write the bias as +b, as -B or not at all [D-2]; every cell takes `bias` plus, minus or none. They also
differ in what an open gate does [D-4]: here a gate called `keep` keeps the old state, as the UGRNN's G and torch's z
do; the u of the GRU's lecture replaces the state, u = 1 - keep. Peepholes and projections are left out, since no
lecture uses them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from seqloom.errors import ConfigError
from seqloom.fused.recurrence import CellKernel
from seqloom.nn.layer import Factory, HasPoints, Point, Points, State, real_lengths, record, require

Bias = Literal["plus", "minus", "none"]
FusedUnroll = Callable[[Tensor, State, Tensor | None], tuple[Tensor, State] | None]
OLD_NAMES = {"Blocks": "LinearCell", "Hidden": "HiddenState"}


class HiddenState(NamedTuple):
    h: Tensor  # (B, D)


class LSTMState(NamedTuple):
    h: Tensor  # (B, D)
    c: Tensor  # (B, D)


class Cell(HasPoints):
    """One step of recurrence, hₜ = f(hₜ₋₁, xₜ), the same f at every step [D4].

    `project_input` computes W x for all steps in one product. `gates` maps one step's projection and the state to
    named values, each (B, D); its products read `h_in`, which is h, with dropout applied if there is any. `update`
    maps these values to the next state, a NamedTuple whose first entry is h. A cell may define `step` instead of
    the two if nothing needs its gates. A cell with a `kernel`, which reads `recurrent_weights`, or with a
    `fused_unroll` over all steps runs as compiled code; otherwise it runs as a Python loop.
    """

    dim: int
    width: int  # of one step's input projection
    kernel: CellKernel | None = None

    @property
    def fused_unroll(self) -> FusedUnroll | None:
        """A function (x, state, mask) → (y, final state) over all steps, for inputs padded on the right. It may return
        None where it does not apply; a subclass may define it as a method."""
        return None

    def keeps_equation_of(self, cls: type[Cell]) -> bool:
        """Whether this cell computes the equation of `cls`. A subclass that overrides it must not use its compiled form."""
        methods = ("start", "project_input", "gates", "update", "step", "recurrent_weights")
        return all(getattr(type(self), name) is getattr(cls, name) for name in methods)

    def start(self, batch: int) -> State:
        raise NotImplementedError

    def project_input(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def gates(self, x_proj: Tensor, state: State, h_in: Tensor) -> dict[str, Tensor]:
        raise ConfigError(
            f"{type(self).__name__} defines no gates, which inspection, Gated and dropout need: "
            "define `gates` and `update` instead of `step`"
        )

    def update(self, gates: dict[str, Tensor], state: State) -> State:
        raise NotImplementedError

    def step(self, x_proj: Tensor, state: State) -> State:
        return self.update(self.gates(x_proj, state, state[0]), state)

    def recorded_step(
        self, x_proj: Tensor, state: State, h_in: Tensor | None = None
    ) -> tuple[State, dict[str, Tensor]]:
        """One step whose gates and new state are named values, and the gates; none if the cell defines only `step`."""
        gates: dict[str, Tensor] = {}
        if type(self).gates is Cell.gates:
            new_state = self.step(x_proj, state)
        else:
            found = self.gates(x_proj, state, state[0] if h_in is None else h_in)
            gates = {name: record(self, name, gate) for name, gate in found.items()}
            new_state = self.update(gates, state)
        named = zip(new_state._fields, new_state, strict=True)
        return type(new_state)(*(record(self, name, value) for name, value in named)), gates

    def recurrent_weights(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (W, D) that multiplies h, and the bias (W,) of these products, as the kernel reads them."""
        raise NotImplementedError

    def input_weights(self) -> tuple[Tensor, Tensor | None] | None:
        """The matrix (W, I) and the bias of `project_input`, or None if it is not a linear map."""
        return None


class LinearCell(Cell):
    """A cell of W x + U h ± b for several blocks of `dim` units, with the blocks' matrices stacked in one."""

    def __init__(self, size: int, dim: int, blocks: int, bias: Bias):
        super().__init__()
        require(bias in ("plus", "minus", "none"), f"bias must be plus, minus or none, not {bias!r}")
        self.dim = dim
        self.width = blocks * dim
        self.sign = -1 if bias == "minus" else 1
        bound = 1 / math.sqrt(dim)
        self.input = nn.Parameter(torch.empty(blocks * dim, size).uniform_(-bound, bound))
        self.hidden = nn.Parameter(torch.empty(blocks * dim, dim).uniform_(-bound, bound))
        self.bias = None if bias == "none" else nn.Parameter(torch.zeros(blocks * dim))

    def start(self, batch: int) -> State:
        return HiddenState(self.hidden.new_zeros(batch, self.dim))

    def signed_bias(self, bias: Tensor) -> Tensor:
        return -bias if self.sign < 0 else bias

    def project_input(self, x: Tensor) -> Tensor:
        return linear(x, *self.input_weights())  # (…, W)

    def input_weights(self) -> tuple[Tensor, Tensor | None]:
        return self.input, None if self.bias is None else self.signed_bias(self.bias)

    def recurrent_weights(self) -> tuple[Tensor, Tensor | None]:
        return self.hidden, None


class Vanilla(LinearCell):
    """h = g(W x + U h ± b),  g = tanh or σ   [D1, D2, D3, D-3; the bias is inside g, D-6]"""

    points: ClassVar[Points] = {"new": Point("g(W x + U h ± b)", "BTD"), "h": Point("h", "BTD")}

    def __init__(
        self, size: int, dim: int, activation: Literal["tanh", "sigmoid"] = "tanh", bias: Bias = "plus"
    ):
        super().__init__(size, dim, 1, bias)
        require(activation in ("tanh", "sigmoid"), f"activation must be tanh or sigmoid, not {activation!r}")
        self.activation = activation
        if self.keeps_equation_of(Vanilla):
            self.kernel = CellKernel("vanilla", variant=("tanh", "sigmoid").index(activation))

    def gates(self, x_proj: Tensor, state: HiddenState, h_in: Tensor) -> dict[str, Tensor]:
        a = x_proj + h_in @ self.hidden.T
        return {"new": a.tanh() if self.activation == "tanh" else a.sigmoid()}

    def update(self, gates: dict[str, Tensor], state: HiddenState) -> HiddenState:
        return HiddenState(gates["new"])


class LSTM(LinearCell):
    """i, f, o = σ(W x + U h ± b),  g = tanh(W x + U h ± b),  c = f ⊙ c + i ⊙ g,  h = o ⊙ tanh(c)   [D8, D-1]

    With `output` linear, h = o ⊙ c [D9]. One matrix holds the four blocks in the order i, f, g, o. The gates act on
    the memory c [D18]: f = 0 erases it, i = 1 writes to it, o = 1 exposes it.
    """

    points: ClassVar[Points] = {
        "input": Point("i", "BTD", "writes"),
        "forget": Point("f", "BTD", "keeps"),
        "new": Point("g", "BTD"),
        "output": Point("o", "BTD", "reads"),
        "h": Point("h", "BTD"),
        "c": Point("c", "BTD"),
    }

    def __init__(self, size: int, dim: int, output: Literal["tanh", "linear"] = "tanh", bias: Bias = "plus"):
        super().__init__(size, dim, 4, bias)
        require(output in ("tanh", "linear"), f"output must be tanh or linear, not {output!r}")
        self.output = output
        if self.keeps_equation_of(LSTM):
            self.kernel = CellKernel("lstm", variant=("tanh", "linear").index(output))

    def start(self, batch: int) -> LSTMState:
        zeros = self.hidden.new_zeros(batch, self.dim)
        return LSTMState(zeros, zeros)

    def gates(self, x_proj: Tensor, state: LSTMState, h_in: Tensor) -> dict[str, Tensor]:
        i, f, g, o = (x_proj + h_in @ self.hidden.T).chunk(4, -1)
        return {"input": i.sigmoid(), "forget": f.sigmoid(), "new": g.tanh(), "output": o.sigmoid()}

    def update(self, gates: dict[str, Tensor], state: LSTMState) -> LSTMState:
        c = gates["forget"] * state.c + gates["input"] * gates["new"]
        return LSTMState(gates["output"] * (c.tanh() if self.output == "tanh" else c), c)

    @property
    def fused_unroll(self) -> FusedUnroll | None:
        return self.torch_lstm if self.output == "tanh" and self.keeps_equation_of(LSTM) else None

    def torch_lstm(self, x: Tensor, state: LSTMState, mask: Tensor | None) -> tuple[Tensor, LSTMState]:
        """torch's fused LSTM. Right padding is an additional input feature that closes i and o and opens f, so that c
        does not change and h is 0."""
        weight: Tensor = self.input
        bias = self.hidden.new_zeros(4 * self.dim) if self.bias is None else self.signed_bias(self.bias)
        if mask is not None:
            gates = torch.tensor([-1e4, 1e4, 0.0, -1e4], dtype=weight.dtype, device=weight.device)
            x = torch.cat([x, (~mask).to(x.dtype).unsqueeze(-1)], -1)
            weight = torch.cat([weight, gates.repeat_interleave(self.dim).unsqueeze(-1)], 1)
        weights = [weight, self.hidden, bias, torch.zeros_like(bias)]
        initial = (state.h[None], state.c[None])
        y, h, c = torch.lstm(x, initial, weights, True, 1, 0.0, self.training, False, True)
        h = h[0] if mask is None else last_real_output(y, state.h, mask)
        return y, LSTMState(h, c[0])


def last_real_output(y: Tensor, before: Tensor, mask: Tensor) -> Tensor:
    """The output at each row's last real token, or `before` if a row has none; the mask pads on the right."""
    count = real_lengths(mask)
    index = (count - 1).clamp(min=0)[:, None, None].expand(-1, 1, y.shape[-1])
    return torch.where(count[:, None] > 0, y.gather(1, index)[:, 0], before)


class GRU(LinearCell):
    """r, z = σ(W x + U h ± b),  n = tanh(W x + r ⊙ (U h ± b') ± b),  h = z ⊙ h + (1 - z) ⊙ n   [D10, D-4, D-5]

    This is torch's GRU, with `reset` outside the product. `reset: inside`, the lecture's form, is another cell:
    n = tanh(W x + U (r ⊙ h) ± b). The lecture's gate is u = 1 - z, so its h = (1 - u) ⊙ h + u ⊙ n is this one with
    the signs of z's weights changed. The matrices are in the order r, z, n.
    """

    points: ClassVar[Points] = {
        "reset": Point("r", "BTD", "reads"),
        "keep": Point("z", "BTD", "keeps"),
        "new": Point("n", "BTD"),
        "h": Point("h", "BTD"),
    }

    def __init__(
        self, size: int, dim: int, reset: Literal["outside", "inside"] = "outside", bias: Bias = "plus"
    ):
        super().__init__(size, dim, 3, bias)
        require(reset in ("outside", "inside"), f"reset must be outside or inside, not {reset!r}")
        self.reset = reset
        self.hidden_bias = (
            nn.Parameter(torch.zeros(dim)) if reset == "outside" and self.bias is not None else None
        )
        if self.keeps_equation_of(GRU):
            outside = CellKernel("gru_outside", num_saved=1, separate_recurrent_grad=True)
            self.kernel = (
                outside if reset == "outside" else CellKernel("gru_inside", num_saved=1, reset_block=2)
            )

    def gates(self, x_proj: Tensor, state: HiddenState, h_in: Tensor) -> dict[str, Tensor]:
        sizes = [2 * self.dim, self.dim]
        x_gates, x_new = x_proj.split(sizes, -1)
        hidden_gates, hidden_new = self.hidden.split(sizes)
        r, z = (x_gates + h_in @ hidden_gates.T).sigmoid().chunk(2, -1)
        if self.reset == "inside":
            n = (x_new + (r * h_in) @ hidden_new.T).tanh()
        else:
            bias = None if self.hidden_bias is None else self.signed_bias(self.hidden_bias)
            n = (x_new + r * linear(h_in, hidden_new, bias)).tanh()
        return {"reset": r, "keep": z, "new": n}

    def update(self, gates: dict[str, Tensor], state: HiddenState) -> HiddenState:
        return HiddenState(gates["keep"] * state.h + (1 - gates["keep"]) * gates["new"])

    def recurrent_weights(self) -> tuple[Tensor, Tensor | None]:
        if self.hidden_bias is None:
            return self.hidden, None
        zeros = self.hidden_bias.new_zeros(2 * self.dim)
        return self.hidden, torch.cat([zeros, self.signed_bias(self.hidden_bias)])


class Gated(Cell):
    """G = σ(W x + U h ± b),  h = G ⊙ h + (1 - G) ⊙ R   [D12, D-4: G keeps]

    A convex combination of the old h and a candidate R, which is the next h of any other cell, user-defined cells
    included. The candidate updates the other entries of the state. Gated cells may be nested.
    """

    points: ClassVar[Points] = {
        "keep": Point("G", "BTD", "keeps"),
        "h": Point("h", "BTD"),
        "candidate.new": Point("R", "BTD"),
    }

    def __init__(self, size: int, dim: int, candidate: Factory[Cell] = Vanilla, bias: Bias = "plus"):
        super().__init__()
        self.candidate = candidate(size, dim)
        self.gate = LinearCell(size, dim, 1, bias)
        self.dim = dim
        self.width = self.candidate.width + dim
        if self.candidate.kernel is not None and self.keeps_equation_of(Gated):
            self.kernel = self.candidate.kernel.with_gate(self.candidate.width // dim)

    def start(self, batch: int) -> State:
        return self.candidate.start(batch)

    def project_input(self, x: Tensor) -> Tensor:
        # one product where the concatenated matrices are no larger than its result
        weights = self.input_weights() if x[..., 0].numel() >= x.shape[-1] else None
        if weights is not None:
            return linear(x, *weights)
        return torch.cat([self.candidate.project_input(x), self.gate.project_input(x)], -1)

    def input_weights(self) -> tuple[Tensor, Tensor | None] | None:
        candidate_weights = self.candidate.input_weights()
        if candidate_weights is None:
            return None
        weights = (candidate_weights, self.gate.input_weights())
        matrix = torch.cat([weight for weight, _ in weights])
        if all(bias is None for _, bias in weights):
            return matrix, None
        biases = [weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in weights]
        return matrix, torch.cat(biases)

    def gates(self, x_proj: Tensor, state: State, h_in: Tensor) -> dict[str, Tensor]:
        x_candidate, x_gate = x_proj.split([self.candidate.width, self.dim], -1)
        gates = {"keep": (x_gate + h_in @ self.gate.hidden.T).sigmoid()}
        for name, value in self.candidate.gates(x_candidate, state, h_in).items():
            gates[f"candidate.{name}"] = value
        return gates

    def update(self, gates: dict[str, Tensor], state: State) -> State:
        candidate_gates = {
            name.removeprefix("candidate."): value
            for name, value in gates.items()
            if name.startswith("candidate.")
        }
        r, *rest = self.candidate.update(candidate_gates, state)
        return type(state)(gates["keep"] * state[0] + (1 - gates["keep"]) * r, *rest)

    def recurrent_weights(self) -> tuple[Tensor, Tensor | None]:
        hidden, bias = self.candidate.recurrent_weights()
        if bias is not None:
            bias = torch.cat([bias, bias.new_zeros(self.dim)])
        return torch.cat([hidden, self.gate.hidden]), bias


class UGRNN(Gated):
    """R = tanh(W x + U h ± b),  G = σ(W' x + U' h ± b'),  h = G ⊙ h + (1 - G) ⊙ R   [D11, D-4: G keeps]

    The lecture subtracts the biases, and so does the default. The lecture's parameters Φ are the six of `candidate`
    and `gate`.
    """

    def __init__(self, size: int, dim: int, bias: Bias = "minus"):
        super().__init__(size, dim, lambda size, dim: Vanilla(size, dim, bias=bias), bias)


def units_for_parameters(cell: Factory[Cell], size: int, parameters: int) -> int:
    """The largest `dim` at which the cell has at most `parameters` parameters, to compare cells of equal size [D19]."""

    def count(dim: int) -> int:
        with torch.device("meta"):
            return sum(weight.numel() for weight in cell(size, dim).parameters())

    require(count(1) <= parameters, f"{parameters} parameters are too few: one unit needs {count(1)}")
    low, high = 1, 2
    while count(high) <= parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= parameters else (low, middle)
    return low


def __getattr__(name: str) -> object:
    """Resolves the names of earlier versions, with a DeprecationWarning."""
    if name not in OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = f"seqloom.nn.cells.{name} is now called seqloom.nn.cells.{OLD_NAMES[name]}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return globals()[OLD_NAMES[name]]

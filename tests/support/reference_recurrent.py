"""Literal forms: recurrent cells and layers. Each takes (part, x, memory) for one example; a step is a loop over units."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a))


def array(tensor) -> np.ndarray:
    return tensor.detach().numpy()


def block(cell, number: int, x, h, unit: int, reset=None) -> float:
    """One unit of one block before its activation: Σ W x + Σ U h ± b."""
    row = number * cell.dim + unit
    total = sum(array(cell.input)[row][i] * x[i] for i in range(len(x)))
    total += sum(
        array(cell.hidden)[row][j] * h[j] * (1 if reset is None else reset[j]) for j in range(len(h))
    )
    return total if cell.bias is None else total + cell.sign * array(cell.bias)[row]


def vanilla(cell, x, state):
    (h,) = state
    squash = {"tanh": math.tanh, "sigmoid": sigmoid}[cell.activation]
    return [np.array([squash(block(cell, 0, x, h, d)) for d in range(cell.dim)])]


def lstm(cell, x, state):
    h, c = state
    after_h, after_c = np.zeros(cell.dim), np.zeros(cell.dim)
    for d in range(cell.dim):
        i, f, o = (sigmoid(block(cell, number, x, h, d)) for number in (0, 1, 3))
        after_c[d] = f * c[d] + i * math.tanh(block(cell, 2, x, h, d))
        after_h[d] = o * (math.tanh(after_c[d]) if cell.output == "tanh" else after_c[d])
    return [after_h, after_c]


def gru(cell, x, state):
    """In the lecture's notation: the gate u = 1 - z replaces the state."""
    (h,) = state
    units = range(cell.dim)
    r = [sigmoid(block(cell, 0, x, h, d)) for d in units]
    u = [1 - sigmoid(block(cell, 1, x, h, d)) for d in units]
    if cell.reset == "inside":
        new = [math.tanh(block(cell, 2, x, h, d, reset=r)) for d in units]
    else:
        own = [0.0 if cell.hidden_bias is None else cell.sign * array(cell.hidden_bias)[d] for d in units]
        recurrent = [
            sum(array(cell.hidden)[2 * cell.dim + d][j] * h[j] for j in units) + own[d] for d in units
        ]
        new = [math.tanh(block(cell, 2, x, np.zeros(cell.dim), d) + r[d] * recurrent[d]) for d in units]
    return [np.array([(1 - u[d]) * h[d] + u[d] * new[d] for d in units])]


def gated(cell, x, state):
    h, (candidate, *rest) = state[0], step(cell.candidate, x, state)
    keep = [sigmoid(block(cell.gate, 0, x, h, d)) for d in range(cell.dim)]
    return [np.array([keep[d] * h[d] + (1 - keep[d]) * candidate[d] for d in range(cell.dim)]), *rest]


def square(cell, x, state):
    """The unusual candidate of parts_recurrent.py."""
    return [
        np.array(
            [
                math.sin(sum(array(cell.weight)[d][i] * x[i] for i in range(len(x))) + state[0][d] ** 2)
                for d in range(cell.dim)
            ]
        )
    ]


STEPS: dict[str, Callable] = {
    "Vanilla": vanilla,
    "LSTM": lstm,
    "GRU": gru,
    "Gated": gated,
    "UGRNN": gated,
    "Square": square,
}


def step(cell, x, state: list) -> list:
    return STEPS[type(cell).__name__](cell, x, state)


def rnn(part, x, memory=None):
    for number, layer in enumerate(part.layers):
        sides = []
        for way in layer:
            state = [np.zeros(way.cell.dim) for _ in way.cell.start(1)]
            outputs = [None] * len(x)
            for t in reversed(range(len(x))) if way.backward else range(len(x)):
                after = step(way.cell, x[t], state)
                state = [
                    way.zoneout * old + (1 - way.zoneout) * new for old, new in zip(state, after, strict=True)
                ]
                outputs[t] = state[0]
            sides.append(outputs)
        y = [np.concatenate(hs) for hs in zip(*sides, strict=True)]
        add = part.residual and (number > 0 or len(x[0]) == len(y[0]))
        x = [a + b for a, b in zip(x, y, strict=True)] if add else y
    return np.array(x)


FORMS: dict[str, Callable] = {"RNN": rnn}

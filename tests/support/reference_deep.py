"""Literal forms: deep recurrent stacks and residual paths. Each takes (part, x, memory) for one example."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def fast_forward(part, x, memory):
    from support import reference
    from support.reference_recurrent import step

    def unrolled(way, x):
        state, outputs = [np.zeros(way.cell.dim) for _ in way.cell.start(1)], [None] * len(x)
        for t in reversed(range(len(x))) if way.backward else range(len(x)):
            state = step(way.cell, x[t], state)
            outputs[t] = state[0]
        return outputs

    columns = []
    for ways, inputs in zip(part.stacks, part.inputs, strict=True):
        y = list(x)
        for way, linear in zip(ways, inputs, strict=True):
            f = [reference.linear(linear, row) for row in y]
            y = [np.concatenate(pair) for pair in zip(f, unrolled(way, f), strict=True)]
        columns.append(y)
    return np.array([np.concatenate(rows) for rows in zip(*columns, strict=True)])


def residual(part, x, memory):
    from support import reference

    y = reference.of(part.layer, np.array([reference.norm(part.norm, row) for row in x]), memory)
    return np.array(x) + y


def two_ways(part, x, memory):
    """Each direction separately, layer by layer; then γ Σ softmax(a) over [x; x] and the pairs of layers."""
    from support import reference

    def walked(way):
        levels = [np.array(x)]
        for layer in way:
            levels.append(reference.of(layer, levels[-1], None))
        return levels

    raw = part.mix.scalars.detach().numpy()
    shares = np.exp(raw) / np.exp(raw).sum()
    pairs = zip(walked(part.forward_layers), walked(part.backward_layers), strict=True)
    return part.mix.gamma.item() * sum(
        share * np.concatenate(pair, 1) for share, pair in zip(shares, pairs, strict=True)
    )


FORMS: dict[str, Callable] = {"FastForward": fast_forward, "SeparateBiRNN": two_ways, "Residual": residual}

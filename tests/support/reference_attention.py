"""Literal forms: attention, positions and decoders that attend to a memory. Each takes (part, x, memory) for one
example."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from support.reference import array, linear, sigmoid, softmax

# Scores and weights


def score(part, q, k):
    name = type(part).__name__
    if name == "Additive":
        return float(array(part.vector) @ np.tanh(q + k))
    if name == "Bilinear":
        return sum(q[i] * array(part.weight)[i, j] * k[j] for i in range(len(q)) for j in range(len(k)))
    return float(q @ k) / {"Dot": 1, "ScaledDot": math.sqrt(len(q))}[name]


def weighed(part, scores):
    return {"Softmax": softmax, "Raw": list, "Hard": largest}[type(part).__name__](scores)


def largest(scores):
    return [float(j == int(np.argmax(scores))) for j in range(len(scores))]


# Positions in attention


def pairs(size, layout):
    """The indices of the two entries of a vector that are rotated together."""
    half = size // 2
    return [(i, i + half) if layout == "halves" else (2 * i, 2 * i + 1) for i in range(half)]


def stretched(part, theta):
    """The angle of one step after scaling, which depends on its wavelength."""
    if part is None:
        return theta
    if type(part).__name__ == "LinearScaling":
        return theta / part.factor
    wave = 2 * math.pi / theta
    if wave < part.length / part.high:
        return theta
    if wave > part.length / part.low:
        return theta / part.factor
    smooth = (part.length / wave - part.low) / (part.high - part.low)
    return (1 - smooth) * theta / part.factor + smooth * theta


def rotated(x, t, base=10000.0, layout="interleaved", theta=None, stretch=None):
    y = np.zeros(len(x))
    for i, (a, b) in enumerate(pairs(len(x), layout)):
        angle = t * stretched(stretch, base ** (-2 * i / len(x)) if theta is None else theta)
        y[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        y[b] = x[a] * math.sin(angle) + x[b] * math.cos(angle)
    return y


def sinusoid(t, size, base=10000.0, layout="interleaved", first=0):
    code = np.zeros(size)
    for k, (a, b) in enumerate(pairs(size, layout)):
        frequency = base ** (-2 * (k + first) / size)
        code[a], code[b] = math.sin(t * frequency), math.cos(t * frequency)
    return code


# Heads


def heads_of(rows, heads):
    """[T][D] → [H][T][K]."""
    size = len(rows[0]) // heads
    return [[row[h * size : (h + 1) * size] for row in rows] for h in range(heads)]


def averaged(part, q, k, v, seen, bias):
    """One head: for each t the weights over the visible j, and the average of the values."""
    outputs = []
    for t in range(len(q)):
        weights = weighed(part.weights, [score(part.score, q[t], k[j]) + bias(t, j) for j in seen(t)])
        outputs.append(sum(w * v[j] for w, j in zip(weights, seen(t), strict=True)))
    return outputs


def self_attention(part, x, memory):
    shape, position, window = part.shape, part.position, part.visibility_rule.window
    kind = type(position).__name__
    q, k, v = [], [], []
    for row in x:
        projected = linear(part.qkv_proj, row)
        q.append(projected[: shape.heads * shape.key_dim])
        k.append(projected[shape.heads * shape.key_dim : (shape.heads + shape.kv_heads) * shape.key_dim])
        v.append(projected[(shape.heads + shape.kv_heads) * shape.key_dim :])
    q, k, v = heads_of(q, shape.heads), heads_of(k, shape.kv_heads), heads_of(v, shape.kv_heads)

    def seen(t):
        return [
            j
            for j in range(len(x))
            if (j <= t or not part.causal) and (window is None or abs(t - j) < window)
        ]

    results = []
    for h in range(shape.heads):
        group = h * shape.kv_heads // shape.heads
        qs, ks = q[h], k[group]
        if kind == "Rotary":
            qs, ks = (
                [
                    rotated(row, t, position.base, position.layout, position.theta, position.scaling)
                    for t, row in enumerate(rows)
                ]
                for rows in (qs, ks)
            )
        slope = position.slopes[h] if kind == "ALiBi" else 0.0
        results.append(averaged(part, qs, ks, v[group], seen, lambda t, j, slope=slope: -slope * abs(t - j)))
    return np.array([linear(part.out_proj, np.concatenate(row)) for row in zip(*results, strict=True)])


def cross_attention(part, x, memory):
    shape, projected = part.shape, [linear(part.kv_proj, row) for row in memory]
    q = heads_of([linear(part.q_proj, row) for row in x], shape.heads)
    k = heads_of([row[: shape.kv_heads * shape.key_dim] for row in projected], shape.kv_heads)
    v = heads_of([row[shape.kv_heads * shape.key_dim :] for row in projected], shape.kv_heads)
    results = []
    for h in range(shape.heads):
        group = h * shape.kv_heads // shape.heads
        results.append(
            averaged(part, q[h], k[group], v[group], lambda t: range(len(memory)), lambda t, j: 0.0)
        )
    return np.array([linear(part.out_proj, np.concatenate(row)) for row in zip(*results, strict=True)])


# Recurrent decoders


def lstm(cell, x, h, c, more=0.0):
    bias = 0.0 if cell.bias is None else array(cell.bias)
    i, f, g, o = np.split(array(cell.input) @ x + array(cell.hidden) @ h + bias + more, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def thought(memory, read):
    return {"last": memory[-1], "first": memory[0], "mean": sum(memory) / len(memory)}[read]


def mapped(part, x):
    return x if type(part).__name__ == "Identity" else linear(part, x)


def context(part, query, memory):
    gate = getattr(part, "gate", None)
    beta = 1.0 if gate is None else 1 / (1 + np.exp(-linear(gate, query)))
    query, keys = mapped(part.query, query), [mapped(part.key, m) for m in memory]
    weights = weighed(part.weights, [score(part.score, query, key) for key in keys])
    return beta * sum(w * m for w, m in zip(weights, memory, strict=True))


def attentive(part, x, memory):
    vector = thought(memory, part.init_from)
    hs, cs = (
        [np.tanh(linear(part.init_proj, vector)) for _ in part.cells],
        [first_memory(part, vector) for _ in part.cells],
    )
    outputs = []
    for word in x:
        c = {
            "previous": lambda: context(part.attention, hs[-1], memory),
            "word": lambda word=word: context(part.attention, word, memory),
        }.get(part.query, lambda: None)()
        below = np.concatenate([word, c]) if part.query == "word" else word
        for number, cell in enumerate(part.cells):
            more = linear(part.context_proj, c) if part.query == "previous" and not number else 0.0
            if hasattr(cell.start(1), "c"):
                hs[number], cs[number] = lstm(cell, below, hs[number], cs[number], more)
            else:
                hs[number] = vanilla(cell, below, hs[number], more)
            below = hs[number]
        if part.query == "current":
            c = context(part.attention, hs[-1], memory)
        outputs.append(
            np.tanh(
                linear(part.out_proj, np.concatenate([hs[-1], c, word, *([vector] if part.summary else [])]))
            )
        )
    return np.array(outputs)


def first_memory(part, vector):
    """The LSTM's c before the first word."""
    proj = getattr(part, "cell_proj", None)
    return np.zeros(part.dim) if proj is None else np.tanh(linear(proj[0], vector))


def pointing(part, x, memory):
    """The outputs of a pointer decoder, whose attention knows what was attended to before."""
    h, c = np.tanh(linear(part.init_proj, thought(memory, part.init_from))), np.zeros(part.dim)
    seen = np.zeros(len(memory))
    outputs = []
    for word in x:
        attention = part.attention
        query = linear(attention.query, h)
        keys = [
            linear(attention.key, m) + (much * array(attention.covered) if part.coverage else 0)
            for m, much in zip(memory, seen, strict=True)
        ]
        weights = weighed(attention.weights, [score(attention.score, query, key) for key in keys])
        seen = seen + np.array(weights)
        read = sum(w * m for w, m in zip(weights, memory, strict=True))
        h, c = lstm(part.cells[0], word, h, c, linear(part.context_proj, read))
        outputs.append(np.tanh(linear(part.out_proj, np.concatenate([h, read, word]))))
    return np.array(outputs)


def thoughtful(part, x, memory):
    vector = thought(memory, part.init_from)
    first = vector if part.init_proj is None else np.tanh(linear(part.init_proj, vector))
    for layer in part.layers:
        h, c, outputs = first, np.zeros(part.dim), []
        for row in x:
            h, c = (
                lstm(layer.cell, row, h, c)
                if hasattr(layer.cell.start(1), "c")
                else (vanilla(layer.cell, row, h), c)
            )
            outputs.append(h)
        x = outputs
    return np.array(x)


def vanilla(cell, x, h, more=0.0):
    """h = tanh(W x + U h + b)"""
    return np.tanh(array(cell.input) @ x + array(cell.hidden) @ h + array(cell.bias) + more)


FORMS: dict[str, Callable] = {
    "SelfAttention": self_attention,
    "CrossAttention": cross_attention,
    "AttentiveRNN": attentive,
    "RegionRNN": attentive,
    "PointerRNN": pointing,
    "RNNDecoder": thoughtful,
}

"""The literal form of every part: numpy, one example, loops over t and j. Slow on purpose, and written from the equations alone.

`of(part, x, memory)` looks up the part's literal form by the name of its class; a part without one fails there.
"""

from __future__ import annotations

import math

import numpy as np


def of(part, x, memory=None):
    """What the part must give for one example: x is (T, D) or T ids, memory (S, M) or S ids."""
    forms = {
        "RNN": lambda: rnn(part, x),
        "SelfAttention": lambda: self_attention(part, x),
        "CrossAttention": lambda: cross_attention(part, x, memory),
        "AttentiveRNN": lambda: attentive(part, x, memory),
        "Block": lambda: block(part, x, memory),
        "Transformer": lambda: transformer(part, x, memory),
        "Chain": lambda: chain(part, x, memory),
        "LanguageModel": lambda: words_out(part, of(part.stack, words_in(part.embedding, x))),
        "Seq2Seq": lambda: words_out(
            part, of(part.decoder, words_in(part.embedding, x), of(part.encoder, words_in(part.source_embedding, memory)))
        ),
    }
    name = type(part).__name__
    return forms[name]() if name in forms else MORE[name](part, x, memory)


def array(tensor):
    return tensor.detach().numpy()


def linear(part, x):
    y = array(part.weight) @ x
    return y if part.bias is None else y + array(part.bias)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(scores):
    powers = [math.exp(s - max(scores)) for s in scores]
    return [power / sum(powers) for power in powers]


# Recurrence


def lstm_step(cell, x, h, c, more=0.0):
    bias = 0.0 if cell.bias is None else array(cell.bias)
    i, f, g, o = np.split(array(cell.input) @ x + array(cell.hidden) @ h + bias + more, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def rnn(part, x):
    for number, layer in enumerate(part.layers):
        sides = []
        for way in layer:
            h = c = np.zeros(way.cell.dim)
            outputs = [None] * len(x)
            for t in reversed(range(len(x))) if way.backward else range(len(x)):
                h, c = lstm_step(way.cell, x[t], h, c)
                outputs[t] = h
            sides.append(outputs)
        y = [np.concatenate(hs) for hs in zip(*sides, strict=True)]
        add = part.residual and (number > 0 or len(x[0]) == len(y[0]))
        x = [a + b for a, b in zip(x, y, strict=True)] if add else y
    return np.array(x)


def attentive(part, x, memory):
    pooling, cells = part.attention, part.cells
    keys = [linear(pooling.key, m) for m in memory]
    first = np.tanh(linear(part.first, sum(memory) / len(memory)))
    hs, cs, outputs = [first for _ in cells], [np.zeros(part.dim) for _ in cells], []
    for word in x:
        query = linear(pooling.query, hs[-1])
        weights = softmax([score(pooling.score, query, key) for key in keys])
        context = sum(w * m for w, m in zip(weights, memory, strict=True))
        below = word
        for number, cell in enumerate(cells):
            more = 0.0 if number else linear(part.context_share, context)
            hs[number], cs[number] = lstm_step(cell, below, hs[number], cs[number], more)
            below = hs[number]
        outputs.append(np.tanh(linear(part.last, np.concatenate([hs[-1], context, word]))))
    return np.array(outputs)


# Attention


def score(part, q, k):
    name = type(part).__name__
    if name == "Additive":
        return float(array(part.vector) @ np.tanh(q + k))
    return float(q @ k) / {"Dot": 1, "ScaledDot": math.sqrt(len(q))}[name]


def rotated(x, t, base=10000.0):
    y = np.zeros(len(x))
    for i in range(len(x) // 2):
        angle = t * base ** (-2 * i / len(x))
        y[2 * i] = x[2 * i] * math.cos(angle) - x[2 * i + 1] * math.sin(angle)
        y[2 * i + 1] = x[2 * i] * math.sin(angle) + x[2 * i + 1] * math.cos(angle)
    return y


def heads_of(rows, heads):
    """[T][D] → [H][T][K]."""
    size = len(rows[0]) // heads
    return [[row[h * size : (h + 1) * size] for row in rows] for h in range(heads)]


def averaged(part, q, k, v, last, bias):
    """One head: for each t the weights over j in 0 … last(t) - 1, and the average of the values."""
    outputs = []
    for t in range(len(q)):
        seen = range(last(t))
        weights = softmax([score(part, q[t], k[j]) + bias(t, j) for j in seen])
        outputs.append(sum(weights[j] * v[j] for j in seen))
    return outputs


def self_attention(part, x):
    size, kind = len(x[0]), type(part.position).__name__
    projected = [linear(part.project, row) for row in x]
    q, k, v = (heads_of([row[n * size : (n + 1) * size] for row in projected], part.heads) for n in range(3))
    results = []
    for h in range(part.heads):
        qs, ks = q[h], k[h]
        if kind == "Rotary":
            qs, ks = [rotated(row, t) for t, row in enumerate(qs)], [rotated(row, t) for t, row in enumerate(ks)]
        slope = 2 ** (-8 * (h + 1) / part.heads) if kind == "ALiBi" else 0.0
        last = (lambda t: t + 1) if part.causal else (lambda t: len(x))
        results.append(averaged(part.score, qs, ks, v[h], last, lambda t, j, slope=slope: -slope * abs(t - j)))
    return np.array([linear(part.last, np.concatenate(row)) for row in zip(*results, strict=True)])


def cross_attention(part, x, memory):
    projected = [linear(part.project, row) for row in memory]
    q = heads_of([linear(part.query, row) for row in x], part.heads)
    k = heads_of([row[: part.dim] for row in projected], part.heads)
    v = heads_of([row[part.dim :] for row in projected], part.heads)
    results = [averaged(part.score, q[h], k[h], v[h], lambda t: len(memory), lambda t, j: 0.0) for h in range(part.heads)]
    return np.array([linear(part.last, np.concatenate(row)) for row in zip(*results, strict=True)])


# The Transformer


def norm(part, x):
    if type(part).__name__ == "RMSNorm":
        return array(part.gain) * x / math.sqrt(sum(a * a for a in x) / len(x) + part.epsilon)
    mean = sum(x) / len(x)
    y = (x - mean) / math.sqrt(sum((a - mean) ** 2 for a in x) / len(x) + part.epsilon)
    return y if part.gain is None else array(part.gain) * y + array(part.bias)


def feedforward(part, x):
    if type(part).__name__ == "Experts":
        return reference_local.experts(part, x)
    a = linear(part.first, x)
    if type(part).__name__ == "SwiGLU":
        gate, value = np.split(a, 2)
        return linear(part.last, gate * sigmoid(gate) * value)
    if part.activation == "relu":
        return linear(part.last, np.maximum(a, 0))
    return linear(part.last, np.array([u * 0.5 * (1 + math.erf(u / math.sqrt(2))) for u in a]))


def block(part, x, memory):
    steps = [(part.attention_norm, lambda rows: self_attention(part.attention, rows))]
    if part.cross is not None:
        steps.append((part.cross_norm, lambda rows: cross_attention(part.cross, rows, memory)))
    steps.append((part.feedforward_norm, lambda rows: [feedforward(part.feedforward, row) for row in rows]))
    for normal, f in steps:
        if part.order == "pre":
            x = [a + b for a, b in zip(x, f([norm(normal, row) for row in x]), strict=True)]
        else:
            x = [norm(normal, a + b) for a, b in zip(x, f(x), strict=True)]
    return np.array(x)


def sinusoid(t, size, base=10000.0):
    code = np.zeros(size)
    for k in range(size // 2):
        frequency = base ** (-2 * k / size)
        code[2 * k], code[2 * k + 1] = math.sin(t * frequency), math.cos(t * frequency)
    return code


def code(part, t):
    return array(part.table)[t] if type(part).__name__ == "Learned" else sinusoid(t, part.dim)


def embedded(part, x, t):
    name = type(part).__name__
    if name in ("Sinusoidal", "Learned"):
        return x + code(part, t)
    return np.concatenate([x, code(part.inner, t)]) if name == "Concatenated" else x


def transformer(part, x, memory):
    x = [embedded(part.position, row, t) for t, row in enumerate(x)]
    for one in part.blocks:
        x = block(one, x, memory)
    return np.array(x if part.norm is None else [norm(part.norm, row) for row in x])


def chain(part, x, memory):
    for one in part.layers:
        x = of(one, x, memory)
    return x


# Words


def words_in(part, ids):
    return [array(part.table)[word] * part.factor for word in ids]


def words_out(part, hs):
    if part.back is not None:
        hs = [linear(part.back, h) for h in hs]
    bias = 0.0 if part.output.bias is None else array(part.output.bias)
    return np.array([array(part.output.table) @ h + bias for h in hs])


import reference_attention  # noqa: E402  these use what stands above
import reference_local  # noqa: E402
import reference_recurrent  # noqa: E402

MORE = {**reference_recurrent.FORMS, **reference_attention.FORMS, **reference_local.FORMS}

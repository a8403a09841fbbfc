"""The literal form of every part: numpy, one example, loops over t and j. Slow on purpose, and written from the
equations alone.

`of(part, x, memory)` looks up the literal form by the name of the part's class, and fails if there is none.
"""

from __future__ import annotations

import math

import numpy as np


def of(part, x, memory=None):
    """The expected outputs for one example: x is (T, D) or T ids, memory (S, M) or S ids."""
    forms = {
        "Block": lambda: block(part, x, memory),
        "Transformer": lambda: transformer(part, x, memory),
        "Chain": lambda: chain(part, x, memory),
        "Encoder": lambda: of(part.stack, words_in(part.embedding, x)),
        "MaskedLM": lambda: words_out(part, of(part.stack, words_in(part.embedding, x))),
        "LanguageModel": lambda: words_out(part, of(part.stack, words_in(part.embedding, x))),
        "Seq2Seq": lambda: words_out(
            part,
            of(
                part.decoder,
                words_in(part.embedding, x),
                of(part.encoder, words_in(part.source_embedding, memory)),
            ),
        ),
    }
    name = type(part).__name__
    return forms[name]() if name in forms else MORE[name](part, x, memory)


def array(tensor):
    return tensor.detach().numpy()


def linear(part, x):
    y = array(part.weight) @ x
    return y if part.bias is None else y + array(part.bias)


def gelu(u):
    return u * 0.5 * (1 + math.erf(u / math.sqrt(2)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(scores):
    powers = [math.exp(s - max(scores)) for s in scores]
    return [power / sum(powers) for power in powers]


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
    a = linear(part.in_proj, x)
    if type(part).__name__ == "SwiGLU":
        gate, value = np.split(a, 2)
        return linear(part.out_proj, gate * sigmoid(gate) * value)
    if part.activation == "gelu":
        return linear(part.out_proj, np.array([gelu(u) for u in a]))
    forms = {
        "relu": lambda u: np.maximum(u, 0),
        "sigmoid": sigmoid,
        "tanh": np.tanh,
        "swish": lambda u: u / (1 + np.exp(-u)),
        "gelu_tanh": lambda u: u / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))),
    }
    return linear(part.out_proj, forms[part.activation](a))


def block(part, x, memory):
    steps = [(part.attention_norm, lambda rows: of(part.attention, rows))]
    if part.cross is not None:
        steps.append((part.cross_norm, lambda rows: of(part.cross, rows, memory)))
    steps.append((part.feedforward_norm, lambda rows: [feedforward(part.feedforward, row) for row in rows]))
    for normal, f in steps:
        if part.order == "pre":
            x = [a + b for a, b in zip(x, f([norm(normal, row) for row in x]), strict=True)]
        else:
            x = [norm(normal, a + b) for a, b in zip(x, f(x), strict=True)]
    return np.array(x)


def code(part, t):
    if type(part).__name__ == "Learned":
        return array(part.table)[t]
    return reference_attention.sinusoid(t, part.dim, part.base, part.layout, part.first)


def embedded(part, x, t):
    name = type(part).__name__
    if name in ("Sinusoidal", "Learned"):
        return x + code(part, t)
    return np.concatenate([x, code(part.inner, t)]) if name == "Concatenated" else x


def transformer(part, x, memory):
    x = [embedded(part.position, row, t) for t, row in enumerate(x)]
    x = x if part.input_norm is None else [norm(part.input_norm, row) for row in x]
    for one in part.blocks:
        x = block(one, x, memory)
    return np.array(x if part.norm is None else [norm(part.norm, row) for row in x])


def chain(part, x, memory):
    for one in part.layers:
        x = of(one, x, memory)
    return x


# Words


def words_in(part, ids):
    rows = [array(part.table)[word] * part.factor for word in ids]
    if type(part).__name__ == "SegmentEmbedding":
        before = [sum(word == part.separator for word in ids[:t]) for t in range(len(ids))]
        rows = [
            row + array(part.segments)[min(ends, len(part.segments) - 1)]
            for row, ends in zip(rows, before, strict=True)
        ]
    return rows


def by_groups(part, h):
    """ln P of each word: directly for a frequent word, else ln P(group) + ln P(word | group)."""
    first, table = part.cluster_sizes[0], None if part.table is None else array(part.table)
    head = np.concatenate([array(part.common) if table is None else table[:first], array(part.groups)])
    chances = [math.log(p) for p in softmax([row @ h for row in head])]
    found = chances[:first]
    for group, (begin, end) in enumerate(
        zip(part.cutoffs, [*part.cutoffs[1:], part.vocabulary], strict=True)
    ):
        scores = (
            table[begin:end] @ h
            if table is not None
            else linear(part.tails[group][1], linear(part.tails[group][0], h))
        )
        found += [chances[first + group] + math.log(p) for p in softmax(scores)]
    return found


def words_out(part, hs):
    if part.out_proj is not None:
        hs = [linear(part.out_proj, h) for h in hs]
    if type(part.output).__name__ == "AdaptiveSoftmax":
        return np.array([by_groups(part.output, h) for h in hs])
    if (head := part.output.head) is not None:
        hs = [norm(head.norm, np.array([gelu(u) for u in linear(head.dense, h)])) for h in hs]
    bias = 0.0 if part.output.bias is None else array(part.output.bias)
    return np.array([array(part.output.table) @ h + bias for h in hs])


from support import (  # noqa: E402  these use what is defined above
    reference_attention,
    reference_deep,
    reference_local,
    reference_recurrent,
)

MORE = {
    **reference_recurrent.FORMS,
    **reference_attention.FORMS,
    **reference_local.FORMS,
    **reference_deep.FORMS,
}

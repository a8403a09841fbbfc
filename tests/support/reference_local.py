"""Literal forms: convolution, mixing and mixtures of experts. Each takes (part, x, memory) for one example."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from seqloom.nn import ScaledDot


def basics():
    from support import reference  # it imports this file

    return reference


def convolution(part, x, memory=None):
    """One multiplication at a time: output o at t, tap i, input f."""
    weight = part.taps.weight.detach().numpy().reshape(part.dim, part.kernel, part.size)
    y = np.zeros((len(x), part.dim))
    for t in range(len(x)):
        for o in range(part.dim):
            if part.taps.bias is not None:
                y[t, o] = part.taps.bias.detach()[o]
            for i in range(part.kernel):
                at = t + (i - (part.kernel - 1 if part.causal else (part.kernel - 1) // 2)) * part.dilation
                for f in range(part.size):
                    y[t, o] += weight[o, i, f] * x[at][f] if 0 <= at < len(x) else 0.0
    return y


def bytenet(part, x, memory=None):
    linear, norm = basics().linear, basics().norm
    if part.source_proj is not None:
        x = [row + (linear(part.source_proj, memory[t]) if t < len(memory) else 0) for t, row in enumerate(x)]
    for block in part.blocks:
        h = [linear(block.in_proj, np.maximum(norm(block.norms[0], row), 0)) for row in x]
        h = convolution(block.convolution, [np.maximum(norm(block.norms[1], row), 0) for row in h])
        x = [
            row + linear(block.out_proj, np.maximum(norm(block.norms[2], new), 0))
            for row, new in zip(x, h, strict=True)
        ]
    return np.array([norm(part.norm, row) for row in x])


def convs2s(part, x, memory=None):
    linear, sigmoid, softmax = basics().linear, basics().sigmoid, basics().softmax
    g = [basics().embedded(part.position, row, t) for t, row in enumerate(x)]
    h = [linear(part.in_proj, row) for row in g]
    for block in part.blocks:
        after = []
        for t, both in enumerate(convolution(block.convolution, h)):
            a, b = np.split(both, 2)
            u = a * sigmoid(b)
            if part.key is not None:
                d = linear(block.query, u) + g[t]
                weights = softmax(
                    [
                        float(d @ linear(part.key, z))
                        / (math.sqrt(len(d)) if isinstance(block.score, ScaledDot) else 1)
                        for z in memory
                    ]
                )
                c = sum(w * z for w, z in zip(weights, memory, strict=True))
                u = math.sqrt(0.5) * (u + linear(block.context_proj, math.sqrt(len(memory)) * c))
            after.append(math.sqrt(0.5) * (h[t] + u))
        h = after
    return np.array([linear(part.out_proj, row) for row in h])


def followed_by_zeros(x, length):
    return np.concatenate([np.array(x), np.zeros((length - len(x), len(x[0])))])


def mix_features(part, x, memory=None):
    return np.array([basics().feedforward(part.network, row) for row in x])


def mix_all(part, x, memory=None):
    whole = followed_by_zeros(x, part.context)
    joined = np.concatenate(list(whole))  # n p
    return basics().feedforward(part.network, joined).reshape(whole.shape)[: len(x)]


def over_tokens(network, x):
    return np.array([basics().feedforward(network, column) for column in np.array(x).T]).T


def mix_tokens(part, x, memory=None):
    return over_tokens(part.network, followed_by_zeros(x, part.context))[: len(x)]


def mixer(part, x, memory=None):
    norm, rows = basics().norm, followed_by_zeros(x, part.context)
    for block in part.blocks:
        rows = rows + over_tokens(block.tokens, [norm(block.tokens_norm, row) for row in rows])
        rows = rows + np.array(
            [basics().feedforward(block.features, norm(block.features_norm, row)) for row in rows]
        )
    return np.array([norm(part.norm, row) for row in rows])[: len(x)]


def experts(part, x):
    """One token."""
    scores = [float(row @ x) for row in part.router.weight.detach().numpy()]
    chosen = sorted(range(len(scores)), key=lambda i: -scores[i])[: part.top_k]
    gates = basics().softmax([scores[i] for i in chosen])
    if part.top_k == 1:
        gates = [basics().softmax(scores)[chosen[0]]]
    return sum(g * basics().feedforward(part.experts[i], x) for g, i in zip(gates, chosen, strict=True))


FORMS: dict[str, Callable] = {
    "Convolution": convolution,
    "ByteNet": bytenet,
    "ConvS2S": convs2s,
    "MixFeatures": mix_features,
    "MixAll": mix_all,
    "MixTokens": mix_tokens,
    "Mixer": mixer,
}

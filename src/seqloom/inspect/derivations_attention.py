"""How the recorded values of attention follow from one another: q, k and v, scores, weights, heads, their projection."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.inspect.trace_log import Derivation, Place, array, weights_of
from seqloom.inspect.trace_steps import Operand, Step
from seqloom.nn import attention, attention_core, cross_attention, position

LARGEST_EXPONENT = 600.0  # exp of it is finite


def projected(place: Place) -> list[Step] | None:
    """q, k or v of a self-attention: a linear map of x, and a rotation."""
    part, x = place.part, place.argument()
    if not isinstance(part, attention.SelfAttention) or x is None:
        return None
    found = weights_of(part.qkv_proj)
    if found is None:
        return None
    heads, kv_heads, key_dim, value_dim = part.shape
    index = "qkv".index(place.value)
    count, size = (
        (heads, key_dim) if index == 0 else (kv_heads, key_dim) if index == 1 else (kv_heads, value_dim)
    )
    start = sum(part.shape.proj_widths[:index])
    matrix, bias = (
        None if one is None else one[start : start + part.shape.proj_widths[index]] for one in found
    )
    return heads_of(place, matrix, bias, count, size, place.operand(x, "tj", "x"), part.position)


def heads_of(
    place: Place,
    matrix: np.ndarray | None,
    bias: np.ndarray | None,
    count: int,
    size: int,
    x: Operand,
    scheme: position.Position | None,
) -> list[Step] | None:
    """The linear map of x to all heads, rotated if the positions rotate q and k."""
    if matrix is None:
        return None
    operands = {"W": Operand(f"W_{place.value.upper()}", "hkj", matrix.reshape(count, size, -1)), "x": x}
    finish = "total"
    if bias is not None:
        operands["b"] = Operand("b", "hk", bias.reshape(count, size))
        finish = "total + b"
    formula = f"{place.value} = W x" + (" + b" if bias is not None else "")
    rotates = isinstance(scheme, position.Rotary) and place.value != "v"
    linear = place.step(
        formula,
        "htk",
        finish,
        operands,
        term="W * x",
        over="j",
        between="before_rotation" if rotates else "",
    )
    if not rotates or not isinstance(scheme, position.Rotary):
        return [linear]
    cos, sin, partner = rotation(scheme, linear.values)
    turned = {
        "a": Operand(linear.name, "htk", linear.values),
        "partner": Operand("the other of its pair, -b for the first and a for the second", "htk", partner),
        "cos": Operand("cos tθ", "tk", cos),
        "sin": Operand("sin tθ", "tk", sin),
    }
    return [
        linear,
        place.step(f"{place.value}' = R(t) {place.value}", "htk", "a * cos + partner * sin", turned),
    ]


def rotation(scheme: position.Rotary, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """cos and sin of the angle of each coordinate (T, K), and each coordinate's partner (H, T, K)."""
    size = values.shape[-1]
    angle = scheme.angles(torch.arange(values.shape[1]), size).numpy()  # (T, K/2)
    partner = np.empty_like(values)
    if scheme.layout == "halves":
        first, second = np.split(values, 2, -1)
        return (
            np.tile(np.cos(angle), 2),
            np.tile(np.sin(angle), 2),
            np.concatenate([-second, first], -1),
        )
    partner[..., 0::2], partner[..., 1::2] = -values[..., 1::2], values[..., 0::2]
    return np.repeat(np.cos(angle), 2, -1), np.repeat(np.sin(angle), 2, -1), partner


def cross_query(place: Place) -> list[Step] | None:
    part, x = place.part, place.argument()
    found = weights_of(part.q_proj) if isinstance(part, cross_attention.CrossAttention) else None
    if not isinstance(part, cross_attention.CrossAttention) or x is None or found is None:
        return None
    shape = part.shape
    return heads_of(place, *found, shape.heads, shape.key_dim, place.operand(x, "tj", "x"), None)


def cross_memory(place: Place) -> list[Step] | None:
    """k or v of a cross-attention: a linear map of the encoder's outputs."""
    part, memory = place.part, memory_of(place)
    found = weights_of(part.kv_proj) if isinstance(part, cross_attention.CrossAttention) else None
    if not isinstance(part, cross_attention.CrossAttention) or memory is None or found is None:
        return None
    shape = part.shape
    width = shape.proj_widths[1]
    rows, size = (
        (slice(0, width), shape.key_dim) if place.value == "k" else (slice(width, None), shape.value_dim)
    )
    matrix, bias = (None if one is None else one[rows] for one in found)
    return heads_of(place, matrix, bias, shape.kv_heads, size, memory, None)


def memory_of(place: Place) -> Operand | None:
    """The encoder's outputs."""
    calls = place.calls("encoder")
    if not calls or calls[0].output is None:
        return None
    return place.operand(calls[0].output, "tj", "memory")


def scored(place: Place) -> list[Step] | None:
    """The product of query and key, then its scale and bias; Bahdanau's additive score."""
    part = place.part
    calls = place.calls()
    if not calls or len(calls) > len(place.log.tokens) + len(place.log.source):
        return None
    if len(calls) > 1 and place.log.values(place.full).shape[1] != len(calls):
        return None
    queries = [call.arguments[0] for call in calls]  # more than one in a loop over time
    q = queries[0] if len(queries) == 1 else torch.cat(queries, 2)
    k = calls[0].arguments[1]
    operands = {"q": place.operand(q, "htk", "q"), "k": place.operand(k, "hsk", "k")}
    if isinstance(part, attention_core.Additive):
        operands["u"] = Operand("u", "k", part.vector.detach().double().numpy())
        term, formula = "u * tanh(q + k)", "s = uᵀ tanh(q + k)"
    elif isinstance(part, attention_core.Bilinear):
        operands["q"] = Operand("q W", "htk", array(part.project_query(q)))
        term, formula = "q * k", "s = qᵀ W k"
    elif isinstance(part, attention_core.Dot | attention_core.ScaledDot):
        term, formula = "q * k", "q · k"
    else:
        return None
    bias = score_bias(place, q.shape[2], k.shape[2])
    scale = part.scale if isinstance(part, attention_core.ScaledDot) else 1.0
    if bias is None and scale == 1:
        return [place.step(formula.replace("q ·", "s = q ·"), "hts", "total", operands, term=term, over="k")]
    product = place.step(formula, "hts", "total", operands, term=term, over="k", between="product")
    later = {"product": Operand(product.name, "hts", product.values)}
    finish = "product" if scale == 1 else f"product * {scale!r}"
    formula = (
        "s = q · k"
        if scale == 1
        else f"s = q · k / √{operands['k'].values.shape[-1]} = q · k / {1 / scale:.4g}"
    )
    if bias is not None:
        later["bias"] = Operand("bias of the distance", "hts", bias)
        finish, formula = f"{finish} + bias", f"{formula} + bias"
    return [product, place.step(formula, "hts", finish, later)]


def score_bias(place: Place, queries: int, keys: int) -> np.ndarray | None:
    """What the position scheme adds to the scores: (H, T, S)."""
    found = place.parent(attention.SelfAttention)
    if found is None:
        return None
    bias = found[1].position.bias(torch.arange(queries), torch.arange(keys))
    if bias is None:
        return None
    heads = place.log.values(place.full).shape[0]
    return bias[0].detach().double().expand(heads, queries, keys).numpy()


def weighted(place: Place) -> list[Step] | None:
    """The softmax over the visible keys, or the scores themselves."""
    calls = place.calls()
    name = f"{place.path.rpartition('.')[0]}.score"
    if not calls or not place.log.has(name):
        return None
    scores = place.recorded(name, "hts")
    shape = scores.values.shape
    if len(calls) not in (1, shape[1]):
        return None
    visible = joined_visible([call.arguments[1] for call in calls], shape)
    if isinstance(place.part, attention_core.Raw):
        operands = {"s": scores} if visible is None else {"s": scores, "visible": visible}
        return [place.step("α = s", "hts", "s" if visible is None else "s * visible", operands)]
    if not isinstance(place.part, attention_core.Softmax) or scores.values.max() > LARGEST_EXPONENT:
        return None
    operands = {"s": scores, "every": Operand(name, "htu", scores.values)}
    if visible is None:
        finish, term = "exp(s) / total", "exp(every)"
    else:
        operands["visible"] = visible
        operands["seen"] = Operand("whether the key is visible", "htu"[-len(visible.axes) :], visible.values)
        finish, term = "visible * exp(s) / total", "seen * exp(every)"
    return [
        place.step(
            "α = exp(s) / Σ exp(s) over the visible keys", "hts", finish, operands, term=term, over="u"
        )
    ]


def joined_visible(masks: list[Tensor | None], shape: tuple[int, ...]) -> Operand | None:
    """Which keys each query sees, (T, S), as 1 and 0; None if all are visible."""
    if masks[0] is None:
        return None
    _, queries, keys = shape
    rows = [mask[0, 0] if mask is not None and mask.dim() == 4 else mask for mask in masks]
    if any(row is None or row.dim() != 2 for row in rows):
        return None
    visible = torch.cat(
        [row.expand(queries if len(rows) == 1 else 1, keys) for row in rows if row is not None]
    )
    return Operand("whether the key is visible", "ts", visible.double().numpy())


def averaged(place: Place) -> list[Step] | None:
    """head = Σ α v"""
    name = f"{place.path}.weights"
    if not place.log.has(name) or not place.log.has(place.sibling("v")):
        return None
    weights = place.recorded(name, "hts")
    values = place.own("v", "hsv")
    shared = len(weights.values) // len(values.values)
    operands = {"a": weights, "v": Operand(values.name, "hsv", np.repeat(values.values, shared, 0))}
    return [place.step("head = Σ α v over the keys", "htv", "total", operands, term="a * v", over="s")]


def joined_heads(place: Place) -> list[Step] | None:
    """y = W_O [head₁; …; head_H] + b"""
    part = place.part
    found = (
        weights_of(part.out_proj)
        if isinstance(part, attention.SelfAttention | cross_attention.CrossAttention)
        else None
    )
    if found is None:
        return None
    head = place.own("head", "htv")
    matrix, bias = found
    operands = {
        "W": Operand("W_O", "ihv", matrix.reshape(len(matrix), len(head.values), -1)),
        "head": head,
    }
    if bias is not None:
        operands["b"] = Operand("b", "i", bias)
    finish = "total" if bias is None else "total + b"
    formula = "y = W_O [heads]" + ("" if bias is None else " + b")
    return [place.step(formula, "ti", finish, operands, term="W * head", over="hv")]


ATTENTION: dict[type[nn.Module], dict[str, Derivation]] = {
    attention.SelfAttention: {
        "q": projected,
        "k": projected,
        "v": projected,
        "head": averaged,
        "": joined_heads,
    },
    cross_attention.CrossAttention: {
        "q": cross_query,
        "k": cross_memory,
        "v": cross_memory,
        "head": averaged,
        "": joined_heads,
    },
    attention_core.Score: {"": scored},
    attention_core.AttentionWeights: {"": weighted},
}

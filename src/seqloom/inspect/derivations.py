"""How the recorded values of each part follow from one another: one entry for each value of a part's class.

A derivation returns the steps that end with its value, or None where the part is of a form that it does not cover. `INPUTS` explains
what a part passes to a part inside it, if that is not a recorded value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from seqloom.inspect.derivations_attention import ATTENTION, LARGEST_EXPONENT
from seqloom.inspect.derivations_local import LOCAL, LOCAL_INPUTS
from seqloom.inspect.derivations_recurrent import RECURRENT, RECURRENT_INPUTS
from seqloom.inspect.trace_log import Derivation, Place, array, weights_of
from seqloom.inspect.trace_steps import Operand, Step
from seqloom.nn import basic, embedding, pool, position, transformer

ACTIVATIONS = {
    "relu": "relu(a)",
    "gelu": "a * normal_cdf(a)",
    "gelu_tanh": "0.5 * a * (1 + tanh(0.7978845608 * (a + 0.044715 * a * a * a)))",
    "swish": "a * sigmoid(a)",
    "sigmoid": "sigmoid(a)",
    "tanh": "tanh(a)",
}
MOST_WORDS = 12  # of the likeliest next words


def embedded(place: Place) -> list[Step] | None:
    """x = row s of the table (× √D), and BERT's segment."""
    part, ids = place.part, place.argument()
    if not isinstance(part, embedding.Embedding) or ids is None:
        return None
    letter = place.log.positions(ids.shape[1], place.side)
    operands = {"row": Operand("row of the table", f"{letter}i", array(part.table[ids]))}
    finish = "row" if part.factor == 1 else f"row * {part.factor!r}"
    formula = "x = E[w]" if part.factor == 1 else "x = √D · E[w]"
    if isinstance(part, embedding.SegmentEmbedding):
        ends = (ids == part.separator).long()
        segment = (ends.cumsum(1) - ends).clamp(max=len(part.segments) - 1)
        operands["segment"] = Operand("segment vector", f"{letter}i", array(part.segments[segment]))
        finish, formula = f"{finish} + segment", f"{formula} + segment"
    return [place.step(formula, f"{letter}i", finish, operands)]


def stack_input(place: Place) -> list[Step] | None:
    """x = e + p, the vector of the position."""
    part, x = place.part, place.argument()
    if not isinstance(part, transformer.Transformer) or x is None or part.input_norm is not None:
        return None
    return position_sum(place, part.position, x, "")


def position_sum(place: Place, scheme: position.Position, x: Tensor, between: str) -> list[Step] | None:
    letter = place.log.positions(x.shape[1], place.side)
    operands = {"e": place.operand(x, f"{letter}i", "e")}
    if isinstance(scheme, position.Concatenated):
        width = scheme.dim - x.shape[-1]
        inner = array(scheme.inner.encoding(slice(0, x.shape[1]), x[..., :width]).expand(1, -1, -1))
        halves = np.pad(array(x), ((0, 0), (0, width))), np.pad(inner, ((0, 0), (x.shape[-1], 0)))
        operands = {
            "e": Operand(f"{operands['e'].name}, then zeros", f"{letter}i", halves[0]),
            "p": Operand("zeros, then the vector of the position", f"{letter}i", halves[1]),
        }
        return [place.step("x = [e; p]", f"{letter}i", "e + p", operands, between=between)]
    if type(scheme).embed is position.Position.embed:
        return [place.step("x = e", f"{letter}i", "e", operands, between=between)]
    vectors = scheme.encoding(slice(0, x.shape[1]), x)
    operands["p"] = Operand("vector of the position", f"{letter}i", array(vectors.expand_as(x)))
    return [place.step("x = e + p", f"{letter}i", "e + p", operands, between=between)]


def normalized(place: Place) -> list[Step] | None:
    """Mean, variance, and the normalised vector."""
    part, x = place.part, place.argument()
    if x is None or not isinstance(part, basic.LayerNorm | basic.RMSNorm):
        return None
    letter = place.log.positions(x.shape[1], place.side)
    operands = {"x": place.operand(x, f"{letter}i", "x")}
    steps = []
    centred, formula = "x", "y = x / √(σ² + ε)"
    if isinstance(part, basic.LayerNorm):
        steps.append(
            place.step("μ = 1/d Σ x", letter, "total / n", dict(operands), term="x", over="i", between="mean")
        )
        operands["mean"] = Operand("μ", letter, steps[0].values)
        centred, formula = "(x - mean)", "y = (x - μ) / √(σ² + ε)"
    steps.append(
        place.step(
            "σ² = 1/d Σ (x - μ)²" if centred != "x" else "σ² = 1/d Σ x²",
            letter,
            "total / n",
            dict(operands),
            term=f"{centred} * {centred}",
            over="i",
            between="variance",
        )
    )
    operands["variance"] = Operand("σ²", letter, steps[-1].values)
    finish = f"{centred} / sqrt(variance + {part.epsilon!r})"
    if part.gain is not None:
        operands["gain"] = Operand("γ", "i", part.gain.detach().double().numpy())
        finish, formula = f"gain * {finish}", formula.replace("= ", "= γ ⊙ ")
        if isinstance(part, basic.LayerNorm) and part.bias is not None:
            operands["bias"] = Operand("β", "i", part.bias.detach().double().numpy())
            finish, formula = f"{finish} + bias", f"{formula} + β"
    steps.append(place.step(formula, f"{letter}i", finish, operands))
    return steps


def residual(before: Callable[[Place], str | None], sublayer: str) -> Derivation:
    """x + the output of a sub-layer."""

    def derive(place: Place) -> list[Step] | None:
        block = place.part
        if not isinstance(block, transformer.Block) or block.order != "pre":
            return None
        return residual_sum(place, before(place), sublayer, "")

    return derive


def residual_sum(place: Place, before: str | None, sublayer: str, between: str) -> list[Step] | None:
    block_path = place.path if isinstance(place.part, transformer.Block) else place.path.rpartition(".")[0]
    x = place.argument(0, block_path)
    y = f"{block_path}.{sublayer}"
    if not place.log.has(y) or (before is None and x is None):
        return None
    old = place.recorded(before, "ti") if before is not None else place.operand(x, "ti", "x")  # type: ignore[arg-type]
    return [place.step("x + y", "ti", "x + y", {"x": old, "y": place.recorded(y, "ti")}, between=between)]


def before_feedforward(place: Place) -> str | None:
    cross = place.sibling("after_cross")
    return cross if place.log.has(cross) else place.sibling("after_attention")


def activated(place: Place) -> list[Step] | None:
    """a = W₁ x + b₁, then f(a); or the two halves of a SwiGLU."""
    part, x = place.part, place.argument()
    if x is None or not isinstance(part, basic.FeedForward | basic.SwiGLU):
        return None
    letter = place.log.positions(x.shape[1], place.side)
    operand = place.operand(x, f"{letter}j", "x")
    if isinstance(part, basic.FeedForward):
        linear = place.linear(part.in_proj, operand, "a = W₁ x + b₁", f"{letter}f", "a")
        if linear is None:
            return None
        finish = ACTIVATIONS[part.activation]
        a = {"a": Operand(linear.name, f"{letter}f", linear.values)}
        return [linear, place.step(f"{part.activation}(a)", f"{letter}f", finish, a)]
    found = weights_of(part.in_proj)
    if found is None:
        return None
    steps, operands = [], {}
    half = len(found[0]) // 2
    for name, rows in (("gate", slice(0, half)), ("value", slice(half, None))):
        inner = {"W": Operand("W", "fj", found[0][rows]), "x": operand}
        finish = "total"
        if found[1] is not None:
            inner["b"], finish = Operand("b", "f", found[1][rows]), "total + b"
        steps.append(
            place.step(f"{name} = W x", f"{letter}f", finish, inner, term="W * x", over="j", between=name)
        )
        operands[name] = Operand(steps[-1].name, f"{letter}f", steps[-1].values)
    steps.append(place.step("swish(gate) ⊙ value", f"{letter}f", "gate * sigmoid(gate) * value", operands))
    return steps


def fed_forward(place: Place) -> list[Step] | None:
    """y = W₂ hidden + b₂"""
    part = place.part
    if not isinstance(part, basic.FeedForward | basic.SwiGLU):
        return None
    hidden = place.sibling("hidden")
    letter = place.log.positions(len(place.log.values(hidden)), place.side)
    made = place.linear(part.out_proj, place.recorded(hidden, f"{letter}j"), "y = W₂ hidden", f"{letter}i")
    return None if made is None else [made]


def pooled(place: Place) -> list[Step] | None:
    """α = softmax uᵀ tanh(W x + b) over the positions."""
    part, x = place.part, place.argument()
    if not isinstance(part, pool.AttentionPool) or x is None:
        return None
    letter = place.log.positions(x.shape[1], place.side)
    hidden = place.linear(
        part.project,
        place.operand(x, f"{letter}j", "x"),
        "a = tanh(W x + b)",
        f"{letter}f",
        "hidden",
        "tanh(total)",
    )
    if hidden is None:
        return None
    operands = {
        "u": Operand("u", "f", part.query.weight.detach().double().numpy()[0]),
        "a": Operand(hidden.name, f"{letter}f", hidden.values),
    }
    score = place.step("s = uᵀ a", letter, "total", operands, term="u * a", over="f", between="score")
    operands = {
        "s": Operand(score.name, letter, score.values),
        "every": Operand(score.name, "u", score.values),
    }
    return [
        hidden,
        score,
        place.step("α = softmax(s)", letter, "exp(s) / total", operands, term="exp(every)", over="u"),
    ]


def logits(place: Place) -> list[Step] | None:
    """All logits; then those of the likeliest words at the last position, and their probabilities."""
    part, h = place.part, place.argument()
    if not isinstance(part, embedding.Output) or h is None:
        return None
    if part.head is not None:
        transformed = place.log.calls[f"{place.path}.head"][place.count].output
        h = h if transformed is None else transformed
    letter = place.log.positions(h.shape[1], place.side)
    table = part.table.detach().double().numpy()
    features = place.operand(h, f"{letter}j", "h")
    operands = {"E": Operand("E", "wj", table), "h": features}
    finish = "total"
    if part.bias is not None:
        operands["b"], finish = Operand("b", "w", part.bias.detach().double().numpy()), "total + b"
    full = place.step("logits = E h", f"{letter}w", finish, operands, term="E * h", over="j")
    return [replace(full, shown=False), *last_word(place, full, operands, finish)]


def last_word(place: Place, full: Step, operands: Mapping[str, Operand], finish: str) -> list[Step]:
    """The likeliest words after the last position."""
    last = full.values[-1]
    best = np.argsort(-last, kind="stable")[:MOST_WORDS]
    names = {"w": tuple(str(index) for index in best)}
    chosen = {
        "E": Operand("E", "wj", operands["E"].values[best]),
        "h": Operand(f"{operands['h'].name} at the last position", "j", operands["h"].values[-1]),
    }
    if "b" in operands:
        chosen["b"] = Operand("b", "w", operands["b"].values[best])
    step = place.step(
        "logit = E[w] · h", "w", finish, chosen, term="E * h", over="j", between="likeliest", labels=names
    )
    if last.max() > LARGEST_EXPONENT:
        return [step]
    softmax = {
        "s": Operand(step.name, "w", step.values),
        "every": Operand("logits of all words", "u", last),
    }
    return [
        step,
        place.step(
            "P(w) = exp(logit) / Σ exp(logits) over all words",
            "w",
            "exp(s) / total",
            softmax,
            term="exp(every)",
            over="u",
            between="probability",
            labels=names,
        ),
    ]


DERIVATIONS: dict[type[nn.Module], dict[str, Derivation]] = {
    embedding.Embedding: {"": embedded},
    transformer.Transformer: {"input": stack_input},
    basic.Norm: {"": normalized},
    **ATTENTION,
    transformer.Block: {
        "after_attention": residual(lambda place: None, "attention"),
        "after_cross": residual(lambda place: place.sibling("after_attention"), "cross"),
        "": residual(before_feedforward, "feedforward"),
    },
    basic.FFN: {"hidden": activated, "": fed_forward},
    **LOCAL,
    pool.AttentionPool: {"weights": pooled},
    embedding.Output: {"": logits},
    **RECURRENT,
}


def block_input(place: Place, block: transformer.Block, child: str) -> list[Step] | None:
    """What a post-norm block passes to a norm: the sum of the residual path and a sub-layer."""
    path = place.path.rpartition(".")[0]
    before = {
        "attention_norm": None,
        "cross_norm": f"{path}.after_attention",
        "feedforward_norm": f"{path}.after_cross",
    }
    if block.order == "pre" or child not in before:
        return None
    old = before[child]
    if child == "feedforward_norm" and not place.log.has(f"{path}.after_cross"):
        old = f"{path}.after_attention"
    return residual_sum(place, old, child.removesuffix("_norm"), "sum")


def transformer_input(place: Place, stack: transformer.Transformer, child: str) -> list[Step] | None:
    """What the norm of the input reads: e + p."""
    path = place.path.rpartition(".")[0]
    x = place.argument(0, path)
    return position_sum(place, stack.position, x, "sum") if child == "input_norm" and x is not None else None


def head_input(place: Place, head: embedding.HeadTransform, child: str) -> list[Step] | None:
    """What the norm of BERT's output layer reads: f(W h + b)."""
    path = place.path.rpartition(".")[0]
    h = place.argument(0, path)
    if h is None:
        return None
    letter = place.log.positions(h.shape[1], place.side)
    linear = place.linear(head.dense, place.operand(h, f"{letter}j", "h"), "a = W h + b", f"{letter}i", "a")
    if linear is None:
        return None
    a = {"a": Operand(linear.name, f"{letter}i", linear.values)}
    finish = ACTIVATIONS[head.activation]
    return [linear, place.step(f"{head.activation}(a)", f"{letter}i", finish, a, between="activated")]


INPUTS: dict[type[nn.Module], Callable[..., list[Step] | None]] = {
    transformer.Block: block_input,
    transformer.Transformer: transformer_input,
    embedding.HeadTransform: head_input,
    **RECURRENT_INPUTS,
    **LOCAL_INPUTS,
}

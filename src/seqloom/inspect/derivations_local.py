"""How the recorded values of convolutions, mixing layers and experts follow from one another: ByteNet, ConvS2S, MLP-Mixer, mixtures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from seqloom.inspect.derivations_attention import memory_of
from seqloom.inspect.trace_log import Derivation, Place, array, linear_steps, weights_of
from seqloom.inspect.trace_steps import Operand, Step
from seqloom.nn import convolution, experts, mixing, position

HALF = math.sqrt(0.5)


def convolved(place: Place) -> list[Step] | None:
    """y[t] = b + Σᵢ Wᵢ x[t - i d], a sum over the places of the kernel and their coordinates."""
    part = place.part
    if not isinstance(part, convolution.Convolution):
        return None
    steps, x = convolution_input(place)
    found = weights_of(part.taps)
    if x is None or found is None:
        return None
    letter = x.axes[0]
    length = len(x.values)
    before = part.reach if part.causal else part.reach // 2
    padded = np.pad(x.values, ((before, part.reach - before), (0, 0)))
    places = [index * part.dilation for index in range(part.kernel)]
    windows = np.stack([padded[start : start + length] for start in places], 1)  # (T, k, size)
    operands = {
        "W": Operand("W", "ipj", found[0].reshape(part.dim, part.kernel, part.size)),
        "x": Operand(f"{x.name} at the places of the kernel", f"{letter}pj", windows),
    }
    if found[1] is not None:
        operands["b"] = Operand("b", "i", found[1])
    names = tuple("t" if start == before else f"t{start - before:+d}" for start in places)
    step = place.step(
        "y[t] = Σ W x[t + place]" + (" + b" if found[1] is not None else ""),
        f"{letter}i",
        "total" if found[1] is None else "total + b",
        operands,
        term="W * x",
        over="pj",
        labels={"p": names},
    )
    return [*steps, step]


def convolution_input(place: Place) -> tuple[list[Step], Operand | None]:
    """What a convolution reads, and the steps before it: the rectified norm of ByteNet's block, or h of a gated block."""
    path = place.path.rpartition(".")[0]
    parent = place.log.part(path)
    if isinstance(parent, convolution.ByteNetBlock):
        step = rectified(place, f"{path}.norms.1", "input")
        return [step], made_operand(step)
    if isinstance(parent, convolution.GatedBlock):
        return block_input(place, path)
    x = place.argument()
    if x is None:
        return [], None
    letter = place.log.positions(x.shape[1], place.side)
    return [], place.operand(x, f"{letter}j", "x")


def rectified(place: Place, norm: str, between: str) -> Step:
    """r = relu(norm(x)), which ByteNet passes on from each of its norms."""
    name = norm + (f"#{place.count + 1}" if place.count else "")
    letter = place.log.positions(len(place.log.values(name)), place.side)
    operands = {"a": place.recorded(name, f"{letter}i")}
    return place.step("r = relu(norm)", f"{letter}i", "relu(a)", operands, between=between)


def made_operand(step: Step, last: str = "j") -> Operand:
    """The result of a step as what the next one sums over."""
    return Operand(step.name, step.axes[:-1] + last, step.values)


def bytenet_norm_input(place: Place, norms: nn.Module, child: str) -> list[Step] | None:
    """What the norms of a ByteNet block read: e + U m at the first of a decoder, W₁ relu(norm) at the second."""
    path = place.path.rpartition(".norms.")[0]
    block = place.log.part(path) if ".norms." in place.path else None
    if not isinstance(block, convolution.ByteNetBlock):
        return None
    if child == "1":
        before = replace(place, path=path, part=block, full=path)
        step = rectified(before, f"{path}.norms.0", "rectified")
        made = before.linear(
            block.in_proj, made_operand(step), "a = W₁ r + b", step.axes[:-1] + "i", "projected"
        )
        return None if made is None else [step, made]
    if child == "0" and path.endswith(".blocks.0"):
        return unfolded_source(place, path.removesuffix(".blocks.0"))
    return None


def unfolded_source(place: Place, path: str) -> list[Step] | None:
    """x = e + U m: the decoder's position t reads the source's position t, and 0 beyond its end."""
    stack, x, memory = place.log.part(path), place.argument(0, path), memory_of(place)
    if not isinstance(stack, convolution.ByteNet) or x is None or memory is None or stack.source_proj is None:
        return None
    length = x.shape[1]
    rows = np.zeros((length, memory.values.shape[1]))
    count = min(length, len(memory.values))
    rows[:count] = memory.values[:count]
    letter = place.log.positions(length, place.side)
    operands = {
        "e": place.operand(x, f"{letter}i", "e"),
        "U": Operand("U", "ij", stack.source_proj.weight.detach().double().numpy()),
        "m": Operand(f"{memory.name} at the same position", f"{letter}j", rows),
    }
    before = replace(place, path=path, part=stack, full=path)
    formula = "x = e + U m"
    return [
        before.step(formula, f"{letter}i", "e + total", operands, term="U * m", over="j", between="input")
    ]


def bytenet_block(place: Place) -> list[Step] | None:
    """x + W₂ relu(norm(convolution)) + b"""
    part, x = place.part, place.argument(0, f"{place.path}.norms.0")
    if not isinstance(part, convolution.ByteNetBlock) or x is None:
        return None
    step = rectified(place, f"{place.path}.norms.2", "inner")
    axes = step.axes[:-1] + "i"
    found = weights_of(part.out_proj)
    if found is None or found[1] is None:
        return None
    operands = {
        "x": place.operand(x, axes, "x"),
        "W": Operand("W₂", "ij", found[0]),
        "r": made_operand(step),
        "b": Operand("b", "i", found[1]),
    }
    return [step, place.step("x + W₂ r + b", axes, "x + total + b", operands, term="W * r", over="j")]


def block_input(place: Place, path: str) -> tuple[list[Step], Operand | None]:
    """h of a gated block: the block before it; of the first one W g + b, g the embedding with its position."""
    stack_path, _, number = path.rpartition(".blocks.")
    stack = place.log.part(stack_path) if number.isdigit() else None
    suffix = f"#{place.count + 1}" if place.count else ""
    if not isinstance(stack, convolution.ConvS2S):
        return [], None
    if int(number):
        name = f"{stack_path}.blocks.{int(number) - 1}{suffix}"
        letter = place.log.positions(len(place.log.values(name)), place.side)
        return [], place.recorded(name, f"{letter}j")
    call = place.calls(f"{stack_path}.in_proj")
    x = place.argument(0, stack_path)
    if len(call) <= place.count or x is None:
        return [], None
    g, h = call[place.count].arguments[0], call[place.count].output
    if h is None:
        return [], None
    letter = place.log.positions(g.shape[1], place.side)
    if place.log.name_of(h) is not None:
        return [], place.operand(h, f"{letter}j", "h")
    before = replace(place, path=stack_path, part=stack, full=f"{stack_path}{suffix}")
    steps = []
    if type(stack.position).embed is not position.Position.embed:
        operands = {
            "e": place.operand(x, f"{letter}i", "e"),
            "p": Operand("vector of the position", f"{letter}i", array(g) - array(x)),
        }
        if g.shape == x.shape:
            steps.append(before.step("g = e + p", f"{letter}i", "e + p", operands, between="position"))
            place.log.between[id(g)] = g, steps[-1].name
    made = before.linear(
        stack.in_proj, place.operand(g, f"{letter}j", "g"), "h = W g + b", f"{letter}i", "in_proj"
    )
    if made is None:
        return steps, None
    place.log.between[id(h)] = h, made.name
    return [*steps, made], made_operand(made)


def gated(place: Place) -> list[Step] | None:
    """u = a ⊙ σ(b), the two halves of the convolution's output."""
    if not isinstance(place.part, convolution.GatedBlock):
        return None
    name = place.sibling("convolution")
    a, b = np.split(place.log.values(name), 2, -1)
    axes = place.log.positions(len(a), place.side) + "i"
    operands = {"a": Operand(f"{name}, first half", axes, a), "b": Operand(f"{name}, second half", axes, b)}
    return [place.step("u = a ⊙ σ(b)", axes, "a * sigmoid(b)", operands)]


def query_and_key(place: Place, block: convolution.GatedBlock, child: str) -> list[Step] | None:
    """What a gated block passes to its score: q = W_d u + b + g, and k = W_k z, which all blocks share."""
    path = place.path.rpartition(".")[0]
    stack_path = path.rpartition(".blocks.")[0]
    stack = place.log.part(stack_path)
    found = None if block.query is None else weights_of(block.query)
    calls, keys = place.calls(f"{path}.query"), place.calls(f"{stack_path}.key")
    if child != "score" or not isinstance(stack, convolution.ConvS2S) or found is None or found[1] is None:
        return None
    if len(calls) != 1 or len(keys) != 1 or stack.key is None or len(place.calls()) != 1:
        return None
    q, k = place.calls()[0].arguments[:2]
    u, z = calls[0].arguments[0], keys[0].arguments[0]
    g = place.calls(f"{stack_path}.in_proj")[0].arguments[0]
    before = replace(place, path=path, part=block, full=path)
    steps = []
    if place.log.name_of(k) is None:
        steps += linear_steps(replace(place, side="source"), z)
        shared = replace(before, path=stack_path, part=stack, full=stack_path)
        made = shared.linear(stack.key, place.operand(z, "sj", "z"), "k = W_k z + b", "sk", "key")
        if made is not None:
            steps.append(made)
            place.log.between[id(k)] = k, made.name
    operands = {
        "W": Operand("W_d", "kj", found[0]),
        "u": place.operand(u, "tj", "u"),
        "b": Operand("b", "k", found[1]),
        "g": place.operand(g, "tk", "g"),
    }
    formula = "q = W_d u + b + g"
    made = before.step(formula, "tk", "total + b + g", operands, term="W * u", over="j", between="query")
    place.log.between[id(q)] = q, made.name
    return [*steps, made]


def source_context(place: Place) -> list[Step] | None:
    """c = Σ α z over the source."""
    memory = memory_of(place)
    name = f"{place.path}.weights"
    if not isinstance(place.part, convolution.GatedBlock) or memory is None or not place.log.has(name):
        return None
    operands = {
        "a": Operand(name, "ts", place.log.values(name)[0]),
        "z": Operand(memory.name, "si", memory.values),
    }
    return [place.step("c = Σ α z over the source", "ti", "total", operands, term="a * z", over="s")]


def gated_block(place: Place) -> list[Step] | None:
    """√½ (h + u); with a memory u ← √½ (u + W_c √m c + b) first."""
    part = place.part
    if not isinstance(part, convolution.GatedBlock):
        return None
    _, h = block_input(place, place.path)
    if h is None:
        return None
    axes = h.axes[:-1] + "i"
    steps = []
    u = place.own("gated", axes)
    if part.context_proj is not None:
        found, context = weights_of(part.context_proj), place.sibling("context")
        memory = memory_of(place)
        if found is None or found[1] is None or not place.log.has(context) or memory is None:
            return None
        operands = {
            "u": u,
            "W": Operand("W_c", "ij", found[0]),
            "c": place.recorded(context, axes[:-1] + "j"),
            "b": Operand("b", "i", found[1]),
        }
        root = math.sqrt(len(memory.values))
        finish = f"(u + total * {root!r} + b) * {HALF!r}"
        formula = f"u' = √½ (u + W_c √{len(memory.values)} c + b)"
        steps.append(place.step(formula, axes, finish, operands, term="W * c", over="j", between="attended"))
        u = Operand(steps[-1].name, axes, steps[-1].values)
    operands = {"h": Operand(h.name, axes, h.values), "u": u}
    return [*steps, place.step("h = √½ (h + u)", axes, f"(h + u) * {HALF!r}", operands)]


def tokens_mixed(place: Place) -> list[Step] | None:
    """X + f(norm(X)ᵀ)ᵀ"""
    x, y = place.argument(), place.sibling("tokens")
    if not isinstance(place.part, mixing.MixerBlock) or x is None or not place.log.has(y):
        return None
    letter = place.log.positions(x.shape[1], place.side)
    operands = {"x": place.operand(x, f"{letter}i", "X"), "y": place.recorded(y, f"i{letter}")}
    return [place.step("X + Yᵀ", f"{letter}i", "x + y", operands)]


def features_mixed(place: Place) -> list[Step] | None:
    """X + g(norm(X))"""
    before, y = place.sibling("after_tokens"), place.sibling("features")
    if not isinstance(place.part, mixing.MixerBlock) or not place.log.has(y):
        return None
    axes = place.log.positions(len(place.log.values(before)), place.side) + "i"
    operands = {"x": place.recorded(before, axes), "y": place.recorded(y, axes)}
    return [place.step("X + Y", axes, "x + y", operands)]


def routed(place: Place) -> list[Step] | None:
    """s = W_g x, a score for each expert."""
    part, x = place.part, place.argument()
    if not isinstance(part, experts.Experts) or x is None:
        return None
    made = place.linear(part.router, place.operand(x, "tj", "x"), "s = W_g x", "te")
    return None if made is None else [made]


def gated_experts(place: Place) -> list[Step] | None:
    """The softmax over the chosen experts, or over all if one is chosen."""
    part = place.part
    if not isinstance(part, experts.Experts):
        return None
    scores = place.log.values(place.sibling("scores"))
    best = np.sort(scores, -1)[:, ::-1][:, : part.top_k]
    operands = {
        "s": Operand("the largest scores", "tk", best),
        "every": Operand("scores", "tu", scores if part.top_k == 1 else best),
    }
    return [place.step("g = softmax(s)", "tk", "exp(s) / total", operands, term="exp(every)", over="u")]


def summed_experts(place: Place) -> list[Step] | None:
    """y = Σ g E(x) over the experts that a token has chosen."""
    part, x = place.part, place.argument()
    if not isinstance(part, experts.Experts) or x is None:
        return None
    scores = torch.from_numpy(place.log.values(place.sibling("scores")))
    gates = place.own("gates", "tk")
    if len(scores) != x.shape[1]:  # padding is not routed
        return None
    chosen = scores.topk(part.top_k, -1).indices.numpy()  # (T, k)
    outputs = np.zeros((*chosen.shape, x.shape[-1]))
    for number in range(len(part.experts)):
        rows, choices = np.nonzero(
            chosen == number
        )  # the expert reads the tokens that chose it, in their order
        if len(rows):
            outputs[rows, choices] = place.log.values(place.sibling(f"experts.{number}"))
    used = ", ".join(str(number) for number in sorted(set(chosen.flatten().tolist())))
    operands = {"g": gates, "E": Operand(f"outputs of the chosen experts, of {used}", "tki", outputs)}
    return [place.step("y = Σ g E(x)", "ti", "total", operands, term="g * E", over="k")]


LOCAL: dict[type[nn.Module], dict[str, Derivation]] = {
    convolution.Convolution: {"": convolved},
    convolution.ByteNetBlock: {"": bytenet_block},
    convolution.GatedBlock: {"gated": gated, "context": source_context, "": gated_block},
    mixing.MixerBlock: {"after_tokens": tokens_mixed, "": features_mixed},
    experts.Experts: {"scores": routed, "gates": gated_experts, "": summed_experts},
}


def mixer_input(place: Place, block: mixing.MixerBlock, child: str) -> list[Step] | None:
    """What the network over tokens reads: the norm, transposed."""
    x = place.argument()
    name = f"{place.path.rpartition('.')[0]}.tokens_norm"
    if child != "tokens" or x is None or not place.log.has(name):
        return None
    before = replace(place, full=name)
    letter = place.log.positions(x.shape[2], place.side)
    operands = {"x": place.recorded(name, f"{letter}j")}
    return [before.step("Xᵀ", f"j{letter}", "x", operands, between="transposed")]


LOCAL_INPUTS: dict[type[nn.Module], Callable[..., list[Step] | None]] = {
    nn.ModuleList: bytenet_norm_input,
    convolution.GatedBlock: query_and_key,
    mixing.MixerBlock: mixer_input,
}

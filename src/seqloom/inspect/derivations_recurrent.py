"""How the recorded values of recurrent cells and recurrent decoders follow from one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.inspect.gate_values import carry
from seqloom.inspect.trace_log import Derivation, Place, array, weights_of
from seqloom.inspect.trace_steps import Operand, Step
from seqloom.nn import cells, recurrent, rnn_decoder

BLOCKS = {
    cells.LSTM: ("input", "forget", "new", "output"),
    cells.GRU: ("reset", "keep", "new"),
    cells.Vanilla: ("new",),
}


class CellInputs(NamedTuple):
    """What a cell reads at each step: x, the state before, and in Bahdanau's decoder the context."""

    x: Operand
    before: dict[str, Operand]  # h, and c of an LSTM
    context: Operand | None = None
    context_matrix: np.ndarray | None = None


def cell_inputs(place: Place) -> CellInputs | None:
    """The inputs of the cell around this value, of all steps."""
    decoder = place.parent(rnn_decoder.AttentiveRNN)
    unrolled = place.parent(recurrent.UnrolledCell)
    if unrolled is None:
        return None
    path, part = unrolled
    if decoder is not None and decoder[1].query == "previous":
        return decoder_inputs(place, path, *decoder)
    stack = place.parent(recurrent.RNN)
    if stack is not None:
        return layer_inputs(place, path, part, *stack)
    calls = place.calls(path)
    if not calls:
        return None
    x, state = calls[0].arguments[:2]
    return CellInputs(place.operand(x, "tj", "x"), shifted(place, path, part, state))


def layer_inputs(
    place: Place, path: str, part: recurrent.UnrolledCell, stack_path: str, stack: recurrent.RNN
) -> CellInputs | None:
    """The inputs of a cell in a stack: the text, or both directions of the layer below and its residual path."""
    calls = place.calls(stack_path)
    if not calls:
        return None
    x = place.operand(calls[0].arguments[0], "tj", "x")
    layer, direction = (int(number) for number in path.removeprefix(f"{stack_path}.layers.").split("."))
    for below in range(layer):
        names = [f"{stack_path}.layers.{below}.{index}" for index in range(len(stack.unrolled_cells[below]))]
        y = np.concatenate([place.log.values(name) for name in names], -1)
        name = names[0] if len(names) == 1 else "both directions of the layer below"
        if stack.residual and y.shape == x.values.shape:
            x = Operand(f"{name}, plus its input", "tj", x.values + y)
        else:
            x = Operand(name, "tj", y)
    arguments = calls[0].arguments
    state = arguments[1] if len(arguments) > 1 and arguments[1] is not None else stack.start(1)
    return CellInputs(x, shifted(place, path, part, state[layer][direction]))


def shifted(
    place: Place, path: str, part: recurrent.UnrolledCell, state: tuple[Tensor, ...]
) -> dict[str, Operand]:
    """The state before each step: that of the step before it, and first the initial one. With zoneout a share of each entry is that
    of the step before."""
    found = {}
    for name, first in zip(type(state)._fields, state, strict=True):  # type: ignore[attr-defined]
        values = place.log.values(f"{path}.cell.{name}")
        moved = np.empty_like(values)
        last = array(first)
        for t in range(len(values))[:: -1 if part.backward else 1]:
            moved[t] = last
            last = part.zoneout * last + (1 - part.zoneout) * values[t]
        found[name] = Operand(f"{path}.cell.{name} of the step before", "tk" if name == "h" else "ti", moved)
    return found


def zoned_out(place: Place) -> list[Step] | None:
    """y = p h₋₁ + (1 - p) h: the share p of the step before is kept."""
    part = place.part
    inner = place.log.model.get_submodule(f"{place.path}.cell")
    if not isinstance(part, recurrent.UnrolledCell) or not part.zoneout:
        return None
    inputs = cell_inputs(replace(place, path=f"{place.path}.cell", part=inner))
    if inputs is None:
        return None
    old = inputs.before["h"]
    operands = {
        "before": Operand(old.name, "ti", old.values),
        "h": place.recorded(f"{place.path}.cell.h", "ti"),
    }
    share = part.zoneout
    finish = f"{share!r} * before + {1 - share!r} * h"
    return [place.step("y = p h₋₁ + (1 - p) h", "ti", finish, operands)]


def decoder_inputs(
    place: Place, path: str, decoder_path: str, decoder: rnn_decoder.AttentiveRNN
) -> CellInputs | None:
    """The inputs of a cell in Bahdanau's loop: the first reads the word and the context, the others the cell below."""
    calls = place.calls(decoder_path)
    if not calls or decoder.context_proj is None:
        return None
    x, state = calls[0].arguments[:2]
    number = int(path.rpartition(".")[2])
    part = place.log.part(path)
    if not isinstance(part, recurrent.UnrolledCell):
        return None
    before = shifted(place, path, part, state.cells[number])
    if number:
        return CellInputs(place.recorded(f"{decoder_path}.layers.{number - 1}.cell.h", "tj"), before)
    return CellInputs(
        place.operand(x, "tj", "x"),
        before,
        place.recorded(f"{decoder_path}.attention", "tm"),
        decoder.context_proj.weight.detach().double().numpy(),
    )


def block_rows(place: Place, cell: cells.LinearCell, name: str) -> slice | None:
    """The rows of the cell's matrices that belong to a gate."""
    names = BLOCKS.get(type(cell), ("gate",))
    if name not in names:
        return None
    number = names.index(name)
    return slice(number * cell.dim, (number + 1) * cell.dim)


def from_input(
    place: Place, cell: cells.LinearCell, rows: slice, inputs: CellInputs, offset: int = 0
) -> tuple[list[Step], Operand]:
    """W x ± b for one gate, and C c if the decoder's context is added."""
    matrix, bias = cell.input_weights()
    operands = {"W": Operand("W", "ij", matrix.detach().double().numpy()[rows]), "x": inputs.x}
    finish = "total"
    if bias is not None:
        operands["b"], finish = Operand("b", "i", bias.detach().double().numpy()[rows]), "total + b"
    formula = "W x" if bias is None else "W x + b"
    steps = [place.step(formula, "ti", finish, operands, term="W * x", over="j", between="from_input")]
    if inputs.context is not None and inputs.context_matrix is not None:
        shifted_rows = slice(rows.start + offset, rows.stop + offset)
        context = {
            "C": Operand("C", "im", inputs.context_matrix[shifted_rows]),
            "c": inputs.context,
            "x": Operand(steps[0].name, "ti", steps[0].values),
        }
        steps.append(
            place.step(
                "W x + C c",
                "ti",
                "total + x",
                context,
                term="C * c",
                over="m",
                between="from_context",
            )
        )
    return steps, Operand(steps[-1].name, "ti", steps[-1].values)


def gate(function: str) -> Derivation:
    """σ or tanh of W x + U h ± b."""

    def derive(place: Place) -> list[Step] | None:
        cell, inputs = place.part, cell_inputs(place)
        if not isinstance(cell, cells.LinearCell) or inputs is None:
            return None
        rows = block_rows(place, cell, place.value)
        if rows is None:
            return None
        named = function
        if isinstance(cell, cells.Vanilla):
            named = cell.activation
        steps, x = from_input(place, cell, rows, inputs)
        operands = {
            "U": Operand("U", "ik", cell.hidden.detach().double().numpy()[rows]),
            "h": inputs.before["h"],
            "x": x,
        }
        symbol = "σ" if named == "sigmoid" else named
        steps.append(
            place.step(f"{symbol}(W x + U h)", "ti", f"{named}(total + x)", operands, term="U * h", over="k")
        )
        return steps

    return derive


def gru_new(place: Place) -> list[Step] | None:
    """n = tanh(W x + r ⊙ (U h ± b')), or tanh(W x + U (r ⊙ h))"""
    cell, inputs = place.part, cell_inputs(place)
    if not isinstance(cell, cells.GRU) or inputs is None:
        return None
    rows = slice(2 * cell.dim, 3 * cell.dim)
    steps, x = from_input(place, cell, rows, inputs)
    matrix = Operand("U", "ik", cell.hidden.detach().double().numpy()[rows])
    if cell.reset == "inside":
        operands = {"U": matrix, "h": inputs.before["h"], "r": place.own("reset", "tk"), "x": x}
        formula = "n = tanh(W x + U (r ⊙ h))"
        step = place.step(formula, "ti", "tanh(total + x)", operands, term="U * r * h", over="k")
        return [*steps, step]
    product = {"U": matrix, "h": inputs.before["h"]}
    finish = "total"
    if cell.hidden_bias is not None:
        bias = cell.signed_bias(cell.hidden_bias).detach().double().numpy()
        product["b"], finish = Operand("b'", "i", bias), "total + b"
    old = place.step("U h + b'", "ti", finish, product, term="U * h", over="k", between="from_state")
    operands = {"r": place.own("reset", "ti"), "old": Operand(old.name, "ti", old.values), "x": x}
    new = place.step("n = tanh(W x + r ⊙ (U h + b'))", "ti", "tanh(x + r * old)", operands)
    return [*steps, old, new]


def lstm_memory(place: Place) -> list[Step] | None:
    """c = f ⊙ c + i ⊙ g, and the carry to the last step."""
    inputs = cell_inputs(place)
    if inputs is None or not isinstance(place.part, cells.LSTM):
        return None
    operands = {
        "f": place.own("forget", "ti"),
        "before": inputs.before["c"],
        "i": place.own("input", "ti"),
        "g": place.own("new", "ti"),
    }
    return [
        place.step("c = f ⊙ c₋₁ + i ⊙ g", "ti", "f * before + i * g", operands),
        carry_step(place, operands["f"].values),
    ]


def carry_step(place: Place, keep: np.ndarray) -> Step:
    """Π f over the later steps: each is the next f times the next carry."""
    unrolled = place.parent(recurrent.UnrolledCell)
    kept = keep[::-1] if unrolled is not None and unrolled[1].backward else keep
    following = np.concatenate([kept[1:], np.ones_like(kept[:1])])
    product = carry(kept)
    after = np.concatenate([product[1:], np.ones_like(product[:1])])
    if kept is not keep:
        following, after = following[::-1], after[::-1]
    operands = {
        "f": Operand("keeping gate of the next step", "ti", following),
        "carry": Operand("carry of the next step", "ti", after),
    }
    return place.step("carry = Π f over the later steps", "ti", "f * carry", operands, between="carry")


def lstm_output(place: Place) -> list[Step] | None:
    """h = o ⊙ tanh(c)"""
    cell = place.part
    if not isinstance(cell, cells.LSTM) or cell_inputs(place) is None:
        return None
    operands = {"o": place.own("output", "ti"), "c": place.own("c", "ti")}
    if cell.output == "linear":
        return [place.step("h = o ⊙ c", "ti", "o * c", operands)]
    return [place.step("h = o ⊙ tanh(c)", "ti", "o * tanh(c)", operands)]


def mixed(place: Place) -> list[Step] | None:
    """h = z ⊙ h₋₁ + (1 - z) ⊙ n"""
    inputs = cell_inputs(place)
    new = place.sibling("new" if isinstance(place.part, cells.GRU) else "candidate.new")
    if inputs is None or not place.log.has(new):
        return None
    if isinstance(place.part, cells.Gated) and not isinstance(place.part.candidate, cells.Vanilla):
        return None
    old = inputs.before["h"]
    operands = {
        "z": place.own("keep", "ti"),
        "before": Operand(old.name, "ti", old.values),
        "n": place.recorded(new, "ti"),
    }
    return [
        place.step("h = z ⊙ h₋₁ + (1 - z) ⊙ n", "ti", "z * before + (1 - z) * n", operands),
        carry_step(place, operands["z"].values),
    ]


def gated_keep(place: Place) -> list[Step] | None:
    """G = σ(W x + U h ± b) of the gate's own matrices."""
    part, inputs = place.part, cell_inputs(place)
    if not isinstance(part, cells.Gated) or inputs is None:
        return None
    steps, x = from_input(place, part.gate, slice(0, part.dim), inputs, part.candidate.width)
    operands = {
        "U": Operand("U", "ik", part.gate.hidden.detach().double().numpy()),
        "h": inputs.before["h"],
        "x": x,
    }
    step = place.step("G = σ(W x + U h)", "ti", "sigmoid(total + x)", operands, term="U * h", over="k")
    return [*steps, step]


def vanilla_state(place: Place) -> list[Step] | None:
    return [place.step("h = new", "ti", "new", {"new": place.own("new", "ti")})]


def layer_output(place: Place) -> list[Step] | None:
    """The outputs of both directions side by side, plus the input of the layer if there is a residual path."""
    stack, x = place.part, place.argument()
    if not isinstance(stack, recurrent.RNN) or x is None:
        return None
    layer = int(place.value.partition(".")[2])
    names = [f"{place.path}.layers.{layer}.{index}" for index in range(len(stack.unrolled_cells[layer]))]
    y = np.concatenate([place.log.values(name) for name in names], -1)
    operands = {"y": Operand(" and ".join(names), "ti", y)}
    below = place.sibling(f"output.{layer - 1}")
    old = place.operand(x, "ti", "x")
    if layer and place.log.has(below):
        old = place.recorded(below, "ti")
    elif layer:
        old = place.recorded(f"{place.path}.layers.{layer - 1}.0", "ti")
    if not stack.residual or old.values.shape != y.shape:
        return [place.step("y = [h→; h←]", "ti", "y", operands)]
    return [place.step("x + y", "ti", "x + y", {"x": old, **operands})]


def context(place: Place) -> list[Step] | None:
    """c = Σ α m over the source"""
    name = f"{place.path}.weights"
    calls = place.calls("encoder")
    if not place.log.has(name) or not calls or calls[0].output is None:
        return None
    weights = place.log.values(name)[0]
    operands = {
        "a": Operand(name, "ts", weights),
        "m": place.operand(calls[0].output, "si", "memory"),
    }
    return [place.step("c = Σ α m over the source", "ti", "total", operands, term="a * m", over="s")]


def decoder_output(place: Place) -> list[Step] | None:
    """y = tanh(W' [h; c; x] + b)"""
    part, calls = place.part, place.calls(f"{place.path}.out_proj")
    found = weights_of(part.out_proj) if isinstance(part, rnn_decoder.AttentiveRNN) else None
    if found is None or not calls:
        return None
    features = Operand("[h; c; x]", "tj", array(calls[0].arguments[0]))
    operands = {"W": Operand("W'", "ij", found[0]), "f": features}
    finish = "tanh(total)"
    if found[1] is not None:
        operands["b"], finish = Operand("b", "i", found[1]), "tanh(total + b)"
    return [place.step("y = tanh(W' [h; c; x] + b)", "ti", finish, operands, term="W * f", over="j")]


RECURRENT: dict[type[nn.Module], dict[str, Derivation]] = {
    cells.LSTM: {
        "input": gate("sigmoid"),
        "forget": gate("sigmoid"),
        "new": gate("tanh"),
        "output": gate("sigmoid"),
        "c": lstm_memory,
        "h": lstm_output,
    },
    cells.GRU: {"reset": gate("sigmoid"), "keep": gate("sigmoid"), "new": gru_new, "h": mixed},
    cells.Vanilla: {"new": gate("tanh"), "h": vanilla_state},
    cells.Gated: {"keep": gated_keep, "h": mixed},
    recurrent.UnrolledCell: {"": zoned_out},
    recurrent.RNN: {"output": layer_output},
    rnn_decoder.GlobalAttention: {"": context},
    rnn_decoder.AttentiveRNN: {"": decoder_output},
}


def query_and_key(place: Place, attention: rnn_decoder.GlobalAttention, child: str) -> list[Step] | None:
    """What a decoder's attention passes to its score: q = W_Q h and k = W_K m + b."""
    path = place.path.rpartition(".")[0]
    steps = []
    for name, module, side in (("query", attention.query, "t"), ("key", attention.key, "s")):
        calls = place.calls(f"{path}.{name}")
        if child != "score" or weights_of(module) is None or not calls:
            continue
        x = torch.cat([call.arguments[0] for call in calls], 1)
        operand = place.operand(x, f"{side}j", "h" if name == "query" else "memory")
        made = place.linear(module, operand, f"{name[0]} = W x", f"{side}k", name)
        if made is not None:
            steps.append(made)
    return steps


RECURRENT_INPUTS: dict[type[nn.Module], Callable[..., list[Step] | None]] = {
    rnn_decoder.GlobalAttention: query_and_key,
}

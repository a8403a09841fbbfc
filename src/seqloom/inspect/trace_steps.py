"""How one value follows from others: a step of a trace, and its computation in double precision.

Every step has one form, which the script of the page computes too:

    result[out] = finish(Σ over some indices of term(operands), operands)

An operand is an array with one letter for each axis: `W` "ij" and `x` "tj" give the linear map "ti" by the term `W * x` over j. An array may
be read twice under different letters: a softmax over s is the term `exp(all)`, `all` "hts" read as "htu", over u, and `exp(s) / total` at
the end. Letters: t position, s key, h head, w word; others are coordinates. `n` is the number of terms of a sum.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from seqloom.results import Result

Functions = Mapping[str, Callable[[np.ndarray], np.ndarray]]


def normal_cdf(a: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return ndtr(a)


def sigmoid(a: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * a))


FUNCTIONS: Functions = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "sigmoid": sigmoid,
    "normal_cdf": normal_cdf,
    "relu": lambda a: np.maximum(a, 0),
}
FLOAT_ERROR = 2e-6  # of a sum in single precision, relative to the sum of the absolute values of its terms
OPERATORS: dict[type[ast.operator], Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
}


@dataclass(frozen=True)
class Operand(Result):
    """An array that a step reads: its name for a reader, and one letter for each axis."""

    name: str
    axes: str
    values: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class Step(Result):
    """One value and how it is computed. A value without `finish` is given: no equation is known for it."""

    name: str
    part: str  # the class of the part
    formula: str  # for a reader
    axes: str
    values: np.ndarray = field(repr=False)
    recorded: bool  # whether the model computed it; the others are computed here, between two recorded ones
    side: str  # text or source: whose positions t are
    term: str = ""
    over: str = ""
    finish: str = ""
    operands: Mapping[str, Operand] = field(default_factory=dict, repr=False, metadata={"json": False})
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    shown: bool = field(default=True, repr=False)  # whether a page has it
    reach: float = field(default=0.0, repr=False)  # the largest sum of absolute values of its terms
    noise: float = field(default=0.0, repr=False)  # rounding error of operands that the model did not record
    error: float | None = (
        None  # largest difference to the equation in double precision, divided by the largest number in the sum
    )

    def checked(self) -> Step:
        """This step with its error; a value that is computed here gets its numbers."""
        if not self.finish:
            return self
        expected, size = evaluate(self)
        if not self.recorded:
            return replace(self, values=expected, reach=float(size.max(initial=0)))
        if expected.shape != self.values.shape:
            return replace(self, error=float("inf"))
        finite = np.isfinite(self.values)  # the scores of hidden keys are minus infinity
        size = np.broadcast_to(size, self.values.shape)[finite]
        difference = np.abs(expected - self.values)[finite]
        return replace(self, error=float(difference.max(initial=0)) / max(float(size.max(initial=0)), 1e-30))


def evaluate(step: Step) -> tuple[np.ndarray, np.ndarray]:
    """The result of a step, and the size of the numbers that it sums."""
    sizes = {
        letter: length
        for operand in step.operands.values()
        for letter, length in zip(operand.axes, operand.values.shape, strict=True)
    }
    known: dict[str, np.ndarray] = {}
    size: np.ndarray | None = None
    if step.over:
        known["n"] = np.array(float(np.prod([sizes[letter] for letter in step.over])))
        known["total"], size = contract(step)
    for name, operand in step.operands.items():
        if not set(operand.axes) & set(step.over):
            known[name] = align(operand.values, operand.axes, step.axes)
    result = np.broadcast_to(
        compute(step.finish, known), [sizes.get(letter, 1) for letter in step.axes]
    ).astype(np.float64)
    return result, np.abs(result) if size is None else np.maximum(np.abs(result), size)


def contract(step: Step) -> tuple[np.ndarray, np.ndarray]:
    """Σ of the terms, and Σ of their absolute values if the sum is the result, else 0."""
    names = factors(step.term)
    used = {name: operand for name, operand in step.operands.items() if name in names_of(step.term)}
    plain_sum = step.finish in ("total", "total + b")
    if names:
        spec = ",".join(used[name].axes for name in names) + "->" + step.axes
        arrays = [np.asarray(used[name].values, np.float64) for name in names]
        total = np.einsum(spec, *arrays, optimize=True)
        size = np.einsum(spec, *map(np.abs, arrays), optimize=True) if plain_sum else np.zeros_like(total)
        return total, size
    letters = step.axes + step.over
    aligned = {
        name: align(np.asarray(one.values, np.float64), one.axes, letters) for name, one in used.items()
    }
    axis = tuple(range(len(step.axes), len(letters)))
    terms = compute(step.term, aligned)
    return terms.sum(axis), np.abs(terms).sum(axis) if plain_sum else np.zeros(1)


def align(values: np.ndarray, axes: str, letters: str) -> np.ndarray:
    """The array with its axes in the order of `letters`, of length 1 where it has none."""
    order = sorted(range(len(axes)), key=lambda axis: letters.index(axes[axis]))
    moved = values.transpose(order)
    return moved.reshape([values.shape[axes.index(letter)] if letter in axes else 1 for letter in letters])


def names_of(expression: str) -> set[str]:
    """The variables of an expression."""
    nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    calls = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return {node.id for node in nodes if isinstance(node, ast.Name)} - calls


def factors(expression: str) -> list[str]:
    """The names of a product of names, such as `W * x`; none for other expressions."""
    names = [name.strip() for name in expression.split("*")]
    return names if all(name.isidentifier() for name in names) else []


def compute(expression: str, known: Mapping[str, np.ndarray]) -> np.ndarray:
    """An expression of + - * / and the functions above."""

    def value(node: ast.AST) -> np.ndarray:
        match node:
            case ast.Constant(value=number) if isinstance(number, int | float):
                return np.array(float(number))
            case ast.Name(id=name):
                return np.asarray(known[name], np.float64)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -value(inner)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                return OPERATORS[type(operator)](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=[inner]) if name in FUNCTIONS:
                return FUNCTIONS[name](value(inner))
        raise ValueError(f"{expression}: not an expression of a step")

    return value(ast.parse(expression, mode="eval").body)

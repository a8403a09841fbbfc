"""Reads the notation of docstrings: which pieces of a line are mathematics, prose, or numbers of the lectures.

The docstrings are written for people and follow no grammar. A piece that is not recognised as mathematics is prose.
"""

from __future__ import annotations

import inspect
import re
from typing import Literal, NamedTuple

FUNCTIONS = set(
    re.findall(
        r"\S+",
        "tanh softmax sigmoid sin cos exp log ln max min mean sum relu gelu ReLU GELU swish silu norm one-hot bias base logits head attend "
        "argmax argmin topk top sign diag mod var conv concat softplus clip rank",
    )
)
WORD = re.compile(r"[A-Za-z]{2,}(?:-[A-Za-z]{2,})*")
NAMED = re.compile(r"([A-Za-z]{2,}(?:-[A-Za-z]{2,})*)(?=[(₀-ₜᵢ-ᵪⱼ_]| ?[=←~] )")
REFERENCE = re.compile(r"\[(?:[A-Z]-?\d+)(?:[,:; ][^\]]*)?\]")
RELATION = re.compile(r"[=←→~≤≥∈∝]")
SIGN = re.compile(r"[=←→~≤≥∈∝+·⊙∘/√ΣΠ^|₀-ₜᵢ-ᵪⱼ]|\w\(")
HANGING = re.compile(r"[=←→~≤≥∈∝+\-−·⊙∘/√ΣΠ^(\[]\s*$")


class Piece(NamedTuple):
    """A part of a line."""

    kind: Literal["math", "prose", "reference"]
    text: str


def equation_names(lines: list[str]) -> set[str]:
    """Words that a docstring uses as names in its equations: those before a bracket, an index or an equals sign."""
    return FUNCTIONS | {word for line in lines for word in NAMED.findall(line)}


def parse(doc: str | None) -> tuple[list[str], list[str]]:
    """(equation, notes): the lines of the paragraphs with equations, and the other paragraphs, each as one line."""
    equation: list[str] = []
    notes: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(doc or "")):
        lines = [line.rstrip() for line in paragraph.splitlines() if line.strip()]
        if any(has_equation(line, equation_names(lines)) for line in lines):
            equation += lines
        elif lines:
            notes.append(" ".join(line.strip() for line in lines))
    return equation, notes


def has_equation(line: str, names: set[str]) -> bool:
    """Whether a line states an equation: it begins with mathematics, or has some with a relation."""
    parts = pieces(line, names)
    if parts and parts[0].kind == "math":
        return True
    return any(piece.kind == "math" and RELATION.search(piece.text) for piece in parts)


def pieces(line: str, names: set[str]) -> list[Piece]:
    """The mathematics, prose and references of a line, in order."""
    result: list[Piece] = []
    end = 0
    for match in [*REFERENCE.finditer(line), None]:
        text = line[end : match.start() if match else len(line)]
        for segment in re.split(r"\s{2,}", text.strip()):
            result += split(segment, names) if segment else []
        if match:
            result.append(Piece("reference", match.group()))
            end = match.end()
    return result


def split(segment: str, names: set[str]) -> list[Piece]:
    """The mathematics at the start of a segment, and the prose after it."""
    stop = len(segment)
    for match in re.finditer(r"`|" + WORD.pattern, segment):
        is_index = match.start() and segment[match.start() - 1] in "_^{"
        if match.group() not in names and not is_index:
            stop = match.start()
            break
    math = segment[:stop]
    if stop < len(segment):
        cuts = [m.end() for m in re.finditer(r"[,;:.](?= )", math) if balanced(math[: m.end()])]
        if cuts and (HANGING.search(math) or not RELATION.search(math[cuts[-1] :])):
            math = math[: cuts[-1]]
    if not balanced(math) or HANGING.search(math) or not SIGN.search(math):
        return [Piece("prose", segment)]
    rest = segment[len(math) :].strip()
    return [Piece("math", math.strip()), *([Piece("prose", rest)] if rest else [])]


def balanced(text: str) -> bool:
    """Whether every kind of bracket opens as often as it closes."""
    return all(text.count(left) == text.count(right) for left, right in ("()", "[]", "{}"))

"""Reads the notation of docstrings: which pieces of a line are mathematics, which prose, which numbers of the lectures.

The docstrings are written for people; nothing here is a rule for them. A piece that cannot be told apart stays prose.
"""

from __future__ import annotations

import inspect
import re
from typing import Literal, NamedTuple

KNOWN = set(
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
    kind: Literal["math", "prose", "reference"]
    text: str


def equation_names(lines: list[str]) -> set[str]:
    """Words that a docstring uses as names in its equations: before a bracket, an index or an equals sign."""
    return KNOWN | {word for line in lines for word in NAMED.findall(line)}


def parse(doc: str | None) -> tuple[list[str], list[str]]:
    """A docstring as the lines of the paragraphs that state equations, and the other paragraphs, each as one line."""
    equation, notes = [], []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(doc or "")):
        lines = [line.rstrip() for line in paragraph.splitlines() if line.strip()]
        if any(has_equation(line, equation_names(lines)) for line in lines):
            equation += lines
        elif lines:
            notes.append(" ".join(line.strip() for line in lines))
    return equation, notes


def has_equation(line: str, names: set[str]) -> bool:
    """Whether a line states an equation: it begins with mathematics, or holds some with a relation."""
    found = pieces(line, names)
    return bool(found) and (
        found[0].kind == "math"
        or any(piece.kind == "math" and RELATION.search(piece.text) for piece in found)
    )


def pieces(line: str, names: set[str]) -> list[Piece]:
    """The line as mathematics, prose and references, in order."""
    found: list[Piece] = []
    end = 0
    for match in [*REFERENCE.finditer(line), None]:
        text = line[end : match.start() if match else len(line)]
        for segment in re.split(r"\s{2,}", text.strip()):
            found += split(segment, names) if segment else []
        if match:
            found.append(Piece("reference", match.group()))
            end = match.end()
    return found


def split(segment: str, names: set[str]) -> list[Piece]:
    """The mathematics that a segment begins with, and the prose after it."""
    stop = len(segment)
    for match in re.finditer(r"`|" + WORD.pattern, segment):
        inside = match.start() and segment[match.start() - 1] in "_^{"
        if match.group() not in names and not inside:
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
    return all(text.count(left) == text.count(right) for left, right in ("()", "[]", "{}"))

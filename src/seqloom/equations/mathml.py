"""The notation of docstrings as MathML: indices, roots, fractions, sums, brackets. It never fails: what it cannot read stays as text.

Left out: matrices, cases and anything that the docstrings do not use.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape
from typing import NamedTuple

TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z]{2,}(?:-[a-z]{2,})*)"
    r"|(?P<below>[₀-₎ₐ-ₜᵢ-ᵪⱼ]+)|(?P<above>[⁰¹²³⁴-⁾ⁱⁿᵀᴴᵃ-ᵛʰʲʳˢˣ]+|['′]+)|(?P<letter>[^\W\d_][\u0300-\u036f]*)|(?P<sign>.)",
    re.DOTALL,
)
SIGNS = {"-": "−", "*": "·", "~": "∼", "Σ": "∑", "Π": "∏"}
CLOSE = {"(": ")", "[": "]", "{": "}"}


class Node(NamedTuple):
    xml: str
    sign: str | None = None  # the operator it is, where it is one
    inside: str | None = None  # what it holds, where it is a pair of round brackets


def math(text: str, block: bool = False) -> str:
    """One formula as a `<math>` element."""
    shape = ' display="block"' if block else ""
    try:
        inner = FormulaParser(text).formula()
    except (IndexError, RecursionError):
        inner = f"<mtext>{escape(text)}</mtext>"
    return f"<math{shape}>{inner}</math>"


class FormulaParser:
    """Walks the tokens of a formula once, from left to right."""

    def __init__(self, text: str, single: bool = False):
        found = [(match.lastgroup or "sign", match.group()) for match in TOKEN.finditer(text.strip())]
        apart = [
            [("letter", one) for one in text] if single and kind == "word" else [(kind, text)]
            for kind, text in found
        ]
        self.tokens = [token for tokens in apart for token in tokens]  # as indices, tj is t and j
        self.at = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        self.at += 1
        return self.tokens[self.at - 1]

    def formula(self) -> str:
        return self.row("")

    def row(self, close: str) -> str:
        """Everything up to the closing bracket, or up to the end."""
        nodes: list[Node] = []
        while self.peek()[0] != "end" and self.peek()[1] != close:
            kind, text = self.peek()
            if kind == "space":
                self.take()
                if nodes and nodes[-1].sign is None and self.starts():
                    nodes.append(Node('<mspace width="0.22em"/>', ""))
            elif text == "/" and nodes and nodes[-1].sign in (None, ""):
                self.fraction(nodes, close)
            else:
                nodes.append(self.primary())
        return "".join(node.xml for node in nodes)

    def starts(self) -> bool:
        """Whether what comes next is a factor, not an operator."""
        kind, text = self.peek()
        return kind in ("number", "word", "letter") or text in ("(", "[", "√", "Σ", "Π", "∂", "∞")

    def fraction(self, nodes: list[Node], close: str) -> None:
        """`a / b` takes the products on both sides, `a/b` what touches it."""
        wide = nodes[-1].sign == "" or self.peek(-1)[0] == "space"
        self.take()
        while self.peek()[0] == "space":
            self.take()
        above: list[Node] = []
        while nodes and (nodes[-1].sign in (None, "·") or (wide and nodes[-1].sign == "")):
            above.insert(0, nodes.pop())
        below: list[Node] = [] if self.peek()[1] in ("", close) else [self.primary()]
        while self.starts() or (wide and self.peek()[0] == "space" and self.next_starts()):
            if self.peek()[0] == "space":
                self.take()
                below.append(Node('<mspace width="0.22em"/>', ""))
            below.append(self.primary())
        nodes.append(Node(f"<mfrac>{bare(above)}{bare(below)}</mfrac>"))

    def next_starts(self) -> bool:
        self.at += 1
        found = self.starts()
        self.at -= 1
        return found

    def primary(self) -> Node:
        """One factor with its indices and its argument, or one operator."""
        kind, text = self.take()
        if kind == "number":
            return self.scripts(f"<mn>{text}</mn>")
        if kind in ("word", "letter") and text not in SIGNS:
            return self.call(self.scripts(f"<mi>{escape(unicodedata.normalize('NFC', text))}</mi>"))
        if kind == "below" or kind == "above":
            return Node(f"<mtext>{escape(text)}</mtext>")
        if text == "√":
            while self.peek()[0] == "space":
                self.take()
            return (
                Node(f"<msqrt>{bare([self.primary()])}</msqrt>")
                if self.peek()[0] != "end"
                else Node("<mo>√</mo>", "√")
            )
        if text in ("Σ", "Π"):
            return self.scripts(f'<mo movablelimits="false" largeop="false">{SIGNS[text]}</mo>', under=True)
        if text in CLOSE:
            return self.bracket(text)
        sign = SIGNS.get(text, text)
        return Node(f'<mo stretchy="false">{escape(sign)}</mo>', sign)

    def bracket(self, left: str) -> Node:
        inner = self.row(CLOSE[left])
        if self.peek()[0] == "end":  # no partner: a sign like any other
            return Node(f'<mo stretchy="false">{left}</mo>{inner}')
        self.take()
        made = self.scripts(
            f'<mrow><mo stretchy="false">{left}</mo>{inner}<mo stretchy="false">{CLOSE[left]}</mo></mrow>'
        )
        return made._replace(inside=inner) if left == "(" and made.xml.startswith("<mrow>") else made

    def call(self, name: Node) -> Node:
        """`f(x)` and `p[2k]`: a bracket that touches its name belongs to it."""
        if self.peek()[1] not in ("(", "["):
            return name
        return Node(f"<mrow>{name.xml}<mo>&#x2061;</mo>{self.bracket(self.take()[1]).xml}</mrow>")

    def scripts(self, base: str, under: bool = False) -> Node:
        """Indices below and above: hₜ₋₁, W_Q, x², base^(-2k/d), Wᵀ, k'."""
        below = above = ""
        while True:
            kind, text = self.peek()
            if kind == "below" and not below:
                self.take()
                below = FormulaParser(unicodedata.normalize("NFKC", text), single=True).formula()
            elif kind == "above" and text[0] in "'′":
                self.take()
                base = f'<mrow>{base}<mo lspace="0" rspace="0">{"′" * len(text)}</mo></mrow>'
            elif kind == "above" and not above:
                self.take()
                above = FormulaParser(unicodedata.normalize("NFKC", text), single=True).formula()
            elif text == "_" and not below and self.peek(1)[0] not in ("space", "end"):
                self.take()
                below = self.script()
            elif text == "^" and not above and self.peek(1)[0] not in ("space", "end"):
                self.take()
                above = self.script()
            else:
                break
        low, high = f"<mrow>{below}</mrow>", f"<mrow>{above}</mrow>"
        if under and (below or above):
            name = "munderover" if below and above else "munder" if below else "mover"
        else:
            name = "msubsup" if below and above else "msub" if below else "msup"
        return Node(
            f"<{name}>{base}{low if below else ''}{high if above else ''}</{name}>"
            if below or above
            else base
        )

    def script(self) -> str:
        kind, text = self.take()
        if text in ("(", "{"):
            inner = self.row(CLOSE[text])
            if self.peek()[0] != "end":
                self.take()
            return inner
        if text in ("-", "−", "+") and self.peek()[0] in ("number", "letter", "word"):
            return f"<mo>{SIGNS.get(text, text)}</mo>{self.script()}"
        return (
            f"<mn>{text}</mn>"
            if kind == "number"
            else f"<mi>{escape(text)}</mi>"
            if kind in ("word", "letter")
            else f"<mo>{escape(text)}</mo>"
        )


def bare(nodes: list[Node]) -> str:
    """Nodes as one row; a lone pair of brackets is not needed where the bar or the root already groups."""
    while nodes and nodes[0].sign == "":
        nodes = nodes[1:]
    while nodes and nodes[-1].sign == "":
        nodes = nodes[:-1]
    inner = (
        nodes[0].inside
        if len(nodes) == 1 and nodes[0].inside is not None
        else "".join(node.xml for node in nodes)
    )
    return f"<mrow>{inner}</mrow>"

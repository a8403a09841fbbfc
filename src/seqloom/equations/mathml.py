"""The notation of docstrings as MathML: indices, roots, fractions, sums, brackets.

It never fails: a formula that it cannot parse becomes plain text. Left out: matrices, cases and anything else that the
docstrings do not use.
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


SPACE = '<mspace width="0.22em"/>'


class Node(NamedTuple):
    """An element of a row."""

    xml: str
    sign: str | None = None  # the operator, if it is one; "" for a space
    inside: str | None = None  # the content, if it is a pair of round brackets


def math(text: str, block: bool = False) -> str:
    """One formula as a `<math>` element."""
    shape = ' display="block"' if block else ""
    try:
        inner = FormulaParser(text).formula()
    except (IndexError, RecursionError):
        inner = f"<mtext>{escape(text)}</mtext>"
    return f"<math{shape}>{inner}</math>"


class FormulaParser:
    """Reads the tokens of a formula once, from left to right.

    `split_words` is for indices, where a word is several letters: tj is t and j.
    """

    def __init__(self, text: str, split_words: bool = False):
        self.tokens: list[tuple[str, str]] = []  # (kind, text)
        for match in TOKEN.finditer(text.strip()):
            kind = match.lastgroup or "sign"
            if split_words and kind == "word":
                self.tokens += [("letter", letter) for letter in match.group()]
            else:
                self.tokens.append((kind, match.group()))
        self.index = 0

    def peek(self, offset: int = 0) -> tuple[str, str]:
        """The kind and the text of the next token, or of one `offset` further."""
        index = self.index + offset
        return self.tokens[index] if index < len(self.tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        """Reads the next token."""
        self.index += 1
        return self.tokens[self.index - 1]

    def formula(self) -> str:
        return self.row("")

    def row(self, close: str) -> str:
        """Everything up to the closing bracket, or up to the end."""
        nodes: list[Node] = []
        while self.peek()[0] != "end" and self.peek()[1] != close:
            kind, text = self.peek()
            if kind == "space":
                self.take()
                if nodes and nodes[-1].sign is None and self.factor_follows():
                    nodes.append(Node(SPACE, ""))
            elif text == "/" and nodes and nodes[-1].sign in (None, ""):
                self.fraction(nodes, close)
            else:
                nodes.append(self.primary())
        return "".join(node.xml for node in nodes)

    def factor_follows(self) -> bool:
        """Whether the next token begins a factor, not an operator."""
        kind, text = self.peek()
        return kind in ("number", "word", "letter") or text in ("(", "[", "√", "Σ", "Π", "∂", "∞")

    def fraction(self, nodes: list[Node], close: str) -> None:
        """`a / b` divides the products on both sides, `a/b` only the factors that touch the slash."""
        wide = nodes[-1].sign == "" or self.peek(-1)[0] == "space"
        self.take()
        while self.peek()[0] == "space":
            self.take()
        above: list[Node] = []
        while nodes and (nodes[-1].sign in (None, "·") or (wide and nodes[-1].sign == "")):
            above.insert(0, nodes.pop())
        below: list[Node] = [] if self.peek()[1] in ("", close) else [self.primary()]
        while self.factor_follows() or (wide and self.peek()[0] == "space" and self.factor_follows_space()):
            if self.peek()[0] == "space":
                self.take()
                below.append(Node(SPACE, ""))
            below.append(self.primary())
        nodes.append(Node(f"<mfrac>{bare(above)}{bare(below)}</mfrac>"))

    def factor_follows_space(self) -> bool:
        """Whether the token after the next begins a factor."""
        self.index += 1
        result = self.factor_follows()
        self.index -= 1
        return result

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
            if self.peek()[0] == "end":
                return Node("<mo>√</mo>", "√")
            return Node(f"<msqrt>{bare([self.primary()])}</msqrt>")
        if text in ("Σ", "Π"):
            return self.scripts(f'<mo movablelimits="false" largeop="false">{SIGNS[text]}</mo>', under=True)
        if text in CLOSE:
            return self.bracket(text)
        sign = SIGNS.get(text, text)
        return Node(f'<mo stretchy="false">{escape(sign)}</mo>', sign)

    def bracket(self, left: str) -> Node:
        """A pair of brackets with its content; the left one is already read."""
        inner = self.row(CLOSE[left])
        opening = f'<mo stretchy="false">{left}</mo>'
        if self.peek()[0] == "end":  # without a partner the bracket is an ordinary sign
            return Node(f"{opening}{inner}")
        self.take()
        closing = f'<mo stretchy="false">{CLOSE[left]}</mo>'
        node = self.scripts(f"<mrow>{opening}{inner}{closing}</mrow>")
        has_scripts = not node.xml.startswith("<mrow>")
        return node if left != "(" or has_scripts else node._replace(inside=inner)

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
                below = FormulaParser(unicodedata.normalize("NFKC", text), split_words=True).formula()
            elif kind == "above" and text[0] in "'′":
                self.take()
                base = f'<mrow>{base}<mo lspace="0" rspace="0">{"′" * len(text)}</mo></mrow>'
            elif kind == "above" and not above:
                self.take()
                above = FormulaParser(unicodedata.normalize("NFKC", text), split_words=True).formula()
            elif text == "_" and not below and self.peek(1)[0] not in ("space", "end"):
                self.take()
                below = self.script()
            elif text == "^" and not above and self.peek(1)[0] not in ("space", "end"):
                self.take()
                above = self.script()
            else:
                break
        if not below and not above:
            return Node(base)
        if under:
            tag = "munderover" if below and above else "munder" if below else "mover"
        else:
            tag = "msubsup" if below and above else "msub" if below else "msup"
        indices = "".join(f"<mrow>{index}</mrow>" for index in (below, above) if index)
        return Node(f"<{tag}>{base}{indices}</{tag}>")

    def script(self) -> str:
        """The index after `_` or `^`: a bracket, a signed or a single token."""
        kind, text = self.take()
        if text in ("(", "{"):
            inner = self.row(CLOSE[text])
            if self.peek()[0] != "end":
                self.take()
            return inner
        if text in ("-", "−", "+") and self.peek()[0] in ("number", "letter", "word"):
            return f"<mo>{SIGNS.get(text, text)}</mo>{self.script()}"
        tag = {"number": "mn", "word": "mi", "letter": "mi"}.get(kind, "mo")
        return f"<{tag}>{escape(text)}</{tag}>"


def bare(nodes: list[Node]) -> str:
    """Nodes as one row, without a single pair of brackets around them: the fraction bar or the root groups already."""
    while nodes and nodes[0].sign == "":
        nodes = nodes[1:]
    while nodes and nodes[-1].sign == "":
        nodes = nodes[:-1]
    if len(nodes) == 1 and nodes[0].inside is not None:
        return f"<mrow>{nodes[0].inside}</mrow>"
    return f"<mrow>{''.join(node.xml for node in nodes)}</mrow>"

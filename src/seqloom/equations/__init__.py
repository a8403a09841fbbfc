"""The mathematics of a model, read from the docstrings that stand above the lines which compute it, with sizes and costs counted."""

from __future__ import annotations

from typing import Literal

from seqloom.equations import html, text
from seqloom.equations.diff import Difference, diff
from seqloom.equations.parts import Explanation, PartSummary, explain

__all__ = ["Difference", "Explanation", "PartSummary", "diff", "explain", "render"]


def render(found: Explanation | Difference, form: Literal["text", "markdown", "html"] = "text") -> str:
    """An explanation or a comparison as a text to print or to write to a file."""
    one = isinstance(found, Explanation)
    if form == "html":
        return html.explanation(found) if one else html.comparison(found)
    if form == "markdown":
        return "\n".join(text.markdown(found) if one else text.markdown_differences(found)) + "\n"
    return "\n".join(text.text(found) if one else text.text_differences(found)) + "\n"

"""A model as equations: read from the docstrings of its parts, with sizes and costs counted."""

from __future__ import annotations

from typing import Literal

from seqloom.equations import html, text
from seqloom.equations.diff import Difference, diff
from seqloom.equations.parts import Explanation, PartSummary, explain

__all__ = ["Difference", "Explanation", "PartSummary", "diff", "explain", "render"]


def render(result: Explanation | Difference, form: Literal["text", "markdown", "html"] = "text") -> str:
    """An explanation or a difference as text, Markdown or an HTML page."""
    if isinstance(result, Explanation):
        if form == "html":
            return html.explanation(result)
        lines = text.markdown(result) if form == "markdown" else text.text(result)
    else:
        if form == "html":
            return html.comparison(result)
        lines = text.markdown_differences(result) if form == "markdown" else text.text_differences(result)
    return "\n".join(lines) + "\n"

"""The mathematics of a model, read from the docstrings that stand above the lines which compute it, with sizes and costs counted."""

from __future__ import annotations

from typing import Literal

from seqloom.explain import page, show
from seqloom.explain.differ import Comparison, differ
from seqloom.explain.parts import Explanation, Part, explain

__all__ = ["Comparison", "Explanation", "Part", "differ", "explain", "render"]


def render(found: Explanation | Comparison, form: Literal["text", "markdown", "html"] = "text") -> str:
    """An explanation or a comparison as a text to print or to write to a file."""
    one = isinstance(found, Explanation)
    if form == "html":
        return page.explanation(found) if one else page.comparison(found)
    if form == "markdown":
        return "\n".join(show.markdown(found) if one else show.markdown_differences(found)) + "\n"
    return "\n".join(show.text(found) if one else show.text_differences(found)) + "\n"

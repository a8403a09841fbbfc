"""What the site takes from the program itself: the command reference, the API, the parts with their equations, the notebook.

A page names what it wants in a comment, such as `<!-- commands -->`, which is replaced when the page is read. So the pages are
plain Markdown elsewhere.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import seqloom

DOCS = Path(__file__).resolve().parents[1]


def commands() -> str:
    """Every verb with its usage, examples and options, in the groups and the order of `seqloom --help`."""
    from seqloom.cli import app
    from seqloom.cli.app import arrange_help
    from seqloom.cli.names import VERBS

    arrange_help()
    reference = app.generate_docs(output_format="markdown", heading_level=2, usage_name="seqloom")
    sections = re.split(r"^(?=### )", reference, flags=re.MULTILINE)[1:]
    by_verb = {section.split()[2]: section for section in sections}
    grouped = {verb for verbs in VERBS.values() for verb in verbs}
    groups = {**VERBS, "More": sorted(verb for verb in by_verb if verb not in grouped and verb[0] != "-")}
    lines = []
    for group, verbs in groups.items():
        present = [command_section(by_verb[verb]) for verb in verbs if verb in by_verb]
        lines += [f"## {group}\n", *present] if present else []
    return "\n".join(lines)


def command_section(section: str) -> str:
    """A verb, or a group with its verbs: usage as text, examples as commands, the rest without HTML."""
    text = section.replace("```console", "```text").replace(
        " -m sphinx", ""
    )  # cyclopts adds how it was started
    text = re.sub(r"^\* `--(?:json|quiet, -q|verbose, -v)`:.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\*\*Output\*\*:\n\s*(?=#|\Z)", "", text, flags=re.MULTILINE)
    return "".join(with_examples(verb) for verb in re.split(r"^(?=###)", text, flags=re.MULTILINE))


def with_examples(text: str) -> str:
    """The text of one verb with its examples before its arguments."""
    from seqloom.cli import app

    command = app
    for name in text.split("\n")[0].split()[2:]:
        command = command[name]
    blocks = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    text = "".join(block if block.startswith("```") else block.replace("<", "&lt;") for block in blocks)
    lines = (command.help_epilogue or "").splitlines()[1:] if command is not app else []
    if not lines:
        return text
    examples = "```sh\n" + "\n".join(line.strip() for line in lines) + "\n```\n\n"
    before, mark, after = text.partition("**Arguments**")
    if not mark:
        before, mark, after = text.partition("**Options**")
    return before + examples + mark + after


def modules() -> list[Any]:
    """Every module of the package that can be imported without effect."""
    found = []
    for info in pkgutil.walk_packages(seqloom.__path__, "seqloom."):
        if not info.name.endswith("__main__"):
            found.append(importlib.import_module(info.name))
    return found


def rst(directive: str, name: str, *options: str) -> str:
    lines = "".join(f"   :{option}:\n" for option in options)
    return f"```{{eval-rst}}\n.. {directive}:: {name}\n{lines}```\n"


def functions() -> str:
    """The functions of `seqloom`."""
    names = [name for name in seqloom.__all__ if inspect.isfunction(getattr(seqloom, name))]
    return "\n".join(rst("autofunction", f"seqloom.{name}") for name in sorted(names))


def module(name: str) -> str:
    """The public functions and classes of a module of `seqloom`, without the classes of results, which have their own section."""
    from seqloom.results import Result

    names = getattr(seqloom, name).__all__
    values = {public: getattr(getattr(seqloom, name), public) for public in sorted(names)}
    shown = []
    for public, value in values.items():
        if inspect.isfunction(value):
            shown.append(rst("autofunction", f"seqloom.{name}.{public}"))
        elif inspect.isclass(value) and not issubclass(value, Result):
            shown.append(rst("autoclass", f"seqloom.{name}.{public}", "members"))
    return "\n".join(shown)


def classes() -> str:
    """The classes of `seqloom` that are neither results, nor errors, nor parts."""
    from torch.nn import Module

    from seqloom.results import Result

    elsewhere = (Result, BaseException, Module)
    names = [
        name
        for name in seqloom.__all__
        if inspect.isclass(value := getattr(seqloom, name)) and not issubclass(value, elsewhere)
    ]
    return "\n".join(rst("autoclass", f"seqloom.{name}", "members") for name in sorted(names))


def results() -> str:
    """Every class of results in the package."""
    from seqloom.results import Result

    modules()
    found = {subclass for subclass in subclasses(Result) if subclass.__module__.startswith("seqloom.")}
    names = sorted(
        (c.__name__, f"{c.__module__}.{c.__qualname__}") for c in found if not c.__name__.startswith("_")
    )
    return "\n".join(rst("autoclass", path) for _, path in names)


def errors() -> str:
    """Every exception of seqloom."""
    from seqloom.errors import Error

    names = sorted(c.__name__ for c in {Error, *subclasses(Error)} if c.__module__ == "seqloom.errors")
    return "\n".join(rst("autoclass", f"seqloom.errors.{name}", "show-inheritance") for name in names)


def subclasses(parent: type) -> set[type]:
    return {child for direct in parent.__subclasses__() for child in (direct, *subclasses(direct))}


def parts() -> str:
    """Every part of `seqloom.nn`, with its options and its equations as mathematics."""
    from seqloom import nn

    shown = []
    for name in sorted(nn.__all__, key=str.lower):
        part = getattr(nn, name)
        if inspect.isclass(part) and part.__module__.startswith("seqloom.nn"):
            shown.append(part_section(name, part))
    return "\n".join(shown)


def part_section(name: str, part: type) -> str:
    from seqloom.equations import html, notation

    equation, notes = notation.parse(part.__doc__)
    body = html.equation(equation) if equation else ""
    body += "".join(f"<p>{html.words(note)}</p>" for note in notes)
    return f"### {name}\n\n```python\n{name}({options(part)})\n```\n\n```{{raw}} html\n{body}\n```\n"


def options(part: type) -> str:
    """The options of a constructor with their types and defaults; a part that is a default is given by its name."""
    shown = []
    for option in list(inspect.signature(part.__init__).parameters.values())[1:]:
        if option.kind in (option.VAR_POSITIONAL, option.VAR_KEYWORD):
            continue
        annotation = option.annotation if isinstance(option.annotation, str) else ""
        default = option.default
        if default is not option.empty:
            default = getattr(getattr(default, "func", default), "__name__", None) or repr(default)
            annotation += f" = {default}"
        shown.append(f"{option.name}: {annotation}")
    return ", ".join(shown)


def notebook(path: str) -> str:
    """A notebook as a page: its text, its code and its stored outputs."""
    cells = json.loads((DOCS / path).read_text("utf-8"))["cells"]
    pieces = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            pieces.append(source)
            continue
        pieces.append(f"```python\n{source}\n```")
        pieces += [block for output in cell["outputs"] if (block := notebook_output(output))]
    return "\n\n".join(pieces)


def notebook_output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        body = "".join(data["text/html"])
    else:
        plain = "".join(output.get("text", data.get("text/plain", "")))
        body = f"<pre>{escape(plain.rstrip())}</pre>" if plain.strip() else ""
    return f'```{{raw}} html\n<div class="output">{body}</div>\n```' if body else ""


def page(path: str) -> str:
    """A page above docs/, with its links as they are seen from docs/."""
    text = (DOCS / path).read_text("utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\]\((CHANGELOG|CONTRIBUTING)\.md", lambda found: f"]({found[1].lower()}.md", text)


GENERATED: dict[str, Callable[..., str]] = {
    "commands": commands,
    "functions": functions,
    "module": module,
    "classes": classes,
    "results": results,
    "errors": errors,
    "parts": parts,
    "notebook": notebook,
    "page": page,
}


def expand(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replaces the comments of a page, and links to the pages above docs/ by those that include them."""
    text = source[0]
    text = re.sub(r"\]\(\.\./(CHANGELOG|CONTRIBUTING)\.md", lambda m: f"]({m[1].lower()}.md", text)
    names = "|".join(GENERATED)
    source[0] = re.sub(
        rf"<!-- ({names})(?: ([\w./-]+))? -->",
        lambda found: GENERATED[found[1]](*([found[2]] if found[2] else [])),
        text,
    )


def docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A docstring is plain text with `code`, not reStructuredText: escapes what would be markup."""
    lines[:] = [line for paragraph in paragraphs(lines) for line in paragraph]


def paragraphs(lines: list[str]) -> list[list[str]]:
    """A docstring as reStructuredText: examples and indented lines as they are written, the rest escaped."""
    shown: list[list[str]] = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        rows = block.split("\n")
        while rows:
            if rows[0].startswith(">>> "):
                shown.append([*rows, ""])  # an example lasts until a blank line
                break
            literal = rows[0].startswith("  ")
            kinds = [row.startswith("  ") == literal and row[:4] != ">>> " for row in rows]
            same = rows[: kinds.index(False)] if False in kinds else rows
            shown.append(["::", "", *same, ""] if literal else [*map(escaped, same), ""])
            rows = rows[len(same) :]
    return shown


def escaped(line: str) -> str:
    pieces = re.split(r"(`[^`]+`)", line)
    return "".join(
        f"``{piece[1:-1]}``"
        if len(piece) > 2 and piece[0] == piece[-1] == "`"
        else re.sub(r"([\\*_|`])", r"\\\1", piece)
        for piece in pieces
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", expand)
    app.connect("autodoc-process-docstring", docstring)
    return {"parallel_read_safe": True}

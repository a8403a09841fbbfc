"""The pages of the project, and the blocks of code in them.

A block is fenced and names its language. `sh`, `console`, `python` and `yaml` blocks are run by `page_runner.py`; `text` and the other
languages only show something. A block that cannot be run has a comment above it that says why, `<!-- not run: REASON -->`, and if later
blocks need what it makes, what is run in its place: `<!-- not run: REASON; instead: COMMAND -->`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = ("sh", "console", "python", "yaml")
SHOWN = ("text", "json", "html", "toml", "{toctree}")
NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->")


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    code: str
    not_run: str  # the reason, or ""

    @property
    def runs(self) -> bool:
        return self.language in RUN and (not self.not_run or self.instead != "")

    @property
    def instead(self) -> str:
        """The command that is run in place of a block that is not run."""
        return self.not_run.partition("; instead: ")[2]


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page in order."""
    found: list[Block] = []
    lines = page.split("\n")
    comment = ""
    number = 0
    while number < len(lines):
        line = lines[number]
        fence = re.match(r"( *)(`{3,})(\S*)", line)
        if not fence:
            if line.strip():
                comment = line.strip()
            number += 1
            continue
        indent, ticks, language = fence.groups()
        end = next(
            (later for later in range(number + 1, len(lines)) if lines[later].strip() == ticks), len(lines)
        )
        code = "\n".join(row.removeprefix(indent) for row in lines[number + 1 : end])
        reason = NOT_RUN.fullmatch(comment)
        found.append(Block(number + 1, language, code, reason[1] if reason else ""))
        comment = ""
        number = end + 1
    return found


def indented_commands(page: str) -> list[str]:
    """Lines that are indented as code and look like a command: they should be in a fenced block."""
    outside = re.sub(r"^( *)(`{3,}).*?^ *\2$", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.findall(
        r"^(?: {4,}|\t)(?:\$ )?((?:seqloom|python|torchrun|make|pip) .*)$", outside, re.MULTILINE
    )


class Command(NamedTuple):
    """A command of a console block, and what the page shows below it."""

    command: str
    output: str


def console(code: str) -> list[Command]:
    """The commands of a console block: lines after `$ `, continued after a backslash."""
    found: list[Command] = []
    for line in code.split("\n"):
        if found and found[-1].command.endswith("\\"):
            found[-1] = Command(f"{found[-1].command}\n{line}", "")
        elif line.startswith("$ "):
            found.append(Command(line[2:], ""))
        elif found:
            command, output = found[-1]
            found[-1] = Command(command, f"{output}{line}\n")
    return found

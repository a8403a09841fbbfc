"""Runs the blocks of one page in the current folder, in order: `python page_runner.py PAGE`.

`sh` blocks run in bash, `console` blocks command by command, `python` blocks in one namespace, which lives as long as the page. A
Python block that begins with a comment like `# mine.py` is appended to that file, and the file is run; a YAML block that begins so is
written. Where a page shows an error of seqloom, the command must fail with that line; every other command must succeed.
The first failure ends the program with a message and exit code 1.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, os.getcwd())  # as in `python script.py`

from support.pages import Block, blocks, console

TIMEOUT = 900
NAMED = re.compile(r"# ([\w.-]+\.(?:py|yaml))\n")
SHOWN_ERROR = re.compile(r"^seqloom: .*", re.MULTILINE)


class Failure(Exception):
    """A block that does not do what the page says."""


def run_shell(script: str, error: str = "") -> None:
    """Runs a script in bash; it must succeed, or fail with the line `error`."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
    )
    if error:
        if done.returncode != 2 or error not in done.stderr:
            raise Failure(f"exit code {done.returncode}, not 2 with {error!r}:\n{done.stdout}{done.stderr}")
    elif done.returncode:
        raise Failure(f"exit code {done.returncode}:\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
    if "is now" in done.stderr and "warning:" in done.stderr:
        raise Failure(f"an older name:\n{done.stderr[-1000:]}")


def run_console(code: str) -> None:
    commands = console(code)
    if not commands:
        raise Failure("a console block without a line that begins with '$ '")
    for command, output in commands:
        shown = SHOWN_ERROR.search(output)
        run_shell(command, shown[0] if shown else "")


def run_python(block: Block, page: str, namespace: dict[str, Any]) -> None:
    named = NAMED.match(block.code)
    if named:
        with open(named[1], "a", encoding="utf-8") as file:
            file.write(block.code[named.end() :] + "\n")
        run_shell(f"python {named[1]}")
    elif ">>> " in block.code:
        test = doctest.DocTestParser().get_doctest(block.code, namespace, page, page, block.line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        lines: list[str] = []
        runner.run(test, out=lines.append, clear_globs=False)
        namespace.update(test.globs)
        if runner.failures:
            raise Failure("".join(lines))
    else:
        exec(compile("\n" * block.line + block.code, page, "exec"), namespace)


def run_yaml(block: Block) -> None:
    yaml.safe_load(block.code)
    if named := NAMED.match(block.code):
        Path(named[1]).write_text(block.code, "utf-8")


def main(page: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks(Path(page).read_text("utf-8")):
        if not block.runs:
            continue
        started = time.monotonic()
        try:
            if block.instead:
                run_shell(block.instead)
            elif block.language == "sh":
                run_shell(block.code)
            elif block.language == "console":
                run_console(block.code)
            elif block.language == "python":
                run_python(block, page, namespace)
            else:
                run_yaml(block)
        except Failure as failure:
            sys.exit(f"{page}:{block.line}: {failure}\nin the block\n{block.code}")
        except Exception:
            sys.exit(f"{page}:{block.line}: {traceback.format_exc()}\nin the block\n{block.code}")
        print(f"{page}:{block.line}: {block.language}, {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

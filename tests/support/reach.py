"""Runs one command of seqloom and prints, as JSON, which files of the package it executes and which it imports, without `cli/`.

    python tests/support/reach.py train gpt --data input.txt --out runs/r train.steps=3

Calls that are made while a module is imported do not count as executed; neither do those of other threads and processes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any


def is_importing(frame: FrameType | None) -> bool:
    """Whether a call is part of the import of a module."""
    while frame is not None:
        code = frame.f_code
        if "importlib._bootstrap" in code.co_filename:
            return True
        if code.co_name == "<module>" and "seqloom" in code.co_filename:
            return True
        frame = frame.f_back
    return False


def main() -> None:
    import seqloom
    from seqloom.cli import main as run

    root = Path(seqloom.__file__).parent
    names: dict[str, str | None] = {}
    executed: dict[str, int] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        if file not in names:
            path = Path(file)
            names[file] = str(path.relative_to(root)) if path.is_relative_to(root) else None
        name = names[file]
        if name is None or name.startswith("cli") or (name not in executed and is_importing(frame.f_back)):
            return
        executed[name] = executed.get(name, 0) + 1

    sys.argv = ["seqloom", *sys.argv[1:]]
    code: Any = 0
    sys.setprofile(profile)
    try:
        run()
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.setprofile(None)
    files = [
        Path(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)
    ]
    inside = [file.relative_to(root) for file in files if file.is_relative_to(root)]
    imported = sorted(str(file) for file in inside if file.parts[0] != "cli")
    print(json.dumps({"code": code or 0, "executed": executed, "imported": imported}))


if __name__ == "__main__":
    main()

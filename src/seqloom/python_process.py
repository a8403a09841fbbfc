"""Python processes that seqloom starts: the same interpreter and the same package, and nothing of the current folder.

`python -m` puts the current folder first on `sys.path`, so that a `json.py` or `torch.py` there would run; `-P` does not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the package."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment(variables: Mapping[str, str] = {}) -> dict[str, str]:
    """The environment of such a process, with some more variables. It imports the package from where this process did, and its own
    children are as safe.

    An empty entry of PYTHONPATH would mean the current folder.
    """
    paths = [str(Path(__file__).resolve().parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONSAFEPATH": "1",
        **variables,
    }

"""Attack: a folder whose files have the names of common modules, and the settings of tools. No verb may run one of them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from attack import Count
from attack.playground import build, command_line, verbs
from seqloom.python_process import python_command, python_environment

# What the program, its children and their libraries import.
MODULES = """
    abc argparse ast asyncio base64 bisect codecs collections contextlib copy csv ctypes cyclopts
    dataclasses datetime decimal encodings enum fcntl functools gzip hashlib heapq importlib inspect
    io itertools json llvmlite logging math multiprocessing numba numpy os pathlib pickle platform
    random re rich safetensors scipy seqloom shutil signal sitecustomize site sklearn socket
    statistics struct subprocess tempfile threading time tokenizers torch types typing unicodedata
    usercustomize uuid warnings yaml zlib zoneinfo
""".split()  # noqa: SIM905
CANARY = "import os\nopen(os.path.join({place!r}, {name!r}), 'w').close()\nraise ImportError('the canary of {name}')\n"
DRIVER = """
import sys
from seqloom.cli import main
import json
for name, words in json.loads(sys.argv[1]):
    print("verb:", name, file=sys.stderr, flush=True)
    try:
        main(words)
    except SystemExit as end:
        if end.code:
            print("ended with", end.code, file=sys.stderr, flush=True)
"""


def plant(folder: Path, sung: Path) -> int:
    """Writes the canaries, and a configuration that would have numba unpickle files of this folder; how many there are."""
    for name in MODULES:
        (folder / f"{name}.py").write_text(CANARY.format(place=str(sung), name=name), "utf-8")
    (folder / ".numba_config.yaml").write_text(f"cache_dir: {sung / 'numba'}\n", "utf-8")
    return len(MODULES) + 1


def attack(seed: int, amount: float) -> list[Count]:
    import json

    with tempfile.TemporaryDirectory(prefix="seqloom-canaries-") as name:
        folder, sung = Path(name) / "here", Path(name) / "sung"
        folder.mkdir()
        sung.mkdir()
        build(folder)
        canaries = plant(folder, sung)
        short = str(Path(__file__).parents[1] / "support" / "short_trainings")
        environment = python_environment(
            {"XDG_CACHE_HOME": str(Path(name) / "cache"), "OMP_NUM_THREADS": "1", "SEQLOOM_THREADS": "1"}
        )
        # Without -P, as the first process of a user has it: the script `seqloom` puts its own folder on sys.path, not the current one.
        del environment["PYTHONSAFEPATH"]
        environment["PYTHONPATH"] += f":{short}"
        words = [(verb, command_line(verb, f"out-{verb.replace(' ', '-')}")) for verb in verbs()]
        words.sort(key=lambda command: command[0] != "demo")  # others use its run
        neural = ["lstm-lm", "--data", "text.txt", "--steps", "2", "--seeds", "1", "--out", "study"]
        words.append(("compare, with trainings in processes of their own", ["compare", *neural]))
        driver = Path(name) / "driver.py"
        driver.write_text(DRIVER, "utf-8")
        done = subprocess.run(
            [sys.executable, str(driver), json.dumps(words)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        failures = [f"{path.name} of the current folder ran" for path in sorted(sung.iterdir())]
        verb = ""
        for line in done.stderr.splitlines():
            verb = line if line.startswith("verb:") else verb
            if "bug in seqloom" in line or line.startswith("ended with"):
                failures.append(f"{verb}: {line}")
        if done.returncode:
            failures.append(f"the driver ended with {done.returncode}: {done.stderr[-300:]}")
        return [
            Count("", "canaries in the current folder x verbs", canaries * len(words), failures),
            Count("", "canaries that sing if they are heard (control)", 1, control(folder, sung)),
        ]


def control(folder: Path, sung: Path) -> list[str]:
    """Without -P the canary of json must sing."""
    environment = python_environment()
    del environment["PYTHONSAFEPATH"]
    command = [word for word in python_command("json.tool", "--help") if word != "-P"]
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    return [] if any(sung.iterdir()) else ["no canary was heard"]

"""Attack: nothing that can run code of a file is called in the source, nor happens while runs are loaded, used and measured."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attack import Count
from attack.playground import build, command_line
from seqloom.python_process import python_environment

SOURCE = Path(__file__).resolve().parents[2] / "src" / "seqloom"
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "runpy"}
FORBIDDEN_CALLS = {"eval", "exec", "__import__", "compile"}
FORBIDDEN_METHODS = {
    "torch.load",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "pickle.loads",
}
ALLOWED = {("own_parts.py", "exec"), ("cli/inputs.py", "exec")}  # the user's own Python file of --code
VERBS = (
    "generate",
    "score",
    "embed",
    "evaluate",
    "predict",
    "translate",
    "fill-mask",
    "runs show",
    "inspect tokens",
    "export",
    "import",
)
# Events that mean code from elsewhere, or a connection. numba unpickles what it compiled itself.
DRIVER = """
import json, os, sys
events, here = [], os.getcwd()
OWN = ("numba", "llvmlite", "builtins", "copyreg", "seqloom.kernels", "numpy", "collections", "types")
def hook(event, arguments):
    if event == "pickle.find_class" and not str(arguments[0]).startswith(OWN):
        events.append(f"pickle.find_class {arguments[:2]}")
    elif event in ("socket.connect", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn"):
        events.append(f"{event} {str(arguments)[:100]}")
    elif event == "exec" and getattr(arguments[0], "co_filename", "").startswith(here):
        events.append(f"exec {arguments[0].co_filename}")
from seqloom.cli import main
sys.addaudithook(hook)
found = []
for words in json.loads(sys.argv[1]):
    events.clear()
    try:
        main(words)
    except SystemExit as end:
        if end.code:
            found.append(f"{' '.join(words)}: exit code {end.code}")
    found += [f"{' '.join(words)}: {event}" for event in events]
print(json.dumps(found))
"""


def scan(path: Path) -> Iterator[str]:
    """What a file of the source calls or imports that can run the code of a file."""
    name = str(path.relative_to(SOURCE))
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = (
                [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            )
            for module in modules:
                if module.split(".")[0] in FORBIDDEN_MODULES and not (
                    isinstance(node, ast.ImportFrom) and node.level
                ):
                    yield f"{name}:{line} imports {module}"
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in FORBIDDEN_CALLS and (name, called) not in ALLOWED:
            yield f"{name}:{line} calls {called}"
        if called in FORBIDDEN_METHODS:
            yield f"{name}:{line} calls {called}"
        keywords = {one.arg: ast.unparse(one.value) for one in node.keywords}
        if called in ("np.load", "numpy.load") and keywords.get("allow_pickle", "False") != "False":
            yield f"{name}:{line} allows pickles"
        if keywords.get("shell") == "True":
            yield f"{name}:{line} starts a shell"


def attack(seed: int, amount: float) -> list[Count]:
    files = sorted(SOURCE.rglob("*.py"))
    scanned = Count(
        "R18",
        "source files without pickle, eval or shell",
        len(files),
        [one for path in files for one in scan(path)],
    )
    with tempfile.TemporaryDirectory(prefix="seqloom-audit-") as name:
        folder = Path(name)
        build(folder)
        words = [command_line(verb, f"out-{index}") for index, verb in enumerate(VERBS)]
        environment = python_environment({"XDG_CACHE_HOME": f"{name}/.cache", "OMP_NUM_THREADS": "1"})
        done = subprocess.run(
            [sys.executable, "-P", "-c", DRIVER, json.dumps(words)],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    try:
        failures = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        failures = [f"the driver ended with {done.returncode}: {done.stderr[-300:]}"]
    return [
        scanned,
        Count("R18", "verbs without pickle, process or connection (audit hook)", len(words), failures),
    ]

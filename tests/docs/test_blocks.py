"""Every block of code on the pages runs: `make test-docs`. Trainings in them are cut to a few steps (tests/support/short_trainings)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import page_files, pages

SUPPORT = Path(pages.__file__).parent
SOURCE = pages.ROOT / "src"
RUNNABLE = [
    page for page in pages.PAGES if any(block.runs for block in pages.blocks(page.read_text("utf-8")))
]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of the blocks: `seqloom` and `python` are the ones under test, with a cache that the pages share."""
    programs = tmp_path_factory.mktemp("bin")
    for name, command in {
        "seqloom": "-m seqloom",
        "python": "",
        "torchrun": "-m torch.distributed.run",
    }.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n', "utf-8")
        program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEQLOOM_", "COV_"))}
    return {
        **kept,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{SUPPORT / 'short_trainings'}{os.pathsep}{SOURCE}",
        "PYTHONWARNINGS": "error::DeprecationWarning:__main__",
        "OMP_NUM_THREADS": "1",
        "BROWSER": "true",  # what --open calls
        "TQDM_DISABLE": "1",
    }


@pytest.mark.docs
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, environment: dict[str, str], tmp_path: Path) -> None:
    code = "\n".join(block.code for block in pages.blocks(page.read_text("utf-8")) if block.runs)
    page_files.make_files(code, tmp_path)
    command = [sys.executable, str(SUPPORT / "page_runner.py"), str(page)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1190, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr


@pytest.mark.docs
def test_a_training_is_cut_wherever_it_is_started(environment: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nseqloom train gpt model.dim=16 model.stack.layers=1 --data input.txt --out runs/a\n```\n"
        "```python\nimport json\nassert json.load(open('runs/a/results.json'))['steps'] == 3\n```\n",
        "utf-8",
    )
    page_files.make_files("input.txt", tmp_path)
    command = [sys.executable, str(SUPPORT / "page_runner.py"), str(page)]
    subprocess.run(command, cwd=tmp_path, env=environment, timeout=900, check=True)


@pytest.mark.docs
@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```sh\nfalse\n```", "exit code 1"),
        ("```sh\nfalse | true\n```", "exit code 1"),
        ("```console\n$ echo fine\nfine\n$ false\n```", "exit code 1"),
        ("```console\n$ seqloom explain nothing\nseqloom: another sentence\n```", "another sentence"),
        ("```python\nx = 1\n```\n```python\nassert x == 2\n```", "AssertionError"),
        ("```python\n>>> 1 + 1\n3\n```", "Expected"),
        ("```yaml\na: [\n```", "ParserError"),
    ],
)
def test_a_wrong_block_is_found(
    block: str, message: str, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "page.md").write_text(f"Some text.\n\n{block}\n", "utf-8")
    command = [sys.executable, str(SUPPORT / "page_runner.py"), "page.md"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 1
    assert "page.md:" in done.stderr
    assert message in done.stderr

"""The table of promises says what the tests say: kept, broken, not applicable."""

import subprocess
import sys
from pathlib import Path

STATED = """
from types import SimpleNamespace
import pytest

CASES = [SimpleNamespace(name=name, causal=name != "whole") for name in ("good", "bad", "whole", "long" * 40, "long" * 39 + "last")]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
causal = pytest.mark.parametrize("case", [case for case in CASES if case.causal], ids=lambda case: case.name)

# 1. Equation

@every
def test_equation(case):
    pass

# 2. Gradient

@every
@pytest.mark.parametrize("form", [0, 1])
def test_gradient(case, form):
    assert not (case.name == "bad" and form)

# 3. Whole = steps

@causal
def test_steps(case):
    pass

@every
def test_fresh_start(case):
    pass

# 4. Padding

@every
def test_padding(case):
    if case.name == "whole":
        pytest.skip("not for this one")

# 5. Fast = plain

@every
def test_fast(case):
    pass
"""
RUN = "import sys, pathlib; from support import promises; promises.STATED = pathlib.Path(sys.argv[1]); sys.exit(promises.main())"


def table(stated: str, folder: Path) -> tuple[int, list[str]]:
    (folder / "test_stated.py").write_text(stated, "utf-8")
    command = [sys.executable, "-c", RUN, str(folder / "test_stated.py")]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def test_kept_broken_and_not_applicable(tmp_path: Path):
    code, lines = table(STATED, tmp_path)
    rows = {line.split()[0]: "".join(line.split()[-5:]) for line in lines[1:6]}
    assert code == 1 and lines[0].split() == ["equation", "gradient", "steps", "padding", "fast"]
    assert rows["good"] == "✓✓✓✓✓" and rows["bad"] == "✓✗✓✓✓" and rows["whole"] == "✓✓––✓"
    assert lines[4] != lines[5] and all(len(line) <= 120 for line in lines[:8])
    assert "5 parts and variants, 22 promises kept, 1 broken, 2 not applicable" in lines[7]
    assert any(line.startswith("✗ test_gradient[") and "bad" in line for line in lines)


def test_all_kept_is_success_and_a_broken_file_is_not(tmp_path: Path):
    assert table(STATED.replace('case.name == "bad"', "False"), tmp_path)[0] == 0
    code, lines = table("import nothing_of_the_kind", tmp_path)
    assert code == 1 and any("nothing_of_the_kind" in line for line in lines)

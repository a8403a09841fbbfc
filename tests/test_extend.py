"""Parts of the user's own: the very examples of docs/extend.md, through every verb, without touching seqloom."""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch

import seqloom
from seqloom.cli import main
from seqloom.config_tree import UnknownType
from seqloom.equations import explain
from seqloom.files import sha256
from seqloom.nn import RNN, Layer, Norm
from seqloom.nn.cells import HiddenState, LinearCell
from seqloom.run_config import Config
from seqloom.testing import check_part

PAGE = (Path(__file__).parents[1] / "docs" / "extend.md").read_text("utf-8")
TINY = [
    "model.dim=8",
    "model.stack.dim=6",
    "batches.width=9",
    "batches.batch=5",
    "train.steps=12",
    "train.eval_every=6",
    "train.save_every=5",
    "train.average_checkpoints=0",
]


def written(folder: Path) -> list[str]:
    """The files that the page tells the user to write; pieces of one file follow one another."""
    files: dict[str, str] = {}
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL):
        files[name] = files.get(name, "") + code
    for name, code in files.items():
        (folder / name).write_text(code, "utf-8")
    return sorted(files)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("user")
    assert written(folder) == ["mine.py", "prove.py", "use.py"]
    spec = importlib.util.spec_from_file_location("mine", folder / "mine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_cell_takes_at_most_fifteen_lines():
    (cell,) = re.findall(r"class MinimalGate.*?(?=```)", PAGE, re.DOTALL)
    assert len(cell.strip().splitlines()) <= 15


def test_the_page_runs_as_it_stands(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    written(tmp_path)
    (tmp_path / "input.txt").write_bytes(text.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    runpy.run_path("use.py")
    used = capsys.readouterr().out
    assert "MinimalGate (size 32, dim 48)" in used and "g = tanh(W' x + U' (f ⊙ h) + b')" in used
    runpy.run_path("prove.py")
    (promised,) = re.findall(r"```text\n(✓.*?)```", PAGE, re.DOTALL)
    assert capsys.readouterr().out == promised
    del sys.modules["mine"]


def test_a_cut_run_of_ones_own_cell_ends_with_the_same_bits(mine: ModuleType, tmp_path: Path, text: Path):
    options = {"data": [str(text)], "progress": False, "parts": [mine.MinimalGate]}
    seqloom.fit("lstm-lm", "model.stack.cell=MinimalGate", *TINY, out=tmp_path / "whole", **options)
    seqloom.fit("lstm-lm", "model.stack.cell={type: MinimalGate}", *TINY, out=tmp_path / "cut", **options)
    later = sorted((tmp_path / "cut" / "checkpoints").glob("step-*"))[-1]
    (later / "state.json").write_text(
        "{"
    )  # as a disk leaves it that failed: the run falls back to the one before
    (tmp_path / "cut" / "model.safetensors").unlink()
    seqloom.fit(str(tmp_path / "cut"), out=tmp_path / "cut", **options)
    assert sha256(tmp_path / "cut" / "model.safetensors") == sha256(tmp_path / "whole" / "model.safetensors")


def test_a_run_with_an_unknown_part_says_how_to_hand_it_over(mine: ModuleType, tmp_path: Path, text: Path):
    seqloom.fit(
        "lstm-lm",
        "model.stack.cell=MinimalGate",
        *TINY,
        data=[str(text)],
        out=tmp_path / "run",
        progress=False,
        parts=[mine.MinimalGate],
    )
    for use in (seqloom.load, explain, Config.load):
        with pytest.raises(
            UnknownType, match=r"no part is called 'MinimalGate'.*--code FILE.py, or parts=\[…\]"
        ):
            use(str(tmp_path / "run"))
    loaded = seqloom.load(tmp_path / "run", parts=[mine.MinimalGate])
    assert isinstance(loaded.model.stack.layers[0][0].cell, mine.MinimalGate)
    found = explain(str(tmp_path / "run"), parts=[mine.MinimalGate])
    assert found.parameters == sum(p.numel() for p in loaded.model.parameters())


def test_a_name_that_is_mistyped_is_told_its_neighbour(mine: ModuleType):
    with pytest.raises(ValueError, match="did you mean 'MinimalGate'"):
        Config.load("lstm-lm", ["model.stack.cell=MinimalGaet"], parts=[mine.MinimalGate])
    with pytest.raises(ValueError, match="Angle cannot be used here"):
        Config.load("lstm-lm", ["model.stack.cell=Angle"], parts=[mine.Angle])


def test_what_is_no_part_is_refused_in_a_sentence(mine: ModuleType):
    LSTM = type("LSTM", (mine.MinimalGate,), {})
    other = type("MinimalGate", (mine.MinimalGate,), {})
    for parts, sentence in (
        ([LSTM], "parts: LSTM is the name of a built-in part; rename your class"),
        ([mine.MinimalGate, other], "parts: MinimalGate is the name of another of your parts"),
        (["MinimalGate"], "parts: 'MinimalGate' is not a part class"),
        ([print], "is not a part class"),
        ([dict], "is not a part class"),
        ([partial(mine.MinimalGate)], "is not a part class"),
    ):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            Config.load("lstm-lm", parts=parts)
    Config.load("lstm-lm", ["model.stack.cell=MinimalGate"], parts=[mine.MinimalGate, mine.MinimalGate])


@pytest.mark.parametrize(
    "name, change",
    [
        ("MinimalGate", "stack.cell"),
        ("Angle", "stack.score"),
        ("LogDistance", "stack.position"),
        ("RunningMean", "stack"),
    ],
)
def test_every_kind_keeps_the_promises_and_learns(
    mine: ModuleType, tmp_path: Path, text: Path, name: str, change: str
):
    part = getattr(mine, name)
    rows = check_part(part)
    assert [row.passed for row in rows] == [None, *[True] * 5], "; ".join(map(str, rows))
    preset = (
        ["lstm-lm", "batches.width=9"]
        if name in ("MinimalGate", "RunningMean")
        else ["gpt", "model.stack.heads=2", "model.stack.layers=1"]
    )
    changes = [f"model.{change}={name}", "model.dim=8", "train.steps=4", "train.eval_every=4"]
    run = seqloom.fit(*preset, *changes, data=[str(text)], out=tmp_path / "run", progress=False, parts=[part])
    assert run.results.steps == 4
    assert name in {entry.name for entry in explain(str(tmp_path / "run"), parts=[part]).parts}


class Forgets(LinearCell):
    """Keeps something on the side, which no state holds."""

    def __init__(self, size: int, dim: int):
        super().__init__(size, dim, blocks=1, bias="plus")
        self.memory = 0.0

    def gates(self, share, state, seen):
        self.memory = 0.5 * self.memory + float(share.detach().abs().mean())
        return {"new": (share + seen @ self.hidden.T + self.memory).tanh()}

    def update(self, gates, state):
        return HiddenState(gates["new"])


class Detached(LinearCell):
    def __init__(self, size: int, dim: int):
        super().__init__(size, dim, blocks=1, bias="plus")

    def gates(self, share, state, seen):
        return {"new": (share + seen @ self.hidden.detach().T).tanh()}

    def update(self, gates, state):
        return HiddenState(gates["new"])


class Peeks(Layer):
    def __init__(self, size: int):
        super().__init__()
        self.dim, self.weight = size, torch.nn.Parameter(torch.ones(size))

    def start(self, batch, memory=None):
        return None

    def forward(self, x, state=None, mask=None):
        return (x - x.mean(1, keepdim=True)) * self.weight, None


class BatchMean(Norm):
    def __init__(self, dim: int):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.gain * (x - x.mean())


class Rounded(RNN):
    """Its fast form is another function."""

    def forward(self, x, state=None, mask=None):
        from seqloom.fused.dispatch import fused_enabled

        y, state = super().forward(x, state, mask)
        return (y * 1.001 if fused_enabled() else y), state


@pytest.mark.parametrize(
    "part, broken",
    [
        (Forgets, "whole = steps"),
        (Forgets, "padding changes nothing"),
        (Detached, "gradient"),
        (Peeks, "never looks ahead"),
        (Peeks, "whole = steps"),
        (BatchMean, "padding changes nothing"),
        (Rounded, "fast = plain"),
    ],
)
def test_a_broken_promise_is_found(part: type, broken: str):
    rows = {row.promise: row for row in check_part(part)}
    assert rows[broken].passed is False and rows[broken].reason


def test_a_wrong_equation_is_found(mine: ModuleType):
    wrong = check_part(mine.Angle, lambda score, q, k: 8 * q @ k)[0]
    right = check_part(mine.Angle, lambda score, q, k: 8 * q @ k / (q.norm() * k.norm()))[0]
    assert wrong.passed is False and "differs by" in wrong.reason and right.passed


def test_checking_leaves_no_trace(mine: ModuleType):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    check_part(mine.MinimalGate)
    assert torch.equal(torch.rand(1), expected) and torch.get_default_dtype() == torch.float32
    with pytest.raises(ValueError, match="Linear is not a Cell"):
        check_part(torch.nn.Linear)


def test_the_command_line_takes_the_code(mine: ModuleType, tmp_path: Path, text: Path, capsys):
    folder, code = str(tmp_path / "run"), ["--code", str(mine.__file__)]
    seqloom.fit(
        "lstm-lm",
        {"model.stack.cell": mine.MinimalGate},
        *TINY,
        data=[str(text)],
        out=folder,
        progress=False,
    )
    main(["generate", folder, "the", "--max-tokens", "3", *code])
    main(["explain", folder, *code])
    assert "MinimalGate" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["generate", folder, "the"])
    assert stop.value.code == 2 and "--code FILE.py" in capsys.readouterr().err

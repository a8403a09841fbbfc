"""The examples of CONTRIBUTING.md, extracted from the page and run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import seqloom
import seqloom.fused
import seqloom.kernels
from seqloom import testing
from seqloom.fused.dispatch import plain
from seqloom.nn import RNN, cells

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")


def blocks(path: str) -> list[str]:
    """The code blocks of the page that begin with a comment with this path."""
    code = re.findall(rf"```(?:python|yaml)\n# {re.escape(path)}\n(.*?)```", PAGE, re.DOTALL)
    assert code, f"CONTRIBUTING.md has no example of {path}"
    return code


@pytest.fixture(scope="module")
def leaky() -> type[cells.Cell]:
    """The cell, as if its block were appended to nn/cells.py."""
    namespace = dict(vars(cells))
    exec(blocks("src/seqloom/nn/cells.py")[0], namespace)
    return namespace["Leaky"]


@pytest.fixture(scope="module")
def fast_leaky(leaky: type[cells.Cell], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The cell with its kernel: the modules of the page join the packages `kernels` and `fused`."""
    folder = tmp_path_factory.mktemp("contributing")
    with pytest.MonkeyPatch.context() as patch:
        for package in (seqloom.kernels, seqloom.fused):
            name = package.__name__.rpartition(".")[2]
            (folder / name).mkdir()
            (folder / name / "leaky.py").write_text(blocks(f"src/seqloom/{name}/leaky.py")[0], "utf-8")
            patch.setattr(package, "__path__", [*package.__path__, str(folder / name)])
        patch.setattr("seqloom.kernels.host.cache_dir", lambda: str(folder / "cache"))
        namespace = {**vars(cells), "Leaky": leaky}
        exec(blocks("src/seqloom/nn/cells.py")[1], namespace)
        yield namespace["FastLeaky"]
    for name in ("seqloom.kernels.leaky", "seqloom.fused.leaky"):
        sys.modules.pop(name, None)


def literal(cell: Any, x: Tensor) -> Tensor:
    """The numpy reference of the page, unrolled over x (T, size)."""
    namespace: dict[str, Any] = {"np": np}
    exec(blocks("tests/support/reference_recurrent.py")[0], namespace)
    state = [np.zeros(cell.dim)]
    outputs = []
    for step in x.detach().numpy():
        state = namespace["leaky"](cell, step, state)
        outputs.append(state[0])
    return torch.from_numpy(np.array(outputs))


def broken(results: list[testing.CheckResult]) -> list[str]:
    """The results that do not start with a check mark."""
    return [str(result) for result in results if not str(result).startswith("✓")]


def test_the_cell_keeps_every_promise(leaky: type[cells.Cell]) -> None:
    assert not broken(testing.check_part(leaky, literal))


def test_the_cell_and_the_preset_train(leaky: type[cells.Cell], text: Path, tmp_path: Path) -> None:
    preset = tmp_path / "leaky-lm.yaml"
    preset.write_text(blocks("src/seqloom/presets/leaky-lm.yaml")[0], "utf-8")
    options = ["model.dim=8", "model.stack.dim=6", "batches.width=9", "train.steps=2", "train.eval_every=2"]
    run = seqloom.fit(
        str(preset), *options, data=[str(text)], out=tmp_path / "run", progress=False, parts=[leaky]
    )
    assert run.results.steps == 2


@pytest.mark.parametrize(
    "flags, expected", [([], "2 lines, 5 words\n"), (["--json"], '{"lines": 2, "words": 5}\n')]
)
def test_the_command_answers(tmp_path: Path, flags: list[str], expected: str) -> None:
    (tmp_path / "word_count.py").write_text(blocks("src/seqloom/cli/word_count.py")[0], "utf-8")
    (tmp_path / "text.txt").write_text("the old king\nsleeps well\n", "utf-8")
    program = "import sys, word_count; from seqloom.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "word-count", "text.txt", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=800, check=True)
    assert done.stdout == expected


def test_the_kernel_is_the_equation(fast_leaky: Any) -> None:
    assert not broken(testing.check_part(fast_leaky, literal))


@pytest.mark.parametrize("padded", [False, True])
def test_the_kernel_equals_the_plain_form_with_its_gradients(
    fast_leaky: Any, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer = RNN(5, 4, cell=fast_leaky)
    x = torch.randn(3, 7, 5, requires_grad=True)
    mask = torch.arange(7) < torch.tensor([[7], [4], [0]]) if padded else None
    calls = []
    apply = sys.modules["seqloom.fused.leaky"].LeakyRecurrence.apply
    monkeypatch.setattr(
        sys.modules["seqloom.fused.leaky"].LeakyRecurrence,
        "apply",
        lambda *args: calls.append(args) or apply(*args),
    )

    def gradients() -> list[Tensor]:
        y, state = layer(x, None, mask)
        loss = (y * torch.arange(7.0)[:, None]).sum() + state[0][0].h.square().sum()
        return [y, state[0][0].h, *torch.autograd.grad(loss, [x, *layer.parameters()])]

    fast = gradients()
    with plain():
        expected = gradients()
    assert len(calls) == 1
    for value, other in zip(fast, expected, strict=True):
        torch.testing.assert_close(value, other)


def test_where_the_kernel_does_not_apply_the_plain_form_runs(
    fast_leaky: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("the kernel was called")

    monkeypatch.setattr(sys.modules["seqloom.fused.leaky"].LeakyRecurrence, "apply", fail)
    layer = RNN(5, 4, cell=fast_leaky)
    x = torch.randn(2, 3, 5)
    with plain():
        assert layer(x)[0].shape == (2, 3, 4)
    half = layer.to(torch.bfloat16)
    assert half(x.to(torch.bfloat16))[0].dtype is torch.bfloat16

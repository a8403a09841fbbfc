"""Run folders of older versions load, evaluate, generate and continue training as when they were written.

`golden/` holds small runs of every kind, finished and interrupted, with the results of the version that
wrote them (`golden/make.py`). Modules, parts, options and weights may get other names; the results of an old
folder stay.

Loaded weights must be equal to the bit. Computed numbers may differ a little, since processors and versions
of torch sum in different orders. With the processor and the versions that made the runs,
SEQLOOM_GOLDEN_BITS=1 also compares weights after training bit by bit, and SEQLOOM_GOLDEN_BITS=files the files
themselves, names included.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import seqloom

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import observe

BITS = os.environ.get("SEQLOOM_GOLDEN_BITS", "")
FOLDERS = observe.folders()
EXPECTED = {folder: json.loads((folder / "expected.json").read_text("utf-8")) for folder in FOLDERS}


def having(key: str) -> pytest.MarkDecorator:
    """Runs a test for each golden folder of which something is expected."""
    chosen = [folder for folder in FOLDERS if key in EXPECTED[folder]]
    return pytest.mark.parametrize("folder", chosen, ids=lambda folder: f"{folder.parent.name}/{folder.name}")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all golden runs and their data, which the copies that tests work on refer to."""
    target = tmp_path_factory.mktemp("golden")
    shutil.copytree(observe.ROOT / "data", target / "data")
    for folder in FOLDERS:
        observe.copy(folder, target / folder.parent.name / folder.name, target)
    return target


@pytest.fixture
def places(folder: Path, root: Path, tmp_path: Path) -> dict[str, Path]:
    """A copy of the golden folder to work on, and where commands find it and write."""
    run = observe.copy(folder, tmp_path / folder.name, root)
    return {observe.PLACEHOLDER: root, "RUN": run, "OUT": tmp_path / "out"}


def assert_close(expected: Any, actual: Any, relative: float = 1e-4, absolute: float = 1e-5) -> None:
    """Texts are equal, numbers nearly."""
    found = observe.differences(expected, actual, relative, absolute)
    assert not found, "; ".join(found[:5])


def assert_works(expected: dict[str, Any], places: dict[str, Path]) -> None:
    """A finished run has the outputs and gives the results that are expected."""
    run = seqloom.load(places["RUN"])
    assert_close(expected["outputs"], observe.outputs(run), relative=0, absolute=1e-5)
    assert observe.tokens(run) == expected["tokens"]
    assert_commands(expected["commands"], places)


def assert_commands(commands: list[dict[str, Any]], places: dict[str, Path]) -> None:
    """Commands give the results that are expected."""
    for one in commands:
        expected = observe.present_output(one["arguments"], one["output"])
        assert_close(expected, observe.command(one["arguments"], places))


def test_there_are_golden_runs() -> None:
    assert len(FOLDERS) > 50


@having("weights")
def test_a_finished_run_loads_and_works(folder: Path, places: dict[str, Path]) -> None:
    expected = EXPECTED[folder]
    assert observe.weights(seqloom.load(places["RUN"])) == expected["weights"]
    assert_works(expected, places)


@having("resume")
def test_a_run_resumes_to_the_same_end(folder: Path, places: dict[str, Path]) -> None:
    """An interrupted run is finished; one that was finished already stays as it is."""
    expected = EXPECTED[folder]["resume"]
    observe.command(expected["arguments"], places)
    run = seqloom.load(places["RUN"])
    assert_close(expected["metrics"], observe.metrics(run.folder), absolute=1e-5)
    assert_close(expected["numbers"], observe.held_out(run))
    assert_works(expected, places)
    if BITS:
        assert observe.metrics(run.folder) == expected["metrics"]
        assert observe.weights(run) == expected["weights"]
    if BITS == "files":
        assert observe.file_digests(run.folder)["model.safetensors"] == expected["files"]["model.safetensors"]


@having("continue")
def test_training_begins_from_an_old_run(folder: Path, places: dict[str, Path]) -> None:
    expected = EXPECTED[folder]["continue"]
    observe.command(expected["arguments"], places)
    assert_close(expected["metrics"], observe.metrics(places["OUT"]))
    if BITS:
        assert observe.metrics(places["OUT"]) == expected["metrics"]


@pytest.mark.parametrize(
    "folder",
    [folder for folder in FOLDERS if "weights" not in EXPECTED[folder] and "commands" in EXPECTED[folder]],
    ids=lambda folder: f"{folder.parent.name}/{folder.name}",
)
def test_word_vectors_and_classifiers_work(folder: Path, places: dict[str, Path]) -> None:
    expected = EXPECTED[folder]
    assert_commands(expected["commands"], places)
    if "convert" in expected:
        observe.command(expected["convert"]["arguments"], places)
        assert places["OUT"].read_text("utf-8").splitlines() == expected["convert"]["lines"]

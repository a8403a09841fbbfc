"""The short forms of the attacks on runs; `make attack` and the marker `attack` run the long ones."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from attack import bad_numbers, damaged_run, interrupted_runs, killed_writers, ranks, shared_folder, young_run

ATTACKS = {
    "young": (young_run, 0.3),
    "damaged": (damaged_run, 0.3),
    "interrupted": (interrupted_runs, 0.4),
    "shared": (shared_folder, 0.5),
    "writers": (killed_writers, 0.3),
    "numbers": (bad_numbers, 0.25),
    "ranks": (ranks, 0.1),
}


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SEQLOOM_CACHE", os.environ.get("SEQLOOM_CACHE", ""))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    yield


@pytest.mark.timeout(1800)  # only against a hang
@pytest.mark.parametrize("name", ATTACKS)
def test_no_case_of_an_attack_fails(name: str) -> None:
    module, amount = ATTACKS[name]
    for count in module.attack(0, amount):
        count.assert_none_failed(at_least=1 if count.code == "R6" else 3)


@pytest.mark.attack
@pytest.mark.timeout(6000)
@pytest.mark.parametrize("name", ATTACKS)
def test_no_case_of_a_long_attack_fails(name: str) -> None:
    for count in ATTACKS[name][0].attack(1, 16):
        count.assert_none_failed(at_least=10 if count.code != "R5" else 3)

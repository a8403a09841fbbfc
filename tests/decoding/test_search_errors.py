"""What searches find on random small models of four kinds; bench/search.py counts the same on five hundred."""

import importlib.util
import itertools
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "search.py"
spec = importlib.util.spec_from_file_location("bench_search", BENCH)
search = importlib.util.module_from_spec(spec)
spec.loader.exec_module(search)


@pytest.mark.parametrize("kind, seed", itertools.product(search.KINDS, range(1000, 1006)))
def test_no_search_beats_the_exact_one_and_a_beam_of_one_is_greedy(kind: str, seed: int) -> None:
    best, greedy, beams = search.found(search.model(kind, seed), seed)
    assert all(value <= best + 1e-9 for value in (greedy, *beams.values()))
    assert beams[1] == pytest.approx(greedy)


def test_the_command_prints_its_counts(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["search.py", "--models", "4", "--seed", "7"])
    search.main()
    said = capsys.readouterr().out
    assert "4 models: exact search was beaten 0 times; a beam of one was greedy on all" in said and all(
        kind in said for kind in search.KINDS
    )

"""Lets the tests of this folder import the corpora beside them; a run for each task, trained once."""

from collections.abc import Iterator

import pytest

import seqloom
from seqloom.run import Run
from support.labelled_data import OPTIONS, conllu, put, squad, table
from support.quick_training import at_once


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    with at_once():
        yield


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Task → training file, test file."""
    place, made = tmp_path_factory.mktemp("corpora"), {}
    for side, count, seed in (("train", 250, 0), ("test", 60, 1)):
        rows = table(count * 2, seed)
        made[side] = {
            "tagger": put(place / f"{side}.conllu", conllu(count, seed)),
            "classifier": put(
                place / f"{side}.tsv",
                "".join(f"{a}\t{'king' if 'king' in a else 'none'}\n" for a, _, _, _ in rows),
            ),
            "nli": put(
                place / f"{side}-pairs.tsv", "".join(f"{a}\t{b}\t{label}\n" for a, b, label, _ in rows)
            ),
            "similarity": put(
                place / f"{side}-scores.tsv", "".join(f"{a}\t{b}\t{score}\n" for a, b, _, score in rows)
            ),
            "qa": put(place / f"{side}.json", squad(count, seed, True)),
        }
    return {name: (made["train"][name], made["test"][name]) for name in made["train"]}


@pytest.fixture(scope="session")
def trained(corpora: dict[str, tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Task → a run that has learnt it."""
    place, runs = tmp_path_factory.mktemp("runs"), {}
    with at_once():
        for name, options in OPTIONS.items():
            seqloom.fit(name, *options, data=[corpora[name][0]], out=place / name, progress=False)
            runs[name] = seqloom.load(place / name)
    return runs

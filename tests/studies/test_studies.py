"""The comparison: made once, added to, refused where figures are not alike."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from sacrebleu.metrics import BLEU

from seqloom import world
from seqloom.cli import main
from seqloom.measure.number import Number
from seqloom.run import PRESETS, Config, find_config
from seqloom.studies import Study, prepare, rows, run_all
from seqloom.studies.published import TABLE2
from seqloom.studies.report import curves, render
from seqloom.studies.resize import resize
from seqloom.studies.table import buckets, paired_bootstrap, shared_signature, translations_of


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """The world's text and two tiny systems."""
    folder = tmp_path_factory.mktemp("compare")
    world.write(folder / "world", train=300, valid=20, test=12)
    for name, encoder in (("small", {"type": "RNN", "direction": "both"}), ("other", {"type": "RNN"})):
        tree = yaml.safe_load((PRESETS / "rnnsearch.yaml").read_text("utf-8"))
        tree["model"] |= {"dim": 8, "encoder": encoder, "decoder": {"type": "AttentiveRNN", "dim": 8}}
        tree["tokenizer"]["size"] = 300
        tree["train"] |= {"eval_every": 2}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(tree), "utf-8")
    return folder


def study(place: Path, *systems: str, steps: int = 4, seeds: int = 1) -> Study:
    sides = [
        tuple(str(place / "world" / f"{side}.{tongue}") for tongue in ("en", "fr"))
        for side in ("train", "valid", "test")
    ]
    return Study(
        place / "runs",
        tuple(str(place / f"{system}.yaml") for system in systems),
        *sides,
        ("steps", steps),
        seeds,
        beam=2,
    )


def test_a_study_runs_is_added_to_and_trains_nothing_twice(place: Path) -> None:
    first = study(place, "small")
    prepare(first)
    assert run_all(first, print, threads=1) == [] and [row.system for row in rows(first)] == ["small"]
    before = {
        path: path.stat().st_mtime_ns for path in (place / "runs" / "small").rglob("*") if path.is_file()
    }
    both = study(place, "small", "other")
    prepare(both)
    assert run_all(both, print, threads=1) == []
    found = rows(both)
    assert {row.system for row in found} == {"small", "other"} and found[0].rank == 1
    assert list(curves(both, found)) == [row.system for row in found] and list(curves(both, found[::-1])) == [
        row.system for row in found[::-1]
    ]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    results = json.loads((place / "runs" / "other" / "seed-0" / "results.json").read_text("utf-8"))
    [other] = [row for row in found if row.system == "other"]
    assert other.flops == pytest.approx(results["FLOPs per token"] * results["tokens"]) and other.steps == 4
    assert other.tokens == results["tokens"] > 0 and other.memory > 2**20
    with pytest.raises(ValueError, match="another budget"):
        prepare(study(place, "small", steps=5))


def test_ensembles_cost_what_their_members_cost_and_one_of_equals_is_one(place: Path, tmp_path: Path) -> None:
    joined = study(place, "small", "other", seeds=2)._replace(folder=tmp_path / "runs", ensembles=True)
    prepare(joined)
    assert run_all(joined, print, threads=1) == []
    found = {row.system: row for row in rows(joined)}
    assert set(found) == {"small", "other", "small × 2", "other × 2", "all together"}
    assert found["small × 2"].parameters == 2 * found["small"].parameters and found[
        "small × 2"
    ].flops == pytest.approx(2 * found["small"].flops)
    assert found["all together"].parameters == found["small"].parameters + found["other"].parameters
    assert render(joined, list(found.values()), []).count("all together") >= 2
    one = tmp_path / "runs" / "small" / "seed-0"
    alone, _ = translations_of(joined, one)
    assert translations_of(joined, one, one)[0] == alone


@pytest.mark.parametrize(
    "code, stops", [(130, True), (143, True), (-15, True), (-2, True), (2, False), (-9, False)]
)
def test_a_stopped_training_stops_the_study_and_a_failed_one_does_not(
    place: Path, tmp_path: Path, monkeypatch, code: int, stops: bool
) -> None:
    both = study(place, "small", "other")._replace(folder=tmp_path / "runs")
    monkeypatch.setattr(
        subprocess, "run", lambda command, **options: subprocess.CompletedProcess(command, code)
    )
    if stops:
        with pytest.raises(KeyboardInterrupt):
            run_all(both, print)
    else:
        assert len(run_all(both, print)) == 2


@pytest.mark.parametrize("system", TABLE2)
def test_every_system_takes_the_wanted_size(system: str) -> None:
    """As near as widths of 8 come, counted on the model itself."""
    tree = resize(find_config(system)[0], 1_000_000)
    model = Config(tree).model(4000)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(1e6, rel=0.08)
    assert {key: value for key, value in tree.items() if key != "model"} == {
        k: v for k, v in find_config(system)[0].items() if k != "model"
    }


def test_a_size_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="choose a number in this range"):
        resize(find_config("transformer")[0], 10)


def test_wrong_studies_are_refused_before_any_training(place: Path, tmp_path: Path) -> None:
    for change, sentence in (
        ({"systems": ()}, "at least one"),
        ({"systems": ("transformer", "transformer")}, "each once"),
        ({"systems": ("transfromer",)}, "transformer"),
        ({"test": ("nowhere.en", "nowhere.fr")}, "no such file"),
        ({"budget": ("minutes", 0.0)}, "above 0"),
    ):
        wrong = study(place, "small")._replace(folder=tmp_path / "runs", **change)
        with pytest.raises(ValueError, match=sentence):
            prepare(wrong)
    assert not (tmp_path / "runs").exists()


def test_buckets_hold_every_sentence_once() -> None:
    sources = ["a " * n for n in [1, 1, 2, 3, 3, 3, 4, 5, 9, 9, 12, 30]]
    found = buckets(sources, 4)
    for source in sources:
        assert sum(low <= len(source.split()) <= high for low, high in found) == 1
    assert found[0][0] == 1 and found[-1][1] == 30 and len(found) == 4
    assert buckets(["a b", "c d"]) == [(2, 2)]


def test_figures_of_unlike_signatures_refuse_to_share_a_column() -> None:
    alike = [Number("BLEU", 1.0, "BLEU|tok:13a|seed:0"), Number("BLEU", 2.0, "BLEU|tok:13a|seed:12")]
    assert shared_signature(alike) == "BLEU|tok:13a"
    with pytest.raises(ValueError, match="different signatures"):
        shared_signature([*alike, Number("BLEU", 3.0, "BLEU|tok:char|seed:0")])


def test_the_paired_bootstrap_tells_better_from_same() -> None:
    references = [
        f"the {animal} crosses the {place} number {n}"
        for n, (animal, place) in enumerate([("dog", "street"), ("cat", "river")] * 30)
    ]
    worse = [line.replace("crosses", "is") for line in references]
    p, interval = paired_bootstrap(("right", references), ("wrong", worse), references)
    assert p < 0.05 and interval >= 0
    assert BLEU().corpus_score(worse, [references]).score < 100
    p, _ = paired_bootstrap(("one", worse), ("same", list(worse)), references)
    assert p == 1
    half = [good if n % 2 else bad for n, (good, bad) in enumerate(zip(references, worse, strict=True))]
    other = [bad if n % 2 else good for n, (good, bad) in enumerate(zip(references, worse, strict=True))]
    p, _ = paired_bootstrap(("even", half), ("odd", other), references)
    assert p > 0.05


def test_the_command_makes_table_page_and_json(place: Path, tmp_path: Path, capsys) -> None:
    sides = [
        str(place / "world" / f"{side}.{tongue}")
        for side in ("train", "valid", "test")
        for tongue in ("en", "fr")
    ]
    command = [
        "compare",
        str(place / "small.yaml"),
        "--data",
        *sides[:2],
        "--valid",
        *sides[2:4],
        "--test",
        *sides[4:],
    ]
    main([*command, "--steps", "2", "--beam", "2", "--threads", "1", "--out", str(tmp_path / "c"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["system"] for row in found["rows"]] == ["small"] and found["failed"] == []
    text = Path(found["page"]).read_text("utf-8")
    assert "Published figures" in text
    assert not re.search(r"<(script|img|iframe)[^>]*\ssrc=|<link|@import", text), "the page fetches something"
    with pytest.raises(SystemExit) as end:
        main(["compare", "small", "--minutes", "1", "--steps", "2"])
    assert end.value.code == 2 and "has one" in capsys.readouterr().err

"""The comparison: trained once, added to, refused where figures are not alike; for every task and for finished runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from seqloom import world
from seqloom.cli import main
from seqloom.config_source import find_config
from seqloom.errors import UserError
from seqloom.measure.by_length import ScoredRecords
from seqloom.measure.number import Number
from seqloom.run_config import PRESETS, Config
from seqloom.studies import Study, compare
from seqloom.studies import training as studies_training
from seqloom.studies.cautions import cautions
from seqloom.studies.measuring import SCORES, Measured
from seqloom.studies.published import TABLE2
from seqloom.studies.resize import resize
from seqloom.studies.study import open_folder
from seqloom.studies.systems import System, parse_systems
from seqloom.studies.table import ResultRow, interval_of, p_value, seeds_interval

TINY_LM = ("model.dim=16", "model.stack.layers=1", "batches.batch=4", "batches.width=16")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world's text and two tiny translators."""
    folder = tmp_path_factory.mktemp("compare")
    world.write(folder / "world", train=300, valid=20, test=12)
    for name, encoder in (("small", {"type": "RNN", "direction": "both"}), ("other", {"type": "RNN"})):
        tree = yaml.safe_load((PRESETS / "rnnsearch.yaml").read_text("utf-8"))
        tree["model"] |= {"dim": 8, "encoder": encoder, "decoder": {"type": "AttentiveRNN", "dim": 8}}
        tree["tokenizer"]["size"] = 300
        tree["train"] |= {"eval_every": 2}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(tree), "utf-8")
    return folder


def sides(place: Path) -> dict[str, list[str]]:
    return {
        option: [str(place / "world" / f"{side}.{language}") for language in ("en", "fr")]
        for option, side in (("data", "train"), ("valid", "valid"), ("test", "test"))
    }


def test_translators_are_trained_once_and_added_to(place: Path, tmp_path: Path) -> None:
    options = {
        **sides(place),
        "steps": 4,
        "seeds": 1,
        "threads": 1,
        "out": tmp_path / "study",
        "progress": False,
    }
    first = compare(str(place / "small.yaml"), **options)
    assert [row.system for row in first.rows] == ["small"] and set(first.rows[0].metrics) == {"bleu", "chrf"}
    run = tmp_path / "study" / "runs" / "small" / "seed-0"
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    both = compare(str(place / "small.yaml"), str(place / "other.yaml"), **options, ensembles=True)
    assert {row.system for row in both.rows} == {"small", "other", "all together"} and both.rows[0].rank == 1
    assert {path: path.stat().st_mtime_ns for path in before} == before
    rows = {row.system: row for row in both.rows}
    assert rows["all together"].parameters == rows["small"].parameters + rows["other"].parameters
    assert rows["small"].steps == 4 and rows["small"].flops and rows["small"].memory > 2**20
    assert both.page is not None and "The same sentences" in both.page.read_text("utf-8")
    assert json.loads((tmp_path / "study" / "table.json").read_text("utf-8")) == both.to_dict()
    with pytest.raises(ValueError, match=r"another budget \(4 steps, not 5 steps\); .*study-2$"):
        compare(str(place / "small.yaml"), **{**options, "steps": 5})
    assert "<table" in both._repr_html_()


def test_language_models_are_compared_by_bits_per_byte(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Two systems with other tokenizers, the second with a change of its own; a test share is the end of the text."""
    text = tmp_path / "input.txt"
    text.write_text("".join(f"the cat {number} sat on the mat .\n" for number in range(400)), "utf-8")
    command = ["compare", *TINY_LM, "gpt", "gpt", "tokenizer={type: BPE, size: 300}", "--data", str(text)]
    command += ["--steps", "4", "--seeds", "2", "--threads", "1", "--out", str(tmp_path / "study")]
    main([*command, "--json"])
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert result["task"] == "language modelling" and not result["failed"]
    assert "the study is finished" not in output.err
    (caution,) = result["warnings"]
    assert caution.startswith("hardly trained: gpt") and caution.count("(4 steps)") == 2
    assert f"warning: {caution}" in output.err
    assert "<b>Caution:</b> hardly trained" in (tmp_path / "study" / "compare.html").read_text("utf-8")
    assert {row["system"] for row in result["rows"]} == {"gpt", "gpt tokenizer={type: BPE, size: 300}"}
    assert all(row["interval"] is not None and row["seeds"] == 2 for row in result["rows"])
    test = tmp_path / "study" / "data" / "test.txt"
    assert text.read_bytes().endswith(test.read_bytes())
    assert len(test.read_bytes()) == pytest.approx(text.stat().st_size / 10, rel=0.02)
    assert re.fullmatch(
        rf"bits\|bytes:{len(test.read_bytes())}\|data:\w{{8}}\|.*seeds:2", result["signature"]
    )
    main(command)
    output = capsys.readouterr()
    assert f"{tmp_path / 'study'}: the study is finished; the table is that of its 4 runs of 2" in output.err
    lines = output.out.splitlines()
    assert lines[0].split()[:5] == ["system", "rank", "note", "bits/byte", "±"]
    assert lines[-1].startswith("page: ") and any("no comparison per token" in line for line in lines)
    run = tmp_path / "study" / "runs" / "gpt" / "seed-0"
    main(["evaluate", str(run), str(test), "--json"])
    bits = {number["name"]: number["value"] for number in json.loads(capsys.readouterr().out)["numbers"]}
    row = next(row for row in result["rows"] if row["system"] == "gpt")
    assert row["metrics"]["bits_per_byte"] == pytest.approx(bits["bits_per_byte"], abs=0.5)


@pytest.mark.parametrize(
    "costs, budget, expected",
    [
        ([(900, 100.0, 1e6), (900, 101.0, 1e6)], "minutes", []),
        (
            [(900, 100.0, 1e6), (1, 0.5, 1e3)],
            "minutes",
            ["hardly trained: b (1 step);", "not kept: a 100 s, b 0 s"],
        ),
        ([(900, 100.0, 1e6), (900, 300.0, 1e6)], "steps", []),
        ([(900, 100.0, 1e6), (900, 300.0, 3e6)], "finished", []),  # equal steps are a fair budget too
        (
            [(900, 100.0, 1e6), (90, 10.0, 1e5)],
            "finished",
            ["budgets differ: a 100 s, 1,000,000 tokens, b 10 s"],
        ),
        ([(900, 100.0, 1e6), (0, None, 0.0)], "finished", []),  # imported: nobody knows
    ],
)
def test_a_table_of_unlike_trainings_says_so(costs, budget: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("train: {steps: 1}\n", "utf-8")
    systems = tuple(System(name, name, is_finished=budget == "finished") for name in "ab")
    unit = "minutes" if budget == "finished" else budget
    study = Study(tmp_path, "language modelling", systems, budget=(unit, 100 / 60))
    rows = [
        ResultRow(
            system=name,
            seeds=1,
            metrics={"bits_per_byte": 2.0},
            interval=None,
            spread=0.0,
            rank=1,
            tie=False,
            p=None,
            parameters=10,
            flops=None,
            tokens=tokens,
            steps=steps,
            seconds=seconds,
            memory=None,
            texts_per_second=None,
            by_length={},
            signature="",
            folders=(tmp_path,),
        )
        for name, (steps, seconds, tokens) in zip("ab", costs, strict=True)
    ]
    found = cautions(study, rows)
    assert len(found) == len(expected)
    assert all(part in sentence for part, sentence in zip(expected, found, strict=True))


def test_without_a_system_the_data_decides_the_example(tmp_path: Path) -> None:
    table = labelled(tmp_path / "train.tsv", 30, 0)
    with pytest.raises(ValueError, match=f"compare classifier naive-bayes --data {table}$"):
        compare(data=table)


def labelled(path: Path, count: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    rows = [
        f"{' '.join(rng.choice(['good', 'film', 'plot'] if label else ['bad', 'film', 'plot'], 6))}\t{'pos' if label else 'neg'}\n"
        for label in rng.integers(0, 2, count)
    ]
    path.write_text("".join(rows), "utf-8")
    return str(path)


def test_classical_models_and_finished_runs_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    data, test = labelled(tmp_path / "train.tsv", 300, 0), labelled(tmp_path / "test.tsv", 80, 1)
    found = compare(
        "naive-bayes", "logistic", data=data, test=test, out=tmp_path / "study", threads=1, progress=False
    )
    assert [row.seeds for row in found.rows] == [1, 1] and not found.failed
    assert found.signature.endswith("|seeds:1")  # nothing random: one run each
    assert found.rows[0].metrics["accuracy"] > 90 and found.rows[0].texts_per_second
    folders = [str(row.folders[0]) for row in found.rows]
    main(["compare", *folders, "--test", test, "--out", str(tmp_path / "again"), "--json"])
    again = json.loads(capsys.readouterr().out)
    assert {row["system"] for row in again["rows"]} == {"naive-bayes/seed-0", "logistic/seed-0"}
    assert [row["metrics"] for row in again["rows"]] == [row.metrics for row in found.rows]
    assert not (tmp_path / "again" / "runs").exists()


def test_records_are_held_out_by_content(tmp_path: Path) -> None:
    data = labelled(tmp_path / "reviews.tsv", 400, 0)
    found = compare("naive-bayes", data=data, out=tmp_path / "study", threads=1, progress=False)
    parts = [
        {
            json.loads(line)["text"]
            for line in (tmp_path / "study" / "data" / f"{side}.jsonl").read_text("utf-8").splitlines()
        }
        for side in ("train", "test")
    ]
    assert parts[0] and parts[1] and not parts[0] & parts[1] and found.rows


def test_a_system_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    data, test = labelled(tmp_path / "train.tsv", 60, 0), labelled(tmp_path / "test.tsv", 20, 1)
    found = compare(
        "naive-bayes",
        "logistic",
        "model.features={type: MeanVectors, vectors: nowhere.vec}",
        data=data,
        test=test,
        out=tmp_path / "study",
        threads=1,
        progress=False,
    )
    assert [row.system for row in found.rows] == ["naive-bayes"]
    assert len(found.failed) == 1 and "nowhere.vec" in found.failed[0].reason


@pytest.mark.parametrize(
    "code, stops", [(130, True), (143, True), (-15, True), (-2, True), (2, False), (-9, False)]
)
def test_a_stopped_training_stops_the_study_and_a_failed_one_does_not(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, stops: bool
) -> None:
    monkeypatch.setattr(studies_training, "run_process", lambda command, shown: (code, "seqloom: the reason"))
    options = {**sides(place), "steps": 4, "seeds": 1, "threads": 1, "out": tmp_path / "s", "progress": False}
    if stops:
        with pytest.raises(KeyboardInterrupt):
            compare(str(place / "small.yaml"), **options)
    else:
        found = compare(str(place / "small.yaml"), **options)
        assert [one.reason for one in found.failed] == ["the reason"] and found.recommended is None


def test_a_process_gives_its_code_and_its_last_line() -> None:
    import sys

    code = "import sys; print('first', file=sys.stderr); print('last', file=sys.stderr); sys.exit(3)"
    assert studies_training.run_process([sys.executable, "-c", code]) == (3, "last")


def test_the_data_is_described_once(caplog: pytest.LogCaptureFixture) -> None:
    """What comes before the promise of a training is logged the first time; what comes after it, always."""
    import sys

    caplog.set_level("INFO", "seqloom")
    lines = ["t.txt: text; 10 records", "promise: 5 steps", "step 5: held-out loss 1"]
    shown: set[str] = set()
    for _ in range(2):
        code = f"import sys; print({chr(10).join(lines)!r}, file=sys.stderr)"
        studies_training.run_process([sys.executable, "-c", code], shown)
    assert [message.strip() for message in caplog.messages] == [*lines, *lines[1:]]


def test_changes_belong_to_the_system_before_them_or_to_all() -> None:
    found = parse_systems(["a.b=1", "gpt", "gpt", "model.stack.position=ALiBi", "lstm-lm"])
    assert [(one.title, one.changes) for one in found] == [
        ("gpt", ("a.b=1",)),
        ("gpt position=ALiBi", ("a.b=1", "model.stack.position=ALiBi")),
        ("lstm-lm", ("a.b=1",)),
    ]
    assert [one.title for one in parse_systems(["table2"])] == list(TABLE2)
    assert len(parse_systems(["classical"])) == 21
    for words, sentence in (([], "no system"), (["gpt", "gpt"], "given twice")):
        with pytest.raises(ValueError, match=sentence):
            parse_systems(words)


@pytest.mark.parametrize(
    "systems, options, sentence",
    [
        (["transformer", "transformer"], {}, "given twice"),
        (["transfromer"], {}, "transformer"),
        (["gpt", "classifier"], {}, "gpt is for language modelling, classifier is for classification"),
        (["transformer"], {"test": ["nowhere.en", "nowhere.fr"]}, "no such file"),
        (["transformer"], {"minutes": 0.0}, "above 0"),
        (["transformer"], {"minutes": 1, "steps": 3}, "one"),
    ],
)
def test_wrong_studies_are_refused_before_any_training(
    place: Path, tmp_path: Path, systems: list[str], options: dict, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        compare(*systems, **{**sides(place), "out": tmp_path / "study", **options})
    assert not (tmp_path / "study").exists()


def test_one_name_is_one_system_in_a_folder(tmp_path: Path) -> None:
    study = Study(tmp_path / "s", "classification", (System("a", "naive-bayes"),))
    open_folder(study)
    with pytest.raises(ValueError, match="its a is naive-bayes"):
        open_folder(
            Study(tmp_path / "s", "classification", (System("a", "naive-bayes", ("model.smoothing=2",)),))
        )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(ValueError, match="not the folder of a study"):
        open_folder(Study(tmp_path / "full", "classification", study.systems))


@pytest.mark.parametrize("system", TABLE2)
def test_every_system_takes_the_wanted_size(system: str) -> None:
    """As near as widths of 8 come, counted on the model itself."""
    tree = resize(find_config(system)[0], 1_000_000)
    model = Config(tree).model(4000)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(1e6, rel=0.08)
    assert {key: value for key, value in tree.items() if key != "model"} == {
        k: v for k, v in find_config(system)[0].items() if k != "model"
    }


def test_the_size_counts_the_vocabulary_of_the_text() -> None:
    tree = resize(find_config("gpt")[0], 800_000, vocabulary=70)
    assert sum(p.numel() for p in Config(tree).model(70).parameters()) == pytest.approx(8e5, rel=0.08)
    with pytest.raises(ValueError, match="choose a number in this range"):
        resize(find_config("transformer")[0], 10)


def accuracies(hits: np.ndarray) -> Measured:
    statistics = np.stack([hits, np.ones(len(hits))], 1)
    records = ScoredRecords("accuracy", [1] * len(hits), statistics, SCORES["accuracy"])
    return Measured({"accuracy": Number("accuracy", 100 * hits.mean(), "")}, records, 1.0)


def test_the_paired_bootstrap_tells_better_from_same() -> None:
    rng = np.random.default_rng(0)
    hits = (rng.random(500) < 0.8).astype(float)
    worse = np.where(rng.random(500) < 0.1, 0, hits)
    assert p_value("accuracy", [accuracies(hits)], [accuracies(worse)]) < 0.01
    assert p_value("accuracy", [accuracies(hits)], [accuracies(hits)]) == 1
    other = hits[rng.permutation(500)]
    assert p_value("accuracy", [accuracies(hits)], [accuracies(other)]) > 0.05
    interval = interval_of("accuracy", [accuracies(hits)])
    assert interval == pytest.approx(196 * np.sqrt(hits.mean() * (1 - hits.mean()) / 500), rel=0.15)


def test_without_records_the_seeds_decide() -> None:
    from scipy.stats import t, ttest_ind

    def runs(*values: float) -> list[Measured]:
        return [
            Measured({"bits_per_byte": Number("bits_per_byte", value, "")}, None, 1.0) for value in values
        ]

    first, second = (2.40, 2.42, 2.44), (2.50, 2.55, 2.51)
    expected = ttest_ind(first, second, equal_var=False).pvalue
    assert p_value("bits_per_byte", runs(*first), runs(*second)) == pytest.approx(expected)
    assert seeds_interval(first) == pytest.approx(t.ppf(0.975, 2) * 0.02 / np.sqrt(3))
    assert p_value("bits_per_byte", runs(2.4), runs(2.5)) is None and seeds_interval([2.4]) is None


def test_a_quick_study_has_one_seed() -> None:
    with pytest.raises(UserError, match="quick is one seed, and seeds is 3"):
        compare("naive-bayes", data="world", quick=True, seeds=3)

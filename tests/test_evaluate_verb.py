"""`evaluate`: from files and from records, by length, with a limit; it warns of swapped files and names the verb that fits."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import sacrebleu

import seqloom
from seqloom.cli import main
from seqloom.evaluation import Evaluation, evaluate
from seqloom.inference.language_check import warn_of_swapped_files
from seqloom.inference.verbs import VERBS
from seqloom.measure.by_length import length_buckets
from seqloom.measure.number import Number
from seqloom.models import Model
from seqloom.run import Run, load
from support.quick_training import at_once

QUICK = ["train.steps=6", "train.eval_every=6", "train.log_every=6"]


def fit(name: str, options: list[str], data: list[Path], out: Path) -> Run:
    with at_once():
        return seqloom.fit(name, *QUICK, *options, data=[str(path) for path in data], out=out, progress=False)


@pytest.fixture
def gpt(tmp_path: Path, text: Path) -> Run:
    sizes = ["model.dim=16", "model.stack.layers=1", "model.stack.heads=2"]
    more = ["batches.width=16", "model.stack.position.length=16"]
    return fit("gpt", [*sizes, *more], [text], tmp_path / "gpt")


@pytest.fixture
def translator(tmp_path: Path, parallel: list[Path]) -> Run:
    sizes = ["tokenizer.size=300", "model.dim=16", "batches.batch_tokens=200", "train.average_checkpoints=0"]
    return fit("transformer", sizes, parallel, tmp_path / "pairs")


@pytest.fixture
def classifier(tmp_path: Path) -> Run:
    path = tmp_path / "train.tsv"
    path.write_text("the king sees\tking\na dog and a cat\tnone\n" * 60, "utf-8")
    return fit("classifier", ["model.dim=8"], [path], tmp_path / "labels")


def out(capsys: pytest.CaptureFixture) -> str:
    return capsys.readouterr().out


def test_numbers_are_found_by_name(gpt: Run, text: Path, capsys: pytest.CaptureFixture) -> None:
    found = evaluate(gpt.folder, str(text))
    assert isinstance(found, Evaluation) and len(found) == 3
    number = found["bits_per_byte"]
    assert number.low is not None and number.high is not None and number.low < number.value < number.high
    assert number.n == len(text.read_bytes()) and found.weights_sha256 == gpt.results.weights_sha256
    with pytest.raises(KeyError, match="nats_per_token, perplexity, bits_per_byte"):
        found["bleu"]
    main(["evaluate", str(gpt.folder), str(text), "--json"])
    assert json.loads(out(capsys)) == {"run": str(gpt.folder), **found.to_dict()}
    main(["evaluate", str(gpt.folder), str(text)])
    lines = out(capsys).splitlines()
    assert lines[0].startswith("nats per token") and number.interval in lines[2]
    assert "perplexity" in found._repr_html_()


def test_the_verb_measures_a_classifier(
    classifier: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("the king sees\tking\na dog\tnone\n" * 4, "utf-8")
    main(["evaluate", str(classifier.folder), str(path)])
    assert out(capsys).startswith("accuracy")


def test_records_count_like_the_file_that_holds_them(classifier: Run, tmp_path: Path) -> None:
    records = [("the king sees", "king"), ("a dog", "none"), ("a cat", "king")] * 4
    path = tmp_path / "test.tsv"
    path.write_text("".join(f"{text}\t{label}\n" for text, label in records), "utf-8")
    from_file, from_records = evaluate(classifier, str(path)), evaluate(classifier, records)
    assert [(n.name, n.value, n.low) for n in from_file] == [(n.name, n.value, n.low) for n in from_records]
    named = [{"text": text, "label": label} for text, label in records]
    assert evaluate(classifier, named) == from_records
    with pytest.raises(ValueError, match="record 1: no 'label'"):
        evaluate(classifier, [{"text": "a"}])
    assert from_records.data_sha256 == evaluate(classifier, list(records)).data_sha256
    assert from_records.data_sha256 != evaluate(classifier, records[:-1]).data_sha256


def test_a_limit_is_the_first_records(classifier: Run, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rows = ["the king sees\tking\n", "a dog\tking\n"] * 10
    whole, part = tmp_path / "whole.tsv", tmp_path / "part.tsv"
    whole.write_text("".join(rows), "utf-8")
    part.write_text("".join(rows[:7]), "utf-8")
    main(["evaluate", str(classifier.folder), str(whole), "--limit", "7", "--json"])
    limited = json.loads(out(capsys))["numbers"]
    expected = evaluate(classifier, str(part))
    assert [number["value"] for number in limited] == [number.value for number in expected]
    assert limited[0]["n"] == 7
    assert (
        evaluate(classifier, str(whole), limit=7).data_sha256 != evaluate(classifier, str(whole)).data_sha256
    )


def test_bleu_by_length_is_that_of_each_part(
    translator: Run, parallel: list[Path], capsys: pytest.CaptureFixture
) -> None:
    from seqloom.inference.completion import complete

    main(["evaluate", str(translator.folder), *map(str, parallel), "--beam", "1", "--by-length", "--json"])
    buckets = json.loads(out(capsys))["by_length"]
    sources, targets = (path.read_text().splitlines() for path in parallel)
    outputs = [found[0].text for found in complete(translator, sources)]
    total = 0
    for bucket in buckets:
        inside = [
            index
            for index, source in enumerate(sources)
            if bucket["shortest"] <= len(source.split()) <= bucket["longest"]
        ]
        expected = sacrebleu.corpus_bleu([outputs[i] for i in inside], [[targets[i] for i in inside]]).score
        assert bucket["number"]["value"] == pytest.approx(expected, abs=1e-9)
        assert bucket["number"]["n"] == len(inside)
        total += len(inside)
    assert total == 300 and len(buckets) > 2
    main(["evaluate", str(translator.folder), *map(str, parallel), "--by-length"])
    assert "source words" in out(capsys)


def test_accuracy_by_length(classifier: Run) -> None:
    found = evaluate(classifier, [("the king sees", "king"), ("a dog and a cat", "king")] * 6)
    short, long = found.by_length()
    assert (short.shortest, short.number.n, long.longest, long.number.n) == (3, 6, 5, 6)
    assert np.mean([short.number.value, long.number.value]) == pytest.approx(found["accuracy"].value)
    with pytest.raises(ValueError, match="running text has no records"):
        Evaluation((), "", None).by_length()


def test_buckets_hold_every_length_once() -> None:
    lengths = [1, 1, 2, 3, 3, 3, 8, 9, 20]
    buckets = length_buckets(lengths)
    assert buckets[0][0] == 1 and buckets[-1][1] == 20
    assert all(low <= high for low, high in buckets)
    assert all(sum(low <= length <= high for low, high in buckets) == 1 for length in range(1, 21))
    assert length_buckets([4, 4]) == [(4, 4)] and length_buckets([]) == []


SENTENCES = [f"the old king number {n} sees the river and the street" for n in range(100)]
FOREIGN = [f"der alte König Nummer {n} sieht den Fluss und die Straße" for n in range(100)]
UNLIKE = ["lorem ipsum dolor sit amet"] * 100


@pytest.mark.parametrize(
    "sources, outputs, bleu, words",
    [
        (SENTENCES, FOREIGN, 80.0, None),
        (SENTENCES, SENTENCES, 5.0, "more like the source"),
        (
            SENTENCES,
            UNLIKE,
            0.1,
            "BLEU is 0.10: the model is trained too little, or the two files are swapped",
        ),
        (SENTENCES[:99], UNLIKE[:99], 0.1, None),
    ],
    ids=["right", "copied", "unlike", "few"],
)
def test_swapped_files_are_suspected(
    sources: list[str],
    outputs: list[str],
    bleu: float,
    words: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "seqloom"):
        warn_of_swapped_files(sources, outputs, Number("bleu", bleu, ""))
    assert len(caplog.records) == (words is not None) and (words or "") in caplog.text


def subclasses(kind: type[Model]) -> list[type[Model]]:
    return [found for one in kind.__subclasses__() for found in (one, *subclasses(one))]


def test_every_task_has_its_verb() -> None:
    import seqloom.models

    assert seqloom.models.__all__  # loads nothing by itself
    for name in seqloom.models.__all__:
        getattr(seqloom.models, name)
    tasks = {kind.task for kind in subclasses(Model) if "task" in vars(kind)}
    assert tasks <= set(VERBS)


def test_a_wrong_verb_is_answered_with_the_right_one(
    gpt: Run, translator: Run, classifier: Run, capsys: pytest.CaptureFixture
) -> None:
    for verb, run, right in (
        ("predict", gpt, "generate"),
        ("predict", translator, "translate"),
        ("translate", gpt, "generate"),
        ("translate", classifier, "predict"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([verb, str(run.folder), "the king"])
        said = capsys.readouterr().err
        assert stopped.value.code == 2 and said.count("\n") == 1
        assert f"{verb} does not fit this run" in said and f"seqloom {right} {run.folder}" in said


def test_an_option_that_would_change_nothing_is_refused(
    gpt: Run, translator: Run, classifier: Run, text: Path, parallel: list[Path]
) -> None:
    pairs = [str(path) for path in parallel]
    for run, data, options, words in (
        (gpt, [str(text)], {"beam": 5}, "a LanguageModel is measured without a search; drop beam"),
        (classifier, [("a", "king")], {"length_penalty": 1.0}, "drop length_penalty"),
        (classifier, [("a", "king")], {"window": 8}, "--window and --stride are for language models"),
        (translator, pairs, {"stride": 8}, "--window and --stride are for language models"),
    ):
        with pytest.raises(ValueError, match=words):
            evaluate(run, data, **options)


def test_an_encoder_is_for_embedding(gpt: Run, monkeypatch: pytest.MonkeyPatch, text: Path) -> None:
    run = load(gpt.folder)
    monkeypatch.setattr(type(run.model), "predicts_tokens", False)
    monkeypatch.setattr(type(run.model), "task", "encoding")
    with pytest.raises(seqloom.errors.RunError, match="seqloom embed"):
        evaluate(run, str(text))


def test_the_world_is_the_world_beside_a_folder_of_that_name(
    translator: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`data world --out world` makes such a folder, and training reads the built-in world beside it too."""
    monkeypatch.chdir(tmp_path)
    alone = evaluate(translator, "world", limit=3)
    (tmp_path / "world").mkdir()
    assert evaluate(translator, "world", limit=3).data_sha256 == alone.data_sha256

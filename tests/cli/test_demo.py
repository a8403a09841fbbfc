"""demo trains, measures and translates; a wrong translation stands beside the right one."""

import json
from pathlib import Path

import pytest

from seqloom import world
from seqloom.cli import main
from seqloom.cli.demo import MAX_TOKENS, Translated


@pytest.fixture
def small_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of a few thousand weights that takes two steps, and a world of few test sentences."""
    from seqloom.evaluation import evaluate
    from seqloom.run_config import Config

    load = Config.load
    monkeypatch.setattr("seqloom.cli.demo.SENTENCES", 400)
    changes = [
        "train.steps=2",
        "model.dim=8",
        "model.encoder.layers=1",
        "model.decoder.layers=1",
        "tokenizer.size=300",
    ]
    monkeypatch.setattr(
        Config, "load", lambda source, _, *rest: load(source, [*changes, "train.eval_every=2"], *rest)
    )
    monkeypatch.setattr(
        "seqloom.evaluation.evaluate", lambda run, data, **options: evaluate(run, data, limit=5, **options)
    )


def test_the_demo_ends_with_its_numbers_and_next_commands(
    small_world: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "first"
    main(["demo", "--minutes", "1", "--out", str(out), "--threads", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert (out / "results.json").exists()
    assert [line for line in lines if line in world.SHOWCASE] == list(world.SHOWCASE)
    assert sum(line.startswith("    wrong: ") for line in lines) == len(world.SHOWCASE)  # after two steps
    assert lines[-3].startswith("BLEU ") and lines[-2] == f"run: {out}"
    assert (
        f"few are right after 2 steps: the machine is slow or busy; train on with: seqloom train {out} --steps +1000"
        in lines[-4]
    )
    commands = lines[-1].removeprefix("next: ").split(" · ")
    assert len(commands) == 3 and all(command.startswith("seqloom ") for command in commands)
    main(["demo", "--minutes", "1", "--out", str(out), "--json"])  # the run is finished: it is only shown
    report = json.loads(capsys.readouterr().out)
    assert report["run"] == str(out) and not any(one["right"] for one in report["translations"])


def test_a_wrong_translation_stands_beside_the_right_one() -> None:
    english = world.SHOWCASE[0]
    french = world.translate(english)
    assert Translated(english, french, (french,)).lines() == [english, f"    {french}"]
    wrong = Translated(english, "La rue.", (french,)).lines()
    assert wrong == [english, "    wrong: La rue.", f"    right: {french}"]
    near = Translated(english, french.replace("était", "étaient"), ("La rue.", french))
    assert near.lines()[1:] == [
        f"    wrong: {near.translation}",
        f"    right: {french}",
        "    it writes étaient instead of était",
    ]
    assert Translated(english, "", (french,)).lines()[1] == "    wrong: (no words)"


def test_translations_of_the_world_are_shorter_than_the_bound() -> None:
    longest = max(len(scene.french) for scene in world.scenes(2000))
    assert longest / 3 < MAX_TOKENS  # a token of the demo's vocabulary has about four characters

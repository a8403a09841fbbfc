"""prefer: choices are written one by one, undone, resumed; the page holds every pair and no script from elsewhere."""

import io
import json
import re
import shutil
from pathlib import Path

import pytest

import seqloom
from seqloom.cli import main
from seqloom.errors import DataError, UserError
from seqloom.inference.answers import answer_log_probs, sample_answers
from seqloom.inference.preferring import PreferenceFile, answer_pairs
from seqloom.run import Run
from seqloom.studies.from_preferences import train_from_preferences
from seqloom.text.chats import Preferences


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small model that has seen a few chats."""
    folder = tmp_path_factory.mktemp("prefer")
    records = [{"prompt": f"say {n}", "completion": "yes" if n % 2 else "no"} for n in range(40)]
    data = folder / "chats.jsonl"
    data.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    sizes = {
        "model.dim": 16,
        "model.stack.layers": 1,
        "model.stack.heads": 2,
        "model.stack.position.length": 64,
    }
    return seqloom.fit(
        "sft", sizes, "train.optimizer.lr=1e-2", data=data, out=folder / "sft", steps=40, progress=False
    )


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("say 1\nsay <two>\nsay 3\n", "utf-8")
    return path


def test_pairs_are_two_different_answers(run: Run, prompts: Path) -> None:
    pairs = list(answer_pairs(run, prompts, max_tokens=8, done=[2]))
    assert [pair.number for pair in pairs] == [1, 3]
    assert all(pair.answers[0] != pair.answers[1] and pair.text == f"say {pair.number}" for pair in pairs)
    assert list(answer_pairs(run, prompts, max_tokens=8, done=[2])) == pairs


def test_probabilities_of_answers_are_those_of_the_text(run: Run) -> None:
    [[answer]] = sample_answers(run, ["say 5"], 1, max_tokens=6)
    ids = list(answer.prompt_ids + answer.ids)
    import torch

    with torch.no_grad():
        log_p = run.model.eval()(torch.tensor([ids]))[0][0].log_softmax(-1)
    places = range(len(answer.prompt_ids), len(ids))
    expected = sum(float(log_p[place - 1, ids[place]]) for place in places)
    assert answer_log_probs(run, [answer])[0] == pytest.approx(expected, rel=1e-4)


def typed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_session_goes_on_where_the_last_one_stopped(
    run: Run, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "mine.jsonl"
    command = [
        "prefer",
        str(run.folder),
        "--file",
        str(prompts),
        "--out",
        str(out),
        "--max-tokens",
        "8",
        "--threads",
        "1",
    ]
    typed("what\n1\nu\n2\nq\n", monkeypatch)  # the first choice is undone and made again
    main(command)
    [record] = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    first = next(answer_pairs(run, prompts, max_tokens=8))
    assert (record["rejected"], record["chosen"]) == first.answers and record["number"] == 1
    captured = capsys.readouterr()
    assert "1 preferences, 0 ties" in captured.out and "1 or 2: the better answer" in captured.err
    typed("0\n1\n", monkeypatch)
    main([*command, "--json"])
    assert json.loads(capsys.readouterr().out) == {"file": str(out), "preferences": 2, "ties": 1}
    assert [json.loads(line)["number"] for line in out.read_text("utf-8").splitlines()] == [1, 3]
    assert len(list(Preferences([out]))) == 2  # what training reads
    typed("1\n", monkeypatch)
    main([*command, "--json"])  # nothing is left
    assert json.loads(capsys.readouterr().out)["preferences"] == 2


def test_the_page_holds_the_pairs(
    run: Run, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "mine.jsonl"
    main(
        ["prefer", str(run.folder), "--file", str(prompts), "--out", str(out), "--page", "--max-tokens", "8"]
    )
    assert capsys.readouterr().out == f"page: {tmp_path / 'mine.html'}\n" and not out.exists()
    text = (tmp_path / "mine.html").read_text("utf-8")
    data = re.search(r'<script type="application/json" id=pairs>(.*?)</script>', text, re.S)
    assert data is not None
    pairs = json.loads(data[1])
    assert [pair["text"] for pair in pairs] == ["say 1", "say <two>", "say 3"]
    assert "http" not in re.sub(r"http://www.w3.org\S*", "", text) and "src=" not in text


def test_one_call_trains_a_reward_model_and_a_policy(run: Run, prompts: Path, tmp_path: Path) -> None:
    kept = PreferenceFile(tmp_path / "mine.jsonl")
    for pair in answer_pairs(run, prompts, max_tokens=8):
        kept.add(pair, "1")
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    trained = train_from_preferences(
        folder, kept.path, [str(prompts)], steps=2, max_tokens=8, threads=1, progress=False
    )
    assert trained.reward.model.task == "reward" and trained.reward.folder.name == "run-reward"
    assert trained.policy.model.has_critic and trained.policy.results.steps == 2
    assert trained.policy.config.tree["rollouts"]["reward"]["run"] == str(trained.reward.folder)


def test_training_needs_preferences(
    run: Run, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    typed("q\n", monkeypatch)
    with pytest.raises(SystemExit) as stop:
        main(
            ["prefer", str(run.folder), "--file", str(prompts), "--out", str(tmp_path / "m.jsonl"), "--train"]
        )
    assert stop.value.code == 2 and "choose between some answers first" in capsys.readouterr().err


def test_mistakes_are_one_line(
    run: Run, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["prefer", str(run.folder)])
    assert stop.value.code == 2 and "--file PROMPTS" in capsys.readouterr().err
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("{\n", "utf-8")
    with pytest.raises(DataError, match=r"wrong\.jsonl:1"):
        PreferenceFile(wrong)
    with pytest.raises(UserError, match="undo"):
        PreferenceFile(tmp_path / "new.jsonl").undo()

"""Wrong input gets one clear line that says where, what and what to do, exit code 2, and leaves nothing behind."""

import gzip
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import seqloom
from seqloom import files
from seqloom.cli import main

SMALL = ["model.dim=16", "model.stack.layers=1", "model.stack.heads=2", "train.steps=4", "train.every=4"]


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def lines(count: int) -> str:
    return "".join(f"line number {number}\n" for number in range(count))


# what is wrong → the arguments that make it so, given a folder; and the words the one line must hold
WRONG: dict[str, tuple[Callable[[Path], list[str]], list[str]]] = {
    "missing file": (lambda p: ["train", "gpt", "--data", str(p / "none.txt")], ["none.txt", "no such file"]),
    "no data": (lambda p: ["train", "gpt"], ["--data"]),
    "empty file": (lambda p: ["train", "gpt", "--data", write(p / "a.txt", "")], ["a.txt", "empty"]),
    "invalid UTF-8": (lambda p: ["train", "gpt", "--data", write(p / "a.txt", b"fine\nba\xffd\n")], ["a.txt:2", "UTF-8"]),
    "UTF-16": (lambda p: ["train", "gpt", "--data", write(p / "a.txt", "some text\n".encode("utf-16"))], ["a.txt", "UTF-16"]),
    "binary file": (lambda p: ["train", "gpt", "--data", write(p / "a.txt", bytes(range(256)) * 9)], ["a.txt"]),
    "a folder as data": (lambda p: ["train", "gpt", "--data", str(p)], ["folder"]),
    "broken gzip": (lambda p: ["train", "gpt", "--data", write(p / "a.txt.gz", gzip.compress(b"x" * 9999)[:20])], ["a.txt.gz"]),
    "unequal parallel files": (
        lambda p: ["train", "transformer", "--data", write(p / "a.en", lines(5)), write(p / "a.de", lines(7))],
        ["a.en", "5"],
    ),
    "one file for a translator": (lambda p: ["train", "transformer", "--data", write(p / "a.en", lines(5))], ["two"]),
    "ragged table": (
        lambda p: ["train", "transformer", "corpus={type: Table}", "--data", write(p / "a.tsv", "a\tb\nc\nd\te\n")],
        ["a.tsv:2"],
    ),
    "broken JSON lines": (
        lambda p: ["train", "gpt", "corpus={type: JSONLines}", "--data", write(p / "a.jsonl", '{"text": "a"}\n{"text": \n')],
        ["a.jsonl:2"],
    ),
    "unknown flag": (lambda p: ["train", "gpt", "--dta", "x"], ["--dta"]),
    "unknown verb": (lambda p: ["trian", "gpt"], ["trian", "train"]),
    "unknown preset": (lambda p: ["train", "gtp"], ["gtp", "gpt"]),
    "misspelt part": (lambda p: ["check", "gpt", "model.stack.position=ALibi"], ["model.stack.position", "ALiBi"]),
    "misspelt option": (lambda p: ["check", "gpt", "model.stack.layrs=3"], ["'model.stack.layrs=3'", "layrs", "layers"]),
    "misspelt section": (lambda p: ["check", "gpt", "modle.dim=3"], ["modle", "model"]),
    "part in the wrong place": (lambda p: ["check", "gpt", "model.stack.position=LSTM"], ["LSTM", "cannot stand here"]),
    "wrong type": (lambda p: ["check", "gpt", "model.stack.layers=four"], ["whole number", "four"]),
    "override without a value": (lambda p: ["check", "gpt", "model.dim"], ["place=value"]),
    "broken YAML": (lambda p: ["check", write(p / "a.yaml", "model: {type: [\n")], ["a.yaml:", "YAML"]),
    "YAML that names code": (
        lambda p: ["check", write(p / "a.yaml", "model: !!python/object/apply:os.system ['echo hacked']\n")],
        ["a.yaml:1"],
    ),
    "heads that do not divide": (lambda p: ["check", "gpt", "model.stack.heads=3"], ["128", "3 heads"]),
    "window beyond learned positions": (
        lambda p: ["train", "gpt", "data.width=100", "--data", write(p / "a.txt", lines(100))],
        ["100 positions", "64 learned"],
    ),
    "no steps": (lambda p: ["train", "gpt", "train.steps=0", "--data", write(p / "a.txt", lines(100))], ["train.steps"]),
    "tokenizer too small": (
        lambda p: ["train", "gpt", "tokenizer={type: BPE, size: 10}", "--data", write(p / "a.txt", lines(100))],
        ["10"],
    ),
    "folder that is no run": (lambda p: ["evaluate", str(p), "x.txt"], ["not a run folder"]),
    "out is a full folder": (
        lambda p: ["train", "gpt", *SMALL, "--data", write(p / "a.txt", lines(100)), "--out", str(p)],
        ["exists and is no run folder"],
    ),
    "out cannot be made": (
        lambda p: ["train", "gpt", *SMALL, "--data", write(p / "a.txt", lines(100)), "--out", "/proc/nothing/run"],
        ["/proc/nothing/run", "choose another --out"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_clear_line(name: str, tmp_path: Path, monkeypatch, capsys) -> None:
    arguments, words = WRONG[name]
    monkeypatch.chdir(tmp_path)
    given = arguments(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as stopped:
        main(given)
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert out == "" and err.count("\n") == 1 and err.startswith("seqloom: ") and len(err) < 400
    for word in words:
        assert word in err, err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def run(tmp_path: Path, text: Path) -> Path:
    seqloom.fit("gpt", *SMALL, data=[str(text)], out=tmp_path / "run", quiet=True)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "{run}", "x", "--top-p", "2"], ["top_p"]),
        (["generate", "{run}", "x", "--temperature", "0"], ["temperature"]),
        (["generate", "{run}", "x", "--nbest", "3"], ["--beam 3"]),
        (["generate", "{run}", "x" * 100], ["64"]),
        (["evaluate", "{run}"], ["no data"]),
        (["evaluate", "{run}", "none.txt"], ["none.txt"]),
        (["train", "{run}", "model.dim=32"], ["model.dim: 16 → 32"]),
    ],
)
def test_wrong_use_of_a_run_is_one_clear_line(arguments: list[str], words: list[str], run: Path, capsys) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([argument.format(run=run) for argument in arguments])
    _, err = capsys.readouterr()
    assert stopped.value.code == 2 and err.count("\n") == 1
    for word in words:
        assert word in err, err


@pytest.mark.parametrize("name", ["tokenizer.json", "config.yaml", "results.json"])
def test_a_damaged_run_is_named(name: str, run: Path, capsys) -> None:
    (run / name).write_bytes((run / name).read_bytes()[:40])
    with pytest.raises(SystemExit) as stopped:
        main(["generate", str(run), "the"])
    _, err = capsys.readouterr()
    assert stopped.value.code == 2 and err.count("\n") == 1 and name in err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a tiny disk")
def test_a_full_disk_is_said(tmp_path: Path, text: Path, capsys) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        with pytest.raises(SystemExit) as stopped:
            main(["train", "gpt", *SMALL, "--data", str(text), "--out", str(disk / "run")])
        _, err = capsys.readouterr()
        last = err.strip().splitlines()[-1]
        assert stopped.value.code == 2 and last.startswith("seqloom: ") and "the disk is full" in last
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_help_does_not_import_torch() -> None:
    import sys

    code = "import sys; from seqloom.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.returncode == 0 and "train" in finished.stdout, finished.stderr


def test_a_run_that_is_being_trained_is_left_alone(run: Path, text: Path, capsys: pytest.CaptureFixture) -> None:
    command = ["train", "gpt", *SMALL, "--data", str(text), "--out", str(run.parent / "busy")]
    main(command)
    before = {path: path.stat().st_mtime_ns for path in (run.parent / "busy").rglob("*")}
    capsys.readouterr()
    with files.alone(run.parent / "busy", "training"), pytest.raises(SystemExit) as stopped:
        main(command)
    _, err = capsys.readouterr()
    assert stopped.value.code == 2 and err.count("\n") == 1 and "another process is training there" in err
    assert {path: path.stat().st_mtime_ns for path in (run.parent / "busy").rglob("*")} == before
    main(command)

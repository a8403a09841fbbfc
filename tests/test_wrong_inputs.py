"""Wrong input gets one clear line that says where, what and what to do, exit code 2, and leaves nothing behind."""

import gzip
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import seqloom
from seqloom import files
from seqloom.cli import main

SMALL = ["model.dim=16", "model.stack.layers=1", "model.stack.heads=2", "train.steps=4", "train.eval_every=4"]


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
    "invalid UTF-8": (
        lambda p: ["train", "gpt", "--data", write(p / "a.txt", b"fine\nba\xffd\n")],
        ["a.txt:2", "UTF-8"],
    ),
    "UTF-16": (
        lambda p: ["train", "gpt", "--data", write(p / "a.txt", "some text\n".encode("utf-16"))],
        ["a.txt", "UTF-16"],
    ),
    "binary file": (
        lambda p: ["train", "gpt", "--data", write(p / "a.txt", bytes(range(256)) * 9)],
        ["a.txt"],
    ),
    "a folder as data": (lambda p: ["train", "gpt", "--data", str(p)], ["folder"]),
    "broken gzip": (
        lambda p: ["train", "gpt", "--data", write(p / "a.txt.gz", gzip.compress(b"x" * 9999)[:20])],
        ["a.txt.gz"],
    ),
    "unequal parallel files": (
        lambda p: [
            "train",
            "transformer",
            "--data",
            write(p / "a.en", lines(5)),
            write(p / "a.de", lines(7)),
        ],
        ["a.en", "5"],
    ),
    "one file for a translator": (
        lambda p: ["train", "transformer", "--data", write(p / "a.en", lines(5))],
        ["two"],
    ),
    "ragged table": (
        lambda p: [
            "train",
            "transformer",
            "corpus={type: Table}",
            "--data",
            write(p / "a.tsv", "a\tb\nc\nd\te\n"),
        ],
        ["a.tsv:2"],
    ),
    "broken JSON lines": (
        lambda p: [
            "train",
            "gpt",
            "corpus={type: JSONLines}",
            "--data",
            write(p / "a.jsonl", '{"text": "a"}\n{"text": \n'),
        ],
        ["a.jsonl:2"],
    ),
    "unknown flag": (lambda p: ["train", "gpt", "--dta", "x"], ["--dta"]),
    "unknown verb": (lambda p: ["trian", "gpt"], ["trian", "train"]),
    "unknown preset": (lambda p: ["train", "gtp"], ["gtp", "gpt"]),
    "misspelt part": (
        lambda p: ["check", "gpt", "model.stack.position=ALibi"],
        ["model.stack.position", "ALiBi"],
    ),
    "misspelt option": (
        lambda p: ["check", "gpt", "model.stack.layrs=3"],
        ["'model.stack.layrs=3'", "layrs", "layers"],
    ),
    "misspelt section": (lambda p: ["check", "gpt", "modle.dim=3"], ["modle", "model"]),
    "part in the wrong place": (
        lambda p: ["check", "gpt", "model.stack.position=LSTM"],
        ["LSTM", "cannot be used here"],
    ),
    "wrong type": (lambda p: ["check", "gpt", "model.stack.layers=four"], ["whole number", "four"]),
    "override without a value": (lambda p: ["check", "gpt", "model.dim"], ["path=value"]),
    "broken YAML": (lambda p: ["check", write(p / "a.yaml", "model: {type: [\n")], ["a.yaml:", "YAML"]),
    "YAML that names code": (
        lambda p: ["check", write(p / "a.yaml", "model: !!python/object/apply:os.system ['echo hacked']\n")],
        ["a.yaml:1"],
    ),
    "heads that do not divide": (lambda p: ["check", "gpt", "model.stack.heads=3"], ["128", "3 heads"]),
    "window beyond learned positions": (
        lambda p: ["train", "gpt", "batches.width=100", "--data", write(p / "a.txt", lines(100))],
        ["100 positions", "64 learned"],
    ),
    "no steps": (
        lambda p: ["train", "gpt", "train.steps=0", "--data", write(p / "a.txt", lines(100))],
        ["train.steps"],
    ),
    "tokenizer too small": (
        lambda p: [
            "train",
            "gpt",
            "tokenizer={type: BPE, size: 10}",
            "--data",
            write(p / "a.txt", lines(100)),
        ],
        ["10"],
    ),
    "folder that is no run": (lambda p: ["evaluate", str(p), "x.txt"], ["not a run folder"]),
    "file that is no run": (
        lambda p: ["predict", write(p / "a.txt", lines(3)), "x"],
        ["a.txt: a file, not the folder of a run; the run comes first"],
    ),
    "no minutes": (
        lambda p: ["train", "gpt", "--minutes", "0", "--data", write(p / "a.txt", lines(100))],
        ["train.minutes must be above 0, not 0"],
    ),
    "out is a full folder": (
        lambda p: ["train", "gpt", *SMALL, "--data", write(p / "a.txt", lines(100)), "--out", str(p)],
        ["exists and is not a run folder"],
    ),
    "out cannot be made": (
        lambda p: [
            "train",
            "gpt",
            *SMALL,
            "--data",
            write(p / "a.txt", lines(100)),
            "--out",
            "/proc/nothing/run",
        ],
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
    *before_it, last = err.splitlines()  # what was found in the data may stand before the mistake
    assert out == "" and last.startswith("seqloom: ") and len(last) < 400
    assert not any(line.startswith("seqloom: ") for line in before_it)
    for word in words:
        assert word in err, err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def run(tmp_path: Path, text: Path) -> Path:
    seqloom.fit("gpt", *SMALL, data=[str(text)], out=tmp_path / "run", progress=False)
    return tmp_path / "run"


@pytest.fixture(scope="module")
def any_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("any")
    write(place / "a.txt", lines(100))
    seqloom.fit("gpt", *SMALL, data=[str(place / "a.txt")], out=place / "run", progress=False)
    return place / "run"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "{run}", "x", "--top-p", "2"], ["top_p"]),
        (["generate", "{run}", "x", "--temperature", "-1"], ["temperature"]),
        (["generate", "{run}", "x", "--greedy", "--temperature", "0.5"], ["--greedy", "--temperature 0"]),
        (["generate", "{run}", "x", "--greedy", "--top-p", "0.5"], ["greedy", "top_p"]),
        (["generate", "{run}", "x", "--beam", "2", "--n", "3"], ["beam"]),
        (["generate", "{run}", "x", "--beam", "2", "--temperature", "0.5"], ["beam", "temperature"]),
        (["generate", "{run}", "x", "--repetition-penalty", "1e-30"], ["the repetition penalty is 1e-30"]),
        (["generate", "{run}", "x", "--stop", ""], ["empty stop"]),
        (["generate", "{run}", "x", "--stop", "\udcff"], ["--stop", "UTF-8"]),
        (["generate", "{run}", "x", "y\udcff"], ["text 2", "UTF-8"]),
        (["generate", "{run}", "x", "x" * 100, "y" * 80, "--n", "2"], ["prompt 2 has 10", "64"]),
        *(
            (["generate", "{run}", "x", option, "0"], [option])
            for option in ("--max-tokens", "--n", "--beam", "--workers")
        ),
        *(
            (["generate", "{run}", "x", option, str(2**70)], [option])
            for option in ("--max-tokens", "--threads")
        ),
        (["generate", "{run}", "x", "--threads", "-1"], ["--threads"]),
        (["evaluate", "{run}", "none.txt", "--stride", "0"], ["--stride"]),
        (["evaluate", "{run}", "none.txt", "--window", "0"], ["--window"]),
        (["generate", "{run}", "x", "--greedy", "--n", "3"], ["greedy", "3"]),
        (["generate", "{run}", "x", "--top-k", str(2**70)], ["--top-k"]),
        (["generate", "{run}", "x" * 100], ["64"]),
        (["evaluate", "{run}"], ["no data"]),
        (["evaluate", "{run}", "none.txt"], ["none.txt"]),
        (["train", "{run}", "model.dim=32"], ["model.dim: 16 → 32"]),
    ],
)
def test_wrong_use_of_a_run_is_one_clear_line(
    arguments: list[str], words: list[str], any_run: Path, capsys
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([argument.format(run=any_run) for argument in arguments])
    out, err = capsys.readouterr()
    assert stopped.value.code == 2 and out == "" and err.count("\n") == 1
    for word in words:
        assert word in err, err


def test_stdin_is_utf8_whatever_the_locale(any_run: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\ufeffé\n".encode()), encoding="latin-1"))
    main(["generate", str(any_run), "--max-tokens", "1", "--json"])
    assert '"prompt": "é"' in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"fine\nba\xffd\n"), encoding="latin-1"))
    with pytest.raises(SystemExit) as stopped:
        main(["generate", str(any_run)])
    out, err = capsys.readouterr()
    assert (
        stopped.value.code == 2 and out.startswith("fine") and out.count("\n") == 1
    )  # lines are read as they come
    assert err.count("\n") == 1 and "stdin:2: byte 3" in err


def test_an_output_that_takes_nothing_is_one_clear_line(any_run: Path) -> None:
    with open("/dev/full", "w") as full:
        for words in (["the"], ["the", "line", "--json"]):
            command = [sys.executable, "-m", "seqloom", "generate", str(any_run), *words, "--max-tokens", "2"]
            ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
            assert ended.returncode == 2 and ended.stderr == "seqloom: the output: no space left on device\n"


def test_closed_streams_are_no_mistake(any_run: Path) -> None:
    command = f"exec {sys.executable} -m seqloom generate {any_run} line --max-tokens 2"
    assert subprocess.run(["sh", "-c", f"{command} <&- >&-"], stderr=subprocess.PIPE).stderr == b""


def test_an_interrupted_command_says_so(any_run: Path, monkeypatch, capsys) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("seqloom.inference.streaming.stream_plan", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main(["generate", str(any_run), "the"])
    assert stopped.value.code == 130 and capsys.readouterr().err == "seqloom: interrupted\n"


def test_a_tokenizer_that_gives_up_is_one_clear_line(monkeypatch, capsys) -> None:
    def give_up(*_, **__) -> None:
        raise type("PanicException", (BaseException,), {})("no end\nof steps")

    monkeypatch.setitem(main.__globals__, "run_command", give_up)
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert (
        stopped.value.code == 2
        and capsys.readouterr().err == "seqloom: the tokenizer cannot read this text (no end of steps)\n"
    )


def test_what_a_file_is_called_is_shown_and_not_obeyed(tmp_path: Path, capsys) -> None:
    for name, shown in (
        ("\x1b[31mred\u202e.txt", "\\x1b[31mred\\u202e.txt"),
        ("/".join(["long" * 50] * 15), "…"),
    ):
        with pytest.raises(SystemExit):
            main(["train", "gpt", "--data", str(tmp_path / name)])
        err = capsys.readouterr().err
        assert shown in err and err[:-1].isprintable() and len(err) < 1020


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
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        with pytest.raises(SystemExit) as stopped:
            main(["train", "gpt", *SMALL, "--data", str(text), "--out", str(disk / "run")])
        _, err = capsys.readouterr()
        last = err.strip().splitlines()[-1]
        assert stopped.value.code == 1 and last.startswith("seqloom: ") and "the disk is full" in last
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_help_does_not_import_torch() -> None:
    code = "import sys; from seqloom.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.returncode == 0 and "train" in finished.stdout, finished.stderr


def test_a_run_that_is_being_trained_is_left_alone(
    run: Path, text: Path, capsys: pytest.CaptureFixture
) -> None:
    command = ["train", "gpt", *SMALL, "--data", str(text), "--out", str(run.parent / "busy")]
    main(command)
    before = {path: path.stat().st_mtime_ns for path in (run.parent / "busy").rglob("*")}
    capsys.readouterr()
    with files.exclusive(run.parent / "busy", "training"), pytest.raises(SystemExit) as stopped:
        main(command)
    _, err = capsys.readouterr()
    assert stopped.value.code == 2 and err.count("\n") == 1 and "another process is training there" in err
    assert {path: path.stat().st_mtime_ns for path in (run.parent / "busy").rglob("*")} == before
    main(command)

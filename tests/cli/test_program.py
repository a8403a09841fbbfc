"""How the program runs, prints and fails: exit codes, -q and -v, bugs and mistakes, names of other tools, completion."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cyclopts import App

from seqloom.cli import app, main
from seqloom.cli.app import CHANGE, SEVERAL_VALUES, prepare
from seqloom.cli.names import OLD_OPTIONS, PEER_OPTIONS, VERBS
from seqloom.config_source import preset_names

BASH = shutil.which("bash")


def leaves(parent: App = app, path: tuple[str, ...] = ()) -> dict[str, App]:
    """The verbs by their full names, such as `runs list`."""
    found: dict[str, App] = {}
    for name, command in parent.resolved_commands().items():
        if name.startswith("-"):
            continue
        if command.default_command is not None:
            found[" ".join((*path, name))] = command
        found |= leaves(command, (*path, name))
    return found


LEAVES = leaves()


def fails(words: list[str], capsys: pytest.CaptureFixture) -> tuple[int, str]:
    """The exit code and stderr of a command that fails."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    out, err = capsys.readouterr()
    assert out == ""
    return stop.value.code, err  # type: ignore[return-value]


def test_a_mistake_is_one_line_and_code_2(capsys: pytest.CaptureFixture):
    code, err = fails(["check", "gtp"], capsys)
    assert code == 2 and err == "seqloom: gtp: no preset and no file has this name; did you mean 'gpt'?\n"


@pytest.mark.parametrize(
    "words, line",
    [
        (["train", "--data", "a.tsv"], "train: WHAT is missing; as in: seqloom train classifier --data reviews.tsv --minutes 2"),
        (["data", "split", "a.tsv"], "data split: --out is missing; as in: seqloom data split reviews.tsv --out parts"),
        (["runs", "show"], "runs show: RUN is missing; as in: seqloom runs show runs/gpt-input"),
        (["classifier"], "classifier: a preset, not a verb; train it with: seqloom train classifier --data FILE"),
        (["trian", "gpt"], "trian: there is no such verb; did you mean train? All verbs: seqloom --help"),
        (["blah"], "blah: there is no such verb; the verbs are in: seqloom --help"),
        (
            ["--nosuch"],
            "--nosuch: there is no such option; the verbs, which have options of their own, are in: seqloom --help",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_shown_by_an_example(words: list[str], line: str, capsys: pytest.CaptureFixture):
    assert fails(words, capsys) == (2, f"seqloom: {line}\n")


def test_a_text_without_quotes_is_answered_with_quotes(capsys: pytest.CaptureFixture):
    code, err = fails(["inspect", "gates", "run", "to", "be", "or"], capsys)
    assert code == 2 and "be or: more arguments than this verb takes; put quotes" in err


def test_a_bug_says_so_with_code_1_and_v_shows_where(capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.setattr("seqloom.environment.processor_name", lambda: 1 / 0)
    code, err = fails(["env"], capsys)
    assert code == 1 and "this is a bug in seqloom (ZeroDivisionError: division by zero)" in err
    assert err.count("\n") == 1 and "Traceback" not in err
    code, err = fails(["env", "-v"], capsys)
    assert code == 1 and "Traceback" in err and "processor_name" in err


def test_an_interrupt_is_code_130(capsys: pytest.CaptureFixture, monkeypatch):
    def interrupt() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("seqloom.environment.processor_name", interrupt)
    assert fails(["env"], capsys) == (130, "seqloom: interrupted\n")


def test_quiet_leaves_errors_only(capsys: pytest.CaptureFixture):
    main(["check", "gpt2", "--memory", "1GB"])
    assert capsys.readouterr().err.startswith("warning: a step needs")
    main(["check", "gpt2", "--memory", "1GB", "-q"])
    assert capsys.readouterr().err == ""
    assert fails(["check", "gtp", "-q"], capsys)[0] == 2


def test_help_is_a_verb_too(capsys: pytest.CaptureFixture):
    main(["help", "runs", "list"])
    asked = capsys.readouterr().out
    main(["runs", "list", "--help"])
    assert asked == capsys.readouterr().out and "--sort" in asked
    main(["help"])
    shown = capsys.readouterr().out
    places = [shown.index(f"─ {group} ─") for group in VERBS]
    assert places == sorted(places)


def test_help_is_as_wide_as_the_terminal_and_has_no_colour_where_it_is_refused():
    def shown(**variables: str) -> list[str]:
        command = [sys.executable, "-m", "seqloom", "--help"]
        environment = {**os.environ, "TTY_COMPATIBLE": "1", "FORCE_COLOR": "1", "TERM": "xterm", **variables}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.splitlines()

    narrow = shown(COLUMNS="60", NO_COLOR="1")
    assert max(map(len, narrow)) <= 60
    wide = shown(COLUMNS="110", NO_COLOR="1")
    assert 100 < max(map(len, wide)) <= 110
    assert not any("\x1b[3" in line for line in wide)


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("generate", "--max-new-tokens"),
        ("translate", "--num-beams"),
        ("explain", "--lr"),
        ("train", "--batch-size"),
        ("explain", "--output_dir"),
        ("explain", "-m"),
    ],
)
def test_options_of_other_tools_are_answered_with_ours(verb: str, name: str, capsys: pytest.CaptureFixture):
    code, err = fails([verb, "gpt", name, "3"], capsys)
    assert code == 2 and err == f"seqloom: {name}: here it is {PEER_OPTIONS[name]}\n"


@pytest.mark.parametrize(
    ("verb", "name"),
    [("train", "--max-new-tokens"), ("predict", "--batch-size"), ("embed", "--lr"), ("score", "--num-beams")],
)
def test_no_option_is_offered_that_the_verb_lacks(verb: str, name: str, capsys: pytest.CaptureFixture):
    code, err = fails([verb, "gpt", name, "3"], capsys)
    assert code == 2 and err == f"seqloom: {name}: {verb} has no such option; see: seqloom {verb} --help\n"


def test_no_name_of_another_tool_is_one_of_ours():
    for name, command in LEAVES.items():
        own = {option for argument in command.assemble_argument_collection() for option in argument.names}
        renamed = set(OLD_OPTIONS.get(name, {}))
        assert not renamed & own, f"{name}: {renamed & own} are old names and present ones"
        for option, present in OLD_OPTIONS.get(name, {}).items():
            assert present in own, f"{name}: {option} is renamed to {present}, which it does not have"


def test_an_old_option_runs_and_names_the_new_one(capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.setitem(OLD_OPTIONS, "presets", {"--kind": "--task"})
    main(["presets", "--kind", "tagging"])
    out, err = capsys.readouterr()
    assert "tagger-transformer" in out and err == "warning: --kind is now --task\n"


def test_only_files_take_several_values():
    """An option of another kind would swallow the text or the file that follows it."""
    for name, command in LEAVES.items():
        for argument in command.assemble_argument_collection():
            several = argument.parameter.consume_multiple not in (None, False)
            if several and any(option.startswith("--") for option in argument.names):
                names = {option for option in argument.names if not option.startswith("--empty-")}
                assert names <= set(SEVERAL_VALUES), f"{name} {names}"


def test_changes_after_files_are_changes():
    words = ["train", "gpt", "--data", "a.txt", "b.txt", "model.dim=8", "--out", "x=1"]
    assert prepare(words) == ["train", "gpt", "model.dim=8", "--data", "a.txt", "b.txt", "--out", "x=1"]
    words = ["train", "gpt", "--data", "a", "--valid", "b", "model.dim=8", "seed=1"]
    assert prepare(words) == ["train", "gpt", "model.dim=8", "seed=1", "--data", "a", "--valid", "b"]
    assert prepare(["train", "gpt", "--data", "./a=b"]) == ["train", "gpt", "--data", "./a=b"]
    assert CHANGE.fullmatch("model.stack.layers=4") and not CHANGE.fullmatch("./a=b")


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_completion_and_the_reference_know_the_groups():
    from cyclopts.docs.base import iterate_commands

    assert {"data", "inspect", "runs", "vectors"} <= {name for name, _ in iterate_commands(app)}


def test_bash_completes_verbs_options_presets_and_runs(tmp_path: Path):
    program = tmp_path / "seqloom"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m seqloom "$@"\n', "utf-8")
    program.chmod(0o755)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.yaml").write_text("seqloom: 2\n", "utf-8")
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(source)

    def run(*command: str) -> str:
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    run(str(program), "--install-completion", "--shell", "bash", "--output", str(tmp_path / "complete.bash"))
    script = f"""
source {tmp_path / "complete.bash"}
complete -p seqloom
try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); _seqloom; echo "${{COMPREPLY[*]}}"; }}
try seqloom ""
try seqloom train ""
try seqloom runs sh
try seqloom check --mem
try seqloom runs show runs/
try seqloom generate ru
try seqloom tr
"""
    known, verbs, presets, show, memory, *runs, trainers = run(str(BASH), "-c", script).splitlines()
    assert known == "complete -o bashdefault -o default -F _seqloom seqloom"
    assert {"train", "check", "runs", "explain"} <= set(verbs.split())
    assert set(preset_names()) | {"runs/mine"} <= set(presets.split())
    assert (show, memory, runs) == ("show", "--memory", ["runs/mine", "runs/mine"])
    assert sorted(trainers.split()) == ["train", "transcribe", "translate"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_for_other_shells_are_written(shell: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / f"complete.{shell}"
    main(["--install-completion", "--shell", shell, "--output", str(path)])
    assert "seqloom" in path.read_text("utf-8") and "__complete" in path.read_text("utf-8")


def test_a_terminal_that_lacks_characters_gets_escapes() -> None:
    """`explain` prints α and ₜ; in a C locale they are escapes, and the exit code is 0."""
    settings = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "seqloom", "explain", "gpt"],
        capture_output=True,
        env=settings,
        check=False,
    )
    assert done.returncode == 0 and b"\\u209c" in done.stdout and done.stdout.isascii()


def test_a_current_folder_that_was_deleted_is_named(tmp_path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    script = f"cd {folder} && rmdir {folder} && exec {sys.executable} -P -m seqloom runs list"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (
        done.returncode == 2
        and done.stderr.strip() == "seqloom: the current folder was deleted; change to another one"
    )

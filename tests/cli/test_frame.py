"""The verbs as `seqloom --help` shows them, and what holds for each of them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import get_type_hints

import pytest
from cyclopts import App

from seqloom.cli import app, main
from seqloom.cli.app import arrange_help
from seqloom.cli.names import VERBS
from seqloom.cli.options import Common

# Older verbs, which have no group, no examples and no common options.
OLD = {"classify"}


def leaves(parent: App, path: tuple[str, ...] = ()) -> dict[str, App]:
    """The verbs by their full names, such as `runs list`."""
    found: dict[str, App] = {}
    for name, command in parent.resolved_commands().items():
        if name.startswith("-"):
            continue
        inner = leaves(command, (*path, name))
        if command.default_command is not None:
            found[" ".join((*path, name))] = command
        found |= inner
    return found


GROUPS_OF_OPTIONS: set[str] = {
    "decoding",
    "budget",
}  # dataclasses of options, which describe their fields themselves
arrange_help()
LEAVES = leaves(app)
FINISHED = {name: command for name, command in LEAVES.items() if name.split()[0] not in OLD}


def test_each_verb_is_in_its_group():
    groups = {
        verb: command.group[0].name
        for verb, command in app.resolved_commands().items()
        if not verb.startswith("-") and verb not in OLD
    }
    expected = {verb: group for group, verbs in VERBS.items() for verb in verbs}
    assert groups == {verb: expected[verb] for verb in groups}


@pytest.mark.parametrize("name", FINISHED)
def test_a_verb_has_one_line_three_examples_and_the_common_options(name: str):
    command = FINISHED[name]
    line, *rest = (inspect.getdoc(command.default_command) or "").splitlines()
    assert 0 < len(line) <= 60 and rest[:1] in ([], [""]), line
    heading, *lines = (command.help_epilogue or "").splitlines()
    assert heading == "Examples:"
    assert len(lines) == 3 and all(len(example) <= 80 for example in lines)
    assert all(re.match(rf"  (.*\| |\w+=\S+ )?seqloom {name}\b", example) for example in lines), lines
    parameters = inspect.signature(command.default_command).parameters
    assert parameters["common"].default == Common()


@pytest.mark.parametrize("name", FINISHED)
def test_help_shows_the_examples_as_they_are_written(name: str, capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    main([*name.split(), "--help"])
    shown = re.sub(r" +\n", "\n", capsys.readouterr().out)
    assert shown.endswith(FINISHED[name].help_epilogue + "\n")
    hints = get_type_hints(FINISHED[name].default_command, include_extras=True)
    shown_names = {
        parameter
        for parameter, hint in hints.items()
        if not any(getattr(extra, "show", None) is False for extra in getattr(hint, "__metadata__", ()))
    }
    described = set(
        re.findall(r"^(\w+)\n    \S", inspect.getdoc(FINISHED[name].default_command), re.MULTILINE)
    )
    expected = shown_names - {"return", "common", "machine"} - GROUPS_OF_OPTIONS
    assert described == expected, "describe each parameter"


@pytest.mark.parametrize("name", ["runs", "inspect", "data", "vectors"])
def test_a_group_has_one_line_and_the_first_examples_of_its_verbs(name: str, capsys: pytest.CaptureFixture):
    group = app[name]
    assert 0 < len(group.help) <= 60
    main([name, "--help"])
    *_, heading, first, second, third = capsys.readouterr().out.rstrip().splitlines()
    assert heading.rstrip() == "Examples:"
    assert all(line.startswith(f"  seqloom {name} ") for line in (first, second, third))


@pytest.mark.parametrize("name", FINISHED)
def test_help_breaks_lines_only_where_the_terminal_ends(name: str):
    text, _, parameters = inspect.getdoc(FINISHED[name].default_command).partition("\nParameters\n")
    assert not re.search(r"\S\n\S", text)
    assert not re.search(r"^    .*\n    ", parameters, re.MULTILINE)


def test_help_needs_no_torch():
    code = """
import sys
from seqloom.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
print("torch" in sys.modules, "numpy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"

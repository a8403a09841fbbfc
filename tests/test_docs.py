"""The pages name only what exists: imports in their Python examples, links, files of the project."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest

from support import pages

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
SOURCE = ROOT / "src" / "seqloom"


def exists(module: str, name: str | None = None) -> bool:
    """Whether a module, or a name in it, which may be a module too, can be imported."""
    try:
        imported = importlib.import_module(module)
    except ImportError:
        return False
    return name is None or hasattr(imported, name) or exists(f"{module}.{name}")


def missing_imports(page: str) -> list[str]:
    """The imports from seqloom in Python examples that do not work."""
    missing = []
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if not isinstance(node, ast.ImportFrom) or not module.startswith("seqloom"):
                continue
            if not exists(module):
                missing.append(module)
                continue
            missing += [f"{module}.{alias.name}" for alias in node.names if not exists(module, alias.name)]
    return missing


def missing_files(page: str, folder: Path) -> list[str]:
    """Links and files in backticks that do not exist. A path is relative to the project or to src/seqloom."""
    links = [target for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page)]
    missing = [target for target in links if not (folder / target).exists()]
    for path in re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+\.(?:py|yaml|md))(?:::\w+)?`", page):
        if not any((base / path).exists() for base in (ROOT, SOURCE)):
            missing.append(path)
    return missing


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_imports_in_examples_work(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.name == "CONTRIBUTING.md":
        text = text.replace(
            "from seqloom.fused.leaky import leaky_recurrence\n", ""
        )  # a module of the page itself
    assert not missing_imports(text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_and_links_exist(path: Path) -> None:
    assert not missing_files(path.read_text("utf-8"), path.parent)


def test_a_missing_name_is_found() -> None:
    page = "```python\nfrom seqloom.nn import LSTM, Nothing\nfrom seqloom.nowhere import x\n```"
    assert missing_imports(page) == ["seqloom.nn.Nothing", "seqloom.nowhere"]
    assert missing_files("[a](nowhere.md) `nn/nowhere.py` `nn/cells.py`", ROOT / "docs") == [
        "nowhere.md",
        "nn/nowhere.py",
    ]


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)
def test_every_block_names_a_language_and_commands_are_in_blocks_that_run(path: Path) -> None:
    text = path.read_text("utf-8")
    languages = {block.language for block in pages.blocks(text)}
    assert languages <= {*pages.RUN, *pages.SHOWN}
    assert not pages.indented_commands(text)
    shown = [block for block in pages.blocks(text) if block.language == "text"]
    assert not [block.line for block in shown if re.search(r"^\$ |^seqloom [a-z]", block.code, re.MULTILINE)]


def test_few_blocks_are_not_run() -> None:
    not_run = [
        f"{path.name}:{block.line}: {block.not_run}"
        for path in pages.PAGES
        for block in pages.blocks(path.read_text("utf-8"))
        if block.not_run
    ]
    assert len(not_run) <= 5, "\n".join(not_run)


def test_blocks_of_a_page_are_found() -> None:
    page = "a\n\n```sh\nls\n```\n<!-- not run: takes a day -->\n```python\nx\n\ny\n```\n    seqloom train gpt\n````text\n```\n````\n"
    assert pages.blocks(page) == [
        pages.Block(3, "sh", "ls", ""),
        pages.Block(7, "python", "x\n\ny", "takes a day"),
        pages.Block(13, "text", "```", ""),
    ]
    assert [block.runs for block in pages.blocks(page)] == [True, False, False]
    in_place = pages.Block(1, "sh", "make demo", "installs; instead: seqloom demo")
    assert in_place.runs and in_place.instead == "seqloom demo"
    assert pages.indented_commands(page) == ["seqloom train gpt"]
    console = "$ seqloom a \\\n  b\nout\n\n$ seqloom c"
    assert pages.console(console) == [
        pages.Command("seqloom a \\\n  b", "out\n\n"),
        pages.Command("seqloom c", ""),
    ]


def inline_commands(page: str) -> list[str]:
    """Commands between backquotes, such as `seqloom explain gpt`; one with an ellipsis or a placeholder in brackets is a pattern."""
    outside = re.sub(r"^( *)(`{3,}).*?^ *\2$", "", page, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"`(seqloom [a-z][^`]*)`", outside)
    return [" ".join(command.split()) for command in found if not re.search(r"…|\[", command)]


def parses(command: str) -> str:
    """What the program says against a command, without running it; empty if it can be parsed."""
    from cyclopts import CycloptsError

    from seqloom.cli.app import app, prepare

    words = shlex.split(command, comments=True)[1:]
    verb = app.resolved_commands().get(words[0])
    if verb is None:
        return f"no verb {words[0]}"
    if len(words) == 1 or words[-1] == "--help" or words[1:] in ([name] for name in verb.resolved_commands()):
        return ""
    with_names = [str(ROOT / "README.md") if word in ("FILE", "SOURCE", "TARGET") else word for word in words]
    try:
        app.parse_args(prepare(with_names), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return str(error)
    return ""


def block_commands(page: str) -> list[str]:
    """The commands of seqloom in the blocks of a page, without what is piped into them."""
    scripts = [block.code for block in pages.blocks(page) if block.language == "sh"]
    for block in pages.blocks(page):
        if block.language == "console":
            scripts += [command.command for command in pages.console(block.code)]
    lines = re.sub(r"\\\n", " ", "\n".join(scripts)).splitlines()
    found = [re.search(r"(?:^|\| |[A-Z_]+=\S* )(seqloom .*)", line) for line in lines]
    return [re.sub(r" \$\w+| > \S+", "", command[1]) for command in found if command]


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)
def test_commands_in_blocks_parse(path: Path) -> None:
    wrong = {command: parses(command) for command in block_commands(path.read_text("utf-8"))}
    assert not {command: fault for command, fault in wrong.items() if fault}


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=lambda path: path.name
)
def test_commands_between_backquotes_parse(path: Path) -> None:
    wrong = {command: parses(command) for command in inline_commands(path.read_text("utf-8"))}
    assert not {command: fault for command, fault in wrong.items() if fault}


def test_a_wrong_command_between_backquotes_is_found() -> None:
    assert inline_commands("`seqloom a\nb` `seqloom c …`\n```sh\n`seqloom d`\n```\n") == ["seqloom a b"]
    page = "```sh\nA=1 seqloom a \\\n b $C > d\necho x | seqloom e\n```\n```console\n$ seqloom f\nseqloom g\n```\n"
    assert block_commands(page) == ["seqloom a   b", "seqloom e", "seqloom f"]
    assert parses("seqloom nothing")
    assert parses("seqloom check gpt --nothing 3")
    assert not parses("seqloom check gpt model.dim=3  # a comment")


def test_examples_of_help_parse() -> None:
    from seqloom.cli import app
    from seqloom.cli.app import arrange_help

    arrange_help()
    groups = [command for name, command in app.resolved_commands().items() if not name.startswith("-")]
    inner = [verb for group in groups for name, verb in group.resolved_commands().items() if name[0] != "-"]
    lines = [line for verb in (*groups, *inner) for line in (verb.help_epilogue or "").splitlines()[1:]]
    examples = [line.rpartition(" | ")[2].strip() for line in lines]
    assert len(examples) > 10
    wrong = {example: parses(example) for example in examples if example.startswith("seqloom ")}
    assert not {example: fault for example, fault in wrong.items() if fault}


def test_the_changelog_has_every_old_name_with_the_present_one() -> None:
    from seqloom import OLD_NAMES
    from seqloom.cli.names import OLD_OPTIONS, OLD_VALUES, OLD_VERBS

    rows = [line for line in (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines() if line.startswith("| ")]

    def named(old: str, new: str) -> bool:
        sides = [row.split(" | ") for row in rows]
        return any(old in side[0] and new in side[1] for side in sides if len(side) > 1)

    pairs = [(verb, " ".join(new[:1])) for verb, new in OLD_VERBS.items()]
    pairs += [pair for options in OLD_OPTIONS.values() for pair in options.items()]
    pairs += [(" ".join(old), new) for values in OLD_VALUES.values() for old, new in values.items() if new]
    pairs += [
        (old, new.rpartition(".")[2])
        for old, (_, new, _) in OLD_NAMES.items()
        if old not in ("answer", "fill")
    ]
    assert len(pairs) > 30
    assert not [pair for pair in pairs if not named(*pair)]

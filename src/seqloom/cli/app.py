"""The program: its verbs by group, and how a command runs, prints and fails.

Results go to stdout, all else to stderr through the logger `seqloom`. A user's mistake is one line and exit code 2; work that failed is
exit code 1, and so is a bug, which says that it is one.
"""

from __future__ import annotations

import inspect
import io
import json as jsons
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from cyclopts import (
    App,
    Group,
    Parameter,
)

from seqloom import __version__
from seqloom.cli.error_messages import describe
from seqloom.cli.names import OLD_OPTIONS, OLD_VALUES, OLD_VERBS, VERBS
from seqloom.cli.options import Common, Machine
from seqloom.cli.signals import hear_signals
from seqloom.results import to_json

START, TRAIN, USE, LOOK, COMPARE, DATA, FILES = (
    Group(name, sort_key=order) for order, name in enumerate(VERBS)
)


def shown_default(value: Any) -> str | None:
    """A default as help shows it; none for flags, and for options without a value."""
    return None if value is None or value is False or value in ((), "") else str(value)


OPTIONS = Group("Options", sort_key=5)
PLAIN = Parameter(negative=(), show_default=shown_default)


class CommandLine(App):
    """The program, or a group of its verbs. Its completion in bash offers file names wherever nothing else fits, with a slash after a folder."""

    def generate_completion(self, *, prog_name: str | None = None, shell: Any = None) -> str:
        script = super().generate_completion(prog_name=prog_name, shell=shell)
        script = script.replace("complete -F ", "complete -o bashdefault -o default -F ")
        return re.sub(r"COMPREPLY=\( \$\(compgen -[fd] ", r"compopt -o filenames 2>/dev/null; \g<0>", script)


app = CommandLine(
    name="seqloom",
    help="Train, compare, generate with and explain every sequence model, on your own text.\n\n"
    "A verb's options and examples: seqloom VERB --help",
    help_epilogue="Examples:\n  seqloom demo\n  seqloom train classifier --data reviews.tsv\n"
    "  seqloom compare gpt lstm-lm --data input.txt --minutes 2",
    help_format="plaintext",  # shows the examples of a docstring as they are written
    group_parameters=OPTIONS,
    default_parameter=PLAIN,
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` reports it
)
PROGRAM = Group("Program", sort_key=9)
app["--help"].group = app["--version"].group = PROGRAM
app.register_install_completion_command(group=PROGRAM)

logger = logging.getLogger("seqloom")
# The settings of one verb, undone by `main` when the verb ends.
verb_settings: ContextVar[ExitStack] = ContextVar("verb_settings")
# The user's Python files of --code.
code_files: ContextVar[tuple[Path, ...]] = ContextVar("code_files", default=())
CHANGE = re.compile(r"[a-z_0-9]+(\.[a-z_0-9]+)*=.*", re.DOTALL)
EXAMPLES = re.compile(r"^Examples:\n(?:  .*(?:\n|\Z))+\n*", re.MULTILINE)
BARE_GROUPS = {"runs": "list"}  # what a group does without a sub-command, instead of printing its help
SEVERAL_VALUES = ("--data", "--valid", "--test", "--file")


def json_text(result: Any) -> str:
    """A result as one line of JSON, which has no infinite numbers: they become null."""
    return jsons.dumps(to_json(result), ensure_ascii=False, allow_nan=False)


def print_result(result: Any, lines: Sequence[str], json: bool) -> None:
    """Prints a result as one line of JSON, or as lines of text."""
    if json:
        print(json_text(result), flush=True)
    else:
        print("\n".join(lines), flush=True)


def add_group(name: str, help: str, group: Group) -> App:
    """Adds a verb that has sub-commands of its own, such as `runs list`."""
    verbs = CommandLine(  # cyclopts writes about sub-commands only if they are of the class of the program
        name=name,
        help=help,
        group=group,
        help_format="plaintext",
        default_parameter=PLAIN,
        group_parameters=OPTIONS,
        version_flags=(),
    )
    app.command(verbs)
    return verbs


def arrange_help(parent: App = app) -> None:
    """Puts the verbs in the order of `VERBS`, and the examples of their docstrings at the end of their help, as they are written.

    The parser of docstrings takes `Examples:` for a section of another style, and would lose the parameters. A group shows the first
    example of each of its first three verbs.
    """
    order = [verb for verbs in VERBS.values() for verb in verbs]
    for name, command in parent.resolved_commands().items():
        if parent is app and name in order:
            command.sort_key = order.index(name)
        if command.default_command is None:
            if not name.startswith("-"):
                arrange_help(command)
                command.help_epilogue = group_examples(command)
            continue
        text = inspect.getdoc(command.default_command) or ""
        if examples := EXAMPLES.search(text):
            command.default_command.__doc__ = unwrap(text.replace(examples[0], "").rstrip()) + "\n"
            command.help_epilogue = examples[0].rstrip()


def group_examples(group: App) -> str:
    """The first example of each of the first three verbs of a group."""
    verbs = [verb for name, verb in group.resolved_commands().items() if not name.startswith("-")]
    examples = [lines[1] for verb in verbs if len(lines := (verb.help_epilogue or "").splitlines()) > 1]
    return "\n".join(["Examples:", *examples[:3]])


def unwrap(docstring: str) -> str:
    """A docstring in numpy's form with each paragraph on one line, so that help breaks lines where the terminal ends."""
    text, heading, parameters = docstring.partition("\nParameters\n----------\n")
    text = re.sub(r"(?<=\S)\n(?=\S)", " ", text)
    rows: list[str] = []
    for row in parameters.splitlines():
        if rows and row.startswith("    ") and rows[-1].startswith("    "):
            rows[-1] += " " + row.strip()
        else:
            rows.append(row)
    return text + heading + "\n".join(rows)


class StderrHandler(logging.StreamHandler):
    """Writes log lines to whatever stderr is at that moment, so that a progress bar stays below them."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        message = super().format(record)
        return f"warning: {message}" if record.levelno >= logging.WARNING else message


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Inside, the log of seqloom goes to stderr, from the level of SEQLOOM_LOG on (info by default)."""
    handler = StderrHandler()
    level = logger.level
    wanted = logging.getLevelNamesMapping().get(os.environ.get("SEQLOOM_LOG", "info").upper(), logging.INFO)
    logger.addHandler(handler)
    logger.setLevel(wanted)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class Dash(str):
    """A lone `-`, which means stdin: a value that the parser does not take for an option."""

    def startswith(self, *_: Any) -> bool:
        return False


def prepare(arguments: Sequence[str]) -> list[str]:
    """The arguments as the parser takes them: present names for older ones, `help VERB` as `VERB --help`, and changes such as
    model.dim=64 before the option that they follow, so that they are not taken for one of its files."""
    words = list(arguments)
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    if words and words[0] in OLD_VERBS:
        new = OLD_VERBS[words[0]]
        logger.warning("%s is now: seqloom %s", words[0], " ".join(new))
        words[:1] = new
    bare = len(words) == 1 or (
        len(words) > 1 and words[1].startswith("-") and words[1] not in ("-h", "--help")
    )
    if bare and words[0] in BARE_GROUPS:
        words.insert(1, BARE_GROUPS[words[0]])
    group = app.resolved_commands().get(words[0]) if words else None
    verb = " ".join(words[: 2 if group is not None and group.default_command is None else 1])
    words = replace_values(words, OLD_VALUES.get(verb, {}))
    renamed = OLD_OPTIONS.get("", {}) | OLD_OPTIONS.get(verb, {})
    prepared: list[str] = []
    first_start: int | None = None  # where the first option with several values begins: changes go before it
    in_values = False
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word == "--":
            return [*prepared, *words[position:]]
        if name in renamed:
            logger.warning("%s is now %s", name, renamed[name])
            name = renamed[name]
            word = name + equals + value
        if word.startswith("-") and word != "-":
            in_values = name in SEVERAL_VALUES
            if in_values and first_start is None:
                first_start = len(prepared)
        elif in_values and first_start is not None and CHANGE.fullmatch(word):
            prepared.insert(first_start, word)
            first_start += 1
            continue
        prepared.append(Dash(word) if word == "-" else word)
    return prepared


def replace_values(words: list[str], replaced: Mapping[tuple[str, str], str]) -> list[str]:
    """The arguments with older options whose value is now an option by itself under their present names."""
    for (name, value), new in replaced.items():
        for start, old in [
            (i, old) for i in range(len(words)) for old in ([name, value], [f"{name}={value}"])
        ]:
            if words[start : start + len(old)] == old:
                logger.warning("%s %s is now %s", name, value, new or "the default")
                return replace_values(
                    [*words[:start], *([new] if new else []), *words[start + len(old) :]], replaced
                )
    return words


def run_command(arguments: Sequence[str]) -> None:
    """Parses a command and runs its verb."""
    arrange_help()
    command, bound, _ = app.parse_args(prepare(arguments), exit_on_error=False, print_error=False)
    common = bound.arguments.get("common", Common())
    machine = bound.arguments.get("machine")
    code_files.set(machine.code if isinstance(machine, Machine) else ())
    if common.quiet:
        logger.setLevel(logging.ERROR)
    elif common.verbose:
        logger.setLevel(logging.DEBUG)
    command(*bound.args, **bound.kwargs)
    print(end="", flush=True)


def wait_briefly() -> None:
    """Lets the threads of libgomp, which torch has not loaded yet, sleep soon when they wait for each other. By default they spin for
    milliseconds: on a quiet machine that gains nothing, and beside another job a product of a small model takes 500 times as long."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; exits with 0, 1 for failed work, 2 for a user's mistake, 128 + n for signal n, 141 if the reader of stdout left."""
    is_program = arguments is None
    if arguments is None:
        arguments = sys.argv[1:]
        wait_briefly()
        escape_unencodable()
        check_current_folder()
    verbose = not {"-v", "--verbose"}.isdisjoint(arguments)
    try:
        with ExitStack() as settings, logging_to_stderr(), hear_signals() if is_program else nullcontext():
            verb_settings.set(settings)
            run_command(arguments)
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        message, code = describe(error, app)
        if verbose and not isinstance(error, KeyboardInterrupt | BrokenPipeError):
            traceback.print_exception(error)
        print_error(message)
        from seqloom.train.process import leave_after_error

        leave_after_error(code)
        sys.exit(code)


def escape_unencodable() -> None:
    """Characters that the encoding of the terminal lacks are printed as escapes such as \\u03b1, instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (
            stream.errors == "strict" or not stream.encoding.lower().startswith("utf")
        ):
            stream.reconfigure(errors="backslashreplace")


def check_current_folder() -> None:
    """Exits if the current folder was deleted: libraries could not be loaded from it."""
    try:
        os.getcwd()
    except FileNotFoundError:
        print_error("the current folder was deleted; change to another one")
        sys.exit(2)


def print_error(message: str) -> None:
    """Prints one line of at most 1,000 characters. Control characters, such as those in a file name, are escaped."""
    escaped = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in " ".join(message.split())
    )
    if escaped:
        print(f"seqloom: {escaped if len(escaped) <= 1000 else escaped[:999] + '…'}", file=sys.stderr)

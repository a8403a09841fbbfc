"""The line that the program prints for an error, and its exit code: 2 for a user's mistake, 1 for work that failed and for a bug."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Sequence

from cyclopts import (
    App,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from seqloom.cli.names import GROUP_PEER_OPTIONS, PEER_OPTIONS, VERBS
from seqloom.errors import Error

TAKES_CHANGES = (
    "train",
    "check",
    "explain",
    "compare",
)  # the verbs whose arguments may be changes of a config
NO_MEMORY = ("not enough memory", "can't allocate memory")  # in errors of torch


def describe(error: BaseException, app: App) -> tuple[str, int]:
    """The line to print for an error, empty if there is nobody to read it, and the exit code."""
    if isinstance(error, UnknownOptionError):
        name = (error.token.keyword or error.token.value).partition("=")[0]
        peers = PEER_OPTIONS | GROUP_PEER_OPTIONS.get(next(iter(error.command_chain or ()), ""), {})
        if name in peers:
            return f"{name}: {fitting_hint(app, peers[name], error.command_chain or ())}", 2
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(error.unused_tokens or ())
        return f"{extra}: more arguments than this verb takes; put quotes around a text that has blanks", 2
    if isinstance(error, MissingArgumentError) and error.keyword is None and error.argument is not None:
        verb = " ".join(error.command_chain or ())
        return f"{verb}: {error.argument.name.lstrip('*')} is missing; as in: {first_example(app, verb)}", 2
    if isinstance(error, UnknownCommandError) and error.unused_tokens and not error.command_chain:
        return unknown_verb(error.unused_tokens[0]), 2
    if isinstance(error, CycloptsError):
        return str(error), 2
    if isinstance(error, Error):
        return str(error), error.code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, BrokenPipeError):
        discard_stdout()
        return "", 141
    if isinstance(error, OSError):
        if error.filename is None:
            discard_stdout()
        return f"{error.filename or 'the output'}: {(error.strerror or str(error)).lower()}", 2
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in NO_MEMORY):
        return "the memory of this machine is used up; use a smaller model, batch or file", 1
    if type(error).__name__ == "PanicException":  # of the tokenizers library; not an Exception
        return f"the tokenizer cannot read this text ({error})", 2
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"this is a bug in seqloom ({what}); the same command with -v shows where, please report it", 1


def command_of(app: App, verb: Sequence[str]) -> App:
    """The command of a verb, given by the words of its name."""
    command = app
    for word in verb:
        command = command.resolved_commands()[word]
    return command


def fitting_hint(app: App, ours: str, verb: Sequence[str]) -> str:
    """What an option of another tool is called here, if the verb has it."""
    arguments = command_of(app, verb).assemble_argument_collection(parse_docstring=False)
    names = {name for argument in arguments for name in argument.names}
    options = re.findall(r"--[a-z-]+", ours)
    is_change = " change " in f" {ours}"
    fits = " ".join(verb) in TAKES_CHANGES if is_change else not options or bool(names & set(options))
    if fits:
        return f"here it is {ours}"
    return f"{' '.join(verb)} has no such option; see: seqloom {' '.join(verb)} --help"


def first_example(app: App, verb: str) -> str:
    """The first example in the help of a verb."""
    command = command_of(app, verb.split())
    lines = (command.help_epilogue or "").splitlines()
    return lines[1].strip() if len(lines) > 1 else f"seqloom {verb} --help"


def unknown_verb(word: str) -> str:
    """What to do about a verb that does not exist."""
    from seqloom.config_source import preset_names

    if word.startswith("-"):
        return f"{word}: there is no such option; the verbs, which have options of their own, are in: seqloom --help"
    if word in preset_names():
        return f"{word}: a preset, not a verb; train it with: seqloom train {word} --data FILE"
    near = difflib.get_close_matches(word, [verb for group in VERBS.values() for verb in group], 1)
    hint = (
        f"did you mean {near[0]}? All verbs: seqloom --help" if near else "the verbs are in: seqloom --help"
    )
    return f"{word}: there is no such verb; {hint}"


def discard_stdout() -> None:
    """Redirects stdout to nowhere, so that the text that could not be written is not written again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

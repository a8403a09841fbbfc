"""Verb: chat with a language model in the terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from seqloom.cli.app import USE, app, print_result
from seqloom.cli.decoding_options import Answering, AnsweringOptions
from seqloom.cli.inputs import open_run
from seqloom.cli.options import Common, CommonOptions, Kind, Machine, MachineOptions, RunPath
from seqloom.cli.signals import conversation
from seqloom.errors import Error, UserError

if TYPE_CHECKING:
    from seqloom.inference.chatting import Chat

HELP = """\
/undo            take the latest question and its answer back
/system TEXT     replace the system message; without a text, remove it
/temperature T   0 is greedy
/tokens N        most tokens of an answer
/save FILE       write the chat as JSON Lines
/clear           begin again
/quit            leave, as Ctrl-D does
A line that ends with \\ goes on in the next one; \"\"\" begins and ends a text of several lines. Ctrl-C stops an answer."""
logger = logging.getLogger("seqloom.cli")
LEAVE = "\nCtrl-D leaves"
QUOTES = '"""'


@app.command(group=USE)
def chat(
    run: RunPath,
    /,
    *,
    system: str | None = None,
    once: str | None = None,
    file: Annotated[Path | None, Parameter(name="--file")] = None,
    decoding: AnsweringOptions = Answering(),
    quantize: Kind | None = None,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Chat with a language model.

    The chat becomes text by the run's chat template. In the terminal, /help lists the commands. Each line of a stdin that is no terminal is a
    message.

    Examples:
      seqloom chat runs/smollm2
      seqloom chat runs/smollm2 --system "Answer in one sentence." --temperature 0.2
      seqloom chat runs/smollm2 --once "What is the capital of France?" --json

    Parameters
    ----------
    run
        The run folder of a language model.
    system
        What the model is to be: the system message.
    once
        One message; its answer is printed and the program ends.
    file
        A chat to go on with, such as one of /save.
    quantize
        int8: one byte for each weight, faster to read.
    """
    from seqloom.inference.chatting import Chat
    from seqloom.inference.unknown_text import UnknownText

    if common.json and once is None:
        raise UserError('--json: give one message, as in: seqloom chat RUN --once "Hello" --json')
    if once is not None and not once.strip():
        raise UserError("--once: an empty message; write one")
    options = decoding.options(machine.seed)
    talk = Chat(open_run(run, machine.threads, quantize), **options)
    if file is not None:
        talk.load(file)
    if system is not None:
        talk.set_system(system)
    if talk.run.chat_template is None:
        logger.warning(
            "%s: not trained on chats, so answers may be noise; train it: seqloom train sft --from %s --data FILE",
            run,
            run,
        )
    if once is not None:
        if common.json:
            reply = talk.say(once)
            print_result({**reply.to_dict(), **talk.to_dict()}, [reply.text], True)
        else:
            answer(talk, once)
        unknown = UnknownText(talk.run)
        unknown.add(once)
        unknown.warn()
        return
    with conversation():
        converse(talk, common.quiet)


def converse(talk: Chat, quiet: bool) -> None:
    """Reads messages and commands until the input ends."""
    terminal = sys.stdin.isatty()
    if terminal and not quiet:
        print(f"{talk.run.folder.name}: a message, or /help; Ctrl-D leaves", file=sys.stderr)
    for line in read_messages(terminal):
        try:
            if line.startswith("/"):
                if not command(talk, line):
                    return
            elif line.strip():
                answer(talk, line)
        except Error as error:
            print(f"seqloom: {error}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print(LEAVE, file=sys.stderr, flush=True)


def answer(talk: Chat, message: str) -> None:
    """Prints the answer while it is generated; Ctrl-C stops it."""
    pieces = talk.stream(message)
    try:
        for piece in pieces:
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        pieces.close()  # type: ignore[attr-defined]  # a generator
        print(" [stopped]", end="", file=sys.stderr, flush=True)
    print(flush=True)
    if talk.reply is not None and talk.reply.left_out:
        print(
            f"seqloom: {talk.reply.left_out} earlier messages no longer fit into the context", file=sys.stderr
        )


def read_messages(terminal: bool) -> Iterator[str]:
    """Yields the messages and commands that are typed, each perhaps of several lines."""
    if terminal:
        with suppress(ImportError):
            import readline  # noqa: F401  # gives input() a history
    while True:
        try:
            line = read_line("> " if terminal else "")
            if line.strip().startswith(QUOTES):
                line = quoted(line.strip().removeprefix(QUOTES), terminal)
            while line.endswith("\\"):
                line = line[:-1] + "\n" + read_line("… " if terminal else "")
        except EOFError:
            if terminal:
                print()
            return
        except KeyboardInterrupt:
            print(LEAVE, file=sys.stderr, flush=True)
            continue
        yield line


def quoted(text: str, terminal: bool) -> str:
    """The text up to the next three quotes."""
    while not text.rstrip().endswith(QUOTES):
        text += "\n" + read_line("… " if terminal else "")
    return text.rstrip().removesuffix(QUOTES).strip("\n")


def read_line(prompt: str) -> str:
    try:
        return input(prompt)
    except UnicodeDecodeError:
        raise UserError("the message is not UTF-8; convert it to UTF-8") from None


def command(talk: Chat, line: str) -> bool:
    """Runs a command; returns whether the chat goes on."""
    name, _, value = line[1:].partition(" ")
    value = value.strip()
    commands: dict[str, Callable[[], str]] = {
        "help": lambda: HELP,
        "undo": lambda: "taken back" if talk.undo() else "there is nothing to take back",
        "system": lambda: set_system(talk, value),
        "temperature": lambda: set_option(talk, "temperature", value, float),
        "tokens": lambda: set_option(talk, "max_tokens", value, int),
        "save": lambda: save(talk, value),
        "clear": lambda: clear(talk),
    }
    if name in ("quit", "exit", "bye"):
        return False
    if name not in commands:
        raise UserError(f"there is no command /{name}; /help lists them")
    print(commands[name](), file=sys.stderr, flush=True)
    return True


def set_system(talk: Chat, value: str) -> str:
    talk.set_system(value)
    return "the system message is set" if value else "the system message is removed"


def set_option(talk: Chat, name: str, value: str, kind: type[int] | type[float]) -> str:
    """Changes a decoding option; a wrong value changes nothing."""
    before = talk.settings
    try:
        talk.settings = before.with_options({name: kind(value)})  # type: ignore[misc]  # the name of an option
        talk.plan()
    except ValueError as error:
        talk.settings = before
        reason = str(error) if isinstance(error, Error) else "it takes a number"
        raise UserError(f"/{'tokens' if name == 'max_tokens' else name} {value}: {reason}") from None
    return f"{name.replace('_', ' ')} {value}"


def save(talk: Chat, value: str) -> str:
    if not value:
        raise UserError("/save takes a file, as in: /save chat.jsonl")
    talk.save(value)
    return f"saved: {value}"


def clear(talk: Chat) -> str:
    talk.messages = [message for message in talk.messages if message.role == "system"]
    return "begun again"

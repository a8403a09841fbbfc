"""What the verbs share: the app, the config of a command line, output, errors.

Results go to stdout, progress to stderr. A user's mistake is one line and exit code 2; a failed run is exit code 1.
"""

from __future__ import annotations

import json as jsons
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter, validators

if TYPE_CHECKING:
    from seqloom.run import Config, Run

app = App(
    name="seqloom",
    help="Train, compare, generate with and explain every sequence model, on your own text.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,  # `main` reports it
)
Files = Annotated[list[str] | None, Parameter(consume_multiple=True)]
Kind = Literal["int8"]
Count = Annotated[int, Parameter(validator=validators.Number(gte=1, lt=2**31))]
Threads = Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=4096))]
# The settings of one verb, undone by `main` when the verb ends.
_verb: ContextVar[ExitStack] = ContextVar("verb")
OVERRIDE = re.compile(r"[a-z_]+(\.[a-z_]+)*=.*")


def recipe(
    source: str,
    overrides: Sequence[str],
    data: list[str] | None,
    valid: list[str] | None,
    seed: int | None,
    base: Path | None = None,
) -> Config:
    """The checked config of a command line. In `--data a b model.dim=64` the last item is an override unless it is a file."""
    from seqloom.run import Config

    items = [*(data or []), *(valid or [])]
    changes = [item for item in items if OVERRIDE.fullmatch(item) and not Path(item).exists()]

    def without_changes(paths: list[str] | None) -> list[str] | None:
        return None if paths is None else [path for path in paths if path not in changes]

    config = Config.load(source, [*overrides, *changes], without_changes(data), without_changes(valid), seed)
    if base is None:
        return config
    from seqloom.train.finetune import from_run

    return from_run(config, base, [*overrides, *changes])


def print_result(result: dict[str, Any], lines: Sequence[str], json: bool) -> None:
    """Prints a result as one line of JSON, or as lines of text."""
    print(jsons.dumps(result, ensure_ascii=False) if json else "\n".join(lines), flush=True)


def open_run(run: Path, threads: int | None, quantize: str | None = None) -> Run:
    """Loads a finished run, quantised if asked. The thread count holds until the verb ends."""
    from seqloom.run import load
    from seqloom.threads import use_threads

    _verb.get().enter_context(use_threads(threads))
    loaded = load(run)
    if quantize:
        from seqloom.nn import quantize as quantize_model

        quantize_model(loaded.model, quantize)
    return loaded


def stdin_lines() -> Iterator[str]:
    """The lines of stdin as they arrive, read as UTF-8 in every locale."""
    for line_number, line in enumerate(sys.stdin.buffer if sys.stdin else (), 1):
        try:
            yield line.decode("utf-8-sig" if line_number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"stdin:{line_number}: byte {error.start + 1} of the line is not UTF-8; convert the text to UTF-8"
            ) from None


def need_text(texts: Sequence[str], name: str) -> None:
    """Raises if a text of the command line is not UTF-8."""
    from seqloom.text.corpus import is_valid_unicode

    for index, text in enumerate(texts, 1):
        if not is_valid_unicode(text):
            raise ValueError(f"{name} {index} is not UTF-8; convert the text to UTF-8")


class Dash(str):
    """A lone `-`, which means stdin: a value that the parser does not take for an option."""

    def startswith(self, *_: Any) -> bool:
        return False


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; exits with 0, 2 for a user's mistake, 1 for a failed run, 128 + n for signal n."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with ExitStack() as verb:
            _verb.set(verb)
            app(
                [Dash(argument) if argument == "-" else argument for argument in arguments],
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
            print(end="", flush=True)
    except (CycloptsError, ValueError) as error:
        fail(str(error), 2)
    except BrokenPipeError:
        discard_stdout()
        sys.exit(141)
    except OSError as error:
        if error.filename is None:
            discard_stdout()
        fail(f"{error.filename or 'the output'}: {(error.strerror or str(error)).lower()}", 2)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except RuntimeError as error:
        if type(error).__module__.startswith("seqloom"):
            fail(str(error), getattr(error, "code", 1))
        raise
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # of the tokenizers library; not an Exception
            fail(f"the tokenizer cannot read this text ({error})", 2)
        raise


def discard_stdout() -> None:
    """Redirects stdout to nowhere, so that the text that could not be written is not written again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str, code: int) -> None:
    """Exits with one line of at most 1,000 characters. Control characters, such as those in a file name, are escaped."""
    escaped = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in " ".join(message.split())
    )
    print(f"seqloom: {escaped if len(escaped) <= 1000 else escaped[:999] + '…'}", file=sys.stderr)
    sys.exit(code)

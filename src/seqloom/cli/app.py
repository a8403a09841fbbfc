"""What the verbs share: the app, the config that a command line means, output, errors.

Results go to stdout, progress to stderr. A user's mistake is one line and exit code 2; a run that went wrong is 1.
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
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter, validators

app = App(
    name="seqloom",
    help="Train, compare, generate with and explain every sequence model, on your own text.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,  # main says it
)
Files = Annotated[list[str] | None, Parameter(consume_multiple=True)]
Kind = Literal["int8"]
Count = Annotated[int, Parameter(validator=validators.Number(gte=1, lt=2**31))]
Threads = Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=4096))]
_verb: ContextVar[ExitStack] = ContextVar(
    "verb"
)  # closed by `main` after the verb: what a verb sets for its own time
OVERRIDE = re.compile(r"[a-z_]+(\.[a-z_]+)*=.*")


def recipe(
    what: str,
    overrides: Sequence[str],
    data: list[str] | None,
    valid: list[str] | None,
    seed: int | None,
    base: Path | None = None,
) -> Any:
    """The checked config that the command line means; in `--data a b model.dim=64` what reads as an override is one."""
    from seqloom.run import Config

    changes = [
        item
        for item in [*(data or []), *(valid or [])]
        if OVERRIDE.fullmatch(item) and not Path(item).exists()
    ]
    sides = [
        None if side is None else [item for item in side if item not in changes] for side in (data, valid)
    ]
    made = Config.load(what, [*overrides, *changes], *sides, seed)
    if base is None:
        return made
    from seqloom.train.finetune import from_run

    return from_run(made, base, [*overrides, *changes])


def print_result(result: dict[str, Any], lines: Sequence[str], json: bool) -> None:
    print(jsons.dumps(result, ensure_ascii=False) if json else "\n".join(lines), flush=True)


def open_run(run: Path, threads: int | None, quantize: str | None = None) -> Any:
    """A finished run, ready to use, its weights in bytes where asked."""
    from seqloom.run import load
    from seqloom.threads import use_threads

    _verb.get().enter_context(use_threads(threads))
    loaded = load(run)
    if quantize:
        from seqloom.nn import quantize as put

        put(loaded.model, quantize)
    return loaded


def stdin_lines() -> Iterator[str]:
    """The lines of stdin as they come, which are UTF-8 whatever the locale is."""
    for number, line in enumerate(sys.stdin.buffer if sys.stdin else (), 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"stdin:{number}: byte {error.start + 1} of the line is not UTF-8; convert the text to UTF-8"
            ) from None


def need_text(texts: Sequence[str], what: str) -> None:
    """Find what the command line gives that is no UTF-8."""
    from seqloom.text.corpus import is_valid_unicode

    for number, text in enumerate(texts, 1):
        if not is_valid_unicode(text):
            raise ValueError(f"{what} {number} is not UTF-8; convert the text to UTF-8")


class Dash(str):
    """A lone `-`, which stands for stdin: a value that no parser takes for an option."""

    def startswith(self, *_: Any) -> bool:
        return False


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; end with 0, or 2 for the user's mistakes, 1 for a run gone wrong, 128 + n for signal n."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        with ExitStack() as verb:
            _verb.set(verb)
            app(
                [Dash(word) if word == "-" else word for word in words],
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
        if type(error).__name__ == "PanicException":  # the tokenizers library's, which is no Exception
            fail(f"the tokenizer cannot read this text ({error})", 2)
        raise


def discard_stdout() -> None:
    """Let nobody write again what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(sentence: str, code: int) -> None:
    """End with one line of at most some 1,000 characters, in which control characters, as a file may be named with, are shown and not obeyed."""
    plain = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in " ".join(sentence.split())
    )
    print(f"seqloom: {plain if len(plain) <= 1000 else plain[:999] + '…'}", file=sys.stderr)
    sys.exit(code)

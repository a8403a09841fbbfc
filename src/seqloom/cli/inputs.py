"""What the verbs read: texts of the command line, files and stdin; configs; runs."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.cli.app import code_files, verb_settings
from seqloom.errors import DataError, UserError

if TYPE_CHECKING:
    from torch.nn import Module

    from seqloom.run import Run
    from seqloom.run_config import Config

MAX_LINE = 4_000_000  # characters of one text of a file


def build_config(
    source: str,
    changes: Sequence[str],
    data: list[str] | None,
    valid: list[str] | None,
    seed: int | None,
    base: Path | None = None,
) -> Config:
    """The checked config of a command line."""
    from seqloom.run_config import Config

    config = Config.load(source, changes, data, valid, seed, load_code(code_files.get()))
    if base is None:
        return config
    from seqloom.train.finetune import from_run

    return from_run(config, base, changes)


def set_threads(threads: int | None) -> None:
    """The CPU threads of torch until the verb ends."""
    from seqloom.threads import thread_count, use_threads

    verb_settings.get().enter_context(use_threads(thread_count(threads)))


def open_run(run: str | Path, threads: int | None, quantize: str | None = None) -> Run:
    """Loads a finished run, quantised if asked. The thread count holds until the verb ends."""
    from seqloom.run import load

    set_threads(threads)
    return load(run, quantize=quantize, parts=load_code(code_files.get()))


def is_reward(function: Callable[..., object]) -> bool:
    """Whether a function can be a reward: (prompt, text), or (prompt, text, answer)."""
    return len(inspect.signature(function).parameters) in (2, 3) and not function.__name__.startswith("_")


def load_code(paths: Sequence[Path]) -> list[type[Module]]:
    """The part classes and the rewards that the user's Python files of --code define. The files are run: they are the user's own, and no
    config names them."""
    import importlib.util

    from torch.nn import Module

    parts: list[type[Module]] = []
    for number, path in enumerate(paths):
        name = f"seqloom_code_{number}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise UserError(f"{path}: not a Python file; --code takes a file such as mine.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise UserError(
                f"{path}: cannot be run ({type(error).__name__}: {error}); -v shows where"
            ) from error
        own = [value for value in vars(module).values() if getattr(value, "__module__", None) == name]
        found: list[Any] = [part for part in own if inspect.isclass(part) and issubclass(part, Module)]
        found += [value for value in own if inspect.isfunction(value) and is_reward(value)]
        if not found:
            raise UserError(
                f"{path}: defines no part and no reward; a part is a class derived from torch.nn.Module, "
                "a reward a function reward(prompt, text)"
            )
        parts += found
    return parts


def read_texts(texts: Sequence[str], files: Sequence[str] | None, example: str) -> Iterator[str]:
    """The texts to work on: those of the command line, else the lines of `--file`, else the lines of stdin, as they are needed.

    A text that is the name of a file is refused. `example` is a command that shows how to give a text.
    """
    chosen = input_files(texts, files, example)
    return iterate_files(chosen) if chosen else iter(texts)


def input_files(texts: Sequence[str], files: Sequence[str] | None, example: str) -> list[str]:
    """The files to read: none if the command line has texts, those of `--file`, or stdin as `-`. See `read_texts`."""
    if texts and files:
        raise UserError("give texts or --file, not both")
    if files:
        return list(files)
    if list(texts) == ["-"]:
        return ["-"]
    if texts:
        check_texts(texts)
        return []
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError(
            f"no text: give one, name a file with --file, or pipe lines into stdin, as in: {example}"
        )
    return ["-"]


def check_texts(texts: Sequence[str], name: str = "text", has_file: bool = True) -> None:
    """Raises for a text that is not UTF-8, and for one that is the name of a file; `has_file` if the verb has the option --file."""
    from seqloom.text.corpus import is_valid_unicode

    for index, text in enumerate(texts, 1):
        if not is_valid_unicode(text):
            raise DataError(f"{name} {index} is not UTF-8; convert the text to UTF-8")
        if is_file(text):
            remedy = (
                f"read it with --file {text}, or pipe the text into stdin"
                if has_file
                else f"give the text itself, or - and the file as stdin: < {text}"
            )
            raise UserError(f"{text}: this is a file; {remedy}")


def is_file(text: str) -> bool:
    try:
        return bool(text) and os.path.isfile(text)
    except (OSError, ValueError):  # too long, or not a name
        return False


def iterate_files(files: Sequence[str]) -> Iterator[str]:
    """The lines of the files, one file after the other; - is stdin. Tokens of a line of gigabytes would fill the memory."""
    from seqloom.text.lines import lines

    for file in files:
        for number, line in enumerate(stdin_lines() if file == "-" else lines(file), 1):
            if len(line) > MAX_LINE:
                name = "stdin" if file == "-" else file
                raise DataError(
                    f"{name}:{number}: a line of {len(line):,} characters is too long for one text; divide it into lines"
                )
            yield line


def stdin_lines() -> Iterator[str]:
    """The lines of stdin as they arrive, read as UTF-8 in every locale."""
    for line_number, line in enumerate(sys.stdin.buffer if sys.stdin else (), 1):
        try:
            yield line.decode("utf-8-sig" if line_number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"stdin:{line_number}: byte {error.start + 1} of the line is not UTF-8; convert the text to UTF-8"
            ) from None

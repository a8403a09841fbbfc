"""What the verbs share: the app, the config that a command line means, output, errors.

Results go to stdout, progress to stderr. A user's mistake is one line and exit code 2; a run that went wrong is 1.
"""

from __future__ import annotations

import json as jsons
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter

app = App(
    name="seqloom",
    help="Train, compare, generate with and explain every sequence model, on your own text.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
Files = Annotated[list[str] | None, Parameter(consume_multiple=True)]
Kind = Literal["int8"]
OVERRIDE = re.compile(r"[a-z_]+(\.[a-z_]+)*=.*")


def recipe(
    what: str, overrides: Sequence[str], data: list[str] | None, valid: list[str] | None, seed: int | None, base: Path | None = None
) -> Any:
    """The checked config that the command line means; in `--data a b model.dim=64` what reads as an override is one."""
    from seqloom.run import Recipe

    changes = [item for item in [*(data or []), *(valid or [])] if OVERRIDE.fullmatch(item) and not Path(item).exists()]
    sides = [None if side is None else [item for item in side if item not in changes] for side in (data, valid)]
    made = Recipe.of(what, [*overrides, *changes], *sides, seed)
    if base is None:
        return made
    from seqloom.train.begin import based

    return based(made, base, [*overrides, *changes])


def show(result: dict[str, Any], lines: Sequence[str], json: bool) -> None:
    print(jsons.dumps(result, ensure_ascii=False) if json else "\n".join(lines), flush=True)


def opened(run: Path, threads: int | None, quantize: str | None = None) -> Any:
    """A finished run, ready to use, its weights in bytes where asked."""
    import torch

    from seqloom.run import load

    if threads:
        torch.set_num_threads(threads)
    loaded = load(run)
    if quantize:
        from seqloom.nn import quantize as put

        put(loaded.model, quantize)
    return loaded


class Dash(str):
    """A lone `-`, which stands for stdin: a value that no parser takes for an option."""

    def startswith(self, *_: Any) -> bool:
        return False


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; end with 0, or 2 for the user's mistakes, 1 for a run gone wrong, 128 + n for signal n."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        app([Dash(word) if word == "-" else word for word in words], exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        fail(" ".join(str(error).split()), 2)
    except ValueError as error:
        fail(" ".join(str(error).split()), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except RuntimeError as error:
        if type(error).__module__.startswith("seqloom"):
            fail(" ".join(str(error).split()), getattr(error, "code", 1))
        raise


def fail(sentence: str, code: int) -> None:
    print(f"seqloom: {sentence}", file=sys.stderr)
    sys.exit(code)

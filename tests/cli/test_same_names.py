"""A verb and the Python function of the same name have the same options; the differences are listed here."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

import seqloom
from seqloom import runs
from seqloom.cli import app

# What verbs have for the terminal, and Python has elsewhere: `code` is `parts`, `quantize` and `threads` belong to opening the run.
TERMINAL = {"code", "file", "format", "out", "overwrite", "quantize", "seed", "threads", "workers"}
PYTHON = {"parts", "progress", "settings"}
SAMPLING = {"min_p", "repetition_penalty", "stop", "temperature", "top_k", "top_p"}
# verb: (function, only on the command line, only in Python)
DOORS: dict[str, tuple[Callable[..., Any], set[str], set[str]]] = {
    "check": (seqloom.check, set(), set()),
    "embed": (seqloom.embed, set(), {"normalize"}),
    "env": (seqloom.env, set(), set()),
    # `more` holds the changes, and the second model with its changes
    "explain": (seqloom.explain, {"more"}, {"against", "changes", "length"}),
    # `files` are the data; the other numbers have functions of their own
    "evaluate": (
        seqloom.evaluate,
        {"against", "by_length", "confusion", "files", "judge", "pseudo_perplexity"},
        {"coverage_penalty", "data", "n", *SAMPLING},
    ),
    "export": (seqloom.export_checkpoint, {"folder"}, set()),  # an older spelling of --out
    "fill-mask": (seqloom.fill_mask, set(), set()),
    # what a result always holds in Python is printed on demand
    "generate": (seqloom.generate, {"greedy", "logprobs", "top_logprobs"}, {"coverage_penalty"}),
    "import": (seqloom.import_checkpoint, set(), set()),
    "predict": (seqloom.predict, {"texts", "top"}, {"records"}),
    "presets": (seqloom.list_presets, {"name"}, set()),
    "runs clean": (runs.clean, set(), set()),
    "runs list": (runs.list, set(), set()),
    "runs replay": (runs.replay, set(), set()),
    "runs show": (runs.show, set(), set()),
    "score": (seqloom.score, {"per_token"}, {"targets"}),
    "translate": (
        seqloom.translate,
        {"ensemble", "replace_unknowns", "source_lang", "target_lang", "why"},
        SAMPLING,
    ),
}


def options_of_verb(name: str) -> set[str]:
    """The arguments of a verb, those of shared groups of options included, without --json, -q and -v."""
    command: Any = app
    for word in name.split():
        command = command[word]
    found: set[str] = set()
    for parameter, hint in get_type_hints(command.default_command, include_extras=True).items():
        base = get_args(hint)[0] if get_args(hint) and not isinstance(hint, type) else hint
        if dataclasses.is_dataclass(base):
            found |= {field.name for field in dataclasses.fields(base)}
        elif parameter != "return":
            found.add(parameter)
    return found - {"json", "quiet", "verbose"}


def options_of_function(function: Callable[..., Any]) -> set[str]:
    """The arguments of a function, those of a typed dictionary included."""
    found: set[str] = set()
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(eval(parameter.annotation, vars(sys.modules[function.__module__])))
            found |= set(get_type_hints(options))
        else:
            found.add(name)
    return found


@pytest.mark.parametrize("name", DOORS)
def test_a_verb_has_the_options_of_its_function(name: str):
    function, terminal, python = DOORS[name]
    verb, arguments = options_of_verb(name), options_of_function(function)
    assert verb - arguments - TERMINAL == terminal, "only on the command line"
    assert arguments - verb - PYTHON == python, "only in Python"

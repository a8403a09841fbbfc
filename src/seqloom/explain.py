"""The mathematics of a model, read from the docstrings that stand above the lines which compute it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from seqloom import config
from seqloom.run import Recipe, find, is_run
from seqloom.text import tokenizer


def explain(what: str, overrides: Sequence[str] = (), vocabulary: int = 1000) -> list[dict[str, Any]]:
    """Each part of the model once: where it stands first, its name, its equation, its parameters over all places."""
    from pathlib import Path

    tree, lines = find(what)
    recipe = Recipe(config.override(tree, overrides), lines)
    if is_run(what):
        vocabulary = tokenizer.load(Path(what) / "tokenizer.json").get_vocab_size()
    with torch.device("meta"):
        model = recipe.model(vocabulary)
    found: dict[type, dict[str, Any]] = {}
    counted: set[int] = set()
    for place, part in [("model", model), *list(model.named_modules())[1:]]:
        kind = type(part)
        if not kind.__module__.startswith("seqloom") or not kind.__doc__:
            continue
        own = [p for p in part.parameters(recurse=kind is not type(model)) if id(p) not in counted] if kind is not type(model) else []
        entry = found.setdefault(
            kind, {"place": place, "name": kind.__name__, "equation": inspect.cleandoc(kind.__doc__).splitlines(), "parameters": 0}
        )
        entry["parameters"] += sum(p.numel() for p in own)
    found[type(model)]["parameters"] = sum(p.numel() for p in model.parameters())
    return list(found.values())

"""A model as equations: read from the docstrings of its parts, with sizes and costs counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import overload

from torch import nn

from seqloom.config_source import Change, is_run, preset_names
from seqloom.equations.diff import Difference, diff
from seqloom.equations.parts import Explanation, PartSummary, explain_config
from seqloom.errors import ConfigError
from seqloom.run import Run, split_checkpoint
from seqloom.run_config import Config
from seqloom.text import tokenizer_file

__all__ = ["Difference", "Explanation", "PartSummary", "diff", "explain"]

What = str | Path | Config | Run


@overload
def explain(
    what: What,
    *changes: Change,
    against: None = None,
    vocabulary: int = 1000,
    length: int | None = None,
    parts: Sequence[type[nn.Module]] = (),
) -> Explanation: ...
@overload
def explain(
    what: What,
    *changes: Change,
    against: What,
    vocabulary: int = 1000,
    length: int | None = None,
    parts: Sequence[type[nn.Module]] = (),
) -> Difference: ...
def explain(
    what: What,
    *changes: Change,
    against: What | None = None,
    vocabulary: int = 1000,
    length: int | None = None,
    parts: Sequence[type[nn.Module]] = (),
) -> Explanation | Difference:
    """The equations of a model with the sizes, parameters and FLOPs of its parts; with `against`, only what differs between two models.

    A model is a run, a preset, a YAML file or a `Config`. `vocabulary` is for configs that have no tokenizer yet, `length` the
    number of tokens over which FLOPs are counted (default: the width of the training windows, or 32), `parts` the user's own
    classes that the config names.

    >>> explain("gpt").parameters
    927488
    >>> [part.place for part in explain("gpt", against="llama").parts][:2]
    ['model', 'embedding']
    """
    if vocabulary < 1 or (length is not None and length < 1):
        raise ConfigError(
            f"a vocabulary of {vocabulary} and a length of {length} count nothing; give numbers above 0"
        )
    first = explain_one(what, changes, vocabulary, length, parts)
    if against is None:
        return first
    return diff(first, explain_one(against, (), vocabulary, length, parts))


def explain_one(
    what: What,
    changes: Sequence[Change],
    vocabulary: int,
    length: int | None,
    parts: Sequence[type[nn.Module]],
) -> Explanation:
    """The explanation of one model. A run has its own vocabulary."""
    if isinstance(what, Config):
        config = what.change(*changes) if changes else what
        name = config.lines.title()
    elif isinstance(what, Run):
        config = what.config.change(*changes) if changes else what.config
        name, vocabulary = str(what.folder), what.tokenizer.get_vocab_size()
    else:
        folder, _ = split_checkpoint(what)
        source = str(what)
        if source not in preset_names() and is_run(folder):
            vocabulary = tokenizer_file.load(folder / "tokenizer.json").get_vocab_size()
            source = str(folder.absolute())  # ./gpt is a folder: no preset has an absolute name
        config = Config.load(source, changes, parts=parts)
        name = " ".join([str(what), *map(str, changes)])
    return explain_config(config, name, vocabulary, length)

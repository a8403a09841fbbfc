"""The command line: verbs to functions. torch is imported only inside them, so that --help answers at once."""

from seqloom.cli import (
    compare,
    fill,
    interop,
    look,
    models,
    predict,
    translate,
    words,
)  # each module adds its verbs to the app
from seqloom.cli.app import app, main

__all__ = ["app", "compare", "fill", "interop", "look", "main", "models", "predict", "translate", "words"]

"""The command line: verbs to functions. torch is imported only inside them, so that --help answers at once."""

from seqloom.cli import compare, interop, look, models, translate, words  # each module adds its verbs to the app
from seqloom.cli.app import app, main

__all__ = ["app", "compare", "interop", "look", "main", "models", "translate", "words"]

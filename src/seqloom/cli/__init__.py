"""The command line: verbs to functions. torch is imported only inside them, so that --help answers at once."""

from seqloom.cli import (  # each module adds its verbs to the app
    classify,
    compare,
    data,
    demo,
    explain,
    generate,
    interop,
    predict,
    train,
    translate,
    vectors,
)
from seqloom.cli.app import app, main

__all__ = [
    "app",
    "classify",
    "compare",
    "data",
    "demo",
    "explain",
    "generate",
    "interop",
    "main",
    "predict",
    "train",
    "translate",
    "vectors",
]

"""The command line: each verb is a function. torch is imported only inside the functions, so that --help is fast."""

from seqloom.cli import (
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

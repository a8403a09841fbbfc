"""The exceptions of seqloom. What else escapes from a call is a bug of seqloom.

    Error
    ├── UserError (ValueError)         a mistake that the user can mend; exit code 2
    │   ├── ConfigError                a wrong config, preset, option or part
    │   ├── DataError                  a file or text that cannot be read as it should
    │   └── RunError                   a run folder that is missing, damaged, unfinished or of another task
    └── TrainingError (RuntimeError)   work that failed; exit code 1
        ├── Diverged                   the gradients stayed non-finite
        ├── OutOfMemory                the machine's memory is used up
        ├── NoRoom                     the disk is full
        └── Stopped                    a signal stopped the work; exit code 128 + signal

A message is one sentence: where the mistake is, what it is, and what to do about it.
"""

from __future__ import annotations

import re


class Error(Exception):
    """Any error that seqloom raises on purpose. `code` is the exit code of the command line.

    >>> try:
    ...     seqloom.load("runs/missing")
    ... except seqloom.Error as error:
    ...     type(error).__name__, error.where, error.code
    ('RunError', 'runs/missing', 2)
    """

    code = 1

    @property
    def where(self) -> str:
        """The file, line or option that the message begins with, as in `reviews.tsv:3`; empty if it names none."""
        found = re.match(r"(\S+): ", str(self))
        return found[1] if found else ""


class UserError(Error, ValueError):
    """A mistake that the user can mend."""

    code = 2


class ConfigError(UserError):
    """A wrong config, preset, option or part."""


class DataError(UserError):
    """A file or text that cannot be read as it should."""


class RunError(UserError):
    """A run folder that is missing, damaged, unfinished or of another task."""


class TrainingError(Error, RuntimeError):
    """Work that failed."""


class Diverged(TrainingError):
    """The gradients stayed non-finite; the last healthy checkpoint is kept."""


class OutOfMemory(TrainingError):
    """The machine's memory is used up."""


class NoRoom(TrainingError):
    """The disk is full; what was there before is still there."""


class Stopped(TrainingError):
    """A signal stopped the work; everything is saved."""

    def __init__(self, signal: int, step: int):
        what = "Ctrl-C" if signal == 2 else f"signal {signal}"
        super().__init__(f"stopped by {what} after step {step}; run the same command again to resume")
        self.code = 128 + signal

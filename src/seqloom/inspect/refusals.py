"""What a verb of `inspect` says to a run that does not have what it shows: the verb, why not, and what does work."""

from __future__ import annotations

from seqloom.errors import RunError
from seqloom.models.recognizer import JointRecognizer, Recognizer
from seqloom.run import Run

READS = {"image": "pictures", "audio": "recordings"}


def refusal(run: Run, verb: str, reason: str, instead: str = "") -> RunError:
    """The error of a verb that does not fit a run; `instead` is another verb that does."""
    if not instead:
        heard = isinstance(run.model, Recognizer | JointRecognizer)
        instead = "sound" if heard and verb != "sound" else "activations"
    return RunError(
        f"{run.folder}: inspect {verb} {reason}; use: seqloom inspect {instead} {run.folder} {input_of(run)}"
    )


def input_of(run: Run) -> str:
    """What a run is given to read, in examples of commands."""
    return "TEXT" if run.model.reads == "text" else "FILE"


def require_text(run: Run, verb: str, shows: str) -> None:
    """Raises if the run reads no text."""
    if run.model.reads != "text":
        raise refusal(
            run, verb, f"shows {shows}, but this run reads {READS.get(run.model.reads, 'files')}, not text"
        )

"""`prefer`: two answers to each prompt, of which a person chooses one; the preferences are a JSON Lines file that `reward` and `dpo` read.

Choices are written one by one, so that nothing is lost when a session ends, and the next session goes on after the last prompt.
Ties are written beside them, to a file that no training reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqloom import files
from seqloom.errors import DataError, UserError
from seqloom.inference.answers import sample_answers
from seqloom.results import Result
from seqloom.run import RunLike, as_run
from seqloom.text.chat_records import Messages
from seqloom.text.chats import Prompts

Choice = Literal["1", "2", "0"]
TRIES = 8  # answers that are sampled to find two different ones


class AnswerPair(NamedTuple):
    """Two different answers to a prompt; `number` is the place of the prompt in its file, from 1."""

    number: int
    prompt: Messages
    answers: tuple[str, str]

    @property
    def text(self) -> str:
        """The prompt as a person reads it: its turns, or the question alone."""
        if len(self.prompt) == 1:
            return self.prompt[0].content
        return "\n".join(f"{message.role}: {message.content}" for message in self.prompt)

    def record(self, choice: Choice) -> dict[str, Any]:
        """The preference as an object of the file."""
        prompt: Any = self.prompt[0].content
        if len(self.prompt) > 1 or self.prompt[0].role != "user":
            prompt = [message.to_dict() for message in self.prompt]
        one, two = self.answers
        if choice == "0":
            return {"number": self.number, "prompt": prompt, "answers": [one, two]}
        chosen, rejected = (one, two) if choice == "1" else (two, one)
        return {"number": self.number, "prompt": prompt, "chosen": chosen, "rejected": rejected}


def answer_pairs(
    run: RunLike,
    prompts: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    done: Sequence[int] = (),
    max_tokens: int = 100,
    seed: int = 0,
) -> Iterator[AnswerPair]:
    """Two different answers to each prompt of the files, as they are needed; prompts whose number is in `done` are left out.

    A prompt to which the run always gives the same answer is left out too.
    """
    loaded = as_run(run)
    paths = [prompts] if isinstance(prompts, str | os.PathLike) else list(prompts)
    skipped = set(done)
    for number, (prompt, _) in enumerate(
        Prompts([Path(path) if path != "-" else str(path) for path in paths]), 1
    ):
        if number in skipped:
            continue
        [answers] = sample_answers(loaded, [prompt], TRIES, max_tokens, seed + number)
        different = list(islice(dict.fromkeys(answer.text for answer in answers if answer.text), 2))
        if len(different) == 2:
            yield AnswerPair(number, prompt, (different[0], different[1]))


@dataclass(frozen=True)
class PreferenceCounts(Result):
    """What a file of preferences holds."""

    file: Path
    preferences: int
    ties: int


class PreferenceFile:
    """Preferences on disk, and ties beside them in NAME.ties.jsonl."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.ties = self.path.with_name(f"{self.path.stem}.ties.jsonl")
        self.records = {path: read_records(path) for path in (self.path, self.ties)}
        self.order: list[Path] = []  # of the choices since the start

    def done(self) -> list[int]:
        """The numbers of the prompts that have been judged."""
        return [
            int(record["number"])
            for records in self.records.values()
            for record in records
            if "number" in record
        ]

    def add(self, pair: AnswerPair, choice: Choice) -> None:
        """Writes a choice."""
        path = self.ties if choice == "0" else self.path
        self.records[path].append(pair.record(choice))
        self.order.append(path)
        self.write(path)

    def undo(self) -> int:
        """Removes the last choice since the start and returns its number."""
        if not self.order:
            raise UserError("nothing was chosen since the start, so there is nothing to undo")
        path = self.order.pop()
        number = int(self.records[path].pop()["number"])
        self.write(path)
        return number

    def write(self, path: Path) -> None:
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in self.records[path])
        files.write_atomic(path, text)

    def counts(self) -> PreferenceCounts:
        return PreferenceCounts(self.path, len(self.records[self.path]), len(self.records[self.ties]))


def read_records(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file; none if there is no file."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON ({error}); choose another --out") from None
        if not isinstance(record, dict):
            raise DataError(f"{path}:{number}: no object; choose another --out")
        records.append(record)
    return records

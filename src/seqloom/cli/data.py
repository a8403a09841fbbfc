"""Verbs: show what data files contain, show or write the built-in world."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from seqloom.cli.app import app, print_result


@app.command
def data(
    *files: str,
    form: Literal["Text", "Lines", "Parallel", "Table", "JSONLines"] = "Lines",
    show_first: int = 3,
    json: bool = False,
) -> None:
    """Read text files as training does, and print the number of records, characters and words, and the first records.

    Parameters
    ----------
    files
        One or more files; .gz is read too, - is stdin.
    form
        How the files are read.
    show_first
        How many records to show.
    json
        Print as JSON.
    """
    from seqloom.text import corpus

    if not files:
        raise ValueError("no files: give one or more, as in: seqloom data FILE")
    records = 0
    characters = 0
    words = 0
    first: list[list[str]] = []
    for record in getattr(corpus, form)(list(files)):
        records += 1
        characters += sum(map(len, record))
        words += sum(len(text.split()) for text in record)
        if len(first) < show_first:
            first.append(list(record))
    report = {"records": records, "characters": characters, "words": words, "first": first}
    lines = [
        f"{records:,} records, {characters:,} characters, {words:,} words",
        *(" | ".join(record).rstrip("\n") for record in first),
    ]
    print_result(report, lines, json)


@app.command
def world(
    out: Path | None = None,
    *,
    train: int = 20000,
    valid: int = 500,
    test: int = 1000,
    show_first: int = 5,
    seed: int = 0,
    json: bool = False,
) -> None:
    """The built-in world: show some scenes with their exact probabilities, or write a corpus of it to a folder.

    Parameters
    ----------
    out
        The folder to write train, valid and test files to; without it scenes are shown.
    train
        Training sentences to write.
    valid
        Validation sentences to write.
    test
        Test sentences to write.
    show_first
        How many scenes to show.
    seed
        Another seed is another sample of the same world.
    json
        Print as JSON.
    """
    from seqloom import world as built_in_world

    if out is not None:
        built_in_world.write(out, train, valid, test, seed)
        print_result(
            {"folder": str(out)}, [f"written to {out}: train, valid and test, each .en and .fr"], json
        )
        return
    for scene in built_in_world.scenes(show_first, seed):
        lines = [
            scene.english,
            scene.french,
            f"  log p(english) {scene.english_logp:.2f}, log p(french | english) {scene.french_logp:.2f} nats",
            "",
        ]
        print_result(scene._asdict(), lines, json)

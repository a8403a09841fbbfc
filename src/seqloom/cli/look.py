"""Look at a config, a model's equations, data and the built-in world before and beside training."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from seqloom.cli.app import OVERRIDE, Files, Threads, app, recipe, show


@app.command
def check(
    what: str,
    /,
    *overrides: str,
    data: Files = None,
    valid: Files = None,
    seed: int | None = None,
    json: bool = False,
) -> None:
    """Build everything a config describes, read a little data, and report sizes without training.

    Parameters
    ----------
    what
        A preset, a YAML file or a run folder.
    overrides
        Changes to the config, such as model.stack.layers=4.
    data
        The text to train on.
    valid
        Held-out text.
    seed
        Seed of the weights.
    json
        Print the report as JSON.
    """
    from seqloom.check import check as look

    report = look(recipe(what, overrides, data, valid, seed))
    show(
        report,
        [
            f"{name:24}{value:,}" if isinstance(value, int) else f"{name:24}{value}"
            for name, value in report.items()
        ],
        json,
    )


@app.command
def explain(
    what: str,
    /,
    *more: str,
    vocabulary: int = 1000,
    length: int | None = None,
    format: Literal["text", "markdown", "html"] = "text",
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Print the equations of a model with sizes, parameters and FLOPs for each part, or only what differs between two models.

    Parameters
    ----------
    what
        A run folder, a preset or a YAML file.
    more
        Changes to that config, such as model.stack.layers=4; then, to compare, another config and changes to it.
    vocabulary
        Vocabulary size for a config that has no tokenizer yet.
    length
        Tokens over which FLOPs are counted; the width of the training windows, or 32, where not said.
    format
        How to write it; html is one page with the equations set in MathML.
    out
        The file to write to instead of the terminal.
    json
        Print as JSON.
    """
    import json as jsons

    from seqloom.explain import differ, render
    from seqloom.explain import explain as take_apart
    from seqloom.files import write_whole

    asked: list[tuple[str, list[str]]] = [(what, [])]
    for word in more:
        if OVERRIDE.fullmatch(word):
            asked[-1][1].append(word)
        else:
            asked.append((word, []))
    if len(asked) > 2:
        raise ValueError(f"{asked[2][0]}: explain takes one config, or two to compare; leave the others out")
    taken = [take_apart(name, changes, vocabulary, length) for name, changes in asked]
    found = differ(*taken) if len(taken) > 1 else taken[0]
    written = jsons.dumps(found.json(), ensure_ascii=False) + "\n" if json else render(found, format)
    if out is not None:
        write_whole(out, written)
        return
    print(written, end="", flush=True)


@app.command
def data(
    *files: str,
    form: Literal["Text", "Lines", "Parallel", "Table", "JSONLines"] = "Lines",
    show_first: int = 3,
    json: bool = False,
) -> None:
    """Read text files as training would, and say what is in them: records, characters, words, and the first few.

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
        raise ValueError("no files: say which to read, as in: seqloom data FILE")
    records, characters, words, first = 0, 0, 0, []
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
    show(report, lines, json)


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
    from seqloom import world as little

    if out is not None:
        little.write(out, train, valid, test, seed)
        show({"folder": str(out)}, [f"written to {out}: train, valid and test, each .en and .fr"], json)
        return
    for scene in little.scenes(show_first, seed):
        lines = [
            scene.english,
            scene.french,
            f"  log p(english) {scene.english_logp:.2f}, log p(french | english) {scene.french_logp:.2f} nats",
            "",
        ]
        show(scene._asdict(), lines, json)


@app.command
def demo(out: Path = Path("runs/demo"), *, threads: Threads = None, json: bool = False) -> None:
    """Train a translator on the built-in world in a few minutes, measure it and show what it can do.

    Parameters
    ----------
    out
        The folder for the world's text and the run.
    threads
        CPU threads.
    json
        Print the results as JSON.
    """
    from seqloom.demo import demo as run_demo

    report, lines = run_demo(out, threads)
    show(report, lines, json)

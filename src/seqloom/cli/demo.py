"""The verb demo: trains a translator on the built-in world and measures it, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.cli.app import Threads, app, print_result

if TYPE_CHECKING:
    from seqloom.run import Run


def run_demo(folder: Path, threads: int | None = None) -> tuple[dict[str, Any], list[str]]:
    """Writes the world's text, trains on it, measures on held-out sentences and translates ten; the report and its lines."""
    from seqloom import world
    from seqloom.run import Config
    from seqloom.train.fit import train

    text = folder / "world"
    if not text.exists():
        world.write(text, train=60_000, valid=500, test=1000)
    data, valid = (
        [str(text / f"{split}.{language}") for language in ("en", "fr")] for split in ("train", "valid")
    )
    run = train(Config.load("world", (), data, valid), folder / "run", threads)
    return report(run, text)


def report(run: Run, text: Path) -> tuple[dict[str, Any], list[str]]:
    """The scores of the run on the test text and its translations of the showcase; the report and its lines."""
    from seqloom import world
    from seqloom.evaluation import evaluate
    from seqloom.inference.generation import generate

    numbers = {
        number.name: number for number in evaluate(run, [str(text / "test.en"), str(text / "test.fr")])
    }
    english = (text / "test.en").read_text("utf-8").splitlines()
    french = (text / "test.fr").read_text("utf-8").splitlines()
    floor = -sum(world.translation_log_probability(e, f) for e, f in zip(english, french, strict=True))
    signature = numbers["nats per token"].signature.split("|")
    tokens = int(next(part for part in signature if part.startswith("tokens:")).removeprefix("tokens:"))
    translations = [completions[0].text for completions in generate(run, list(world.SHOWCASE))]
    pairs = list(zip(world.SHOWCASE, translations, strict=True))
    actual = run.results()["actual"]["seconds"]
    lines = [
        *(f"{e}\n    {f}" for e, f in pairs),
        "",
        f"BLEU {numbers['BLEU'].value:.1f}, chrF {numbers['chrF'].value:.1f} on {len(english)} held-out sentences",
        f"loss {numbers['nats per token'].value:.4f} nats per token; the lowest possible loss is {floor / tokens:.4f}",
        f"trained in {actual:.0f} s; run: {run.folder}",
        f'try: seqloom generate {run.folder} "{world.SHOWCASE[0]}"',
    ]
    return {
        "run": str(run.folder),
        "numbers": [number.json() for number in numbers.values()],
        "floor": floor / tokens,
        "seconds": actual,
        "translations": [{"english": e, "french": f} for e, f in pairs],
    }, lines


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
    result, lines = run_demo(out, threads)
    print_result(result, lines, json)

"""The demonstration: a translator of the built-in world, from nothing to BLEU in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.cli.app import Threads, app, print_result

if TYPE_CHECKING:
    from seqloom.run import Run


def run_demo(folder: Path, threads: int | None = None) -> tuple[dict[str, Any], list[str]]:
    """Write the world's text, train on it, measure on sentences never seen, translate ten; the report and its lines."""
    from seqloom import world
    from seqloom.run import Config
    from seqloom.train.fit import train

    text = folder / "world"
    if not text.exists():
        world.write(text, train=60_000, valid=500, test=1000)
    sides = [[str(text / f"{side}.{tongue}") for tongue in ("en", "fr")] for side in ("train", "valid")]
    run = train(Config.load("world", (), *sides), folder / "run", threads)
    return report(run, text)


def report(run: Run, text: Path) -> tuple[dict[str, Any], list[str]]:
    from seqloom import world
    from seqloom.evaluation import evaluate
    from seqloom.inference.generation import generate

    numbers = {
        number.name: number for number in evaluate(run, [str(text / "test.en"), str(text / "test.fr")])
    }
    english = (text / "test.en").read_text("utf-8").splitlines()
    french = (text / "test.fr").read_text("utf-8").splitlines()
    floor = -sum(world.translation_log_probability(e, f) for e, f in zip(english, french, strict=True))
    tokens = int(
        next(part for part in numbers["nats per token"].signature.split("|") if part.startswith("tokens:"))[
            7:
        ]
    )
    shown = [found[0].text for found in generate(run, list(world.SHOWCASE))]
    pairs = list(zip(world.SHOWCASE, shown, strict=True))
    actual = run.results()["actual"]["seconds"]
    lines = [
        *(f"{e}\n    {f}" for e, f in pairs),
        "",
        f"BLEU {numbers['BLEU'].value:.1f}, chrF {numbers['chrF'].value:.1f} on {len(english)} held-out sentences",
        f"loss {numbers['nats per token'].value:.4f} nats per token; the floor that no model can beat is {floor / tokens:.4f}",
        f"trained in {actual:.0f} s; the run lies in {run.folder}",
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

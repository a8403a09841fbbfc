"""How well a budget in minutes is kept: the seconds that were asked for, those that training took, and those of the whole command.

Each system is trained in a process of its own on the built-in world, which fits all of them, or on the text of it. Training counts from the
moment the data is ready; the whole command also imports torch, reads the data and measures the finished model. Needs a quiet machine.

    python bench/budget.py [--minutes 1] [--threads N] [SYSTEM …]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
SYSTEMS = ("gpt", "lstm-lm", "bert-small", "transformer", "rnnsearch", "world", "classifier")
PAIRS = ("transformer", "rnnsearch", "world")


def write_data(folder: Path) -> dict[str, list[str]]:
    """Pairs of sentences of the world, its English text, and its sentences labelled by whether they have a pronoun."""
    sys.path.insert(0, str(SOURCE))
    from seqloom import world

    world.write(folder / "world", train=20_000, valid=500, test=100)
    pairs = [str(folder / "world" / f"train.{language}") for language in ("en", "fr")]
    lines = Path(pairs[0]).read_text("utf-8").splitlines()
    table = folder / "table.tsv"
    rows = (f"{line}\t{'pronoun' if ' it ' in line else 'none'}\n" for line in lines)
    table.write_text("".join(rows), "utf-8")
    return {"pairs": pairs, "text": pairs[:1], "table": [str(table)]}


def measure(system: str, data: list[str], minutes: float, threads: int | None, out: Path) -> str:
    """Trains one system; its row of the table."""
    command = [sys.executable, "-m", "seqloom", "train", system, "--data", *data, "--minutes", str(minutes)]
    command += ["--out", str(out), "--json", "-q", *(["--threads", str(threads)] if threads else [])]
    start = time.perf_counter()
    finished = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE)}
    )
    whole = time.perf_counter() - start
    results = json.loads(finished.stdout)
    took = results["actual"]["seconds"]
    asked = 60 * minutes
    return f"| {system} | {results['steps']:,} | {asked:.0f} | {took:.1f} | {100 * (took / asked - 1):+.1f} % | {whole:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", default=SYSTEMS)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    print(
        "| system | steps | seconds asked | taken | difference | whole command |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as place:
        data = write_data(Path(place))
        for system in arguments.systems:
            kind = "pairs" if system in PAIRS else "table" if system == "classifier" else "text"
            out = Path(place) / system
            print(measure(system, data[kind], arguments.minutes, arguments.threads, out), flush=True)


if __name__ == "__main__":
    main()

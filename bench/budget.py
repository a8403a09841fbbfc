"""How well a budget in minutes is kept: the seconds that were asked for, those that training took, and those of the whole command.

Each system is trained in a process of its own on the built-in world, which fits all of them, or on the text of it. Training counts from the
moment the data is ready; the whole command also imports torch, reads the data and measures the finished model. Needs a quiet machine:
the last column is the share of the CPU that other processes took meanwhile (Linux only).

    python bench/budget.py [--minutes 1] [--threads N] [SYSTEM …]
"""

from __future__ import annotations

import argparse
import json
import os
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
    start, busy, own = time.perf_counter(), busy_seconds(), own_seconds()
    finished = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )
    whole = time.perf_counter() - start
    others = busy_seconds() - busy - (own_seconds() - own)
    share = f"{max(0.0, 100 * others / whole / (os.cpu_count() or 1)):.0f} %" if busy else "?"
    results = json.loads(finished.stdout)
    took = results["actual"]["seconds"]
    asked = 60 * minutes
    row = (
        system,
        f"{results['steps']:,}",
        f"{asked:.0f}",
        f"{took:.1f}",
        f"{100 * (took / asked - 1):+.1f} %",
    )
    return f"| {' | '.join(row)} | {whole:.1f} | {share} |"


def busy_seconds() -> float:
    """The CPU seconds of all processes since the machine started; 0 where the system does not tell."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, interrupts, soft_interrupts = map(int, fields[:7])
    return (user + nice + system + interrupts + soft_interrupts) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """The CPU seconds of this process and of its finished children."""
    return sum(os.times()[:4])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", default=SYSTEMS)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    print(
        "| system | steps | seconds asked | taken | difference | whole command | others |\n|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as place:
        data = write_data(Path(place))
        for system in arguments.systems:
            kind = "pairs" if system in PAIRS else "table" if system == "classifier" else "text"
            out = Path(place) / system
            print(measure(system, data[kind], arguments.minutes, arguments.threads, out), flush=True)


if __name__ == "__main__":
    main()

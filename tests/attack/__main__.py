"""`python -m attack [NAME …] [--seed 0] [--amount 4]`: runs the attacks, two at a time, and prints a table of what failed."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attack import Count, attack_names
from attack.before import BEFORE


def run_attack(name: str, seed: int, amount: float) -> tuple[list[Count], float]:
    """The counts of one attack, which runs in a process of its own, and the CPU seconds of it and its children."""
    command = [sys.executable, "-m", "attack", name, "--seed", str(seed), "--amount", str(amount), "--json"]
    tests = Path(__file__).resolve().parents[1]
    paths = [str(tests), str(tests.parent / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, text=True, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, err):
            file.seek(0)
        printed, messages = out.read(), err.read()
    try:
        counts = [Count(*record) for record in json.loads(printed.splitlines()[-1])]
    except (IndexError, ValueError, TypeError):
        last = (messages.strip().splitlines() or ["no message"])[-1]
        counts = [
            Count("", name, 1, [f"the attack itself failed with exit code {process.returncode}: {last}"])
        ]
    return counts, used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m attack", description=__doc__)
    parser.add_argument("names", nargs="*", help="attacks to run; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--amount", type=float, default=4.0, help="1 is the form that each commit runs")
    parser.add_argument(
        "--json", action="store_true", help="run one attack here and print its counts as JSON"
    )
    options = parser.parse_args()
    names = options.names or list(attack_names())
    if options.json:
        counts = importlib.import_module(f"attack.{names[0]}").attack(options.seed, options.amount)
        print(json.dumps(counts))
        return 0
    failures: list[str] = []
    start, total = time.monotonic(), 0.0
    print(f"{'':4} {'class':58} {'before':>10} {'cases':>8} {'failed':>7} {'CPU s':>8}", flush=True)
    with ThreadPoolExecutor(2) as pool:
        for counts, seconds in pool.map(lambda name: run_attack(name, options.seed, options.amount), names):
            total += seconds
            for index, count in enumerate(counts):
                took = f"{seconds:8.0f}" if index == 0 else ""
                print(
                    f"{count.code:4} {count.name:58} {BEFORE.get(count.name, ''):>10} {count.cases:8,} {len(count.failures):7,} {took}",
                    flush=True,
                )
                failures += [f"{count.name}: {failure}" for failure in count.failures]
    minutes = (time.monotonic() - start) / 60
    print(
        f"{len(failures)} failures, seed {options.seed}, amount {options.amount:g}; {total:,.0f} s of CPU, {minutes:.1f} minutes"
    )
    for failure in failures[:50]:
        print(f"  {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

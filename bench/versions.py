"""Two versions of seqloom side by side: a benchmark of this folder run in turns from another checkout and from this one.

    python bench/versions.py OTHER_CHECKOUT [--rounds 3] [--only train,recurrent] [--json]

Each round runs the benchmark once from either checkout, in alternating order, and takes the speed of our own variants (`seqloom…`); the
ratio of a round is this version over the other. Printed are the median, lowest and highest ratio of each case. Both checkouts run in the
same Python environment. Differences below 15 % between two rounds are noise on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[1]
BENCHMARKS = {
    "train": ["--quick", "--rounds", "3"],
    "recurrent": ["--quick", "--rounds", "3"],
    "decode": ["--quick", "--rounds", "3"],
    "translate": ["--quick", "--rounds", "3"],
    "words": ["--rounds", "1", "--seeds", "1", "--lines", "60000", "--only", "skipgram"],
}


def speeds(checkout: Path, name: str, options: list[str]) -> dict[str, float]:
    """Case and variant → speed, of one run of a benchmark."""
    command = [sys.executable, str(checkout / "bench" / f"{name}.py"), *options, "--json"]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            record = json.loads(line)
            rows = record.get("rows", [record])
            found |= {
                f"{record['case']}: {row['name']}": row["rate"]
                for row in rows
                if "seqloom" in row["name"] or row["name"].startswith("ours")
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=Path, help="a checkout of the other version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(BENCHMARKS), help="benchmarks, separated by commas")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for name in args.only.split(","):
        ratios: dict[str, list[float]] = {}
        for index in range(args.rounds):
            order = [args.other.resolve(), HERE] if index % 2 == 0 else [HERE, args.other.resolve()]
            results = {checkout: speeds(checkout, name, BENCHMARKS[name]) for checkout in order}
            other, here = results[args.other.resolve()], results[HERE]
            for case in here.keys() & other.keys():
                ratios.setdefault(case, []).append(here[case] / other[case])
        for case, values in sorted(ratios.items()):
            row = {
                "benchmark": name,
                "case": case,
                "ratio": median(values),
                "low": min(values),
                "high": max(values),
            }
            text = f"{name:10}{case[:76]:78}{row['ratio']:6.2f}  ({row['low']:.2f} - {row['high']:.2f})"
            print(json.dumps(row) if args.json else text, flush=True)


if __name__ == "__main__":
    main()

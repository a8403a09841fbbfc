"""What named values cost where nobody asks for them: a training step and a decoding step of a GPT, in this checkout and in another.

    python bench/capture.py OTHER_CHECKOUT [--rounds 6]

Commit 9fc19af is the last one without `record` in the parts. Each round runs both checkouts in alternating order, each in a process of its own
with one thread; printed is the median over the rounds of the median step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[1]


def measure() -> dict[str, float]:
    """The median milliseconds of a training step and of a decoding step."""
    import torch
    import torch.nn.functional as F

    from seqloom.models import LanguageModel
    from seqloom.nn import Transformer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LanguageModel(500, 128, partial(Transformer, layers=4, heads=4))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(500, (12, 65))

    def train_step() -> None:
        logits, _ = model(ids[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    train = times(train_step, 8, 40)
    model.eval()
    with torch.no_grad():
        _, state = model(ids[:1, :8])

        def decode_step() -> None:
            nonlocal state
            _, state = model(ids[:1, 8:9], state)

        decode = times(decode_step, 20, 200)
    return {"train": train, "decode": decode}


def times(step: Callable[[], None], warmup: int, count: int) -> float:
    """The median milliseconds of a step."""
    taken = []
    for number in range(warmup + count):
        start = time.perf_counter()
        step()
        if number >= warmup:
            taken.append(1e3 * (time.perf_counter() - start))
    return median(taken)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=Path, nargs="?", help="a checkout of the other version")
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    if args.other is None:
        print(json.dumps(measure()))
        return
    found: dict[Path, list[dict[str, float]]] = {args.other.resolve(): [], HERE: []}
    for number in range(args.rounds):
        for checkout in list(found)[:: 1 if number % 2 else -1]:
            environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
            command = [sys.executable, str(Path(__file__).resolve())]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            found[checkout].append(json.loads(done.stdout))
    for case in ("train", "decode"):
        other, here = (median(one[case] for one in rounds) for rounds in found.values())
        print(f"{case:8}{other:9.4f} ms → {here:9.4f} ms, × {here / other:.3f}", flush=True)


if __name__ == "__main__":
    main()

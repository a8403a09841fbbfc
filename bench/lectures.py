"""What the lectures say of trained models, tried on tiny Shakespeare, characters.

    SEQLOOM_DATA=… python bench/lectures.py cells|lengths [--out FOLDER] [--steps 2000] [--threads N]

cells: vanilla RNN, UGRNN, GRU and LSTM with equally many parameters [D19], each with the best of two rates on the held-out tenth.
lengths: Transformers that differ in their positions alone, trained on windows of 64 characters and read on longer ones [H9].
Runs that are there already are not trained again; one that was cut goes on.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch

import seqloom
from seqloom.batches import Windows
from seqloom.evaluation import total_nll
from seqloom.run import Run, load
from seqloom.run_config import Config

CELLS = {"vanilla": "Vanilla", "ugrnn": "UGRNN", "gru": "GRU", "lstm": "LSTM"}
RATES = (1e-3, 4e-3)
POSITIONS = {
    "none": "NoPosition",
    "learned": "Learned",
    "sinusoidal": "Sinusoidal",
    "alibi": "ALiBi",
    "rotary": "Rotary",
}
WIDTHS = (64, 128, 256, 512)
PARAMETERS = 800_000


def fitted(folder: Path, preset: str, overrides: list[str], text: Path, threads: int) -> Run:
    if (folder / "results.json").exists():
        return load(folder)
    return seqloom.fit(preset, *overrides, data=[str(text)], out=folder, threads=threads)


def dim_for(cell: str) -> int:
    """The width with which the model comes nearest to the wanted parameters."""

    def size(dim: int) -> int:
        with torch.device("meta"):
            model = Config.load("lstm-lm", [f"model.stack.cell.type={cell}", f"model.stack.dim={dim}"]).model(
                70
            )
        return sum(p.numel() for p in model.parameters())

    return min(range(64, 1024, 4), key=lambda dim: abs(size(dim) - PARAMETERS))


def cells(text: Path, out: Path, steps: int, threads: int) -> None:
    print("| cell | width | parameters | nats/char | rate | at the other rate |\n|---|---|---|---|---|---|")
    for name, cell in CELLS.items():
        dim, found = dim_for(cell), []
        for rate in RATES:
            options = [
                f"model.stack.cell.type={cell}",
                f"model.stack.dim={dim}",
                f"train.optimizer.lr={rate}",
                f"train.steps={steps}",
            ]
            run = fitted(out / f"{name}-{rate:g}", "lstm-lm", options, text, threads)
            found.append((run.results.valid[0].value, rate))
        (best, rate), (other, _) = sorted(found)
        count = sum(p.numel() for p in run.model.parameters())
        print(f"| {name} | {dim} | {count:,} | {best:.4f} | {rate:g} | {other:.4f} |", flush=True)


def lengths(text: Path, out: Path, steps: int, threads: int) -> None:
    print(f"| positions | {' | '.join(f'window {width}' for width in WIDTHS)} |\n|---|{'---|' * len(WIDTHS)}")
    for name, position in POSITIONS.items():
        options = [
            f"model.stack.position={{type: {position}{', length: 64' if position == 'Learned' else ''}}}",
            f"train.steps={steps}",
        ]
        run = fitted(out / f"positions-{name}", "gpt", options, text, threads)
        _, held = run.config.stores(run.tokenizer)
        shown = []
        for width in WIDTHS:
            try:
                total, count = total_nll(
                    run.model, run.config.objective, Windows(held, width=width, batch=8).sequential()
                )
                shown.append(f"{total / count:.4f}")
            except ValueError:
                shown.append("cannot")
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["cells", "lengths"])
    parser.add_argument("--out", type=Path, default=Path("runs/lectures"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if "SEQLOOM_DATA" not in os.environ:
        sys.exit("set SEQLOOM_DATA to the folder of the real data")
    place = Path(os.environ["SEQLOOM_DATA"]) / "tinyshakespeare" / "input.txt"
    {"cells": cells, "lengths": lengths}[arguments.what](
        place, arguments.out, arguments.steps, arguments.threads
    )

"""Quality on real data, as the tables of docs/figures.md: language models on tiny Shakespeare, translators on Multi30k.

    SEQLOOM_DATA=… python bench/quality.py characters|translation [--out FOLDER] [--minutes 12]

Runs that are there already are not trained again; one that was cut goes on.
"""

import argparse
import os
import sys
from pathlib import Path

import torch

import seqloom
from seqloom.evaluate import evaluate
from seqloom.run import Run, is_run, load


def fitted(folder: Path, name: str, *overrides: str, data: list[Path], valid: list[Path] | None = None) -> Run:
    if is_run(folder) and (folder / "results.json").exists():
        return load(folder)
    return seqloom.fit(name, *overrides, data=[str(p) for p in data], valid=valid and [str(p) for p in valid], out=folder)


def row(run: Run, *cells: object) -> str:
    results = run.results()
    count = sum(results["parameters"].values())
    took, promised = results["actual"]["seconds"] / 60, results["promised"]["seconds"] / 60
    return "| " + " | ".join(map(str, [run.folder.name, f"{count:,}", results["steps"], *cells, f"{took:.1f}", f"{promised:.1f}"])) + " |"


def characters(place: Path, out: Path) -> None:
    """nanoGPT's CPU recipe (4 layers, 4 heads, 128 wide, context 64, batch 12, 2,000 steps) and an LSTM of the same size and steps."""
    print("| run | parameters | steps | nats/char, held out | bits/byte | minutes | promised |\n|---|---|---|---|---|---|---|")
    for name in ("gpt", "lstm-lm"):
        run = fitted(out / name, name, data=[place / "tinyshakespeare" / "input.txt"])
        held = {number["name"]: number["value"] for number in run.results()["held out"]}
        print(row(run, f"{held['nats per token']:.4f}", f"{held['bits per byte']:.4f}"), flush=True)


def translation(place: Path, out: Path, minutes: float) -> None:
    """English to German captions, trained for the given minutes, scored on test 2016 (detokenised sacreBLEU)."""
    print("| run | parameters | steps | BLEU greedy | BLEU beam 5 | chrF | nats/token | minutes | promised |\n|---|---|---|---|---|---|---|---|---|")
    files = {side: [place / "multi30k" / f"{side}.{tongue}.gz" for tongue in ("en", "de")] for side in ("train", "val", "test_2016_flickr")}
    for name in ("transformer", "rnnsearch"):
        run = fitted(out / name, name, f"train.minutes={minutes}", data=files["train"], valid=files["val"])
        test = [str(path) for path in files["test_2016_flickr"]]
        greedy, wide = ({number.name: number for number in evaluate(run, test, width)} for width in (1, 5))
        cells = [f"{greedy['BLEU'].value:.2f}", f"{wide['BLEU'].value:.2f}", f"{greedy['chrF'].value:.2f}", f"{greedy['nats per token'].value:.4f}"]
        print(row(run, *cells), flush=True)
        print(greedy["BLEU"].signature, file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["characters", "translation"])
    parser.add_argument("--out", type=Path, default=Path("runs/figures"))
    parser.add_argument("--minutes", type=float, default=12.0)
    arguments = parser.parse_args()
    if "SEQLOOM_DATA" not in os.environ:
        sys.exit("set SEQLOOM_DATA to the folder of the real data")
    torch.set_num_threads(os.cpu_count() or 1)
    data = Path(os.environ["SEQLOOM_DATA"])
    if arguments.what == "characters":
        characters(data, arguments.out)
    else:
        translation(data, arguments.out, arguments.minutes)

"""A chat model learns to be polite: SmolLM2-135M-Instruct, imported from GGUF, with LoRA, first by supervised tuning on instructions, then by
DPO on pairs of polite and impolite answers. Before and after each: how often the polite answer of a held-out pair is the more probable
one, the perplexity of held-out answers, and that of plain text (the end of tiny Shakespeare), which should not rise.

    SEQLOOM_DATA=… python bench/tuning.py MODEL.gguf [--out runs/tuning] [--sft-steps 40] [--dpo-steps 80] [--threads N]

Of 1,100 records every tenth is held out to choose the checkpoint, and another tenth to measure. Runs that are there already are not trained
again; one that was cut goes on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch

import seqloom
from seqloom.config_source import is_run
from seqloom.evaluation import evaluate
from seqloom.run import Run, load

PLAIN_CHARACTERS = 20_000
ADAPTERS = ["lora.rank=8", "train.schedule.warmup=5", "train.eval_every=40", "batches.max_length=192"]
SFT = ["batches.batch_tokens=768", "train.optimizer.lr=1e-4"]
DPO = ["batches.batch_tokens=1024", "train.optimizer.lr=1e-4"]


def divided(source: Path, folder: Path, name: str) -> dict[str, Path]:
    """Records of a JSON array as JSON Lines: those to train on, to choose with and to measure on."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        records = json.load(file)
    sides = {"train": [], "valid": [], "test": []}  # type: dict[str, list[dict]]
    for number, record in enumerate(records):
        sides[{4: "valid", 5: "test"}.get(number % 10, "train")].append(record)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {side: folder / f"{name}-{side}.jsonl" for side in sides}
    for side, path in paths.items():
        path.write_text("".join(json.dumps(record) + "\n" for record in sides[side]), "utf-8")
    return paths


def tuned(
    folder: Path, preset: str, changes: list[str], files: dict[str, Path], base: Path, threads: int
) -> Run:
    if is_run(folder) and (folder / "results.json").exists():
        return load(folder)
    return seqloom.fit(
        preset, *ADAPTERS, *changes, data=[str(files["train"])], valid=[str(files["valid"])],
        out=folder, base=base, threads=threads,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/tuning"))
    parser.add_argument("--sft-steps", type=int, default=40)
    parser.add_argument("--dpo-steps", type=int, default=80)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if "SEQLOOM_DATA" not in os.environ:
        sys.exit("set SEQLOOM_DATA to the folder of the real data")
    place = Path(os.environ["SEQLOOM_DATA"])
    torch.set_num_threads(options.threads)
    base = options.out / "smollm2"
    if not base.exists():
        seqloom.import_checkpoint(options.model, base)
    chats = divided(place / "instruction/instruction-data.json.gz", options.out / "data", "instruction")
    pairs_file = place / "preference/instruction-data-with-preference.json.gz"
    pairs = divided(pairs_file, options.out / "data", "preference")
    plain = options.out / "data/plain.txt"
    plain.write_text((place / "tinyshakespeare/input.txt").read_text("utf-8")[-PLAIN_CHARACTERS:], "utf-8")

    print(
        "| run | steps | polite answer more probable, % | by mean of tokens, % | perplexity of answers | of plain text | minutes |"
    )
    print("|---|---|---|---|---|---|---|")
    first = None
    for name, preset, changes, files, source in (
        ("smollm2", None, [], chats, None),
        ("sft", "sft", [*SFT, f"train.steps={options.sft_steps}"], chats, "smollm2"),
        ("dpo", "dpo", [*DPO, f"train.steps={options.dpo_steps}"], pairs, "sft"),
    ):
        run = load(base)
        if preset is not None and source is not None:
            run = tuned(options.out / name, preset, changes, files, options.out / source, options.threads)
        preferences = evaluate(run, str(pairs["test"]))
        answers = evaluate(run, str(chats["test"]))["perplexity"].value
        text = evaluate(run, str(plain), window=256)["perplexity"].value
        first = first or text
        shares = [preferences[key] for key in ("preference_accuracy", "accuracy_by_mean")]
        cells = [f"{share.value:.1f} {share.interval}" for share in shares]
        steps = run.results.steps if preset else "–"
        minutes = f"{run.results.actual.seconds / 60:.1f}" if preset else "–"
        change = f"{text:.2f} ({100 * (text / first - 1):+.2f} %)"
        print(
            f"| {name} | {steps} | {' | '.join(cells)} | {answers:.2f} | {change} | {minutes} |", flush=True
        )


if __name__ == "__main__":
    main()

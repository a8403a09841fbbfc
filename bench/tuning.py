"""A chat model learns to be polite: SmolLM2-135M-Instruct, imported from GGUF, with LoRA, first by supervised tuning on polite answers, then by DPO
on pairs of polite and less polite answers. Before and after each: how often the polite answer of a held-out pair is the more probable one, after DPO
how often it has gained more than the other over `sft`, its perplexity, and that of plain text (the end of tiny Shakespeare).

    SEQLOOM_DATA=… python bench/tuning.py MODEL.gguf [--out runs/tuning] [--part valid] [--sft-steps N] [--dpo-steps N] [--threads N]

The pairs are divided by near-equal prompts: valid is there to choose a recipe, test to measure it once. Runs that are there already are not
trained again; one that was cut goes on.
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
from seqloom.studies.policy_measures import implicit_rewards

PLAIN_CHARACTERS = 20_000
PAIRS = "preference/instruction-data-with-preference.json.gz"
# Of 1.5e-4, 2e-4 and 3e-4 for DPO the largest that raises the perplexity of plain text by less than 5 %.
RATES = {"sft": 3e-4, "dpo": 2e-4}
RECIPE = ["lora.rank=8", "train.schedule.warmup=5", "batches.batch_tokens=768", "batches.max_length=192"]
RECIPE += ["train.eval_every=1000", "train.eval_batches=1"]  # the last weights are the run
SIDES = ("train", "valid", "test")


def divided(source: Path, folder: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Train, valid and test files of the pairs, and of chats that end with the polite answer."""
    pairs = {side: folder / "pairs" / f"{side}.jsonl" for side in SIDES}
    chats = {side: folder / f"polite-{side}.jsonl" for side in SIDES}
    if not (folder / "pairs").exists():
        with gzip.open(source, "rt", encoding="utf-8") as file:
            records = json.load(file)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "all.jsonl", records)
        seqloom.data.split(folder / "all.jsonl", out=folder / "pairs", valid=0.1, test=0.1, by="near")
    for side in SIDES:
        records = [json.loads(line) for line in pairs[side].read_text("utf-8").splitlines()]
        keys = ("instruction", "input")
        write(chats[side], [{**{key: r[key] for key in keys}, "output": r["chosen"]} for r in records])
    return pairs, chats


def write(path: Path, records: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def tuned(folder: Path, preset: str, steps: int, files: dict[str, Path], base: Path, threads: int) -> Run:
    if is_run(folder) and (folder / "results.json").exists():
        return load(folder)
    changes = [*RECIPE, f"train.steps={steps}", f"train.optimizer.lr={RATES[preset]}"]
    train, valid = [str(files["train"])], [str(files["valid"])]
    return seqloom.fit(preset, *changes, data=train, valid=valid, out=folder, base=base, threads=threads)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/tuning"))
    parser.add_argument("--part", choices=["valid", "test"], default="test")
    parser.add_argument("--sft-steps", type=int, default=24)
    parser.add_argument("--dpo-steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if "SEQLOOM_DATA" not in os.environ:
        sys.exit("set SEQLOOM_DATA to the folder of the real data")
    place = Path(os.environ["SEQLOOM_DATA"])
    torch.set_num_threads(options.threads)
    base = options.out / "smollm2"
    if not base.exists():
        seqloom.import_checkpoint(options.model, base)
    pairs, chats = divided(place / PAIRS, options.out / "data")
    plain = options.out / "data/plain.txt"
    plain.write_text((place / "tinyshakespeare/input.txt").read_text("utf-8")[-PLAIN_CHARACTERS:], "utf-8")

    print(
        "| run | steps | polite answer more probable, % | by mean of tokens, % | gained more over sft, % "
        "| perplexity of polite answers | of plain text |"
    )
    print("|---|---|---|---|---|---|---|")
    first = None
    for name, steps, files, source in (
        ("smollm2", 0, chats, None),
        ("sft", options.sft_steps, chats, "smollm2"),
        ("dpo", options.dpo_steps, pairs, "sft"),
    ):
        held = str(pairs[options.part])
        run = load(base)
        if source:
            run = tuned(options.out / name, name, steps, files, options.out / source, options.threads)
        numbers = implicit_rewards(run, options.out / "sft", held) if name == "dpo" else evaluate(run, held)
        found = {number.name: number for number in numbers}
        text = evaluate(run, str(plain), window=256)["perplexity"].value
        first = first or text
        names = ("preference_accuracy", "accuracy_by_mean", "implicit_reward_accuracy")
        shares = [f"{found[key].value:.1f} {found[key].interval}" if key in found else "–" for key in names]
        answers = f"{found['perplexity_of_chosen'].value:.2f}"
        change = f"{text:.2f} ({100 * (text / first - 1):+.2f} %)"
        print(f"| {name} | {steps} | {' | '.join(shares)} | {answers} | {change} |", flush=True)


if __name__ == "__main__":
    main()

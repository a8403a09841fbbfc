"""The geometry of an ELMo, a BERT and a GPT that were trained on one corpus, as a table   [K1, Q11]

    SEQLOOM_DATA=… python bench/geometry.py [--steps 1000] [--threads 1] [--out runs/geometry] [--json]

The corpus: the first 2 MB of WikiText-2's sentences of 5 to 60 words, with one tokenizer of 3,000 pieces for all three. The models are as wide as
each other; the numbers are those of `seqloom inspect geometry` on 1,000 held-out sentences, without the middle layers of the Transformers. A
run that is finished is not trained again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import seqloom
from seqloom.inspect import geometry
from seqloom.inspect.vector_pages import MEASURES, measure, measure_title, rounded

TOKENIZER = {"type": "WordPiece", "size": 3000, "lowercase": True}
TRANSFORMER = {"model.dim": 128, "batches.width": 64, "model.stack.layers": 4, "model.stack.heads": 4}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ELMo": ("elmo", {"model.dim": 128}),
    "BERT": ("bert-small", TRANSFORMER),
    "GPT": (
        "gpt",
        {
            **TRANSFORMER,
            "batches.batch": 16,
            "model.stack.position": {"type": "Rotary"},
            "train.optimizer.lr": 2e-3,
        },
    ),
}


def sentences(path: Path) -> Iterator[str]:
    """The sentences of a file of WikiText, of 5 to 60 words."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            for sentence in line.strip().split(" . "):
                if 5 <= len(sentence.split()) <= 60:
                    yield sentence


def write_corpus(path: Path, num_bytes: int = 2_000_000) -> None:
    """The first sentences of WikiText-2, one on each line."""
    size = 0
    lines = []
    for sentence in sentences(Path(os.environ["SEQLOOM_DATA"]) / "wikitext-2" / "train.txt.gz"):
        size += len(sentence.encode()) + 1
        if size > num_bytes:
            break
        lines.append(sentence)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/geometry"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    corpus = args.out / "sentences.txt"
    if not corpus.exists():
        write_corpus(corpus)
    held_out = Path(os.environ["SEQLOOM_DATA"]) / "wikitext-2" / "valid.txt.gz"
    texts = list(islice(sentences(held_out), 1000))
    heads = [measure_title(name) for name in MEASURES]
    print(f"| model | layer | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 2)}")
    for name, (preset, changes) in MODELS.items():
        every = {"tokenizer": TOKENIZER, "train.eval_every": args.steps // 3, **changes}
        run = seqloom.fit(
            preset, every, data=str(corpus), out=args.out / preset, steps=args.steps, threads=args.threads
        )
        found = geometry(run, texts)
        for number, layer in enumerate(found.layers):
            values = [rounded(measure(layer, one)) for one in MEASURES]
            print(f"| {name} | {number} {layer.layer} | {' | '.join(values)} |", flush=True)
        if args.json:
            print(json.dumps({"model": name, **found.to_dict()}), flush=True)


if __name__ == "__main__":
    main()

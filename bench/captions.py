"""Quality of captions, called by bench/quality.py, with the commonest caption and another picture's captions beside it.

drawings    exact captions of unseen pictures of the world, and how often the attention is on the thing of a word
emoji       exact names of unseen combinations
flickr8k    BLEU and CIDEr-D on the test photographs, five references each
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from seqloom.data.world_files import world_paths
from seqloom.evaluation import evaluate
from seqloom.measure.captions import caption_numbers
from seqloom.run import Run

Fit = Callable[..., Run | None]
Row = Callable[..., str]
PLAIN = ("model.dropout=0", "model.decoder.dropout=0", "objective.smoothing=0")
SMALL = ("model.decoder.dim=128", "model.decoder.attention.dim=64", "train.schedule.warmup=100")
FINE = "model.encoder.stem={type: ResNet, dims: [16, 32, 64, 128], stride: 1}"


def drawings(place: Path, out: Path, minutes: float, fitted: Fit, row: Row) -> None:
    paths = {split: world_paths(("image", "captions"), split) for split in ("train", "valid", "test")}
    changes = ("corpus.size=48", FINE, *PLAIN, *SMALL, "train.optimizer.lr=3e-3", f"train.minutes={minutes}")
    run = fitted(out / "drawings", "show-attend-tell", *changes, data=paths["train"], valid=paths["valid"])
    if run is not None:
        report(run, paths["test"][0], row, "exact_match", "attention_hits", "attention_hits_by_chance")


def emoji(place: Path, out: Path, minutes: float, fitted: Fit, row: Row) -> None:
    files = {split: str(place / "emoji" / f"{split}.tsv") for split in ("train", "valid", "test")}
    changes = (
        *("corpus.size=32", FINE, "tokenizer=Words", "model.dropout=0.2", "model.decoder.dropout=0.2"),
        *("batches.augment={type: Augment, shift: 2}", f"train.minutes={minutes}"),
    )
    run = fitted(out / "emoji", "show-attend-tell", *changes, data=[files["train"]], valid=[files["valid"]])
    if run is not None:
        report(run, files["test"], row, "exact_match", "bleu_4", "cider")


def flickr8k(place: Path, out: Path, minutes: float, fitted: Fit, row: Row) -> None:
    files = {split: str(place / "flickr8k_64" / f"{split}.tsv.gz") for split in ("train", "valid", "test")}
    changes = ("batches.augment={type: Augment, shift: 4, flip: true}", f"train.minutes={minutes}")
    run = fitted(
        out / "flickr8k", "show-attend-tell", *changes, data=[files["train"]], valid=[files["valid"]]
    )
    if run is not None:
        report(run, files["test"], row, "bleu_1", "bleu_4", "cider")


def report(run: Run, test: str, row: Row, *names: str) -> None:
    """The scores of a run, then those of the commonest training caption and of the captions of the next picture."""
    found = evaluate(run, test)
    print(
        row(run, *(f"{found[name].title} {found[name].value:.2f} {found[name].interval}" for name in names))
    )
    commonest = Counter(
        caption for _, captions in run.config.reader(run.config.files.train) for caption in captions
    ).most_common(1)[0][0]
    references = [captions for _, captions in run.config.reader([test])]
    shifted = [captions[0] for captions in [*references[1:], references[0]]]
    for title, outputs in (
        ("commonest caption", [commonest] * len(references)),
        ("another picture's", shifted),
    ):
        numbers = {number.name: number.value for number in caption_numbers(outputs, references, {})}
        print(f"  {title}: " + ", ".join(f"{name} {numbers[name]:.2f}" for name in names if name in numbers))

"""Quality of speech on real data: AN4 (ready MFCC features) and FSDD (spoken digits), and on the world's voice. Called by bench/quality.py.

an4     WER of BLSTM and LSTM over `SEEDS` seeds: the best alignment, a beam, a beam with a language model over characters
fsdd    accuracy on unseen recordings (indices 0 to 4), and on a speaker that is in no training recording
spoken  WER on unseen voices of the world, and how far the times of words are from the truth
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import seqloom
from seqloom.data.world_files import world_paths
from seqloom.evaluation import evaluate
from seqloom.run import Run

SEEDS = 3
Fit = Callable[..., Run | None]
Row = Callable[..., str]
AN4 = ("batches.batch_tokens=4000", "batches.bin_width=2", "train.eval_every=400")
ENCODERS = {"ctc-blstm": ("model.encoder.stack.dim=128",), "ctc-lstm": ("model.encoder.stack.dim=224",)}
LM = (
    "corpus.type=Lines",
    "batches={type: Windows, width: 64, batch: 16}",
    "model.dim=64",
    "model.stack.dim=128",
    "model.dropout=0.2",
)


def an4(place: Path, out: Path, minutes: float, fitted: Fit, row: Row) -> None:
    """Runs of `minutes` each; a twentieth of the training recordings is held out."""
    files = {
        part: [place / "an4" / f"{part}.tsv", place / "an4" / f"{part}.mfcc13.npz"]
        for part in ("train", "test")
    }
    lines = [line.split("\t")[1] for line in files["train"][0].read_text().splitlines()[1:]]
    out.mkdir(parents=True, exist_ok=True)
    (out / "an4.txt").write_text("\n".join(lines) + "\n")
    lm = fitted(
        out / "an4-lm", "lstm-lm", *LM, "train.steps=400", "train.eval_every=100", data=[out / "an4.txt"]
    )
    print(
        "| run | parameters | steps | WER, best alignment | beam 16 | beam 16 with a language model | minutes | promised |"
    )
    print("|---|---|---|---|---|---|---|---|")
    rates: dict[str, list[float]] = {name: [] for name in ENCODERS}
    for seed in range(SEEDS):
        for name, changes in ENCODERS.items():
            run = fitted(
                *(out / f"an4-{name}-seed-{seed}", name, *AN4, *changes, f"train.minutes={minutes}"),
                data=files["train"],
                valid=[0.05],
                seed=seed,
            )
            if run is None:
                continue
            test = [str(path) for path in files["test"]]
            searches = [{"beam": 1}, {"beam": 16}]
            if lm is not None:
                searches.append({"beam": 16, "lm": lm, "lm_weight": 0.6, "bonus": 1.0})
            found = [evaluate(run, test, **search)["wer"] for search in searches]
            rates[name].append(found[-1].value)
            print(row(run, *(f"{number.value:.2f} {number.interval}" for number in found)), flush=True)
    both, one = (np.array(rates[name]) for name in ENCODERS)
    if len(both) and len(both) == len(one):
        cuts = 100 * (1 - both / one)
        spread = 1.96 * cuts.std(ddof=1) / np.sqrt(len(cuts)) if len(cuts) > 1 else float("nan")
        print(f"relative cut by the second direction: {cuts.mean():.1f} ± {spread:.1f} % (S1: 21.5 %)")


def unpack(place: Path, out: Path) -> Path:
    """The recordings of FSDD as files, and tables of them."""
    folder = out / "fsdd-files"
    if not (folder / "test.tsv").exists():
        with tarfile.open(place / "fsdd" / "fsdd_recordings_0-14.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.wav"))
        parts = [(name, *Path(name).stem.split("_")) for name in names]
        tables = {
            "train.tsv": [(name, digit) for name, digit, _, index in parts if int(index) > 4],
            "unseen-train.tsv": [(name, digit) for name, digit, who, _ in parts if who != "theo"],
            "unseen-test.tsv": [(name, digit) for name, digit, who, _ in parts if who == "theo"],
            "test.tsv": [(name, digit) for name, digit, _, index in parts if int(index) <= 4],
        }
        for table, rows in tables.items():
            (folder / table).write_text(
                "file\tlabel\n" + "".join(f"{name}\t{digit}\n" for name, digit in rows)
            )
    return folder


def fsdd(place: Path, out: Path, minutes: float, fitted: Fit, row: Row) -> None:
    """Two runs of sound-classifier: recordings of known speakers, and a speaker that was never heard."""
    folder = unpack(place, out)
    print("| run | parameters | steps | accuracy, test | minutes | promised |\n|---|---|---|---|---|---|")
    for name, train, test in (
        ("fsdd", "train", "test"),
        ("fsdd-unseen-speaker", "unseen-train", "unseen-test"),
    ):
        run = fitted(
            *(out / name, "sound-classifier", f"train.minutes={minutes}"),
            data=[folder / f"{train}.tsv"],
            valid=[0.1],
        )
        if run is not None:
            found = evaluate(run, str(folder / f"{test}.tsv"))["accuracy"]
            print(row(run, f"{found.value:.2f} {found.interval} of {found.n}"), flush=True)


def spoken(place: Path, out: Path, minutes: float, fitted: Fit, row: Row) -> None:
    """A run of ctc-blstm on the world's voice."""
    paths = {part: Path(world_paths(("audio", "text"), part)[0]) for part in ("train", "valid", "test")}
    run = fitted(
        *(
            out / "world-ctc-blstm",
            "ctc-blstm",
            "corpus.rate=8000",
            "model.encoder.stack.dim=96",
            f"train.minutes={minutes}",
        ),
        data=[paths["train"]],
        valid=[paths["valid"]],
    )
    if run is None:
        return
    found = evaluate(run, str(paths["test"]), beam=8)
    errors = word_time_errors(run, paths["test"])
    print(
        f"WER {found['wer'].value:.2f} {found['wer'].interval}, CER {found['cer'].value:.2f} {found['cer'].interval}"
    )
    print(
        f"begin of words: median {1e3 * np.median(errors):.0f} ms from the truth, 95 % within {1e3 * np.quantile(errors, 0.95):.0f} ms "
        f"({len(errors)} words that were heard right)"
    )


def word_time_errors(run: Run, table: Path) -> np.ndarray:
    """|start - truth| in seconds of every word of the recordings whose words were all heard right."""
    rows = [line.split("\t") for line in table.read_text().splitlines()[1:]]
    found = seqloom.transcribe(run, [str(table.parent / name) for name, _, _ in rows], beam=8)
    errors = []
    for transcript, (_, text, times) in zip(found, rows, strict=True):
        if transcript.text == text:
            starts = [float(span.split("-")[0]) for span in times.split()]
            errors += [abs(word.start - start) for word, start in zip(transcript.words, starts, strict=True)]
    return np.array(errors)

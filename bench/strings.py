"""Tables of bench/quality.py: the error of a property of molecules on ESOL, and ROUGE of summaries of Debian packages."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import RidgeCV

import seqloom
from seqloom.errors import UserError
from seqloom.evaluation import evaluate
from seqloom.run import Run
from seqloom.text.smiles import TOKEN

Fitted = Callable[..., Run | None]
Row = Callable[..., str]


def unpacked(source: Path, target: Path) -> Path:
    """A file without its compression."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.decompress(source.read_bytes()))
    return target


def molecules(place: Path, out: Path, _: float, fitted: Fitted, row: Row) -> None:
    """The error of three seeds on ESOL, and of the mean of their predictions; with rdkit, training on ten more SMILES of each molecule."""
    train, valid, test = (
        unpacked(place / "esol" / f"{part}.tsv.gz", out / f"esol-{part}.tsv")
        for part in ("train", "valid", "test")
    )
    try:
        more = out / "esol-more.tsv"
        more.unlink(missing_ok=True)
        seqloom.data.augment(train, more, copies=10)
        sets = {"esol": train, "esol-augmented": more}
    except UserError as error:
        print(f"{error}: without augmentation")
        sets = {"esol": train}
    rows = [line.split("\t") for line in test.read_text().splitlines()]
    gold = torch.tensor([float(value) for _, value in rows])
    print(
        "| run | parameters | steps | RMSE, test | 95 % | MAE | of the mean | minutes | promised |\n|---|---|---|---|---|---|---|---|---|"
    )
    for name, data in sets.items():
        predicted = []
        for seed in range(3):
            run = fitted(
                out / f"{name}-{seed}",
                "smiles",
                data=[data],
                valid=[valid],
                seed=seed,
            )
            if run is not None:
                found = evaluate(run, str(test))
                mean = f"{found['rmse_of_the_mean'].value:.3f}"
                print(
                    row(
                        run,
                        f"{found['rmse'].value:.3f}",
                        found["rmse"].interval,
                        f"{found['mae'].value:.3f}",
                        mean,
                    )
                )
                values = seqloom.predict(run, [smiles for smiles, _ in rows])
                predicted.append(torch.tensor([value.value for value in values]))
        if predicted:
            error = (torch.stack(predicted).mean(0) - gold).square().mean().sqrt()
            print(f"{name}: RMSE of the mean of {len(predicted)} seeds {error:.3f}")


def folds(place: Path, out: Path, _: float, fitted: Fitted, row: Row) -> None:
    """The error on all of ESOL by five folds: each molecule is predicted by a model that has not seen it. Beside it the mean of the training
    molecules, and a ridge regression on counts of one to three tokens, whose penalty is chosen within the training molecules."""
    molecules = [
        line
        for part in ("train", "valid", "test")
        for line in gzip.decompress((place / "esol" / f"{part}.tsv.gz").read_bytes()).decode().splitlines()
    ]
    order = np.random.default_rng(0).permutation(len(molecules))
    errors: dict[str, list[np.ndarray]] = {"smiles": [], "ridge of tokens": [], "the mean": []}
    for fold in range(5):
        unseen, others = order[fold::5], np.delete(order, np.s_[fold::5])
        sides = {"valid": others[:64], "train": others[64:], "test": unseen}
        rows = {side: [molecules[index] for index in indices] for side, indices in sides.items()}
        paths = {side: out / f"esol-fold-{fold}-{side}.tsv" for side in sides}
        for side, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in rows[side]), "utf-8")
        run = fitted(out / f"esol-fold-{fold}", "smiles", data=[paths["train"]], valid=[paths["valid"]])
        if run is None:
            continue
        smiles, gold = parsed(rows["test"])
        texts, values = parsed(rows["train"] + rows["valid"])
        counts = CountVectorizer(analyzer=token_counts)
        ridge = RidgeCV(np.logspace(-2, 3, 11)).fit(counts.fit_transform(texts), values)
        predicted = {
            "smiles": np.array([value.value for value in seqloom.predict(run, smiles)]),
            "ridge of tokens": ridge.predict(counts.transform(smiles)),
            "the mean": np.full(len(gold), values.mean()),
        }
        for name, numbers in predicted.items():
            errors[name].append(numbers - gold)
    print("| model | molecules | RMSE | 95 % | MAE |\n|---|---|---|---|---|")
    for name, parts in errors.items():
        if parts:
            error = np.concatenate(parts)
            rmse, low, high = bootstrap(error)
            print(
                f"| {name} | {len(error):,} | {rmse:.3f} | {low:.3f} to {high:.3f} | {np.abs(error).mean():.3f} |"
            )


def parsed(lines: list[str]) -> tuple[list[str], np.ndarray]:
    """The SMILES and the numbers of rows."""
    smiles, numbers = zip(*(line.split("\t") for line in lines), strict=True)
    return list(smiles), np.array(numbers, np.float64)


def token_counts(smiles: str) -> list[str]:
    """Runs of one to three tokens of a molecule."""
    tokens = re.findall(TOKEN, smiles)
    return ["".join(tokens[i : i + n]) for n in (1, 2, 3) for i in range(len(tokens) - n + 1)]


def bootstrap(error: np.ndarray, samples: int = 2000) -> tuple[float, float, float]:
    """The root of the mean square with its 95 % interval."""
    squares = error**2
    draws = np.random.default_rng(0).choice(squares, (samples, len(squares))).mean(1)
    low, high = np.sqrt(np.quantile(draws, (0.025, 0.975)))
    return float(np.sqrt(squares.mean())), float(low), float(high)


SUMMARY_SIZES = [
    *("tokenizer.size=5000", "model.dim=96", "model.encoder.dim=96", "model.decoder.dim=192"),
    *("model.decoder.attention.dim=96", "batches.max_source=60", "batches.max_target=20"),
    *(
        "train.steps=1500",
        "train.eval_every=500",
        "batches.batch_tokens=3072",
        "train.eval_batches=10",
        "train.optimizer.lr=3e-3",
        "train.schedule.warmup=100",
    ),
]


def summaries(place: Path, out: Path, _: float, fitted: Fitted, row: Row) -> None:
    """The pointer-generator on descriptions of Debian packages, and the same network without the pointer."""
    folder = place / "debian_headlines"
    plain = [
        *(
            "model.type=Summarizer",
            "model.decoder.type=AttentiveRNN",
            "model.decoder.attention.type=GlobalAttention",
        ),
        "model.decoder.attention.score=Additive",
    ]
    print(
        "| run | parameters | steps | ROUGE-1 | ROUGE-2 | ROUGE-L | interval | lead-n | unknown words | minutes | promised |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, changes in (("debian-pointer", []), ("debian-plain", plain)):
        run = fitted(
            out / name,
            "pointer",
            *changes,
            *SUMMARY_SIZES,
            data=[folder / "train.tsv.gz"],
            valid=[folder / "valid.tsv.gz"],
        )
        if run is not None:
            found = evaluate(run, str(folder / "test.tsv.gz"), beam=4)
            cells = [f"{found[metric].value:.2f}" for metric in ("rouge_1", "rouge_2", "rouge_l")]
            others = [f"{found[metric].value:.2f}" for metric in ("rouge_l_lead", "unknown_words")]
            print(row(run, *cells, found["rouge_l"].interval, *others))

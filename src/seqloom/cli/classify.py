"""The old verb classify: its table is now `compare classical`, its classifiers are runs. Classifiers that it saved can still be used."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from cyclopts import App, Parameter

from seqloom.cli.app import app, print_result
from seqloom.cli.inputs import read_texts
from seqloom.errors import UserError

logger = logging.getLogger("seqloom")
classify = App(
    name="classify",
    help="The older name of compare classical.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
    show=False,
)
app.command(classify)


def refuse_run(name: str, texts: Sequence[str]) -> None:
    """Raises for a run in the place of a file or of an old classifier: it is used by the verb predict."""
    from seqloom.config_source import is_run

    if is_run(name):
        words = [shlex.quote(text) for text in texts if text] or ["TEXT…"]
        raise UserError(f"{name}: a run labels texts with: seqloom predict {name} {' '.join(words)}")


@classify.default
def compare(
    train: str,
    test: str = "",
    /,
    *texts: str,
    out: Path | None = None,
    ngrams: int = 1,
    dim: int = 100,
    quick: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """The older name of: seqloom compare classical --data TRAIN --test TEST

    Parameters
    ----------
    train
        Labelled texts: TSV, CSV, JSON lines, or lines of a label and a text; also .gz.
    test
        Labelled texts to measure on.
    texts
        Nothing: texts are for predict.
    out
        The folder of the study.
    ngrams
        Also count n-grams of up to this many words.
    dim
        Size of the SVD and of the vectors.
    quick
        Bag of words and TF-IDF only.
    seed
        No longer used: a study has seeds.
    json
        Print the table as JSON.
    """
    from seqloom.studies.comparison import compare as compare_systems
    from seqloom.studies.systems import classical
    from seqloom.vectors.labelled_files import read

    refuse_run(train, [test, *texts])
    if not test or texts:
        raise UserError(
            "classify takes two files; it is now: seqloom compare classical --data TRAIN --test TEST"
        )
    logger.warning("classify is now: seqloom compare classical --data %s --test %s", train, test)
    words: list[str] = []
    for system in classical():
        features = system.changes[0].removeprefix("model.features=")
        is_sparse = "Counts" in features or "TFIDF" in features
        if quick and not is_sparse:
            continue
        changes = [f"model.features.ngrams={ngrams}"] if is_sparse and ngrams > 1 else []
        changes += [] if is_sparse else [f"model.features.dim={dim}"]
        words += [system.source, *system.changes, *changes]
    sets = [list(zip(*read(path), strict=True)) for path in (train, test)]
    comparison = compare_systems(
        *words, data=sets[0], test=sets[1], out=out or Path("runs/compare-classical")
    )
    print_result(comparison.to_dict(), comparison.lines(), json)
    if comparison.failed:
        sys.exit(1)


@classify.command
def predict(folder: Path, /, *texts: str, json: bool = False) -> None:
    """Label texts with a classifier that an older version saved; without texts, reads lines from stdin.

    Parameters
    ----------
    folder
        The folder that an older `seqloom classify TRAIN TEST --out FOLDER` wrote.
    texts
        The texts to label; - reads lines from stdin.
    json
        Print one JSON object for each text.
    """
    from seqloom.vectors.classify import load

    refuse_run(str(folder), texts)
    logger.warning("classify predict is now: seqloom predict RUN TEXT…")
    classifier = load(folder)
    inputs = list(read_texts(texts, None, f'seqloom classify predict {folder} "a fine film"'))
    for text, row in zip(inputs, classifier.probabilities(inputs) if inputs else (), strict=True):
        ranked = sorted(zip(classifier.labels, row.tolist(), strict=True), key=lambda pair: -pair[1])
        label, probability = ranked[0]
        report = {"text": text, "label": label, "probabilities": dict(ranked)}
        print_result(report, [f"{label}\t{probability:.4f}\t{text}"], json)

"""The commands `seqloom classify`: classical text classifiers, compared in one table, saved and applied."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App, Parameter

from seqloom.cli.app import app, print_result
from seqloom.cli.vectors import StderrProgress

classify = App(
    name="classify",
    help="Classical text classifiers: naive Bayes, logistic regression and softmax over every feature set.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
app.command(classify)


@classify.default
def compare(
    train: str,
    test: str,
    /,
    *,
    vectors: Path | None = None,
    out: Path | None = None,
    ngrams: int = 1,
    minimum: int = 1,
    dim: int = 100,
    quick: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Naive Bayes, logistic regression and softmax over each feature set, in one table of test accuracies.

    Parameters
    ----------
    train
        Labelled texts: TSV, CSV, JSON lines, or lines of a label and a text; also .gz.
    test
        Labelled texts of the same format to measure on.
    vectors
        Also average these word vectors: a folder, or a file in any common format.
    out
        Save the classifier that is best on held-out training texts in this folder.
    ngrams
        Also count n-grams of up to this many words.
    minimum
        Leave out words that occur less often.
    dim
        Size of the SVD and of the vectors trained on the training texts.
    quick
        Bag of words and TF-IDF only, without trained vectors.
    seed
        Seed of the held-out tenth and of the vectors.
    json
        Print numbers and signatures as JSON.
    """
    from seqloom.vectors import classify as classical
    from seqloom.vectors.feature_sets import conditions, feature_sets
    from seqloom.vectors.formats import require_absent
    from seqloom.vectors.labelled_files import read

    if min(ngrams, minimum, dim) < 1 or seed < 0:
        raise ValueError(
            "--ngrams, --minimum and --dim must be 1 or more, --seed 0 or more; correct the one that is not"
        )
    if out is not None:
        require_absent(out)
    train_set, test_set = read(train), read(test)
    sets = feature_sets(train_set[0], vectors, ngrams, minimum, dim, quick, seed, StderrProgress())
    cells = classical.compare(sets, train_set, test_set, conditions(train, test, ngrams, minimum, dim), seed)
    best = max(cells, key=lambda cell: cell.held_out_accuracy)
    names = list(classical.CLASSIFIERS)
    width = max(len(features.name) for features in sets) + 2
    lines = [f"{'test accuracy':{width}}" + "".join(f"{name:>24}" for name in names)]
    for features in sets:
        row = {cell.classifier: cell.score for cell in cells if cell.features == features.name}
        ordered = [row[name] for name in names]
        figures = [f"{score.number.value:.4f} [{score.low:.3f}, {score.high:.3f}]" for score in ordered]
        lines.append(f"{features.name:{width}}" + "".join(f"{figure:>24}" for figure in figures))
    texts = f"{len(train_set[0]):,} training texts, {len(test_set[0]):,} test texts"
    winner = f"{best.features}, {best.classifier} ({best.held_out_accuracy:.4f})"
    lines += [
        f"{texts}; intervals are Wilson's at 95 %",
        f"best on held-out training texts: {winner}; test {best.score.number.value:.4f}",
    ]
    if out is not None:
        classical.save(best.fitted, out, best.score.json())
        lines.append(f"classifier: {out}")
    report = {
        "numbers": [{**cell.score.json(), "held": cell.held_out_accuracy} for cell in cells],
        "best": best.score.number.name,
        "folder": out and str(out),
    }
    print_result(report, lines, json)


@classify.command
def predict(folder: Path, /, *texts: str, json: bool = False) -> None:
    """Label texts with a saved classifier; without texts, reads lines from stdin.

    Parameters
    ----------
    folder
        The folder that `seqloom classify TRAIN TEST --out FOLDER` wrote.
    texts
        The texts to label; - reads lines from stdin.
    json
        Print one JSON object for each text.
    """
    from seqloom.cli.generate import read_prompts
    from seqloom.vectors.classify import load

    classifier = load(folder)
    inputs = read_prompts(texts, False)
    for text, row in zip(inputs, classifier.probabilities(inputs) if inputs else (), strict=True):
        ranked = sorted(zip(classifier.labels, row.tolist(), strict=True), key=lambda pair: -pair[1])
        label, probability = ranked[0]
        report = {"text": text, "label": label, "probabilities": dict(ranked)}
        print_result(report, [f"{label}\t{probability:.4f}\t{text}"], json)

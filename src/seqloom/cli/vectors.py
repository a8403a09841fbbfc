"""Word vectors: train, look, measure, draw, convert; and the classical text classifiers."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Literal

from cyclopts import App, Parameter

from seqloom.cli.app import app, print_result

vectors = App(
    name="vectors", help="Word vectors: train them, ask for neighbours and analogies, measure, map and convert them.",
    help_format="plaintext", default_parameter=Parameter(negative=()),
)  # fmt: skip
app.command(vectors)
classify = App(
    name="classify", help="Classical text classifiers: naive Bayes, logistic regression and softmax over every feature set.",
    help_format="plaintext", default_parameter=Parameter(negative=()),
)  # fmt: skip
app.command(classify)


class StderrProgress:
    """Says on stderr where training is: in place on a terminal, else once in two seconds and at the end."""

    def __init__(self) -> None:
        self.spoken, self.live = 0.0, sys.stderr.isatty()

    def __call__(self, what: str, done: float) -> None:
        now = time.perf_counter()
        if now - self.spoken > (0.2 if self.live else 2) or done >= 1:
            self.spoken = now
            start, end = ("\r\x1b[K", "\n" if done >= 1 else "") if self.live else ("", "\n")
            print(f"{start}{done:4.0%}  {what}", end=end, file=sys.stderr, flush=True)


@vectors.command
def train(
    *files: str,
    kind: Literal["skip-gram", "cbow", "glove", "ppmi-svd"] = "skip-gram",
    out: Path | None = None,
    dim: int = 100,
    window: int | None = None,
    epochs: int | None = None,
    minimum: int = 5,
    most: int | None = None,
    negatives: int = 5,
    sample: float = 1e-3,
    rate: float | None = None,
    subwords: bool = False,
    average: bool = False,
    lowercase: bool = False,
    threads: int = 2,
    seed: int = 0,
    reproducible: bool = False,
    memory: int = 1024,
    json: bool = False,
) -> None:
    """Learn word vectors from text: a sentence a line, words separated by spaces.

    Parameters
    ----------
    files
        Text files (.gz is read too, - is stdin), or the word world for 20,000 sentences of the built-in world.
    kind
        skip-gram and cbow are word2vec's, glove factors counts of pairs, ppmi-svd is the count-based baseline.
    out
        The folder for the vectors; vectors-NAME-KIND where not said.
    dim
        Numbers a vector.
    window
        Words on either side that count as company; 5, for glove 10.
    epochs
        Passes over the text; 5, for glove 15 over the counts.
    minimum
        Words that occur less often are left out.
    most
        Keep so many words, the most frequent ones.
    negatives
        Noise words a pair of word2vec; 0 is the full softmax.
    sample
        Frequent words above this share are thinned out by word2vec; 0 keeps all.
    rate
        First learning rate; it falls to nearly 0, for glove it is AdaGrad's.
    subwords
        Learn n-grams of characters too, which give unseen words a vector.
    average
        word2vec steps by the mean over the window instead of one step a pair.
    lowercase
        Lower-case the text and let punctuation stand alone first.
    threads
        CPU threads.
    seed
        Seed of the first vectors and all draws.
    reproducible
        The same vectors for any number of threads, at some cost of speed.
    memory
        MiB that counts of pairs may take; more goes to the disk.
    json
        Print the report as JSON.
    """
    from seqloom.vectors import formats
    from seqloom.vectors.training import LowercasedLines, VectorOptions
    from seqloom.vectors.training import train as train_vectors
    from seqloom.vectors.vocabulary import VocabOptions

    if not files:
        raise ValueError(
            "no text: say which files to learn from, as in: seqloom vectors train FILE, or: seqloom vectors train world"
        )
    if min(dim, minimum, threads, memory) < 1 or any(
        option is not None and option <= 0 for option in (window, epochs, most, rate)
    ):
        raise ValueError(
            "--dim, --window, --epochs, --minimum, --most, --rate, --threads and --memory must be above 0; correct the one that is not"
        )
    if min(negatives, sample, seed) < 0:
        raise ValueError("--negatives, --sample and --seed must be 0 or more; correct the one that is not")
    name = (
        "world"
        if files == ("world",)
        else "+".join(Path(file).name.removesuffix(".gz").removesuffix(".txt") for file in files)
    )
    folder = out or Path(f"vectors-{name}-{kind}")
    if files == ("world",) and not Path("world").is_file():
        from seqloom import world

        source = [[word for word in scene.words if word != "."] for scene in world.scenes(20_000, seed)]
    else:
        from seqloom.text.lines import local_copy

        paths = [local_copy(file) for file in files]
        source = LowercasedLines(paths) if lowercase else paths
    with formats.new_folder(
        folder
    ) as draft:  # a place that cannot be written is found before the work, not after it
        options = VectorOptions(kind, dim, window, epochs, rate, negatives, sample, subwords, average)
        vocab = VocabOptions(minimum, most)
        found = train_vectors(
            source, options, vocab, threads, seed, reproducible, memory << 20, StderrProgress()
        )
        found.meta["source"] = name
        formats.write_into(draft, found)
    took, losses = found.meta["took"], found.meta.get("losses")
    speed = next((f", {took[unit]:,.0f} {unit}" for unit in ("words/s", "cells/s") if unit in took), "")
    lines = [
        f"{len(found):,} words of {found.meta['corpus words']:,} seen, size {dim}, {took['seconds']:.1f} s{speed}"
    ]
    if losses:
        lines.append("loss by epoch: " + " ".join(f"{loss:.4f}" for loss in losses))
    print_result(
        {"folder": str(folder), "words": len(found), **found.meta}, [*lines, f"vectors: {folder}"], json
    )


@vectors.command
def nearest(
    path: Path, /, *words: str, count: int = 10, by: Literal["cosine", "dot"] = "cosine", json: bool = False
) -> None:
    """The words most like each of the given ones.

    Parameters
    ----------
    path
        A folder of vectors, or a file in word2vec's, GloVe's or fastText's form.
    words
        The words to ask for.
    count
        Neighbours of each.
    by
        Compare by the cosine, or by the plain dot product.
    json
        Print as JSON.
    """
    from seqloom.vectors.formats import load

    if not words:
        raise ValueError("no word: say which to ask for, as in: seqloom vectors nearest FOLDER bank")
    found = load(path)
    answers = {word: found.nearest(word, count, by) for word in words}
    lines = []
    for word, near in answers.items():
        lines += [*([""] if lines else []), *([word] if len(words) > 1 else []), *_ranked(near)]
    print_result(
        {word: [{"word": one, by: score} for one, score in near] for word, near in answers.items()},
        lines,
        json,
    )


@vectors.command
def analogy(
    path: Path,
    a: str,
    b: str,
    c: str,
    /,
    *,
    count: int = 5,
    method: Literal["add", "mul"] = "add",
    json: bool = False,
) -> None:
    """A is to B as C is to what?

    Parameters
    ----------
    path
        A folder or file of vectors.
    a
        As in man, which is
    b
        to king,
    c
        as woman is to what?
    count
        Answers to give.
    method
        add is 3CosAdd, mul is 3CosMul.
    json
        Print as JSON.
    """
    from seqloom.vectors.formats import load

    found = load(path).analogy(a, b, c, count, method)
    print_result(
        {"question": [a, b, c], "answers": [{"word": word, "score": score} for word, score in found]},
        _ranked(found),
        json,
    )


def _ranked(near: list[tuple[str, float]]) -> list[str]:
    return [f"{score:7.4f}  {word}" for word, score in near]


@vectors.command
def evaluate(
    path: Path,
    /,
    *files: str,
    method: Literal["add", "mul"] = "add",
    most: int | None = None,
    case: bool = False,
    json: bool = False,
) -> None:
    """Measure vectors: analogy files give accuracies, word-similarity files Spearman's correlation.

    Parameters
    ----------
    path
        A folder or file of vectors.
    files
        Analogies (questions-words.txt) or judged pairs (WS-353, SimLex-999), told apart by what is in them.
    method
        add is 3CosAdd, mul is 3CosMul.
    most
        Use the first so many words only.
    case
        Tell capitals from small letters.
    json
        Print numbers and signatures as JSON.
    """
    from seqloom.vectors.benchmarks import evaluate as measure
    from seqloom.vectors.formats import load

    if not files:
        raise ValueError("nothing to measure on: give a file of analogies or of judged word pairs")
    found = load(path)
    scores = [score for file in files for score in measure(found, file, not case, most, method)]
    lines = []
    for score in scores:
        value = (
            f"{score.number.value:8.4f}  [{score.low:.4f}, {score.high:.4f}]"
            if score.known
            else f"{'–':>8}{'':20}"
        )
        lines.append(f"{score.number.name:28}{value}  {score.known:,} of {score.asked:,}")
    shown = dict.fromkeys(
        score.number.signature for score in scores if score.number.name.startswith(("total", "Spearman"))
    )
    print_result(
        {"vectors": str(path), "numbers": [score.json() for score in scores]}, [*lines, *shown], json
    )


@vectors.command
def map(
    path: Path,
    out: Path = Path("map.html"),
    /,
    *,
    most: int = 2000,
    tsne: bool = False,
    clusters: int = 10,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Draw the most frequent words as a map: one HTML page with search and neighbours that needs no network.

    Parameters
    ----------
    path
        A folder or file of vectors.
    out
        The page to write.
    most
        Words on the map.
    tsne
        Lay the words out by t-SNE too, which keeps neighbours together; takes seconds to minutes.
    clusters
        Colours.
    seed
        Seed of t-SNE and of the clusters.
    json
        Print as JSON.
    """
    from seqloom.vectors.formats import load, require_absent
    from seqloom.vectors.projection import write_map

    require_absent(out)
    report = write_map(load(path), out, most, tsne, clusters, seed=seed)
    share = f"two principal components hold {report['variance']:.1%} of the variance"
    print_result(
        {"page": str(out), **report},
        [f"{report['words']:,} of {report['of']:,} words; {share}", f"page: {out}"],
        json,
    )


@vectors.command
def convert(
    source: Path,
    target: Path,
    /,
    *,
    form: Literal["folder", "word2vec", "binary", "glove"] = "folder",
    json: bool = False,
) -> None:
    """Write vectors in another form; the form of the source is recognised.

    Parameters
    ----------
    source
        A folder or file of vectors.
    target
        Where to write.
    form
        folder opens at once; word2vec is text with a header line (fastText's .vec too), binary is word2vec's, glove has no header.
    json
        Print as JSON.
    """
    from seqloom.vectors import formats

    formats.require_absent(target)
    found = formats.convert(source, target, form)
    print_result({"from": found, "to": form, "target": str(target)}, [f"{found} → {form}: {target}"], json)


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
        Labelled texts: TSV, CSV, JSON lines, or lines of a label and a text; .gz is read too.
    test
        Others of the same kind to measure on.
    vectors
        Average these word vectors too: a folder, or a file in any usual form.
    out
        Keep the classifier that is best on held-out training texts in this folder.
    ngrams
        Count runs of so many words too.
    minimum
        Leave out words that occur less often.
    dim
        Size of the SVD and of the vectors learnt from the training texts.
    quick
        Bag of words and TF-IDF alone, without the learnt vectors.
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
    known, new = read(train), read(test)
    sets = feature_sets(known[0], vectors, ngrams, minimum, dim, quick, seed, StderrProgress())
    cells = classical.compare(sets, known, new, conditions(train, test, ngrams, minimum, dim), seed)
    best = max(cells, key=lambda cell: cell.held)
    names = list(classical.CLASSIFIERS)
    width = max(len(one.name) for one in sets) + 2
    lines = [f"{'test accuracy':{width}}" + "".join(f"{name:>24}" for name in names)]
    for features in sets:
        row = {cell.classifier: cell.score for cell in cells if cell.features == features.name}
        figures = (
            f"{row[name].number.value:.4f} [{row[name].low:.3f}, {row[name].high:.3f}]" for name in names
        )
        lines.append(f"{features.name:{width}}" + "".join(f"{figure:>24}" for figure in figures))
    lines += [
        f"{len(known[0]):,} training texts, {len(new[0]):,} test texts; intervals are Wilson's at 95 %",
        f"best on held-out training texts: {best.features}, {best.classifier} ({best.held:.4f}); test {best.score.number.value:.4f}",
    ]
    if out is not None:
        classical.save(best.fitted, out, best.score.json())
        lines.append(f"classifier: {out}")
    report = {
        "numbers": [{**cell.score.json(), "held": cell.held} for cell in cells],
        "best": best.score.number.name,
        "folder": out and str(out),
    }
    print_result(report, lines, json)


@classify.command
def predict(folder: Path, /, *texts: str, json: bool = False) -> None:
    """Label new texts with a kept classifier; without texts, lines are read from stdin.

    Parameters
    ----------
    folder
        What `seqloom classify TRAIN TEST --out FOLDER` has written.
    texts
        The texts to label; - reads lines from stdin.
    json
        Print one JSON object for each text.
    """
    from seqloom.cli.generate import read_prompts
    from seqloom.vectors.classify import load

    classifier = load(folder)
    asked = read_prompts(texts, False)
    for text, row in zip(asked, classifier.probabilities(asked) if asked else (), strict=True):
        ranked = sorted(zip(classifier.labels, row.tolist(), strict=True), key=lambda pair: -pair[1])
        label, share = ranked[0]
        print_result(
            {"text": text, "label": label, "probabilities": dict(ranked)},
            [f"{label}\t{share:.4f}\t{text}"],
            json,
        )

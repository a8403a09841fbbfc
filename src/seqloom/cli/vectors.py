"""The commands `seqloom vectors`: train, query, evaluate, draw and convert word vectors."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Literal

from cyclopts import App, Parameter

from seqloom.cli.app import app, print_result

vectors = App(
    name="vectors",
    help="Word vectors: train them, ask for neighbours and analogies, measure, map and convert them.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
app.command(vectors)


class StderrProgress:
    """Prints the progress of training on stderr: in place on a terminal, else every two seconds and at the end."""

    def __init__(self) -> None:
        self.last_print = 0.0
        self.terminal = sys.stderr.isatty()

    def __call__(self, message: str, done: float) -> None:
        now = time.perf_counter()
        interval = 0.2 if self.terminal else 2
        if now - self.last_print > interval or done >= 1:
            self.last_print = now
            start = "\r\x1b[K" if self.terminal else ""
            end = "\n" if done >= 1 or not self.terminal else ""
            print(f"{start}{done:4.0%}  {message}", end=end, file=sys.stderr, flush=True)


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
    """Train word vectors on text: one sentence per line, words separated by spaces.

    Parameters
    ----------
    files
        Text files (also .gz; - is stdin), or the word world for 20,000 sentences of the built-in world.
    kind
        skip-gram and cbow are word2vec's, glove factorizes counts of pairs, ppmi-svd is the count-based baseline.
    out
        The folder for the vectors; by default vectors-NAME-KIND.
    dim
        Size of a vector.
    window
        Words on either side that are context; by default 5, for glove 10.
    epochs
        Passes over the text, by default 5; for glove over the counts, by default 15.
    minimum
        Leave out words that occur less often.
    most
        Use only this many words, the most frequent ones.
    negatives
        Negative samples of word2vec for each pair; 0 is the full softmax.
    sample
        word2vec sub-samples words above this relative frequency; 0 keeps all.
    rate
        Initial learning rate; it falls to nearly 0. For glove it is AdaGrad's.
    subwords
        Also train n-grams of characters, which give unseen words a vector.
    average
        word2vec steps by the mean over the window instead of one step per pair.
    lowercase
        Lower-case the text and separate punctuation first.
    threads
        CPU threads.
    seed
        Seed of the initial vectors and all random choices.
    reproducible
        The same vectors for any number of threads, at a lower speed.
    memory
        MiB for counts of pairs; more go to disk.
    json
        Print the report as JSON.
    """
    from seqloom.vectors import formats
    from seqloom.vectors.training import LowercasedLines, VectorOptions
    from seqloom.vectors.training import train as train_vectors
    from seqloom.vectors.vocabulary import Source, VocabOptions

    if not files:
        raise ValueError(
            "no text given; name files, as in: seqloom vectors train FILE, or: seqloom vectors train world"
        )
    if min(dim, minimum, threads, memory) < 1 or any(
        option is not None and option <= 0 for option in (window, epochs, most, rate)
    ):
        raise ValueError(
            "--dim, --window, --epochs, --minimum, --most, --rate, --threads and --memory must be above 0; "
            "correct the one that is not"
        )
    if min(negatives, sample, seed) < 0:
        raise ValueError("--negatives, --sample and --seed must be 0 or more; correct the one that is not")
    name = "+".join(Path(file).name.removesuffix(".gz").removesuffix(".txt") for file in files)
    folder = out or Path(f"vectors-{name}-{kind}")
    source: Source
    if files == ("world",) and not Path("world").is_file():
        from seqloom import world

        source = [[word for word in scene.words if word != "."] for scene in world.scenes(20_000, seed)]
    else:
        from seqloom.text.lines import local_copy

        paths = [local_copy(file) for file in files]
        source = LowercasedLines(paths) if lowercase else paths
    with formats.new_folder(folder) as draft:  # fails before training if the folder cannot be written
        options = VectorOptions(kind, dim, window, epochs, rate, negatives, sample, subwords, average)
        vocab = VocabOptions(minimum, most)
        trained = train_vectors(
            source, options, vocab, threads, seed, reproducible, memory << 20, StderrProgress()
        )
        trained.meta["source"] = name
        formats.write_into(draft, trained)
    meta = trained.meta
    took = meta["took"]
    speed = next((f", {took[unit]:,.0f} {unit}" for unit in ("words/s", "cells/s") if unit in took), "")
    size = f"{len(trained):,} words of {meta['corpus words']:,} in the text, size {dim}"
    lines = [f"{size}, {took['seconds']:.1f} s{speed}"]
    if losses := meta.get("losses"):
        lines.append("loss by epoch: " + " ".join(f"{loss:.4f}" for loss in losses))
    lines.append(f"vectors: {folder}")
    print_result({"folder": str(folder), "words": len(trained), **meta}, lines, json)


@vectors.command
def nearest(
    path: Path, /, *words: str, count: int = 10, by: Literal["cosine", "dot"] = "cosine", json: bool = False
) -> None:
    """The words most similar to each of the words given.

    Parameters
    ----------
    path
        A folder of vectors, or a file in word2vec's, GloVe's or fastText's format.
    words
        The words whose neighbours to print.
    count
        Neighbours of each word.
    by
        Compare by the cosine or by the dot product.
    json
        Print as JSON.
    """
    from seqloom.vectors.formats import load

    if not words:
        raise ValueError("no word given; name one or more, as in: seqloom vectors nearest FOLDER bank")
    loaded = load(path)
    neighbors = {word: loaded.nearest(word, count, by) for word in words}
    lines: list[str] = []
    for word, ranked in neighbors.items():
        if lines:
            lines.append("")
        if len(words) > 1:
            lines.append(word)
        lines += _score_lines(ranked)
    report = {
        word: [{"word": neighbor, by: score} for neighbor, score in ranked]
        for word, ranked in neighbors.items()
    }
    print_result(report, lines, json)


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
        Answers to print.
    method
        add is 3CosAdd, mul is 3CosMul.
    json
        Print as JSON.
    """
    from seqloom.vectors.formats import load

    ranked = load(path).analogy(a, b, c, count, method)
    answers = [{"word": word, "score": score} for word, score in ranked]
    print_result({"question": [a, b, c], "answers": answers}, _score_lines(ranked), json)


def _score_lines(ranked: list[tuple[str, float]]) -> list[str]:
    return [f"{score:7.4f}  {word}" for word, score in ranked]


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
        Analogies (questions-words.txt) or judged pairs (WS-353, SimLex-999), recognised by their content.
    method
        add is 3CosAdd, mul is 3CosMul.
    most
        Use only the first words of the file, this many.
    case
        Distinguish capitals from small letters.
    json
        Print numbers and signatures as JSON.
    """
    from seqloom.vectors.benchmarks import evaluate as measure
    from seqloom.vectors.formats import load

    if not files:
        raise ValueError("no benchmark given; name a file of analogies or of judged word pairs")
    loaded = load(path)
    scores = [score for file in files for score in measure(loaded, file, not case, most, method)]
    lines = []
    for score in scores:
        if score.num_covered:
            value = f"{score.number.value:8.4f}  [{score.low:.4f}, {score.high:.4f}]"
        else:
            value = f"{'–':>8}{'':20}"
        lines.append(f"{score.number.name:28}{value}  {score.num_covered:,} of {score.num_total:,}")
    totals = [score.number for score in scores if score.number.name.startswith(("total", "Spearman"))]
    lines += dict.fromkeys(number.signature for number in totals)
    print_result({"vectors": str(path), "numbers": [score.json() for score in scores]}, lines, json)


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
        Also compute a t-SNE layout, which keeps neighbours together; takes seconds to minutes.
    clusters
        Number of clusters, shown as colours.
    seed
        Seed of t-SNE and of the clusters.
    json
        Print as JSON.
    """
    from seqloom.vectors.formats import load, require_absent
    from seqloom.vectors.projection import write_map

    require_absent(out)
    report = write_map(load(path), out, most, tsne, clusters, seed=seed)
    variance = f"two principal components explain {report['variance']:.1%} of the variance"
    lines = [f"{report['words']:,} of {report['of']:,} words; {variance}", f"page: {out}"]
    print_result({"page": str(out), **report}, lines, json)


@vectors.command
def convert(
    source: Path,
    target: Path,
    /,
    *,
    form: Literal["folder", "word2vec", "binary", "glove"] = "folder",
    json: bool = False,
) -> None:
    """Write vectors in another format; the format of the source is recognised.

    Parameters
    ----------
    source
        A folder or file of vectors.
    target
        The file or folder to write.
    form
        folder opens at once; word2vec is text with a header line (fastText's .vec too), binary is word2vec's, glove has no header.
    json
        Print as JSON.
    """
    from seqloom.vectors import formats

    formats.require_absent(target)
    source_format = formats.convert(source, target, form)
    report = {"from": source_format, "to": form, "target": str(target)}
    print_result(report, [f"{source_format} → {form}: {target}"], json)

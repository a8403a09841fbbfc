"""The verbs `seqloom vectors`: nearest, analogy, evaluate, map, lexicon and convert."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from seqloom.cli.app import print_result
from seqloom.cli.options import Common, CommonOptions, Count, OutPath, Overwrite
from seqloom.cli.vectors import runs_folder, vectors
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.vectors import Neighbor

logger = logging.getLogger("seqloom.cli")
OldTarget = Annotated[Path | None, Parameter(show=False)]  # earlier versions took the target as an argument


@vectors.command(sort_key=1)
def nearest(
    path: Path,
    /,
    *words: str,
    top: Count = 10,
    by: Literal["cosine", "dot"] = "cosine",
    common: CommonOptions = Common(),
) -> None:
    """Print the words most similar to each of the given words.

    Examples:
      seqloom vectors nearest runs/vectors-input king
      seqloom vectors nearest glove.6B.100d.txt river bank --top 5
      seqloom vectors nearest runs/vectors-input king --by dot --json

    Parameters
    ----------
    path
        A folder of vectors, or a file in word2vec's, GloVe's or fastText's format, or .npz.
    words
        The words whose neighbours to print.
    top
        Neighbours of each word.
    by
        Compare by the cosine or by the dot product.
    """
    from seqloom.vectors import load

    if not words:
        raise UserError("no word given; name one or more, as in: seqloom vectors nearest FOLDER bank")
    for index, (word, ranked) in enumerate(zip(words, load(path).nearest(words, top, by), strict=True)):
        heading = [word] if len(words) > 1 else []
        record = {"word": word, "by": by, "nearest": [one.to_dict() for one in ranked]}
        print_result(record, [*([""] if index else []), *heading, *score_lines(ranked)], common.json)


@vectors.command(sort_key=2)
def analogy(
    path: Path,
    a: str,
    b: str,
    c: str,
    /,
    *,
    top: Count = 5,
    method: Literal["add", "mul"] = "add",
    common: CommonOptions = Common(),
) -> None:
    """Answer: A is to B as C is to what?

    Examples:
      seqloom vectors analogy glove.6B.100d.txt man king woman
      seqloom vectors analogy runs/vectors-wiki paris france berlin --top 1
      seqloom vectors analogy runs/vectors-wiki walk walked go --method mul

    Parameters
    ----------
    path
        A folder or file of vectors.
    a
        The first word, such as man.
    b
        What it goes with, such as king.
    c
        The word whose counterpart is asked for, such as woman.
    top
        Answers to print.
    method
        add is 3CosAdd, mul is 3CosMul.
    """
    from seqloom.vectors import load

    ranked = load(path).analogy(a, b, c, top, method)
    report = {"question": [a, b, c], "method": method, "answers": [one.to_dict() for one in ranked]}
    print_result(report, score_lines(ranked), common.json)


def score_lines(ranked: Sequence[Neighbor]) -> list[str]:
    return [f"{one.score:7.4f}  {one.word}" for one in ranked]


@vectors.command(sort_key=3)
def evaluate(
    path: Path,
    /,
    *files: str,
    method: Literal["add", "mul"] = "add",
    limit: Count | None = None,
    case: bool = False,
    common: CommonOptions = Common(),
) -> None:
    """Measure vectors on analogies and on judged word pairs.

    Examples:
      seqloom vectors evaluate runs/vectors-wiki questions-words.txt
      seqloom vectors evaluate glove.6B.100d.txt EN-WS-353-ALL.txt
      seqloom vectors evaluate runs/vectors-wiki questions.txt --limit 30k

    Parameters
    ----------
    path
        A folder or file of vectors.
    files
        Analogies (questions-words.txt) or judged pairs (WS-353, SimLex-999), recognised by their content.
    method
        add is 3CosAdd, mul is 3CosMul.
    limit
        Use only the first words of the vectors, this many.
    case
        Distinguish capitals from small letters.
    """
    from seqloom.vectors import evaluate as measure

    if not files:
        raise UserError("no benchmark given; name a file of analogies or of judged word pairs")
    scores = measure(path, files, not case, limit, method)
    lines = []
    for score in scores:
        value = f"{score.value:8.4f}  {score.interval}" if score.n else f"{'–':>8}{'':18}"
        lines.append(f"{score.title:28}{value}  {score.n:,} of {score.total:,}")
    totals = [score for score in scores if score.name == "spearman" or score.section == "total"]
    lines += dict.fromkeys(score.signature for score in totals)
    report = {"vectors": str(path), "numbers": [score.to_dict() for score in scores]}
    print_result(report, lines, common.json)


@vectors.command(sort_key=4)
def map(
    path: Path,
    target: OldTarget = None,
    /,
    *,
    limit: Count = 2000,
    tsne: bool = False,
    clusters: Count = 10,
    seed: int = 0,
    out: OutPath = None,
    overwrite: Overwrite = False,
    common: CommonOptions = Common(),
) -> None:
    """Draw the most frequent words as a map.

    Examples:
      seqloom vectors map runs/vectors-input
      seqloom vectors map glove.6B.100d.txt --out map.html --tsne
      seqloom vectors map runs/vectors-input --out map.svg --limit 300

    Parameters
    ----------
    path
        A folder or file of vectors.
    limit
        Words on the map.
    tsne
        Also compute a t-SNE layout, which keeps neighbours together; takes seconds to minutes.
    clusters
        Number of clusters, shown as colours.
    seed
        Seed of t-SNE and of the clusters.
    out
        A page with search and neighbours (.html) or a picture (.svg); default: reports/map.html in the folder of
        the vectors, or runs/reports/map-NAME.html for a file.
    overwrite
        Replace the file that is already there.
    """
    from seqloom.vectors import map as write_map

    out = old_target(target) or out
    if out is None:
        overwrite = True  # a page of our own
        out = (
            path / "reports" / "map.html"
            if path.is_dir()
            else runs_folder() / "reports" / f"map-{path.stem}.html"
        )
    drawn = write_map(path, out, limit, tsne, clusters, seed=seed, overwrite=overwrite)
    variance = f"two principal components explain {drawn.variance:.1%} of the variance"
    lines = [f"{drawn.words:,} of {drawn.total:,} words; {variance}", f"page: {out}"]
    print_result(drawn.to_dict(), lines, common.json)


@vectors.command(sort_key=5)
def lexicon(
    source: Path,
    target: Path,
    /,
    *,
    pairs: str | None = None,
    test: str | None = None,
    method: Literal["csls", "nearest"] = "csls",
    refinements: int = 5,
    limit: Count = 50_000,
    case: bool = False,
    out: OutPath = None,
    overwrite: Overwrite = False,
    common: CommonOptions = Common(),
) -> None:
    """Find translations between the vectors of two languages.

    Prints each source word, a tab and its translation; with --test, how many words of a dictionary are translated right.

    Examples:
      seqloom vectors lexicon runs/en runs/fr --out words.tsv
      seqloom vectors lexicon runs/en runs/fr --pairs seed.tsv --test test.tsv
      seqloom vectors lexicon en.vec de.vec --test test.tsv --method nearest

    Parameters
    ----------
    source
        A folder or file of vectors.
    target
        The vectors of the other language, of the same size.
    pairs
        Some translations to begin with, a word and its translation on each line; default: words that are spelt alike.
    test
        A dictionary of the same form to measure precision at 1, 5 and 10 by; a word may have several translations.
    method
        csls corrects the cosine of nearest for words that are near to everything.
    refinements
        Times that the rotation is found again, from the pairs of words that are each other's translation; fewer if it does not improve.
    limit
        Use only the first words of either language, this many.
    case
        Distinguish capitals from small letters.
    out
        The file of the lexicon, for translate --lexicon; default: stdout, if there is no --test.
    overwrite
        Replace the file that is already there.
    """
    from seqloom.vectors import lexicon as find
    from seqloom.vectors.formats import require_absent

    if out is not None:
        require_absent(out, overwrite)
    found = find(
        source,
        target,
        pairs=pairs,
        test=test,
        method=method,
        refinements=refinements,
        limit=limit,
        lowercase=not case,
        progress=common.progress,
    )
    words = [f"{one.word}\t{one.translation}" for one in found.translations]
    steps = "; ".join(f"{one.pairs:,} pairs, mean cosine {one.cosine:.4f}" for one in found.refinements)
    logger.info("seed: %s; %s", found.seed, steps)
    lines = [
        f"{one.title:14}{one.value:.4f}  {one.interval}  {one.n:,} of {found.test_words:,} words"
        for one in found.precision
    ] + [one.signature for one in found.precision[:1]]
    report = {**found.to_dict(), "lexicon": None if out is None else str(out)}
    if out is not None:
        from seqloom.files import write_atomic

        write_atomic(out, "\n".join(words) + "\n")
        lines.append(f"{len(words):,} words: {out}")
    elif test is None:
        lines = words
    print_result(report, lines, common.json)


@vectors.command(sort_key=6)
def convert(
    path: Path,
    target: OldTarget = None,
    /,
    *,
    out: OutPath = None,
    format: Literal["folder", "word2vec", "binary", "glove", "npz"] | None = None,
    overwrite: Overwrite = False,
    common: CommonOptions = Common(),
) -> None:
    """Write vectors in another format.

    Examples:
      seqloom vectors convert runs/vectors-input --out vectors.txt
      seqloom vectors convert GoogleNews.bin.gz --out runs/google
      seqloom vectors convert runs/vectors-input --out glove.txt --format glove

    Parameters
    ----------
    path
        A folder or file of vectors; its format is recognised.
    out
        What to write. Its ending is the format: .txt and .vec are word2vec's text, .bin is word2vec's binary
        (.gz after it compresses), .npz is numpy's; without an ending a folder, which opens at once.
    format
        The format, whatever the ending; glove is text without a header line.
    overwrite
        Replace what is already there.
    """
    from seqloom.vectors import convert as convert_vectors
    from seqloom.vectors.vector_writer import format_of

    out = old_target(target) or out
    if out is None:
        raise UserError(
            f"no --out given; name what to write, as in: seqloom vectors convert {path} --out vectors.txt"
        )
    target_format = format or format_of(out)
    source_format = convert_vectors(path, out, target_format, overwrite)
    report = {"from": source_format, "to": target_format, "vectors": str(out)}
    print_result(report, [f"{source_format} → {target_format}", f"vectors: {out}"], common.json)


def old_target(target: Path | None) -> Path | None:
    """The target as an argument, which earlier versions took."""
    if target is not None:
        logger.warning("the file to write is now an option: --out %s", target)
    return target

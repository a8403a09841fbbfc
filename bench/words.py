"""word2vec beside gensim on the same 17 million words: words per second in turns, then how good the vectors are.

    SEQLOOM_DATA=… python bench/words.py [--rounds 3] [--seeds 3] [--epochs 1] [--threads 2] [--reproducible]
                                             [--only skipgram | cbow | loss] [--json]

Both sides train on a corpus whose vocabulary is ready: gensim reads its fastest form, a file of lines, ours the ids in memory. Dimension 100,
window 5, 5 negatives, minimum count 5, sub-sampling 1e-3. Reading a file with n workers, gensim goes only 1 / n of the way that an epoch has
in the rate's decay, so that with two workers and one epoch the rate falls from .025 to .0125 and not to .0001: one row of ours has the rates
that gensim really uses, the other our own, .05 to .0001. --reproducible adds the mode of that name. Quality: Spearman's ρ on WS-353, share of
right analogies (3CosAdd, all words), mean and spread over the seeds. `loss` compares our negative sampling with our full softmax. Ratios
within a round; sub-sampled words count as read.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np
from scipy.stats import spearmanr

from probe import interleave, probe, record, show
from seqloom.vectors.vocabulary import Corpus, Vocabulary, encode
from seqloom.vectors.word2vec import Word2VecOptions, train

RATE, OWN, LAST = 0.025, 0.05, 1e-4  # gensim's first rate, ours, and where both are said to end
Trained = tuple[list[str], np.ndarray, float]  # words, vectors, seconds


def ours(
    corpus: Corpus,
    vocabulary: Vocabulary,
    kind: str,
    epochs: int,
    threads: int,
    rate: float,
    last: float,
    reproducible: bool = False,
) -> Callable[[int], Trained]:
    def run(seed: int) -> Trained:
        began = time.perf_counter()
        result = train(
            corpus,
            Word2VecOptions(kind, epochs=epochs, lr=rate, final_lr=last),
            threads=threads,
            seed=seed,
            reproducible=reproducible,
            vocabulary=vocabulary,
        )
        return vocabulary.words, result.vectors, time.perf_counter() - began

    return run


def gensim(path: Path, kind: str, epochs: int, threads: int) -> Callable[[int], Trained]:
    from gensim.models import Word2Vec

    def run(seed: int) -> Trained:
        model = Word2Vec(
            vector_size=100,
            window=5,
            negative=5,
            min_count=5,
            sample=1e-3,
            sg=int(kind == "skipgram"),
            workers=threads,
            seed=seed + 1,
        )
        model.build_vocab(corpus_file=str(path))
        began = time.perf_counter()
        model.train(
            corpus_file=str(path),
            total_words=model.corpus_total_words,
            total_examples=model.corpus_count,
            epochs=epochs,
        )
        return model.wv.index_to_key, model.wv.vectors, time.perf_counter() - began

    return run


def similarity(words: dict[str, int], unit: np.ndarray, path: Path) -> float:
    rows = [line.split() for line in path.read_text("utf-8").lower().splitlines()]
    known = [(words[a], words[b], float(score)) for a, b, score in rows if a in words and b in words]
    one, other, scores = map(np.array, zip(*known, strict=True))
    return float(spearmanr(np.einsum("nd,nd->n", unit[one], unit[other]), scores).statistic)


def analogies(words: dict[str, int], unit: np.ndarray, path: Path) -> float:
    """The share of questions a : b = c : ? with four known words whose answer is nearest to b − a + c, the three given ones apart."""
    rows = [line.split() for line in path.read_text("utf-8").lower().splitlines() if not line.startswith(":")]
    asked = np.array([[words[word] for word in row] for row in rows if all(word in words for word in row)])
    right = 0
    for part in np.array_split(asked, -(-len(asked) // 500)):
        scores = (unit[part[:, 1]] - unit[part[:, 0]] + unit[part[:, 2]]) @ unit.T
        np.put_along_axis(scores, part[:, :3], -np.inf, 1)
        right += int((scores.argmax(1) == part[:, 3]).sum())
    return right / len(asked)


def quality(words: list[str], vectors: np.ndarray, folder: Path) -> tuple[float, float]:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    rows = {word: row for row, word in enumerate(words)}
    return similarity(rows, unit, folder / "EN-WS-353-ALL.txt"), analogies(
        rows, unit, folder / "questions-words.txt"
    )


def compare(
    kind: str,
    variants: dict[str, Callable[[int], Trained]],
    size: int,
    rounds: int,
    seeds: int,
    folder: Path,
    machine: bool,
) -> None:
    """Variants in turns; the last is the peer. A round's first `seeds` runs are also judged."""
    rates: dict[str, list[float]] = {name: [] for name in variants}
    scores: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for number in range(max(rounds, seeds)):
        for name, run in variants.items():
            before = probe()
            words, vectors, seconds = run(number)
            rates[name].append(size / seconds)
            if number < seeds:
                scores[name].append(quality(words, vectors, folder))
            ws, right = scores[name][-1]
            print(
                f"    {kind} {number} {name:24}{rates[name][-1]:11,.0f} words/s   {ws:.4f} {right:.2%}   "
                f"probe {before:.0f} to {probe():.0f} GFLOP/s",
                file=sys.stderr,
                flush=True,
            )
    peer = list(variants)[-1]
    if not machine:
        print(f"\n{kind}\n  {'':24}{'words/s':>11}  ratio  (lowest - highest)   WS-353           analogies")
    for name in variants:
        ratios = [a / b for a, b in zip(rates[name], rates[peer], strict=True)]
        (ws, ws_spread), (right, right_spread) = (
            (mean(one), stdev(one) if seeds > 1 else 0.0) for one in zip(*scores[name], strict=True)
        )
        if machine:
            print(
                json.dumps(
                    {
                        "case": kind,
                        "name": name,
                        "rate": median(rates[name]),
                        "ratio": median(ratios),
                        "low": min(ratios),
                        "high": max(ratios),
                        "ws353": ws,
                        "ws353_sd": ws_spread,
                        "analogies": right,
                        "analogies_sd": right_spread,
                    }
                )
            )
        else:
            print(
                f"  {name:24}{median(rates[name]):11,.0f}  {median(ratios):5.2f}  ({min(ratios):5.2f} - {max(ratios):5.2f})"
                f"   {ws:.4f} ± {ws_spread:.4f}  {right:.2%} ± {right_spread:.2%}",
                flush=True,
            )


def losses(path: Path, rounds: int, threads: int, machine: bool) -> None:
    """Negative sampling beside the full softmax [A11], ours on both sides: the first 20,000 words of the corpus, all of its words kept."""
    with path.open(encoding="utf-8") as lines:
        text = [
            words[i : i + 100]
            for words in (line.split() for line in lines)
            for i in range(0, min(len(words), 2000), 100)
        ][:200]
    vocabulary = Vocabulary.build(text, 1)
    corpus = encode(text, vocabulary)

    def work(negatives: int) -> float:
        options = Word2VecOptions(negative=negatives, epochs=1)
        train(corpus, options, threads=threads, vocabulary=vocabulary)
        return len(corpus.ids)

    rows = interleave(
        {"5 negatives": lambda: work(5), f"softmax of {len(vocabulary):,} words": lambda: work(0)}, rounds
    )
    print(record("loss", rows)) if machine else show("skip-gram's two losses", rows, "words/s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lines", type=int, help="the first lines of the corpus only, for a quick look")
    parser.add_argument("--only", choices=["skipgram", "cbow", "loss"])
    parser.add_argument("--reproducible", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if "SEQLOOM_DATA" not in os.environ:
        raise SystemExit("set SEQLOOM_DATA to the folder that holds enwiki17m and wordsim")
    data = Path(os.environ["SEQLOOM_DATA"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.txt"
        with gzip.open(data / "enwiki17m" / "enwiki17m.txt.gz") as source, path.open("wb") as target:
            if args.lines:
                target.writelines(line for line, _ in zip(source, range(args.lines), strict=False))
            else:
                shutil.copyfileobj(source, target)
        began = time.perf_counter()
        vocabulary = Vocabulary.build(path)
        corpus = encode(path, vocabulary)
        print(
            f"{vocabulary.corpus_words:,} words, {len(vocabulary):,} kinds; vocabulary and ids in {time.perf_counter() - began:.1f} s",
            file=sys.stderr,
        )
        first = Corpus(corpus.ids, corpus.starts[:2])
        train(first, Word2VecOptions(epochs=1), vocabulary=vocabulary)  # compiles
        end = RATE + (LAST - RATE) * (
            1 - (1 - 1 / args.threads) / args.epochs
        )  # where gensim's decay really ends
        if args.only in (None, "loss"):
            losses(path, args.rounds, args.threads, args.json)
        for kind in [args.only] if args.only else ["skipgram", "cbow"]:
            if kind == "loss":
                continue
            make = partial(ours, corpus, vocabulary, kind, args.epochs, args.threads)
            variants = {"ours": make(OWN, LAST), "ours, gensim's rates": make(RATE, end)}
            if args.reproducible:
                variants["ours, reproducible"] = make(OWN, LAST, True)
            variants["gensim"] = gensim(path, kind, args.epochs, args.threads)
            compare(
                kind,
                variants,
                vocabulary.corpus_words * args.epochs,
                args.rounds,
                args.seeds,
                data / "wordsim",
                args.json,
            )


if __name__ == "__main__":
    main()

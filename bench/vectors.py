"""Every kind of word vectors on the same 17 million words, in one table: gensim's word2vec, ours, GloVe and PPMI with SVD.

    SEQLOOM_DATA=… python bench/vectors.py [--epochs 5] [--only KIND …] [--json]

Dimension 100, minimum count 5, window 5 (10 for GloVe), two threads; word2vec with 5 negatives and the given epochs, both sides with their own
rates and ours with gensim's as well (.025, and where gensim's decay really ends: see vectors.py); GloVe 15 iterations. Spearman's ρ on
WS-353 and SimLex-999 and the share of right analogies (3CosAdd, all words), each with its 95 % interval. One seed.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from seqloom.vectors.benchmarks import evaluate
from seqloom.vectors.training import train as train_vectors
from seqloom.vectors.vectors import Vectors
from seqloom.vectors.vocabulary import Vocabulary, encode
from seqloom.vectors.word2vec import Word2VecOptions, train
from words import LAST, RATE, gensim

FILES = ("EN-WS-353-ALL.txt", "EN-SIMLEX-999.txt", "questions-words.txt")


def peer(path: Path, kind: str, epochs: int) -> Vectors:
    words, matrix, _ = gensim(path, kind, epochs, 2)(0)
    return Vectors(words, matrix)


def matched(path: Path, kind: str, epochs: int) -> Vectors:
    """Ours with the rates that gensim really has."""
    vocabulary = Vocabulary.build(path)
    end = RATE + (LAST - RATE) * (1 - 0.5 / epochs)
    options = Word2VecOptions(kind, epochs=epochs, lr=RATE, final_lr=end)
    found = train(encode(path, vocabulary), options, vocabulary=vocabulary)
    return Vectors(vocabulary.words, found.vectors)


def kinds(path: Path, epochs: int) -> dict[str, Callable[[], Vectors]]:
    return {
        "skip-gram": partial(train_vectors, path, "skip-gram", epochs=epochs),
        "skip-gram, gensim's rates": partial(matched, path, "skipgram", epochs),
        "skip-gram, gensim": partial(peer, path, "skipgram", epochs),
        "cbow": partial(train_vectors, path, "cbow", epochs=epochs),
        "cbow, gensim's rates": partial(matched, path, "cbow", epochs),
        "cbow, gensim": partial(peer, path, "cbow", epochs),
        "glove": partial(train_vectors, path, "glove"),
        "ppmi-svd": partial(train_vectors, path, "ppmi-svd"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="some kinds only")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if "SEQLOOM_DATA" not in os.environ:
        raise SystemExit("set SEQLOOM_DATA to the folder that holds enwiki17m and wordsim")
    data = Path(os.environ["SEQLOOM_DATA"])
    if not args.json:
        print(
            f"| {'vectors':26} | WS-353 | SimLex-999 | analogies | seconds |\n|---|---|---|---|---|",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.txt"
        with gzip.open(data / "enwiki17m" / "enwiki17m.txt.gz") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
        for name, make in kinds(path, args.epochs).items():
            if args.only and name not in args.only:
                continue
            began = time.perf_counter()
            vectors = make()
            seconds = time.perf_counter() - began
            scores = [evaluate(vectors, data / "wordsim" / file)[-1] for file in FILES]
            if args.json:
                print(
                    json.dumps(
                        {"kind": name, "seconds": seconds, "scores": [score.to_dict() for score in scores]}
                    ),
                    flush=True,
                )
                continue
            cells = [f"{score.value:.4f} ({score.low:.3f}–{score.high:.3f})" for score in scores[:2]]
            cells.append(f"{scores[2].value:.2%} ({scores[2].low:.2%}–{scores[2].high:.2%})")
            print(f"| {name:26} | {' | '.join(cells)} | {seconds:7.0f} |", flush=True)


if __name__ == "__main__":
    main()

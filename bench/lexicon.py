"""Bilingual lexicons of Multi30k's captions, judged by YACLE's dictionaries, as a table   [K5, T14, W20]

    SEQLOOM_DATA=… python bench/lexicon.py

Vectors of English, German and French are trained on the captions of each language by itself, which takes half a minute with one thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from seqloom import vectors

SETTINGS: list[tuple[bool, Literal["csls", "nearest"], int]] = [
    (True, "nearest", 0),
    (True, "nearest", 5),
    (True, "csls", 0),
    (True, "csls", 5),
    (False, "csls", 5),
]


def main() -> None:
    data = Path(os.environ["SEQLOOM_DATA"])
    trained = {
        language: vectors.train(
            data / "multi30k" / f"train.{language}.gz",
            dim=100,
            epochs=20,
            min_count=3,
            lowercase=True,
            threads=1,
            progress=False,
        )
        for language in ("en", "de", "fr")
    }
    print("| English to | seed | method | refinements | P@1 | P@5 | P@10 |\n|---|---|---|---|---|---|---|")
    for language, name in (("de", "German"), ("fr", "French")):
        seed, test = (
            data / "lexicons" / f"yacle.{part}.en-{language}.tsv"
            for part in ("train.freq.5k", "test.freq.2k")
        )
        for uses_pairs, method, refinements in SETTINGS:
            found = vectors.lexicon(
                trained["en"],
                trained[language],
                pairs=seed if uses_pairs else None,
                test=test,
                method=method,
                refinements=refinements,
            )
            first, fifth, tenth = found.precision
            origin = "pairs" if uses_pairs else "words spelt alike"
            print(
                f"| {name} | {found.refinements[0].pairs:,} {origin} | {method} | {refinements} | {100 * first.value:.1f} % "
                f"[{100 * (first.low or 0):.1f}, {100 * (first.high or 0):.1f}] | {100 * fifth.value:.1f} | {100 * tenth.value:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""The group `seqloom vectors`, and its verb train; the verbs that use vectors are in `vectors_use.py`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from seqloom.cli.app import DATA, add_group, print_result
from seqloom.cli.options import (
    Amount,
    Bytes,
    Common,
    CommonOptions,
    Compute,
    ComputeOptions,
    Count,
    OutPath,
    Overwrite,
)
from seqloom.errors import UserError

vectors = add_group("vectors", "Word vectors: train, query, measure, map, convert.", DATA)

MEMORY = 1 << 20  # least --memory: earlier versions took MiB


@vectors.command(sort_key=0)
def train(
    *files: str,
    method: Literal["skip-gram", "cbow", "glove", "ppmi-svd"] = "skip-gram",
    dim: Count = 100,
    window: Count | None = None,
    epochs: Count | None = None,
    min_count: Count = 5,
    max_vocab: Count | None = None,
    negative: int = 5,
    subsample: float = 1e-3,
    lr: Amount | None = None,
    subwords: bool = False,
    mean_context: bool = False,
    lowercase: bool = False,
    reproducible: bool = False,
    memory: Bytes | None = None,
    out: OutPath = None,
    overwrite: Overwrite = False,
    machine: ComputeOptions = Compute(),
    common: CommonOptions = Common(),
) -> None:
    """Train word vectors on text, one sentence on each line.

    Examples:
      seqloom vectors train input.txt --lowercase
      seqloom vectors train wiki.txt.gz --method glove --dim 300
      seqloom vectors train world --epochs 10 --out runs/bank

    Parameters
    ----------
    files
        Text files, .gz too (- is stdin); world is 20,000 sentences of the built-in world.
    method
        skip-gram and cbow are word2vec's, glove factorizes counts of pairs, ppmi-svd is the count-based baseline.
    dim
        Size of a vector.
    window
        Words on either side that are context; default: 5, for glove 10.
    epochs
        Passes over the text, by default 5; for glove over the counts, by default 15.
    min_count
        Leave out words that occur less often.
    max_vocab
        Use only this many words, the most frequent ones.
    negative
        Negative samples of word2vec for each target; 0 is the full softmax.
    subsample
        word2vec drops occurrences of words above this relative frequency; 0 keeps all.
    lr
        First learning rate, by default 0.05; word2vec's falls to nearly 0, glove's is AdaGrad's.
    subwords
        Also train n-grams of characters, which give unseen words a vector.
    mean_context
        word2vec steps by the mean over the window instead of one step for each pair.
    lowercase
        Lower-case the text and separate punctuation first.
    reproducible
        word2vec gives the same vectors for any number of threads, at a lower speed.
    memory
        Memory for counts of pairs, such as 4GB, by default 1GB; more go to disk.
    out
        The folder of the vectors; default: runs/vectors-DATA.
    overwrite
        Replace vectors that are already there.
    """
    from seqloom.threads import thread_count
    from seqloom.vectors import formats
    from seqloom.vectors.training import data_name
    from seqloom.vectors.training import train as train_vectors

    if not files:
        raise UserError(
            "no text given; name files, as in: seqloom vectors train FILE, or: seqloom vectors train world"
        )
    if memory is not None and memory < MEMORY:
        raise UserError(f"--memory {memory} is less than 1 MB; give its unit too, as in --memory {memory}MB")
    folder = out or runs_folder() / f"vectors-{data_name(files)}"
    check_folder_name(folder)
    with formats.new_folder(
        folder, overwrite
    ) as draft:  # fails before training if the folder cannot be written
        trained = train_vectors(
            files,
            method,
            dim,
            window,
            epochs,
            min_count,
            threads=thread_count(machine.threads),
            seed=machine.seed,
            progress=common.progress,
            max_vocab=max_vocab,
            negative=negative,
            lr=lr,
            subsample=subsample,
            subwords=subwords,
            mean_context=mean_context,
            lowercase=lowercase,
            reproducible=reproducible,
            memory=memory or 1 << 30,
        )
        formats.write_into(draft, trained)
    meta = trained.meta
    size = f"{len(trained):,} words of {meta['corpus_words']:,} in the text, {dim} dimensions"
    lines = [f"{size}; {meta['took']['seconds']:.1f} s{format_speed(meta['took'])}"]
    if losses := meta.get("losses"):
        lines.append("loss after each epoch: " + " ".join(f"{loss:.4f}" for loss in losses))
    lines.append(f"vectors: {folder}")
    print_result({"vectors": str(folder), "words": len(trained), "dim": dim, **meta}, lines, common.json)


def format_speed(took: dict[str, Any]) -> str:
    return "".join(
        f", {took[key]:,.0f} {unit}"
        for key, unit in (("words_per_second", "words/s"), ("cells_per_second", "cells/s"))
        if key in took
    )


def runs_folder() -> Path:
    return Path(os.environ.get("SEQLOOM_RUNS") or "runs")


def check_folder_name(folder: Path) -> None:
    """Refuses a folder that is called like a file of vectors: `train` writes a folder, `convert` makes the file."""
    from seqloom.vectors.vector_writer import ENDINGS

    if folder.suffix in ENDINGS and not folder.is_dir():
        raise UserError(
            f"{folder}: train writes a folder; give it a name without {folder.suffix}, then make the file with: "
            f"seqloom vectors convert FOLDER --out {folder}"
        )

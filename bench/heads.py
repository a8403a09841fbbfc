"""MiniLM without some of its heads, beside the same heads masked: its vectors, its size and its speed   [K3]

    SEQLOOM_DATA=… SEQLOOM_MINILM=… python bench/heads.py [--prune 24] [--texts 10] [--threads 1] [--rounds 15] [--json]

The heads are those that matter least to the sentence vectors of the first sentences of the English Web Treebank (its development part).
Token vectors are compared in single and in double precision, absolute and relative to their norm: cutting rows and columns out of the
weights gives the same sums in another order, so in double precision nothing may be left. Times are of all texts, both models in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

import seqloom
from seqloom.inspect.head_pruning import choose_heads, prune
from seqloom.inspect.head_syntax import parsed_sentences
from seqloom.inspect.head_values import heads
from seqloom.run import Run


def masked_vectors(run: Run, texts: Sequence[str], removed: Sequence[str]) -> list[Tensor]:
    """The token vectors of each text while the heads are zero."""
    with seqloom.change(run, dict.fromkeys(head_names(removed), torch.zeros_like)):
        return token_vectors(run, texts)


def head_names(removed: Sequence[str]) -> list[str]:
    """The names of what the heads read: `stack.blocks.0.attention.head.3` for `stack.blocks.0.attention.3`."""
    return [f"{layer}.head.{head}" for layer, _, head in (name.rpartition(".") for name in removed)]


def token_vectors(run: Run, texts: Sequence[str]) -> list[Tensor]:
    return [run.model.features(run.encode([text])[0])[0][0] for text in texts]  # (T, D) each


def differences(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> dict[str, float]:
    """The largest difference of a number of a token vector, of a token vector relative to its norm, and of a number of a sentence vector."""
    pairs = list(zip(ours, theirs, strict=True))
    return {
        "token": max(float((a - b).abs().max()) for a, b in pairs),
        "relative": max(float(((a - b).norm(dim=-1) / b.norm(dim=-1)).max()) for a, b in pairs),
        "sentence": max(
            float((normalize(a.mean(0), dim=0) - normalize(b.mean(0), dim=0)).abs().max()) for a, b in pairs
        ),
    }


def times(runs: Sequence[Run], texts: Sequence[str], rounds: int) -> list[float]:
    """The median time of all texts for each run, measured in turn, in milliseconds."""
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, one in zip(runs, found, strict=True):
            start = time.perf_counter()
            token_vectors(run, texts)
            one.append(1000 * (time.perf_counter() - start))
    return [statistics.median(one) for one in found]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--prune", type=int, default=24)
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = Path(os.environ["SEQLOOM_DATA"]) / "ud" / "en_ewt-ud-dev.conllu.gz"
    texts = [sentence.text for sentence in parsed_sentences(data, args.texts)]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        run = seqloom.import_checkpoint(os.environ["SEQLOOM_MINILM"], Path(folder) / "minilm")
        found = heads(run, texts)
        counts = {
            layer: sum(one.layer == layer for one in found.heads)
            for layer in {one.layer for one in found.heads}
        }
        removed = choose_heads(found.removed, args.prune, counts)
        smaller = prune(run, removed, Path(folder) / "less")
        sizes = [(one.folder / "model.safetensors").stat().st_size for one in (run, smaller)]
        parameters = [sum(weight.numel() for weight in one.model.parameters()) for one in (run, smaller)]
        milliseconds = times([run, smaller], texts, args.rounds)
        single = differences(token_vectors(smaller, texts), masked_vectors(run, texts, removed))
        run.model.double()
        smaller.model.double()
        double = differences(token_vectors(smaller, texts), masked_vectors(run, texts, removed))
    result = {
        "removed": removed,
        "parameters": parameters,
        "bytes": sizes,
        "milliseconds": milliseconds,
        "single": single,
        "double": double,
    }
    if args.json:
        print(json.dumps(result))
        return
    print(f"parameters {parameters[0]:,} → {parameters[1]:,}; file {sizes[0]:,} → {sizes[1]:,} bytes")
    print(f"{len(texts)} texts: {milliseconds[0]:.1f} → {milliseconds[1]:.1f} ms, medians of {args.rounds}")
    for precision, one in (("single", single), ("double", double)):
        print(
            f"{precision} precision: token vectors {one['token']:.1e}, relative to their norm {one['relative']:.1e}; "
            f"sentence vectors {one['sentence']:.1e}"
        )


if __name__ == "__main__":
    main()

"""The speed of `seqloom inspect` on MiniLM: edges of attention removed in a second, a page of 128 tokens, the geometry of 5,000 sentences   [K1, K6]

    SEQLOOM_DATA=… SEQLOOM_MINILM=… python bench/look_inside.py [--threads 2] [--rounds 3] [--only edges] [--json]

Texts are the first sentences of the English Web Treebank (its training part): one of 17 tokens, 128 tokens of consecutive ones, and 5,000.
Edges are the 500 strongest and 500 drawn at random, each removed alone; GFLOP/s are those of their matrix products and of nothing else. Each
time is the best of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import seqloom
from seqloom.inspect import attention, geometry
from seqloom.inspect.attention_maps import Attention, edge_effects
from seqloom.inspect.head_syntax import parsed_sentences
from seqloom.inspect.pages import attention_page
from seqloom.inspect.reading import read
from seqloom.inspect.removed_edges import attention_layers
from seqloom.run import Run


def best_seconds(call: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """The shortest time of a call, and what it returned last."""
    found = None
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - start)
    return min(times), found


def product_flops(run: Run, found: Attention) -> float:
    """The operations of the matrix products that removing the edges takes: in the block of an edge one row; in the next, whose q, k and v change
    in one row, attention, output and feed-forward; every block above in full."""
    t, dim, inner = len(found.tokens), 384, 1536
    after = 2 * t * (dim * dim + 2 * dim * inner) + 4 * t * t * dim
    full = after + 2 * t * 3 * dim * dim
    layers = [one.path for one in attention_layers(run.model, False)]
    above = [len(layers) - 1 - layers.index(edge.layer) for edge in found.edges]
    return float(sum(after * (count > 0) + full * max(0, count - 1) for count in above))


def measure_edges(run: Run, text: str, tokens: int, rounds: int) -> dict[str, float]:
    """Edges removed in a second, with the choice of them and without the page."""
    found = attention(run, text, edges=500, max_tokens=tokens)
    reading = read(run, text, None, tokens)
    layers = attention_layers(run.model, False)

    def call() -> object:
        with torch.no_grad():
            return edge_effects(run.model, reading, layers, found.maps, 500, 0, False)

    seconds, edges = best_seconds(call, rounds)
    return {
        "tokens": len(found.tokens),
        "edges": len(edges),
        "edges/s": len(edges) / seconds,
        "GFLOP/s of products": product_flops(run, found) / seconds / 1e9,
    }


def measure_page(run: Run, text: str, rounds: int) -> dict[str, float]:
    """From the text to the page, with 1,000 edges, without the start of the program."""

    def call() -> str:
        return attention_page(attention(run, text, edges=500), text)

    seconds, page = best_seconds(call, rounds)
    return {"tokens": 128, "heads": 72, "seconds": seconds, "bytes": len(page.encode())}


def measure_geometry(run: Run, texts: Sequence[str]) -> dict[str, float]:
    seconds, found = best_seconds(lambda: geometry(run, texts), 1)
    return {"texts": found.texts, "tokens": found.tokens, "seconds": seconds}


def measure(
    run: Run, texts: Sequence[str], args: argparse.Namespace
) -> Iterator[tuple[str, dict[str, float]]]:
    sentence = next(text for text in texts if run.encode([text])[0].shape[1] == 17)
    long = " ".join(texts[:20])
    if args.only in (None, "edges"):
        yield "edges", measure_edges(run, sentence, 17, args.rounds)
        yield "edges", measure_edges(run, long, 128, args.rounds)
    if args.only in (None, "page"):
        yield "page", measure_page(run, long, args.rounds)
    if args.only in (None, "geometry"):
        yield "geometry", measure_geometry(run, texts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["edges", "page", "geometry"])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = Path(os.environ["SEQLOOM_DATA"]) / "ud" / "en_ewt-ud-train.conllu.gz"
    texts = [sentence.text for sentence in islice(parsed_sentences(data, 5000), 5000)]
    with tempfile.TemporaryDirectory() as folder:
        run = seqloom.import_checkpoint(os.environ["SEQLOOM_MINILM"], Path(folder) / "minilm")
        for name, found in measure(run, texts, args):
            if args.json:
                print(json.dumps({"what": name, "threads": args.threads, **found}), flush=True)
            else:
                shown = ", ".join(
                    f"{key} {value:,.4g}" if value < 1000 else f"{key} {value:,.0f}"
                    for key, value in found.items()
                )
                print(f"{name}, {args.threads} threads: {shown}", flush=True)


if __name__ == "__main__":
    main()

"""Decoding speed: tokens per second of GPT-2 small's shape (124 M), a prompt of 32 tokens and 128 new ones, greedy, at batch 1 and 16, against
`transformers` and CTranslate2 with the same weights.

Before anything is timed, ids in single precision must be equal; of weights in bytes the error of the logits is printed. The share is that of the
memory's read bandwidth, with which every weight could be read once for each step.

    python bench/decode.py [--quick] [--rounds N] [--only WORD] [--cpu] [--json]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np
import torch

import peers
from probe import Row, apart, bandwidth, benchmark_options, interleave, lone, record, show
from seqloom.decoding import generate_batch
from seqloom.models import LanguageModel
from seqloom.nn import FeedForward, Learned, Transformer, quantize

VOCABULARY, DIM, LAYERS, HEADS, PROMPT, NEW, END = 50257, 768, 12, 12, 32, 128, 50256
MATRICES = VOCABULARY * DIM + LAYERS * 12 * DIM**2  # numbers that each step reads
BYTES = {"fp32": 4, "int8": 1}


def ours() -> LanguageModel:
    torch.manual_seed(0)
    stack = partial(
        Transformer,
        layers=LAYERS,
        heads=HEADS,
        position=partial(Learned, length=1024),
        feedforward=partial(FeedForward, activation="gelu_tanh"),
    )
    return LanguageModel(VOCABULARY, DIM, stack).eval()


def prompts(batch: int) -> torch.Tensor:
    return torch.randint(0, END, (batch, PROMPT), generator=torch.Generator().manual_seed(1))


Answer = Callable[[torch.Tensor, int], list[list[int]]]


def writer(name: str, folder: Path, threads: int) -> Answer:
    """What gives so many new ids after each prompt."""
    torch.set_num_threads(threads)
    library, kind = name.split()
    if library == "seqloom":
        model = ours()
        if kind == "int8":
            quantize(model)
        return lambda ids, count: [
            text.ids for text in generate_batch(model, ids, max_tokens=count, stop_ids=(), banned=(END,))
        ]
    if library == "transformers":
        peer = peers.transformers(ours(), eos_token_id=END, pad_token_id=END)

        def write(ids: torch.Tensor, count: int) -> list[list[int]]:
            with torch.inference_mode():
                found = peer.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=False,
                    min_new_tokens=count,
                    max_new_tokens=count,
                )
            return found[:, PROMPT:].tolist()

        return write
    import ctranslate2

    generator = ctranslate2.Generator(
        str(folder),
        compute_type={"fp32": "float32", "int8": "int8"}[kind],
        intra_threads=threads,
        inter_threads=1,
    )

    def translate(ids: torch.Tensor, count: int) -> list[list[int]]:
        found = generator.generate_batch(
            peers.words(ids.tolist()),
            max_length=count,
            min_length=count,
            sampling_topk=1,
            include_prompt_in_result=False,
            end_token=str(END),
        )
        return [one.sequences_ids[0] for one in found]

    translate.generator = generator
    return translate


def variant(name: str, batch: int, count: int, folder: Path, threads: int) -> Callable[[], float]:
    write, ids = writer(name, folder, threads), prompts(batch)

    def work() -> float:
        return float(sum(len(row) for row in write(ids, count)))

    return work


def check(folder: Path, count: int) -> None:
    """The same ids in single precision; how far bytes are off."""
    peers.ctranslate2(
        peers.transformers(ours()),
        folder,
        VOCABULARY,
        {"bos_token": str(END), "eos_token": str(END), "unk_token": str(END)},
    )
    ids = prompts(4)
    found = {
        name: writer(name, folder, 1)(ids, count)
        for name in ("seqloom fp32", "transformers fp32", "ctranslate2 fp32")
    }
    for name, rows in found.items():
        if rows != found["seqloom fp32"]:
            raise SystemExit(f"{name} does not write what seqloom writes: the comparison would not be one")
    print(f"the same {count} ids in all libraries (fp32)")
    model = ours()
    with torch.inference_mode():
        exact = model(ids)[0].numpy()
        quantize(model)
        print(
            "error of int8 logits, as a share of their spread: seqloom",
            peers.error(model(ids)[0].numpy(), exact),
            end=", ",
        )
    import ctranslate2

    theirs = writer("ctranslate2 int8", folder, 1).generator.forward_batch(peers.words(ids.tolist()))
    print("ctranslate2", peers.error(np.array(theirs.to(ctranslate2.DataType.float32)), exact), flush=True)


def measure(kind: str, batch: int, count: int, rounds: int, cpu: bool, folder: Path) -> list[Row]:
    names = [f"seqloom {kind}", "transformers fp32", f"ctranslate2 {kind}"]
    cost = {name: MATRICES * BYTES[name.split()[1]] * 1e-9 / batch for name in names}
    if cpu:
        return interleave(
            {name: variant(name, batch, count, folder, 1) for name in names},
            rounds,
            None,
            lone,
            time.process_time,
        )
    return interleave(
        {name: apart(variant, name, batch, count, folder, 2) for name in names}, rounds, cost, bandwidth
    )


def main() -> None:
    parser = benchmark_options(__doc__, "32 new tokens, few rounds")
    options = parser.parse_args()
    count = 32 if options.quick else NEW
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "ctranslate2"
        check(folder, count)
        for batch in (1, 16):
            for kind in BYTES:
                title = f"{kind}, batch {batch}, prompt {PROMPT}, {count} new tokens"
                if options.only not in title:
                    continue
                rows = measure(
                    kind, batch, count, options.rounds or (3 if options.quick else 7), options.cpu, folder
                )
                if options.json:
                    print(record(title, rows), flush=True)
                    continue
                show(title, rows)
                rate = {row.name: row.rate for row in rows}
                others = ", ".join(
                    f"{rate[rows[0].name] / rate[name]:.2f} x {name}" for name in list(rate)[1:]
                )
                print(f"  seqloom is {others}", flush=True)


if __name__ == "__main__":
    main()

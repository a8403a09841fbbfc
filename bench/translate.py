"""Translation speed: sentences per second of a Transformer (6 + 6 layers, 512 wide, 32,000 tokens) with a beam of 5, 32 sentences at a time, against
`transformers`' MarianMTModel and CTranslate2 with the same weights.

Weights are random, so sentences would never end: every translation has 30 tokens, whoever writes it. Before anything is timed the best translations
in single precision must be the same.

    python bench/translate.py [--quick] [--rounds N] [--only WORD] [--cpu] [--json]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch

import peers
from probe import Row, apart, benchmark_options, interleave, lone, probe, record, show
from seqloom.decoding import beam_search, parallel_map
from seqloom.models import Seq2Seq
from seqloom.nn import Embedding, FeedForward, Output, Sinusoidal, Transformer, quantize

VOCABULARY, DIM, LAYERS, HEADS, SENTENCES, WIDTH, LENGTH = 32000, 512, 6, 8, 32, 5, 30
END, PAD = 0, VOCABULARY - 1
Answer = Callable[[list[list[int]]], list[list[int]]]


def ours() -> Seq2Seq:
    torch.manual_seed(0)
    side = partial(
        Transformer, layers=LAYERS, heads=HEADS, position=partial(Sinusoidal, layout="halves"), order="post",
        feedforward=partial(FeedForward, activation="relu"),
    )  # fmt: skip
    embedding, output = partial(Embedding, scale=True), partial(Output, bias=True)
    model = Seq2Seq(
        VOCABULARY, VOCABULARY, DIM, partial(side, causal=False), side, embedding, output=output
    ).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "table" not in name:
                weight.mul_(3)  # wide enough apart that beams have no ties
        model.embedding.table[PAD] = 0
    return model


def sentences() -> list[list[int]]:
    """Of 15 to 35 tokens, which CTranslate2 and transformers end themselves or not at all."""
    chance = torch.Generator().manual_seed(1)
    lengths = torch.randint(15, 36, (SENTENCES,), generator=chance).tolist()
    return [[*torch.randint(2, PAD, (length - 1,), generator=chance).tolist(), END] for length in lengths]


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
    return ids, torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])


def writer(name: str, folder: Path, threads: int) -> Answer:
    """What gives the best translation of each sentence."""
    torch.set_num_threads(threads)
    library, kind, *crew = name.split()
    workers = 2 if crew else 1
    if library == "seqloom":
        model = ours()
        if kind == "int8":
            quantize(model)

        def one(rows: list[list[int]]) -> list[list[int]]:
            with torch.inference_mode():
                ids, state, mask = model.prepare_prompt(*padded(rows), PAD)
            return [
                found[0].ids
                for found in beam_search(
                    model, ids, state, mask, width=WIDTH, max_tokens=LENGTH, stop_ids=(), banned=(END, PAD)
                )
            ]

        def write(rows: list[list[int]]) -> list[list[int]]:
            share = len(rows) // workers
            parts = parallel_map(one, [rows[at : at + share] for at in range(0, len(rows), share)], workers)
            return [row for part in parts for row in part]

        return write
    if library == "transformers":
        peer = peers.transformers(
            ours(), eos_token_id=END, pad_token_id=PAD, decoder_start_token_id=PAD, forced_eos_token_id=None
        )

        def translate(rows: list[list[int]]) -> list[list[int]]:
            ids, mask = padded(rows)
            with torch.inference_mode():
                found = peer.generate(
                    ids, attention_mask=mask.long(), num_beams=WIDTH, do_sample=False, min_new_tokens=LENGTH, max_new_tokens=LENGTH,
                    bad_words_ids=[[PAD]], forced_eos_token_id=None,
                )  # fmt: skip
            return found[:, 1:].tolist()

        return translate
    import ctranslate2

    kinds = {"fp32": "float32", "int8": "int8"}
    translator = ctranslate2.Translator(
        str(folder), compute_type=kinds[kind], inter_threads=workers, intra_threads=threads // workers or 1
    )

    def theirs(rows: list[list[int]]) -> list[list[int]]:
        found = translator.translate_batch(
            peers.words(rows), beam_size=WIDTH, min_decoding_length=LENGTH, max_decoding_length=LENGTH, max_batch_size=len(rows) // workers,
            max_input_length=0,
        )  # fmt: skip
        return [[int(word) for word in one.hypotheses[0]] for one in found]

    return theirs


def variant(name: str, folder: Path, threads: int) -> Callable[[], float]:
    write, rows = writer(name, folder, threads), sentences()

    def work() -> float:
        return float(len(write(rows)))

    return work


def check(folder: Path) -> None:
    """The same translations in single precision, and how many of them in bytes."""
    special = {
        "bos_token": "0",
        "eos_token": str(END),
        "unk_token": "1",
        "decoder_start_token": str(END),
        "add_source_eos": False,
    }
    peers.ctranslate2(
        peers.transformers(ours(), eos_token_id=END, pad_token_id=PAD), folder, VOCABULARY - 1, special
    )
    rows = sentences()[:8]
    wanted = writer("seqloom fp32", folder, 1)(rows)
    for name in ("transformers fp32", "ctranslate2 fp32", "seqloom int8", "ctranslate2 int8"):
        found = writer(name, folder, 1)(rows)
        same = sum(one == other for one, other in zip(found, wanted, strict=True))
        print(f"{name}: {same} of {len(rows)} translations are those of seqloom fp32", flush=True)
        if name.endswith("fp32") and same < len(rows):
            raise SystemExit(f"{name} does not write what seqloom writes: the comparison would not be one")


CASES = {
    "fp32": ["seqloom fp32", "transformers fp32", "ctranslate2 fp32"],
    "fp32, two workers of one thread": [
        "seqloom fp32 x2",
        "transformers fp32",
        "ctranslate2 fp32 x2",
        "seqloom fp32",
    ],
    "int8": ["seqloom int8", "transformers fp32", "ctranslate2 int8"],
    "int8, two workers of one thread": [
        "seqloom int8 x2",
        "transformers fp32",
        "ctranslate2 int8 x2",
        "seqloom int8",
    ],
}


def measure(names: list[str], rounds: int, cpu: bool, folder: Path) -> list[Row]:
    if cpu:
        return interleave(
            {name: variant(name, folder, 1) for name in names}, rounds, None, lone, time.process_time
        )
    return interleave({name: apart(variant, name, folder, 2) for name in names}, rounds, None, probe)


def main() -> None:
    parser = benchmark_options(__doc__, "few rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "ctranslate2"
        check(folder)
        for kind, names in CASES.items():
            title = f"{kind}: beam {WIDTH}, {SENTENCES} sentences"
            if options.only not in title:
                continue
            rows = measure(names, options.rounds or (3 if options.quick else 7), options.cpu, folder)
            if options.json:
                print(record(title, rows), flush=True)
                continue
            show(title, rows, "sentences/s")
            rate = {row.name: row.rate for row in rows}
            others = ", ".join(f"{rate[rows[0].name] / rate[name]:.2f} x {name}" for name in list(rate)[1:])
            print(f"  seqloom is {others}", flush=True)


if __name__ == "__main__":
    main()

"""Chat decoding: new tokens per second of a Llama in int8 (ours) against llama.cpp with Q8_0 weights, the same model, one answer or several side
by side, greedy.

The model is a GGUF file, such as SmolLM2-135M-Instruct; ours imports it, and llama.cpp reads the Q8_0 file that we export from it. The rounds of both
alternate. Needs the package llama-cpp-python (built for this machine) and `gguf`.

    python bench/chat.py MODEL.gguf [--new 64] [--batch 1] [--rounds 3] [--threads 2] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch

from seqloom.decoding import generate_batch
from seqloom.interop import export_checkpoint, import_checkpoint
from seqloom.run import load

QUESTION = "Tell me about the history of the city of Paris."


def ours(folder: Path, ids: list[int], count: int, batch: int) -> Callable[[], list[int]]:
    """Our decoding with int8 weights: the first of `batch` answers."""
    model = load(folder, quantize="int8").model
    prompt = torch.tensor([ids] * batch)
    return lambda: generate_batch(model, prompt, max_tokens=count, stop_ids=(), banned=())[0].ids


def theirs(path: Path, ids: list[int], count: int, threads: int, batch: int) -> Callable[[], list[int]]:
    """llama.cpp with the weights of a Q8_0 file: the first of `batch` answers, decoded side by side."""
    import ctypes

    import llama_cpp as library
    import numpy as np

    @library.llama_log_callback
    def silent(level: int, text: bytes, data: object) -> None:
        pass

    library.llama_log_set(silent, ctypes.c_void_p(0))
    library.llama_backend_init()
    model = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
    settings = library.llama_context_default_params()
    settings.n_ctx = batch * (len(ids) + count + 8)
    settings.n_batch = settings.n_ubatch = max(512, batch * len(ids))
    settings.n_seq_max = batch
    settings.n_threads = settings.n_threads_batch = threads
    context = library.llama_init_from_model(model, settings)
    words = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
    tokens = library.llama_batch_init(batch * len(ids), 0, 1)

    def decode(rows: list[list[int]], position: int) -> list[int]:
        """Feeds each sequence its tokens, and returns the most probable next ones."""
        tokens.n_tokens = 0
        last = []
        for sequence, row in enumerate(rows):
            for offset, token in enumerate(row):
                at = tokens.n_tokens
                tokens.token[at] = token
                tokens.pos[at] = position + offset
                tokens.n_seq_id[at] = 1
                tokens.seq_id[at][0] = sequence
                tokens.logits[at] = offset == len(row) - 1
                tokens.n_tokens += 1
            last.append(tokens.n_tokens - 1)
        if library.llama_decode(context, tokens):
            raise RuntimeError("llama.cpp could not decode")
        logits = (library.llama_get_logits_ith(context, at) for at in last)
        return [int(np.ctypeslib.as_array(row, (words,)).argmax()) for row in logits]

    def work() -> list[int]:
        library.llama_memory_clear(library.llama_get_memory(context), True)
        new = decode([ids] * batch, 0)
        found = [new[0]]
        while len(found) < count:
            new = decode([[token] for token in new], len(ids) + len(found) - 1)
            found.append(new[0])
        return found

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the run and the Q8_0 file are, or are written")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "run").exists():
            export_checkpoint(
                import_checkpoint(options.model, folder / "run"), folder / "q8.gguf", "gguf-q8_0"
            )
        run = load(folder / "run")
        from seqloom.text.chat_field import ChatEncoder
        from seqloom.text.chat_records import Message
        from seqloom.text.chats import PLAIN

        [ids] = ChatEncoder(run.tokenizer, run.chat_template or PLAIN).prompts([[Message("user", QUESTION)]])
        works = {
            "seqloom int8": ours(folder / "run", ids, options.new, options.batch),
            "llama.cpp Q8_0": theirs(folder / "q8.gguf", ids, options.new, options.threads, options.batch),
        }
        first = {name: work() for name, work in works.items()}  # warms up
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(options.rounds):
            for name, work in works.items():
                begun = time.perf_counter()
                work()
                times[name].append(time.perf_counter() - begun)
    a, b = first.values()
    shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rates = {name: options.batch * options.new / statistics.median(values) for name, values in times.items()}
    ratio = rates["seqloom int8"] / rates["llama.cpp Q8_0"]
    report = {
        "prompt": len(ids),
        "new": options.new,
        "batch": options.batch,
        "threads": options.threads,
        "tokens_per_second": rates,
    }
    report |= {"ratio": ratio, "equal_first_tokens": shared}
    if options.json:
        print(json.dumps(report))
        return
    for name, rate in rates.items():
        print(
            f"{name:16} {rate:8.1f} tokens/s with the prompt of {len(ids)}, batch {options.batch}, {options.threads} threads"
        )
    print(f"ratio {ratio:.2f}; the first {shared} of {options.new} greedy tokens are equal")


if __name__ == "__main__":
    main()

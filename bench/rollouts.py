"""Rollouts: answers per second that a policy samples for 32 prompts of 16 tokens, from a GPT of 25 M parameters in single precision, against
`generate` of `transformers` with the same weights. Once every answer has 64 tokens, which is bound by the matrix products of both; once
answers end by themselves, after 25 tokens on average and at most 64, as those of a policy do: a row that ends leaves our batch.

    python bench/rollouts.py [--rounds N] [--threads N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch

import peers
from seqloom.batches.prompts import PromptBatch
from seqloom.inference.answers import sample_texts
from seqloom.models import LanguageModel
from seqloom.nn import FeedForward, Learned, Transformer
from seqloom.train.process import keep_freed_memory

VOCABULARY, DIM, LAYERS, HEADS, PROMPTS, PROMPT, NEW = 1000, 512, 8, 8, 32, 16, 64


def policy() -> LanguageModel:
    torch.manual_seed(0)
    stack = partial(
        Transformer,
        layers=LAYERS,
        heads=HEADS,
        position=partial(Learned, length=256),
        feedforward=partial(FeedForward, activation="gelu_tanh"),
    )
    return LanguageModel(VOCABULARY, DIM, stack).eval()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()  # as every training does
    model = policy()
    peer = peers.transformers(policy(), eos_token_id=0, pad_token_id=0)
    ids = torch.randint(50, VOCABULARY, (PROMPTS, PROMPT), generator=torch.Generator().manual_seed(1))
    prompts = PromptBatch.of(ids, torch.ones_like(ids, dtype=torch.bool))

    def ours(stops: tuple[int, ...]) -> int:
        return int(sample_texts(model, prompts, NEW, stops, 0).mask.sum())

    def theirs(stops: tuple[int, ...]) -> int:
        fixed = {"min_new_tokens": NEW} if not stops else {"eos_token_id": list(stops)}
        with torch.inference_mode():
            found = peer.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=NEW, **fixed
            )
        return int((found[:, PROMPT:] != 0).sum())

    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {PROMPTS} prompts, {arguments.threads} threads")
    for title, stops in (("64 tokens each", ()), ("ending by themselves", tuple(range(1, 41)))):
        ours(stops), theirs(stops)  # warm
        rates: dict[str, list[float]] = {"seqloom": [], "transformers": []}
        tokens: dict[str, list[int]] = {"seqloom": [], "transformers": []}
        for _ in range(arguments.rounds):
            for name, run in (("seqloom", ours), ("transformers", theirs)):
                start = time.perf_counter()
                tokens[name].append(run(stops))
                rates[name].append(PROMPTS / (time.perf_counter() - start))
        ratios = sorted(ours / theirs for ours, theirs in zip(*rates.values(), strict=True))
        print(title)
        for name, values in rates.items():
            mean = statistics.mean(tokens[name]) / PROMPTS
            print(f"  {name:13} {statistics.median(values):6.1f} answers/s, {mean:.0f} tokens each")
        print(f"  ratio {statistics.median(ratios):.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()

"""Speed of the output layer at a large vocabulary: whole training steps of an LSTM language model with the adaptive softmax against the same model
with the full one, and against torch's own adaptive softmax, which must give our loss on our weights before it is timed.

Two layers of 650, 35 steps, a batch of 20, 33,000 words drawn by Zipf's law. The step is that of bench/train.py: forward, loss, backward, clipping,
AdamW. Left out: what the smaller sizes of rare words cost in perplexity, which is a matter of the data.

    python bench/output.py [--quick] [--rounds N] [--only WORD] [--cpu] [--json]
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch
from torch import Tensor, nn

from probe import Row, apart, benchmark_options, interleave, lone, probe, record, show
from seqloom.models import LanguageModel
from seqloom.nn import RNN, AdaptiveSoftmax, Output
from train import our_step, peer_step

WORDS, DIM, LAYERS, LENGTH, BATCH = 33_000, 650, 2, 35, 20


class TorchAdaptive(nn.Module):
    """nn.LSTM under nn.AdaptiveLogSoftmaxWithLoss."""

    def __init__(self, ours: LanguageModel):
        super().__init__()
        self.tokens = nn.Embedding(WORDS, DIM)
        self.lstm = nn.LSTM(DIM, DIM, LAYERS, batch_first=True)
        self.output = nn.AdaptiveLogSoftmaxWithLoss(DIM, WORDS, list(ours.output.cutoffs), div_value=4.0)
        with torch.no_grad():
            self.tokens.weight.copy_(ours.embedding.table)
            for number, (layer,) in enumerate(ours.stack.layers):
                for name, weight in (
                    ("weight_ih", layer.cell.input),
                    ("weight_hh", layer.cell.hidden),
                    ("bias_ih", layer.cell.bias),
                ):
                    getattr(self.lstm, f"{name}_l{number}").copy_(weight)
                getattr(self.lstm, f"bias_hh_l{number}").zero_()
            self.output.head.weight.copy_(torch.cat([ours.output.common, ours.output.groups]))
            for theirs, tail in zip(self.output.tail, ours.output.tails, strict=True):
                theirs[0].weight.copy_(tail[0].weight)
                theirs[1].weight.copy_(tail[1].weight)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        y, _ = self.lstm(self.tokens(ids))
        return self.output(y.flatten(0, 1), targets.flatten()).loss


CASES: dict[str, dict[str, tuple[type, bool]]] = {  # variant → output, tied
    "a matrix of its own": {"adaptive": (AdaptiveSoftmax, False), "full softmax": (Output, False)},
    "tied to the embedding": {"adaptive": (AdaptiveSoftmax, True), "full softmax": (Output, True)},
    "torch's adaptive softmax": {
        "adaptive": (AdaptiveSoftmax, False),
        "nn.LSTM, torch's adaptive": (TorchAdaptive, False),
    },
}


def text() -> tuple[Tensor, Tensor]:
    chances = 1 / (torch.arange(WORDS) + 2.7)
    ids = torch.multinomial(chances, BATCH * (LENGTH + 1), replacement=True).view(BATCH, LENGTH + 1)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def variant(title: str, name: str, threads: int) -> Callable[[], float]:
    """The work of one variant: a step on the same batch, whoever does it."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    ids, targets = text()
    kind, tied = CASES[title][name]
    model = LanguageModel(
        WORDS,
        DIM,
        partial(RNN, layers=LAYERS),
        tied=tied,
        output=AdaptiveSoftmax if kind is TorchAdaptive else kind,
    )
    if kind is TorchAdaptive:
        peer = TorchAdaptive(model)
        with torch.no_grad():
            wanted, got = (
                model.output.nll(model.features(ids)[0], targets).mean().item(),
                peer(ids, targets).item(),
            )
        if not math.isclose(wanted, got, rel_tol=1e-5):
            raise ValueError(
                f"{name} is not the same model: its loss is {got:.6f} where ours is {wanted:.6f}"
            )
        step = peer_step(peer)
    else:
        step = our_step(model)

    def work() -> float:
        step(ids, targets)
        return float(ids.numel())

    return work


def measure(title: str, rounds: int, cpu: bool) -> list[Row]:
    if cpu:
        return interleave(
            {name: variant(title, name, 1) for name in CASES[title]}, rounds, None, lone, time.process_time
        )
    return interleave({name: apart(variant, title, name, 2) for name in CASES[title]}, rounds, None, probe)


def main() -> None:
    parser = benchmark_options(__doc__, "few rounds")
    options = parser.parse_args()
    for title in CASES:
        if options.only in title:
            rows = measure(title, options.rounds or (3 if options.quick else 11), options.cpu)
            print(record(title, rows), flush=True) if options.json else show(
                f"LSTM 2 x 650, V 33k: {title}", rows
            )


if __name__ == "__main__":
    main()

"""What searches find, over random small models: exact search, beams of several widths and greedy search, on the same texts.

    python bench/search.py [--models 500] [--seed 0]

Proved on each: no search beats the exact one, and a beam of one is greedy. Counted: how often each finds the best text of all, and how often a
wider beam ends with less than a narrower one, which nothing forbids.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import pairwise

import torch

from seqloom.decoding import beam_search, exact_search, generate_batch
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import RNN, AttentiveRNN, Transformer

WIDTHS = (1, 2, 3, 4, 5, 8, 16)
VOCABULARY, LENGTH, CALLS = 12, 5, 100_000
small = partial(Transformer, layers=1, heads=2)
KINDS = {
    "LSTM": partial(LanguageModel, VOCABULARY, 8, RNN),
    "Transformer": partial(LanguageModel, VOCABULARY, 8, small),
    "RNNsearch": partial(
        Seq2Seq, VOCABULARY, VOCABULARY, 8, partial(RNN, dim=4, direction="both"), AttentiveRNN
    ),
    "Transformer translator": partial(
        Seq2Seq, VOCABULARY, VOCABULARY, 8, partial(small, causal=False), small
    ),
}


def model(kind: str, seed: int) -> torch.nn.Module:
    """Weights large enough that texts differ."""
    torch.manual_seed(seed)
    made = KINDS[kind]().double().eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.7)
    return made


def found(made: torch.nn.Module, seed: int) -> tuple[float, float, dict[int, float]]:
    """ln P of what exact, greedy and each beam find for one source."""
    source = torch.randint(5, VOCABULARY, (1, 4), generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        opened = made.prepare_prompt(source, torch.ones_like(source, dtype=torch.bool), 2)
    best = exact_search(made, *opened, max_tokens=LENGTH, max_calls=CALLS)
    [greedy] = generate_batch(made, *opened, max_tokens=LENGTH)
    beams = {
        width: beam_search(made, *opened, width=width, max_tokens=LENGTH, length_penalty=0.0)[0][0]
        for width in WIDTHS
    }
    if (beams[1].ids, beams[1].finished) != (greedy.ids, greedy.finished):
        raise SystemExit(f"seed {seed}: a beam of one wrote {beams[1].ids}, greedy search {greedy.ids}")
    return (
        best.log_probability,
        greedy.log_probability,
        {width: one.log_probability for width, one in beams.items()},
    )


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--models", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    torch.set_num_threads(1)
    columns = "".join(f"{f'beam {width}':>9}" for width in WIDTHS)
    print(
        f"{'finds the best of all':24}{'models':>8}{columns}   a wider beam finds less than the next narrower"
    )
    beaten = less = total = 0
    for number, kind in enumerate(KINDS):
        seeds = range(asked.seed + number, asked.seed + asked.models, len(KINDS))
        hits, worse, cases = dict.fromkeys(WIDTHS, 0), 0, 0
        for seed in seeds:
            best, greedy, beams = found(model(kind, seed), seed)
            beaten += sum(value > best + 1e-9 for value in (greedy, *beams.values()))
            for width, value in beams.items():
                hits[width] += value > best - 1e-9
            worse += any(beams[wide] < beams[narrow] - 1e-9 for narrow, wide in pairwise(WIDTHS))
            cases += sum(beams[wide] < beams[narrow] - 1e-9 for narrow, wide in pairwise(WIDTHS))
        shares = "".join(f"{hits[width] / max(1, len(seeds)):>9.1%}" for width in WIDTHS)
        print(
            f"{kind:24}{len(seeds):>8}{shares}   {worse} of {len(seeds)} models, {cases} of {len(seeds) * (len(WIDTHS) - 1)} steps",
            flush=True,
        )
        less, total = less + worse, total + len(seeds)
    print(
        f"{total} models: exact search was beaten {beaten} times; a beam of one was greedy on all; on {less} a wider beam found less"
    )
    if beaten:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""The systems at the sizes of their papers: as many parameters as reported, or as the papers' sizes add up to. Nothing is allocated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import yaml

from seqloom.batches import PairBatch
from seqloom.config_source import find_config
from seqloom.run_config import PRESETS, Config
from seqloom.studies.published import TABLE2

# Preset, source and target vocabulary of the paper, parameters reported, how far off we may be, and who reports it.
REPORTED = [
    ("seq2seq-paper", 160_000, 80_000, 384e6, 0.005),  # Sutskever et al. 2014, section 3.4
    (
        "gnmt-paper",
        32_000,
        32_000,
        278e6,
        0.09,
    ),  # Shazeer et al. 2017, Table 2; the preset says what is left out
    ("moe-paper", 32_000, 32_000, 8.7e9, 0.01),  # Shazeer et al. 2017, Table 2
    ("transformer-base", 37_000, 37_000, 65e6, 0.035),  # Vaswani et al. 2017, Table 3
    ("transformer-big", 37_000, 37_000, 213e6, 0.01),
]


def built(name: str, source: int, target: int) -> torch.nn.Module:
    with torch.device("meta"):
        return Config(*find_config(name)).parts["model"](source_vocabulary=source, vocabulary=target)


def count(model: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name, source, target, reported, off", REPORTED, ids=[row[0] for row in REPORTED])
def test_as_many_parameters_as_reported(
    name: str, source: int, target: int, reported: float, off: float
) -> None:
    assert count(built(name, source, target)) == pytest.approx(reported, rel=off)


def test_the_recurrent_half_of_sutskevers_is_64_million() -> None:
    """The paper's own split: 32 million in the encoder, 32 in the decoder, the rest words."""
    model = built("seq2seq-paper", 160_000, 80_000)
    assert count(model.encoder) == pytest.approx(32e6, rel=0.005) and count(model.decoder) == pytest.approx(
        32e6, rel=0.005
    )


# Where no total is reported: matrices written out from the papers' sizes; biases, gains and what a preset adds are the rest.


def gru(size: int, dim: int) -> int:
    return 3 * dim * (size + dim)


def lstm(size: int, dim: int) -> int:
    return 4 * dim * (size + dim)


def rnnsearch() -> int:
    """E 620; GRUs of 1,000 both ways, one that also reads 2,000 of context; an alignment network of 1,000; s₀ and the output from [s; c; Ey]."""
    words, encoder, decoder = 2 * 30_000 * 620, 2 * gru(620, 1000), gru(620 + 2000, 1000)
    attention, first, last = 1000 * 1000 + 2000 * 1000, 2000 * 1000, (1000 + 2000 + 620) * 1000
    return words + encoder + decoder + attention + first + last + 30_000 * 1000


def deep_att() -> int:
    """Nine LSTMs in each of two columns, seven that write, all of 512; each after the first reads W [f; h]."""
    column = 9 * lstm(512, 512) + 512 * 512 + 8 * 1024 * 512
    first = lstm(512, 512) + 4 * 512 * 2048 + 2048 * 512 + (512 + 2048 + 512) * 512 + 512 * 512 + 2048 * 512
    rest = 6 * lstm(512, 512) + 512 * 512 + 5 * 1024 * 512
    return 2 * 80_000 * 512 + 2 * column + first + rest + 80_000 * 1024


def bytenet() -> int:
    """Sixty blocks of 2d → d, three taps of d → d, d → 2d with d = 800; characters in and out; the source reaches the target once."""
    return 60 * (1600 * 800 + 3 * 800 * 800 + 800 * 1600) + 3 * 323 * 1600 + 1600 * 1600


def convs2s() -> int:
    """Convolutions to twice the width; in the decoder each layer asks with 768 and takes 768 back; products between the widths."""
    layers = [(512, 3)] * 9 + [(1024, 3)] * 4 + [(2048, 1)] * 2
    convolutions = sum(kernel * dim * 2 * dim for dim, kernel in layers)
    attention = sum(2 * dim * 768 for dim, _ in layers) + 3 * 768 * 768
    between = 2 * (512 + 1024 + 2048) * 768
    return 3 * 40_000 * 768 + 2 * (convolutions + between) + attention + 2 * 1024 * 768


@pytest.mark.parametrize("name, words, expected", [
    ("rnnsearch-paper", 30_000, rnnsearch()), ("deep-att-paper", 80_000, deep_att()), ("bytenet-paper", 323, bytenet()),
    ("convs2s-paper", 40_000, convs2s()),
])  # fmt: skip
def test_as_many_parameters_as_the_sizes_add_up_to(name: str, words: int, expected: int) -> None:
    assert count(built(name, words, words)) == pytest.approx(expected, rel=0.003)


def test_every_system_of_the_table_has_its_papers_size() -> None:
    """The plain encoder-decoder has no paper of its own there."""
    names = {path.stem for path in PRESETS.glob("*.yaml")}
    assert {f"{name}-paper" for name in TABLE2 if name not in ("encdec", "transformer")} <= names
    for name in names:
        if name.endswith(("-paper", "-base", "-big")):
            assert "et al." in (PRESETS / f"{name}.yaml").read_text("utf-8").split("corpus:")[0], (
                f"{name} cites nobody"
            )


def test_the_second_stage_is_the_same_model() -> None:
    first, second = (
        yaml.safe_load((PRESETS / f"{name}.yaml").read_text("utf-8")) for name in ("gnmt", "gnmt-rl")
    )
    assert all(first[key] == second[key] for key in ("model", "corpus", "tokenizer", "batches"))
    assert second["objective"]["type"] == "mixed_reward"


def variants() -> Iterator[list[str]]:
    for score in ("Dot", "ScaledDot", "Additive", "Bilinear"):
        for query in ("previous", "current", "word"):
            yield [f"model.decoder.attention.score={score}", f"model.decoder.query={query}"]


@pytest.mark.parametrize(
    "options", variants(), ids=lambda options: "-".join(option.split("=")[1] for option in options)
)
def test_rnnsearch_learns_with_every_score_and_every_query(options: list[str]) -> None:
    """A few steps on one batch: the loss falls by a quarter at least, and the attention itself learns."""
    small = [
        f"{place}.dim=16" for place in ("model", "model.encoder", "model.decoder", "model.decoder.attention")
    ]
    small += ["model.dropout=0", "model.decoder.dropout=0"]
    recipe = Config.load("rnnsearch", [*small, *options])
    model = recipe.model(20).train()
    chance = torch.Generator().manual_seed(0)
    source = torch.randint(5, 20, (16, 6), generator=chance)
    targets = torch.cat([source.flip(1), torch.full((16, 1), 3)], 1)
    ids = torch.cat([torch.full((16, 1), 2), targets[:, :-1]], 1)
    batch = PairBatch(
        source,
        torch.ones_like(source, dtype=torch.bool),
        ids,
        targets,
        torch.ones_like(targets, dtype=torch.bool),
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    before = {name: weight.clone() for name, weight in model.decoder.attention.named_parameters()}
    losses = []
    for _ in range(60):
        loss, numbers, _ = recipe.objective(model, batch, None)
        losses.append(numbers["nats"] / batch.num_targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.75 * losses[0]
    assert all(
        not torch.equal(weight, before[name]) for name, weight in model.decoder.attention.named_parameters()
    )

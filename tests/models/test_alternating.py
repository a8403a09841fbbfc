"""Recurrence, attention, convolution and experts in one chain: generation, search and truncated BPTT run over it unchanged."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

import seqloom
from seqloom.batches import TokenBatch
from seqloom.decoding import RandomSampler, beam_search, generate_batch, row_seeds
from seqloom.files import sha256
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import (
    RNN,
    ALiBi,
    ByteNet,
    Chain,
    Convolution,
    ConvS2S,
    Experts,
    FeedForward,
    Learned,
    Mixer,
    Rotary,
    Transformer,
    detach,
)
from seqloom.objectives import next_token
from seqloom.run import load
from seqloom.run_config import Config
from seqloom.run_files import read_metrics
from seqloom.train.loop import TrainLoop

WORDS, DIM = 11, 12
experts = partial(Experts, experts=3, top_k=2, expert=partial(FeedForward, dim=10))
block = partial(Transformer, layers=1, heads=2)
LAYERS = [
    RNN,
    partial(block, position=ALiBi),
    partial(Convolution, kernel=3, dilation=2),
    partial(block, position=Rotary, feedforward=experts),
]
chain = partial(Chain, layers=LAYERS)


def lively(model: torch.nn.Module) -> torch.nn.Module:
    """In double precision, with weights large enough to make texts differ."""
    torch.manual_seed(5)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return model.double().eval()


def language(repeat: int = 1) -> LanguageModel:
    return lively(LanguageModel(WORDS, DIM, partial(chain, repeat=repeat)))


PROMPTS = [[1, 5, 6, 4], [4], [7, 8]]
IDS = torch.tensor([prompt + [0] * (4 - len(prompt)) for prompt in PROMPTS])
MASK = torch.tensor([[t < len(prompt) for t in range(4)] for prompt in PROMPTS])


def log_p(model: LanguageModel, ids: list[int]) -> torch.Tensor:
    """Everything computed anew: log P of what follows each token, (T, V)."""
    return model(torch.tensor([ids]))[0][0].detach().log_softmax(-1)


def forced(model: LanguageModel, prompt: list[int], text: list[int], finished: bool, stop: int) -> float:
    every, text = log_p(model, prompt + text), [*text, stop] if finished else text
    return sum(float(every[len(prompt) - 1 + t, token]) for t, token in enumerate(text))


@pytest.mark.parametrize("repeat", [1, 2])
def test_greedy_with_a_state_is_greedy_from_scratch(repeat: int):
    model = language(repeat)
    for prompt, text in zip(
        PROMPTS, generate_batch(model, IDS, None, MASK, max_tokens=12, stop_ids=(3,)), strict=True
    ):
        anew: list[int] = []
        while len(anew) < 12:
            row = log_p(model, prompt + anew)[-1]
            row[[0, 2]] = -torch.inf
            if int(row.argmax()) == 3:
                break
            anew.append(int(row.argmax()))
        assert text.ids == anew and text.finished == (len(anew) < 12)
        assert text.log_probability == pytest.approx(forced(model, prompt, anew, text.finished, 3))


def test_a_beams_score_is_the_texts_own():
    model = language()
    for prompt, found in zip(
        PROMPTS,
        beam_search(
            model, IDS, None, MASK, width=5, max_tokens=8, stop_ids=(3,), nbest=5, length_penalty=0.0
        ),
        strict=True,
    ):
        assert len({tuple(one.ids) for one in found}) > 1
        for one in found:
            assert one.log_probability == pytest.approx(forced(model, prompt, one.ids, one.finished, 3))


def test_samples_are_a_function_of_their_seed_alone():
    model, pick = language(), RandomSampler(temperature=1.3, top_p=0.95)
    together = generate_batch(model, IDS, None, MASK, sampler=pick, max_tokens=9, seed=row_seeds(7, 3))
    assert together == generate_batch(model, IDS, None, MASK, sampler=pick, max_tokens=9, seed=7)
    assert together != generate_batch(model, IDS, None, MASK, sampler=pick, max_tokens=9, seed=8)
    for row, prompt in enumerate(PROMPTS):
        (alone,) = generate_batch(
            model, torch.tensor([prompt]), sampler=pick, max_tokens=9, seed=[row_seeds(7, 3)[row]]
        )
        assert alone.ids == together[row].ids


def test_blocks_with_a_carried_state_are_the_whole_text():
    """Likelihood and state; the gradient of the second block stops at its beginning."""
    model, ids = language(2).train(), torch.randint(WORDS, (3, 11))
    targets, mask = ids.roll(-1, 1), torch.ones(3, 11, dtype=torch.bool)
    whole = -model(ids)[0].log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    state, nats = None, []
    for piece in (slice(0, 4), slice(4, 9), slice(9, 11)):
        _, numbers, state = next_token(
            model, TokenBatch(ids[:, piece], targets[:, piece], mask[:, piece]), detach(state)
        )
        nats.append(numbers["nats"])
    assert nats == pytest.approx(
        [float(whole[:, a:b].sum().detach()) for a, b in ((0, 4), (4, 9), (9, 11))], rel=1e-5
    )


mixer = partial(Mixer, length=5, layers=1)
TRANSLATORS = {
    "ByteNet": (
        partial(ByteNet, sets=1, dilations=(1, 2), causal=False),
        partial(ByteNet, sets=1, dilations=(1, 2)),
    ),
    "ConvS2S": (
        partial(ConvS2S, layers=2, causal=False),
        partial(ConvS2S, layers=2, position=partial(Learned, length=9)),
    ),
    "a chain that looks": (mixer, chain),
    "a chain of decoders": (
        partial(RNN, direction="both"),
        partial(Chain, layers=[partial(ByteNet, sets=1), RNN, ConvS2S]),
    ),
}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_search_as_they_are_forced(name: str):
    """Sources of several lengths in one batch, texts longer than any source."""
    model = lively(Seq2Seq(WORDS, WORDS, DIM, *TRANSLATORS[name]))
    source = torch.tensor([[5, 6, 7, 4, 3], [4, 3, 0, 0, 0]])
    mask = source != 0
    with torch.inference_mode():
        prompt, state, _ = model.prepare_prompt(source, mask, 2)
    for row, found in enumerate(
        beam_search(model, prompt, state, width=4, max_tokens=8, stop_ids=(3,), nbest=4, length_penalty=0.0)
    ):
        for one in found:
            alone = model.start(source[row : row + 1, mask[row]])
            every = model(torch.tensor([[2, *one.ids]]), alone)[0][0].detach().log_softmax(-1)
            text = [*one.ids, 3] if one.finished else one.ids
            assert one.log_probability == pytest.approx(
                sum(float(every[t, token]) for t, token in enumerate(text))
            )


# Through the real loop, from a file

CONFIG = """
corpus: {type: Text}
tokenizer: {type: Characters}
batches: {type: Blocks, width: 8, batch: 4}
model:
  type: LanguageModel
  dim: 16
  stack:
    type: Chain
    repeat: 1
    layers:
      - {type: RNN, cell: LSTM}
      - {type: Transformer, layers: 1, heads: 2, position: ALiBi}
      - {type: Convolution, kernel: 3, dilation: 2}
      - type: Transformer
        layers: 1
        heads: 2
        position: {type: Rotary}
        feedforward: {type: Experts, experts: 4, top_k: 2, capacity: 1.5, noisy: true, expert: {type: FeedForward, dim: 16}}
objective: {type: next_token}
train: {steps: 40, eval_every: 20, save_every: 9, log_every: 1, optimizer: {type: AdamW, lr: 0.01}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "alternating.yaml"
    path.write_text(CONFIG, "utf-8")
    return path


def test_a_config_builds_the_chain(recipe: Path):
    stack = Config.load(str(recipe)).model(20).stack
    assert [type(layer).__name__ for layer in stack.layers] == [
        "RNN",
        "Transformer",
        "Convolution",
        "Transformer",
    ]
    mixture = stack.layers[3].blocks[0].feedforward
    assert (
        len(mixture.experts),
        mixture.top_k,
        mixture.capacity,
        mixture.experts[0].in_proj.out_features,
    ) == (
        4,
        2,
        1.5,
        16,
    )
    assert stack.layers[2].reach == 4 and stack.causal and stack.context is None


@pytest.mark.parametrize(
    "stack, kinds",
    [
        ("{type: ByteNet, sets: 2, dilations: [1, 2]}", {"ByteNet", "ByteNetBlock", "Convolution"}),
        (
            "{type: ConvS2S, layers: 1, position: {type: Learned, length: 9}}",
            {"ConvS2S", "GatedBlock", "Learned"},
        ),
        ("{type: Chain, layers: [MixFeatures, ByteNet]}", {"MixFeatures", "ByteNet"}),
    ],
)
def test_the_other_parts_stand_in_configs_too(recipe: Path, stack: str, kinds: set[str]):
    tree = yaml.safe_load(CONFIG)
    tree["model"]["stack"] = yaml.safe_load(stack)
    recipe.write_text(yaml.safe_dump(tree), "utf-8")
    assert kinds <= {type(part).__name__ for part in Config.load(str(recipe)).model(20).modules()}


def test_a_config_builds_translators(recipe: Path):
    tree = yaml.safe_load(CONFIG)
    tree |= {"corpus": "Parallel", "batches": "Pairs", "objective": "translation"}
    decoder = {
        "type": "Chain",
        "layers": [{"type": "ByteNet", "sets": 1, "dilations": [1, 2]}, {"type": "ConvS2S", "layers": 1}],
    }
    mixing = {"type": "Mixer", "length": 6, "layers": 1, "tokens": {"type": "FeedForward", "dim": 3}}
    tree["model"] = {"type": "Seq2Seq", "dim": 8, "encoder": mixing, "decoder": decoder}
    recipe.write_text(yaml.safe_dump(tree), "utf-8")
    model = Config.load(str(recipe)).model(20)
    assert model.source_context == 6 and model.encoder.blocks[0].tokens.in_proj.weight.shape == (3, 6)
    assert [layer.blocks[0].convolution.size for layer in model.decoder.layers] == [4, 8]
    assert model(torch.zeros(1, 3, dtype=torch.long), model.start(torch.ones(1, 5, dtype=torch.long)))[
        0
    ].shape == (1, 3, 20)


class Cut(Exception):
    """Stands for the power going off."""


def test_it_learns_and_goes_on_to_the_same_bits(recipe: Path, tmp_path: Path, text: Path, monkeypatch):
    whole = seqloom.fit(str(recipe), data=[str(text)], out=tmp_path / "whole", progress=False)
    losses = [line["loss"] for line in read_metrics(tmp_path / "whole") if "loss" in line]
    assert len(losses) == 40 and sum(losses[-5:]) < 0.85 * sum(losses[:5])
    advance, steps = TrainLoop.train_step, iter(range(25))

    def failing(self, *arguments):
        if next(steps, None) is None:
            raise Cut
        return advance(self, *arguments)

    monkeypatch.setattr(TrainLoop, "train_step", failing)
    with pytest.raises(Cut):
        seqloom.fit(str(recipe), data=[str(text)], out=tmp_path / "cut", progress=False)
    monkeypatch.setattr(TrainLoop, "train_step", advance)
    seqloom.fit(str(recipe), data=[str(text)], out=tmp_path / "cut", progress=False)
    assert sha256(tmp_path / "cut" / "model.safetensors") == sha256(tmp_path / "whole" / "model.safetensors")
    assert read_metrics(tmp_path / "cut") == read_metrics(tmp_path / "whole")
    again = load(tmp_path / "cut")
    ids, _ = whole.encode(["the old king"])
    assert torch.equal(whole.model(ids)[0], again.model(ids)[0])

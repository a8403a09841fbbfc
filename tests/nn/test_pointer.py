"""The pointer-generator against its equations, computed word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from seqloom.models import PointerGenerator
from seqloom.nn import LSTM, RNN, PointerRNN
from seqloom.nn.layer import Memory, collect_aux_losses, select, state_tensors
from seqloom.nn.pointer import PointerFeatures, PointerOutput

VOCABULARY, DIM, UNKNOWN = 12, 6, 1 << 31


def model(coverage: bool = True, tied: bool = True) -> PointerGenerator:
    torch.manual_seed(0)
    made = PointerGenerator(
        VOCABULARY,
        VOCABULARY,
        DIM,
        lambda size: RNN(size, cell=LSTM, dim=4, direction="both"),
        lambda size, memory: PointerRNN(size, memory, dim=5, coverage=coverage),
        tied=tied,
    )
    for parameter in made.parameters():  # larger than at the start, so that every term matters
        torch.nn.init.normal_(parameter, std=0.5)
    return made.double().eval()


# an unknown word twice, another once; padding in the second row
SOURCE = torch.tensor([[5, UNKNOWN + 7, 6, UNKNOWN + 7, UNKNOWN + 9, 3], [7, UNKNOWN + 9, 3, 0, 0, 0]])
SOURCE_MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]).bool()
IDS = torch.tensor([[2, 5, VOCABULARY + 1, 6], [2, 7, VOCABULARY + 1, 8]])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def literal(made: PointerGenerator, row: int, coverage: bool) -> tuple[list[np.ndarray], float]:
    """P over the extended vocabulary after each word, and the coverage loss, of one row without padding, with loops over numpy values."""
    weights = {name: value.detach().numpy() for name, value in made.named_parameters()}
    length = int(SOURCE_MASK[row].sum())
    source = SOURCE[row, :length].tolist()
    embedding = weights["embedding.table"]
    known = [word if word < VOCABULARY else 1 for word in source]
    m = made.encoder(made.embedding(torch.tensor([known])))[0][0].detach().numpy()
    decoder = "decoder."
    h = np.tanh(weights[decoder + "init_proj.weight"] @ m.mean(0) + weights[decoder + "init_proj.bias"])
    c = np.zeros_like(h)
    seen = np.zeros(length)
    distributions, loss = [], 0.0
    for word in IDS[row].tolist():
        x = embedding[word if word < VOCABULARY else 1]
        query = weights[decoder + "attention.query.weight"] @ h
        scores = []
        for j in range(length):
            key = weights[decoder + "attention.key.weight"] @ m[j] + weights[decoder + "attention.key.bias"]
            if coverage:
                key = key + seen[j] * weights[decoder + "attention.covered"]
            scores.append(weights[decoder + "attention.score.vector"] @ np.tanh(query + key))
        alpha = np.exp(scores) / np.exp(scores).sum()
        loss += sum(min(alpha[j], seen[j]) for j in range(length))
        seen = seen + alpha
        context = sum(alpha[j] * m[j] for j in range(length))
        state = made.decoder.cells[0]
        x_proj = state.project_input(torch.tensor(x)[None]).detach()
        x_proj = x_proj + torch.tensor(weights[decoder + "context_proj.weight"] @ context)[None]
        new = state.recorded_step(x_proj, type(state.start(1))(torch.tensor(h)[None], torch.tensor(c)[None]))[
            0
        ]
        h, c = (part[0].detach().numpy() for part in new)
        y = np.tanh(
            weights[decoder + "out_proj.weight"] @ np.concatenate([h, context, x])
            + weights[decoder + "out_proj.bias"]
        )
        p_gen = sigmoid(
            float(
                weights[decoder + "switch.weight"][0] @ np.concatenate([context, h, x])
                + weights[decoder + "switch.bias"][0]
            )
        )
        y = weights["out_proj.weight"] @ y + weights["out_proj.bias"] if made.out_proj is not None else y
        logits = embedding @ y
        p = np.zeros(VOCABULARY + SOURCE.shape[1])
        p[:VOCABULARY] = p_gen * np.exp(logits) / np.exp(logits).sum()
        for j, source_word in enumerate(source):
            p[source_word if source_word < VOCABULARY else VOCABULARY + source.index(source_word)] += (
                1 - p_gen
            ) * alpha[j]
        distributions.append(p)
    return distributions, loss


@pytest.mark.parametrize("coverage", [True, False])
def test_the_mixture_is_the_equation(coverage: bool):
    made = model(coverage)
    log_p, _ = made(IDS, made.start(SOURCE, SOURCE_MASK))
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 4, dtype=torch.float64))
    for row in range(2):
        expected, _ = literal(made, row, coverage)
        np.testing.assert_allclose(log_p[row].exp().detach().numpy(), expected, rtol=1e-9, atol=1e-15)


def test_the_coverage_loss_is_the_overlap_with_what_was_read():
    made = model()
    mask = torch.tensor([[True, True, True, True], [True, True, True, False]])
    with collect_aux_losses() as losses:
        made.features(IDS, made.start(SOURCE, SOURCE_MASK), mask)
    first = literal(made, 0, True)[1]
    shorter = IDS.clone()
    with collect_aux_losses() as short:
        made.features(shorter[1:, :3], made.start(SOURCE[1:], SOURCE_MASK[1:]))
    assert float(losses[0].detach()) == pytest.approx((first + 3 * float(short[0].detach())) / 7, rel=1e-9)
    with collect_aux_losses() as none:
        model(coverage=False).features(IDS, model(False).start(SOURCE, SOURCE_MASK))
    assert not none


def test_nll_is_that_of_the_mixture():
    made = model()
    h, _ = made.features(IDS, made.start(SOURCE, SOURCE_MASK))
    log_p = made.output(h)
    for target in (5, 4, VOCABULARY + 1):  # in both, in the vocabulary only, in the source only
        targets = torch.full((2, 4), target)
        torch.testing.assert_close(made.output.nll(h, targets), -log_p[..., target])


def test_targets_are_positions_of_the_source():
    made = model()
    targets = torch.tensor([[UNKNOWN + 9, 5, UNKNOWN + 7, UNKNOWN + 8], [UNKNOWN + 9, UNKNOWN + 7, 3, 0]])
    expected = [[VOCABULARY + 4, 5, VOCABULARY + 1, 1], [VOCABULARY + 1, 1, 3, 0]]
    assert made.target_words(SOURCE, targets).tolist() == expected
    assert made.source_words(SOURCE)[0].tolist() == [5, 13, 6, 13, 16, 3]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_whole_equals_steps_and_padding_changes_nothing(cut: int):
    made = model()
    whole, state = made.features(IDS, made.start(SOURCE, SOURCE_MASK))
    first, middle = made.features(IDS[:, :cut], made.start(SOURCE, SOURCE_MASK))
    second, last = made.features(IDS[:, cut:], middle)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    for one, other in zip(state_tensors(state), state_tensors(last), strict=True):
        torch.testing.assert_close(one, other)
    mask = torch.arange(4) < torch.tensor([[4], [cut]])
    _, padded = made.features(IDS, made.start(SOURCE, SOURCE_MASK), mask)
    _, alone = made.features(IDS[1:, :cut], made.start(SOURCE[1:], SOURCE_MASK[1:]))
    for one, other in zip(
        state_tensors(select(padded, torch.tensor([1]))), state_tensors(alone), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_a_shorter_source_beside_a_longer_one_is_the_same():
    made = model()
    both, _ = made(IDS, made.start(SOURCE, SOURCE_MASK))
    alone, _ = made(IDS[1:], made.start(SOURCE[1:, :3]))
    torch.testing.assert_close(both[1:, :, : VOCABULARY + 3], alone)
    assert (both[1:, :, VOCABULARY + 3 :] == -torch.inf).all()


def test_gradients_of_the_decoder_and_of_the_mixture():
    torch.manual_seed(0)
    decoder = PointerRNN(3, 4, dim=3).double()
    torch.nn.init.normal_(decoder.attention.covered)
    output = PointerOutput(3, 7).double()
    words = torch.tensor([[2, 7, 7], [3, 8, 1]])
    targets = torch.tensor([[2, 7], [8, 4]])

    def loss(x: Tensor, memory: Tensor, *parameters: Tensor) -> Tensor:
        with collect_aux_losses() as losses:
            found = decoder.forward_with_pointer(x, decoder.start(2, Memory(memory, None)))
        features = PointerFeatures(
            found.y, found.switch, found.weights, words[:, None].expand_as(found.weights)
        )
        return output.nll(features.joined(), targets).sum() + losses[0]

    x, memory = (
        torch.randn(2, size, width, dtype=torch.float64, requires_grad=True)
        for size, width in ((2, 3), (3, 4))
    )
    assert torch.autograd.gradcheck(loss, (x, memory, *decoder.parameters(), *output.parameters()))

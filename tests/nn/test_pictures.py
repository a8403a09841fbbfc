"""Parts for pictures against torch's own modules and against their equations written out."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.fused.dispatch import plain
from seqloom.nn import (
    LSTM,
    Additive,
    ConvStem,
    FirstPool,
    GatedAttention,
    LearnedGrid,
    Memory,
    NoGrid,
    NoPosition,
    Patches,
    PictureEncoder,
    RegionRNN,
    ResNet,
    ScaledDot,
    SinusoidalGrid,
    TableGrid,
    Transformer,
)
from seqloom.nn.layer import collect_aux_losses
from seqloom.nn.region_decoder import attention_spread_penalty

SHAPE = (12, 8, 3)
MIXED = partial(Transformer, layers=1, heads=2, causal=False)


def pixels(batch: int = 2, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.randint(
        0, 256, (batch, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )


def shaken(part: nn.Module) -> nn.Module:
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in part.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.4)
    return part.double()


def conv(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """y[o, i, j] = Σ w[o, c, u, v] x[c, s i + u - p, s j + v - p], 0 outside the picture; x (C, H, W)."""
    out, _, kernel, _ = weight.shape
    framed = np.pad(x, ((0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2))
    height, width = -(-x.shape[1] // stride), -(-x.shape[2] // stride)
    y = np.zeros((out, height, width))
    for i in range(height):
        for j in range(width):
            window = framed[:, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
            y[:, i, j] = (weight * window).sum((1, 2, 3))
    return y


def group_norm(x: np.ndarray, norm: nn.GroupNorm) -> np.ndarray:
    groups = x.reshape(norm.num_groups, -1)
    scaled = (groups - groups.mean(1, keepdims=True)) / np.sqrt(groups.var(1, keepdims=True) + norm.eps)
    gain, shift = (weight.detach().numpy()[:, None, None] for weight in (norm.weight, norm.bias))
    return scaled.reshape(x.shape) * gain + shift


def conv_norm(part: nn.Module, x: np.ndarray) -> np.ndarray:
    return group_norm(conv(x, part.conv.weight.detach().numpy(), part.conv.stride[0]), part.norm)


def prepared(picture: Tensor) -> np.ndarray:
    return picture.numpy().transpose(2, 0, 1) / 127.5 - 1


def test_a_convolution_stem_is_its_equation():
    stem = shaken(ConvStem(SHAPE, dims=[4, 6]))
    x = prepared(pixels()[1])
    for layer in stem.layers:
        x = np.maximum(conv_norm(layer, x), 0)
    found = stem(pixels())[1].detach().numpy()
    assert found.shape == (3, 2, 6) and stem.grid == (3, 2)
    np.testing.assert_allclose(found, x.transpose(1, 2, 0), rtol=1e-9, atol=1e-9)


def test_a_residual_network_is_its_equation():
    stem = shaken(ResNet(SHAPE, dims=[4, 4, 6], blocks=2, stride=1))
    x = np.maximum(conv_norm(stem.stem, prepared(pixels()[0])), 0)
    for block in stem.blocks:
        y = conv_norm(block.second, np.maximum(conv_norm(block.first, x), 0))
        x = np.maximum((x if block.shortcut is None else conv_norm(block.shortcut, x)) + y, 0)
    found = stem(pixels())[0].detach().numpy()
    assert found.shape == (3, 2, 6) and stem.grid == (3, 2)
    np.testing.assert_allclose(found, x.transpose(1, 2, 0), rtol=1e-9, atol=1e-9)


def test_patches_are_a_convolution_without_overlap():
    """As torch's Conv2d computes it with stride = kernel."""
    stem = shaken(Patches(SHAPE, dim=5, patch=4))
    weight = stem.linear.weight.view(5, 4, 4, 3).permute(0, 3, 1, 2)
    x = pixels().double() / 127.5 - 1
    expected = nn.functional.conv2d(x.permute(0, 3, 1, 2), weight, stem.linear.bias, stride=4)
    torch.testing.assert_close(stem(pixels()), expected.permute(0, 2, 3, 1), rtol=1e-9, atol=1e-9)
    assert stem.grid == (3, 2)


def test_patches_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="12 × 8 pixels cannot be divided into patches of 5"):
        Patches(SHAPE, patch=5)


def test_sinusoidal_positions_in_two_dimensions():
    part = SinusoidalGrid(8, (3, 5), base=100.0, scale=0.5)
    found = part(torch.zeros(1, 3, 5, 8))[0].detach()
    for i in range(3):
        for j in range(5):
            expected = []
            for place in (i, j):
                for k in range(2):
                    angle = place / 100.0 ** (k / 2)
                    expected += [0.5 * math.sin(angle), 0.5 * math.cos(angle)]
            torch.testing.assert_close(found[i, j], torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_learned_positions_are_a_row_and_a_column():
    part = shaken(LearnedGrid(4, (3, 2)))
    x = torch.randn(2, 3, 2, 4, dtype=torch.float64)
    found = part(x)
    for i in range(3):
        for j in range(2):
            torch.testing.assert_close(found[:, i, j], x[:, i, j] + part.rows[i] + part.columns[j])
    torch.testing.assert_close(NoGrid(4, (3, 2))(x), x)


def test_positions_of_a_table_are_one_vector_for_each_region():
    part = shaken(TableGrid(4, (3, 2)))
    x = torch.randn(2, 3, 2, 4, dtype=torch.float64)
    found = part(x)
    for i in range(3):
        for j in range(2):
            torch.testing.assert_close(found[:, i, j], x[:, i, j] + part.table[i, j])
    assert part.table.shape == (3, 2, 4)


@pytest.mark.parametrize(
    "stem",
    [partial(ConvStem, dims=[4, 8]), partial(ResNet, dims=[4, 8]), partial(Patches, dim=8, patch=4)],
    ids=["ConvStem", "ResNet", "Patches"],
)
@pytest.mark.parametrize(
    "stack, class_token",
    [(None, False), (MIXED, False), (MIXED, True)],
    ids=["plain", "stack", "class token"],
)
def test_a_picture_has_the_same_regions_in_every_batch(
    stem: partial, stack: partial | None, class_token: bool
):
    encoder = shaken(PictureEncoder((8, 8, 3), stem, SinusoidalGrid, stack, class_token)).eval()
    batch = pixels(3, (8, 8, 3))
    together, _ = encoder(batch)
    assert together.shape == (3, 4 + class_token, 8) and encoder.dim == 8 and encoder.grid == (2, 2)
    assert encoder.memory_mask(batch).shape == (3, 4 + class_token)
    assert encoder.position_names(4 + class_token)[-4:] == ["1,1", "1,2", "2,1", "2,2"]
    assert (encoder.position_names(5)[0] == "class") == class_token
    for index in range(3):
        alone, _ = encoder(batch[index : index + 1])
        torch.testing.assert_close(alone[0], together[index], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "stem",
    [partial(ConvStem, dims=[4]), partial(ResNet, dims=[2, 4]), partial(Patches, dim=4, patch=4)],
    ids=["ConvStem", "ResNet", "Patches"],
)
@pytest.mark.parametrize(
    "options",
    [
        {"position": LearnedGrid},
        {
            "position": TableGrid,
            "class_token": True,
            "stack": partial(Transformer, layers=1, heads=1, position=NoPosition, causal=False),
        },
    ],
    ids=["regions", "class token"],
)
def test_the_gradient_is_right(stem: partial, options: dict):
    encoder = shaken(PictureEncoder((4, 4, 3), stem, **options))
    names = [name for name, _ in encoder.named_parameters()]
    picture = pixels(2, (4, 4, 3))

    def regions(*weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(encoder, named, (picture,)).values

    weights = tuple(weight.detach().clone().requires_grad_() for weight in encoder.parameters())
    assert torch.autograd.gradcheck(regions, weights, eps=1e-6, atol=1e-5)


def test_a_class_token_is_a_vector_before_the_regions():
    """As the stack alone computes from [c; regions]; without it, nothing about the encoder is new."""
    stem = partial(Patches, dim=8, patch=4)
    encoder = shaken(PictureEncoder((8, 8, 3), stem, TableGrid, MIXED, class_token=True)).eval()
    batch = pixels(2, (8, 8, 3))
    regions = encoder.position(encoder.stem(batch)).flatten(1, 2)
    expected, _ = encoder.stack(torch.cat([encoder.class_token.expand(2, 1, 8), regions], 1))
    torch.testing.assert_close(encoder(batch).values, expected)
    torch.testing.assert_close(FirstPool(8)(expected), expected[:, 0])
    without = PictureEncoder((8, 8, 3), stem, TableGrid, MIXED)
    assert {name for name, _ in encoder.named_parameters()} - {
        name for name, _ in without.named_parameters()
    } == {"class_token"}
    with pytest.raises(ConfigError, match="a class token knows nothing of the picture without a stack"):
        PictureEncoder((8, 8, 3), stem, TableGrid, class_token=True)


def test_a_picture_encoder_refuses_what_is_no_picture_and_a_stack_that_reads_forward():
    with pytest.raises(ConfigError, match="use corpus Pictures"):
        PictureEncoder((40,))
    with pytest.raises(ConfigError, match="causal: false"):
        PictureEncoder(
            (8, 8, 3), partial(Patches, dim=8, patch=4), stack=partial(Transformer, layers=1, heads=2)
        )


# The decoder


def lstm(cell: LSTM, x_proj: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    state = type(cell.start(1))(*(torch.tensor(value)[None] for value in (h, c)))
    new, _ = cell.recorded_step(torch.tensor(x_proj)[None], state)
    return new[0][0].detach().numpy(), new[1][0].detach().numpy()


def test_the_decoder_of_regions_is_its_equation():
    """Gate, attention, h₀ and c₀ written out; the cell itself has its own reference."""
    part = shaken(RegionRNN(4, 3, dim=5, attention=partial(GatedAttention, score=Additive, dim=6)))
    regions = torch.randn(1, 7, 3, dtype=torch.float64)
    x = torch.randn(1, 4, 4, dtype=torch.float64)
    y, weights, _ = part.forward_with_weights(x, part.start(1, Memory(regions, None)))

    def line(layer: nn.Module, value: np.ndarray) -> np.ndarray:
        bias = 0 if layer.bias is None else layer.bias.detach().numpy()
        return layer.weight.detach().numpy() @ value + bias

    m = regions[0].numpy()
    mean = m.mean(0)
    h, c = np.tanh(line(part.init_proj, mean)), np.tanh(line(part.cell_proj[0], mean))
    attention, cell = part.attention, part.cells[0]
    for t in range(4):
        word = x[0, t].numpy()
        query, vector = line(attention.query, h), attention.score.vector.detach().numpy()
        scores = np.array([vector @ np.tanh(query + line(attention.key, region)) for region in m])
        alpha = np.exp(scores - scores.max())
        alpha /= alpha.sum()
        beta = 1 / (1 + np.exp(-line(attention.gate, h)))
        context = beta * (alpha @ m)
        x_proj = cell.project_input(x[:, t])[0].detach().numpy() + line(part.context_proj, context)
        h, c = lstm(cell, x_proj, h, c)
        expected = np.tanh(line(part.out_proj, np.concatenate([h, context, word])))
        np.testing.assert_allclose(y[0, t].detach().numpy(), expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(weights[0, 0, t].detach().numpy(), alpha, rtol=1e-9, atol=1e-9)


def test_the_regularizer_is_its_equation_and_counts_real_words_only():
    weights = torch.rand(2, 1, 3, 5, dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    expected = 0.0
    for row in range(2):
        for region in range(5):
            looked = sum(float(weights[row, 0, t, region]) for t in range(3) if mask[row, t])
            expected += (1 - looked) ** 2
    assert float(attention_spread_penalty(weights, mask)) == pytest.approx(expected / 5)


def test_the_regularizer_is_a_loss_of_training_alone():
    part = RegionRNN(4, 3, dim=5, regularizer=0.5)
    x, memory = torch.randn(2, 3, 4), Memory(torch.randn(2, 6, 3), None)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    with collect_aux_losses() as losses:
        part.forward(x, part.start(2, memory), mask)
    [loss] = losses
    _, weights, _ = part.forward_with_weights(x, part.start(2, memory), mask)
    torch.testing.assert_close(loss, 0.5 * attention_spread_penalty(weights, mask))
    part.eval()
    with collect_aux_losses() as losses:
        part.forward(x, part.start(2, memory), mask)
    assert losses == []


def test_a_caption_word_by_word_is_the_whole_caption():
    part = shaken(RegionRNN(4, 3, dim=5, attention=partial(GatedAttention, score=ScaledDot))).eval()
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    state = part.start(2, Memory(torch.randn(2, 6, 3, dtype=torch.float64), None))
    whole, _ = part(x, state)
    outputs = []
    for t in range(5):
        y, state = part(x[:, t : t + 1], state)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 1), whole, rtol=1e-9, atol=1e-9)
    with plain():
        state = part.start(2, Memory(torch.randn(2, 6, 3, dtype=torch.float64), None))
        torch.testing.assert_close(part(x, state)[0][:, :2], part(x[:, :2], state)[0])

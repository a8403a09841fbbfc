"""Fronts and encoders of sound: equations, padding, gradients, and pieces against the whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from seqloom.errors import ConfigError
from seqloom.nn import RNN, ConvolutionFront, Front, Pyramid, SoundEncoder, StackFrames, Transformer

FRONTS: dict[str, Callable[[], Front]] = {
    "stack": lambda: StackFrames(4, 3),
    "overlap": lambda: StackFrames(4, 5, 2),
    "projected": lambda: StackFrames(4, 2, dim=6),
    "convolution": lambda: ConvolutionFront(4, 6, 3),
    "pyramid": lambda: Pyramid(4, 3, 2),
}


def test_stacked_frames_are_those_of_a_loop() -> None:
    x = torch.randn(1, 11, 4)
    for frames, step in ((3, 3), (5, 2), (1, 1), (4, 3)):
        y = StackFrames(4, frames, step)(x)[0].numpy()
        padded = np.concatenate([x[0].numpy(), np.zeros((frames, 4))])
        rows = [padded[start : start + frames].ravel() for start in range(0, 11, step)]
        assert np.array_equal(y, np.stack(rows))


def test_the_convolution_is_the_sum_over_its_kernel() -> None:
    torch.manual_seed(0)
    front = ConvolutionFront(4, 6, 2)
    x = torch.randn(1, 9, 4)

    def convolve(x: np.ndarray, layer: nn.Conv2d) -> np.ndarray:  # (C, T, F) → (C', ⌈T / 2⌉, ⌈F / 2⌉)
        weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
        out = np.zeros((len(weight), -(-x.shape[1] // 2), -(-x.shape[2] // 2)))
        for c, t, f in np.ndindex(*out.shape):
            out[c, t, f] = bias[c] + (weight[c] * padded[:, 2 * t : 2 * t + 3, 2 * f : 2 * f + 3]).sum()
        return np.maximum(out, 0)

    h = convolve(convolve(x.numpy(), front.first), front.second)  # (C, T', F')
    rows = h.transpose(1, 0, 2).reshape(h.shape[1], -1)
    expected = rows @ front.project.weight.detach().numpy().T + front.project.bias.detach().numpy()
    assert np.allclose(front(x)[0].detach().numpy(), expected, atol=1e-5)


def test_a_pyramid_reads_pairs() -> None:
    torch.manual_seed(0)
    front = Pyramid(4, 3, 2)
    x = torch.randn(2, 8, 4)
    first, _ = front.layers[0](x.reshape(2, 4, 8))
    second, _ = front.layers[1](first.reshape(2, 2, 12))
    assert torch.allclose(front(x), second, atol=1e-6)


@pytest.mark.parametrize("name", FRONTS)
@pytest.mark.parametrize("length", [1, 7, 12])
def test_padding_changes_nothing(name: str, length: int) -> None:
    torch.manual_seed(0)
    front = FRONTS[name]().eval()
    x = torch.randn(1, length, 4)
    alone = front(x)
    assert alone.shape == (1, -(-length // front.step), front.dim)
    padded = torch.cat([x, torch.randn(1, 9, 4)], 1)
    mask = torch.arange(length + 9)[None] < length
    assert torch.allclose(front(padded, mask)[:, : alone.shape[1]], alone, atol=1e-5)
    assert front.reduce_mask(mask).sum() == alone.shape[1]


@pytest.mark.parametrize("name", FRONTS)
def test_gradients(name: str) -> None:
    torch.manual_seed(0)
    front = FRONTS[name]().double()
    x = torch.randn(1, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(front, (x,), atol=1e-5)


def encoder(front: Callable[[int], Front] = StackFrames, **options: object) -> SoundEncoder:
    torch.manual_seed(0)
    made = SoundEncoder((4,), lambda size: RNN(size, 6, layers=2, **options), front)
    with torch.no_grad():
        made.mean.copy_(torch.randn(4))
        made.deviation.copy_(torch.rand(4) + 0.5)
    return made.eval()


def test_an_encoder_normalises_and_reduces() -> None:
    sound = torch.randn(2, 9, 4)
    made = encoder(direction="both")
    memory = made(sound)
    x = ((sound - made.mean) / made.deviation).reshape(2, 3, 12)
    assert torch.allclose(memory.values, made.stack(x)[0], atol=1e-5)
    assert memory.mask is None
    mask = torch.arange(9) < torch.tensor([[9], [4]])
    assert made(sound, mask).mask.tolist() == [[True, True, True], [True, True, False]]
    assert not made.streams
    with pytest.raises(ConfigError, match="cannot stream"):
        made.start_stream()


@pytest.mark.parametrize("front", [StackFrames, lambda size: StackFrames(size, 4, 3)])
@pytest.mark.parametrize("sizes", [[1] * 20, [7, 0, 13], [20], [3, 3, 14]])
def test_pieces_give_the_outputs_of_the_whole(front: Callable[[int], Front], sizes: list[int]) -> None:
    made = encoder(front)
    sound = torch.randn(2, 20, 4)
    state = made.start_stream(2)
    outputs = []
    for index, piece in enumerate(sound.split(sizes, 1)):
        y, state = made.stream(piece, state, index == len(sizes) - 1)
        outputs.append(y)
    assert torch.allclose(torch.cat(outputs, 1), made(sound).values, atol=1e-5)


def test_any_layer_may_be_the_stack() -> None:
    made = SoundEncoder(
        (4,), lambda size: Transformer(size, layers=1, heads=2), lambda size: ConvolutionFront(size, 8)
    )
    assert made(torch.randn(2, 10, 4)).values.shape == (2, 3, 8)


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="would skip some"):
        StackFrames(4, 2, 3)
    with pytest.raises(ConfigError, match="use corpus Speech"):
        SoundEncoder((4, 4, 3), lambda size: RNN(size))

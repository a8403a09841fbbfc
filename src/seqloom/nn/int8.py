"""Weights in one byte: a quarter of the memory to read, which is what decoding waits for, at nearly the same numbers.

A row of a matrix has one scale; inputs are rounded to 16 bits, so finely that only the weights' rounding shows. Left out: cells of recurrent
layers, convolutions and whatever else is not called as a `Linear`, an `Output` or an `Embedding`; norms, biases and positions, which are
small; training.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused.linear import linear_int8
from seqloom.nn.basic import Linear
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import require
from seqloom.nn.output import Output, OutputLayer

PANEL = 16  # rows that stand together
INT8_MAX = 127


class Int8Linear(nn.Module):
    """y = Ŵ x̂ + b,   Ŵₙ = sₙ round(Wₙ / sₙ), sₙ = max |Wₙ| / 127;   x̂ = t round(x / t), t = max |x| / R, R = min(2¹⁵ - 1, ⌊(2³¹ - 1) / 127 D⌋)

    Products of whole numbers are summed exactly in 32 bits. The bytes stand as the product reads them: (panels, D/2, 16 rows, 2).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        require(
            self.in_features % 2 == 0,
            f"rows of {self.in_features} numbers cannot be paired: quantise matrices with an even number of columns",
        )
        scales = weight.detach().float().abs().amax(1) / INT8_MAX
        whole = (
            (weight.detach().float() / scales.clamp(min=1e-38)[:, None])
            .round()
            .clamp(-INT8_MAX, INT8_MAX)
            .to(torch.int8)
        )
        beyond = -self.out_features % PANEL
        panels = (
            F.pad(whole, (0, 0, 0, beyond))
            .view(-1, PANEL, self.in_features // 2, 2)
            .transpose(1, 2)
            .contiguous()
        )
        self.register_buffer("panels", panels)
        self.register_buffer("scales", F.pad(scales, (0, beyond)))
        self.register_buffer("bias", None if bias is None else F.pad(bias.detach().float(), (0, beyond)))
        self.register_buffer(
            "zero_bias", torch.zeros(self.out_features + beyond) if bias is None else None, persistent=False
        )

    @property
    def weight(self) -> Tensor:
        """Ŵ: (D', D)"""
        return self.dequantize_rows(torch.arange(self.out_features, device=self.scales.device))

    def dequantize_rows(self, ids: Tensor) -> Tensor:
        """Rows of Ŵ: (…) → (…, D)"""
        return self.panels[ids // PANEL, :, ids % PANEL].flatten(-2) * self.scales[ids][..., None]

    def quantize_input(self, x: Tensor) -> Tensor:
        """x̂"""
        most = min(2**15 - 1, (2**31 - 1) // (INT8_MAX * self.in_features))
        top = x.abs().amax(-1, keepdim=True)
        factor = (
            top.new_tensor(most) / top
        )  # a plain number would be multiplied by 1 / top, which rounds twice
        return torch.where(factor < 3e38, (x * factor).round() * (top / most), 0 * x)

    def forward(self, x: Tensor) -> Tensor:
        columns = self.out_features
        padded_bias = self.zero_bias if self.bias is None else self.bias
        y = linear_int8(x, columns, self.panels, self.scales, padded_bias)
        if y is not None:
            return y
        bias = None if self.bias is None else self.bias[:columns].to(x.dtype)
        return F.linear(self.quantize_input(x), self.weight.to(x.dtype), bias)


class Int8Output(OutputLayer):
    """logits = Ê h + b, as Output with its table in bytes."""

    def __init__(self, output: Output, product: Int8Linear):
        super().__init__()
        self.head, self.vocabulary, self.product = output.head, output.vocabulary, product

    def forward(self, h: Tensor) -> Tensor:
        return self.product(h if self.head is None else self.head(h))


class Int8Embedding(nn.Module):
    """x = row s of Ê, as Embedding with its table in bytes."""

    needs_full_sequence = False

    def __init__(self, embedding: Embedding, product: Int8Linear):
        super().__init__()
        self.factor, self.product = embedding.factor, product

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.product.dequantize_rows(ids) * self.factor


def quantize(model: nn.Module, kind: str = "int8") -> list[str]:
    """Puts the matrices of linear maps, outputs and embeddings into bytes, in place, one that is shared once. Gives the names of the matrices
    that stay as they were. The model can then no longer learn."""
    require(kind == "int8", f"weights can be quantised to int8, not {kind!r}")
    made: dict[int, Int8Linear] = {}

    def product(weight: Tensor, bias: Tensor | None) -> Int8Linear:
        if id(weight) not in made or bias is not None:
            made[id(weight)] = Int8Linear(weight, bias)
        return made[id(weight)]

    kinds: dict[type, Callable[[nn.Module], nn.Module]] = {
        Output: lambda part: Int8Output(part, product(part.table, part.bias)),
        Embedding: lambda part: Int8Embedding(part, product(part.table, None)),
        Linear: lambda part: Int8Linear(part.weight, part.bias),
    }
    new: dict[int, nn.Module] = {}
    for wanted in kinds:  # the output first, whose bias the embedding does not mind
        for parent in list(model.modules()):
            for name, part in list(
                parent._modules.items()
            ):  # named_children leaves out what stands at two places
                if type(part) is wanted and in_dim(part) % 2 == 0:
                    if id(part) not in new:
                        new[id(part)] = kinds[wanted](part)
                        new[id(part)].train(part.training)
                    setattr(parent, name, new[id(part)])
    model.requires_grad_(False)
    return [name for name, weight in model.named_parameters() if weight.dim() > 1]


def in_dim(part: nn.Module) -> int:
    return part.weight.shape[1] if isinstance(part, Linear) else part.table.shape[1]

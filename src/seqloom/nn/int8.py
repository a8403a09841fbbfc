"""Weights in int8: decoding is limited by memory bandwidth and reads a quarter of the bytes, at nearly the
same outputs.

Each row of a matrix has one scale; inputs are rounded to 16 bits, so finely that the error is that of the
weights. Left out: recurrent cells, convolutions and everything else that is not a `Linear`, an `Output` or
an `Embedding`; norms, biases and positions, which are small; training.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused.linear import linear_int8
from seqloom.nn.basic import Linear
from seqloom.nn.embedding import Embedding, Output, OutputLayer
from seqloom.nn.layer import require

PANEL = 16  # rows that are stored interleaved
INT8_MAX = 127


class Int8Linear(nn.Module):
    """y = Ŵ x̂ + b,   Ŵₙ = sₙ round(Wₙ / sₙ), sₙ = max |Wₙ| / 127;
    x̂ = t round(x / t), t = max |x| / R, R = min(2¹⁵ - 1, ⌊(2³¹ - 1) / 127 D⌋)

    Integer products are summed exactly in 32 bits. The bytes are stored in the order in which the kernel
    reads them: (panels, D/2, 16 rows, 2).
    """

    panels: Tensor
    scales: Tensor
    bias: Tensor | None  # padded with zeros to full panels
    zero_bias: Tensor  # read by the kernel if there is no bias, None otherwise

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        require(
            self.in_features % 2 == 0,
            f"a matrix with {self.in_features} columns cannot be stored in int8: "
            f"quantise matrices with an even number of columns",
        )
        weight = weight.detach().float()
        scales = weight.abs().amax(1) / INT8_MAX
        rounded = (weight / scales.clamp(min=1e-38)[:, None]).round().clamp(-INT8_MAX, INT8_MAX)
        padding = -self.out_features % PANEL
        padded = F.pad(rounded.to(torch.int8), (0, 0, 0, padding))
        panels = padded.view(-1, PANEL, self.in_features // 2, 2).transpose(1, 2).contiguous()
        padded_bias = None if bias is None else F.pad(bias.detach().float(), (0, padding))
        zero_bias = torch.zeros(self.out_features + padding) if bias is None else None
        self.register_buffer("panels", panels)
        self.register_buffer("scales", F.pad(scales, (0, padding)))
        self.register_buffer("bias", padded_bias)
        self.register_buffer("zero_bias", zero_bias, persistent=False)

    @property
    def padded_bias(self) -> Tensor:
        """The bias that the kernel adds, zeros if there is none."""
        return self.zero_bias if self.bias is None else self.bias

    @property
    def weight(self) -> Tensor:
        """Ŵ: (D', D)"""
        return self.dequantize_rows(torch.arange(self.out_features, device=self.scales.device))

    def dequantize_rows(self, ids: Tensor) -> Tensor:
        """Rows of Ŵ: (…) → (…, D)"""
        return self.panels[ids // PANEL, :, ids % PANEL].flatten(-2) * self.scales[ids][..., None]

    def quantize_input(self, x: Tensor) -> Tensor:
        """x̂: (…, D) → (…, D)"""
        limit = min(2**15 - 1, (2**31 - 1) // (INT8_MAX * self.in_features))  # R
        largest = x.abs().amax(-1, keepdim=True)
        # torch would multiply a Python number by 1 / largest, which rounds twice
        factor = largest.new_tensor(limit) / largest
        return torch.where(factor < 3e38, (x * factor).round() * (largest / limit), 0 * x)

    def forward(self, x: Tensor) -> Tensor:
        y = linear_int8(x, self.out_features, self.panels, self.scales, self.padded_bias)
        if y is not None:
            return y
        bias = None if self.bias is None else self.bias[: self.out_features].to(x.dtype)
        return F.linear(self.quantize_input(x), self.weight.to(x.dtype), bias)


class Int8Output(OutputLayer):
    """logits = Ê h + b: Output with its table in int8."""

    def __init__(self, output: Output, product: Int8Linear):
        super().__init__()
        self.head = output.head
        self.vocabulary = output.vocabulary
        self.product = product

    def forward(self, h: Tensor) -> Tensor:
        return self.product(h if self.head is None else self.head(h))


class Int8Embedding(nn.Module):
    """x = row s of Ê: Embedding with its table in int8."""

    needs_full_sequence = False

    def __init__(self, embedding: Embedding, product: Int8Linear):
        super().__init__()
        self.factor = embedding.factor
        self.product = product

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.product.dequantize_rows(ids) * self.factor


def quantize(model: nn.Module, kind: str = "int8") -> list[str]:
    """Replaces the linear maps, outputs and embeddings of a model by their int8 forms, in place; parts that
    share a matrix share its int8 form. Returns the names of the matrices that are not quantised. The model
    can no longer be trained.
    """
    require(kind == "int8", f"weights can be quantised to int8, not {kind!r}")
    tables: dict[int, Int8Linear] = {}

    def shared_table(table: Tensor, bias: Tensor | None) -> Int8Linear:
        if id(table) not in tables or bias is not None:
            tables[id(table)] = Int8Linear(table, bias)
        return tables[id(table)]

    def quantized(part: Output | Embedding | Linear) -> nn.Module:
        if isinstance(part, Output):
            return Int8Output(part, shared_table(part.table, part.bias))
        if isinstance(part, Embedding):
            return Int8Embedding(part, shared_table(part.table, None))
        return Int8Linear(part.weight, part.bias)

    replacements: dict[int, nn.Module] = {}
    for cls in (Output, Embedding, Linear):  # outputs first: an embedding can share a product that has a bias
        for parent in list(model.modules()):
            # named_children would skip a part that occurs a second time
            for name, part in list(parent._modules.items()):
                # a subclass may compute something else
                if type(part) is not cls or not isinstance(part, (Output, Embedding, Linear)):
                    continue
                if in_dim(part) % 2 == 1:
                    continue
                if id(part) not in replacements:
                    replacements[id(part)] = quantized(part).train(part.training)
                setattr(parent, name, replacements[id(part)])
    model.requires_grad_(False)
    return [name for name, weight in model.named_parameters() if weight.dim() > 1]


def in_dim(part: Output | Embedding | Linear) -> int:
    """The number of columns of the part's matrix."""
    matrix = part.weight if isinstance(part, Linear) else part.table
    return matrix.shape[1]

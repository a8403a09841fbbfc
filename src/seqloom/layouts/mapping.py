"""Tables that map our weight names to the tensors of another library, for reading and writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]
Layout = Literal["same", "transposed", "row"]


class WeightMapping(NamedTuple):
    """Our weight `name` is the tensor `hf_names[0]`, or several concatenated along axis 0, `rows` of each.

    `layout` is how the other library stores the tensor: as we do ("same"), "transposed", or as a "row" (1,
    …). `default` fills the tensor when we write and have no such weight, and, if the tensor is `optional`,
    fills the weight when we read and the tensor is missing.
    """

    name: str
    hf_names: tuple[str, ...]
    rows: tuple[int, ...] = ()
    layout: Layout = "same"
    default: float | None = None
    optional: bool = False

    def expected_shapes(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The shapes of the tensors `hf_names` for a weight of the given shape."""
        parts = [(rows, *shape[1:]) for rows in self.rows or shape[:1]]
        if self.layout == "transposed":
            return [part[::-1] for part in parts]
        if self.layout == "row":
            return [(1, *part) for part in parts]
        return parts

    def from_hf(self, tensor: Tensor) -> Tensor:
        """The tensor in our layout."""
        if self.layout == "transposed":
            return tensor.T
        return tensor[0] if self.layout == "row" else tensor

    def to_hf(self, tensor: Tensor) -> Tensor:
        """The tensor in the layout of the other library."""
        if self.layout == "transposed":
            return tensor.T
        return tensor[None] if self.layout == "row" else tensor


def same(name: str, hf_name: str) -> WeightMapping:
    """One tensor, stored as ours."""
    return WeightMapping(name, (hf_name,))


def weight_and_bias(name: str, hf_name: str, norm: bool = False) -> list[WeightMapping]:
    """Weight and bias of a linear layer or of a norm. The other library always has both."""
    if norm:
        weight = WeightMapping(f"{name}.gain", (f"{hf_name}.weight",), default=1.0)
    else:
        weight = same(f"{name}.weight", f"{hf_name}.weight")
    return [weight, WeightMapping(f"{name}.bias", (f"{hf_name}.bias",), default=0.0)]


def stacked(
    name: str, hf_names: Iterable[str], rows: tuple[int, ...], bias: bool = True
) -> list[WeightMapping]:
    """Several linear layers of the other library that are one linear layer of ours."""
    hf_names = tuple(hf_names)
    weights = tuple(f"{hf_name}.weight" for hf_name in hf_names)
    mappings = [WeightMapping(f"{name}.weight", weights, rows)]
    if bias:
        biases = tuple(f"{hf_name}.bias" for hf_name in hf_names)
        mappings.append(WeightMapping(f"{name}.bias", biases, rows, default=0.0))
    return mappings


def check(mappings: Iterable[WeightMapping], shapes: Shapes, hf_shapes: Shapes, source: str) -> None:
    """Checks that every weight has its tensors, every tensor its weight, and that all shapes agree.

    Raises a ValueError that names the first weight or tensor that does not fit.
    """
    used: set[str] = set()
    mappings = list(mappings)
    for missing in sorted(set(shapes) - {mapping.name for mapping in mappings}):
        raise ValueError(
            f"{source}: no tensor in the file holds the model's {missing}; "
            "its config.json describes another model"
        )
    for mapping in mappings:
        if mapping.name not in shapes:
            continue
        expected = mapping.expected_shapes(shapes[mapping.name])
        for hf_name, shape in zip(mapping.hf_names, expected, strict=True):
            if hf_name not in hf_shapes:
                if mapping.optional:
                    continue
                raise ValueError(f"{source}: the tensor {hf_name} is missing; get the whole checkpoint again")
            if hf_shapes[hf_name] != shape:
                raise ValueError(
                    f"{source}: {hf_name} has shape {hf_shapes[hf_name]}, but config.json means {shape}; "
                    "the two do not belong together"
                )
            used.add(hf_name)
    for extra in sorted(set(hf_shapes) - used):
        raise ValueError(
            f"{source}: the tensor {extra} has no place in this kind of model; "
            "the weights are not those of its config.json"
        )


def read(
    mappings: Iterable[WeightMapping], shapes: Shapes, get: Callable[[str], Tensor | None]
) -> dict[str, Tensor]:
    """Our weights from the tensors of the other library; `get` returns a tensor by name, or None."""
    weights: dict[str, Tensor] = {}
    for mapping in mappings:
        if mapping.name not in shapes:
            continue
        parts = []
        expected = mapping.expected_shapes(shapes[mapping.name])
        for hf_name, shape in zip(mapping.hf_names, expected, strict=True):
            tensor = get(hf_name)
            if tensor is None:
                tensor = torch.full(shape, mapping.default or 0.0)
            else:
                tensor = tensor.to(torch.float32)
            if not tensor.isfinite().all():
                raise ValueError(
                    f"the tensor {hf_name} holds NaN or infinity: its weights have diverged or are damaged; "
                    "get another checkpoint"
                )
            parts.append(mapping.from_hf(tensor))
        weight = torch.cat(parts) if len(parts) > 1 else parts[0]
        weights[mapping.name] = weight.contiguous()
    return weights


def write(
    mappings: Iterable[WeightMapping], weights: Mapping[str, Tensor], missing_shapes: Shapes
) -> dict[str, Tensor]:
    """The tensors of the other library; `missing_shapes` are those of weights that we do not have."""
    tensors: dict[str, Tensor] = {}
    for mapping in mappings:
        weight = weights.get(mapping.name)
        if weight is None:
            if mapping.default is None:
                raise ValueError(f"the run has no weight {mapping.name}, which such a folder needs")
            weight = torch.full(missing_shapes[mapping.name], mapping.default)
        parts = weight.split(list(mapping.rows)) if mapping.rows else [weight]
        for hf_name, part in zip(mapping.hf_names, parts, strict=True):
            tensors[hf_name] = mapping.to_hf(part).contiguous()
    return tensors

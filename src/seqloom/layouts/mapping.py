"""Which tensor of a file is which weight of a model, told once and read both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]


class WeightMapping(NamedTuple):
    """Our weight `ours` is their tensors `theirs`, one above the other where there are several, `rows` of each.

    `way` is how theirs lies: as ours, "transposed", or "row" with a one in front. `fill` stands in for what we lack when we write, and,
    where they are `optional`, for what they lack when we read.
    """

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()
    way: str = "same"
    fill: float | None = None
    optional: bool = False

    def wanted(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The shapes of theirs, from that of ours."""
        parts = [(rows, *shape[1:]) for rows in self.rows or shape[:1]]
        return [{"same": part, "transposed": part[::-1], "row": (1, *part)}[self.way] for part in parts]


def same(ours: str, theirs: str) -> WeightMapping:
    return WeightMapping(ours, (theirs,))


def weight_and_bias(ours: str, theirs: str, norm: bool = False) -> list[WeightMapping]:
    """Weight and bias of a linear map or a norm; the others always have both."""
    weight = (
        WeightMapping(f"{ours}.gain", (f"{theirs}.weight",), fill=1.0)
        if norm
        else same(f"{ours}.weight", f"{theirs}.weight")
    )
    return [weight, WeightMapping(f"{ours}.bias", (f"{theirs}.bias",), fill=0.0)]


def stacked(
    ours: str, theirs: Iterable[str], rows: tuple[int, ...], bias: bool = True
) -> list[WeightMapping]:
    """Several linear maps of theirs that are one of ours."""
    theirs = tuple(theirs)
    kinds = ("weight", "bias") if bias else ("weight",)
    return [
        WeightMapping(
            f"{ours}.{kind}",
            tuple(f"{one}.{kind}" for one in theirs),
            rows,
            fill=0.0 if kind == "bias" else None,
        )
        for kind in kinds
    ]


def check(entries: Iterable[WeightMapping], ours: Shapes, theirs: Shapes, source: str) -> None:
    """Every weight of ours has its tensors, every tensor of theirs its weight, and all shapes fit; else a sentence that names the first."""
    used: set[str] = set()
    entries = list(entries)
    for missing in sorted(set(ours) - {entry.ours for entry in entries}):
        raise ValueError(
            f"{source}: nothing in the file is the model's {missing}; its config.json describes another model"
        )
    for entry in entries:
        if entry.ours not in ours:
            continue
        for name, wanted in zip(entry.theirs, entry.wanted(ours[entry.ours]), strict=True):
            if name not in theirs:
                if entry.optional:
                    continue
                raise ValueError(f"{source}: the tensor {name} is missing; get the whole checkpoint again")
            if theirs[name] != wanted:
                raise ValueError(
                    f"{source}: {name} has shape {theirs[name]} where config.json means {wanted}; the two do not belong together"
                )
            used.add(name)
    for extra in sorted(set(theirs) - used):
        raise ValueError(
            f"{source}: the tensor {extra} has no place in this kind of model; it is not what its config.json says"
        )


def read(
    entries: Iterable[WeightMapping], ours: Shapes, get: Callable[[str], Tensor | None]
) -> dict[str, Tensor]:
    """Our weights from their tensors; `get` gives one by name, None where it is not there."""
    found: dict[str, Tensor] = {}
    for entry in entries:
        if entry.ours not in ours:
            continue
        parts = []
        for name, shape in zip(entry.theirs, entry.wanted(ours[entry.ours]), strict=True):
            tensor = get(name)
            tensor = torch.full(shape, entry.fill or 0.0) if tensor is None else tensor.to(torch.float32)
            if not tensor.isfinite().all():
                raise ValueError(
                    f"the tensor {name} holds NaN or infinity: its weights have diverged or are damaged; get another checkpoint"
                )
            parts.append(
                {"same": lambda t: t, "transposed": lambda t: t.T, "row": lambda t: t[0]}[entry.way](tensor)
            )
        found[entry.ours] = (torch.cat(parts) if len(parts) > 1 else parts[0]).contiguous()
    return found


def write(entries: Iterable[WeightMapping], ours: Mapping[str, Tensor], shapes: Shapes) -> dict[str, Tensor]:
    """Their tensors from our weights; `shapes` are those of ours that we lack and they need."""
    made: dict[str, Tensor] = {}
    for entry in entries:
        tensor = ours.get(entry.ours)
        if tensor is None:
            if entry.fill is None:
                raise ValueError(f"the run has no {entry.ours}, which such a folder needs")
            tensor = torch.full(shapes[entry.ours], entry.fill)
        parts = tensor.split(list(entry.rows)) if entry.rows else [tensor]
        for name, part in zip(entry.theirs, parts, strict=True):
            made[name] = {"same": lambda t: t, "transposed": lambda t: t.T, "row": lambda t: t[None]}[
                entry.way
            ](part).contiguous()
    return made

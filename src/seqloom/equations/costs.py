"""What each part of a model costs: the options it was made with, its own parameters, the FLOPs that it computes itself.

Counted, not guessed. Left out: work by coordinate (tanh, ⊙, softmax, sums), as usual where FLOPs are compared; memory traffic.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.fused.dispatch import plain
from seqloom.train.flops import flop_counter

ConstructorArgs = dict[int, dict[str, Any]]


@contextmanager
def record_constructor_args(said: ConstructorArgs) -> Iterator[None]:
    """Inside, notes what each part's constructor is called with: id of the part → argument → value. Parts keep no copy of their options,
    and need none for this."""

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "__init__":
            given = dict(frame.f_locals)
            made = given.pop("self", None)
            if isinstance(made, nn.Module) and getattr(type(made).__init__, "__code__", None) is frame.f_code:
                said[id(made)] = {name: value for name, value in given.items() if name != "__class__"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def explained_parts(model: nn.Module) -> dict[str, nn.Module]:
    """Place → part, for each that says an equation of its own; torch's modules are the matrices of the part around them."""
    return {
        place: part
        for place, part in model.named_modules()
        if not type(part).__module__.startswith("torch.")
        and not isinstance(part, nn.Linear)
        and getattr(part, "rate", None) != 0.0
    }


def owner_of(place: str, parts: dict[str, nn.Module]) -> str:
    """The innermost listed place that `place` is or lies in."""
    while place not in parts:
        place = place.rpartition(".")[0]
    return place


def weights(
    model: nn.Module, parts: dict[str, nn.Module]
) -> tuple[dict[str, dict[str, Tensor]], dict[str, dict[str, Tensor]]]:
    """Place → name → parameter. Each parameter is held once, by the first part that has it; with the others it is shared."""
    held: dict[str, dict[str, Tensor]] = {place: {} for place in parts}
    shared: dict[str, dict[str, Tensor]] = {place: {} for place in parts}
    counted: set[int] = set()
    for name, part in model.named_modules():
        place = owner_of(name, parts)
        for own, parameter in part.named_parameters(recurse=False):
            side = shared if id(parameter) in counted else held
            side[place][f"{name}.{own}".removeprefix(".").removeprefix(f"{place}.")] = parameter
            counted.add(id(parameter))
    return held, shared


class FlopsByPart(TorchDispatchMode):
    """Adds up the FLOPs of every product under the part whose method asks for it, be it `forward`, `step` or `start`."""

    def __init__(self, parts: dict[str, nn.Module]):
        super().__init__()
        self.places = {id(part): place for place, part in parts.items()}
        self.flops = dict.fromkeys(parts, 0)
        self.known = flop_counter().flop_registry

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        packet = func._overloadpacket
        if packet not in self.known:
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = func(*args, **(kwargs or {}))
        if packet in self.known:
            self.flops[self.asking()] += self.known[packet](*args, **(kwargs or {}), out_val=result)
        return result

    def asking(self) -> str:
        """The place of the innermost part on the call stack."""
        frame = sys._getframe(1)
        while frame is not None:
            if (place := self.places.get(id(frame.f_locals.get("self")))) is not None:
                return place
            frame = frame.f_back
        return ""


def flops(model: nn.Module, parts: dict[str, nn.Module], vocabulary: int, length: int) -> dict[str, int]:
    """Place → FLOPs of one forward pass over `length` tokens (and, for a translator, a source as long), in plain form."""
    ids = torch.arange(length, device=next(model.parameters()).device).remainder(vocabulary)[None]
    model.eval()
    with torch.no_grad(), plain(), FlopsByPart(parts) as counted:
        model(ids, model.start(ids) if model.task == "translation" else None)
    return counted.flops

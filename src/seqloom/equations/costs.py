"""The arguments, parameters and FLOPs of each part of a model, without those of the parts inside it.

FLOPs are counted by running the model. Left out: elementwise work (tanh, ⊙, softmax, sums), as usual in comparisons of
FLOPs, and memory traffic.
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
from seqloom.models import Model
from seqloom.nn.basic import Dropout
from seqloom.train.budget import flop_counter

ConstructorArgs = dict[int, dict[str, Any]]
"""id of a part → argument of its constructor → value"""


@contextmanager
def record_constructor_args(args: ConstructorArgs) -> Iterator[None]:
    """Records the arguments of the constructor of every module that is built inside this context.

    Parts need no copy of their options for this: a profile function, which Python sets for the current thread only,
    reads them from the frames of the calls.
    """

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "__init__":
            values = dict(frame.f_locals)
            module = values.pop("self", None)
            if not isinstance(module, nn.Module):
                return
            if getattr(type(module).__init__, "__code__", None) is frame.f_code:
                args[id(module)] = {name: value for name, value in values.items() if name != "__class__"}

    previous = sys.getprofile()
    sys.setprofile(record)
    try:
        yield
    finally:
        sys.setprofile(previous)


def explained_parts(model: nn.Module) -> dict[str, nn.Module]:
    """Place → part, for every part with an equation. torch's modules are matrices of the part around them."""
    return {place: part for place, part in model.named_modules() if has_equation(part)}


def has_equation(part: nn.Module) -> bool:
    if isinstance(part, Dropout) and part.rate == 0:
        return False
    return not type(part).__module__.startswith("torch.") and not isinstance(part, nn.Linear)


def owner_of(place: str, parts: dict[str, nn.Module]) -> str:
    """The place of the innermost of `parts` that is at `place` or contains it."""
    while place not in parts:
        place = place.rpartition(".")[0]
    return place


def weights(
    model: nn.Module, parts: dict[str, nn.Module]
) -> tuple[dict[str, dict[str, Tensor]], dict[str, dict[str, Tensor]]]:
    """(own, shared), each place → name → parameter. A parameter is own of the first part that has it, shared for others."""
    own: dict[str, dict[str, Tensor]] = {place: {} for place in parts}
    shared: dict[str, dict[str, Tensor]] = {place: {} for place in parts}
    counted: set[int] = set()
    for name, part in model.named_modules():
        place = owner_of(name, parts)
        for parameter_name, parameter in part.named_parameters(recurse=False):
            full_name = f"{name}.{parameter_name}".removeprefix(".")
            side = shared if id(parameter) in counted else own
            side[place][full_name.removeprefix(f"{place}.")] = parameter
            counted.add(id(parameter))
    return own, shared


class FlopsByPart(TorchDispatchMode):
    """Adds the FLOPs of every matrix product to the part whose method calls it, be it `forward`, `step` or `start`."""

    def __init__(self, parts: dict[str, nn.Module]):
        super().__init__()
        self.places = {id(part): place for place, part in parts.items()}
        self.flops = dict.fromkeys(parts, 0)
        self.formulas = flop_counter().flop_registry

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        packet = func._overloadpacket
        if packet not in self.formulas:
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = func(*args, **(kwargs or {}))
        if packet in self.formulas:
            self.flops[self.current_part()] += self.formulas[packet](*args, **(kwargs or {}), out_val=result)
        return result

    def current_part(self) -> str:
        """The place of the innermost part on the call stack."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if (place := self.places.get(id(frame.f_locals.get("self")))) is not None:
                return place
            frame = frame.f_back
        return ""


def flops(model: Model, parts: dict[str, nn.Module], vocabulary: int, length: int) -> dict[str, int]:
    """Place → FLOPs of one forward pass over `length` tokens in plain form; a translator reads a source as long, a captioner one picture."""
    ids = torch.arange(length, device=next(model.parameters()).device).remainder(vocabulary)[None]
    model.eval()
    with torch.no_grad(), plain(), FlopsByPart(parts) as counter:
        model.run_example(ids)
    return counter.flops

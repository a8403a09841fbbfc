"""When the fast form of a part may run: the switch to plain forms, the checks of dtype and device, the
loading of compiled kernels.

Every module of `fused/` asks here before it loads a kernel. Without a working numba no kernel is loaded:
every part computes its plain form, and one warning says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

_plain: ContextVar[bool] = ContextVar("plain", default=False)


def fused_enabled() -> bool:
    """Whether fast forms may be used here. The switch belongs to the context: each thread has its own."""
    return not _plain.get()


@contextmanager
def plain() -> Iterator[None]:
    """Inside, every part computes its equation literally: for tests, for counting FLOPs, for reading values."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def kernels_available() -> bool:
    """Whether compiled kernels can be loaded. The first call warns if they cannot."""
    available: bool = load_kernels("available").AVAILABLE
    return available


@cache
def load_kernels(name: str) -> ModuleType:
    """A module of `seqloom.kernels`, imported when first used: numba takes half a second to import."""
    return import_module(f"seqloom.kernels.{name}")


def num_threads() -> int:
    """How many threads a kernel may use: torch's number, or 1 without libgomp."""
    return torch.get_num_threads() if load_kernels("parallel").HAS_GOMP else 1


def supports(*tensors: Tensor) -> bool:
    """Whether compiled kernels may compute with these: fast forms enabled, all float32 or all float64, on the
    CPU, without autocast.
    """
    if not fused_enabled():
        return False
    types = {(tensor.device.type, tensor.dtype) for tensor in tensors}
    return (
        types in ({("cpu", torch.float32)}, {("cpu", torch.float64)})
        and not torch.is_autocast_enabled("cpu")
        and kernels_available()
    )


def is_f32_inference(x: Tensor) -> bool:
    """Whether the decoding kernels may compute with x: fast forms enabled, float32 on the CPU, no gradient,
    no autocast.
    """
    return (
        x.dtype is torch.float32
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and fused_enabled()
        and not torch.is_autocast_enabled("cpu")
        and kernels_available()
    )


_zeros = torch.zeros(0)


def zero_bias(length: int) -> Tensor:
    """A shared, read-only tensor of at least `length` float32 zeros, for kernels that always add a bias."""
    global _zeros
    if len(_zeros) < length:
        with torch.inference_mode(False):
            _zeros = torch.zeros(length)
    return _zeros

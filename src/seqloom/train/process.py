"""The process of a training and its machine: ranks under torchrun, signals that ask it to stop, memory that the allocator keeps, and what
the bits depend on: versions and the processor.

A single process is a group of size 1. torch is imported by the functions that need it: others ask for the memory of the machine only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from seqloom.errors import TrainingError

if TYPE_CHECKING:
    from torch import Tensor

COMPUTING_PACKAGES = ("numpy", "numba")  # besides torch
MAX_APART = 1e-3  # relative difference of the norms of the weights of two processes
LOST = ("gloo", "Connection closed by peer", "Connection reset by peer", "Timed out waiting", "Broken pipe")
TIMEOUT = timedelta(minutes=30)  # after which a silent process counts as lost: reading data may take long


class ProcessGroup(NamedTuple):
    """The rank of this process and the number of processes."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files and the log."""
        return self.rank == 0


def init() -> ProcessGroup:
    """Joins the processes that torchrun started; without torchrun, a group of one process."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return ProcessGroup()
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=TIMEOUT)
    return ProcessGroup(dist.get_rank(), dist.get_world_size())


def shutdown() -> None:
    """Leaves the process group, if this process is in one. Only after success: see `leave_after_error`."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def leave_after_error(code: int) -> None:
    """Ends a process at once whose training failed in a group; its error has been printed. Does nothing in other processes.

    The destructor of a group waits for its threads: for ever if one of them needs the interpreter to free the gradients of the last step, and
    for `TIMEOUT` if they wait for a process that has stopped. So a group is not freed after an error.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            stream.flush()
    os._exit(code)


def all_sum(group: ProcessGroup, *numbers: float) -> list[float]:
    """Each number summed over all processes."""
    if group.size == 1:
        return list(numbers)
    import torch
    import torch.distributed as dist

    tensor = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.tolist()


def all_mean(group: ProcessGroup, *numbers: float) -> list[float]:
    """The mean of each number over all processes."""
    return [total / group.size for total in all_sum(group, *numbers)]


def gather(group: ProcessGroup, tensor: Tensor) -> list[Tensor]:
    """The tensor of every process, in the order of their ranks."""
    if group.size == 1:
        return [tensor]
    import torch
    import torch.distributed as dist

    tensors = [torch.empty_like(tensor) for _ in range(group.size)]
    dist.all_gather(tensors, tensor.contiguous())
    return tensors


def gather_named(group: ProcessGroup, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The named tensors of every process, which may differ in their shapes but not in their names."""
    if group.size == 1:
        return [tensors]
    import torch

    result: list[dict[str, Tensor]] = [{} for _ in range(group.size)]
    for name, tensor in tensors.items():
        shapes = gather(group, torch.tensor(tensor.shape, dtype=torch.int64))
        longest = max(int(shape.prod()) for shape in shapes)
        flat = tensor.new_zeros(longest)
        flat[: tensor.numel()] = tensor.flatten()
        for values, shape, rank_tensors in zip(gather(group, flat), shapes, result, strict=True):
            rank_tensors[name] = values[: int(shape.prod())].view(shape.tolist())
    return result


def agree(group: ProcessGroup, error: Exception | None) -> None:
    """Raises in every process if one of them has an error: the error itself there, and an error that says so in the others."""
    (failed,) = all_sum(group, error is not None)
    if error is not None:
        raise error
    if failed:
        raise TrainingError("another process of this training has refused it; its message says why")


def check_weights(group: ProcessGroup, weights: Iterable[Tensor]) -> None:
    """Raises in every process if the weights of one of them are not finite, or are far from those of the others: they were equal when the
    training began, and every process takes the same steps. Other processors may round otherwise, so a small difference is allowed."""
    if group.size == 1:
        return
    import torch

    total = sum(
        (weight.detach().double().square().sum() for weight in weights), torch.zeros((), dtype=torch.float64)
    )
    norms = torch.stack(gather(group, total.cpu().reshape(1))).sqrt()
    apart = (norms.max() - norms.min()) / norms.abs().max().clamp(min=1e-12)
    if not torch.isfinite(norms).all() or apart > MAX_APART:
        shown = ", ".join(f"{norm:.6g}" for norm in norms.flatten().tolist())
        raise TrainingError(
            f"the processes have different weights (norms {shown}): one of them computed something else; "
            "give the same command again, it goes on from the last checkpoint"
        )


@contextmanager
def name_lost_process() -> Iterator[None]:
    """Inside, the error of a process that has lost another one says so."""
    try:
        yield
    except RuntimeError as error:
        import torch.distributed as dist

        text = str(error)
        if not (isinstance(error, dist.DistError) or any(sign in text for sign in LOST)):
            raise
        raise TrainingError(
            "another process of this training has ended or does not answer; its messages say why. "
            "Give the same command again, it goes on from the last checkpoint"
        ) from error


def barrier(group: ProcessGroup) -> None:
    """Waits until all processes are here."""
    if group.size > 1:
        import torch.distributed as dist

        dist.barrier()


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
RETAIN_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Keeps freed memory for the next step instead of returning it to the system.

    The system zeroes every page before it hands it out again, which takes up to a tenth of a step's time. The peak
    memory stays the same. Returns False if the C library does not have this setting.
    """
    try:
        library = ctypes.CDLL(None)
        return all(library.mallopt(name, RETAIN_BYTES) == 1 for name in (TRIM_THRESHOLD, MMAP_THRESHOLD))
    except (AttributeError, OSError, TypeError):
        return False


Handler = Callable[[int, FrameType | None], Any] | int | None


class Signals:
    """A context that catches both signals; `received` is the number of the signal that arrived, or 0.

    Outside the main thread, where Python allows no signal handlers, it catches nothing.
    """

    def __init__(self) -> None:
        self.received = 0
        self.previous: dict[int, Handler] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.previous[number] = signal.signal(number, self.handle)
        return self

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)
        self.received = number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)


def fingerprint() -> dict[str, str]:
    """What the bits of a training depend on besides its config, data and threads: versions and the processor."""
    import torch

    from seqloom import __version__

    return {
        "seqloom": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{name: installed_version(name) or "" for name in COMPUTING_PACKAGES},
        "system": platform.system(),
        "processor": processor_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def processor_name() -> str:
    """The name of the processor, as /proc/cpuinfo has it where there is one."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_memory() -> int:
    """The memory of this machine in bytes; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0

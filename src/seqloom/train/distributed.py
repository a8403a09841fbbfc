"""Several processes under torchrun: ranks, sums over all ranks, tensors of all ranks. A single process is a world of size 1."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class World(NamedTuple):
    """The rank of this process and the number of processes."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files and the log."""
        return self.rank == 0


def init() -> World:
    """Joins the processes that torchrun started; without torchrun, a world of one process."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return World()
    if not dist.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=timedelta(minutes=30))
    return World(dist.get_rank(), dist.get_world_size())


def shutdown() -> None:
    """Leaves the process group, if this process is in one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def all_sum(world: World, *numbers: float) -> list[float]:
    """Each number summed over all processes."""
    if world.size == 1:
        return list(numbers)
    tensor = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.tolist()


def gather(world: World, tensor: Tensor) -> list[Tensor]:
    """The tensor of every process, in the order of their ranks."""
    if world.size == 1:
        return [tensor]
    tensors = [torch.empty_like(tensor) for _ in range(world.size)]
    dist.all_gather(tensors, tensor.contiguous())
    return tensors


def barrier(world: World) -> None:
    """Waits until all processes are here."""
    if world.size > 1:
        dist.barrier()

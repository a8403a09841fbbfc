"""Several processes under torchrun: who we are, sums over all, tensors of all. One process is the same code with a world of 1."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class World(NamedTuple):
    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0


def init() -> World:
    """Join the processes that torchrun started; without torchrun, a world of one."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return World()
    if not dist.is_initialized():
        dist.init_process_group(
            "nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(minutes=30)
        )
    return World(dist.get_rank(), dist.get_world_size())


def shutdown() -> None:
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
    """The tensor of every process, in order of rank."""
    if world.size == 1:
        return [tensor]
    tensors = [torch.empty_like(tensor) for _ in range(world.size)]
    dist.all_gather(tensors, tensor.contiguous())
    return tensors


def barrier(world: World) -> None:
    if world.size > 1:
        dist.barrier()

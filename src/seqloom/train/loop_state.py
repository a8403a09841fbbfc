"""What a checkpoint holds of a training loop: its tensors by file, and its state as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from seqloom.nn.state import state_tensors
from seqloom.run import named_weights
from seqloom.train import process

if TYPE_CHECKING:
    from seqloom.train.loop import TrainLoop


DATA = "data."  # before the names of a source's tensors in a checkpoint


@runtime_checkable
class CarriesTensors(Protocol):
    """A source of batches that depends on more than its cursor, as one that the model samples does. `ended` says that training should
    end."""

    ended: bool

    def tensors(self) -> dict[str, Tensor]: ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None: ...


def checkpoint_tensors(loop: TrainLoop) -> dict[str, dict[str, Tensor]]:
    """The tensors of a checkpoint by the name of their file: weights, moments, and the random and carried state of each rank."""
    local_tensors = [torch.get_rng_state(), *(tensor.detach() for tensor in state_tensors(loop.state))]
    gathered = [process.gather(loop.group, tensor) for tensor in local_tensors]
    source = loop.job.train
    carried = process.gather_named(loop.group, source.tensors() if isinstance(source, CarriesTensors) else {})
    names = {id(p): name for name, p in loop.job.model.named_parameters()}
    moments = {
        f"{names[id(p)]}:{key}": value
        for p, state in loop.optimizer.state.items()
        for key, value in state.items()
    }
    files = {"model": named_weights(loop.job.model), "optim": moments}
    for rank in range(loop.group.size):
        files[f"rank-{rank}"] = {str(index): ranks[rank] for index, ranks in enumerate(gathered)}
        files[f"rank-{rank}"] |= {f"{DATA}{name}": tensor for name, tensor in carried[rank].items()}
    return files


def checkpoint_metadata(loop: TrainLoop) -> dict[str, Any]:
    """The content of a checkpoint's state.json."""
    return {
        "step": loop.step,
        "steps": loop.plan.steps,
        "eval_every": loop.plan.eval_every,
        "cursor": list(loop.cursor),
        "seconds": loop.seconds,
        "skipped": loop.skipped,
        "tokens": loop.tokens,
        "best": loop.best if math.isfinite(loop.best) else None,
        "best_step": loop.best_step,
        "best_saved": loop.best_saved,
        "needs": loop.steps_needed(),
        "evals_since_best": loop.evals_since_best,
        "plan": [phase._asdict() for phase in loop.plan.phases],
        "seed": loop.job.seed,
        "world": loop.group.size,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "machine": loop.machine,
        "metrics": loop.metrics.sync(),
        "metrics_checksums": loop.metrics.checksums,
        "estimate": loop.plan.estimate and loop.plan.estimate._asdict(),
        **({"run": loop.job.identity} if loop.job.identity else {}),
    }

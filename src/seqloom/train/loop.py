"""The only training loop. It uses models, data and objectives through their contracts alone.

A run that is stopped, killed or out of disk space resumes from its newest intact checkpoint and ends with the same
bits as one that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seqloom import compat
from seqloom.batches.batch import Batch, Cursor
from seqloom.evaluation import total_nll
from seqloom.files import NoRoom
from seqloom.nn.state import State, detach, state_tensors, with_tensors
from seqloom.run import named_weights, set_weights
from seqloom.train import checkpoint, process
from seqloom.train.budget import Estimate, estimate_cost
from seqloom.train.process import Signals, keep_freed_memory
from seqloom.train.progress import Metrics, ProgressBar, log
from seqloom.train.trainer import Trainer, TrainJob, TrainResult, set_lr_factors

MAX_SKIPPED_IN_A_ROW = 5


class Diverged(RuntimeError):
    """The gradients stayed non-finite; the last healthy checkpoint is kept."""


class Stopped(RuntimeError):
    """A signal stopped training; everything is saved."""

    def __init__(self, signal: int, step: int):
        super().__init__(
            f"stopped by signal {signal} after step {step}; run the same command again to resume"
        )
        self.code = 128 + signal


class CarriesState(Protocol):
    """A model whose state continues from one batch to the next; only such models have a state in their checkpoints."""

    def start(self, batch: int) -> State: ...


class TrainStep(nn.Module):
    """Model and objective as one module, so that DistributedDataParallel sees every use of the parameters."""

    def __init__(self, model: nn.Module, objective: Any):
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch, state: State) -> tuple[Tensor, dict[str, float], State]:
        return self.objective(self.model, batch, state)


class TrainLoop:
    """One training run: the options, the job, and everything that a checkpoint holds."""

    def __init__(self, options: Trainer, job: TrainJob, quiet: bool = False):
        self.options = options
        self.job = job
        self.world = job.world
        self.quiet = quiet or not job.world.is_main
        self.optimizer = options.make_optimizer(job.model.parameters())
        named = job.model.named_parameters()
        factors = {p: job.lr_factors[name] for name, p in named if name in job.lr_factors}
        set_lr_factors(self.optimizer, factors)
        self.parameters = [p for p in job.model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.use_bf16 = options.use_bf16(self.device)
        self.checkpoints = job.folder / "checkpoints"
        self.step = 0
        self.steps = options.steps
        self.eval_every = options.eval_every
        self.seconds = 0.0
        self.skipped = 0  # steps in a row
        self.best = math.inf
        self.best_step = 0
        self.evals_since_best = 0
        self.cursor: Cursor = ()
        self.state: State = None
        self.estimate: Estimate | None = None
        self.tokens = 0.0
        self.metrics_bytes = 0

    def run(self) -> TrainResult:
        """Trains from the state of the folder to the end. The model then holds the final weights."""
        job = self.job
        keep_freed_memory()
        resumed_from = self.restore()
        if resumed_from is None:
            torch.manual_seed(job.seed + self.world.rank)
            self.estimate_cost()
        step = TrainStep(job.model, job.objective)
        module = DistributedDataParallel(step) if self.world.size > 1 else step
        self.metrics = Metrics(job.folder, self.world.is_main)
        self.metrics.truncate(self.metrics_bytes)
        self.progress = ProgressBar(self.steps, self.step, self.quiet)
        start_time = time.perf_counter()
        seconds_before = self.seconds
        stream = job.train.batches(self.cursor, self.world.rank, self.world.size)
        job.model.train()
        try:
            with Signals() as signals:
                while self.step < self.steps and not self.out_of_patience():
                    stop_signal = self.train_step(module, stream, signals.received)
                    self.seconds = seconds_before + time.perf_counter() - start_time
                    if self.step % self.eval_every == 0 or self.step == self.steps:
                        self.validate()
                    if stop_signal or self.is_time_to_save():
                        self.save_checkpoint()
                    if stop_signal and self.step < self.steps:
                        raise Stopped(stop_signal, self.step)
        finally:
            self.progress.close()
            self.metrics.close()
        process.barrier(self.world)
        self.set_final_weights()
        return TrainResult(
            self.step, self.best, self.best_step, self.seconds, self.tokens, self.estimate, resumed_from
        )

    def out_of_patience(self) -> bool:
        return self.options.patience is not None and self.evals_since_best >= self.options.patience

    def is_time_to_save(self) -> bool:
        return (
            self.step in (self.steps, self.best_step)
            or self.step % self.options.save_every == 0
            or self.out_of_patience()
        )

    def train_step(self, module: nn.Module, stream: Iterator[tuple[Batch, Cursor]], signal: int) -> int:
        """One optimizer step on the mean loss of every counted token of all micro-batches and ranks.

        `signal` is the signal that this rank has received, or 0. Returns the signal that any rank has received, or 0.
        """
        micro_batches = [next(stream) for _ in range(self.options.accumulate)]
        local_tokens = sum(batch.num_targets for batch, _ in micro_batches)
        tokens, signals = process.all_sum(self.world, local_tokens, signal)
        local_loss = 0.0
        for index, (batch, cursor) in enumerate(micro_batches):
            last = index == len(micro_batches) - 1
            self.state = detach(self.state) if batch.carry_state else None
            self.cursor = cursor
            with self.gradient_sync(module, last):
                with self.autocast():
                    value, numbers, self.state = module(batch, self.state)
                (value * (self.world.size / tokens)).backward()
            local_loss += numbers["nats"]
        lr = self.optimizer.defaults["lr"] * self.options.schedule(self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        norm = self.options.clip([p.grad for p in self.parameters if p.grad is not None])
        is_bad = not (math.isfinite(norm) and math.isfinite(local_loss))
        total_loss, num_bad = process.all_sum(self.world, local_loss, is_bad)
        loss = total_loss / tokens
        self.step += 1
        if num_bad:
            self.skip_step(norm, loss)
        else:
            self.skipped = 0
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.tokens += tokens
        self.progress.advance(self.step, int(tokens))
        if self.step % self.options.log_every == 0 or self.step == self.steps:
            self.metrics.add({"step": self.step, "loss": loss, "rate": lr, "norm": norm})
            self.progress.show(self.step, loss)
        return int(signals / self.world.size) if signals else 0

    def gradient_sync(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Ranks exchange gradients only in the backward pass of the last micro-batch of a step."""
        if isinstance(module, DistributedDataParallel) and not last:
            return module.no_sync()
        return nullcontext()

    def autocast(self) -> AbstractContextManager[object]:
        if self.use_bf16:
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    def skip_step(self, norm: float, loss: float) -> None:
        """Skips a step whose gradient is not finite; several in a row end the run."""
        self.skipped += 1
        self.state = None
        reason = "the gradient or the loss is not finite"
        self.metrics.add({"step": self.step, "skipped": reason, "norm": norm, "loss": loss})
        self.progress.message(f"step {self.step} skipped: gradient norm {norm}, loss {loss}")
        if self.skipped >= MAX_SKIPPED_IN_A_ROW:
            raise Diverged(
                f"{MAX_SKIPPED_IN_A_ROW} steps in a row had no finite gradient (step {self.step}); "
                f"{self.checkpoints} keeps the last healthy checkpoint: "
                "lower train.optimizer.lr or train.clip.limit and train again"
            )

    def validate(self) -> None:
        """Measures the held-out loss and remembers the best step."""
        batches = self.job.held_out(self.options.eval_batches)
        local_nll, local_count = total_nll(self.job.model, self.job.objective, batches)
        nll, count = process.all_sum(self.world, local_nll, local_count)
        loss = nll / max(count, 1)
        improved = loss < self.best
        if improved:
            self.best = loss
            self.best_step = self.step
            self.evals_since_best = 0
        else:
            self.evals_since_best += 1
        self.metrics.add({"step": self.step, "valid": loss})
        suffix = " (best so far)" if improved else ""
        self.progress.message(f"step {self.step}: held-out loss {loss:.4f} nats per token{suffix}")

    def save_checkpoint(self) -> None:
        """Saves a checkpoint. On a full disk it prints a warning, and training continues without one."""
        local_tensors = [torch.get_rng_state(), *(tensor.detach() for tensor in state_tensors(self.state))]
        gathered = [process.gather(self.world, tensor) for tensor in local_tensors]
        if not self.world.is_main:
            return
        names = {id(p): name for name, p in self.job.model.named_parameters()}
        moments = {
            f"{names[id(p)]}:{key}": value
            for p, state in self.optimizer.state.items()
            for key, value in state.items()
        }
        files = {"model": named_weights(self.job.model), "optim": moments}
        for rank in range(self.world.size):
            files[f"rank-{rank}"] = {str(index): ranks[rank] for index, ranks in enumerate(gathered)}
        metadata = self.metadata()
        try:
            size = checkpoint.estimated_bytes(files)
            if warning := checkpoint.space_warning(self.checkpoints, size):
                self.progress.message(f"no checkpoint at step {self.step}: {warning}")
                return
            checkpoint.save(self.checkpoints, self.step, files, metadata)
        except NoRoom as error:
            self.progress.message(f"no checkpoint at step {self.step}: {error}")
            return
        protected = [self.best_step, *self.steps_to_average()]
        checkpoint.rotate(self.checkpoints, self.options.keep_checkpoints, protected)

    def metadata(self) -> dict[str, Any]:
        """The content of a checkpoint's state.json."""
        return {
            "step": self.step,
            "steps": self.steps,
            "eval_every": self.eval_every,
            "cursor": list(self.cursor),
            "seconds": self.seconds,
            "skipped": self.skipped,
            "tokens": self.tokens,
            "best": self.best if math.isfinite(self.best) else None,
            "best_step": self.best_step,
            "evals_since_best": self.evals_since_best,
            "seed": self.job.seed,
            "world": self.world.size,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "metrics": self.metrics.sync(),
            "estimate": self.estimate and self.estimate._asdict(),
        }

    def steps_to_average(self) -> list[int]:
        """The steps whose checkpoints would be averaged into the final weights if training ended now."""
        interval = self.options.save_every
        last_saved = (self.step - 1) // interval * interval
        steps = [self.step, *range(last_saved, 0, -interval)]
        return steps[: self.options.average_checkpoints]

    def restore(self) -> int | None:
        """Restores the newest intact checkpoint. Returns its step, or None if there is none."""
        saved = checkpoint.latest(self.checkpoints, self.warn)
        if saved is None:
            return None
        metadata = compat.upgrade_json("state.json", saved.metadata)
        model = self.job.model
        set_weights(model, saved.tensors("model"), saved.path / "model.safetensors")
        named = dict(model.named_parameters())
        for name, tensor in saved.tensors("optim").items():
            weight, _, key = name.rpartition(":")
            self.optimizer.state[named[compat.upgrade_weight(weight, named)]][key] = tensor
        self.step = metadata["step"]
        self.steps = metadata["steps"]
        self.eval_every = metadata.get("eval_every", self.options.eval_every)
        self.cursor = tuple(metadata["cursor"])
        self.seconds = metadata["seconds"]
        self.skipped = metadata["skipped"]
        self.tokens = metadata.get("tokens", 0.0)
        self.best = math.inf if metadata["best"] is None else metadata["best"]
        self.best_step = metadata["best_step"]
        self.evals_since_best = metadata["evals_since_best"]
        self.metrics_bytes = metadata["metrics"]
        self.estimate = Estimate.from_json(metadata["estimate"]) if metadata["estimate"] else None
        self.warn_if_changed("processes", metadata["world"], self.world.size)
        self.warn_if_changed("threads", metadata["threads"], torch.get_num_threads())
        same_world = metadata["world"] == self.world.size
        rank = self.world.rank if self.world.rank < metadata["world"] else 0
        tensors = saved.tensors(f"rank-{rank}")
        torch.set_rng_state(tensors.pop("0"))
        if tensors and same_world:
            batch, _ = next(self.job.train.batches(self.cursor, self.world.rank, self.world.size))
            ordered = [tensors[str(index)] for index in sorted(map(int, tensors))]
            initial_state = cast(CarriesState, model).start(len(batch.ids))
            self.state = with_tensors(initial_state, ordered)
        return self.step

    def warn_if_changed(self, unit: str, before: int, now: int) -> None:
        if before != now:
            self.warn(
                f"the run was trained with {before} {unit} and resumes with {now}: the bits will differ"
            )

    def warn(self, message: str) -> None:
        if not self.quiet:
            log(f"warning: {message}")

    def estimate_cost(self) -> None:
        """Sets the number of steps from the budget and prints what the run will cost."""
        plan = estimate_cost(self.options, self.job)
        self.steps = plan.steps
        self.eval_every = plan.eval_every
        self.estimate = plan.estimate
        if not self.quiet:
            log(plan.estimate.text())

    def set_final_weights(self) -> None:
        """The mean of the newest checkpoints, or the best checkpoint; the last weights if there is neither."""
        if self.options.average_checkpoints > 1:
            paths = [self.checkpoints / f"step-{step:08d}" for step in self.steps_to_average()]
            mean = checkpoint.average([checkpoint.load(path) for path in paths])
            set_weights(self.job.model, mean, self.checkpoints)
        elif self.best_step and self.best_step != self.step:
            path = self.checkpoints / f"step-{self.best_step:08d}"
            if path.exists():
                set_weights(self.job.model, checkpoint.load(path).tensors("model"), path)

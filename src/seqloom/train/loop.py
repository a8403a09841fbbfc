"""The only training loop. It uses models, data and objectives through their contracts alone.

A run that is stopped, killed or out of disk space resumes from its newest intact checkpoint and ends with the same
bits as one that was never interrupted.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seqloom.batches.batch import Batch, Cursor
from seqloom.errors import Diverged, NoRoom, Stopped
from seqloom.evaluation import sum_numbers
from seqloom.nn.layer import State, detach, state_tensors
from seqloom.results import ProgressOption, Reporter
from seqloom.run import named_weights, set_weights
from seqloom.train import checkpoint, process
from seqloom.train.metrics import Metrics, Speed, open_watch
from seqloom.train.options import TrainJob, TrainOptions, TrainResult, set_lr_factors
from seqloom.train.plan import RunPlan
from seqloom.train.process import Signals, fingerprint, keep_freed_memory

MAX_SKIPPED_IN_A_ROW = 5
MEANS = (
    "reward",
    "kl",
    "length",
    "clipped",
)  # sums over targets in an objective's numbers whose means are metrics
logger = logging.getLogger("seqloom.train")
DATA = "data."  # before the names of a source's tensors in a checkpoint


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

    def __init__(self, options: TrainOptions, job: TrainJob, progress: ProgressOption = True):
        self.options = options
        self.job = job
        self.group = job.group
        self.progress: ProgressOption = progress if job.group.is_main else False
        self.optimizer = options.make_optimizer(job.model.parameters())
        named = job.model.named_parameters()
        factors = {p: job.lr_factors[name] for name, p in named if name in job.lr_factors}
        set_lr_factors(self.optimizer, factors)
        self.parameters = [p for p in job.model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.use_bf16 = options.use_bf16(self.device)
        self.checkpoints = job.folder / "checkpoints"
        self.step = 0
        self.plan = RunPlan(options, job)
        self.seconds = 0.0
        self.skipped = 0  # steps in a row
        self.machine = fingerprint()
        self.best = math.inf
        self.best_step = 0
        self.evals_since_best = 0
        self.cursor: Cursor = ()
        self.state: State = None
        self.tokens = 0.0
        self.metrics_bytes = 0
        self.metrics_checksums: str | None = None
        self.best_saved = False  # whether the best step has a checkpoint

    def run(self) -> TrainResult:
        """Trains from the state of the folder to the end. The model then holds the final weights."""
        job = self.job
        start_time = time.perf_counter()
        keep_freed_memory()
        resumed_from = self.restore()
        self.clock_start = start_time - self.seconds
        if resumed_from is None:
            self.begin()
        elif self.group.is_main:
            logger.info("%s", self.plan.going_on(resumed_from, self.seconds))
        step = TrainStep(job.model, job.objective)
        module = DistributedDataParallel(step) if self.group.size > 1 else step
        self.metrics = self.open_metrics()
        self.watch = open_watch(self.options, job, self.step)
        self.report = Reporter("training", self.plan.last_step, self.progress, self.step)
        self.speed = Speed()
        stream = job.train.batches(self.cursor, self.group.rank, self.group.size)
        job.model.train()
        try:
            with Signals() as signals:
                while self.has_steps_left():
                    stop_signal = self.train_step(module, stream, signals.received)
                    self.seconds = self.elapsed()
                    if self.is_time_to_log():
                        self.metrics.add_time(self.step, self.seconds)
                        self.plan.note_pace(self.step, self.seconds, self.report.seconds_left())
                    if self.plan.is_timed(self.step, self.seconds):
                        self.fix_steps()
                    if (
                        self.step % self.plan.eval_every == 0
                        or self.step == self.plan.steps
                        or self.data_ended()
                    ):
                        self.validate()
                    if stop_signal or self.is_time_to_save():
                        self.save_checkpoint()
                    if stop_signal and self.step < self.plan.steps:
                        raise Stopped(stop_signal, self.step)
        finally:
            self.report.close()
            self.metrics.close()
        self.seconds = self.elapsed()
        process.barrier(self.group)
        self.set_final_weights()
        return TrainResult(
            self.step, self.best, self.best_step, self.seconds, self.tokens, self.plan.estimate, resumed_from
        )

    def begin(self) -> None:
        """Prepares the first step of a run."""
        torch.manual_seed(self.job.seed + self.group.rank)
        self.plan.begin(self.elapsed())

    def open_metrics(self) -> Metrics:
        """The files of measurements, cut back to the step from which the run goes on."""
        metrics = Metrics(self.job.folder, self.group.is_main, self.options.tensorboard)
        if warning := metrics.truncate(self.metrics_bytes, self.step, self.metrics_checksums):
            self.warn(warning)
        return metrics

    def elapsed(self) -> float:
        """The seconds of the run, those before it resumed included."""
        return time.perf_counter() - self.clock_start

    def has_steps_left(self) -> bool:
        """Whether there is a step to take; enters the phase of the plan that begins here."""
        if self.plan.enter(self.step):
            self.evals_since_best = 0
        return self.step < self.plan.steps and not self.out_of_patience() and not self.data_ended()

    def data_ended(self) -> bool:
        return isinstance(self.job.train, CarriesTensors) and self.job.train.ended

    def fix_steps(self) -> None:
        """Fixes the number of steps, if that is still open."""
        if self.plan.fix(self.step, self.elapsed):
            self.report.set_total(self.plan.steps)

    def is_time_to_log(self) -> bool:
        return self.step % self.options.log_every == 0 or self.step == self.plan.steps

    def out_of_patience(self) -> bool:
        return self.options.patience is not None and self.evals_since_best >= self.options.patience

    def is_time_to_save(self) -> bool:
        return (
            self.step in (self.plan.steps, self.best_step)
            or self.step % self.options.save_every == 0
            or self.out_of_patience()
            or self.data_ended()
        )

    def train_step(self, module: nn.Module, stream: Iterator[tuple[Batch, Cursor]], signal: int) -> int:
        """One optimizer step on the mean loss of every counted token of all micro-batches and ranks.

        `signal` is the signal that this rank has received, or 0. Returns the signal that any rank has received, or 0.
        """
        micro_batches = [next(stream) for _ in range(self.options.accumulate)]
        local_tokens = sum(batch.num_targets for batch, _ in micro_batches)
        tokens, signals = process.all_sum(self.group, local_tokens, signal)
        local_loss = 0.0
        means = dict.fromkeys(MEANS, 0.0)
        for index, (batch, cursor) in enumerate(micro_batches):
            last = index == len(micro_batches) - 1
            self.state = detach(self.state) if batch.carry_state else None
            self.cursor = cursor
            with self.gradient_sync(module, last):
                with self.autocast():
                    value, numbers, self.state = module(batch, self.state)
                (value * (self.group.size / tokens)).backward()
            local_loss += numbers["nats"]
            means = {
                name: means[name] + numbers[name] / max(local_tokens, 1) for name in means if name in numbers
            }
        lr = self.optimizer.defaults["lr"] * self.options.schedule(self.step, self.plan.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        norm = self.options.clip([p.grad for p in self.parameters if p.grad is not None])
        is_bad = not (math.isfinite(norm) and math.isfinite(local_loss))
        total_loss, num_bad = process.all_sum(self.group, local_loss, is_bad)
        loss = total_loss / tokens
        self.step += 1
        if num_bad:
            self.skip_step(norm, loss)
        else:
            self.skipped = 0
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.tokens += tokens
        self.report.update(self.step, {"loss": loss, "tokens/s": self.speed.add(tokens)})
        if self.is_time_to_log():
            self.metrics.add({**self.place(), "loss": loss, "lr": lr, "grad_norm": norm, **means})
        return int(signals / self.group.size) if signals else 0

    def place(self) -> dict[str, int]:
        """How far the run is, as every line of measurements begins."""
        return {"step": self.step, "tokens": int(self.tokens)}

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
        reason = f"not finite: gradient norm {norm}, loss {loss}"
        self.metrics.add({"step": self.step, "event": "skipped", "reason": reason})
        self.warn(f"step {self.step} skipped: {reason}")
        if self.skipped >= MAX_SKIPPED_IN_A_ROW:
            raise Diverged(
                f"{MAX_SKIPPED_IN_A_ROW} steps in a row had no finite gradient (step {self.step}); "
                f"{self.checkpoints} keeps the last healthy checkpoint: "
                "lower train.optimizer.lr or train.clip.limit and train again"
            )

    def validate(self) -> None:
        """Measures the held-out loss and remembers the best step."""
        batches = self.job.held_out(self.options.eval_batches)
        sums, local_count = sum_numbers(self.job.model, self.job.objective, batches)
        nll, correct, count = process.all_sum(
            self.group, sums["nats"], sums.get("correct", 0.0), float(local_count)
        )
        loss = nll / max(count, 1)
        improved = loss < self.best
        if improved:
            self.best = loss
            self.best_step = self.step
            self.best_saved = False
            self.evals_since_best = 0
        else:
            self.evals_since_best += 1
        numbers = {**self.place(), "valid_loss": loss}
        if "correct" in sums:
            numbers["valid_accuracy"] = 100 * correct / max(count, 1)
        for name in MEANS:
            if name in sums:
                numbers[f"valid_{name}"] = sums[name] / max(local_count, 1)
        if num_bytes := self.job.valid_bytes(int(count)):
            numbers["valid_bits_per_byte"] = nll / math.log(2) / num_bytes
        self.metrics.add(numbers)
        if self.group.is_main:
            best = " (best so far)" if improved else ""
            logger.info("step %d: held-out loss %.4f%s", self.step, loss, best)
            self.watch(self.step, int(self.tokens))

    def save_checkpoint(self) -> None:
        """Saves a checkpoint. On a full disk it logs a warning, and training continues without one."""
        self.fix_steps()
        process.check_weights(self.group, self.job.model.parameters())
        files = checkpoint_tensors(self)
        if not self.group.is_main:
            return
        before, self.best_saved = self.best_saved, self.best_saved or self.step == self.best_step
        metadata = checkpoint_metadata(self)
        try:
            size = checkpoint.estimated_bytes(files)
            if warning := checkpoint.space_warning(self.checkpoints, size):
                raise NoRoom(warning)
            checkpoint.save(self.checkpoints, self.step, files, metadata)
        except checkpoint.NotFinite as error:
            raise Diverged(str(error)) from None
        except NoRoom as error:
            self.best_saved = before
            self.warn(f"no checkpoint at step {self.step}: {error}")
            return
        protected = [self.best_step, *self.steps_to_average()]
        checkpoint.rotate(self.checkpoints, self.options.keep_checkpoints, protected)

    def steps_to_average(self) -> list[int]:
        """The steps whose checkpoints would be averaged into the final weights if training ended now."""
        interval = self.options.save_every
        last_saved = (self.step - 1) // interval * interval
        steps = [self.step, *range(last_saved, 0, -interval)]
        return steps[: self.options.average_checkpoints]

    def steps_needed(self) -> list[int]:
        """The steps of the other checkpoints from which the final weights may be made, as far as they are saved."""
        averaged = self.options.average_checkpoints > 1
        steps = self.steps_to_average() if averaged else [self.best_step] if self.best_saved else []
        names = [step for step in steps if step != self.step]
        return [step for step in names if (self.checkpoints / checkpoint.folder_name(step)).exists()]

    def restore(self) -> int | None:
        """Restores the checkpoint of the job. Returns its step, or None if there is none."""
        if self.job.saved is None:
            return None
        from seqloom.train.resume import restore

        restore(self, self.job.saved)
        return self.step

    def warn(self, message: str) -> None:
        if self.group.is_main:
            logger.warning("%s", message)

    def set_final_weights(self) -> None:
        """The mean of the newest checkpoints, or the best checkpoint; the last weights if there is neither."""
        if self.options.average_checkpoints > 1:
            paths = [self.checkpoints / f"step-{step:08d}" for step in self.steps_to_average()]
            mean = checkpoint.average([checkpoint.load(path) for path in paths])
            set_weights(self.job.model, mean, self.checkpoints)
        elif self.best_step and self.best_step != self.step:
            path = self.checkpoints / f"step-{self.best_step:08d}"
            if path.exists() or self.best_saved:
                set_weights(self.job.model, checkpoint.load(path).tensors("model"), path)


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

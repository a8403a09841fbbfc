"""The only training loop. It knows models, data and objectives by their contracts alone.

A run that is stopped, killed or out of room goes on from its newest whole checkpoint and ends with the same bits.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seqloom import compat
from seqloom.batches.batch import Batch, Batches, Cursor
from seqloom.evaluation import total_nll
from seqloom.files import NoRoom
from seqloom.nn.layer import Factory
from seqloom.nn.state import State, detach, state_tensors, with_tensors
from seqloom.run import named_weights, set_weights
from seqloom.train import budget, checkpoint, distributed
from seqloom.train.distributed import World
from seqloom.train.malloc import keep_freed_memory
from seqloom.train.metrics import Metrics
from seqloom.train.optim import AdamW, Clip, GlobalNorm, set_lr_factors
from seqloom.train.progress import ProgressBar, log
from seqloom.train.schedule import Cosine, Schedule
from seqloom.train.signals import Signals

BAD_IN_A_ROW = 5


class Diverged(RuntimeError):
    """The gradients stayed non-finite; the last healthy checkpoint is kept."""


class Stopped(RuntimeError):
    """A signal asked to stop; everything is saved."""

    def __init__(self, signal: int, step: int):
        super().__init__(f"stopped by signal {signal} after step {step}; the same command goes on from there")
        self.code = 128 + signal


class TrainJob(NamedTuple):
    """What is trained, on what, and where."""

    folder: Path
    model: nn.Module
    objective: Any
    train: Batches
    valid: Batches
    world: World = World()
    seed: int = 0
    factors: Mapping[str, float] = {}  # on the rate, by the names of weights


class TrainResult(NamedTuple):
    step: int
    best: float  # nats per held-out token
    best_step: int
    seconds: float
    tokens: float  # predicted, all ranks together
    promise: budget.Estimate | None
    resumed_from: int | None


class TrainStep(nn.Module):
    """Model and objective as one module, so that DistributedDataParallel sees every use of the parameters."""

    def __init__(self, model: nn.Module, objective: Any):
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Batch, state: State) -> tuple[Tensor, dict[str, float], State]:
        return self.objective(self.model, batch, state)


class Trainer:
    """Trains for `steps`, or for as many as a budget allows: `minutes` by a probe made before the first, `tokens` to predict, or `flops`.

    eval_every: steps between evaluations; fewer if a budget allows only a few steps.
    save_every: steps between checkpoints (default: eval_every).
    keep_checkpoints: newest checkpoints that are kept, in addition to the best one.
    patience: evaluations without improvement before training stops early.
    average_checkpoints: how many of the newest checkpoints are averaged into the final weights (0: use the best one).
    accumulate: batches per step.
    log_every: steps between lines of metrics.jsonl.
    eval_batches: the largest number of held-out batches that one evaluation reads.
    """

    def __init__(
        self,
        steps: int = 1000,
        minutes: float | None = None,
        tokens: float | None = None,
        flops: float | None = None,
        optimizer: Factory[torch.optim.Optimizer] = AdamW,
        schedule: Factory[Schedule] = Cosine,
        clip: Factory[Clip] = GlobalNorm,
        accumulate: int = 1,
        eval_every: int = 250,
        save_every: int | None = None,
        keep_checkpoints: int = 2,
        patience: int | None = None,
        average_checkpoints: int = 0,
        precision: Literal["auto", "float32", "bfloat16"] = "auto",
        log_every: int = 10,
        eval_batches: int = 400,
    ):
        for name, value in (
            ("steps", steps),
            ("accumulate", accumulate),
            ("eval_every", eval_every),
            ("save_every", save_every or eval_every),
            ("log_every", log_every),
            ("eval_batches", eval_batches),
        ):
            if value < 1:
                raise ValueError(f"train.{name} must be at least 1, not {value}")
        budgets = {"minutes": minutes, "tokens": tokens, "flops": flops}
        self.budgets = {name: value for name, value in budgets.items() if value is not None}
        if len(self.budgets) > 1 or any(value <= 0 for value in self.budgets.values()):
            raise ValueError(
                f"train: give one budget above 0, not {', '.join(f'{name}={value:g}' for name, value in self.budgets.items())}"
            )
        self.steps = steps
        self.eval_every = eval_every
        self.save_every = save_every or eval_every
        self.log_every = log_every
        self.make_optimizer, self.schedule, self.clip = optimizer, schedule(), clip()
        self.accumulate = accumulate
        self.patience = patience
        self.average_checkpoints = average_checkpoints
        self.keep_checkpoints = max(keep_checkpoints, average_checkpoints, 2)
        self.precision = precision
        self.eval_batches = eval_batches

    def fit(self, job: TrainJob, quiet: bool = False) -> TrainResult:
        """Train the job's model from where its folder stands to the end. Its weights are the final ones afterwards."""
        return TrainLoop(self, job, quiet).run()


class TrainLoop:
    """One training: the trainer's options at work on a job, with all that a checkpoint must hold."""

    def __init__(self, trainer: Trainer, job: TrainJob, quiet: bool):
        self.options, self.job, self.world, self.quiet = trainer, job, job.world, quiet or not job.world.first
        self.optimizer = trainer.make_optimizer(job.model.parameters())
        set_lr_factors(
            self.optimizer,
            {p: job.factors[name] for name, p in job.model.named_parameters() if name in job.factors},
        )
        self.parameters = [p for p in job.model.parameters() if p.requires_grad]
        self.half = bf16(trainer.precision, self.parameters[0].device)
        self.checkpoints = job.folder / "checkpoints"
        self.step, self.steps, self.every, self.seconds, self.skipped = (
            0,
            trainer.steps,
            trainer.eval_every,
            0.0,
            0,
        )
        self.best, self.best_step, self.worse = math.inf, 0, 0
        self.cursor: Cursor = ()
        self.state: State = None
        self.promise: budget.Estimate | None = None
        self.tokens = 0.0

    def run(self) -> TrainResult:
        job, options = self.job, self.options
        keep_freed_memory()
        resumed = self.restore()
        if resumed is None:
            torch.manual_seed(job.seed + self.world.rank)
            self.rehearse()
        step = TrainStep(job.model, job.objective)
        module = DistributedDataParallel(step) if self.world.size > 1 else step
        self.metrics = Metrics(job.folder, self.world.first)
        self.metrics.cut(self.metrics_bytes if resumed is not None else 0)
        self.progress = ProgressBar(self.steps, self.step, self.quiet)
        begun, before = time.perf_counter(), self.seconds
        stream = job.train.batches(self.cursor, self.world.rank, self.world.size)
        job.model.train()
        try:
            with Signals() as signals:
                while self.step < self.steps and not self.patience_lost():
                    stop = self.advance(module, stream, signals.seen)
                    self.seconds = before + time.perf_counter() - begun
                    if self.step % self.every == 0 or self.step == self.steps:
                        self.validate()
                    if (
                        stop
                        or self.step in (self.steps, self.best_step)
                        or self.step % options.save_every == 0
                        or self.patience_lost()
                    ):
                        self.keep()
                    if stop and self.step < self.steps:
                        raise Stopped(stop, self.step)
        finally:
            self.progress.close()
            self.metrics.close()
        distributed.barrier(self.world)
        self.finish()
        return TrainResult(
            self.step, self.best, self.best_step, self.seconds, self.tokens, self.promise, resumed
        )

    def patience_lost(self) -> bool:
        return self.options.patience is not None and self.worse >= self.options.patience

    def advance(self, module: nn.Module, stream: Iterator[tuple[Batch, Cursor]], signal: int) -> int:
        """One step: gradients of the mean over every counted token of all micro-batches and ranks, clipped, then the optimiser."""
        micro = [next(stream) for _ in range(self.options.accumulate)]
        weight, stop = distributed.all_sum(self.world, sum(batch.num_targets for batch, _ in micro), signal)
        loss = 0.0
        for number, (batch, cursor) in enumerate(micro):
            last = number == len(micro) - 1
            self.state, self.cursor = detach(self.state) if batch.carry_state else None, cursor
            with nullcontext() if last or self.world.size == 1 else module.no_sync():
                with (
                    torch.autocast(self.parameters[0].device.type, torch.bfloat16)
                    if self.half
                    else nullcontext()
                ):
                    value, numbers, self.state = module(batch, self.state)
                (value * (self.world.size / weight)).backward()
            loss += numbers["nats"]
        rate = self.optimizer.defaults["lr"] * self.options.schedule(self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = self.options.clip(gradients)
        loss, bad = distributed.all_sum(self.world, loss, not (math.isfinite(norm) and math.isfinite(loss)))
        self.step += 1
        if bad:
            self.skip(norm, loss / weight)
        else:
            self.skipped = 0
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.tokens += weight
        self.progress.advance(self.step, int(weight))
        if self.step % self.options.log_every == 0 or self.step == self.steps:
            self.metrics.add({"step": self.step, "loss": loss / weight, "rate": rate, "norm": norm})
            self.progress.show(self.step, loss / weight)
        return int(stop / self.world.size) if stop else 0

    def skip(self, norm: float, loss: float) -> None:
        """A step whose gradient is not finite changes nothing; a few in a row end the run with its healthy checkpoints kept."""
        self.skipped, self.state = self.skipped + 1, None
        self.metrics.add(
            {
                "step": self.step,
                "skipped": "the gradient or the loss is not finite",
                "norm": norm,
                "loss": loss,
            }
        )
        self.progress.note(f"step {self.step} skipped: gradient norm {norm}, loss {loss}")
        if self.skipped >= BAD_IN_A_ROW:
            raise Diverged(
                f"{BAD_IN_A_ROW} steps in a row had no finite gradient (step {self.step}); the last healthy checkpoint is kept in "
                f"{self.checkpoints}: lower train.optimizer.lr or train.clip.limit and train anew"
            )

    def held_out(self) -> Iterator[Batch]:
        return islice(self.job.valid.sequential(self.world.rank, self.world.size), self.options.eval_batches)

    def validate(self) -> None:
        total, count = total_nll(self.job.model, self.job.objective, self.held_out())
        total, count = distributed.all_sum(self.world, total, count)
        value = total / max(count, 1)
        better = value < self.best
        self.best, self.best_step, self.worse = (
            (value, self.step, 0) if better else (self.best, self.best_step, self.worse + 1)
        )
        self.metrics.add({"step": self.step, "valid": value})
        self.progress.note(
            f"step {self.step}: held-out loss {value:.4f} nats per token{' (best so far)' if better else ''}"
        )

    def keep(self) -> None:
        """A checkpoint, if the weights are healthy and there is room; without room training goes on and tries again later."""
        ranks = [distributed.gather(self.world, torch.get_rng_state())]
        ranks += [distributed.gather(self.world, tensor.detach()) for tensor in state_tensors(self.state)]
        if not self.world.first:
            return
        model, names = (
            named_weights(self.job.model),
            {id(p): name for name, p in self.job.model.named_parameters()},
        )
        moments = {
            f"{names[id(p)]}:{key}": value
            for p, kept in self.optimizer.state.items()
            for key, value in kept.items()
        }
        facts = {
            "step": self.step, "steps": self.steps, "every": self.every, "cursor": list(self.cursor), "seconds": self.seconds,
            "skipped": self.skipped, "tokens": self.tokens, "best": self.best if math.isfinite(self.best) else None,
            "best_step": self.best_step, "worse": self.worse,
            "seed": self.job.seed, "world": self.world.size, "threads": torch.get_num_threads(), "torch": torch.__version__,
            "metrics": self.metrics.flushed(), "promise": self.promise and self.promise._asdict(),
        }  # fmt: skip
        files = {"model": model, "optim": moments}
        for rank in range(self.world.size):
            files[f"rank-{rank}"] = {f"{number}": kept[rank] for number, kept in enumerate(ranks)}
        try:
            if sentence := checkpoint.space_warning(self.checkpoints, checkpoint.estimated_bytes(files)):
                self.progress.note(f"no checkpoint at step {self.step}: {sentence}")
                return
            checkpoint.save(self.checkpoints, self.step, files, facts)
        except NoRoom as error:
            self.progress.note(f"no checkpoint at step {self.step}: {error}")
        else:
            checkpoint.rotate(
                self.checkpoints, self.options.keep_checkpoints, [self.best_step, *self.averaged()]
            )

    def averaged(self) -> list[int]:
        """The steps whose checkpoints make the final weights, were this the last one."""
        save = self.options.save_every
        return [step for step in [self.step, *range((self.step - 1) // save * save, 0, -save)]][
            : self.options.average_checkpoints
        ]

    def restore(self) -> int | None:
        """Stand where the newest whole checkpoint stands; its step, or None where there is none."""
        found = checkpoint.latest(self.checkpoints, self.warn)
        if found is None:
            return None
        facts = compat.upgrade_json("state.json", found.facts)
        set_weights(self.job.model, found.tensors("model"), found.path / "model.safetensors")
        named = dict(self.job.model.named_parameters())
        for name, tensor in found.tensors("optim").items():
            parameter, _, key = name.rpartition(":")
            self.optimizer.state[named[compat.upgrade_weight(parameter, named)]][key] = tensor
        self.step, self.steps, self.cursor, self.seconds = (
            facts["step"],
            facts["steps"],
            tuple(facts["cursor"]),
            facts["seconds"],
        )
        self.tokens, self.every = facts.get("tokens", 0.0), facts.get("every", self.options.eval_every)
        self.best = math.inf if facts["best"] is None else facts["best"]
        self.best_step, self.worse, self.skipped = facts["best_step"], facts["worse"], facts["skipped"]
        self.metrics_bytes = facts["metrics"]
        self.promise = budget.Estimate(**facts["promise"]) if facts["promise"] else None
        if facts["world"] != self.world.size:
            self.warn(
                f"the run was trained by {facts['world']} processes and goes on with {self.world.size}: the bits will differ"
            )
        if facts["threads"] != torch.get_num_threads():
            self.warn(
                f"the run was trained with {facts['threads']} threads and goes on with {torch.get_num_threads()}: the bits will differ"
            )
        rank = found.tensors(f"rank-{self.world.rank if self.world.rank < facts['world'] else 0}")
        torch.set_rng_state(rank.pop("0"))
        if rank and facts["world"] == self.world.size:
            batch, _ = next(self.job.train.batches(self.cursor, self.world.rank, self.world.size))
            self.state = with_tensors(
                self.job.model.start(len(batch.ids)), [rank[str(number)] for number in sorted(map(int, rank))]
            )
        return self.step

    def warn(self, sentence: str) -> None:
        if not self.quiet:
            log(f"warning: {sentence}")

    def rehearse(self) -> None:
        """The promise: count and time a few steps on a copy, then say what the whole will cost."""
        job, options = self.job, self.options
        random = torch.get_rng_state()
        model = copy.deepcopy(job.model).train()
        stream = job.train.batches((), self.world.rank, self.world.size)
        batches = [next(stream)[0] for _ in range(8)]
        optimizer = options.make_optimizer(model.parameters())

        def forward(number: int = 0) -> Tensor:
            return job.objective(model, batches[number % len(batches)], None)[0]

        def step(number: int) -> None:
            for micro in range(options.accumulate):
                forward(number + micro).backward()
            options.clip([p.grad for p in model.parameters() if p.grad is not None])
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        held = budget.activation_bytes(forward)
        flops = budget.flops(lambda: forward().backward()) / max(batches[0].num_targets, 1)
        each = budget.seconds_per_step(step, *self.probe())
        look = budget.seconds_per_step(
            lambda _: total_nll(model, job.objective, islice(self.held_out(), 1)), at_least=0.5, most=5
        )
        look *= sum(1 for _ in self.held_out())
        weight = options.accumulate * sum(batch.num_targets for batch in batches)
        each, look, flops, weight = distributed.all_sum(
            self.world, each, look, flops, weight
        )  # all processes find the same steps
        each, look, flops, weight = (
            each / self.world.size,
            look / self.world.size,
            flops / self.world.size,
            weight / len(batches),
        )
        for name, value in options.budgets.items():
            for _ in range(2):  # few steps are looked at more often, which makes them fewer
                each_step = {
                    "minutes": (each + look / self.every) / 60,
                    "tokens": weight,
                    "flops": weight * flops,
                }
                self.steps = max(1, int(value / each_step[name]))
                points = (
                    budget.POINTS if name != "minutes" else budget.num_evaluations(each * self.steps, look)
                )
                self.every = min(options.eval_every, max(1, self.steps // points))
        seconds = each * self.steps + look * -(-self.steps // self.every)
        moments = sum(
            value.numel() * value.element_size()
            for kept in optimizer.state.values()
            for value in kept.values()
        )
        size = sum(p.numel() * p.element_size() for p in model.parameters())
        memory = budget.peak_memory(now=True) + size + moments + held
        self.promise = budget.Estimate(budget.parameters(model), flops, memory, seconds, self.steps)
        torch.set_rng_state(random)
        if not self.quiet:
            log(self.promise.text())

    def probe(self) -> tuple[float, int]:
        """How long to time steps, and how many at most: longer where minutes are the budget, since the machine's speed wavers."""
        return (
            (min(max(2.0, 60 * minutes / 50), 30.0), 10_000)
            if (minutes := self.options.budgets.get("minutes"))
            else (2.0, 20)
        )

    def finish(self) -> None:
        """The final weights: the mean of the newest checkpoints, or the best one, or the last where nothing was kept."""
        if self.options.average_checkpoints > 1:
            found = [checkpoint.load(self.checkpoints / f"step-{step:08d}") for step in self.averaged()]
            set_weights(self.job.model, checkpoint.average(found), self.checkpoints)
        elif self.best_step and self.best_step != self.step:
            path = self.checkpoints / f"step-{self.best_step:08d}"
            if path.exists():
                set_weights(self.job.model, checkpoint.load(path).tensors("model"), path)


def bf16(precision: str, device: torch.device) -> bool:
    """Whether to compute in bfloat16: asked for, or `auto` on a device that really has it. CPUs without the unit are 40 times slower."""
    if precision == "bfloat16":
        return True
    return precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]

"""Attack: NaN and infinity in the loss, the gradient, a weight or an activation, once or for ever. No step may be poisoned: every
checkpoint stays finite, the skipped step is recorded, and a run that ends keeps a healthy checkpoint to go on from."""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack import Count
from attack.crashing import fork, train, warm_up, write_data

STEPS = 14
PLACES = ("loss", "gradient", "weight", "activation")
VALUES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
FAMILIES = ("lstm-lm", "gpt", "transformer", "classifier")


def attack(seed: int, amount: float) -> list[Count]:
    with tempfile.TemporaryDirectory(prefix="seqloom-numbers-") as name:
        place = Path(name).resolve()
        os.environ["SEQLOOM_CACHE"] = str(place / "cache")
        data = write_data(place / "data")
        warm_up(FAMILIES, place)
        cases = [
            (family, where, value, once)
            for family in FAMILIES
            for where in PLACES
            for value in VALUES
            for once in (True, False)
        ]
        random.Random(seed).shuffle(cases)
        cases = cases[: max(12, int(48 * amount))]
        count = Count("R7", "NaN and infinity in a step", len(cases), [])
        for number, case in enumerate(cases):
            out = place / f"case-{number}"
            step = random.Random(number).randint(4, 8)
            if fault := check(place, data[case[0]], out, case, step):
                count.failures.append(f"{case}: {fault}")
        return [count]


def check(place: Path, data: list[Path], out: Path, case: tuple[str, str, str, bool], step: int) -> str:
    """Trains with bad numbers from a step on; what went wrong."""
    from safetensors.torch import load_file

    family, where, value, once = case
    last = step if once else 10**9
    command = train(family, data, out, steps=STEPS)
    child, _ = fork(lambda: with_bad_numbers(command, where, VALUES[value], step, last), log=place / "log")
    # A weight stays bad, so every later step is.
    ends = not once or where == "weight"
    if child.code != (1 if ends else 0):
        return f"ended with {child.code}: {(child.output.strip().splitlines() or [''])[-1]}"
    for path in out.rglob("*.safetensors"):
        if path.name.startswith(("model", "optim")):
            for name, tensor in load_file(path).items():
                if not tensor.isfinite().all():
                    return f"{path.relative_to(out)}: {name} is not finite"
    if not any((out / "checkpoints").glob("step-*")):
        return "no healthy checkpoint is left"
    recorded = '"event": "skipped"' in (out / "metrics.jsonl").read_text()
    if not recorded and "NaN or infinite" not in child.output:
        return "no skipped step is recorded"
    if not ends:
        return ""
    child, _ = fork(command, log=place / "log")
    if child.code != 0:
        return f"the same command ends with {child.code}: {(child.output.strip().splitlines() or [''])[-1]}"
    finite = all(tensor.isfinite().all() for tensor in load_file(out / "model.safetensors").values())
    return "" if finite else "the final weights are not finite"


def with_bad_numbers(command: Callable[[], None], where: str, value: float, first: int, last: int) -> None:
    """Runs a training whose steps `first` to `last` have a bad number in one place."""
    import torch

    from seqloom.train.loop import TrainLoop, TrainStep
    from seqloom.train.options import Clip

    now = {"step": 0}
    real_step, real_forward, real_clip = TrainLoop.train_step, TrainStep.forward, Clip.__call__

    def is_bad() -> bool:
        return first <= now["step"] <= last

    def train_step(self: Any, *arguments: Any) -> int:
        now["step"] += 1
        if where == "weight" and is_bad():
            with torch.no_grad():
                self.parameters[-1].reshape(-1)[0] = value
        return real_step(self, *arguments)

    def forward(self: Any, batch: Any, state: Any) -> Any:
        hooks = []
        if where == "activation" and is_bad():
            part = next(part for part in self.model.modules() if not list(part.children()))
            hooks = [part.register_forward_hook(lambda module, inputs, output: output * value)]
        try:
            loss, numbers, state = real_forward(self, batch, state)
        finally:
            for hook in hooks:
                hook.remove()
        if where == "loss" and is_bad():
            loss, numbers = loss * value, {**numbers, "nats": numbers["nats"] * value}
        return loss, numbers, state

    def clip(self: Any, gradients: list[Any]) -> float:
        if where == "gradient" and is_bad():
            gradients[0].reshape(-1)[0] = value
        return real_clip(self, gradients)

    TrainLoop.train_step, TrainStep.forward, Clip.__call__ = train_step, forward, clip  # type: ignore[method-assign]
    command()

"""Learning-rate schedules: the factor on the learning rate at each step. Each begins with a linear warm-up."""

from __future__ import annotations

import math


class Schedule:
    """factor = min(1, (step + 1) / (warmup + 1)) · decay(progress after the warm-up), step from 0."""

    def __init__(self, warmup: int = 100):
        if warmup < 0:
            raise ValueError(f"train.schedule.warmup must be at least 0, not {warmup}")
        self.warmup = warmup

    def __call__(self, step: int, steps: int) -> float:
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        progress = (step - self.warmup) / max(1, steps - self.warmup)
        return self.decay(step, min(1.0, progress))

    def decay(self, step: int, progress: float) -> float:
        """The factor after the warm-up; `progress` goes from 0 to 1."""
        return 1.0


class Constant(Schedule):
    """1 after the warm-up."""


class LinearDecay(Schedule):
    """1 - progress (1 - floor)"""

    def __init__(self, warmup: int = 100, floor: float = 0.0):
        super().__init__(warmup)
        self.floor = floor

    def decay(self, step: int, progress: float) -> float:
        return 1 - progress * (1 - self.floor)


class Cosine(LinearDecay):
    """floor + (1 - floor) (1 + cos π progress) / 2"""

    def decay(self, step: int, progress: float) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2


class InverseSquareRoot(Schedule):
    """√(warmup / step): the schedule of the Transformer paper; the full learning rate is reached at the end of the warm-up."""

    def decay(self, step: int, progress: float) -> float:
        return math.sqrt(max(self.warmup, 1) / max(step, 1))

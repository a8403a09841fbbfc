"""Records are computed in groups of similar length; their results come out in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from seqloom.batches.buckets import Buckets

Result = TypeVar("Result")


def predict_in_order(
    model: nn.Module, source: Buckets, look: Callable[[np.ndarray], Sequence[Result]], most: int | None = None
) -> Iterator[tuple[int, Result]]:
    """The number of each record and what `look` finds about it, group by group, in order; one pool is in memory at a time. At most `most` groups."""
    training, done = model.training, 0
    model.eval()
    try:
        for groups in source.ordered_groups():
            groups = groups if most is None else groups[: most - done]
            done += len(groups)
            found: dict[int, Result] = {}
            with torch.inference_mode():
                for group in groups:
                    found.update(zip(group.tolist(), look(group), strict=True))
            yield from sorted(found.items(), key=lambda item: item[0])
            if most is not None and done >= most:
                return
    finally:
        model.train(training)

"""Computes records in groups of similar length and returns the results in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from seqloom.batches.buckets import Buckets

Result = TypeVar("Result")


def predict_in_order(
    model: nn.Module,
    source: Buckets,
    predict_group: Callable[[np.ndarray], Iterable[Result]],
    max_groups: int | None = None,
) -> Iterator[tuple[int, Result]]:
    """The index of each record and its result, in order. One shuffle pool is in memory at a time; at most `max_groups` groups
    are computed."""
    training = model.training
    num_groups = 0
    model.eval()
    try:
        for groups in source.ordered_groups():
            groups = groups if max_groups is None else groups[: max_groups - num_groups]
            num_groups += len(groups)
            results: dict[int, Result] = {}
            with torch.inference_mode():
                for group in groups:
                    results.update(zip(group.tolist(), predict_group(group), strict=True))
            yield from sorted(results.items(), key=lambda item: item[0])
            if max_groups is not None and num_groups >= max_groups:
                return
    finally:
        model.train(training)

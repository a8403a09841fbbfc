"""Caches a table that many calls read. The table is a pure function of its key, never of the data."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch


class Memo:
    """The most recently requested table."""

    def __init__(self) -> None:
        self.last: tuple[Hashable, Any] = (None, None)

    def __call__(self, key: Hashable, make: Callable[[], Any]) -> Any:
        last_key, value = self.last
        if last_key != key:
            # an inference tensor could not be used in training later
            with torch.inference_mode(False), torch.no_grad():
                value = make()
            self.last = (key, value)
        return value


def next_power_of_two(length: int) -> int:
    """The next power of two, at least 64: a growing sequence needs a new table only when its length has doubled."""
    return 1 << max(6, (length - 1).bit_length())

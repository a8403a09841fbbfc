"""Tables that many calls read: made once, for the longest length so far. What is kept is a pure function of its key, never of the data."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch


class Memo:
    """The last table that was asked for."""

    def __init__(self) -> None:
        self.last: tuple[Hashable, Any] = (None, None)

    def __call__(self, key: Hashable, make: Callable[[], Any]) -> Any:
        known, value = self.last
        if known != key:
            with torch.inference_mode(False), torch.no_grad():  # what inference makes, training may not read
                value = make()
            self.last = (key, value)
        return value


def next_power_of_two(length: int) -> int:
    """A power of two that holds `length`: a growing sequence asks for a new table only when it has doubled."""
    return 1 << max(6, (length - 1).bit_length())

"""Decimal numbers → float32 by Python's own `float`: the plain form of `kernels/parse_floats.py`."""

from __future__ import annotations

import numpy as np


def read_numbers(data: np.ndarray, out: np.ndarray, rejected: np.ndarray) -> tuple[int, int]:
    """Parses numbers separated by single spaces in the bytes `data` into `out`.

    Returns how many fields there are and how many are not numbers; of the latter, `rejected` holds (index,
    first byte, last byte).
    """
    fields = data.tobytes().split(b" ")
    if not fields[-1]:  # no data, or a space at the end
        fields.pop()
    num_rejected = 0
    with np.errstate(over="ignore"):  # beyond float32's range is infinite, which the caller reports
        try:
            out[: len(fields)] = [float(field) for field in fields[: len(out)]]
        except ValueError:
            start = 0
            for i, field in enumerate(fields[: len(out)]):
                try:
                    out[i] = float(field)
                except ValueError:
                    rejected[num_rejected] = (i, start, start + len(field))
                    num_rejected += 1
                start += len(field) + 1
    return len(fields), num_rejected

"""Decimal numbers → float32, millions a second, rounded exactly as Python's `float` rounds them: the fast
form of `vectors/plain/parse_floats.py`, called by `vectors/vector_parser.py`.

A mantissa below 2⁵³ times or divided by a power of ten up to 10²² is one correctly rounded operation (Clinger
1990). Everything else (more digits, larger exponents, nan, text that is not a number) is left to the caller,
which uses `float`. One pass over the bytes, uint8 (N,).
"""

import numpy as np

from seqloom.kernels.host import cached_njit

POWERS = 10.0 ** np.arange(23)
MAX_MANTISSA = 1 << 53


@cached_njit({"nogil": True})
def read_numbers(data, out, skipped):
    """Numbers separated by single spaces in `data` → `out`; returns how many there are and how many were
    skipped.

    `skipped` (n, 3) gets the index, the first byte and the end of each skipped number.
    """
    count = 0
    num_skipped = 0
    at = 0
    size = len(data)
    while at < size:
        start = at
        negative = False
        if data[at] == 45 or data[at] == 43:  # - +
            negative = data[at] == 45
            at += 1
        mantissa = np.int64(0)
        exponent = 0
        digits = 0
        exact = True
        while at < size and 48 <= data[at] <= 57:
            mantissa = mantissa * 10 + (data[at] - 48) if mantissa < MAX_MANTISSA else MAX_MANTISSA
            digits += 1
            at += 1
        if at < size and data[at] == 46:  # .
            at += 1
            while at < size and 48 <= data[at] <= 57:
                mantissa = mantissa * 10 + (data[at] - 48) if mantissa < MAX_MANTISSA else MAX_MANTISSA
                exponent -= 1
                digits += 1
                at += 1
        if digits > 0 and at < size and (data[at] == 101 or data[at] == 69):  # e E
            at += 1
            negative_power = False
            power = 0
            first = at
            if at < size and (data[at] == 45 or data[at] == 43):
                negative_power = data[at] == 45
                at += 1
                first += 1
            while at < size and 48 <= data[at] <= 57:
                power = min(power * 10 + (data[at] - 48), 10_000)
                at += 1
            exact = at > first
            exponent += -power if negative_power else power
        if (
            digits == 0
            or (at < size and data[at] != 32)
            or mantissa >= MAX_MANTISSA
            or exponent < -22
            or exponent > 22
        ):
            exact = False
        while at < size and data[at] != 32:
            at += 1
        if count < len(out):
            if exact:
                value = mantissa * POWERS[exponent] if exponent >= 0 else mantissa / POWERS[-exponent]
                out[count] = -value if negative else value
            elif num_skipped < len(skipped):
                skipped[num_skipped, 0] = count
                skipped[num_skipped, 1] = start
                skipped[num_skipped, 2] = at
                num_skipped += 1
        count += 1
        at += 1
    return count, num_skipped

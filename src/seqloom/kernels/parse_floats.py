"""Decimal numbers → float32, millions a second, exactly as Python's own `float` rounds them.

A mantissa below 2⁵³ times or divided by a power of ten up to 10²² is one correctly rounded operation (Clinger 1990); all that is written
otherwise (more digits, larger exponents, nan, and what is no number) is left to the caller, which asks `float`.
"""

import numba as nb
import numpy as np

POWERS = 10.0 ** np.arange(23)
MOST = 1 << 53


@nb.njit(cache=True, nogil=True)
def read_numbers(data, out, left):
    """Numbers separated by single spaces in the bytes `data` → `out`; (how many there are, how many were left aside), the latter's (index,
    first byte, last byte) in `left`."""
    count, aside, at, size = 0, 0, 0, len(data)
    while at < size:
        start, negative = at, False
        if data[at] == 45 or data[at] == 43:  # - +
            negative = data[at] == 45
            at += 1
        mantissa, exponent, digits, plain = np.int64(0), 0, 0, True
        while at < size and 48 <= data[at] <= 57:
            mantissa = mantissa * 10 + (data[at] - 48) if mantissa < MOST else MOST
            digits += 1
            at += 1
        if at < size and data[at] == 46:  # .
            at += 1
            while at < size and 48 <= data[at] <= 57:
                mantissa = mantissa * 10 + (data[at] - 48) if mantissa < MOST else MOST
                exponent -= 1
                digits += 1
                at += 1
        if digits > 0 and at < size and (data[at] == 101 or data[at] == 69):  # e E
            at += 1
            down, power, first = False, 0, at
            if at < size and (data[at] == 45 or data[at] == 43):
                down = data[at] == 45
                at += 1
                first += 1
            while at < size and 48 <= data[at] <= 57:
                power = min(power * 10 + (data[at] - 48), 10_000)
                at += 1
            plain = at > first
            exponent += -power if down else power
        if (
            digits == 0
            or (at < size and data[at] != 32)
            or mantissa >= MOST
            or exponent < -22
            or exponent > 22
        ):
            plain = False
        while at < size and data[at] != 32:
            at += 1
        if count < len(out):
            if plain:
                value = mantissa * POWERS[exponent] if exponent >= 0 else mantissa / POWERS[-exponent]
                out[count] = -value if negative else value
            elif aside < len(left):
                left[aside, 0], left[aside, 1], left[aside, 2] = count, start, at
                aside += 1
        count += 1
        at += 1
    return count, aside

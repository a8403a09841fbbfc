"""Mel energies of sound: window, Fourier transform, power and mel filters of eight frames at a time, one frame in each lane of a
vector. The fast form of `SoundFeatures.plain_energies` in `media/features.py`, called by `fused/mel_energies.py`.

N real samples are transformed as M = N / 2 complex ones, z[n] = x[2n] + i x[2n + 1], in passes of radix 4 that leave the results in
order (Stockham), and one of radix 2 where M is no power of 4. Then

    X[k] = ½ (Z[k] + Z̄[M - k]) - ½ i e^{-2πik/N} (Z[k] - Z̄[M - k])

Layout: samples (n,), window (N,), mel weights (the filters one after the other) and out (T, filters) are float32, bounds (filters, 2)
int64: the first frequency that a filter reads and the one after its last. Roots of unity are pairs (cos, sin) of float32. A complex
number in the work arrays is eight real parts and eight imaginary parts.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.gemm_tiles import transpose_8x8
from seqloom.kernels.host import njit_entry, njit_helper
from seqloom.kernels.simd import add, broadcast, fma, load, mul, store, sub

LANES = 8
COMPLEX = 2 * LANES  # floats of eight complex numbers
FLOAT_BYTES = 4


@njit_helper
def load_windows(samples, start, hop, window, first, last, work):
    """work[n] = w[n] x[n] of eight frames, for n from `first` to `last`, multiples of 8."""
    source = samples.ctypes.data + FLOAT_BYTES * start
    for n in range(first, last, LANES):
        target = work.ctypes.data + FLOAT_BYTES * LANES * n
        transpose_8x8(target, FLOAT_BYTES * LANES, source + FLOAT_BYTES * n, FLOAT_BYTES * hop)
        for i in range(n, n + LANES):
            store(work, LANES * i, mul(load(work, LANES * i), broadcast(window[i])))


@njit_helper
def store_rotated(y, at, re, im, roots, power):
    """y[at] = (re + i im) e^{-iφ}, φ the angle of the root with this index."""
    cos = broadcast(roots[2 * power])
    sin = broadcast(roots[2 * power + 1])
    store(y, at, sub(mul(re, cos), mul(im, sin)))
    store(y, at + LANES, fma(re, sin, mul(im, cos)))


@njit_helper
def radix_4(x, y, length, stride, roots):
    """One pass over `stride` interleaved transforms of `length`: each becomes four of a quarter of the length."""
    quarter = length // 4
    turn = len(roots) // 2 // length
    apart = COMPLEX * stride * quarter
    for p in range(quarter):
        for q in range(stride):
            a = COMPLEX * (q + stride * p)
            b, c, d = a + apart, a + 2 * apart, a + 3 * apart
            sum_re, sum_im = add(load(x, a), load(x, c)), add(load(x, a + LANES), load(x, c + LANES))
            gap_re, gap_im = sub(load(x, a), load(x, c)), sub(load(x, a + LANES), load(x, c + LANES))
            odd_re, odd_im = add(load(x, b), load(x, d)), add(load(x, b + LANES), load(x, d + LANES))
            # i (b - d)
            turned_re, turned_im = sub(load(x, d + LANES), load(x, b + LANES)), sub(load(x, b), load(x, d))
            out = COMPLEX * (q + 4 * stride * p)
            step = COMPLEX * stride
            store(y, out, add(sum_re, odd_re))
            store(y, out + LANES, add(sum_im, odd_im))
            store_rotated(y, out + step, sub(gap_re, turned_re), sub(gap_im, turned_im), roots, p * turn)
            store_rotated(y, out + 2 * step, sub(sum_re, odd_re), sub(sum_im, odd_im), roots, 2 * p * turn)
            store_rotated(
                y, out + 3 * step, add(gap_re, turned_re), add(gap_im, turned_im), roots, 3 * p * turn
            )


@njit_helper
def radix_2(x, y, stride):
    """The last pass, over transforms of length 2."""
    for q in range(0, COMPLEX * stride, LANES):
        a, b = load(x, q), load(x, q + COMPLEX * stride)
        store(y, q, add(a, b))
        store(y, q + COMPLEX * stride, sub(a, b))


@njit_helper
def store_power(z, roots, power):
    """power[k] = |X[k]|² for k = 0 … M."""
    half = len(power) // LANES - 1
    first_re, first_im = load(z, 0), load(z, LANES)
    edge = add(first_re, first_im)
    store(power, 0, mul(edge, edge))
    edge = sub(first_re, first_im)
    store(power, LANES * half, mul(edge, edge))
    quarter = broadcast(np.float32(0.25))
    for k in range(1, half // 2 + 1):
        low, high = COMPLEX * k, COMPLEX * (half - k)
        even_re, even_im = add(load(z, low), load(z, high)), sub(load(z, low + LANES), load(z, high + LANES))
        odd_re, odd_im = add(load(z, low + LANES), load(z, high + LANES)), sub(load(z, high), load(z, low))
        cos, sin = broadcast(roots[2 * k]), broadcast(roots[2 * k + 1])
        turned_re = sub(mul(odd_re, cos), mul(odd_im, sin))
        turned_im = fma(odd_re, sin, mul(odd_im, cos))
        re, im = add(even_re, turned_re), add(even_im, turned_im)
        store(power, LANES * k, mul(quarter, fma(re, re, mul(im, im))))
        re, im = sub(even_re, turned_re), sub(even_im, turned_im)
        store(power, LANES * (half - k), mul(quarter, fma(re, re, mul(im, im))))


@njit_entry
def mel_energies(samples, hop, window, used, half_roots, roots, bounds, weights, out):
    """Fills `out` with M |FFT(w x)|² of frames that begin every `hop` samples.

    `used` is a multiple of 8 that the window is 0 before, and one that it is 0 from. Samples must suffice for whole blocks of
    eight frames, of which those beyond the end of `out` are dropped.
    """
    half = len(window) // 2
    work = np.zeros(COMPLEX * half, np.float32)
    other = np.empty(COMPLEX * half, np.float32)
    power = np.empty(LANES * (half + 1), np.float32)
    energy = np.empty(LANES, np.float32)
    for frame in range(0, len(out), LANES):
        work[: LANES * used[0]] = 0
        work[LANES * used[1] :] = 0
        load_windows(samples, frame * hop, hop, window, used[0], used[1], work)
        x, y = work, other
        length, stride = half, 1
        while length >= 4:
            radix_4(x, y, length, stride, half_roots)
            x, y = y, x
            length //= 4
            stride *= 4
        if length == 2:
            radix_2(x, y, stride)
            x, y = y, x
        store_power(x, roots, power)
        work, other = x, y
        at = 0
        for filter in range(len(bounds)):
            total = broadcast(np.float32(0))
            for k in range(bounds[filter, 0], bounds[filter, 1]):
                total = fma(load(power, LANES * k), broadcast(weights[at]), total)
                at += 1
            store(energy, 0, total)
            for lane in range(min(LANES, len(out) - frame)):
                out[frame + lane, filter] = energy[lane]

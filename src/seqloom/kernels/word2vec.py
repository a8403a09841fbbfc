"""word2vec's inner loops, compiled by numba: windows, sub-sampling, negatives, and one step of gradient descent for each window.

Matrices are flat arrays of rows, `stride` floats apart, of which the first `width` (a multiple of eight) count; the rest of a row is
zero and stays zero. Threads may call `learn` at once on the same matrices: the GIL is not held and updates are not locked. Rows that will be
needed soon are asked for ahead, because random rows of a large matrix cost more than the arithmetic.
"""

import math

import numpy as np
from numba import njit

from seqloom.kernels.simd import (
    broadcast,
    broadcast_lane,
    exp_plus_one,
    fma,
    load,
    log_accumulate,
    log_total,
    mul,
    prefetch,
    reciprocal,
    reduce_add_6,
    store,
)
from seqloom.kernels.word2vec_args import BLOCK, MERGED_STEPS, POOL, USES, WIDTH


@njit(cache=True, nogil=True)
def xorshift64(state):
    """The next state of a 64-bit generator (xorshift)."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@njit(cache=True, nogil=True)
def uniform(state, count):
    """A number below `count` from the upper half of the state's scrambled bits."""
    return np.int64(
        ((state * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)
    )


@njit(cache=True, nogil=True)
def random_u32(state):
    """A number below 2³² that `uniform` does not depend on."""
    return (state * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)


@njit(cache=True, nogil=True)
def draw_negative(state, table):
    """A word from the alias table: an entry holds its threshold in the upper 32 bits and the other word in the lower."""
    row = uniform(state, len(table))
    entry = table[row]
    return row if random_u32(state) < entry >> np.uint64(32) else np.int64(entry & np.uint64(0xFFFFFFFF))


@njit(cache=True, nogil=True)
def window(position, reach, length):
    """The context of a position is first ≤ j < last without itself, cut at the sentence's ends [A8]."""
    return max(0, position - reach), min(length, position + reach + 1)


@njit(cache=True, nogil=True, inline="always")
def prefetch_row(matrix, start, width):
    for i in range(0, width, 16):
        prefetch(matrix, start + i)


@njit(cache=True, nogil=True, fastmath=True)
def negative_sampling_step(h, dh, outputs, width, rows, at, sign, real, rate, product, exponents):
    """Six output rows u against one hidden vector h: with s = 1 for the true word, −1 for a negative, and real = 0 for an empty place,

    loss −Σ log σ(s u·h)     g = rate · s σ(−s u·h)     dh += Σ g u     u += g h     [A11, D-22]
    """
    r0, r1, r2, r3, r4, r5 = rows[at], rows[at + 1], rows[at + 2], rows[at + 3], rows[at + 4], rows[at + 5]
    zero = broadcast(np.float32(0))
    s0, s1, s2, s3, s4, s5 = zero, zero, zero, zero, zero, zero
    for i in range(0, width, WIDTH):
        v = load(h, i)
        s0 = fma(v, load(outputs, r0 + i), s0)
        s1 = fma(v, load(outputs, r1 + i), s1)
        s2 = fma(v, load(outputs, r2 + i), s2)
        s3 = fma(v, load(outputs, r3 + i), s3)
        s4 = fma(v, load(outputs, r4 + i), s4)
        s5 = fma(v, load(outputs, r5 + i), s5)
    signs, reals = load(sign, at), load(real, at)
    score = mul(reduce_add_6(s0, s1, s2, s3, s4, s5), signs)  # (8,)
    one, minus = broadcast(np.float32(1)), broadcast(np.float32(-1))
    odds = exp_plus_one(mul(score, minus))  # 1 / σ
    log_accumulate(product, exponents, fma(fma(odds, one, minus), reals, one))
    g = mul(mul(fma(reciprocal(odds), minus, one), broadcast(rate)), mul(signs, reals))
    g0, g1, g2, g3, g4, g5 = (
        broadcast_lane(g, 0),
        broadcast_lane(g, 1),
        broadcast_lane(g, 2),
        broadcast_lane(g, 3),
        broadcast_lane(g, 4),
        broadcast_lane(g, 5),
    )
    for i in range(0, width, WIDTH):
        v, d = load(h, i), load(dh, i)
        u = load(outputs, r0 + i)
        d = fma(g0, u, d)
        store(outputs, r0 + i, fma(g0, v, u))
        u = load(outputs, r1 + i)
        d = fma(g1, u, d)
        store(outputs, r1 + i, fma(g1, v, u))
        u = load(outputs, r2 + i)
        d = fma(g2, u, d)
        store(outputs, r2 + i, fma(g2, v, u))
        u = load(outputs, r3 + i)
        d = fma(g3, u, d)
        store(outputs, r3 + i, fma(g3, v, u))
        u = load(outputs, r4 + i)
        d = fma(g4, u, d)
        store(outputs, r4 + i, fma(g4, v, u))
        u = load(outputs, r5 + i)
        d = fma(g5, u, d)
        store(outputs, r5 + i, fma(g5, v, u))
        store(dh, i, d)


@njit(cache=True, nogil=True, fastmath=True)
def softmax_step(h, dh, outputs, width, stride, scores, targets, rate):
    """All output rows against one hidden vector, p = softmax(U h), for each of the target words y:

    loss −Σ log p(y)     g = rate · Σ (onehot(y) − p)     dh += Uᵀ g     U += g hᵀ     [A9, A10, A11, D-22]
    """
    words, zero = len(scores) - WIDTH, broadcast(np.float32(0))
    for r in range(0, words, BLOCK):
        s0, s1, s2, s3, s4, s5, u = zero, zero, zero, zero, zero, zero, r * stride
        for i in range(0, width, WIDTH):
            v = load(h, i)
            s0 = fma(v, load(outputs, u + i), s0)
            s1 = fma(v, load(outputs, u + stride + i), s1)
            s2 = fma(v, load(outputs, u + 2 * stride + i), s2)
            s3 = fma(v, load(outputs, u + 3 * stride + i), s3)
            s4 = fma(v, load(outputs, u + 4 * stride + i), s4)
            s5 = fma(v, load(outputs, u + 5 * stride + i), s5)
        store(scores, r, reduce_add_6(s0, s1, s2, s3, s4, s5))
    top, total, loss = scores[:words].max(), 0.0, 0.0
    for target in targets:
        loss -= scores[target // stride] - top
    for r in range(words):
        scores[r] = math.exp(scores[r] - top)
        total += scores[r]
    scores[:words] *= np.float32(-len(targets) * rate / total)
    for target in targets:
        scores[target // stride] += rate
    for r in range(words):
        g, u = broadcast(scores[r]), r * stride
        for i in range(0, width, WIDTH):
            row = load(outputs, u + i)
            store(dh, i, fma(g, row, load(dh, i)))
            store(outputs, u + i, fma(g, load(h, i), row))
    return loss + len(targets) * math.log(total)


@njit(cache=True, nogil=True, fastmath=True)
def train_sentences(text, weights, method, first, last, begin, end, seed):
    """Reads sentences first … last − 1 while the rate goes from `begin` to `end`; returns (summed loss, predictions)."""
    inputs, outputs, input_updates, output_updates, width, stride = weights
    cbow, mean_context, max_window, negative = method
    ids, starts = text.ids, text.starts
    kept = np.empty(np.diff(starts[first : last + 1]).max(), np.int32)
    given = np.empty((2 * max_window if cbow else 1) * (1 + np.diff(text.subword_bounds).max()), np.int64)
    targets = np.empty(1 if cbow else 2 * max_window, np.int64)
    h, dh = np.empty(width, np.float32), np.empty(width, np.float32)
    scores = np.empty(len(text.keep_thresholds) + WIDTH if negative == 0 else 0, np.float32)
    # Places for the word and its negatives come in groups of eight, of which six are used.
    size = (1 + negative + BLOCK - 1) // BLOCK * WIDTH
    rows = np.full(size, len(text.keep_thresholds) * stride, np.int64)
    sign, real = np.full(size, -1, np.float32), np.zeros(size, np.float32)
    sign[0] = 1
    for i in range(1 + negative):
        real[i // BLOCK * WIDTH + i % BLOCK] = 1
    product, exponents = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.int32)
    state, slot, predictions, loss = np.uint64(seed), 0, 0, 0.0
    pool, lap = np.empty(POOL, np.int64), 0
    for i in range(POOL):
        state = xorshift64(state)
        pool[i] = draw_negative(state, text.alias_table) * stride
    for s in range(first, last):
        length = 0
        for i in range(starts[s], starts[s + 1]):
            state = xorshift64(state)
            if random_u32(state) < text.keep_thresholds[ids[i]]:
                kept[length] = ids[i]
                length += 1
        for i in range(length):
            read = starts[s] - starts[first] + (starts[s + 1] - starts[s]) * (i / length)
            rate = np.float32(begin + (end - begin) * read / (starts[last] - starts[first]))
            if i + max_window + 2 < length:
                prefetch_row(inputs if cbow else outputs, kept[i + max_window + 2] * stride, width)
                prefetch_row(outputs if cbow else inputs, kept[i + 2] * stride, width)
            state = xorshift64(state)
            a, b = window(i, 1 + uniform(state, max_window), length)
            if b - a < 2:
                continue
            n, m = 0, 0
            for j in range(a, b):
                if (j != i) == cbow:
                    word = kept[j]
                    given[n] = word * stride
                    n += 1
                    for piece in range(text.subword_bounds[word], text.subword_bounds[word + 1]):
                        given[n] = text.subword_rows[piece] * stride
                        n += 1
                else:
                    targets[m] = kept[j] * stride
                    m += 1
            part = broadcast(np.float32(1 / n))
            for d in range(0, width, WIDTH):
                v = broadcast(np.float32(0))
                for j in range(n):
                    v = fma(load(inputs, given[j] + d), part, v)
                store(h, d, v)
                store(dh, d, broadcast(np.float32(0)))
            if mean_context:
                rate /= np.float32(m)
            predictions += m
            if negative == 0:
                loss += softmax_step(h, dh, outputs, width, stride, scores, targets[:m], rate)
                output_updates[:] += 1
            else:
                for j in range(m):
                    rows[0] = targets[j]
                    for k in range(1, 1 + negative):
                        other = pool[slot]
                        if (slot + lap) % USES == 0:
                            state = xorshift64(state)
                            pool[slot] = draw_negative(state, text.alias_table) * stride
                            prefetch_row(outputs, pool[slot], width)
                        slot += 1
                        if slot == POOL:
                            slot, lap = 0, lap + 1
                        while other == rows[0]:
                            state = xorshift64(state)
                            other = draw_negative(state, text.alias_table) * stride
                        rows[k // BLOCK * WIDTH + k % BLOCK] = other
                    for at in range(0, size, WIDTH):
                        negative_sampling_step(
                            h, dh, outputs, width, rows, at, sign, real, rate, product, exponents
                        )
                    if len(output_updates):
                        for k in range(size):
                            output_updates[rows[k] // stride] += 1
            part = broadcast(np.float32(1 / n if mean_context else 1))
            for j in range(n):
                for d in range(0, width, WIDTH):
                    store(inputs, given[j] + d, fma(load(dh, d), part, load(inputs, given[j] + d)))
                if len(input_updates):
                    input_updates[given[j] // stride] += 1
        loss += log_total(product, exponents)
        product[:] = 1
        exponents[:] = 0
    return loss, predictions


@njit(cache=True, nogil=True, fastmath=True)
def merge_copies(base, copies, marks, first, last, width, stride):
    """Rows first … last − 1 of `base` and of all copies become base + share · Σ changes, in a fixed order.

    A few steps add up as if one copy had made them. Many steps from the same start would overshoot, each copy having gone the whole
    way: so the share falls from 1 with their number, down to the mean of the copies that took part.
    """
    for row in range(first, last):
        steps, changed = 0, 0
        for c in range(len(marks)):
            steps += marks[c, row]
            changed += marks[c, row] > 0
        if changed == 0:
            continue
        share = np.float32(max(1 / changed, min(1.0, MERGED_STEPS / steps)))
        for i in range(row * stride, row * stride + width, WIDTH):
            old = load(base, i)
            total = broadcast(np.float32(0))
            for c in range(len(marks)):
                total = fma(
                    old, broadcast(np.float32(-1)), fma(load(copies[c], i), broadcast(np.float32(1)), total)
                )
            new = fma(total, broadcast(share), old)
            store(base, i, new)
            for c in range(len(marks)):
                store(copies[c], i, new)
        marks[:, row] = 0

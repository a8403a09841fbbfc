"""word2vec's inner loops: windows, sub-sampling, negatives, and one step of gradient descent for each window.
The fast form of `vectors/plain/word2vec.py`, called by `vectors/word2vec.py`.

The arguments are the named tuples of `word2vec_args.py`: ids int32, matrices flat float32 arrays of rows
`stride` floats apart, of which the first `width` (a multiple of 8) count; the rest of a row is zero and stays
zero. Threads may call `train_sentences` at once on the same matrices: it holds no GIL and takes no lock. h,
its gradient and the pool of negatives stay in the L1 cache; rows that will be needed soon are prefetched,
because random rows of a large matrix cost more than the arithmetic. Fallback: the numpy form.
"""

import math

import numpy as np

from seqloom.kernels.host import cached_njit
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

njit_nogil = cached_njit({"nogil": True})
njit_inline = cached_njit({"nogil": True, "inline": "always"})
njit_fast = cached_njit({"nogil": True, "fastmath": True})


@njit_nogil
def xorshift64(state):
    """The next state of the xorshift generator with 64 bits."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@njit_nogil
def uniform(state, count):
    """A random integer below `count`, from the upper 32 bits of the multiplied state."""
    return np.int64(
        ((state * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)
    )


@njit_nogil
def random_u32(state):
    """A random integer below 2³², independent of `uniform` of the same state."""
    return (state * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)


@njit_nogil
def draw_negative(state, alias_table):
    """A word from the alias table: an entry has its threshold in the upper 32 bits and the alternative word
    in the lower.
    """
    row = uniform(state, len(alias_table))
    entry = alias_table[row]
    return row if random_u32(state) < entry >> np.uint64(32) else np.int64(entry & np.uint64(0xFFFFFFFF))


@njit_nogil
def window(position, size, length):
    """The context of a position: begin ≤ j < end without the position itself, cut at the sentence's ends
    [A8].
    """
    return max(0, position - size), min(length, position + size + 1)


@njit_inline
def prefetch_row(matrix, start, width):
    for i in range(0, width, 16):
        prefetch(matrix, start + i)


@njit_fast
def negative_sampling_step(h, dh, outputs, width, rows, at, sign, used, lr, product, exponents):
    """Six output rows u against one hidden vector h, with s = 1 for the target, −1 for a negative, and used =
    0 for an unused slot:

    loss −Σ log σ(s u·h) g = lr · s σ(−s u·h) dh += Σ g u u += g h [A11, D-22]
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
    signs = load(sign, at)
    used_slots = load(used, at)
    score = mul(reduce_add_6(s0, s1, s2, s3, s4, s5), signs)  # (8,)
    one = broadcast(np.float32(1))
    minus = broadcast(np.float32(-1))
    odds = exp_plus_one(mul(score, minus))  # 1 / σ
    log_accumulate(product, exponents, fma(fma(odds, one, minus), used_slots, one))
    g = mul(mul(fma(reciprocal(odds), minus, one), broadcast(lr)), mul(signs, used_slots))
    g0 = broadcast_lane(g, 0)
    g1 = broadcast_lane(g, 1)
    g2 = broadcast_lane(g, 2)
    g3 = broadcast_lane(g, 3)
    g4 = broadcast_lane(g, 4)
    g5 = broadcast_lane(g, 5)
    for i in range(0, width, WIDTH):
        v = load(h, i)
        d = load(dh, i)
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


@njit_fast
def softmax_step(h, dh, outputs, width, stride, scores, targets, lr):
    """All output rows against one hidden vector, p = softmax(U h), for each of the target words y:

    loss −Σ log p(y)     g = lr · Σ (onehot(y) − p)     dh += Uᵀ g     U += g hᵀ     [A9, A10, A11, D-22]
    """
    words = len(scores) - WIDTH
    zero = broadcast(np.float32(0))
    for r in range(0, words, BLOCK):
        s0, s1, s2, s3, s4, s5 = zero, zero, zero, zero, zero, zero
        u = r * stride
        for i in range(0, width, WIDTH):
            v = load(h, i)
            s0 = fma(v, load(outputs, u + i), s0)
            s1 = fma(v, load(outputs, u + stride + i), s1)
            s2 = fma(v, load(outputs, u + 2 * stride + i), s2)
            s3 = fma(v, load(outputs, u + 3 * stride + i), s3)
            s4 = fma(v, load(outputs, u + 4 * stride + i), s4)
            s5 = fma(v, load(outputs, u + 5 * stride + i), s5)
        store(scores, r, reduce_add_6(s0, s1, s2, s3, s4, s5))
    top = scores[:words].max()
    total = 0.0
    loss = 0.0
    for target in targets:
        loss -= scores[target // stride] - top
    for r in range(words):
        scores[r] = math.exp(scores[r] - top)
        total += scores[r]
    scores[:words] *= np.float32(-len(targets) * lr / total)
    for target in targets:
        scores[target // stride] += lr
    for r in range(words):
        g = broadcast(scores[r])
        u = r * stride
        for i in range(0, width, WIDTH):
            row = load(outputs, u + i)
            store(dh, i, fma(g, row, load(dh, i)))
            store(outputs, u + i, fma(g, load(h, i), row))
    return loss + len(targets) * math.log(total)


@njit_fast
def train_sentences(data, matrices, mode, first, last, lr_begin, lr_end, seed):
    """Trains on sentences first … last − 1 while the learning rate goes from lr_begin to lr_end; returns
    (summed loss, predictions).
    """
    inputs, outputs, input_updates, output_updates, width, stride = matrices
    cbow, mean_context, max_window, negative = mode
    ids, starts = data.ids, data.starts
    sentence = np.empty(np.diff(starts[first : last + 1]).max(), np.int32)
    input_offsets = np.empty(
        (2 * max_window if cbow else 1) * (1 + np.diff(data.subword_bounds).max()), np.int64
    )
    targets = np.empty(1 if cbow else 2 * max_window, np.int64)
    h = np.empty(width, np.float32)
    dh = np.empty(width, np.float32)
    scores = np.empty(len(data.keep_thresholds) + WIDTH if negative == 0 else 0, np.float32)
    # Slots for the target and its negatives come in groups of WIDTH, of which BLOCK are used.
    size = (1 + negative + BLOCK - 1) // BLOCK * WIDTH
    rows = np.full(size, len(data.keep_thresholds) * stride, np.int64)
    sign = np.full(size, -1, np.float32)
    used = np.zeros(size, np.float32)
    sign[0] = 1
    for i in range(1 + negative):
        used[i // BLOCK * WIDTH + i % BLOCK] = 1
    product = np.ones(WIDTH, np.float32)
    exponents = np.zeros(WIDTH, np.int32)
    state = np.uint64(seed)
    predictions = 0
    loss = 0.0
    pool = np.empty(POOL, np.int64)
    slot = 0
    lap = 0
    for i in range(POOL):
        state = xorshift64(state)
        pool[i] = draw_negative(state, data.alias_table) * stride
    for s in range(first, last):
        length = 0
        for i in range(starts[s], starts[s + 1]):
            state = xorshift64(state)
            if random_u32(state) < data.keep_thresholds[ids[i]]:
                sentence[length] = ids[i]
                length += 1
        for i in range(length):
            words_read = starts[s] - starts[first] + (starts[s + 1] - starts[s]) * (i / length)
            lr = np.float32(lr_begin + (lr_end - lr_begin) * words_read / (starts[last] - starts[first]))
            if i + max_window + 2 < length:
                prefetch_row(inputs if cbow else outputs, sentence[i + max_window + 2] * stride, width)
                prefetch_row(outputs if cbow else inputs, sentence[i + 2] * stride, width)
            state = xorshift64(state)
            a, b = window(i, 1 + uniform(state, max_window), length)
            if b - a < 2:
                continue
            n = 0
            m = 0
            for j in range(a, b):
                if (j != i) == cbow:
                    word = sentence[j]
                    input_offsets[n] = word * stride
                    n += 1
                    for piece in range(data.subword_bounds[word], data.subword_bounds[word + 1]):
                        input_offsets[n] = data.subword_rows[piece] * stride
                        n += 1
                else:
                    targets[m] = sentence[j] * stride
                    m += 1
            factor = broadcast(np.float32(1 / n))
            for d in range(0, width, WIDTH):
                v = broadcast(np.float32(0))
                for j in range(n):
                    v = fma(load(inputs, input_offsets[j] + d), factor, v)
                store(h, d, v)
                store(dh, d, broadcast(np.float32(0)))
            if mean_context:
                lr /= np.float32(m)
            predictions += m
            if negative == 0:
                loss += softmax_step(h, dh, outputs, width, stride, scores, targets[:m], lr)
                output_updates[:] += 1
            else:
                for j in range(m):
                    rows[0] = targets[j]
                    for k in range(1, 1 + negative):
                        candidate = pool[slot]
                        if (slot + lap) % USES == 0:
                            state = xorshift64(state)
                            pool[slot] = draw_negative(state, data.alias_table) * stride
                            prefetch_row(outputs, pool[slot], width)
                        slot += 1
                        if slot == POOL:
                            slot = 0
                            lap += 1
                        while candidate == rows[0]:
                            state = xorshift64(state)
                            candidate = draw_negative(state, data.alias_table) * stride
                        rows[k // BLOCK * WIDTH + k % BLOCK] = candidate
                    for at in range(0, size, WIDTH):
                        negative_sampling_step(
                            h, dh, outputs, width, rows, at, sign, used, lr, product, exponents
                        )
                    if len(output_updates):
                        for k in range(size):
                            output_updates[rows[k] // stride] += 1
            factor = broadcast(np.float32(1 / n if mean_context else 1))
            for j in range(n):
                for d in range(0, width, WIDTH):
                    store(
                        inputs,
                        input_offsets[j] + d,
                        fma(load(dh, d), factor, load(inputs, input_offsets[j] + d)),
                    )
                if len(input_updates):
                    input_updates[input_offsets[j] // stride] += 1
        loss += log_total(product, exponents)
        product[:] = 1
        exponents[:] = 0
    return loss, predictions


@njit_fast
def merge_copies(base, copies, updates, row_begin, row_end, width, stride):
    """Rows of `base` and of all copies become base + fraction · Σ changes, in a fixed order; `updates` counts
    each copy's updates of a row.

    Few updates add up as if one copy had made them. Many updates from the same start would overshoot, since
    each copy goes the full way; so the fraction falls from 1 with their number, down to the mean of the
    copies that changed the row.
    """
    for row in range(row_begin, row_end):
        steps = 0
        changed = 0
        for c in range(len(updates)):
            steps += updates[c, row]
            changed += updates[c, row] > 0
        if changed == 0:
            continue
        fraction = np.float32(max(1 / changed, min(1.0, MERGED_STEPS / steps)))
        for i in range(row * stride, row * stride + width, WIDTH):
            old = load(base, i)
            total = broadcast(np.float32(0))
            for c in range(len(updates)):
                added = fma(load(copies[c], i), broadcast(np.float32(1)), total)
                total = fma(old, broadcast(np.float32(-1)), added)
            new = fma(total, broadcast(fraction), old)
            store(base, i, new)
            for c in range(len(updates)):
                store(copies[c], i, new)
        updates[:, row] = 0

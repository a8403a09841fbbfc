"""Matrix products with few rows on the left, as decoding and recurrence have them: small tiles that stay in registers, eight numbers wide.

`floats` reads a matrix as it stands, row after row; a tile is up to four inputs by three rows of weights. `outer` does so too, for inputs that
stand side by side, number by number: sixteen of them by six rows of weights, with nothing to add up across a vector in the end. `bytes_` reads
weights in one byte: sixteen rows stand together, two columns side by side, and one instruction multiplies and adds pairs of 16-bit numbers; a tile
is up to six inputs by sixteen rows. Addresses and lengths are whole numbers; nothing checks them.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from seqloom.kernels.simd import (
    BYTES,
    FLOAT,
    FLOATS,
    I32,
    I64,
    INTS,
    SHORTS,
    TRANSPOSE_SHUFFLES,
    emit_broadcast,
    emit_fma,
    emit_load,
    emit_madd_pairs,
    emit_masked_load,
    emit_prefetch,
    emit_reduce_add,
    emit_reduce_add_8,
    emit_store,
    literal_int,
)

TILE_COLS, TILE_ROWS = 3, 4  # of a tile of floats: rows of weights, inputs
PACKED_COLS, PACKED_ROWS = 6, 16  # of a tile whose inputs stand side by side
INT8_COLS, INT8_ROWS = 16, 6  # of a tile of bytes
DOT_ROWS = 8  # vectors that are multiplied with one at a time


def accumulators(builder, kind, rows, columns):
    """Sums that begin at 0; the compiler keeps them in registers."""
    zero = ir.Constant(kind, [0.0 if kind is FLOATS else 0] * kind.count)
    sums = [[cgutils.alloca_once(builder, kind) for _ in range(columns)] for _ in range(rows)]
    for row in sums:
        for one in row:
            builder.store(zero, one)
    return sums


def row_addresses(builder, start, stride, count):
    return [builder.add(start, builder.mul(stride, I64(row))) for row in range(count)]


@intrinsic
def tile_f32(typing, out, row, base, step, weights, long, x, far, size, inputs, columns):
    """out[i, n] = Σₖ x[i, k] W[n, k] + base[i, n] over `size` k for `inputs` rows of x and `columns` rows of W. Their rows begin `row`, `step`,
    `long` and `far` bytes apart: those of out, base, W and x."""
    if (high := literal_int(inputs)) is None or (wide := literal_int(columns)) is None:
        return None

    def code(context, builder, signature, args):
        out, row, base, step, weights, long, x, far, size = args[:9]
        sums = accumulators(builder, FLOATS, high, wide)
        ws, xs = row_addresses(builder, weights, long, wide), row_addresses(builder, x, far, high)
        eights, rest = builder.lshr(size, I64(3)), builder.and_(size, I64(7))

        def add(at, load):
            loaded = [load(builder.add(one, at)) for one in ws]
            for i in range(high):
                value = load(builder.add(xs[i], at))
                for n in range(wide):
                    builder.store(emit_fma(builder, loaded[n], value, builder.load(sums[i][n])), sums[i][n])

        with cgutils.for_range(builder, eights, intp=I64) as loop:
            add(builder.mul(loop.index, I64(32)), lambda address: emit_load(builder, address, FLOATS, 4))
        with builder.if_then(builder.icmp_unsigned("!=", rest, I64(0))):
            add(builder.mul(eights, I64(32)), lambda address: emit_masked_load(builder, address, rest))
        for i, (start, under) in enumerate(
            zip(row_addresses(builder, out, row, high), row_addresses(builder, base, step, high), strict=True)
        ):
            for n in range(wide):
                more = emit_load(builder, builder.add(under, I64(4 * n)), FLOAT, 4)
                emit_store(
                    builder,
                    builder.fadd(emit_reduce_add(builder, builder.load(sums[i][n])), more),
                    builder.add(start, I64(4 * n)),
                )
        return context.get_dummy_value()

    return types.none(*[types.intp] * 9, inputs, columns), code


@intrinsic
def tile_packed_f32(typing, out, row, bias, weights, long, x, size, eights, columns):
    """out[i, n] = Σₖ x[k, i] W[n, k] + bias[n] over `size` k for 8 · `eights` inputs, which stand `TALL` in a row, and `columns` rows of W. Rows
    of out and W begin `row` and `long` bytes apart."""
    if (high := literal_int(eights)) is None or (wide := literal_int(columns)) is None:
        return None

    def code(context, builder, signature, args):
        out, row, bias, weights, long, x, size = args[:7]
        sums = accumulators(builder, FLOATS, wide, high)
        ws = row_addresses(builder, weights, long, wide)
        with cgutils.for_range(builder, size, intp=I64) as loop:
            here, at = (
                builder.add(x, builder.mul(loop.index, I64(4 * PACKED_ROWS))),
                builder.mul(loop.index, I64(4)),
            )
            loaded = [emit_load(builder, builder.add(here, I64(32 * i)), FLOATS, 4) for i in range(high)]
            for n in range(wide):
                value = emit_broadcast(builder, emit_load(builder, builder.add(ws[n], at), FLOAT, 4), 8)
                for i in range(high):
                    builder.store(emit_fma(builder, value, loaded[i], builder.load(sums[n][i])), sums[n][i])
        more = [
            emit_broadcast(builder, emit_load(builder, builder.add(bias, I64(4 * n)), FLOAT, 4), 8)
            for n in range(wide)
        ]
        made = [[builder.fadd(builder.load(sums[n][i]), more[n]) for i in range(high)] for n in range(wide)]
        for i, start in enumerate(row_addresses(builder, out, row, 8 * high)):
            for n in range(wide):
                emit_store(
                    builder,
                    builder.extract_element(made[n][i // 8], I32(i % 8)),
                    builder.add(start, I64(4 * n)),
                )
        return context.get_dummy_value()

    return types.none(*[types.intp] * 7, eights, columns), code


@intrinsic
def transpose_8x8(typing, out, row, x, far):
    """out[k, i] = x[i, k] for eight i and k; rows of out and x begin `row` and `far` bytes apart."""

    def code(context, builder, signature, args):
        out, row, x, far = args
        values = [emit_load(builder, at, FLOATS, 4) for at in row_addresses(builder, x, far, 8)]
        for step, swap in zip((1, 2, 4), TRANSPOSE_SHUFFLES, strict=True):
            made = list(values)
            for i in range(8):
                if not i & step:
                    made[i], made[i + step] = (
                        builder.shuffle_vector(values[i], values[i + step], ir.Constant(INTS, which))
                        for which in swap
                    )
            values = made
        order = [values[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)]
        for value, at in zip(order, row_addresses(builder, out, row, 8), strict=True):
            emit_store(builder, value, at)
        return context.get_dummy_value()

    return types.none(*[types.intp] * 4), code


@intrinsic
def tile_int8(typing, out, row, bias, weights, scales, x, steps, pairs, ahead, inputs):
    """out[i, n] = steps[i] scales[n] Σₖ x[i, k] W[n, k] + bias[n] for `inputs` rows of 16-bit x, which stand pair by pair, and one panel of W;
    `pairs` is half the number of k. Sums are exact: the caller keeps them within 32 bits. Meanwhile what lies `ahead` bytes further is fetched."""
    if (high := literal_int(inputs)) is None:
        return None

    def code(context, builder, signature, args):
        out, row, bias, weights, scales, x, steps, pairs, ahead = args[:9]
        sums = accumulators(builder, INTS, high, 2)

        def pair(at, here, number):
            loaded = [
                builder.sext(
                    emit_load(
                        builder, builder.add(at, I64(2 * INT8_COLS * number + INT8_COLS * n)), BYTES, 1
                    ),
                    SHORTS,
                )
                for n in range(2)
            ]
            for i in range(high):
                both = emit_load(builder, builder.add(here, I64(4 * (high * number + i))), I32, 2)
                both = builder.bitcast(emit_broadcast(builder, both, 8), SHORTS)
                for n in range(2):
                    builder.store(
                        builder.add(builder.load(sums[i][n]), emit_madd_pairs(builder, loaded[n], both)),
                        sums[i][n],
                    )

        two = builder.lshr(pairs, I64(1))
        with cgutils.for_range(builder, two, intp=I64) as loop:
            at, here = (
                builder.add(weights, builder.mul(loop.index, I64(4 * INT8_COLS))),
                builder.add(x, builder.mul(loop.index, I64(8 * high))),
            )
            emit_prefetch(builder, builder.add(at, ahead))
            pair(at, here, 0)
            pair(at, here, 1)
        with builder.if_then(builder.trunc(pairs, ir.IntType(1))):
            pair(
                builder.add(weights, builder.mul(two, I64(4 * INT8_COLS))),
                builder.add(x, builder.mul(two, I64(8 * high))),
                0,
            )
        factors = [emit_load(builder, builder.add(scales, I64(32 * n)), FLOATS, 4) for n in range(2)]
        more = [emit_load(builder, builder.add(bias, I64(32 * n)), FLOATS, 4) for n in range(2)]
        for i, start in enumerate(row_addresses(builder, out, row, high)):
            step = emit_broadcast(builder, emit_load(builder, builder.add(steps, I64(4 * i)), FLOAT, 4), 8)
            for n in range(2):
                value = builder.sitofp(builder.load(sums[i][n]), FLOATS)
                emit_store(
                    builder,
                    emit_fma(builder, value, builder.fmul(step, factors[n]), more[n]),
                    builder.add(start, I64(32 * n)),
                )
        return context.get_dummy_value()

    return types.none(*[types.intp] * 9, inputs), code


@intrinsic
def dot_rows(typing, out, a, b, shift, first, eights):
    """out[i] = Σ a b[i] over 8 · `eights` floats, for `SIDE` of the addresses at `b` from `first` on, each `shift` bytes further."""

    def code(context, builder, signature, args):
        out, a, b, shift, first, eights = args
        (sums,) = accumulators(builder, FLOATS, 1, DOT_ROWS)
        places = [builder.add(b, builder.mul(builder.add(first, I64(i)), I64(8))) for i in range(DOT_ROWS)]
        rows = [builder.add(emit_load(builder, place, I64, 8), shift) for place in places]
        with cgutils.for_range(builder, eights, intp=I64) as loop:
            at = builder.mul(loop.index, I64(32))
            value = emit_load(builder, builder.add(a, at), FLOATS, 4)
            for one, row in zip(sums, rows, strict=True):
                builder.store(
                    emit_fma(
                        builder, value, emit_load(builder, builder.add(row, at), FLOATS, 4), builder.load(one)
                    ),
                    one,
                )
        emit_store(
            builder,
            emit_reduce_add_8(builder, [builder.load(one) for one in sums]),
            builder.add(out, builder.mul(first, I64(4))),
        )
        return context.get_dummy_value()

    return types.none(*[types.intp] * 6), code


@intrinsic
def weighted_sum(typing, out, weights, x, shift, count, eights):
    """out = Σ weights[i] x[i] over 8 · `eights` floats, for the first `count` of the addresses at `x`, each `shift` bytes further."""
    if (wide := literal_int(eights)) is None:
        return None

    def code(context, builder, signature, args):
        out, weights, x, shift, count = args[:5]
        (sums,) = accumulators(builder, FLOATS, 1, wide)
        with cgutils.for_range(builder, count, intp=I64) as loop:
            row = builder.add(
                emit_load(builder, builder.add(x, builder.mul(loop.index, I64(8))), I64, 8), shift
            )
            factor = emit_broadcast(
                builder,
                emit_load(builder, builder.add(weights, builder.mul(loop.index, I64(4))), FLOAT, 4),
                8,
            )
            for n, one in enumerate(sums):
                builder.store(
                    emit_fma(
                        builder,
                        factor,
                        emit_load(builder, builder.add(row, I64(32 * n)), FLOATS, 4),
                        builder.load(one),
                    ),
                    one,
                )
        for n, one in enumerate(sums):
            emit_store(builder, builder.load(one), builder.add(out, I64(32 * n)))
        return context.get_dummy_value()

    return types.none(*[types.intp] * 5, eights), code

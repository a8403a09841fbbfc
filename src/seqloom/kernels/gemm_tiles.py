"""Register tiles of matrix products with few rows, and the vector loops of decoding attention: LLVM code for
`small_gemm.py` and `decode_attention.py`.

A tile keeps all its sums in vector registers, eight or sixteen numbers wide, while it runs over k:
- `tile_f32` reads x and W row by row: up to 4 rows of x by 3 rows of W, with a sum across each vector at the
  end;
- `tile_packed_f32` reads x packed column by column: 16 rows of x by 6 rows of W, or 32 by 12 where vectors have
  16 numbers, without sums across vectors;
- `tile_int8` reads int8 weights in panels of 16 rows, two columns side by side: up to INT8_ROWS rows of x by 16
  rows of W, with one instruction that multiplies and adds pairs of int16.
Arguments are int64: addresses, strides in bytes and lengths; nothing is checked. Sizes of a tile are
literals. The callers block for the cache.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from seqloom.kernels.simd import (
    FLOAT,
    FLOATS,
    HAS_AVX512,
    I8,
    I16,
    I32,
    I64,
    INTS,
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

TILE_COLS, TILE_ROWS = 3, 4  # rows of W (columns of y) and rows of x in tile_f32
PACKED_ROWS = 16  # rows of x side by side in packed x
PACKED_LANES, PACKED_COLS = (16, 12) if HAS_AVX512 else (8, 6)  # in tile_packed_f32, with 2 vectors
INT8_COLS = 16  # columns of a panel of int8 weights
INT8_LANES, INT8_ROWS = (16, 8) if HAS_AVX512 else (8, 6)  # of a vector of sums, and rows of x, in tile_int8
DOT_ROWS = 8  # vectors that dot_rows multiplies by one vector at a time


def accumulators(builder, vector_type, rows, columns):
    """Sums that begin at 0; LLVM keeps them in registers."""
    zero = ir.Constant(vector_type, [0.0 if vector_type.element == FLOAT else 0] * vector_type.count)
    sums = [[cgutils.alloca_once(builder, vector_type) for _ in range(columns)] for _ in range(rows)]
    for row in sums:
        for total in row:
            builder.store(zero, total)
    return sums


def row_addresses(builder, start, stride, count):
    return [builder.add(start, builder.mul(stride, I64(row))) for row in range(count)]


def accumulate_fma(builder, a, b, total):
    """total ← a b + total"""
    builder.store(emit_fma(builder, a, b, builder.load(total)), total)


@intrinsic
def tile_f32(typing, y, y_stride, addend, b_stride, w, w_stride, x, x_stride, k, rows, columns):
    """y[i, n] = Σₖ x[i, k] W[n, k] + addend[i, n] for `rows` rows of x and `columns` rows of W."""
    num_rows = literal_int(rows)
    num_columns = literal_int(columns)
    if num_rows is None or num_columns is None:
        return None

    def code(context, builder, signature, args):
        y, y_stride, addend, b_stride, w, w_stride, x, x_stride, k = args[:9]
        sums = accumulators(builder, FLOATS, num_rows, num_columns)
        w_rows = row_addresses(builder, w, w_stride, num_columns)
        x_rows = row_addresses(builder, x, x_stride, num_rows)
        eights = builder.lshr(k, I64(3))
        rest = builder.and_(k, I64(7))

        def accumulate(offset, load):
            weights = [load(builder.add(w_row, offset)) for w_row in w_rows]
            for i in range(num_rows):
                value = load(builder.add(x_rows[i], offset))
                for n in range(num_columns):
                    accumulate_fma(builder, weights[n], value, sums[i][n])

        next_rows = builder.add(w, builder.mul(w_stride, I64(num_columns)))
        with cgutils.for_range(builder, eights, intp=I64) as loop:
            offset = builder.mul(loop.index, I64(32))
            ahead = builder.add(next_rows, builder.mul(offset, I64(num_columns)))
            emit_prefetch(builder, ahead)
            emit_prefetch(builder, builder.add(ahead, I64(48)))
            accumulate(offset, lambda address: emit_load(builder, address, FLOATS, 4))
        with builder.if_then(builder.icmp_unsigned("!=", rest, I64(0))):
            offset = builder.mul(eights, I64(32))
            accumulate(offset, lambda address: emit_masked_load(builder, address, rest))
        y_rows = row_addresses(builder, y, y_stride, num_rows)
        b_rows = row_addresses(builder, addend, b_stride, num_rows)
        for i in range(num_rows):
            for n in range(num_columns):
                added = emit_load(builder, builder.add(b_rows[i], I64(4 * n)), FLOAT, 4)
                total = builder.fadd(emit_reduce_add(builder, builder.load(sums[i][n])), added)
                emit_store(builder, total, builder.add(y_rows[i], I64(4 * n)))
        return context.get_dummy_value()

    return types.none(*[types.intp] * 9, rows, columns), code


@intrinsic
def tile_packed_f32(typing, y, y_stride, bias, w, w_stride, x, k, lanes, vectors, columns):
    """y[i, n] = Σₖ x[k, i] W[n, k] + bias[n] for `vectors` vectors of `lanes` rows of x, packed by PACKED_ROWS,
    and `columns` rows of W.

    Each sum is one chain of fused multiplications and additions, so the bits do not depend on the vectors' width.
    """
    num_lanes = literal_int(lanes)
    num_vectors = literal_int(vectors)
    num_columns = literal_int(columns)
    if num_lanes is None or num_vectors is None or num_columns is None:
        return None
    vector_type = ir.VectorType(FLOAT, num_lanes)

    def code(context, builder, signature, args):
        y, y_stride, bias, w, w_stride, x, k = args[:7]
        sums = accumulators(builder, vector_type, num_columns, num_vectors)
        w_rows = row_addresses(builder, w, w_stride, num_columns)
        block_bytes = builder.mul(k, I64(4 * PACKED_ROWS))
        next_rows = builder.add(w, builder.mul(w_stride, I64(num_columns)))
        x_vectors = []
        for first_row in range(0, num_vectors * num_lanes, num_lanes):
            block = builder.add(x, builder.mul(block_bytes, I64(first_row // PACKED_ROWS)))
            x_vectors.append(builder.add(block, I64(4 * (first_row % PACKED_ROWS))))
        with cgutils.for_range(builder, k, intp=I64) as loop:
            x_offset = builder.mul(loop.index, I64(4 * PACKED_ROWS))
            offset = builder.mul(loop.index, I64(4))
            emit_prefetch(builder, builder.add(next_rows, builder.mul(offset, I64(num_columns))))
            values = [emit_load(builder, builder.add(at, x_offset), vector_type, 4) for at in x_vectors]
            for n in range(num_columns):
                weight = emit_load(builder, builder.add(w_rows[n], offset), FLOAT, 4)
                weight = emit_broadcast(builder, weight, num_lanes)
                for i in range(num_vectors):
                    accumulate_fma(builder, weight, values[i], sums[n][i])
        y_rows = row_addresses(builder, y, y_stride, num_lanes * num_vectors)
        totals = []
        for n in range(num_columns):
            added = emit_load(builder, builder.add(bias, I64(4 * n)), FLOAT, 4)
            added = emit_broadcast(builder, added, num_lanes)
            totals.append([builder.fadd(builder.load(sums[n][i]), added) for i in range(num_vectors)])
        for i in range(num_vectors):
            rows = y_rows[i * num_lanes : (i + 1) * num_lanes]
            quads = num_columns // 4 * 4
            for n in range(0, quads, 4):
                store_quads(builder, [totals[n + j][i] for j in range(4)], rows, 4 * n)
            for n in range(quads, num_columns):
                for lane, y_row in enumerate(rows):
                    value = builder.extract_element(totals[n][i], I32(lane))
                    emit_store(builder, value, builder.add(y_row, I64(4 * n)))
        return context.get_dummy_value()

    return types.none(*[types.intp] * 7, lanes, vectors, columns), code


def store_quads(builder, columns, rows, offset):
    """Stores four vectors as columns: lane i of each into four consecutive floats at rows[i] + offset, by 4 × 4
    transposes inside each quarter of the vectors.
    """
    lanes = len(rows)

    def shuffled(a, b, pattern):  # the pattern of each four lanes; 4 and more are lanes of b
        mask = [
            base + (index if index < 4 else lanes + index - 4)
            for base in range(0, lanes, 4)
            for index in pattern
        ]
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, lanes), mask))

    a, b, c, d = columns
    low, high = shuffled(a, b, (0, 4, 1, 5)), shuffled(a, b, (2, 6, 3, 7))
    other_low, other_high = shuffled(c, d, (0, 4, 1, 5)), shuffled(c, d, (2, 6, 3, 7))
    transposed = [
        shuffled(low, other_low, (0, 1, 4, 5)),
        shuffled(low, other_low, (2, 3, 6, 7)),
        shuffled(high, other_high, (0, 1, 4, 5)),
        shuffled(high, other_high, (2, 3, 6, 7)),
    ]
    for lane, row in enumerate(rows):
        quarter = ir.Constant(ir.VectorType(I32, 4), [lane // 4 * 4 + j for j in range(4)])
        value = builder.shuffle_vector(transposed[lane % 4], transposed[lane % 4], quarter)
        emit_store(builder, value, builder.add(row, I64(offset)))


@intrinsic
def transpose_8x8(typing, y, y_stride, x, x_stride):
    """y[k, i] = x[i, k] for eight i and k."""

    def code(context, builder, signature, args):
        y, y_stride, x, x_stride = args
        values = [emit_load(builder, row, FLOATS, 4) for row in row_addresses(builder, x, x_stride, 8)]
        for distance, (low, high) in zip((1, 2, 4), TRANSPOSE_SHUFFLES, strict=True):
            shuffled = list(values)
            for i in range(8):
                if not i & distance:
                    a, b = values[i], values[i + distance]
                    shuffled[i] = builder.shuffle_vector(a, b, ir.Constant(INTS, low))
                    shuffled[i + distance] = builder.shuffle_vector(a, b, ir.Constant(INTS, high))
            values = shuffled
        columns = [values[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)]
        for value, row in zip(columns, row_addresses(builder, y, y_stride, 8), strict=True):
            emit_store(builder, value, row)
        return context.get_dummy_value()

    return types.none(*[types.intp] * 4), code


@intrinsic
def tile_int8(typing, y, y_stride, bias, w, w_scales, x, x_scales, pairs, prefetch_bytes, rows):
    """y[i, n] = x_scales[i] w_scales[n] Σₖ x[i, k] W[n, k] + bias[n] for `rows` rows of int16 x, interleaved
    pair by pair, and one panel of W.

    `pairs` is k / 2. Sums are exact, in any order: the caller keeps them within 32 bits. Prefetches W
    `prefetch_bytes` ahead.
    """
    num_rows = literal_int(rows)
    if num_rows is None:
        return None
    parts = INT8_COLS // INT8_LANES  # vectors of a panel
    ints = ir.VectorType(I32, INT8_LANES)
    shorts = ir.VectorType(I16, 2 * INT8_LANES)
    parities = (
        2 if num_rows * parts < 4 else 1
    )  # more sums than rows, so that additions do not wait for each other

    def code(context, builder, signature, args):
        y, y_stride, bias, w, w_scales, x, x_scales, pairs, prefetch_bytes = args[:9]
        sums = [accumulators(builder, ints, num_rows, parts) for _ in range(parities)]

        def accumulate_pair(w_at, x_at, index):
            """One pair of columns: `index` pairs behind the addresses."""
            weights = []
            for n in range(parts):
                address = builder.add(w_at, I64(2 * INT8_COLS * index + 2 * INT8_LANES * n))
                loaded = emit_load(builder, address, ir.VectorType(I8, 2 * INT8_LANES), 1)
                weights.append(builder.sext(loaded, shorts))
            for i in range(num_rows):
                pair = emit_load(builder, builder.add(x_at, I64(4 * (num_rows * index + i))), I32, 2)
                pair = builder.bitcast(emit_broadcast(builder, pair, INT8_LANES), shorts)
                for n in range(parts):
                    total = sums[index % parities][i][n]
                    products = emit_madd_pairs(builder, weights[n], pair)
                    builder.store(builder.add(builder.load(total), products), total)

        double_pairs = builder.lshr(pairs, I64(1))
        with cgutils.for_range(builder, double_pairs, intp=I64) as loop:
            w_at = builder.add(w, builder.mul(loop.index, I64(4 * INT8_COLS)))
            x_at = builder.add(x, builder.mul(loop.index, I64(8 * num_rows)))
            emit_prefetch(builder, builder.add(w_at, prefetch_bytes))
            accumulate_pair(w_at, x_at, 0)
            accumulate_pair(w_at, x_at, 1)
        with builder.if_then(builder.trunc(pairs, ir.IntType(1))):
            w_at = builder.add(w, builder.mul(double_pairs, I64(4 * INT8_COLS)))
            x_at = builder.add(x, builder.mul(double_pairs, I64(8 * num_rows)))
            accumulate_pair(w_at, x_at, 0)
        vector = ir.VectorType(FLOAT, INT8_LANES)
        offsets = [I64(4 * INT8_LANES * n) for n in range(parts)]
        factors = [emit_load(builder, builder.add(w_scales, offset), vector, 4) for offset in offsets]
        added = [emit_load(builder, builder.add(bias, offset), vector, 4) for offset in offsets]
        for i, y_row in enumerate(row_addresses(builder, y, y_stride, num_rows)):
            x_scale = emit_load(builder, builder.add(x_scales, I64(4 * i)), FLOAT, 4)
            x_scale = emit_broadcast(builder, x_scale, INT8_LANES)
            for n in range(parts):
                total = builder.load(sums[0][i][n])
                for other in sums[1:]:
                    total = builder.add(total, builder.load(other[i][n]))
                value = builder.sitofp(total, vector)
                result = emit_fma(builder, value, builder.fmul(x_scale, factors[n]), added[n])
                emit_store(builder, result, builder.add(y_row, offsets[n]))
        return context.get_dummy_value()

    return types.none(*[types.intp] * 9, rows), code


@intrinsic
def dot_rows(typing, out, a, addresses, offset, first, eights):
    """out[i] = a · b[i] over 8 · `eights` floats, for the DOT_ROWS vectors b[i] at addresses[first + i] +
    offset.
    """

    def code(context, builder, signature, args):
        out, a, addresses, offset, first, eights = args
        (sums,) = accumulators(builder, FLOATS, 1, DOT_ROWS)
        rows = []
        for i in range(DOT_ROWS):
            entry = builder.add(addresses, builder.mul(builder.add(first, I64(i)), I64(8)))
            rows.append(builder.add(emit_load(builder, entry, I64, 8), offset))
        with cgutils.for_range(builder, eights, intp=I64) as loop:
            at = builder.mul(loop.index, I64(32))
            value = emit_load(builder, builder.add(a, at), FLOATS, 4)
            for total, row in zip(sums, rows, strict=True):
                accumulate_fma(builder, value, emit_load(builder, builder.add(row, at), FLOATS, 4), total)
        result = emit_reduce_add_8(builder, [builder.load(total) for total in sums])
        emit_store(builder, result, builder.add(out, builder.mul(first, I64(4))))
        return context.get_dummy_value()

    return types.none(*[types.intp] * 6), code


@intrinsic
def weighted_sum(typing, out, weights, addresses, offset, count, eights):
    """out = Σᵢ weights[i] x[i] over 8 · `eights` floats, for the `count` vectors x[i] at addresses[i] +
    offset.
    """
    num_vectors = literal_int(eights)
    if num_vectors is None:
        return None

    def code(context, builder, signature, args):
        out, weights, addresses, offset, count = args[:5]
        (sums,) = accumulators(builder, FLOATS, 1, num_vectors)
        with cgutils.for_range(builder, count, intp=I64) as loop:
            entry = builder.add(addresses, builder.mul(loop.index, I64(8)))
            row = builder.add(emit_load(builder, entry, I64, 8), offset)
            weight = emit_load(builder, builder.add(weights, builder.mul(loop.index, I64(4))), FLOAT, 4)
            weight = emit_broadcast(builder, weight, 8)
            for n, total in enumerate(sums):
                value = emit_load(builder, builder.add(row, I64(32 * n)), FLOATS, 4)
                accumulate_fma(builder, weight, value, total)
        for n, total in enumerate(sums):
            emit_store(builder, builder.load(total), builder.add(out, I64(32 * n)))
        return context.get_dummy_value()

    return types.none(*[types.intp] * 5, eights), code

"""Matrix products with few rows on the left, as decoding and recurrence have them: small tiles that stay in registers, eight numbers wide.

`floats` reads a matrix as it stands, row after row; a tile is up to four inputs by three rows of weights. `outer` does so too, for inputs that
stand side by side, number by number: sixteen of them by six rows of weights, with nothing to add up across a vector in the end. `bytes_` reads
weights in one byte: sixteen rows stand together, two columns side by side, and one instruction multiplies and adds pairs of 16-bit numbers; a tile
is up to six inputs by sixteen rows. Addresses and lengths are whole numbers; nothing checks them.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

I8, I16, I32, I64, FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, INTS, SHORTS, BYTES = (
    ir.VectorType(FLOAT, 8),
    ir.VectorType(I32, 8),
    ir.VectorType(I16, 16),
    ir.VectorType(I8, 16),
)
WIDE, HIGH = 3, 4  # of a tile of floats: rows of weights, inputs
ACROSS, TALL = 6, 16  # of a tile whose inputs stand side by side
PANEL, DEEP = 16, 6  # of a tile of bytes
SIDE = 8  # vectors that are multiplied with one at a time
PAIRS = bool(
    llvm.get_host_cpu_features().get("avx2")
)  # whether the processor multiplies and adds pairs of 16-bit numbers
FAST = ("contract", "reassoc", "nsz")
SWAPS = (  # parts of two vectors that change places, singly, by twos, by fours: what turns eight by eight
    ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]),
    ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
    ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
)


def read(builder, address, kind, align):
    found = builder.load(builder.inttoptr(address, kind.as_pointer()))
    found.align = align
    return found


def write(builder, value, address, align=4):
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = align


def spread(builder, value, count):
    """The number, so many times."""
    kind = ir.VectorType(value.type, count)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(
        one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, count), [0] * count)
    )


def registers(builder, kind, rows, columns):
    """Sums that begin at 0; the compiler keeps them in registers."""
    zero = ir.Constant(kind, [0.0 if kind is FLOATS else 0] * kind.count)
    sums = [[cgutils.alloca_once(builder, kind) for _ in range(columns)] for _ in range(rows)]
    for row in sums:
        for one in row:
            builder.store(zero, one)
    return sums


def rows_of(builder, start, stride, count):
    return [builder.add(start, builder.mul(stride, I64(row))) for row in range(count)]


def fma(builder, a, b, c):
    return builder.call(
        cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOATS, [FLOATS] * 3), "llvm.fma.v8f32"
        ),
        [a, b, c],
    )


def total(builder, value):
    """The sum of eight floats."""
    name, kind = "llvm.vector.reduce.fadd.v8f32", ir.FunctionType(FLOAT, [FLOAT, FLOATS])
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, name), [FLOAT(-0.0), value], fastmath=FAST
    )


def paired(builder, a, b):
    """a₂ᵢ b₂ᵢ + a₂ᵢ₊₁ b₂ᵢ₊₁ of sixteen 16-bit numbers."""
    if PAIRS:
        kind = ir.FunctionType(INTS, [SHORTS, SHORTS])
        return builder.call(
            cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pmadd.wd"), [a, b]
        )
    none, halves = ir.Constant(SHORTS, ir.Undefined), []
    for first in (0, 1):
        which = ir.Constant(INTS, list(range(first, 16, 2)))
        halves.append(
            builder.mul(*(builder.sext(builder.shuffle_vector(one, none, which), INTS) for one in (a, b)))
        )
    return builder.add(*halves)


def literal(number: types.Type) -> int | None:
    return number.literal_value if isinstance(number, types.IntegerLiteral) else None


def read_some(builder, address, count):
    """Eight floats, of which only the first `count` are read; the others are 0."""
    kind = ir.FunctionType(FLOATS, [FLOATS.as_pointer(), I32, ir.VectorType(ir.IntType(1), 8), FLOATS])
    masked = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.load.v8f32.p0")
    which = builder.icmp_unsigned(
        "<", ir.Constant(INTS, list(range(8))), spread(builder, builder.trunc(count, I32), 8)
    )
    return builder.call(
        masked,
        [builder.inttoptr(address, FLOATS.as_pointer()), I32(4), which, ir.Constant(FLOATS, [0.0] * 8)],
    )


@intrinsic
def floats(typing, out, row, base, step, weights, long, x, far, size, inputs, columns):
    """out[i, n] = Σₖ x[i, k] W[n, k] + base[i, n] over `size` k for `inputs` rows of x and `columns` rows of W. Their rows begin `row`, `step`,
    `long` and `far` bytes apart: those of out, base, W and x."""
    if (high := literal(inputs)) is None or (wide := literal(columns)) is None:
        return None

    def code(context, builder, signature, args):
        out, row, base, step, weights, long, x, far, size = args[:9]
        sums = registers(builder, FLOATS, high, wide)
        ws, xs = rows_of(builder, weights, long, wide), rows_of(builder, x, far, high)
        eights, rest = builder.lshr(size, I64(3)), builder.and_(size, I64(7))

        def add(at, load):
            loaded = [load(builder.add(one, at)) for one in ws]
            for i in range(high):
                value = load(builder.add(xs[i], at))
                for n in range(wide):
                    builder.store(fma(builder, loaded[n], value, builder.load(sums[i][n])), sums[i][n])

        with cgutils.for_range(builder, eights, intp=I64) as loop:
            add(builder.mul(loop.index, I64(32)), lambda address: read(builder, address, FLOATS, 4))
        with builder.if_then(builder.icmp_unsigned("!=", rest, I64(0))):
            add(builder.mul(eights, I64(32)), lambda address: read_some(builder, address, rest))
        for i, (start, under) in enumerate(
            zip(rows_of(builder, out, row, high), rows_of(builder, base, step, high), strict=True)
        ):
            for n in range(wide):
                more = read(builder, builder.add(under, I64(4 * n)), FLOAT, 4)
                write(
                    builder,
                    builder.fadd(total(builder, builder.load(sums[i][n])), more),
                    builder.add(start, I64(4 * n)),
                )
        return context.get_dummy_value()

    return types.none(*[types.intp] * 9, inputs, columns), code


@intrinsic
def outer(typing, out, row, bias, weights, long, x, size, eights, columns):
    """out[i, n] = Σₖ x[k, i] W[n, k] + bias[n] over `size` k for 8 · `eights` inputs, which stand `TALL` in a row, and `columns` rows of W. Rows
    of out and W begin `row` and `long` bytes apart."""
    if (high := literal(eights)) is None or (wide := literal(columns)) is None:
        return None

    def code(context, builder, signature, args):
        out, row, bias, weights, long, x, size = args[:7]
        sums = registers(builder, FLOATS, wide, high)
        ws = rows_of(builder, weights, long, wide)
        with cgutils.for_range(builder, size, intp=I64) as loop:
            here, at = builder.add(x, builder.mul(loop.index, I64(4 * TALL))), builder.mul(loop.index, I64(4))
            loaded = [read(builder, builder.add(here, I64(32 * i)), FLOATS, 4) for i in range(high)]
            for n in range(wide):
                value = spread(builder, read(builder, builder.add(ws[n], at), FLOAT, 4), 8)
                for i in range(high):
                    builder.store(fma(builder, value, loaded[i], builder.load(sums[n][i])), sums[n][i])
        more = [
            spread(builder, read(builder, builder.add(bias, I64(4 * n)), FLOAT, 4), 8) for n in range(wide)
        ]
        made = [[builder.fadd(builder.load(sums[n][i]), more[n]) for i in range(high)] for n in range(wide)]
        for i, start in enumerate(rows_of(builder, out, row, 8 * high)):
            for n in range(wide):
                write(
                    builder,
                    builder.extract_element(made[n][i // 8], I32(i % 8)),
                    builder.add(start, I64(4 * n)),
                )
        return context.get_dummy_value()

    return types.none(*[types.intp] * 7, eights, columns), code


@intrinsic
def turned(typing, out, row, x, far):
    """out[k, i] = x[i, k] for eight i and k; rows of out and x begin `row` and `far` bytes apart."""

    def code(context, builder, signature, args):
        out, row, x, far = args
        values = [read(builder, at, FLOATS, 4) for at in rows_of(builder, x, far, 8)]
        for step, swap in zip((1, 2, 4), SWAPS, strict=True):
            made = list(values)
            for i in range(8):
                if not i & step:
                    made[i], made[i + step] = (
                        builder.shuffle_vector(values[i], values[i + step], ir.Constant(INTS, which))
                        for which in swap
                    )
            values = made
        order = [values[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)]
        for value, at in zip(order, rows_of(builder, out, row, 8), strict=True):
            write(builder, value, at)
        return context.get_dummy_value()

    return types.none(*[types.intp] * 4), code


def prefetch(builder, address):
    """Asks for the cache line at the address, to be read; where it is, the processor may forget it."""
    byte = I8.as_pointer()
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    )
    builder.call(function, [builder.inttoptr(address, byte), I32(0), I32(2), I32(1)])


@intrinsic
def bytes_(typing, out, row, bias, weights, scales, x, steps, pairs, ahead, inputs):
    """out[i, n] = steps[i] scales[n] Σₖ x[i, k] W[n, k] + bias[n] for `inputs` rows of 16-bit x, which stand pair by pair, and one panel of W;
    `pairs` is half the number of k. Sums are exact: the caller keeps them within 32 bits. Meanwhile what lies `ahead` bytes further is fetched."""
    if (high := literal(inputs)) is None:
        return None

    def code(context, builder, signature, args):
        out, row, bias, weights, scales, x, steps, pairs, ahead = args[:9]
        sums = registers(builder, INTS, high, 2)

        def pair(at, here, number):
            loaded = [
                builder.sext(
                    read(builder, builder.add(at, I64(2 * PANEL * number + PANEL * n)), BYTES, 1), SHORTS
                )
                for n in range(2)
            ]
            for i in range(high):
                both = read(builder, builder.add(here, I64(4 * (high * number + i))), I32, 2)
                both = builder.bitcast(spread(builder, both, 8), SHORTS)
                for n in range(2):
                    builder.store(
                        builder.add(builder.load(sums[i][n]), paired(builder, loaded[n], both)), sums[i][n]
                    )

        two = builder.lshr(pairs, I64(1))
        with cgutils.for_range(builder, two, intp=I64) as loop:
            at, here = (
                builder.add(weights, builder.mul(loop.index, I64(4 * PANEL))),
                builder.add(x, builder.mul(loop.index, I64(8 * high))),
            )
            prefetch(builder, builder.add(at, ahead))
            pair(at, here, 0)
            pair(at, here, 1)
        with builder.if_then(builder.trunc(pairs, ir.IntType(1))):
            pair(
                builder.add(weights, builder.mul(two, I64(4 * PANEL))),
                builder.add(x, builder.mul(two, I64(8 * high))),
                0,
            )
        factors = [read(builder, builder.add(scales, I64(32 * n)), FLOATS, 4) for n in range(2)]
        more = [read(builder, builder.add(bias, I64(32 * n)), FLOATS, 4) for n in range(2)]
        for i, start in enumerate(rows_of(builder, out, row, high)):
            step = spread(builder, read(builder, builder.add(steps, I64(4 * i)), FLOAT, 4), 8)
            for n in range(2):
                value = builder.sitofp(builder.load(sums[i][n]), FLOATS)
                write(
                    builder,
                    fma(builder, value, builder.fmul(step, factors[n]), more[n]),
                    builder.add(start, I64(32 * n)),
                )
        return context.get_dummy_value()

    return types.none(*[types.intp] * 9, inputs), code


def totals(builder, values):
    """The sums of eight vectors of eight floats, as one vector."""
    for swap in SWAPS:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [
            builder.fadd(*(builder.shuffle_vector(a, b, ir.Constant(INTS, which)) for which in swap))
            for a, b in pairs
        ]
    return values[0]


@intrinsic
def dots(typing, out, a, b, shift, first, eights):
    """out[i] = Σ a b[i] over 8 · `eights` floats, for `SIDE` of the addresses at `b` from `first` on, each `shift` bytes further."""

    def code(context, builder, signature, args):
        out, a, b, shift, first, eights = args
        (sums,) = registers(builder, FLOATS, 1, SIDE)
        places = [builder.add(b, builder.mul(builder.add(first, I64(i)), I64(8))) for i in range(SIDE)]
        rows = [builder.add(read(builder, place, I64, 8), shift) for place in places]
        with cgutils.for_range(builder, eights, intp=I64) as loop:
            at = builder.mul(loop.index, I64(32))
            value = read(builder, builder.add(a, at), FLOATS, 4)
            for one, row in zip(sums, rows, strict=True):
                builder.store(
                    fma(builder, value, read(builder, builder.add(row, at), FLOATS, 4), builder.load(one)),
                    one,
                )
        write(
            builder,
            totals(builder, [builder.load(one) for one in sums]),
            builder.add(out, builder.mul(first, I64(4))),
        )
        return context.get_dummy_value()

    return types.none(*[types.intp] * 6), code


@intrinsic
def mix(typing, out, weights, x, shift, count, eights):
    """out = Σ weights[i] x[i] over 8 · `eights` floats, for the first `count` of the addresses at `x`, each `shift` bytes further."""
    if (wide := literal(eights)) is None:
        return None

    def code(context, builder, signature, args):
        out, weights, x, shift, count = args[:5]
        (sums,) = registers(builder, FLOATS, 1, wide)
        with cgutils.for_range(builder, count, intp=I64) as loop:
            row = builder.add(read(builder, builder.add(x, builder.mul(loop.index, I64(8))), I64, 8), shift)
            factor = spread(
                builder, read(builder, builder.add(weights, builder.mul(loop.index, I64(4))), FLOAT, 4), 8
            )
            for n, one in enumerate(sums):
                builder.store(
                    fma(
                        builder,
                        factor,
                        read(builder, builder.add(row, I64(32 * n)), FLOATS, 4),
                        builder.load(one),
                    ),
                    one,
                )
        for n, one in enumerate(sums):
            write(builder, builder.load(one), builder.add(out, I64(32 * n)))
        return context.get_dummy_value()

    return types.none(*[types.intp] * 5, eights), code


def at(kind: types.Type, bits: ir.Type):
    """Arrays of one kind of number by their address."""

    @intrinsic
    def pointer(typing, address):
        def code(context, builder, signature, args):
            return builder.inttoptr(args[0], bits.as_pointer())

        return types.CPointer(kind)(types.intp), code

    @njit
    def array(address, size):
        return carray(pointer(address), (size,))

    return array


floats_at, bytes_at = at(types.float32, FLOAT), at(types.uint8, I8)
ints_at, longs_at = at(types.int32, I32), at(types.int64, I64)

"""Eight floats at once inside numba: the few vector instructions that `kernels.py` is written in.

Numba's own vectoriser gives up where several rows are read and written in one loop, since it cannot know that they are different rows. A
value of type `Floats` is one LLVM vector <8 x float>, which every processor's compiler maps to what it has. An offset counts floats
from the array's start; nothing checks it. Left out: everything that word2vec does not need.
"""

from __future__ import annotations

import math

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.core.cgutils import get_or_insert_function
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

WIDTH = 8
TRANSPOSE_SHUFFLES = (  # parts of two vectors that change places, singly, by twos, by fours: what turns eight by eight
    ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]),
    ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
    ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
)
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_FLOAT, WIDTH), ir.VectorType(_INT, WIDTH)
_FAST = ("contract", "reassoc", "nsz", "arcp")


class Floats(types.Type):
    """The numba type of eight floats."""

    def __init__(self):
        super().__init__(name="Floats")


floats = Floats()


@register_default(Floats)
class _Model(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _FLOATS)


def _constant(value: float) -> ir.Constant:
    return ir.Constant(_FLOATS, [float(np.float32(value))] * WIDTH)


def _address(context, builder, array_type, array, offset, what):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), what.as_pointer())


def _call(builder, name: str, *args):
    function = get_or_insert_function(
        builder.module, ir.FunctionType(_FLOATS, [_FLOATS] * len(args)), f"llvm.{name}.v8f32"
    )
    return builder.call(function, args)


@intrinsic
def load(typing, array, offset):
    """array[offset : offset + 8]"""

    def code(context, builder, signature, args):
        found = builder.load(_address(context, builder, signature.args[0], args[0], args[1], _FLOATS))
        found.align = 4
        return found

    return floats(array, types.intp), code


@intrinsic
def store(typing, array, offset, value):
    """array[offset : offset + 8] = value"""

    def code(context, builder, signature, args):
        place = _address(context, builder, signature.args[0], args[0], args[1], _FLOATS)
        builder.store(args[2], place).align = 4
        return context.get_dummy_value()

    return types.none(array, types.intp, floats), code


@intrinsic
def prefetch(typing, array, offset):
    """Asks for the cache line of array[offset]; where it is, the processor may forget it."""

    def code(context, builder, signature, args):
        byte = ir.IntType(8).as_pointer()
        place = _address(context, builder, signature.args[0], args[0], args[1], ir.IntType(8))
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
        )
        builder.call(function, [place, _INT(1), _INT(3), _INT(1)])  # to write, keep near, data
        return context.get_dummy_value()

    return types.none(array, types.intp), code


@intrinsic
def broadcast(typing, number):
    """The number, eight times."""

    def code(context, builder, signature, args):
        one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), args[0], _INT(0))
        return builder.shuffle_vector(
            one, ir.Constant(_FLOATS, ir.Undefined), ir.Constant(_INTS, [0] * WIDTH)
        )

    return floats(types.float32), code


@intrinsic
def broadcast_lane(typing, value, index):
    """value[index], eight times; the index is a literal."""
    if not isinstance(index, types.IntegerLiteral):
        return None
    which = index.literal_value

    def code(context, builder, signature, args):
        return builder.shuffle_vector(
            args[0], ir.Constant(_FLOATS, ir.Undefined), ir.Constant(_INTS, [which] * WIDTH)
        )

    return floats(floats, index), code


@intrinsic
def fma(typing, a, b, c):
    """a b + c"""

    def code(context, builder, signature, args):
        return builder.fadd(builder.fmul(args[0], args[1], flags=_FAST), args[2], flags=_FAST)

    return floats(floats, floats, floats), code


@intrinsic
def mul(typing, a, b):
    """a b"""

    def code(context, builder, signature, args):
        return builder.fmul(args[0], args[1], flags=_FAST)

    return floats(floats, floats), code


@intrinsic
def reduce_add_6(typing, a, b, c, d, e, f):
    """(Σa, Σb, Σc, Σd, Σe, Σf, 0, 0): neighbours are added and interleaved three times."""

    def code(context, builder, signature, args):
        rows = [*args, _constant(0), _constant(0)]
        for left, right in (
            ([0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15]),
            ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
            ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
        ):
            rows = [
                builder.fadd(
                    *(builder.shuffle_vector(x, y, ir.Constant(_INTS, mask)) for mask in (left, right)),
                    flags=_FAST,
                )
                for x, y in zip(rows[::2], rows[1::2], strict=True)
            ]
        return rows[0]

    return floats(floats, floats, floats, floats, floats, floats), code


@intrinsic
def exp_plus_one(typing, x):
    """1 + eˣ within 2⁻²², x being held to ±40. eˣ = 2ⁿ 2ᶠ with n the nearest whole number of x log₂ e and 2ᶠ by its series."""

    def code(context, builder, signature, args):
        held = _call(builder, "minnum", _call(builder, "maxnum", args[0], _constant(-40)), _constant(40))
        scaled = builder.fmul(held, _constant(math.log2(math.e)))
        whole = _call(builder, "rint", scaled)
        part = builder.fsub(scaled, whole)
        series = _constant(math.log(2) ** 7 / math.factorial(7))
        for power in range(6, -1, -1):
            series = builder.fadd(
                builder.fmul(series, part, flags=_FAST),
                _constant(math.log(2) ** power / math.factorial(power)),
                flags=_FAST,
            )
        bits = builder.shl(
            builder.add(builder.fptosi(whole, _INTS), ir.Constant(_INTS, [127] * WIDTH)),
            ir.Constant(_INTS, [23] * WIDTH),
        )
        return builder.fadd(
            builder.fmul(series, builder.bitcast(bits, _FLOATS), flags=_FAST), _constant(1), flags=_FAST
        )

    return floats(floats), code


@intrinsic
def reciprocal(typing, x):
    """1 / x"""

    def code(context, builder, signature, args):
        return builder.fdiv(_constant(1), args[0])

    return floats(floats), code


@intrinsic
def log_accumulate(typing, product, exponents, factor):
    """Multiplies eight running products by `factor` ≥ 1, each kept as a mantissa in [1, 2) and an exponent, so that logarithms can be
    summed exactly without computing any: Σ log x = log Π x."""

    def code(context, builder, signature, args):
        place = _address(
            context, builder, signature.args[0], args[0], ir.Constant(ir.IntType(64), 0), _FLOATS
        )
        powers = _address(context, builder, signature.args[1], args[1], ir.Constant(ir.IntType(64), 0), _INTS)
        old, count = builder.load(place), builder.load(powers)
        old.align = count.align = 4
        bits = builder.bitcast(builder.fmul(old, args[2]), _INTS)
        power = builder.sub(
            builder.lshr(bits, ir.Constant(_INTS, [23] * WIDTH)), ir.Constant(_INTS, [127] * WIDTH)
        )
        rest = builder.or_(
            builder.and_(bits, ir.Constant(_INTS, [0x7FFFFF] * WIDTH)),
            ir.Constant(_INTS, [0x3F800000] * WIDTH),
        )
        builder.store(builder.add(count, power), powers).align = 4
        builder.store(builder.bitcast(rest, _FLOATS), place).align = 4
        return context.get_dummy_value()

    return types.none(product, exponents, floats), code


@njit(cache=True, nogil=True)
def log_total(product, exponents):
    """The sum of the logarithms that `log_add` has gathered."""
    total = 0.0
    for i in range(WIDTH):
        total += math.log(product[i]) + exponents[i] * math.log(2.0)
    return total


I8, I16, I32, I64, FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, INTS, SHORTS, BYTES = (
    ir.VectorType(FLOAT, 8),
    ir.VectorType(I32, 8),
    ir.VectorType(I16, 16),
    ir.VectorType(I8, 16),
)
HAS_AVX2 = bool(
    llvm.get_host_cpu_features().get("avx2")
)  # whether the processor multiplies and adds pairs of 16-bit numbers
FAST = ("contract", "reassoc", "nsz")


def emit_load(builder, address, kind, align):
    found = builder.load(builder.inttoptr(address, kind.as_pointer()))
    found.align = align
    return found


def emit_store(builder, value, address, align=4):
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = align


def emit_broadcast(builder, value, count):
    """The number, so many times."""
    kind = ir.VectorType(value.type, count)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(
        one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, count), [0] * count)
    )


def emit_fma(builder, a, b, c):
    return builder.call(
        cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOATS, [FLOATS] * 3), "llvm.fma.v8f32"
        ),
        [a, b, c],
    )


def emit_reduce_add(builder, value):
    """The sum of eight floats."""
    name, kind = "llvm.vector.reduce.fadd.v8f32", ir.FunctionType(FLOAT, [FLOAT, FLOATS])
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, name), [FLOAT(-0.0), value], fastmath=FAST
    )


def emit_madd_pairs(builder, a, b):
    """a₂ᵢ b₂ᵢ + a₂ᵢ₊₁ b₂ᵢ₊₁ of sixteen 16-bit numbers."""
    if HAS_AVX2:
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


def literal_int(number: types.Type) -> int | None:
    return number.literal_value if isinstance(number, types.IntegerLiteral) else None


def emit_masked_load(builder, address, count):
    """Eight floats, of which only the first `count` are read; the others are 0."""
    kind = ir.FunctionType(FLOATS, [FLOATS.as_pointer(), I32, ir.VectorType(ir.IntType(1), 8), FLOATS])
    masked = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.load.v8f32.p0")
    which = builder.icmp_unsigned(
        "<", ir.Constant(INTS, list(range(8))), emit_broadcast(builder, builder.trunc(count, I32), 8)
    )
    return builder.call(
        masked,
        [builder.inttoptr(address, FLOATS.as_pointer()), I32(4), which, ir.Constant(FLOATS, [0.0] * 8)],
    )


def emit_prefetch(builder, address):
    """Asks for the cache line at the address, to be read; where it is, the processor may forget it."""
    byte = I8.as_pointer()
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    )
    builder.call(function, [builder.inttoptr(address, byte), I32(0), I32(2), I32(1)])


def emit_reduce_add_8(builder, values):
    """The sums of eight vectors of eight floats, as one vector."""
    for swap in TRANSPOSE_SHUFFLES:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [
            builder.fadd(*(builder.shuffle_vector(a, b, ir.Constant(INTS, which)) for which in swap))
            for a, b in pairs
        ]
    return values[0]


def array_view(kind: types.Type, bits: ir.Type):
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


f32_view, u8_view = array_view(types.float32, FLOAT), array_view(types.uint8, I8)
i32_view, i64_view = array_view(types.int32, I32), array_view(types.int64, I64)

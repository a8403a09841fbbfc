"""Vectors of eight float32 inside numba: compiled functions for `word2vec.py` and `mel_energies.py`, builders of LLVM code for
`gemm_tiles.py`, views of addresses.

numba's own vectoriser gives up where several rows are read and written in one loop, since it cannot know that
the rows differ. A value of type `Floats` is one LLVM vector <8 x float>, which LLVM maps to what the
processor has; functions of `Floats` take arrays and offsets in floats, builders (`emit_`) take addresses, and
nothing is bounds-checked. Everything stays in registers; callers block for the cache. Used only by other
kernels, which have the fallbacks; `emit_madd_pairs` has one for processors without AVX2.
"""

from __future__ import annotations

import math

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core.cgutils import get_or_insert_function
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

from seqloom.kernels.host import cached_njit

WIDTH = 8  # floats of one vector
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
FLOAT = ir.FloatType()
FLOATS = ir.VectorType(FLOAT, WIDTH)
INTS = ir.VectorType(I32, WIDTH)
FAST = ("contract", "reassoc", "nsz")  # of the builders
FAST_ARCP = (*FAST, "arcp")  # of the functions of Floats
HAS_AVX2 = bool(llvm.get_host_cpu_features().get("avx2"))  # it multiplies and adds pairs of int16
HAS_AVX512 = all(llvm.get_host_cpu_features().get(name) for name in ("avx512f", "avx512bw"))  # sixteen floats
# Shuffles of two vectors that exchange single elements, pairs and quadruples: together they transpose 8 × 8
TRANSPOSE_SHUFFLES = (
    ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]),
    ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
    ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
)
REDUCE_SHUFFLES = (
    ([0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15]),
    *TRANSPOSE_SHUFFLES[1:],
)


class Floats(types.Type):
    """The numba type of a vector of eight float32."""

    def __init__(self):
        super().__init__(name="Floats")


floats = Floats()


@register_default(Floats)
class _Model(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, FLOATS)


def _constant(value: float) -> ir.Constant:
    return ir.Constant(FLOATS, [float(np.float32(value))] * WIDTH)


def _address(context, builder, array_type, array, offset, llvm_type):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), llvm_type.as_pointer())


def _call(builder, name: str, *args):
    function = get_or_insert_function(
        builder.module, ir.FunctionType(FLOATS, [FLOATS] * len(args)), f"llvm.{name}.v8f32"
    )
    return builder.call(function, args)


@intrinsic
def load(typing, array, offset):
    """array[offset : offset + 8]"""

    def code(context, builder, signature, args):
        value = builder.load(_address(context, builder, signature.args[0], args[0], args[1], FLOATS))
        value.align = 4
        return value

    return floats(array, types.intp), code


@intrinsic
def store(typing, array, offset, value):
    """array[offset : offset + 8] = value"""

    def code(context, builder, signature, args):
        address = _address(context, builder, signature.args[0], args[0], args[1], FLOATS)
        builder.store(args[2], address).align = 4
        return context.get_dummy_value()

    return types.none(array, types.intp, floats), code


@intrinsic
def prefetch(typing, array, offset):
    """Prefetches the cache line of array[offset] for writing."""

    def code(context, builder, signature, args):
        byte = I8.as_pointer()
        address = _address(context, builder, signature.args[0], args[0], args[1], I8)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
        )
        # for writing, into all cache levels, data
        builder.call(function, [address, I32(1), I32(3), I32(1)])
        return context.get_dummy_value()

    return types.none(array, types.intp), code


@intrinsic
def broadcast(typing, number):
    """The number in all eight lanes."""

    def code(context, builder, signature, args):
        one = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), args[0], I32(0))
        return builder.shuffle_vector(one, ir.Constant(FLOATS, ir.Undefined), ir.Constant(INTS, [0] * WIDTH))

    return floats(types.float32), code


@intrinsic
def broadcast_lane(typing, value, index):
    """value[index] in all eight lanes; the index is a literal."""
    if not isinstance(index, types.IntegerLiteral):
        return None
    lane = index.literal_value

    def code(context, builder, signature, args):
        return builder.shuffle_vector(
            args[0], ir.Constant(FLOATS, ir.Undefined), ir.Constant(INTS, [lane] * WIDTH)
        )

    return floats(floats, index), code


@intrinsic
def fma(typing, a, b, c):
    """a b + c"""

    def code(context, builder, signature, args):
        return builder.fadd(builder.fmul(args[0], args[1], flags=FAST_ARCP), args[2], flags=FAST_ARCP)

    return floats(floats, floats, floats), code


@intrinsic
def mul(typing, a, b):
    """a b"""

    def code(context, builder, signature, args):
        return builder.fmul(args[0], args[1], flags=FAST_ARCP)

    return floats(floats, floats), code


@intrinsic
def add(typing, a, b):
    """a + b"""

    def code(context, builder, signature, args):
        return builder.fadd(args[0], args[1], flags=FAST_ARCP)

    return floats(floats, floats), code


@intrinsic
def sub(typing, a, b):
    """a - b"""

    def code(context, builder, signature, args):
        return builder.fsub(args[0], args[1], flags=FAST_ARCP)

    return floats(floats, floats), code


@intrinsic
def reduce_add_6(typing, a, b, c, d, e, f):
    """(Σa, Σb, Σc, Σd, Σe, Σf, 0, 0), by three rounds of adding and interleaving neighbours."""

    def code(context, builder, signature, args):
        rows = [*args, _constant(0), _constant(0)]
        for left, right in REDUCE_SHUFFLES:
            rows = [
                builder.fadd(
                    *(builder.shuffle_vector(x, y, ir.Constant(INTS, mask)) for mask in (left, right)),
                    flags=FAST_ARCP,
                )
                for x, y in zip(rows[::2], rows[1::2], strict=True)
            ]
        return rows[0]

    return floats(floats, floats, floats, floats, floats, floats), code


@intrinsic
def exp_plus_one(typing, x):
    """1 + eˣ to a relative 2⁻²², x clamped to ±40. eˣ = 2ⁿ 2ᶠ with n = round(x log₂ e) and 2ᶠ by its series."""

    def code(context, builder, signature, args):
        clamped = _call(builder, "minnum", _call(builder, "maxnum", args[0], _constant(-40)), _constant(40))
        scaled = builder.fmul(clamped, _constant(math.log2(math.e)))
        integer = _call(builder, "rint", scaled)
        fraction = builder.fsub(scaled, integer)
        series = _constant(math.log(2) ** 7 / math.factorial(7))
        for power in range(6, -1, -1):
            series = builder.fadd(
                builder.fmul(series, fraction, flags=FAST_ARCP),
                _constant(math.log(2) ** power / math.factorial(power)),
                flags=FAST_ARCP,
            )
        bits = builder.shl(
            builder.add(builder.fptosi(integer, INTS), ir.Constant(INTS, [127] * WIDTH)),
            ir.Constant(INTS, [23] * WIDTH),
        )
        return builder.fadd(
            builder.fmul(series, builder.bitcast(bits, FLOATS), flags=FAST_ARCP),
            _constant(1),
            flags=FAST_ARCP,
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
    """Multiplies eight running products by `factor` ≥ 1, each stored as a mantissa in [1, 2) and an exponent:
    Σ log x = log Π x without computing a logarithm.
    """

    def code(context, builder, signature, args):
        product_address = _address(context, builder, signature.args[0], args[0], I64(0), FLOATS)
        exponents_address = _address(context, builder, signature.args[1], args[1], I64(0), INTS)
        old = builder.load(product_address)
        old_exponents = builder.load(exponents_address)
        old.align = old_exponents.align = 4
        bits = builder.bitcast(builder.fmul(old, args[2]), INTS)
        biased = builder.lshr(bits, ir.Constant(INTS, [23] * WIDTH))
        exponent = builder.sub(biased, ir.Constant(INTS, [127] * WIDTH))
        fraction = builder.and_(bits, ir.Constant(INTS, [0x7FFFFF] * WIDTH))
        mantissa = builder.or_(fraction, ir.Constant(INTS, [0x3F800000] * WIDTH))
        builder.store(builder.add(old_exponents, exponent), exponents_address).align = 4
        builder.store(builder.bitcast(mantissa, FLOATS), product_address).align = 4
        return context.get_dummy_value()

    return types.none(product, exponents, floats), code


@cached_njit({"nogil": True})
def log_total(product, exponents):
    """The sum of the logarithms that `log_accumulate` has multiplied up."""
    total = 0.0
    for i in range(WIDTH):
        total += math.log(product[i]) + exponents[i] * math.log(2.0)
    return total


# Builders: each appends LLVM instructions to `builder`; addresses are int64 values


def emit_load(builder, address, llvm_type, align):
    value = builder.load(builder.inttoptr(address, llvm_type.as_pointer()))
    value.align = align
    return value


def emit_store(builder, value, address, align=4):
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = align


def emit_broadcast(builder, value, count):
    """The number in all `count` lanes."""
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(undefined, value, I32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, count), [0] * count))


def emit_fma(builder, a, b, c):
    """a b + c with one rounding."""
    lanes = a.type.count
    function_type = ir.FunctionType(a.type, [a.type] * 3)
    return builder.call(
        get_or_insert_function(builder.module, function_type, f"llvm.fma.v{lanes}f32"), [a, b, c]
    )


def emit_reduce_add(builder, value):
    """The sum of eight floats."""
    function = get_or_insert_function(
        builder.module, ir.FunctionType(FLOAT, [FLOAT, FLOATS]), "llvm.vector.reduce.fadd.v8f32"
    )
    return builder.call(function, [FLOAT(-0.0), value], fastmath=FAST)


def emit_madd_pairs(builder, a, b):
    """a₂ᵢ b₂ᵢ + a₂ᵢ₊₁ b₂ᵢ₊₁ of sixteen int16, or of 32: one instruction with AVX2, or AVX-512."""
    count = a.type.count // 2
    sums_type = ir.VectorType(I32, count)
    name = {8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[count]
    if HAS_AVX512 if count == 16 else HAS_AVX2:
        function_type = ir.FunctionType(sums_type, [a.type, b.type])
        function = get_or_insert_function(builder.module, function_type, f"llvm.x86.{name}")
        return builder.call(function, [a, b])
    undefined = ir.Constant(a.type, ir.Undefined)
    products = []
    for parity in (0, 1):
        lanes = ir.Constant(sums_type, list(range(parity, 2 * count, 2)))
        left = builder.sext(builder.shuffle_vector(a, undefined, lanes), sums_type)
        right = builder.sext(builder.shuffle_vector(b, undefined, lanes), sums_type)
        products.append(builder.mul(left, right))
    return builder.add(*products)


def literal_int(argument: types.Type) -> int | None:
    """The value of a literal argument; None where numba has not made it a literal yet."""
    return argument.literal_value if isinstance(argument, types.IntegerLiteral) else None


def emit_masked_load(builder, address, count):
    """Eight floats, of which only the first `count` are read; the others are 0."""
    pointer = FLOATS.as_pointer()
    function_type = ir.FunctionType(FLOATS, [pointer, I32, ir.VectorType(ir.IntType(1), 8), FLOATS])
    masked_load = get_or_insert_function(builder.module, function_type, "llvm.masked.load.v8f32.p0")
    lanes = ir.Constant(INTS, list(range(8)))
    mask = builder.icmp_unsigned("<", lanes, emit_broadcast(builder, builder.trunc(count, I32), 8))
    zeros = ir.Constant(FLOATS, [0.0] * 8)
    return builder.call(masked_load, [builder.inttoptr(address, pointer), I32(4), mask, zeros])


def emit_prefetch(builder, address):
    """Prefetches the cache line at the address for reading."""
    byte = I8.as_pointer()
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    )
    builder.call(function, [builder.inttoptr(address, byte), I32(0), I32(2), I32(1)])


def emit_reduce_add_8(builder, values):
    """The sums of eight vectors of eight floats, as one vector."""
    for low, high in TRANSPOSE_SHUFFLES:
        sums = []
        for a, b in zip(values[::2], values[1::2], strict=True):
            left = builder.shuffle_vector(a, b, ir.Constant(INTS, low))
            right = builder.shuffle_vector(a, b, ir.Constant(INTS, high))
            sums.append(builder.fadd(left, right))
        values = sums
    return values[0]


def array_view(element: types.Type, llvm_type: ir.Type):
    """A compiled function(address, size) that returns the array of `size` elements at the address."""

    @intrinsic
    def pointer(typing, address):
        def code(context, builder, signature, args):
            return builder.inttoptr(args[0], llvm_type.as_pointer())

        return types.CPointer(element)(types.intp), code

    @njit
    def array(address, size):
        return carray(pointer(address), (size,))

    return array


f32_view = array_view(types.float32, FLOAT)
u8_view = array_view(types.uint8, I8)
i32_view = array_view(types.int32, I32)
i64_view = array_view(types.int64, I64)

"""Eight floats at once inside numba: the few vector instructions that `kernels.py` is written in.

Numba's own vectoriser gives up where several rows are read and written in one loop, since it cannot know that they are different rows. A
value of type `Floats` is one LLVM vector <8 x float>, which every processor's compiler maps to what it has. An offset counts floats
from the array's start; nothing checks it. Left out: everything that word2vec does not need.
"""

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

WIDTH = 8
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
def spread(typing, number):
    """The number, eight times."""

    def code(context, builder, signature, args):
        one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), args[0], _INT(0))
        return builder.shuffle_vector(
            one, ir.Constant(_FLOATS, ir.Undefined), ir.Constant(_INTS, [0] * WIDTH)
        )

    return floats(types.float32), code


@intrinsic
def lane(typing, value, index):
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
def totals(typing, a, b, c, d, e, f):
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
def one_plus_exp(typing, x):
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
def one_over(typing, x):
    """1 / x"""

    def code(context, builder, signature, args):
        return builder.fdiv(_constant(1), args[0])

    return floats(floats), code


@intrinsic
def log_add(typing, product, exponents, factor):
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
def log_read(product, exponents):
    """The sum of the logarithms that `log_add` has gathered."""
    total = 0.0
    for i in range(WIDTH):
        total += math.log(product[i]) + exponents[i] * math.log(2.0)
    return total

"""Elemwise in all modes and dtypes, and PowC.

Semantics are those of MegEngine's dnn kernels (common elementwise definitions, x86 kernels for float32): mixed
dtypes are promoted as its operator constructors do, comparisons give 1 or 0 in the dtype of the inputs, integers
wrap as in C, float16 is computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ...graph import Opr, Var
from ...graph.dtypes import Array, DType, plain
from ...graph.params import Elemwise, ElemwiseMode as M, PowC
from ..numeric.special import PIECE, broadcast, in_chunks, round_half, rounded
from ..registry import Bound, Call, Shape, ShapeCall, kernel, per_output
from ..typecvt import convert
from .floats import Of
from .table import ARITY, BOOL, FLOAT, INTEGER, ROWS, Function, ModeTrait as T, modes

_QUANTIZED, _SORTED, _ONE_PASS = modes(T.QUANTIZED), modes(T.SORTED), modes(T.ONE_PASS)
_BY_PLACE, _MUL_ADD = modes(T.BY_PLACE), modes(T.MUL_ADD)
_SHORT, _LONG = 64, 2048
"""Elements of rows that are repeated, and of what they become at most."""
_UNUSABLE = ("Byte", "IntB1", "IntB2", "IntB4", "Complex64", "Quantized4Asymm", "QuantizedS4", "QuantizedS1")


def promote(types: Sequence[DType]) -> DType:
    """Return the common dtype to which MegEngine's constructors convert the inputs of an operator.

    Different categories (integer, float, Bool) give Float32, and so do two different float types that include
    Float16; integers of one signedness give the wider one; a quantized type wins over plain types.

    Raises:
        ValueError: signed with unsigned integers, or quantized types that differ.

    >>> str(promote([DType("Int32"), DType("Float16")])), str(promote([DType("Int8"), DType("Int32")]))
    ('Float32', 'Int32')
    """
    result = types[0]
    for other in types[1:]:
        result = _pair(result, other)
    return result


def _pair(a: DType, b: DType) -> DType:
    for t in (a, b):
        if t.name in _UNUSABLE:
            raise ValueError(f"elementwise operators do not take {t}")
    if a == b:
        return a
    if a.is_quantized and b.is_quantized:
        if a.name != b.name or a.zero_point != b.zero_point or abs(a.scale - b.scale) >= 1e-6:
            raise ValueError(f"{a} and {b} have no common type; convert one of them first")
        return a
    if a.is_quantized or b.is_quantized:
        return a if a.is_quantized else b
    half = plain("Float64" if "Float64" in (a.name, b.name) else "Float32")
    a, b = (half if t.name == "Float16" else t for t in (a, b))
    if a.is_float != b.is_float or (a.name == "Bool") != (b.name == "Bool"):
        return half
    if not a.is_float and a.np.kind != b.np.kind:
        raise ValueError(f"{a} and {b} differ in signedness, which MegEngine does not promote")
    return a if a.bits > b.bits else b


def _common(mode: M, types: Sequence[DType]) -> DType:
    """Return the dtype in which a mode computes these inputs, which is also the output's."""
    if len(types) != ARITY[mode]:
        raise ValueError(f"{mode.name} takes {ARITY[mode]} inputs, found {len(types)}")
    common = promote(types)
    if common.name in _UNUSABLE:
        raise ValueError(f"elementwise operators do not take {common}")
    if common.is_quantized:
        if (
            not types[0].is_quantized
            or mode not in _QUANTIZED
            or common.name not in ("QuantizedS8", "QuantizedS32")
        ):
            raise ValueError(f"{mode.name} does not take {common}")
        return common
    if common.name == "Bool":
        if mode not in BOOL:
            raise ValueError(f"{mode.name} does not take Bool")
    elif not common.is_float and mode not in INTEGER:
        common = plain("Float32")
    if common.name == "Uint16":
        raise ValueError(f"{mode.name} does not take Uint16; convert it to int32 or float32")
    if common.is_float and mode not in FLOAT:
        raise ValueError(f"{mode.name} does not take {common}")
    return common


def elemwise_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    """Return the promoted dtype of the inputs, the dtype rule of Elemwise."""
    return (_common(opr.get(Elemwise).mode, inputs),)


def elemwise_shape(s: ShapeCall) -> Sequence[Shape | None]:
    """Return the shape to which all inputs broadcast."""
    return (broadcast([s.shape(i) for i in range(len(s.shapes))]),)


def elemwise_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Count one operation per element, two or three for the fused modes."""
    return ROWS[opr.get(Elemwise).mode].flops * prod(outputs[0])


def _swapped(opr: Opr) -> bool:
    """Return whether MegEngine's sorting of inputs swaps two of them."""
    return opr.get(Elemwise).mode in _SORTED and opr.inputs[0].id > opr.inputs[1].id


def float_step(opr: Opr) -> tuple[Function, bool]:
    """Return what an operator computes on float32, ``func(out, *inputs)``, and whether its two inputs are swapped.

    `out` may be the memory of an input of its shape.
    """
    mode = opr.get(Elemwise).mode
    if opr.exact:
        return ROWS[mode].exact or FLOAT[mode], False
    return FLOAT[mode], _swapped(opr)


class _Plan:
    """The work of an Elemwise operator in every run."""

    def __init__(self, c: Call) -> None:
        mode = c.get(Elemwise).mode
        self.dtype = dtype = _common(mode, c.inputs)
        self.cast = [t if t != dtype else None for t in c.inputs]
        table = BOOL if dtype.name == "Bool" else FLOAT if dtype.is_float else INTEGER
        exact = ROWS[mode].exact if c.opr.exact or dtype.is_wide else None
        self.func: Function = table[mode] if exact is None or dtype.name == "Bool" else exact
        self.many = mode not in _ONE_PASS
        self.half = dtype.name == "Float16"
        self.swap = _swapped(c.opr) and not c.opr.exact
        self.by_place = mode in _BY_PLACE and exact is None
        if exact is not None:
            return
        exponent = (
            stored_scalar(c.opr.inputs[1]) if mode == M.POW and not (c.opr.exact or dtype.is_wide) else None
        )
        if exponent is not None:
            power = _power(exponent, self.half)
            self.func = lambda out, x, _: power(out, x)
        elif dtype.name in ("Float16", "BFloat16") and mode in _MUL_ADD:
            self.func = _fused_narrow(dtype)
        elif dtype.name in ("Float16", "BFloat16"):
            self.func = ROWS[mode].narrow or self.func


def stored_scalar(var: Var) -> float | None:
    """Return a number that is stored with the shape (1,); MegEngine makes a power by one a PowC when it compiles."""
    if var.owner.type != "ImmutableTensor" or var.owner.tensors[0].shape != (1,):
        return None
    return float(var.owner.tensors[0].value()[0])


def _fused_narrow(dtype: DType) -> Function:
    """Add products in float16 or bfloat16, where the products are rounded, too."""

    def apply(out: Array, x: Array, y: Array, z: Array, w: Array | None = None) -> None:
        other = z if w is None else rounded(z * w, dtype)
        np.add(rounded(x * y, dtype), other, out=out)

    return apply


def _bind(c: Call, s: ShapeCall) -> Bound | None:
    """Bind Elemwise for known shapes, where no input is converted."""
    plan = _Plan(c)
    shapes = [s.shape(i) for i in range(len(s.shapes))]
    shape = broadcast(shapes)
    if any(plan.cast) or plan.half or 0 in shape:
        return None
    dtype, func, many, swap = c.outputs[0].np, plan.func, plan.many, plan.swap
    count = 0 if plan.by_place else _repeats(shape, shapes)
    if count:
        return _long_rows(c, plan, shape, shapes, count)
    if prod(shape) > PIECE:

        def in_pieces(out: Array | None, *xs: Array) -> Array:
            out = np.empty(shape, dtype) if out is None else out
            in_chunks(func, out, xs[::-1] if swap else xs, many)
            return out

        return in_pieces
    ufunc = func.ufunc if isinstance(func, Of) else None
    if ufunc is not None and len(shapes) == 2 and not swap:

        def direct(out: Array | None, x: Array, y: Array) -> Array:
            out = np.empty(shape, dtype) if out is None else out
            ufunc(x, y, out=out)
            return out

        return direct

    def whole(out: Array | None, *xs: Array) -> Array:
        out = np.empty(shape, dtype) if out is None else out
        func(out, *(xs[::-1] if swap else xs))
        return out

    return whole


def _repeats(shape: Shape, shapes: Sequence[Shape]) -> int:
    """Choose how often to repeat the short rows among the inputs so that loops become long; 0 if that does not pay.

    The other inputs are whole or single numbers. A row is what numpy's innermost loop runs over; a short one costs
    more in its beginning than in its elements.
    """
    size = prod(shape)
    short = {t for t in (s[_leading_ones(s) :] for s in shapes) if 0 < prod(t) < size and prod(t) > 1}
    if len(short) != 1:
        return 0
    (row,) = short
    width = prod(row)
    if width > _SHORT or size < 32 * width or shape[len(shape) - len(row) :] != row:
        return 0
    rows = size // width
    return max((n for n in range(2, _LONG // width + 1) if rows % n == 0), default=0)


def _leading_ones(shape: Shape) -> int:
    return next((i for i, n in enumerate(shape) if n != 1), len(shape))


def _long_rows(c: Call, plan: _Plan, shape: Shape, shapes: Sequence[Shape], count: int) -> Bound:
    """Apply a mode to rows of `count` short rows each, repeating the input that is a single short row."""
    size, sizes = prod(shape), [prod(s) for s in shapes]
    width = count * next(n for n in sizes if 1 < n < size)
    dtype, func, many, swap = c.outputs[0].np, plan.func, plan.many, plan.swap

    def row(i: int, x: Array) -> Array:
        kept: Array | None = c.memo.get(("row", i, count))
        if kept is None:
            kept = np.repeat(x.reshape(1, -1), count, 0).reshape(-1)
            if i < len(c.const) and c.const[i]:
                c.memo["row", i, count] = kept
        return kept

    def bound(out: Array | None, *xs: Array) -> Array:
        out = np.empty(shape, dtype) if out is None else out
        ys = [
            x.reshape(-1, width) if n == size else x.reshape(-1) if n == 1 else row(i, x)
            for i, (x, n) in enumerate(zip(xs, sizes, strict=True))
        ]
        in_chunks(func, out.reshape(-1, width), ys[::-1] if swap else ys, many)
        return out

    return bound


@kernel("Elemwise", dtype=elemwise_dtype, shape=elemwise_shape, flops=elemwise_flops, bind=_bind)
def elemwise(c: Call, *xs: Array) -> Array:
    """Apply one elementwise mode to up to four inputs that broadcast together."""
    plan: _Plan | None = c.memo.get("plan")
    if plan is None:
        plan = c.memo["plan"] = _Plan(c)
    args: Sequence[Array] = [
        x if t is None else convert(x, t, plan.dtype) for x, t in zip(xs, plan.cast, strict=True)
    ]
    shape = args[0].shape if len(args) == 1 else broadcast([x.shape for x in args])
    if 0 in shape:
        return np.empty(shape, c.outputs[0].np)
    if plan.swap:
        args = args[::-1]
    if plan.half:
        wide = np.empty(shape, np.float32)
        in_chunks(plan.func, wide, [x.astype(np.float32) for x in args], plan.many)
        return round_half(wide)
    out = c.reuse(shape)
    in_chunks(plan.func, out, args, plan.many)
    return out


def _powc_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if not inputs[0].is_float:
        raise ValueError(f"PowC takes float inputs, found {inputs[0]}")
    return inputs


@kernel("PowC", dtype=_powc_dtype, flops=per_output(1))
def powc(c: Call, x: Array) -> Array:
    """Raise the input to a constant power; whole powers keep the sign of odd powers of negative numbers."""
    exponent = float(np.float32(c.get(PowC).exp))
    func = _power(exponent, c.inputs[0].name == "Float16")
    if x.dtype == np.float16:
        wide = np.empty(x.shape, np.float32)
        in_chunks(func, wide, [x.astype(np.float32)], True)
        return round_half(wide)
    out = c.reuse(x.shape)
    in_chunks(func, out, [x], True)
    return out


_NEAR = float(np.finfo(np.float32).eps)


def _power(exponent: float, half: bool) -> Function:
    """Raise as MegEngine does: whole powers keep the sign of odd ones, all others but roots are those of ``abs(x)``."""
    if not np.isfinite(exponent):
        return lambda out, x: np.power(np.abs(x), np.float32(exponent), out=out)
    whole = round(exponent)
    if abs(exponent - whole) < _NEAR:
        return _whole_power(whole, half)
    for root, func in ((0.5, np.sqrt), (1 / 3, np.cbrt)):
        if half and root != 0.5:
            break
        if abs(exponent - root) < _NEAR:
            return lambda out, x, func=func: func(x, out=out)
        if abs(exponent + root) < _NEAR:
            return lambda out, x, func=func: func(np.float32(1) / x, out=out)
    if half:
        exponent = float(round_half(np.full(1, exponent, np.float32))[0])
        if exponent == round(exponent) and round(exponent) % 2:
            return _whole_power(round(exponent), half)
    return lambda out, x: np.power(np.abs(x), np.float32(exponent), out=out)


def _whole_power(n: int, half: bool) -> Function:
    if n == 4 and half:
        # The one power for which MegEngine's float16 code rounds in between.
        return lambda out, x: np.square(rounded(x * x, plain("Float16")), out=out)
    if n in (-4, -3, -2, -1, 1, 2, 3, 4):
        return lambda out, x: np.copyto(out, _small(x, n))
    if n % 2:
        return lambda out, x: np.copysign(np.power(np.abs(x), np.float32(n)), x, out=out)
    return lambda out, x: np.power(np.abs(x), np.float32(n), out=out)


def _small(x: Array, n: int) -> Array:
    """Compute a small whole power by multiplication."""
    if n < 0:
        return _small(np.float32(1) / x, -n)
    square = x * x
    return x if n == 1 else square if n == 2 else square * x if n == 3 else square * square

"""Elementwise arithmetic, comparisons and logic with broadcasting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...arrays import arithmetic as a
from ...arrays import logic
from ...build import emit as e
from ...graph import params as P
from ...graph.dtypes import plain
from ...ops.typecvt import exactly
from ...tensors import Tensor
from ...tensors.access import dtype_of, mark_constant
from ...tensors.apply import type_cvt
from ..call import NodeCall, front, lower
from ..tensors import HELD, STRING, kind_name
from ..values import (
    BF16,
    BOOL,
    FLOAT,
    INT32,
    INT64,
    UINT32,
    UINT64,
    Bound,
    UnsupportedNodeError,
    Value,
    graph_type,
)
from . import M, cast, const_like, in_float, limits, refused_if
from .small_floats import is_small_float, rounded_for

__all__ = ["pair", "truncated", "widened"]

_EQ, _LT, _LEQ = P.ElemwiseMultiTypeMode.EQ, P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.LEQ
_NARROW = ("Int8", "Uint8", "Int16")


def pair(c: NodeCall) -> tuple[Tensor, Tensor]:
    """Return two operands of one type, broadcast by hand for versions before 7."""
    x, y = c.t(0), c.t(1)
    if c.opset < 7 and c.flag("broadcast"):
        at = c.number("axis", x.ndim - y.ndim)
        at = front(at, max(x.ndim, 1)) if at < 0 else at
        rest = x.ndim - at - y.ndim
        if rest < 0:
            raise UnsupportedNodeError(f"{y.ndim} axes do not fit {x.ndim} at axis {at}")
        y = e.add_axes(y, range(y.ndim, y.ndim + rest)) if y.ndim else y
    return x, _same(x, y)


def _same(x: Tensor, y: Tensor) -> Tensor:
    if dtype_of(x) != dtype_of(y):
        raise UnsupportedNodeError(f"its operands are {dtype_of(x)} and {dtype_of(y)}")
    return y


def widened(x: Tensor) -> Tensor:
    """Small integers as int32."""
    return e.whole(x) if dtype_of(x).name in _NARROW else x


def _divisor(c: NodeCall, y: Tensor) -> Tensor:
    """Return whole numbers to divide by, and an error where one is 0."""
    known = c.value(1).constant()
    if known is None and c.value(1).sizes is None:
        return refused_if(y, e.compare(_EQ, y, const_like(0, y)), "whole numbers are divided by 0")
    if known is not None and not known.all():
        raise UnsupportedNodeError("whole numbers are divided by 0")
    return y


def truncated(x: Tensor, y: Tensor) -> Tensor:
    """Quotient of integers, toward zero."""
    down = e.elem(M.FLOOR_DIV, x, y)
    rest = e.elem(M.SUB, x, e.elem(M.MUL, down, y))
    negative = logic.not_equal(e.compare(_LT, x, const_like(0, x)), e.compare(_LT, y, const_like(0, y)))
    inexact = e.elem(M.AND, negative, logic.not_equal(rest, const_like(0, rest)))
    return e.elem(M.ADD, down, cast(inexact, dtype_of(x)))


@lower("Add")
def _add(c: NodeCall) -> Tensor:
    return e.elem(M.ADD, *pair(c))


@lower("Sub")
def _sub(c: NodeCall) -> Tensor:
    return e.elem(M.SUB, *pair(c))


@lower("Mul")
def _mul(c: NodeCall) -> Tensor:
    x, y = pair(c)
    return e.elem(M.MUL, widened(x), widened(y))


@lower("Div")
def _div(c: NodeCall) -> Tensor:
    x, y = pair(c)
    if dtype_of(x).is_float:
        return e.elem(M.TRUE_DIV, x, y)
    y = _divisor(c, y)
    if dtype_of(x).np.kind == "u":
        return e.elem(M.FLOOR_DIV, e.whole(x), e.whole(y))
    return truncated(widened(x), widened(y))


@lower("Mod")
def _mod(c: NodeCall) -> Tensor:
    x, y = pair(c)
    if dtype_of(x).is_float:
        return a.fmod(x, y) if c.flag("fmod") else a.remainder(x, y)
    x, y = widened(x), widened(_divisor(c, y))
    if not c.flag("fmod") or dtype_of(x).np.kind == "u":
        return a.remainder(x, y)
    return e.elem(M.SUB, x, e.elem(M.MUL, truncated(x, y), y))


@lower("Pow")
def _pow(c: NodeCall) -> Tensor:
    x, y = c.t(0), c.t(1)
    if c.opset < 7:
        x, y = pair(c)
    known = c.value(1).constant()
    if dtype_of(x).is_float:
        y = cast(y, dtype_of(x))
        if known is not None:
            mark_constant(y)
        return a.power(x, y)
    whole = known is not None and known.size == 1 and 0 <= float(known.item()) <= 31
    if whole and known is not None and float(known.item()) == int(known.item()):
        exponent = np.full((1,) * 0, int(known.item()), np.int32)
        base = widened(x)
        shape = e.broadcast_shape([x, y])
        return e.broadcast(a.integer_power(base, const_like(exponent, base), exponent), shape)
    # ONNX Runtime raises integers as float64 numbers.
    power = e.elem(M.POW, cast(x, plain("Float64")), cast(y, plain("Float64")))
    if c.kind(0) in (INT64, UINT64):
        return type_cvt(power, dtype_of(x))
    near = a.rint(power)
    if dtype_of(y).is_float:
        # The conversion truncates, so a result within rounding of an integer becomes that number first.
        off = e.elem(M.ABS, e.elem(M.SUB, power, near))
        bound = e.elem(M.MUL, const_like(1e-6, power), e.elem(M.ABS, near))
        near = e.where(e.compare(P.ElemwiseMultiTypeMode.LEQ, off, bound), near, power)
    return e.whole(near)


def _chain(combine: Callable[[Tensor, Tensor], Tensor]) -> Callable[[NodeCall], Tensor]:
    def run(c: NodeCall) -> Tensor:
        result = c.t(0)
        for i in range(1, len(c.inputs)):
            result = combine(result, _same(result, c.t(i)))
        return result

    return run


lower("Max")(_chain(a.maximum))
lower("Min")(_chain(a.minimum))


@lower("Sum")
def _sum(c: NodeCall) -> Tensor:
    return _chain(lambda x, y: e.elem(M.ADD, x, y))(c)


@lower("Mean")
def _mean(c: NodeCall) -> Tensor:
    total = _sum(c)
    return e.elem(M.TRUE_DIV, total, const_like(len(c.inputs), total))


@lower("And")
def _and(c: NodeCall) -> Tensor:
    return e.elem(M.AND, *pair(c))


@lower("Or")
def _or(c: NodeCall) -> Tensor:
    return e.elem(M.OR, *pair(c))


@lower("Xor")
def _xor(c: NodeCall) -> Tensor:
    return e.elem(M.XOR, *pair(c))


@lower("Not")
def _not(c: NodeCall) -> Tensor:
    return e.logical_not(c.t(0))


def _compared(mode: P.ElemwiseMultiTypeMode, *, turned: bool = False) -> Callable[[NodeCall], Tensor]:
    def run(c: NodeCall) -> Tensor:
        x, y = pair(c)
        if e.is_bool(x):
            x, y = cast(x, "uint8"), cast(y, "uint8")
        return e.compare(mode, y, x) if turned else e.compare(mode, x, y)

    return run


_equal_numbers = _compared(_EQ)


@lower("Equal")
def _equal(c: NodeCall) -> Tensor | Value:
    if c.kind(0) != STRING:
        return _equal_numbers(c)
    from .text import equal_texts  # for start-up

    return equal_texts(c)


lower("Less")(_compared(_LT))
lower("LessOrEqual")(_compared(_LEQ))
lower("Greater")(_compared(_LT, turned=True))
lower("GreaterOrEqual")(_compared(_LEQ, turned=True))


@lower("Where", like=1)
def _where(c: NodeCall) -> Tensor:
    x = c.t(1)
    return e.where(c.t(0), x, _same(x, c.t(2)))


# One operand


@lower("Neg")
def _neg(c: NodeCall) -> Tensor:
    return e.elem(M.NEGATE, c.t(0))


@lower("Abs")
def _abs(c: NodeCall) -> Tensor:
    x = c.t(0)
    return x if dtype_of(x).np.kind == "u" else e.elem(M.ABS, x)


@lower("Sign")
def _sign(c: NodeCall) -> Tensor:
    x = c.t(0)
    return e.elem(M.SIGN, x)


@lower("Round")
def _round(c: NodeCall) -> Tensor:
    return a.rint(c.t(0))


@lower("IsNaN")
def _isnan(c: NodeCall) -> Tensor:
    return e.is_nan(c.t(0))


@lower("IsInf")
def _isinf(c: NodeCall) -> Tensor:
    x = c.t(0)
    wide = in_float(x)
    up, down = (e.compare(_EQ, wide, const_like(v, wide)) for v in (np.inf, -np.inf))
    plus, minus = c.flag("detect_positive", 1), c.flag("detect_negative", 1)
    if plus and minus:
        return e.elem(M.OR, up, down)
    if plus:
        return up
    return down if minus else e.elem(M.AND, up, down)


@lower("Identity", foldable=False)
def _identity(c: NodeCall) -> Bound:
    return c.inputs[0]


@lower("Clip")
def _clip(c: NodeCall) -> Tensor:
    x = c.t(0)
    low = high = None
    if c.opset < 11:
        largest = float(np.finfo(np.float32).max)
        least, most = c.real("min", -largest), c.real("max", largest)
        if not least <= most:
            raise UnsupportedNodeError(f"its min is {least:g} and its max {most:g}")
        low = const_like(c.real("min"), x) if "min" in c.attributes else None
        high = const_like(c.real("max"), x) if "max" in c.attributes else None
    else:
        low, high = c.maybe(1), c.maybe(2)
        known = [e.known(v) for v in (low, high) if v is not None and dtype_of(x).is_float]
        if any(v is not None and np.isnan(v).any() for v in known):
            raise UnsupportedNodeError("a bound is NaN, which ONNX and ONNX Runtime take differently")
    low, high = (v if v is None else e.reshape(v, ()) for v in (low, high))
    if dtype_of(x).name in ("Float32", "Float16"):
        # A bound that is missing is the last finite number; that of double cannot be narrowed.
        most = np.finfo(dtype_of(x).np).max
        low, high = (const_like(s * most, x) if v is None else v for v, s in ((low, -1), (high, 1)))
    return a.clipped(x, low, high)


# Types


@lower("Cast")
def _cast(c: NodeCall) -> Value:
    to = c.number("to")
    return small_float(c, c.value(0), to) if is_small_float(to) else converted(c.value(0), to)


@lower("CastLike", foldable=False)
def _cast_like(c: NodeCall) -> Value:
    to = c.kind(1)
    return small_float(c, c.value(0), to) if is_small_float(to) else converted(c.value(0), to)


def small_float(c: NodeCall, value: Value, to: int) -> Value:
    """Round a value to a floating-point type of 8 or 4 bits."""
    return value if value.kind == to else Value(to, rounded_for(c, value.tensor, to))


def converted(value: Value, to: int) -> Value:
    """Convert a value to another of ONNX's types.

    Raises:
        UnsupportedNodeError: MegEngine has no such type.
    """
    want = graph_type(to)
    if value.kind == to:
        return value
    constant = value.constant()
    small = to in (21, 22, 25, 26)
    if constant is not None and not small and to != BF16 and constant.dtype != object:
        return Value(to, array=exactly(constant, np.dtype(HELD[to])), name=value.name)
    x = value.tensor
    if to == BOOL:
        zero = const_like(0, x)
        return Value(to, x if e.is_bool(x) else logic.not_equal(x, zero))
    if small:
        return Value(to, _wrapped(x, to))
    if want.name == "BFloat16":
        return Value(to, type_cvt(in_float(x), want))
    return Value(to, type_cvt(x, want))


def _wrapped(x: Tensor, to: int) -> Tensor:
    """Wrap integers to 4 or 2 bits: upper bits are lost; floats are rounded before, halves away from zero."""
    low, high = limits(to)
    want = graph_type(to)
    wide = e.whole(e.elem(M.ROUND, x) if dtype_of(x).is_float else x)
    span = const_like(high - low + 1, wide)
    shifted = e.elem(M.SUB, wide, const_like(low, wide)) if low else wide
    rest = a.remainder(shifted, span)
    return cast(e.elem(M.ADD, rest, const_like(low, rest)) if low else rest, want)


# Bits


_WIDTHS = {"Int8": 8, "Uint8": 8, "Int16": 16, "Uint16": 16}


@lower("BitCast")
def _bit_cast(c: NodeCall) -> Value:
    """Reinterpret bits as another type: integers of other signedness, and float32."""
    from .bits import bits_of, float_of  # for start-up

    value, to = c.value(0), c.number("to")
    want = graph_type(to)
    if value.kind == to:
        return value
    if {value.kind, to} in ({INT32, UINT32}, {INT64, UINT64}):
        return Value(to, type_cvt(value.stored, want))
    if value.kind == FLOAT and to in (INT32, UINT32):
        return Value(to, type_cvt(bits_of(value.tensor), want))
    if value.kind in (INT32, UINT32) and to == FLOAT:
        return Value(to, float_of(cast(value.tensor, "int32")))
    own = graph_type(value.kind)
    width = _WIDTHS.get(own.name)
    packed = {value.kind, to} & {21, 22, 25, 26}
    if want.name == "Bool" or packed or width != _WIDTHS.get(want.name) or width is None:
        if own.name == "Bool" and want.name in ("Int8", "Uint8") and not packed:
            return Value(to, type_cvt(value.stored, want))
        raise UnsupportedNodeError(
            f"the bits of {kind_name(value.kind)} as {kind_name(to)} cannot be expressed; those of float and of "
            "integers of 8, 16 and 32 bits can, and booleans as integers of 8"
        )
    x = e.whole(value.tensor)
    span = const_like(1 << width, x)
    if want.name.startswith("U"):
        x = e.elem(M.ADD, x, e.where(e.compare(_LT, x, const_like(0, x)), span, const_like(0, x)))
    else:
        most = const_like((1 << (width - 1)) - 1, x)
        x = e.elem(M.SUB, x, e.where(e.compare(_LT, most, x), span, const_like(0, x)))
    return Value(to, type_cvt(x, want))


@lower("BitwiseNot")
def _bitwise_not(c: NodeCall) -> Tensor:
    x = c.t(0)
    if c.kind(0) == 4:
        return e.elem(M.SUB, const_like(65535, x), x)
    return logic.invert(x)


def _bitwise(func: Callable[[Tensor, Tensor], Tensor]) -> Callable[[NodeCall], Tensor]:
    def run(c: NodeCall) -> Tensor:
        x, y = pair(c)
        return func(x, y)

    return run


lower("BitwiseAnd")(_bitwise(logic.bitwise_and))
lower("BitwiseOr")(_bitwise(logic.bitwise_or))
lower("BitwiseXor")(_bitwise(logic.bitwise_xor))


@lower("BitShift")
def _bit_shift(c: NodeCall) -> Tensor:
    x, y = (e.whole(v) for v in pair(c))
    up = c.choice("direction", "RIGHT", "LEFT") == "LEFT"
    x, y = _broadcasted(x, y)
    width = const_like(16 if c.kind(0) == 4 else 8 * dtype_of(c.t(0)).np.itemsize, y)
    # A negative shift counts as one beyond the width.
    zero = const_like(0, y)
    inside = e.elem(M.AND, e.compare(_LT, y, width), e.compare(_LEQ, zero, y))
    if up:
        return e.where(inside, logic.left_shift(x, e.where(inside, y, zero)), zero)
    most = const_like(8 * dtype_of(x).np.itemsize, y)
    return logic.right_shift(x, e.where(inside, y, most))


def _broadcasted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    shape = e.broadcast_shape([x, y])
    return e.broadcast(x, shape), e.broadcast(y, shape)

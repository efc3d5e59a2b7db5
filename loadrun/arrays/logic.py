"""Lowerings of numpy's comparisons, logic and bit operations."""

from typing import Any

import numpy as np

from ..graph import params as P
from ..layers import emit as e
from ..layers.emit import M, compare, elem, is_bool, is_float, known, logical_not, number
from ..tensors import Tensor, const
from ..tensors.access import dtype_of
from .promotion import common, narrow, operand
from .registry import lowers, ufunc

_C = P.ElemwiseMultiTypeMode


@ufunc("equal", loop="common")
def equal(x: Tensor, y: Tensor) -> Tensor:
    """Return whether two numbers are equal."""
    return logical_not(elem(M.XOR, x, y)) if is_bool(x) else compare(_C.EQ, x, y)


@ufunc("not_equal", loop="common")
def not_equal(x: Tensor, y: Tensor) -> Tensor:
    """Return whether two numbers differ."""
    return elem(M.XOR, x, y) if is_bool(x) else compare(_C.NEQ, x, y)


@ufunc("less", loop="common")
def less(x: Tensor, y: Tensor) -> Tensor:
    """Return whether the first number is smaller."""
    return elem(M.AND, logical_not(x), y) if is_bool(x) else compare(_C.LT, x, y)


@ufunc("less_equal", loop="common")
def less_equal(x: Tensor, y: Tensor) -> Tensor:
    """Return whether the first number is smaller or equal."""
    return elem(M.OR, logical_not(x), y) if is_bool(x) else compare(_C.LEQ, x, y)


@ufunc("greater", loop="common")
def greater(x: Tensor, y: Tensor) -> Tensor:
    """Return whether the first number is larger."""
    return less(y, x)


@ufunc("greater_equal", loop="common")
def greater_equal(x: Tensor, y: Tensor) -> Tensor:
    """Return whether the first number is larger or equal."""
    return less_equal(y, x)


@ufunc("logical_and", loop="bool")
def logical_and(x: Tensor, y: Tensor) -> Tensor:
    """Return whether both are true."""
    return elem(M.AND, x, y)


@ufunc("logical_or", loop="bool")
def logical_or(x: Tensor, y: Tensor) -> Tensor:
    """Return whether one of both is true."""
    return elem(M.OR, x, y)


@ufunc("logical_xor", loop="bool")
def logical_xor(x: Tensor, y: Tensor) -> Tensor:
    """Return whether exactly one of both is true."""
    return elem(M.XOR, x, y)


@ufunc("logical_not", loop="bool")
def logical_not_(x: Tensor) -> Tensor:
    """Return whether it is false."""
    return logical_not(x)


# Kinds of numbers


def _nowhere(x: Tensor) -> Tensor:
    return e.full(const(np.bool_(False)), x.shape)


@ufunc("isnan", loop="common")
def isnan(x: Tensor) -> Tensor:
    """Tell where it is not a number."""
    return e.is_nan(x) if is_float(x) else _nowhere(x)


@ufunc("isinf", loop="common")
def isinf(x: Tensor) -> Tensor:
    """Tell where it is infinite."""
    return compare(_C.ISINF, x) if is_float(x) else _nowhere(x)


@ufunc("isfinite", loop="common")
def isfinite(x: Tensor) -> Tensor:
    """Tell where it is neither infinite nor NaN."""
    if not is_float(x):
        return logical_not(_nowhere(x))
    return logical_not(elem(M.OR, compare(_C.ISINF, x), e.is_nan(x)))


@lowers("isposinf")
def isposinf(x: Any, out: Any = None) -> Tensor:
    """Tell where it is positive infinity."""
    y = operand(x)
    return compare(_C.EQ, y, number(np.inf, y)) if is_float(y) else _nowhere(y)


@lowers("isneginf")
def isneginf(x: Any, out: Any = None) -> Tensor:
    """Tell where it is negative infinity."""
    y = operand(x)
    return compare(_C.EQ, y, number(-np.inf, y)) if is_float(y) else _nowhere(y)


@lowers("isclose")
def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Tell where two numbers are nearly equal: ``abs(a - b) <= atol + rtol * abs(b)``."""
    kind = narrow(np.result_type(common([a, b]), np.float32))
    x, y = operand(a, kind), operand(b, kind)
    tolerance = elem(M.ADD, number(atol, y), elem(M.MUL, number(rtol, y), elem(M.ABS, y)))
    near = compare(_C.LEQ, elem(M.ABS, elem(M.SUB, x, y)), tolerance)
    # An infinite bound would allow every number.
    near = elem(M.AND, near, isfinite(y))
    result = elem(M.OR, near, compare(_C.EQ, x, y))
    return elem(M.OR, result, elem(M.AND, e.is_nan(x), e.is_nan(y))) if equal_nan else result


def _all(x: Tensor) -> bool:
    if 0 in e.sizes(x):
        return True
    return bool(x.numpy().all())


@lowers("allclose")
def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Return whether all numbers are nearly equal; reads the value."""
    return _all(isclose(a, b, rtol, atol, equal_nan))


@lowers("array_equal")
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Return whether shapes and all numbers are equal; reads the value."""
    kind = narrow(common([a1, a2]))
    x, y = operand(a1, kind), operand(a2, kind)
    if e.sizes(x) != e.sizes(y):
        return False
    same = equal(x, y)
    if equal_nan and is_float(x):
        same = elem(M.OR, same, elem(M.AND, e.is_nan(x), e.is_nan(y)))
    return _all(same)


# Bits


@ufunc("invert")
def invert(x: Tensor) -> Tensor:
    """Return every bit inverted."""
    if is_bool(x):
        return logical_not(x)
    kind = dtype_of(x).np
    return elem(M.SUB, number(int(np.iinfo(kind).max) if kind.kind == "u" else -1, x), x)


def _low_bits(x: Tensor, y: Tensor) -> Tensor | None:
    """Compute ``x & y`` where `y` is a constant of ones below zeros: a remainder."""
    value = known(y)
    if value is None or value.size != 1:
        return None
    n, width = int(value.reshape(())) + 1, 8 * dtype_of(x).np.itemsize
    if n <= 1 or n & (n - 1):
        return None
    if n <= min(np.iinfo(dtype_of(x).np).max, 2**31 - 1):
        return elem(M.MOD, x, number(n, x))
    return _lowest(x, n.bit_length() - 1) if width >= 32 and n < 2**width else None


def _lowest(x: Tensor, count: int) -> Tensor:
    """Return the lowest bits of numbers, without a number that has more of them."""
    places = number(count, x)
    return elem(M.SUB, x, elem(M.SHL, elem(M.SHR, x, places), places))


def _with_low_bits(x: Tensor, y: Tensor) -> Tensor | None:
    result = _low_bits(x, y)
    if result is None:
        result = _low_bits(y, x)
    return None if result is None else e.broadcast(result, e.broadcast_shape([x, y]))


def _and(x: Tensor, y: Tensor) -> Tensor:
    """Combine bits; of numbers of 64 bits that fit 32, as .mge files have them, every step fits too."""
    result = _with_low_bits(x, y)
    if result is not None:
        return result
    if dtype_of(x).np != np.int64:
        return _combined(x, y, M.MUL)
    # The signs tell what follows from the bits of numbers that are not negative.
    a, b = _unsigned(x), _unsigned(y)
    both = _combined(a, b, M.MUL)
    only = elem(M.SUB, a, both)
    first, second = (compare(_C.LT, v, number(0, v)) for v in (x, y))
    # The maximum keeps passes over the graph from adding both before they subtract.
    either = elem(M.ADD, elem(M.MAX, only, number(0, only)), b)
    negative = e.where(second, _inverted(either), elem(M.SUB, b, both))
    return e.where(first, negative, e.where(second, only, both))


def _inverted(x: Tensor) -> Tensor:
    return elem(M.SUB, number(-1, x), x)


def _unsigned(x: Tensor) -> Tensor:
    """Invert the bits of negative numbers."""
    return elem(M.MAX, x, _inverted(x))


def _combined(x: Tensor, y: Tensor, mode: P.ElemwiseMode) -> Tensor:
    """Combine bits by a product or a difference; those of int64 are of numbers that are not negative."""
    kind = dtype_of(x).np
    if kind.itemsize < 8:
        return e.cast(_planes(e.whole(x), e.whole(y), mode, 8 * kind.itemsize), dtype_of(x))
    # 31 bits, which never are a sign, and the rest; runtimes of ONNX add integers as doubles, too short for all.
    low = _planes(_lowest(x, 31), _lowest(y, 31), mode, 31)
    places = number(31, x)
    rest = 33 if kind.kind == "u" else 32
    high = _planes(elem(M.SHR, x, places), elem(M.SHR, y, places), mode, rest)
    return elem(M.ADD, low, elem(M.SHL, high, number(31, high)))


def _planes(x: Tensor, y: Tensor, mode: P.ElemwiseMode, count: int) -> Tensor:
    """Combine the lowest bits: each on an axis of its own, and put together again."""
    places, two = const(np.arange(count), dtype_of(x)), const(np.asarray(2), dtype_of(x))
    first, second = (elem(M.MOD, elem(M.SHR, e.add_axes(v, [len(e.sizes(v))]), places), two) for v in (x, y))
    bits = elem(mode, first, second)
    # The square of a difference of unsigned numbers is 1 as well.
    bits = elem(M.SHL, elem(M.MUL, bits, bits) if mode == M.SUB else bits, places)
    return e.reduce(bits, P.ReduceMode.SUM, [len(e.sizes(bits)) - 1])


@ufunc("bitwise_and")
def bitwise_and(x: Tensor, y: Tensor) -> Tensor:
    """Return bits that both have."""
    return elem(M.AND, x, y) if is_bool(x) else _and(x, y)


@ufunc("bitwise_or")
def bitwise_or(x: Tensor, y: Tensor) -> Tensor:
    """Return bits that one of both has."""
    if is_bool(x):
        return elem(M.OR, x, y)
    if dtype_of(x).np == np.int64 and _with_low_bits(x, y) is None:
        return _inverted(_and(_inverted(x), _inverted(y)))
    return elem(M.SUB, elem(M.ADD, x, y), _and(x, y))


@ufunc("bitwise_xor")
def bitwise_xor(x: Tensor, y: Tensor) -> Tensor:
    """Return bits that exactly one of both has."""
    if is_bool(x):
        return elem(M.XOR, x, y)
    both = _with_low_bits(x, y)
    if both is not None:
        return elem(M.SUB, elem(M.ADD, x, y), elem(M.ADD, both, both))
    if dtype_of(x).np != np.int64:
        return _combined(x, y, M.SUB)
    bits = _combined(_unsigned(x), _unsigned(y), M.SUB)
    first, second = (compare(_C.LT, v, number(0, v)) for v in (x, y))
    return e.where(elem(M.XOR, first, second), _inverted(bits), bits)


@ufunc("left_shift")
def left_shift(x: Tensor, y: Tensor) -> Tensor:
    """Return bits moved up; 0 if by 32 or more."""
    shifted = elem(M.SHL, x, y)
    value, width = known(y), max(8 * dtype_of(x).np.itemsize, 32)
    if value is not None and value.max(initial=0) < width:
        return shifted
    return elem(M.COND_LT_MOV, y, number(width, y), shifted)


@ufunc("right_shift")
def right_shift(x: Tensor, y: Tensor) -> Tensor:
    """Return bits moved down; the sign stays."""
    width = max(8 * dtype_of(x).np.itemsize, 32)
    moved = elem(M.SHR, x, elem(M.MIN, y, number(width - 1, y)))
    # The highest bit of these counts for a number.
    unsigned = dtype_of(x).is_wide and dtype_of(x).np.kind == "u"
    return elem(M.COND_LT_MOV, y, number(width, y), moved) if unsigned else moved

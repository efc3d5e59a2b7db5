"""Elementwise functions of MegEngine's functional package: arithmetic, rounding, comparison, logic.

All take tensors, arrays and numbers that broadcast together and are promoted as MegEngine promotes them; the
functions of the exponential and trigonometric kind are in `loadrun.layers.transcendental` and offered here too.
"""

from __future__ import annotations

from ..graph import params as P
from ..tensors import Tensor, TensorLike, elemwise
from .transcendental import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cos,
    cosh,
    erf,
    exp,
    expm1,
    log,
    log1p,
    logaddexp,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "div",
    "equal",
    "erf",
    "exp",
    "expm1",
    "floor",
    "floor_div",
    "greater",
    "greater_equal",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log1p",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "neg",
    "not_equal",
    "pow",
    "right_shift",
    "round",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
]

_M = P.ElemwiseMode


def add(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x + y``; booleans have to be made numbers first.

    >>> add(Tensor([1, 2]), 0.5).tolist()
    [1.5, 2.5]
    """
    return elemwise(_M.ADD, x, y)


def sub(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x - y``.

    >>> sub(Tensor([1, 2]), Tensor([[1], [3]])).tolist()
    [[0, 1], [-2, -1]]
    """
    return elemwise(_M.SUB, x, y)


def mul(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x * y``.

    >>> mul(Tensor([1, 2]), 3).tolist()
    [3, 6]
    """
    return elemwise(_M.MUL, x, y)


def div(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x / y``, floating-point for integers, too.

    >>> div(Tensor([1, 3]), 2).tolist()
    [0.5, 1.5]
    """
    return elemwise(_M.TRUE_DIV, x, y)


def floor_div(x: TensorLike, y: TensorLike) -> Tensor:
    """Return the quotient rounded down.

    >>> floor_div(Tensor([-5, 5]), 3).tolist()
    [-2, 1]
    """
    return elemwise(_M.FLOOR_DIV, x, y)


def mod(x: TensorLike, y: TensorLike) -> Tensor:
    """Return the remainder: of integers with the divisor's sign, of floats with the dividend's (C's fmod).

    >>> mod(Tensor([-5, 5]), 3).tolist(), mod(Tensor([-5.0, 5.0]), 3).tolist()
    ([1, 2], [-2.0, 2.0])
    """
    return elemwise(_M.MOD, x, y)


def neg(x: TensorLike) -> Tensor:
    """Compute ``-x``.

    >>> neg(Tensor([1.0, -2.0])).tolist()
    [-1.0, 2.0]
    """
    return elemwise(_M.NEGATE, x)


def pow(x: TensorLike, y: TensorLike) -> Tensor:
    """Return `x` to the power of `y`, floating-point for integers, too.

    >>> pow(Tensor([2, 3]), 2).tolist()
    [4.0, 9.0]
    """
    return elemwise(_M.POW, x, y)


def abs(x: TensorLike) -> Tensor:
    """Return the absolute value.

    >>> abs(Tensor([-3, 2])).tolist()
    [3, 2]
    """
    return elemwise(_M.ABS, x)


def square(x: TensorLike) -> Tensor:
    """Compute ``x * x``.

    >>> square(Tensor([-3, 2])).tolist()
    [9, 4]
    """
    return elemwise(_M.SQUARE, x)


def round(x: TensorLike) -> Tensor:
    """Return the nearest integer, halves away from zero.

    >>> round(Tensor([1.5, 2.5, -0.5])).tolist()
    [2.0, 3.0, -1.0]
    """
    return elemwise(_M.ROUND, x)


def ceil(x: TensorLike) -> Tensor:
    """Return the smallest integer that is not less.

    >>> ceil(Tensor([1.5, -1.5])).tolist()
    [2.0, -1.0]
    """
    return elemwise(_M.CEIL, x)


def floor(x: TensorLike) -> Tensor:
    """Return the largest integer that is not greater.

    >>> floor(Tensor([1.5, -1.5])).tolist()
    [1.0, -2.0]
    """
    return elemwise(_M.FLOOR, x)


def maximum(x: TensorLike, y: TensorLike) -> Tensor:
    """Return the greater of two.

    >>> maximum(Tensor([1, 5]), 3).tolist()
    [3, 5]
    """
    return elemwise(_M.MAX, x, y)


def minimum(x: TensorLike, y: TensorLike) -> Tensor:
    """Return the lesser of two.

    >>> minimum(Tensor([1, 5]), 3).tolist()
    [1, 3]
    """
    return elemwise(_M.MIN, x, y)


def clip(x: TensorLike, lower: TensorLike | None = None, upper: TensorLike | None = None) -> Tensor:
    """Return the values limited to at least `lower` and at most `upper`, of which one may be left out.

    Args:
        x: a tensor, an array or a number.
        lower: the smallest value: a number or anything that broadcasts with `x`.
        upper: the largest value; it wins where it is below `lower`.

    Raises:
        AssertionError: both bounds are left out.

    >>> clip(Tensor([-2.0, 0.5, 3.0]), -1, 1).tolist()
    [-1.0, 0.5, 1.0]
    """
    if lower is None:
        if upper is None:
            raise AssertionError("clip needs a lower or an upper bound, found neither")
        return minimum(x, upper)
    return maximum(x, lower) if upper is None else elemwise(_M.CLIP, x, lower, upper)


def left_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x`` with its bits moved left by ``y``; integers only.

    >>> left_shift(Tensor([1, 2]), 3).tolist()
    [8, 16]
    """
    return elemwise(_M.SHL, x, y)


def right_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x`` with its bits moved right by ``y``, the sign kept; integers only.

    >>> right_shift(Tensor([-8, 9]), 1).tolist()
    [-4, 4]
    """
    return elemwise(_M.SHR, x, y)


def logical_and(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether both are true; booleans only.

    >>> logical_and(Tensor([True, False]), True).tolist()
    [True, False]
    """
    return elemwise(_M.AND, x, y)


def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether one is true; booleans only.

    >>> logical_or(Tensor([True, False]), True).tolist()
    [True, True]
    """
    return elemwise(_M.OR, x, y)


def logical_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether exactly one is true; booleans only.

    >>> logical_xor(Tensor([True, False]), True).tolist()
    [False, True]
    """
    return elemwise(_M.XOR, x, y)


def logical_not(x: TensorLike) -> Tensor:
    """Return whether it is false; booleans only.

    >>> logical_not(Tensor([True, False])).tolist()
    [False, True]
    """
    return elemwise(_M.NOT, x)


def equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether two are equal.

    >>> equal(Tensor([1, 2]), 2).tolist()
    [False, True]
    """
    return elemwise(_M.EQ, x, y)


def not_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether two differ.

    >>> not_equal(Tensor([1, 2]), 2).tolist()
    [True, False]
    """
    return elemwise(_M.NEQ, x, y)


def less(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x < y``.

    >>> less(Tensor([1, 2]), 2).tolist()
    [True, False]
    """
    return elemwise(_M.LT, x, y)


def less_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x <= y``.

    >>> less_equal(Tensor([1, 2]), 2).tolist()
    [True, True]
    """
    return elemwise(_M.LEQ, x, y)


def greater(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x > y``.

    >>> greater(Tensor([1, 2]), 1).tolist()
    [False, True]
    """
    return elemwise(_M.LT, y, x)


def greater_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x >= y``.

    >>> greater_equal(Tensor([1, 2]), 2).tolist()
    [False, True]
    """
    return elemwise(_M.LEQ, y, x)

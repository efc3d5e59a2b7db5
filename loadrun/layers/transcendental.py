"""Elementwise functions of the exponential and trigonometric kind; integers become float32.

Values are those of MegEngine's elementwise kernels. Each takes a tensor, an array or a number and gives a tensor of
its shape, in its dtype where that is a float.
"""

from __future__ import annotations

from ..graph import params as P
from ..tensors import Tensor, TensorLike, const, elemwise

_M = P.ElemwiseMode


def exp(x: TensorLike) -> Tensor:
    """Compute *e* to the power of `x`.

    >>> exp(Tensor([0.0, 1.0])).numpy().round(4).tolist()
    [1.0, 2.7183001041412354]
    """
    return elemwise(_M.EXP, x)


def expm1(x: TensorLike) -> Tensor:
    """Compute ``exp(x) - 1``, exact near 0.

    >>> float(expm1(1e-8)) > 0
    True
    """
    return elemwise(_M.EXPM1, x)


def log(x: TensorLike) -> Tensor:
    """Return the natural logarithm.

    >>> log(Tensor([1.0, 0.0])).tolist()
    [0.0, -inf]
    """
    return elemwise(_M.LOG, x)


def log1p(x: TensorLike) -> Tensor:
    """Compute ``log(1 + x)``, exact near 0.

    >>> float(log1p(1e-8)) > 0
    True
    """
    return elemwise(_M.LOG1P, x)


def logaddexp(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``log(exp(x) + exp(y))`` without overflow.

    >>> logaddexp(Tensor([100.0, 1000.0]), 0.0).tolist()
    [100.0, 1000.0]
    """
    return elemwise(_M.LOG_SUM_EXP, x, y)


def sqrt(x: TensorLike) -> Tensor:
    """Return the square root.

    >>> sqrt(Tensor([4, 9])).tolist()
    [2.0, 3.0]
    """
    return elemwise(_M.SQRT, x)


def erf(x: TensorLike) -> Tensor:
    """Return the error function.

    >>> erf(0.0).item()
    0.0
    """
    return elemwise(_M.ERF, x)


def sin(x: TensorLike) -> Tensor:
    """Return the sine.

    >>> sin(0.0).item()
    0.0
    """
    return elemwise(_M.SIN, x)


def cos(x: TensorLike) -> Tensor:
    """Return the cosine.

    >>> cos(0.0).item()
    1.0
    """
    return elemwise(_M.COS, x)


def tan(x: TensorLike) -> Tensor:
    """Return the tangent.

    >>> tan(0.0).item()
    0.0
    """
    return elemwise(_M.TAN, x)


def asin(x: TensorLike) -> Tensor:
    """Return the arc sine.

    >>> asin(0.0).item()
    0.0
    """
    return elemwise(_M.ASIN, x)


def acos(x: TensorLike) -> Tensor:
    """Return the arc cosine.

    >>> acos(1.0).item()
    0.0
    """
    return elemwise(_M.ACOS, x)


def atan(x: TensorLike) -> Tensor:
    """Return the arc tangent.

    >>> atan(0.0).item()
    0.0
    """
    return elemwise(_M.ATAN2, x, const(1.0))


def atan2(y: TensorLike, x: TensorLike) -> Tensor:
    """Return the angle of the point at `x` and `y`, from -pi to pi.

    >>> atan2(0.0, 1.0).item()
    0.0
    """
    return elemwise(_M.ATAN2, y, x)


def sinh(x: TensorLike) -> Tensor:
    """Return the hyperbolic sine.

    >>> sinh(0.0).item()
    0.0
    """
    return elemwise(_M.SINH, x)


def cosh(x: TensorLike) -> Tensor:
    """Return the hyperbolic cosine.

    >>> cosh(0.0).item()
    1.0
    """
    return elemwise(_M.COSH, x)


def tanh(x: TensorLike) -> Tensor:
    """Return the hyperbolic tangent.

    >>> tanh(Tensor([0.0, 99.0])).tolist()
    [0.0, 1.0]
    """
    return elemwise(_M.TANH, x)


def asinh(x: TensorLike) -> Tensor:
    """Return the inverse hyperbolic sine.

    >>> asinh(0.0).item()
    0.0
    """
    return elemwise(_M.ASINH, x)


def acosh(x: TensorLike) -> Tensor:
    """Return the inverse hyperbolic cosine.

    >>> acosh(1.0).item()
    0.0
    """
    return elemwise(_M.ACOSH, x)


def atanh(x: TensorLike) -> Tensor:
    """Return the inverse hyperbolic tangent.

    >>> atanh(0.0).item()
    0.0
    """
    return elemwise(_M.ATANH, x)

"""Elementwise functions of MegEngine's functional package: one line for each, with its mode.

All take tensors, arrays and numbers that broadcast together and are promoted as MegEngine promotes them. Those of the
exponential and trigonometric kind make integers float32.
"""

from typing import Protocol as _Protocol

from ..graph import params as P
from ..graph.params import ElemwiseMode as _M
from ..tensors import (
    Tensor,
    Tensor as _Tensor,
    TensorLike,
    TensorLike as _TensorLike,
    apply1,
    as_tensor,
    const as _const,
    elemwise as _elemwise,
    elemwise as _promoted,
)
from ..tensors.dtypes import DTypeLike, graph_dtype
from .geometry import Mode, member


class _Unary(_Protocol):
    def __call__(self, x: _TensorLike) -> _Tensor: ...


class _Binary(_Protocol):
    def __call__(self, x: _TensorLike, y: _TensorLike) -> _Tensor: ...


def _unary(name: str, mode: _M, doc: str) -> _Unary:
    def function(x: _TensorLike) -> _Tensor:
        return _elemwise(mode, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _binary(name: str, mode: _M, doc: str) -> _Binary:
    def function(x: _TensorLike, y: _TensorLike) -> _Tensor:
        return _elemwise(mode, x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


add = _binary("add", _M.ADD, "Compute ``x + y``; booleans have to be made numbers first.")
sub = _binary("sub", _M.SUB, "Compute ``x - y``.")
mul = _binary("mul", _M.MUL, "Compute ``x * y``.")
div = _binary("div", _M.TRUE_DIV, "Compute ``x / y``, floating-point for integers, too.")
floor_div = _binary("floor_div", _M.FLOOR_DIV, "Return the quotient rounded down.")
mod = _binary(
    "mod", _M.MOD, "Return the remainder: of integers with the divisor's sign, of floats with the dividend's."
)
pow = _binary("pow", _M.POW, "Return `x` to the power of `y`, floating-point for integers, too.")
neg = _unary("neg", _M.NEGATE, "Compute ``-x``.")
abs = _unary("abs", _M.ABS, "Return the absolute value.")
square = _unary("square", _M.SQUARE, "Compute ``x * x``.")
round = _unary("round", _M.ROUND, "Return the nearest integer, halves away from zero.")
ceil = _unary("ceil", _M.CEIL, "Return the smallest integer that is not less.")
floor = _unary("floor", _M.FLOOR, "Return the largest integer that is not greater.")
maximum = _binary("maximum", _M.MAX, "Return the greater of two.")
minimum = _binary("minimum", _M.MIN, "Return the lesser of two.")

exp = _unary("exp", _M.EXP, "Compute *e* to the power of `x`.")
expm1 = _unary("expm1", _M.EXPM1, "Compute ``exp(x) - 1``, exact near 0.")
log = _unary("log", _M.LOG, "Return the natural logarithm.")
log1p = _unary("log1p", _M.LOG1P, "Compute ``log(1 + x)``, exact near 0.")
logaddexp = _binary("logaddexp", _M.LOG_SUM_EXP, "Compute ``log(exp(x) + exp(y))`` without overflow.")
sqrt = _unary("sqrt", _M.SQRT, "Return the square root.")
erf = _unary("erf", _M.ERF, "Return the error function.")
sin = _unary("sin", _M.SIN, "Return the sine.")
cos = _unary("cos", _M.COS, "Return the cosine.")
tan = _unary("tan", _M.TAN, "Return the tangent.")
asin = _unary("asin", _M.ASIN, "Return the arc sine.")
acos = _unary("acos", _M.ACOS, "Return the arc cosine.")
sinh = _unary("sinh", _M.SINH, "Return the hyperbolic sine.")
cosh = _unary("cosh", _M.COSH, "Return the hyperbolic cosine.")
tanh = _unary("tanh", _M.TANH, "Return the hyperbolic tangent.")
asinh = _unary("asinh", _M.ASINH, "Return the inverse hyperbolic sine.")
acosh = _unary("acosh", _M.ACOSH, "Return the inverse hyperbolic cosine.")
atanh = _unary("atanh", _M.ATANH, "Return the inverse hyperbolic tangent.")

left_shift = _binary("left_shift", _M.SHL, "Compute `x` with its bits moved left by `y`; integers only.")
right_shift = _binary(
    "right_shift", _M.SHR, "Compute `x` with its bits moved right by `y`, the sign kept; integers only."
)
logical_and = _binary("logical_and", _M.AND, "Return whether both are true; booleans only.")
logical_or = _binary("logical_or", _M.OR, "Return whether one is true; booleans only.")
logical_xor = _binary("logical_xor", _M.XOR, "Return whether exactly one is true; booleans only.")
logical_not = _unary("logical_not", _M.NOT, "Return whether it is false; booleans only.")
equal = _binary("equal", _M.EQ, "Return whether two are equal.")
not_equal = _binary("not_equal", _M.NEQ, "Return whether two differ.")
less = _binary("less", _M.LT, "Compute ``x < y``.")
less_equal = _binary("less_equal", _M.LEQ, "Compute ``x <= y``.")


def greater(x: _TensorLike, y: _TensorLike) -> _Tensor:
    """Compute ``x > y``.

    >>> greater(_Tensor([1, 2]), 1).tolist()
    [False, True]
    """
    return less(y, x)


def greater_equal(x: _TensorLike, y: _TensorLike) -> _Tensor:
    """Compute ``x >= y``.

    >>> greater_equal(_Tensor([1, 2]), 2).tolist()
    [False, True]
    """
    return less_equal(y, x)


def atan(x: _TensorLike) -> _Tensor:
    """Return the arc tangent.

    >>> atan(0.0).item()
    0.0
    """
    return _elemwise(_M.ATAN2, x, _const(1.0))


def atan2(y: _TensorLike, x: _TensorLike) -> _Tensor:
    """Return the angle of the point at `x` and `y`, from -pi to pi.

    >>> atan2(0.0, 1.0).item()
    0.0
    """
    return _elemwise(_M.ATAN2, y, x)


def clip(x: _TensorLike, lower: "_TensorLike | None" = None, upper: "_TensorLike | None" = None) -> _Tensor:
    """Return the values limited to at least `lower` and at most `upper`, of which one may be left out.

    Args:
        x: a tensor, an array or a number.
        lower: the smallest value: a number or anything that broadcasts with `x`.
        upper: the largest value; it wins where it is below `lower`.

    Raises:
        AssertionError: both bounds are left out.

    >>> clip(_Tensor([-2.0, 0.5, 3.0]), -1, 1).tolist()
    [-1.0, 0.5, 1.0]
    """
    if lower is None:
        if upper is None:
            raise AssertionError("clip needs a lower or an upper bound, found neither")
        return minimum(x, upper)
    return maximum(x, lower) if upper is None else _elemwise(_M.CLIP, x, lower, upper)


def elwise(*args: TensorLike, mode: Mode) -> Tensor:
    """Return an elementwise mode of promoted operands.

    Args:
        args: tensors, arrays or numbers.
        mode: a member of `loadrun.graph.params.ElemwiseMode` or its name in any case.

    Raises:
        RuntimeError: there is no such mode, or it does not take these operands.

    >>> elwise(Tensor([1.0, -2.0]), mode="abs").tolist()
    [1.0, 2.0]
    """
    return _promoted(member(P.ElemwiseMode, mode, "mode"), *args)


def elemwise_multi_type(*args: TensorLike, mode: Mode, dtype: DTypeLike | None = None) -> Tensor:
    """Return an elementwise mode of operands as they are, with the result in a given dtype.

    Args:
        args: tensors or arrays.
        mode: a member of `loadrun.graph.params.ElemwiseMultiTypeMode` or its name in any case.
        dtype: the dtype of the result, for instance ``qint8(scale)``.

    Raises:
        RuntimeError: there is no such mode, or it does not take these operands.

    >>> from loadrun.megengine.core.tensor.dtype import qint8
    >>> x = Tensor([4, -4], dtype=qint8(0.5))
    >>> elemwise_multi_type(x, mode="qrelu", dtype=qint8(1.0)).tolist()
    [2, 0]
    """
    output = None if dtype is None else graph_dtype(dtype)
    param = P.ElemwiseMultiType(mode=member(P.ElemwiseMultiTypeMode, mode, "mode"))
    return apply1("ElemwiseMultiType", param, inputs=[as_tensor(x) for x in args], output_dtype=output)

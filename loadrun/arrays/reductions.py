"""Lowerings of numpy's reductions and running sums, and of the methods of ufuncs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graph import params as P
from ..graph.dtypes import DType
from ..layers import emit as e
from ..layers.emit import M, elem, half_sums, is_bool, is_float, number, summed
from ..layers.shared.sizes import of_length
from ..tensors import Tensor, TracedInt, access, apply1
from ..tensors.access import as_vector, is_scalar
from ..tensors.naming import refused
from . import indexing as numpy_index, logic
from .arithmetic import maximum, minimum
from .array import TracedArray
from .axes import axes_of, axis_of
from .promotion import dtype_of, narrow, operand
from .protocol import apply_ufunc
from .registry import lowers, ufunc

_R = P.ReduceMode
_TRUTH = "int32"
"""Booleans are reduced as numbers of this dtype."""


def flat_or(a: Any, axis: Any, *, strict: bool = False) -> tuple[Tensor, int]:
    """Return the array and an axis from 0; flattened for no axis, and, unless `strict`, for axis 0 of a 0-d array."""
    x = operand(a)
    if axis is None or (not strict and is_scalar(x) and axis in (0, -1)):
        return e.flat(x), 0
    return x, axis_of(axis, len(e.sizes(x)))


def _masked(x: Tensor, where: Any, neutral: float) -> Tensor:
    return x if where is True else e.where(operand(where, np.bool_), x, number(neutral, x))


def sum_dtype(x: Tensor, dtype: Any) -> np.dtype[Any]:
    """Return the dtype of sums and products: that of `dtype`, else numpy's, which is wide for integers."""
    return narrow(np.add.reduce(np.ones(1, dtype_of(x))).dtype if dtype is None else dtype)


def element_count(x: Tensor, axes: Sequence[int]) -> int:
    """Return how many elements lie along axes."""
    total: int = 1
    for a in axes:
        # A TracedInt must come first for the product to stay symbolic.
        n = x.shape[a]
        total = n * total if isinstance(n, TracedInt) else total * n
    return total


@lowers("sum")
def sum_(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    """Add up; integers as int32."""
    x = operand(a)
    x = _masked(e.cast(x, sum_dtype(x, dtype)), where, 0)
    result = summed(x, axes_of(axis, len(e.sizes(x))), keepdims)
    return result if initial is None else elem(M.ADD, result, operand(initial, access.dtype_of(x).np))


@lowers("prod")
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    """Multiply; integers as int32."""
    x = operand(a)
    x = _masked(e.cast(x, sum_dtype(x, dtype)), where, 1)
    axes = axes_of(axis, len(e.sizes(x)))
    result = e.reduce(x, _R.PRODUCT, axes, keepdims=keepdims)
    return result if initial is None else elem(M.MUL, result, operand(initial, access.dtype_of(x).np))


def extreme(x: Tensor, largest: bool, axes: Sequence[int], keepdims: Any = False) -> Tensor:
    """Return the largest or smallest value over axes."""
    if is_bool(x):
        return e.cast(extreme(e.cast(x, _TRUTH), largest, axes, keepdims), "bool")
    if access.dtype_of(x).name == "Uint16":
        return e.cast(extreme(e.cast(x, "int32"), largest, axes, keepdims), np.uint16)
    return e.reduce(x, _R.MAX if largest else _R.MIN, axes, keepdims=keepdims)


def _extreme_function(a: Any, axis: Any, keepdims: Any, initial: Any, where: Any, *, largest: bool) -> Tensor:
    x = operand(a)
    axes = axes_of(axis, len(e.sizes(x)))
    if initial is None:
        name = "maximum" if largest else "minimum"
        if where is not True:
            raise ValueError(
                f"reduction operation '{name}' does not have an identity, so to use a where mask one has to "
                "specify 'initial'"
            )
        if any(e.sizes(x)[i] == 0 for i in axes):
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
        return extreme(x, largest, axes, keepdims)
    start = operand(initial, access.dtype_of(x).np)
    if any(e.sizes(x)[i] == 0 for i in axes):
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes]
        return e.full(start, shape)
    if where is not True:
        x = e.where(operand(where, np.bool_), x, start)
    result = extreme(x, largest, axes, keepdims)
    return (maximum if largest else minimum)(result, start)


@lowers("max", "amax")
def max_(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = True
) -> Tensor:
    """Return the largest value."""
    return _extreme_function(a, axis, keepdims, initial, where, largest=True)


@lowers("min", "amin")
def min_(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = True
) -> Tensor:
    """Return the smallest value."""
    return _extreme_function(a, axis, keepdims, initial, where, largest=False)


@lowers("ptp")
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Tensor:
    """Return the distance of the largest and the smallest value."""
    x = operand(a)
    axes = axes_of(axis, len(e.sizes(x)))
    return elem(M.SUB, extreme(x, True, axes, keepdims), extreme(x, False, axes, keepdims))


@lowers("any")
def any_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Tensor:
    """Return whether one of the values is true."""
    x = _masked(e.cast(e.cast(operand(a), "bool"), _TRUTH), where, 0)
    axes = axes_of(axis, len(e.sizes(x)))
    # Of no values, too, which have no maximum.
    return e.cast(e.reduce(x, _R.SUM, axes, keepdims=keepdims), "bool")


@lowers("all")
def all_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Tensor:
    """Return whether all values are true."""
    x = _masked(e.cast(e.cast(operand(a), "bool"), _TRUTH), where, 1)
    axes = axes_of(axis, len(e.sizes(x)))
    return e.cast(e.reduce(x, _R.PRODUCT, axes, keepdims=keepdims), "bool")


@lowers("count_nonzero")
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Tensor:
    """Return how many values are not zero, as a 0-d array where numpy gives a Python number."""
    x = e.cast(e.cast(operand(a), "bool"), "int32")
    return summed(x, axes_of(axis, len(e.sizes(x))), keepdims)


# Means


def _as_floating(x: Tensor, dtype: Any) -> Tensor:
    """Convert what is averaged to floating-point: integers to float32."""
    return e.cast(x, narrow(dtype)) if dtype is not None else x if is_float(x) else e.as_float(x)


def mean_of(x: Tensor, axes: Sequence[int], keepdims: Any = False) -> Tensor:
    """Return the mean of floating-point numbers."""
    return e.reduce(x, _R.MEAN, axes, half_sums(x), keepdims=keepdims)


@lowers("mean")
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Tensor:
    """Return the mean, floating-point."""
    x = _as_floating(operand(a), dtype)
    axes = axes_of(axis, len(e.sizes(x)))
    if where is True:
        return mean_of(x, axes, keepdims)
    mask = e.broadcast(operand(where, np.bool_), x.shape)
    count = summed(e.cast(mask, access.dtype_of(x)), axes, keepdims)
    return elem(M.TRUE_DIV, summed(_masked(x, where, 0), axes, keepdims), count)


def variance(x: Tensor, axes: Sequence[int], ddof: Any, keepdims: Any, mean: Any = None) -> Tensor:
    """Return the mean squared distance from the mean, divided by the number of elements less `ddof`."""
    middle = mean_of(x, axes, True) if mean is None else operand(mean, access.dtype_of(x).np)
    squares = elem(M.SQUARE, elem(M.SUB, x, middle))
    if not ddof:
        return mean_of(squares, axes, keepdims)
    count = element_count(x, axes)
    divisor = e.like(count - ddof if isinstance(ddof, int) else int(count) - ddof, x)
    return elem(M.TRUE_DIV, summed(squares, axes, keepdims), divisor)


def _variance(a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, mean: Any) -> tuple[Tensor, DType]:
    """Return the variance in float32, and the dtype that numpy gives it."""
    x = _as_floating(operand(a), dtype)
    axes = axes_of(axis, len(e.sizes(x)))
    return variance(e.as_float(x), axes, ddof, keepdims, mean), access.dtype_of(x)


@lowers("var")
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    mean: Any = None,
    correction: Any = None,
) -> Tensor:
    """Return the variance, floating-point."""
    result, kind = _variance(a, axis, dtype, ddof if correction is None else correction, keepdims, mean)
    return e.cast(result, kind)


@lowers("std")
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    mean: Any = None,
    correction: Any = None,
) -> Tensor:
    """Return the standard deviation, floating-point."""
    result, kind = _variance(a, axis, dtype, ddof if correction is None else correction, keepdims, mean)
    return e.cast(elem(M.SQRT, result), kind)


@lowers("average")
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    """Return the mean with weights."""
    x = _as_floating(operand(a), None)
    axes = axes_of(axis, len(e.sizes(x)))
    if weights is None:
        result = mean_of(x, axes, keepdims)
        total = e.like(element_count(x, axes), x)
    else:
        w = operand(weights, access.dtype_of(x).np)
        if e.sizes(w) != e.sizes(x):
            if len(e.sizes(w)) != 1 or len(axes) != 1:
                raise TypeError("weights of another shape than the array must be 1-d, for one axis")
            w = e.reshape(w, tuple(-1 if i == axes[0] else 1 for i in range(len(e.sizes(x)))))
            w = e.broadcast(w, x.shape)
        total = summed(w, axes, keepdims)
        result = elem(M.TRUE_DIV, summed(elem(M.MUL, x, w), axes, keepdims), total)
    return (result, e.broadcast(total, result.shape)) if returned else result


# Positions


def _position(a: Any, axis: Any, keepdims: Any, largest: bool) -> Tensor:
    tensor = operand(a)
    x, at = flat_or(tensor, axis)
    if e.sizes(x)[at] == 0:
        raise ValueError(f"attempt to get arg{'max' if largest else 'min'} of an empty sequence")
    if access.dtype_of(x).name in ("Bool", "Uint16"):
        x = e.cast(x, "int32")
    if access.dtype_of(x).name == "Int32" or (access.dtype_of(x).is_wide and not is_float(x)):
        # The operator compares as float32, which cannot hold large integers exactly.
        x = e.as_float(elem(M.EQ, x, extreme(x, largest, [at], True)))
        largest = True
    result = apply1("Argmax" if largest else "Argmin", P.Axis(axis=at), inputs=[as_vector(x)], scalar=False)
    ndim = len(e.sizes(tensor))
    if axis is None and keepdims:
        return e.reshape(result, (1,) * max(ndim, 1))
    return result if keepdims else e.drop_axes(result, [at])


@lowers("argmax")
def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Tensor:
    """Return the position of the largest value, the first of equal ones."""
    return _position(a, axis, keepdims, True)


@lowers("argmin")
def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Tensor:
    """Return the position of the smallest value, the first of equal ones."""
    return _position(a, axis, keepdims, False)


# Running sums


def cumulated(x: Tensor, axis: int) -> Tensor:
    """Return the running sum along an axis."""
    param = P.Cumsum(axis=axis, exclusive=False, reverse=False)
    return apply1("CumsumV1", param, inputs=[as_vector(x)], scalar=False)


def scanned(x: Tensor, axis: int, func: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the running result of an associative operation along an axis, in as many steps as the length has bits.

    The graph is valid for that length alone, and is an error at another.
    """
    x = of_length(
        x, axis, f"a running result was traced for {e.sizes(x)[axis]} entries along axis {axis}, found others"
    )
    shift = 1
    while shift < e.sizes(x)[axis]:
        head = e.subtensor(x, [(axis, None, shift, None, None)])
        late = e.subtensor(x, [(axis, shift, None, None, None)])
        early = e.subtensor(x, [(axis, None, -shift, None, None)])
        x = e.concat([head, func(early, late)], axis)
        shift *= 2
    return x


@lowers("cumsum")
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Tensor:
    """Return the running sum; integers as int32."""
    x, at = flat_or(a, axis)
    return cumulated(e.cast(x, sum_dtype(x, dtype)), at)


@lowers("cumprod")
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Tensor:
    """Return the running product; integers as int32."""
    x, at = flat_or(a, axis)
    return scanned(e.cast(x, sum_dtype(x, dtype)), at, lambda x, y: elem(M.MUL, x, y))


# Methods of ufuncs


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "add": sum_,
    "multiply": prod,
    "maximum": max_,
    "minimum": min_,
    "logical_and": all_,
    "logical_or": any_,
}


@ufunc(*_REDUCTIONS, method="reduce")
def reduce(
    target: np.ufunc,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    """Return the ufunc applied along axes."""
    kwargs: dict[str, Any] = {"keepdims": keepdims, "where": where}
    if target in (np.add, np.multiply):
        kwargs["dtype"] = dtype
    if target not in (np.logical_and, np.logical_or):
        kwargs["initial"] = initial
    if target is np.add and dtype is None and is_bool(operand(array)):
        return any_(array, axis, None, keepdims, where=where)
    return _REDUCTIONS[target.__name__](array, axis, **kwargs)


_SCANS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "multiply": lambda x, y: elem(M.MUL, x, y),
    "maximum": maximum,
    "minimum": minimum,
    "logical_and": logic.logical_and,
    "logical_or": logic.logical_or,
}


@ufunc("add", *_SCANS, method="accumulate")
def accumulate(target: np.ufunc, array: Any, axis: Any = 0, dtype: Any = None) -> Tensor:
    """Return the running result of the ufunc along an axis."""
    x = operand(array)
    at = axis_of(axis, len(e.sizes(x)))
    if target in (np.logical_and, np.logical_or):
        x = e.cast(x, "bool")
    elif target in (np.add, np.multiply):
        x = e.cast(x, sum_dtype(x, dtype))
    return cumulated(x, at) if target is np.add else scanned(x, at, _SCANS[target.__name__])


def outer(target: np.ufunc, x: Any, y: Any, dtype: Any = None) -> Tensor:
    """Return the ufunc of all pairs."""
    a, b = (v if isinstance(v, Tensor) else np.asarray(v) for v in (x, y))
    a = operand(a)
    a = e.reshape(a, (*a.shape, *(1,) * np.ndim(b)))
    return apply_ufunc(target, (a, b), {} if dtype is None else {"dtype": dtype})


def _register_outer() -> None:
    # Not dir(np), by which numpy imports its packages for tests and Fortran.
    names = [n for n, f in vars(np).items() if isinstance(f, np.ufunc)]
    two = [n for n in names if getattr(np, n).nin == 2 and getattr(np, n).signature is None]
    ufunc(*(n for n in two if getattr(np, n).nout == 1), method="outer")(outer)


_register_outer()


@ufunc("add", "subtract", method="at")
def at(target: np.ufunc, a: Any, indices: Any, b: Any) -> None:
    """Add at places, once for each time that a place is named."""
    if not isinstance(a, TracedArray):
        raise refused(f"np.{target.__name__}.at writes into an array that is not traced")
    x = operand(a)
    value = operand(b, access.dtype_of(x).np)
    if target is np.subtract:
        value = elem(M.NEGATE, value)
    selection = numpy_index.select(x, indices)
    if selection.basic:
        a[indices] = a[indices] + value
        return
    a._written(numpy_index.assign(x, selection, value, add=True))

"""Lowerings of the numpy functions that make arrays of a given shape.

``np.zeros(n)`` itself is not handed over by numpy and gives an ndarray, which is a constant of the graph. With
``like=x``, and as ``np.zeros_like(x)``, the result is traced and its sizes follow the graph's inputs.
"""

import math
from typing import Any

import numpy as np

from ..graph import params as P
from ..layers import emit as e
from ..layers.emit import M, elem
from ..tensors import Tensor, TracedInt, TracedNumber, plain_number
from ..tensors.naming import refused
from .array import TracedArray
from .axes import axis_of, given_shape
from .manipulation import moved
from .promotion import common, dtype_of, narrow, operand, stacked
from .registry import lowers


def _filled(value: Any, shape: Any, dtype: Any) -> Tensor:
    return e.full(e.reshape(operand(value, narrow(dtype)), ()), given_shape(shape))


def _like(a: Any, value: Any, dtype: Any, shape: Any) -> Tensor:
    x = operand(a)
    return _filled(value, x.shape if shape is None else shape, dtype_of(x) if dtype is None else dtype)


@lowers("zeros_like", "empty_like", arrays=True)
def zeros_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Tensor:
    """Return zeros of an array's shape and dtype; so is ``empty_like``."""
    return _like(a, 0, dtype, shape)


@lowers("ones_like", arrays=True)
def ones_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Tensor:
    """Return ones of an array's shape and dtype."""
    return _like(a, 1, dtype, shape)


@lowers("full_like", arrays=True)
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Tensor:
    """Return one value in an array's shape and dtype."""
    value = operand(fill_value)
    want = dtype_of(operand(a)) if dtype is None else dtype
    if e.sizes(value):
        x = operand(a)
        return e.broadcast(e.cast(value, narrow(want)), x.shape if shape is None else given_shape(shape))
    return _like(a, value, want, shape)


@lowers("zeros", "empty", arrays=True)
def zeros(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None) -> Tensor:
    """Return zeros, with ``like=``."""
    return _filled(0, shape, dtype or float)


@lowers("ones", arrays=True)
def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> Tensor:
    """Return ones, with ``like=``."""
    return _filled(1, shape, dtype or float)


@lowers("full", arrays=True)
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> Tensor:
    """Return one value, with ``like=`` or a traced value."""
    value = operand(fill_value)
    want = dtype_of(value) if dtype is None else dtype
    if e.sizes(value):
        return e.broadcast(e.cast(value, narrow(want)), given_shape(shape))
    return _filled(value, shape, want)


@lowers("eye")
def eye(
    N: Any, M: Any = None, k: int = 0, dtype: Any = float, order: str = "C", *, device: Any = None
) -> Tensor:
    """Return ones on a diagonal, with ``like=``."""
    (rows,), (columns,) = given_shape(N), given_shape(N if M is None else M)
    i, j = e.arange(rows), e.arange(columns)
    i = elem(e.M.ADD, i, e.number(k, i)) if k else i
    return e.cast(e.compare(P.ElemwiseMultiTypeMode.EQ, e.add_axes(i, [1]), j), narrow(dtype))


@lowers("arange")
def arange(
    *args: Any, start: Any = None, stop: Any = None, step: Any = None, dtype: Any = None, device: Any = None
) -> Tensor:
    """Return evenly spaced numbers, with ``like=``; bounds may be symbolic sizes."""
    positional = [*args]
    if len(positional) == 1:
        positional = [0 if start is None else start, positional[0]]
    first = positional[0] if positional else (0 if start is None else start)
    last = positional[1] if len(positional) > 1 else stop
    by = positional[2] if len(positional) > 2 else (1 if step is None else step)
    if len(positional) > 3:
        dtype = positional[3]
    bounds = [first, last, by]
    if any(isinstance(v, Tensor) for v in bounds):
        raise refused(
            "np.arange of traced values",
            "the number of results depends on the data",
            "use sizes (x.shape[0]) or numbers",
        )
    if not any(isinstance(v, TracedNumber) for v in bounds):
        return operand(np.arange(first, last, by), narrow(dtype or np.arange(first, last, by).dtype))
    kind = narrow(dtype or np.arange(*map(plain_number, bounds)).dtype)
    whole = all(isinstance(v, (int, np.integer)) for v in bounds)
    if not whole and (isinstance(by, TracedNumber) or abs(math.frexp(by)[0]) != 0.5):
        raise refused(
            f"np.arange from sizes with a step of {float(by):g}",
            "in the file's single precision the number of results may be another one at other sizes",
            "count in whole numbers, and multiply by the step",
        )
    if by == 1 and whole:
        count = last - first
    else:
        count = -((first - last) // by) if whole else math.ceil((last - first) / by)
    result = e.arange(count, "int32" if whole else "float32")
    if by != 1:
        result = elem(M.MUL, result, e.like(by, result))
    if isinstance(first, TracedNumber) or first:
        result = elem(M.ADD, result, e.like(first, result))
    return e.cast(result, kind)


@lowers("linspace")
def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """Return evenly spaced numbers between traced ends, along a new axis."""
    kind = narrow(np.result_type(common([start, stop]), np.float32))
    a, b = operand(start, kind), operand(stop, kind)
    count = given_shape(num)[0]
    steps = count - 1 if endpoint else count
    a, b = (e.broadcast(v, e.broadcast_shape([a, b])) for v in (a, b))
    ndim = len(e.sizes(a))
    parts = e.like(max(int(steps), 1) if not isinstance(steps, TracedInt) else steps, a)
    step = elem(M.TRUE_DIV, elem(M.SUB, b, a), parts)
    place = e.reshape(e.arange(count, kind), (-1, *(1,) * ndim)) if ndim else e.arange(count, kind)
    result = elem(M.ADD, elem(M.MUL, place, step), a)
    if axis not in (0, -ndim - 1):
        result = e.permute(result, moved(ndim + 1, [0], [axis_of(axis, ndim + 1)]))
    result = (
        result
        if dtype is None
        else e.cast(elem(M.FLOOR, result) if np.dtype(dtype).kind in "iu" else result, narrow(dtype))
    )
    return (result, step) if retstep else result


# Copies


@lowers("array")
def array(
    object: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", subok: bool = False, ndmin: int = 0
) -> Any:
    """Return a traced array of a nested list of arrays and numbers, with ``like=``."""
    result = stacked(object, None if dtype is None else narrow(dtype))
    missing = ndmin - len(e.sizes(result))
    return e.add_axes(result, [*range(missing)]) if missing > 0 else result


@lowers("require")
def require(a: Any, dtype: Any = None, requirements: Any = None) -> Any:
    """Return the array itself; how it lies in memory is nothing that a graph says."""
    return asarray(a, dtype)


@lowers("asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
def asarray(a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None) -> Any:
    """Return the array itself where it is one, with ``like=``."""
    if isinstance(a, Tensor) and not copy and (dtype is None or narrow(dtype) == a.dtype):
        return a
    return stacked(a, None if dtype is None else narrow(dtype))


@lowers("copy")
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """Return the same values in memory of their own."""
    return a.copy(order) if isinstance(a, TracedArray) else operand(a)


@lowers("astype")
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Return the values converted to another dtype."""
    return x.astype(dtype)


# Grids


@lowers("meshgrid")
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Return coordinates of a grid, one array an axis."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    n = len(xi)
    result = []
    for i, v in enumerate(xi):
        axis = 1 - i if indexing == "xy" and n > 1 and i < 2 else i
        result.append(e.reshape(operand(v), tuple(-1 if j == axis else 1 for j in range(n))))
    if not sparse:
        shape = e.broadcast_shape(result)
        result = [e.broadcast(x, shape) for x in result]
    return tuple(result) if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else result


def _dtype_or_value(value: Any) -> Any:
    return value.dtype if isinstance(value, Tensor) else value


@lowers("result_type")
def result_type(*arrays_and_dtypes: Any) -> Any:
    """Return numpy's result type of the narrowed dtypes."""
    dtypes = [np.empty(0, v) if isinstance(v, (type, np.dtype, str)) else v for v in arrays_and_dtypes]
    return common(dtypes)


@lowers("can_cast")
def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Return whether numpy would convert."""
    kind: Any = casting
    return bool(np.can_cast(_dtype_or_value(from_), to, kind))


@lowers("iscomplexobj")
def iscomplexobj(x: Any) -> bool:
    """Return False: there are no complex numbers."""
    return False


@lowers("isrealobj")
def isrealobj(x: Any) -> bool:
    """Return True everywhere: all numbers are real."""
    return True


@lowers("shares_memory", "may_share_memory")
def shares_memory(a: Any, b: Any, /, max_work: Any = None) -> bool:
    """Return whether both are views of one array; overlap of different parts counts."""
    return isinstance(a, TracedArray) and isinstance(b, TracedArray) and a._cell.root is b._cell.root

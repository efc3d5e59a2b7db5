"""Reductions, searching and sorting of MegEngine's functional package.

Products and the like are in `loadrun.functional.linalg` and offered here too. Several axes are reduced one after the
other from the last, as MegEngine does, which shows in the rounding of float16 and in integer overflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np

from .. import params as P
from ..imperative import Tensor, apply, apply1, as_tensor, const, elemwise
from .linalg import cross, dot, matinv, matmul, norm, normalize, svd

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "cross",
    "dot",
    "isinf",
    "isnan",
    "matinv",
    "matmul",
    "max",
    "mean",
    "min",
    "norm",
    "normalize",
    "prod",
    "sign",
    "sort",
    "std",
    "sum",
    "svd",
    "topk",
    "var",
]

Axes = SupportsIndex | Iterable[int] | None
_M = P.ElemwiseMode
_R = P.ReduceMode


def isnan(inp: Any) -> Tensor:
    """Whether each element is NaN; false for everything that is not a float.

    >>> isnan(Tensor([1.0, float("nan"), 0.0])).tolist()
    [False, True, False]
    """
    return _float_check(_M.ISNAN, inp)


def isinf(inp: Any) -> Tensor:
    """Whether each element is infinite; false for everything that is not a float.

    >>> isinf(Tensor([1.0, float("-inf"), 0.0])).tolist()
    [False, True, False]
    """
    return _float_check(_M.ISINF, inp)


def _float_check(mode: P.ElemwiseMode, inp: Any) -> Tensor:
    from .tensor import broadcast_to

    x = as_tensor(inp)
    return elemwise(mode, x) if x._dtype.is_float else broadcast_to(const(False), x.shape)


def sign(x: Any) -> Tensor:
    """-1, 0 or 1 for negative, zero and positive elements, in the dtype of `x`.

    >>> sign(Tensor([5, -3, 0])).tolist()
    [1, -1, 0]
    """
    return elemwise(_M.SIGN, x)


# Reductions


def _axes(ndim: int, axis: Any) -> int | list[int]:
    """One axis counted from the front, or several from the last to the first."""
    if isinstance(axis, Iterable):
        found = sorted((_from_front(ndim, a) for a in axis), reverse=True)
        if len(set(found)) < len(found):
            raise AssertionError(f"axis {axis} contains duplicated indices")
        return found
    return _from_front(ndim, axis)


def _from_front(ndim: int, axis: SupportsIndex) -> int:
    number = axis.__index__()
    if not -ndim <= number < ndim:
        raise AssertionError(f"axis {number} is out of bounds for tensor of dimension {ndim}")
    return number % ndim


def _without(x: Tensor, axis: int) -> Tensor:
    """An axis of size 1 removed."""
    if x.ndim == 1:
        return x._as_scalar()
    return apply1("AxisAddRemove", P.AxisAddRemove(desc=(P.AxisDesc(1, axis),)), inputs=[x])


def _reduce(mode: P.ReduceMode, inp: Any, axis: Axes, keepdims: bool) -> Tensor:
    """One reduction in MegEngine's dtype: float32 for means, int32 for other reductions of booleans."""
    x = as_tensor(inp)
    if axis is None and keepdims:
        raise AssertionError("can not set axis=None and keepdims=True")
    logical = x._dtype.name == "Bool"
    if isinstance(axis, Iterable):
        for one in _axes(x.ndim, axis):  # type: ignore[union-attr]
            x = _reduce(mode, x, one, keepdims)
        return x
    if mode == _R.MEAN:
        x = x.astype("float32")
    elif logical:
        x = x.astype("int32")
    if axis is None:
        target = const(np.array([1], np.int32))
        y = apply1("ReduceV2", P.Reduce(mode=mode), inputs=[x, target], scalar=True)
    else:
        y = _along(mode, x, axis.__index__(), keepdims)
    return y.astype("bool") if logical and mode in (_R.MIN, _R.MAX) else y


def _along(mode: P.ReduceMode, x: Tensor, axis: int, keepdims: bool) -> Tensor:
    # A scalar counts as a vector of one element, as in MegEngine.
    y = apply1("ReduceV2", P.Reduce(mode=mode, axis=axis), inputs=[x._vector()], scalar=False)
    return y if keepdims else _without(y, axis)


def sum(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of the elements over one axis, several axes or all of them.

    Integers keep their dtype and wrap; booleans are counted as int32.

    Args:
        inp: a tensor or an array.
        axis: an axis, several axes, or None for all.
        keepdims: whether reduced axes stay with size 1; not for all axes.

    Raises:
        AssertionError: an axis is named twice or does not exist, or `keepdims` without axes.
        EngineError: an axis does not exist.

    >>> sum(Tensor([[1, 2, 3], [4, 5, 6]]), axis=0).tolist(), sum(Tensor([1.0, 2.5])).item()
    ([5, 7, 9], 3.5)
    """
    return _reduce(_R.SUM, inp, axis, keepdims)


def prod(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product of the elements; arguments and errors as for `sum`.

    >>> prod(Tensor([[1, 2, 3], [4, 5, 6]]), axis=1, keepdims=True).tolist()
    [[6], [120]]
    """
    return _reduce(_R.PRODUCT, inp, axis, keepdims)


def mean(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean of the elements in float32; arguments and errors as for `sum`.

    >>> mean(Tensor([[1, 2, 3], [4, 5, 6]]), axis=0).tolist()
    [2.5, 3.5, 4.5]
    """
    return _reduce(_R.MEAN, inp, axis, keepdims)


def var(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean of the squared distances from the mean; arguments and errors as for `sum`.

    >>> var(Tensor([[1, 2], [3, 4]])).item()
    1.25
    """
    x = as_tensor(inp)
    away = x - mean(x, axis, keepdims=axis is not None)
    return mean(elemwise(_M.POW, away, 2), axis, keepdims)


def std(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The square root of the variance; arguments and errors as for `sum`.

    >>> std(Tensor([[1, 5], [3, 9]]), axis=1).tolist()
    [2.0, 3.0]
    """
    return elemwise(_M.POW, var(inp, axis, keepdims), 0.5)


def min(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The least element, NaN where there is one; arguments and errors as for `sum`.

    >>> min(Tensor([[1, 2], [3, 0]]), axis=1).tolist()
    [1, 0]
    """
    return _reduce(_R.MIN, inp, axis, keepdims)


def max(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The greatest element, NaN where there is one; arguments and errors as for `sum`.

    >>> max(Tensor([[1, 2], [3, 0]]), axis=(0, 1), keepdims=True).tolist()
    [[3]]
    """
    return _reduce(_R.MAX, inp, axis, keepdims)


# Searching


def _search(type: str, inp: Any, axis: Any, keepdims: bool) -> Tensor:
    x = as_tensor(inp)
    if axis is None:
        if keepdims:
            raise AssertionError("can not set axis=None and keepdims=True")
        return _search(type, x.reshape(-1), 0, False)
    found = _axes(x.ndim, axis)
    for one in found if isinstance(found, list) else [found]:
        x = apply1(type, P.Axis(axis=one), inputs=[x], scalar=False)
        x = x if keepdims else _without(x, one)
    return x


def argmin(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The position (int32) of the least element along an axis, the first of equal ones.

    Args:
        inp: a tensor or an array.
        axis: an axis, several axes (searched one after the other from the last), or None for the flattened input.
        keepdims: whether the axis stays with size 1; not for the flattened input.

    Raises:
        AssertionError: an axis is named twice or does not exist, or `keepdims` without axes.

    >>> argmin(Tensor([[3, 1, 2], [4, 6, 5]]), axis=1).tolist()
    [1, 0]
    """
    return _search("Argmin", inp, axis, keepdims)


def argmax(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The position (int32) of the greatest element; see `argmin`.

    >>> argmax(Tensor([[3, 1, 2], [4, 6, 5]])).item()
    4
    """
    return _search("Argmax", inp, axis, keepdims)


# Sorting


def _order(descending: bool) -> P.Argsort:
    return P.Argsort(order=P.ArgsortOrder.DESCENDING if descending else P.ArgsortOrder.ASCENDING)


def argsort(inp: Any, descending: bool = False) -> Tensor:
    """The positions (int32) that sort a vector or every row of a matrix.

    Raises:
        AssertionError: the input has more than two dimensions.

    >>> argsort(Tensor([3.0, 1.0, 2.0])).tolist(), argsort(Tensor([3.0, 1.0, 2.0]), descending=True).tolist()
    ([1, 2, 0], [0, 2, 1])
    """
    x = as_tensor(inp)
    if x.ndim > 2:
        raise AssertionError(f"Input should be 1d or 2d, found {x.ndim} dimensions; sort takes more")
    return sort(x, descending)[1]


def sort(inp: Any, descending: bool = False, dim: int = -1) -> tuple[Tensor, Tensor]:
    """The elements sorted along a dimension, and the positions (int32) that they had.

    Args:
        inp: a tensor or an array with at least one dimension.
        descending: whether the greatest comes first.
        dim: the dimension.

    >>> values, at = sort(Tensor([[3, 1, 2], [4, 6, 5]]), descending=True)
    >>> values.tolist(), at.tolist()
    ([[3, 2, 1], [6, 5, 4]], [[0, 2, 1], [1, 2, 0]])
    """
    from .tensor import swapaxes

    x = as_tensor(inp)
    last = _from_front(x.ndim, dim) == x.ndim - 1
    turned = x if last else swapaxes(x, dim, -1)
    shape = turned.shape
    rows = turned if x.ndim == 2 else turned.reshape(_product(shape[:-1]), shape[-1])
    found = apply("Argsort", _order(descending), inputs=[rows], n=2)
    if x.ndim != 2:
        found = [t.reshape(shape) for t in found]
    values, at = found if last else [swapaxes(t, dim, -1) for t in found]
    return values, at


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for n in sizes:
        total = n * total
    return total


def topk(
    inp: Any, k: Any, descending: bool = True, kth_only: bool = False, no_sort: bool = False
) -> tuple[Tensor, Tensor]:
    """The `k` greatest elements of a vector or of every row of a matrix, and their positions (int32).

    Args:
        inp: a tensor or an array of one or two dimensions.
        k: how many: a number or a scalar tensor.
        descending: whether the greatest are wanted, greatest first; otherwise the least, least first.
        kth_only: give only the last of them, without its axis.
        no_sort: whether their order does not matter.

    Raises:
        EngineError: the input has more dimensions, or `k` is 0.

    >>> values, at = topk(Tensor([2.0, 8.0, 5.0, 7.0]), 2)
    >>> values.tolist(), at.tolist()
    ([8.0, 7.0], [1, 3])
    """
    x = as_tensor(inp)
    modes = P.TopKMode
    mode = modes.KTH_ONLY if kth_only else modes.VALUE_IDX_NOSORT if no_sort else modes.VALUE_IDX_SORTED
    number = as_tensor(-k if descending else k, "int32")
    vector = x.ndim == 1
    rows = x.reshape(1, -1) if vector else x
    if not kth_only:
        values, at = apply("TopK", P.TopK(mode=mode), inputs=[rows, number], n=2, scalar=False)
        return (_without(values, 0), _without(at, 0)) if vector else (values, at)
    kth = apply1("TopK", P.TopK(mode=mode), inputs=[rows, number], scalar=False)
    at = argmax((kth.reshape(-1, 1) == rows).astype("int8"), 1)
    return (kth._as_scalar(), at._as_scalar()) if vector else (kth, at)


def _check_non_finite(inps: Tensor | list[Tensor], scale: float = 1.0) -> Tensor:
    """Multiply tensors in place by `scale`; 1 where one of them held an infinity or NaN before, else 0 (int32 [1])."""
    tensors = [inps] if isinstance(inps, Tensor) else inps
    # MegEngine's CPU operator ignores its own scale in a graph.
    checked = apply("CheckNonFinite", P.CheckNonFinite(), inputs=tensors, n=len(tensors) + 1, scalar=False)
    for x, y in zip(tensors, checked[:-1], strict=True):
        x._reset(elemwise(_M.MUL, y, scale))
    return checked[-1]

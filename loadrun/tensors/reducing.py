"""Reductions of tensors as MegEngine has them: what their own methods and `loadrun.megengine.functional` share.

Several axes are reduced one after the other from the last, as MegEngine does, which shows in the rounding of float16
and in integer overflow.
"""

from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np

from ..graph import params as P
from .applying import apply1
from .convert import as_tensor, const
from .naming import titled
from .value import Tensor

Axes = SupportsIndex | Iterable[int] | None
"""An axis, several axes, or None for all."""
_R = P.ReduceMode


def axes_from_last(ndim: int, axis: Any) -> int | list[int]:
    """Return one axis counted from the front, or several from the last to the first."""
    if isinstance(axis, Iterable):
        result = sorted((axis_from_front(ndim, a) for a in axis), reverse=True)
        if len(set(result)) < len(result):
            raise AssertionError(f"axis {axis} contains duplicated indices")
        return result
    return axis_from_front(ndim, axis)


def axis_from_front(ndim: int, axis: SupportsIndex) -> int:
    """Count an axis from the front.

    Raises:
        AssertionError: there is no such axis.

    >>> axis_from_front(3, -1)
    2
    """
    number = axis.__index__()
    if not -ndim <= number < ndim:
        raise AssertionError(f"axis {number} is out of bounds for tensor of dimension {ndim}")
    return number % ndim


def without_axis(x: Tensor, axis: int) -> Tensor:
    """Return an axis of size 1 removed; the only axis of a vector goes without an operator."""
    return x._as_scalar() if x.ndim == 1 else _removed(x, axis, scalar=False)


def _removed(x: Tensor, axis: int, *, scalar: bool) -> Tensor:
    desc = (P.AxisDesc(P.AxisDescMethod.REMOVE, axis),)
    return apply1("AxisAddRemove", P.AxisAddRemove(desc=desc), inputs=[x], scalar=scalar)


def _reduce(mode: P.ReduceMode, inp: Any, axis: Axes, keepdims: bool) -> Tensor:
    """Return one reduction in MegEngine's dtype: float32 for means, int32 for other reductions of booleans."""
    x = as_tensor(inp)
    if axis is None and keepdims:
        raise AssertionError("can not set axis=None and keepdims=True")
    logical = x._dtype.name == "Bool"
    if isinstance(axis, Iterable):
        for one in axes_from_last(x.ndim, axis):  # type: ignore[union-attr]
            x = _reduce(mode, x, one, keepdims)
        return x
    if mode == _R.MEAN:
        x = x.astype("float32")
    elif logical:
        x = x.astype("int32")
    if axis is None:
        target = const(np.array([1], np.int32))
        with titled("Reduce", target):
            y = apply1("ReduceV2", P.Reduce(mode=mode), inputs=[x, target], scalar=True)
    else:
        y = _along(mode, x, axis.__index__(), keepdims)
    return y.astype("bool") if logical and mode in (_R.MIN, _R.MAX) else y


def _along(mode: P.ReduceMode, x: Tensor, axis: int, keepdims: bool) -> Tensor:
    # A scalar counts as a vector of one element, as in MegEngine.
    with titled("Reduce"):
        y = apply1("ReduceV2", P.Reduce(mode=mode, axis=axis), inputs=[x._vector()], scalar=False)
        # MegEngine removes a vector's axis, too, though the stored shape stays [1].
        return y if keepdims else _removed(y, axis, scalar=y.ndim == 1)


def sum(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the sum of the elements over one axis, several axes or all of them.

    Integers keep their dtype and wrap; booleans are counted as int32.

    Args:
        inp: a tensor or an array.
        axis: an axis, several axes, or None for all.
        keepdims: whether reduced axes stay with size 1; not for all axes.

    Raises:
        AssertionError: an axis is named twice or does not exist, or `keepdims` without axes.
        EngineError: an axis does not exist.

    >>> from loadrun import Tensor
    >>> sum(Tensor([[1, 2, 3], [4, 5, 6]]), axis=0).tolist(), sum(Tensor([1.0, 2.5])).item()
    ([5, 7, 9], 3.5)
    """
    return _reduce(_R.SUM, inp, axis, keepdims)


def prod(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the product of the elements; arguments and errors as for `sum`.

    >>> from loadrun import Tensor
    >>> prod(Tensor([[1, 2, 3], [4, 5, 6]]), axis=1, keepdims=True).tolist()
    [[6], [120]]
    """
    return _reduce(_R.PRODUCT, inp, axis, keepdims)


def mean(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the mean of the elements in float32; arguments and errors as for `sum`.

    >>> from loadrun import Tensor
    >>> mean(Tensor([[1, 2, 3], [4, 5, 6]]), axis=0).tolist()
    [2.5, 3.5, 4.5]
    """
    return _reduce(_R.MEAN, inp, axis, keepdims)


def min(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element, NaN where there is one; arguments and errors as for `sum`.

    >>> from loadrun import Tensor
    >>> min(Tensor([[1, 2], [3, 0]]), axis=1).tolist()
    [1, 0]
    """
    return _reduce(_R.MIN, inp, axis, keepdims)


def max(inp: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the largest element, NaN where there is one; arguments and errors as for `sum`.

    >>> from loadrun import Tensor
    >>> max(Tensor([[1, 2], [3, 0]]), axis=(0, 1), keepdims=True).tolist()
    [[3]]
    """
    return _reduce(_R.MAX, inp, axis, keepdims)

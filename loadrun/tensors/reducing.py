"""Reductions of tensors as MegEngine has them: what their own methods and `loadrun.megengine.functional` share.

Several axes are reduced one after the other from the last, as MegEngine does, which shows in the rounding of float16
and in integer overflow.
"""

from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np

from ..graph import params as P
from .applying import apply1
from .convert import as_tensor, const, product_of, shape_tensor
from .naming import titled, untitled
from .promotion import convert, operands
from .shaping import broadcast_to, expand_dims, squeeze
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


_MODES = {"default": P.MatrixMulComputeMode.DEFAULT, "float32": P.MatrixMulComputeMode.FLOAT32}


def matmul(
    inp1: Any, inp2: Any, transpose_a: bool = False, transpose_b: bool = False, compute_mode: str = "default"
) -> Tensor:
    """Return the product of matrices, vectors, or stacks of matrices.

    Two vectors give their dot product; a vector counts as a row on the left and as a column on the right, and its
    axis is dropped from the result. Leading axes are those of stacks and broadcast.

    Args:
        inp1: a tensor or an array of at least one dimension.
        inp2: another one. Both are promoted to one dtype; int8 gives int32.
        transpose_a: whether the last two axes of `inp1` change places first.
        transpose_b: the same of `inp2`.
        compute_mode: "float32" adds up float16 products in float32, "default" as MegEngine's CPU kernel does.

    Raises:
        AssertionError: an operand is a scalar.
        EngineError: the inner sizes differ, or there is no product of this dtype.
        ValueError: the compute mode is neither of the two.

    >>> from loadrun import Tensor
    >>> matmul(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0])).tolist()
    [21.0, 43.0]
    """
    mode = _MODES.get(compute_mode.lower())
    if mode is None:
        raise ValueError(f"compute_mode must be one of {', '.join(_MODES)}, found {compute_mode!r}")
    a, b = operands((inp1, inp2))
    na, nb = a.ndim, b.ndim
    if not na or not nb:
        raise AssertionError(
            "matmul takes tensors of at least one dimension, found a scalar; multiply instead"
        )
    if not (a._dtype.is_quantized and b._dtype.is_quantized):
        a, b = convert(a, b)
    if na == 1 and nb == 1:
        return dot(a, b)
    a = expand_dims(a, 0) if na == 1 else a
    b = expand_dims(b, 1) if nb == 1 else b
    param = P.MatrixMul(transposeA=transpose_a, transposeB=transpose_b, compute_mode=mode)
    y = (
        _one_product(param, a, b)
        if nb <= 2 and (na <= 2 or not transpose_a)
        else _batched_product(param, a, b)
    )
    # Remove the axis that a vector got for the product.
    return squeeze(y, -2) if na == 1 else squeeze(y, -1) if nb == 1 else y


def _one_product(param: P.MatrixMul, a: Tensor, b: Tensor) -> Tensor:
    """Return a stack of matrices times one matrix, as one large product."""
    if a.ndim == 2:
        return apply1("MatrixMulV2", param, inputs=[a, b])
    *head, width = a.shape
    with untitled():
        folded = shape_tensor((product_of(head), width))
    with titled("MatrixMul"):
        a = apply1("ReshapeV1", P.OptionalAxisV1(), inputs=[a, folded], scalar=False)
    y = apply1("MatrixMulV2", param, inputs=[a, b])
    with untitled():
        return y.reshape(*head, y.shape[-1])


def _batched_product(param: P.MatrixMul, a: Tensor, b: Tensor) -> Tensor:
    heads = a.shape[:-2], b.shape[:-2]
    head = broadcast_sizes(*heads)
    a, b = (x if known == head else _spread(x, head) for x, known in zip((a, b), heads, strict=True))
    if len(head) == 1:
        return apply1("BatchedMatrixMulV2", param, inputs=[a, b])
    with untitled():
        count = product_of(head)
        a, b = (x.reshape(count, *x.shape[-2:]) for x in (a, b))
    y = apply1("BatchedMatrixMulV2", param, inputs=[a, b])
    with untitled():
        return y.reshape(*head, *y.shape[-2:])


def _spread(x: Tensor, head: tuple[int, ...]) -> Tensor:
    with untitled():
        shape = shape_tensor((*head, *x.shape[-2:]))
    with titled("BatchedMatrixMul"):
        return broadcast_to(x, shape)


def broadcast_sizes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes that stacks of these sizes broadcast to."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    shift = len(longer) - len(shorter)
    tail = (n if m == 1 or m == n else m for n, m in zip(longer[shift:], shorter, strict=True))
    return (*longer[:shift], *tail)


def dot(inp1: Any, inp2: Any) -> Tensor:
    """Return the scalar product of two vectors; a scalar counts as a vector that repeats it.

    Raises:
        AssertionError: an operand has more than one dimension.
        EngineError: the lengths or the dtypes differ.

    >>> from loadrun import Tensor
    >>> dot(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).item()
    11.0
    """
    a, b = as_tensor(inp1), as_tensor(inp2)
    if a.ndim > 1 or b.ndim > 1:
        raise AssertionError(
            f"Input tensors for dot must be 1-dimensional or scalar, found {a.ndim} and {b.ndim} dimensions"
        )
    if a.ndim != b.ndim:
        a, b = (x if x.ndim else broadcast_to(x, y.shape[0]) for x, y in ((a, b), (b, a)))
    return apply1("Dot", P.Empty(), inputs=[a._vector(), b._vector()], scalar=True)

"""Reshaping, permuting, broadcasting and joining tensors, for their methods and for `loadrun.layers`."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..base.errors import EngineError, TraceError, UsageError
from ..graph import params as P
from .applying import apply1
from .convert import as_tensor, shape_tensor
from .naming import titled, untitled
from .switches import check_device
from .value import Tensor


def entries_of(shape: Any) -> list[Any] | None:
    """Return the entries of a shape given one by one; None for a tensor."""
    if isinstance(shape, Tensor):
        return None
    if isinstance(shape, np.ndarray):
        return [int(n) for n in shape.reshape(-1)]
    return list(shape) if isinstance(shape, Iterable) else [shape]


def broadcast_to(inp: Any, shape: Any) -> Tensor:
    """Return the tensor repeated along its axes of size 1, and along new leading ones, up to a shape.

    Args:
        inp: any tensor.
        shape: sizes, or a tensor of them; None keeps the size that the tensor has there.

    Raises:
        ValueError: a negative size, or None for a new axis.
        EngineError: the tensor does not broadcast to the shape.

    >>> from loadrun import Tensor
    >>> broadcast_to(Tensor([1, 2, 3]), (2, None)).tolist()
    [[1, 2, 3], [1, 2, 3]]
    """
    x = as_tensor(inp)
    sizes = entries_of(shape)
    if sizes is None:
        return apply1("Broadcast", P.Empty(), inputs=[x, shape_tensor(shape)], scalar=False)
    for i, size in enumerate(sizes):
        if size is None:
            if i - len(sizes) + x.ndim < 0:
                raise ValueError(
                    f"the size of a new axis cannot be None, found {sizes} for shape {[*x.shape]}"
                )
            sizes[i] = x.shape[i - len(sizes)]
        elif not isinstance(size, Tensor) and size < 0:
            raise ValueError(f"a size must not be negative, found {size} at place {i} of the shape")
    if not sizes:
        if x.ndim:
            raise EngineError(f"cannot broadcast {[*x.shape]} to a scalar")
        return x._frozen()
    return apply1("Broadcast", P.Empty(), inputs=[x, shape_tensor(tuple(sizes))], scalar=False)


def _free_axis(sizes: Sequence[Any]) -> int | None:
    """Return the place of -1 among known sizes."""
    axis = None
    for i, size in enumerate(sizes):
        if size < -1:
            raise ValueError(f"a size must be at least -1, found {size} at place {i} of the shape")
        if size == -1:
            if axis is not None:
                raise ValueError(f"only one size can be -1, found it at {axis} and {i} of the shape")
            axis = i
    return axis


def _size_value(size: Any) -> Any:
    """Return a size, or the value of a tensor of one or more sizes; 1 where a trace or a graph does not know it."""
    if not isinstance(size, Tensor):
        return size
    try:
        return size.numpy()
    except (TraceError, UsageError):
        return np.ones(size._tuple_shape, np.int32)


def reshape(inp: Any, target_shape: Any) -> Tensor:
    """Return the same elements in another shape.

    Args:
        inp: any tensor.
        target_shape: sizes, or a tensor of them; one may be -1 and follows from the others.

    Raises:
        ValueError: several sizes are -1, or one is less.
        EngineError: the numbers of elements differ.

    >>> from loadrun.megengine.functional import arange
    >>> reshape(arange(6), (2, -1)).tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    x = as_tensor(inp)
    sizes = entries_of(target_shape)
    if sizes is None:
        known = np.reshape(_size_value(target_shape), -1).tolist()
        target = shape_tensor(target_shape)
    else:
        known = [_size_value(n) for n in sizes]
        target = shape_tensor(tuple(sizes) or (1,))
    free = _free_axis(known)
    param = P.OptionalAxisV1() if free is None else P.OptionalAxisV1(axis=free)
    return apply1("ReshapeV1", param, inputs=[x, target], scalar=not known)


def flatten(inp: Any, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Return the tensor with the axes from `start_axis` to `end_axis`, both included, made one.

    >>> from loadrun.megengine.functional import ones
    >>> flatten(ones((2, 3, 4)), 1).shape
    (2, 12)
    """
    x = as_tensor(inp)
    if start_axis == 0 and end_axis == -1:
        # So can values whose shape depends on data.
        return reshape(x, (-1,))
    shape = x.shape
    start = start_axis + len(shape) if start_axis < 0 else start_axis
    behind = () if end_axis == -1 else shape[end_axis + 1 :]
    return reshape(x, (*shape[:start], -1, *behind))


def transpose(inp: Any, pattern: Any) -> Tensor:
    """Return the tensor with its axes in another order.

    Args:
        inp: any tensor.
        pattern: for each axis of the result the axis of the input, or ``"x"`` (also -1) for a new one of size 1;
            axes left out must have size 1.

    Raises:
        EngineError: the pattern does not fit the tensor.

    >>> from loadrun import Tensor
    >>> from loadrun.megengine.functional import ones
    >>> transpose(Tensor([[1, 2], [3, 4]]), (1, 0)).tolist(), transpose(ones((2, 3)), (1, "x", 0)).shape
    ([[1, 3], [2, 4]], (3, 1, 2))
    """
    x = as_tensor(inp)
    entries = pattern.numpy() if isinstance(pattern, Tensor) else pattern
    order = tuple(-1 if isinstance(a, str) and a == "x" else operator.index(a) for a in entries)
    if not x.ndim:
        if order:
            raise IndexError(f"a scalar has no axes to permute, found the pattern {[*order]}")
        return apply1("Copy", inputs=[x])
    if not order:
        order = tuple(range(x.ndim))[::-1]
    return apply1("Dimshuffle", P.Dimshuffle(pattern=order, ndim=x.ndim), inputs=[x], scalar=False)


def swapaxes(inp: Any, axis1: int, axis2: int) -> Tensor:
    """Return the tensor with two of its axes exchanged.

    >>> from loadrun.megengine.functional import ones
    >>> swapaxes(ones((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    x = as_tensor(inp)
    order = [*range(x.ndim)]
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose(x, order)


def _axes(axis: Any) -> list[int]:
    return [operator.index(a) for a in axis] if isinstance(axis, Iterable) else [operator.index(axis)]


def axes_within(axes: Iterable[int], ndim: int) -> list[int]:
    """Return axes counted from the front, in ascending order."""
    result = []
    for a in axes:
        if not -ndim <= a < ndim:
            raise EngineError(f"axis {a} is outside a tensor of {ndim} dimensions")
        result.append(a + ndim if a < 0 else a)
    return sorted(result)


def expand_dims(inp: Any, axis: int | Sequence[int]) -> Tensor:
    """Return the tensor with new axes of size 1.

    Args:
        inp: any tensor.
        axis: their places in the result.

    Raises:
        IndexError: no axis at all.
        EngineError: an axis outside the result.

    >>> from loadrun.megengine.functional import ones
    >>> expand_dims(ones((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    x = as_tensor(inp)
    axes = _axes(axis)
    if not axes:
        raise IndexError("the list of axes to add is empty")
    return with_axes(x, axes_within(axes, x.ndim + len(axes)))


def with_axes(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the tensor with new axes of size 1; `axes` are their places in the result, ascending."""
    if not x.ndim:
        # A scalar is stored with the first axis already.
        x, axes = x._vector(), axes[1:]
    if not axes:
        return x
    desc = tuple(P.AxisDesc(P.AxisDescMethod.ADD_1, a) for a in axes)
    return apply1("AxisAddRemove", P.AxisAddRemove(desc=desc), inputs=[x], scalar=False)


def squeeze(inp: Any, axis: int | Sequence[int] | None = None) -> Tensor:
    """Return the tensor without axes of size 1.

    Args:
        inp: any tensor.
        axis: which to remove; by default all that have size 1 (in a trace: that have it there).

    Raises:
        EngineError: an axis that does not exist or has another size.

    >>> from loadrun.megengine.functional import ones
    >>> squeeze(ones((1, 2, 1, 3))).shape, squeeze(ones((1, 2, 1)), -1).shape
    ((2, 3), (1, 2))
    """
    x = as_tensor(inp)
    chosen = [i for i, n in enumerate(x.shape) if n == 1] if axis is None else _axes(axis)
    axes = axes_within(chosen, x.ndim)
    if not axes:
        return x._frozen()
    if x.ndim == 1:
        if x._tuple_shape[0] != 1:
            raise EngineError(f"cannot remove axis 0 of {[*x._tuple_shape]}: its size is not 1")
        return x._as_scalar()
    desc = tuple(P.AxisDesc(P.AxisDescMethod.REMOVE, a - i) for i, a in enumerate(axes))
    return apply1("AxisAddRemove", P.AxisAddRemove(desc=desc), inputs=[x], scalar=len(axes) == x.ndim)


def concat(inps: Iterable[Any], axis: int = 0, device: Any = None) -> Tensor:
    """Return tensors joined along one of their axes, promoted to a common dtype.

    Args:
        inps: tensors that agree in all other axes.
        axis: the axis along which they are joined.
        device: a name that MegEngine knows.

    Raises:
        ValueError: no tensors.
        EngineError: shapes that differ elsewhere, or dtypes without a common one.

    >>> from loadrun import Tensor
    >>> concat([Tensor([[1, 2]]), Tensor([[3, 4]])]).tolist()
    [[1, 2], [3, 4]]
    """
    tensors = [as_tensor(x) for x in inps]
    if not tensors:
        raise ValueError("nothing to join: the list of tensors is empty")
    if len(tensors) == 1:
        return copy(tensors[0], device)
    check_device(device)
    return apply1("Concat", P.Axis(axis=axis), inputs=tensors, scalar=False)


def stack(inps: Iterable[Any], axis: int = 0, device: Any = None) -> Tensor:
    """Return tensors of one shape joined along a new axis.

    Args:
        inps: the tensors; scalars among several count as vectors of one entry, as in MegEngine.
        axis: the place of the new axis in the result.
        device: a name that MegEngine knows.

    Raises:
        ValueError: no tensors.
        EngineError: shapes that differ, or dtypes without a common one.

    >>> from loadrun import Tensor
    >>> stack([Tensor([1, 2]), Tensor([3, 4])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    tensors = [as_tensor(x) for x in inps]
    return stacked([x._vector() for x in tensors] if len(tensors) > 1 else tensors, axis, device)


def stacked(tensors: Sequence[Tensor], axis: int = 0, device: Any = None) -> Tensor:
    """Return tensors of one shape joined along a new axis, scalars as a vector.

    >>> from loadrun import Tensor
    >>> stacked([Tensor(1), Tensor(2)]).tolist()
    [1, 2]
    """
    if len(tensors) == 1:
        return expand_dims(tensors[0], axis)
    with untitled():
        apart = [expand_dims(x, axis) for x in tensors]
    with titled("Stack"):
        return concat(apart, axis, device)


def copy(inp: Any, device: Any = None) -> Tensor:
    """Return the same values as another tensor; every device is the CPU.

    >>> from loadrun import Tensor
    >>> copy(Tensor([1, 2])).tolist()
    [1, 2]
    """
    kind = "Identity" if device is None else "Copy"
    check_device(device)
    return apply1(kind, P.Empty(), inputs=[as_tensor(inp)])

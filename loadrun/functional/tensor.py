"""MegEngine's functions on the form of tensors: joining, splitting, reshaping, repeating, permuting.

Functions that make tensors are in `loadrun.functional.creation`, those that pick elements in
`loadrun.functional.selection`; both are offered here too.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .. import params as P
from ..errors import EngineError, TraceError
from ..imperative import Dim, Tensor, apply, apply1, as_tensor, shape_tensor
from .creation import (
    arange,
    complex,
    diag,
    eye,
    full,
    full_like,
    imag,
    linspace,
    meshgrid,
    ones,
    ones_like,
    polar,
    real,
    zeros,
    zeros_like,
)
from .selection import cond_take, gather, non_zero, scatter, where

__all__ = [
    "arange",
    "broadcast_to",
    "complex",
    "concat",
    "cond_take",
    "copy",
    "cumsum",
    "diag",
    "expand_dims",
    "eye",
    "flatten",
    "full",
    "full_like",
    "gather",
    "imag",
    "linspace",
    "meshgrid",
    "non_zero",
    "ones",
    "ones_like",
    "polar",
    "real",
    "repeat",
    "reshape",
    "roll",
    "scatter",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "tile",
    "transpose",
    "where",
    "zeros",
    "zeros_like",
]


def _listed(shape: Any) -> list[Any] | None:
    """The entries of a shape given one by one; None for a tensor."""
    if isinstance(shape, Tensor):
        return None
    if isinstance(shape, np.ndarray):
        return [int(n) for n in shape.reshape(-1)]
    return list(shape) if isinstance(shape, Iterable) else [shape]


def broadcast_to(inp: Any, shape: Any) -> Tensor:
    """The tensor repeated along its axes of size 1, and along new leading ones, up to a shape.

    Args:
        inp: any tensor.
        shape: sizes, or a tensor of them; None keeps the size that the tensor has there.

    Raises:
        ValueError: a negative size, or None for a new axis.
        EngineError: the tensor does not broadcast to the shape.

    >>> broadcast_to(Tensor([1, 2, 3]), (2, None)).tolist()
    [[1, 2, 3], [1, 2, 3]]
    """
    x = as_tensor(inp)
    sizes = _listed(shape)
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
    """The place of -1 among known sizes."""
    found = None
    for i, size in enumerate(sizes):
        if size < -1:
            raise ValueError(f"a size must be at least -1, found {size} at place {i} of the shape")
        if size == -1:
            if found is not None:
                raise ValueError(f"only one size can be -1, found it at {found} and {i} of the shape")
            found = i
    return found


def _size_value(size: Any) -> Any:
    """A size, or the value of a tensor of one or more sizes; 1 where a trace does not know it."""
    if not isinstance(size, Tensor):
        return size
    try:
        return size.numpy()
    except TraceError:
        return np.ones(size._tuple_shape, np.int32)


def reshape(inp: Any, target_shape: Any) -> Tensor:
    """The same elements in another shape.

    Args:
        inp: any tensor.
        target_shape: sizes, or a tensor of them; one may be -1 and follows from the others.

    Raises:
        ValueError: several sizes are -1, or one is less.
        EngineError: the numbers of elements differ.

    >>> reshape(arange(6), (2, -1)).tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    x = as_tensor(inp)
    sizes = _listed(target_shape)
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
    """The tensor with the axes from `start_axis` to `end_axis`, both included, made one.

    >>> flatten(ones((2, 3, 4)), 1).shape
    (2, 12)
    """
    x = as_tensor(inp)
    shape = x.shape
    start = start_axis + len(shape) if start_axis < 0 else start_axis
    behind = () if end_axis == -1 else shape[end_axis + 1 :]
    return reshape(x, (*shape[:start], -1, *behind))


def transpose(inp: Any, pattern: Any) -> Tensor:
    """The tensor with its axes in another order.

    Args:
        inp: any tensor.
        pattern: for each axis of the result the axis of the input, or ``"x"`` (also -1) for a new one of size 1;
            axes left out must have size 1.

    Raises:
        EngineError: the pattern does not fit the tensor.

    >>> transpose(Tensor([[1, 2], [3, 4]]), (1, 0)).tolist(), transpose(ones((2, 3)), (1, "x", 0)).shape
    ([[1, 3], [2, 4]], (3, 1, 2))
    """
    x = as_tensor(inp)
    entries = pattern.numpy() if isinstance(pattern, Tensor) else pattern
    order = tuple(-1 if isinstance(a, str) and a == "x" else operator.index(a) for a in entries)
    if not x.ndim:
        if order:
            raise IndexError(f"a scalar has no axes to permute, found the pattern {[*order]}")
        return x._frozen()
    if not order:
        order = tuple(range(x.ndim))[::-1]
    return apply1("Dimshuffle", P.Dimshuffle(pattern=order, ndim=x.ndim), inputs=[x], scalar=False)


def swapaxes(inp: Any, axis1: int, axis2: int) -> Tensor:
    """The tensor with two of its axes exchanged.

    >>> swapaxes(ones((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    x = as_tensor(inp)
    order = [*range(x.ndim)]
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose(x, order)


def _axes(axis: Any) -> list[int]:
    return [operator.index(a) for a in axis] if isinstance(axis, Iterable) else [operator.index(axis)]


def _within(axes: Iterable[int], ndim: int) -> list[int]:
    """Axes counted from the front, in ascending order."""
    found = []
    for a in axes:
        if not -ndim <= a < ndim:
            raise EngineError(f"axis {a} is outside a tensor of {ndim} dimensions")
        found.append(a + ndim if a < 0 else a)
    return sorted(found)


def expand_dims(inp: Any, axis: int | Sequence[int]) -> Tensor:
    """The tensor with new axes of size 1.

    Args:
        inp: any tensor.
        axis: their places in the result.

    Raises:
        IndexError: no axis at all.
        EngineError: an axis outside the result.

    >>> expand_dims(ones((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    x = as_tensor(inp)
    axes = _axes(axis)
    if not axes:
        raise IndexError("the list of axes to add is empty")
    places = _within(axes, x.ndim + len(axes))
    if not x.ndim:
        return reshape(x, (1,) * len(places))
    desc = tuple(P.AxisDesc(P.AxisDescMethod.ADD_1, a) for a in places)
    return apply1("AxisAddRemove", P.AxisAddRemove(desc=desc), inputs=[x], scalar=False)


def squeeze(inp: Any, axis: int | Sequence[int] | None = None) -> Tensor:
    """The tensor without axes of size 1.

    Args:
        inp: any tensor.
        axis: which to remove; by default all that have size 1 (in a trace: that have it there).

    Raises:
        EngineError: an axis that does not exist or has another size.

    >>> squeeze(ones((1, 2, 1, 3))).shape, squeeze(ones((1, 2, 1)), -1).shape
    ((2, 3), (1, 2))
    """
    x = as_tensor(inp)
    chosen = [i for i, n in enumerate(x.shape) if n == 1] if axis is None else _axes(axis)
    axes = _within(chosen, x.ndim)
    if not axes:
        return x._frozen()
    desc = tuple(P.AxisDesc(P.AxisDescMethod.REMOVE, a - i) for i, a in enumerate(axes))
    return apply1("AxisAddRemove", P.AxisAddRemove(desc=desc), inputs=[x], scalar=len(axes) == x.ndim)


def concat(inps: Iterable[Any], axis: int = 0, device: Any = None) -> Tensor:
    """Tensors joined along one of their axes, promoted to a common dtype.

    Args:
        inps: tensors that agree in all other axes.
        axis: the axis along which they are joined.
        device: accepted for MegEngine's sake.

    Raises:
        ValueError: no tensors.
        EngineError: shapes that differ elsewhere, or dtypes without a common one.

    >>> concat([Tensor([[1, 2]]), Tensor([[3, 4]])]).tolist()
    [[1, 2], [3, 4]]
    """
    tensors = [as_tensor(x) for x in inps]
    if not tensors:
        raise ValueError("nothing to join: the list of tensors is empty")
    if len(tensors) == 1:
        return copy(tensors[0])
    return apply1("Concat", P.Axis(axis=axis), inputs=tensors, scalar=False)


def stack(inps: Iterable[Any], axis: int = 0, device: Any = None) -> Tensor:
    """Tensors of one shape joined along a new axis.

    Args:
        inps: the tensors.
        axis: the place of the new axis in the result.
        device: accepted for MegEngine's sake.

    Raises:
        ValueError: no tensors.
        EngineError: shapes that differ, or dtypes without a common one.

    >>> stack([Tensor([1, 2]), Tensor([3, 4])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    return concat([expand_dims(x, axis) for x in inps], axis)


def split(inp: Any, nsplits_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """A tensor cut into parts along an axis.

    Args:
        inp: any tensor.
        nsplits_or_sections: the number of parts, of which the first are longer where it does not divide the axis;
            or the places at which to cut.
        axis: the axis to cut.

    Raises:
        ValueError: more parts than the axis is long, none at all, or places that do not ascend within the axis.

    >>> [p.tolist() for p in split(arange(5), 2)], [p.shape for p in split(ones((2, 9)), [3, 7], axis=1)]
    ([[0.0, 1.0, 2.0], [3.0, 4.0]], [(2, 3), (2, 4), (2, 2)])
    """
    x = as_tensor(inp)
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"Invalid axis {axis}: the tensor has {x.ndim} dimensions")
    total = x.shape[axis]
    sections = _listed(nsplits_or_sections) if not _is_number(nsplits_or_sections) else None
    sizes: list[Any] = []
    if sections is not None:
        places = [0, *sections, total]
        for before, after in pairwise(places):
            size = after - before
            if not isinstance(size, Tensor) and size < 0:
                raise ValueError(f"Invalid nsplits_or_secions: {nsplits_or_sections}")
            sizes.append(size)
    else:
        parts = int(nsplits_or_sections)
        if parts <= 0:
            raise ValueError(f"the number of parts must be positive, found {parts}")
        if parts > total:
            raise ValueError(f"axis {axis} of size {total} cannot be split into {parts} parts")
        sizes = [(total + (parts - 1 - i)) // parts for i in range(parts)]
    lengths = [as_tensor(n, "int32") for n in sizes]
    at = axis + x.ndim if axis < 0 else axis
    return apply("Split", P.Axis(axis=at), inputs=[x, *lengths], n=len(lengths), scalar=False)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) or (
        isinstance(value, (Tensor, np.ndarray)) and not value.ndim
    )


def _product(sizes: Iterable[Any]) -> Any:
    total: Any = None
    for n in sizes:
        total = n if total is None else total * n
    return 1 if total is None else total


def repeat(inp: Any, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element repeated.

    Args:
        inp: any tensor.
        repeats: how many times, at least once.
        axis: the axis along which to repeat; by default the tensor is flattened.

    Raises:
        AssertionError: `repeats` is less than 1, or there is no such axis.

    >>> repeat(Tensor([[1, 2], [3, 4]]), 2, axis=1).tolist()
    [[1, 1, 2, 2], [3, 3, 4, 4]]
    """
    x = as_tensor(inp)
    if axis is None:
        x, axis = reshape(x, -1), 0
    if not -x.ndim <= axis < x.ndim:
        raise AssertionError(f"axis {axis} is outside a tensor of {x.ndim} dimensions")
    if not isinstance(repeats, Tensor) and repeats < 1:
        raise AssertionError(f"repeats must be at least 1, found {repeats}")
    axis = axis + x.ndim if axis < 0 else axis
    shape = x.shape
    front, back = _product(shape[: axis + 1]), _product(shape[axis + 1 :])
    wide = broadcast_to(reshape(x, (front, 1, back)), (front, repeats, back))
    return reshape(wide, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


def tile(inp: Any, reps: Any) -> Tensor:
    """The whole tensor repeated along its axes.

    Args:
        inp: any tensor.
        reps: how many times along each axis, new leading ones included; numbers or a tensor.

    Raises:
        AssertionError: fewer numbers than the tensor has axes.

    >>> tile(Tensor([[1, 2], [3, 4]]), (1, 2)).tolist()
    [[1, 2, 1, 2], [3, 4, 3, 4]]
    """
    x = as_tensor(inp)
    times = _listed(reps)
    if times is None:
        times = [reps[i] for i in range(len(reps))]
    extra = len(times) - x.ndim
    if extra < 0:
        raise AssertionError(f"tile needs a number for each of {x.ndim} axes, found {len(times)}")
    for axis, count in enumerate(times[extra:]):
        if not isinstance(count, (Tensor, Dim)) and count == 1:
            continue
        shape = x.shape
        front, back = _product(shape[:axis]), _product(shape[axis:])
        wide = broadcast_to(reshape(x, (front, 1, back)), (front, count, back))
        x = reshape(wide, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))
    if not extra:
        return x if x is not inp else x._frozen()
    return broadcast_to(x, (*times[:extra], *x.shape))


def copy(inp: Any, device: Any = None) -> Tensor:
    """The same values as another tensor; every device is the CPU.

    >>> copy(Tensor([1, 2])).tolist()
    [1, 2]
    """
    return apply1("Identity" if device is None else "Copy", P.Empty(), inputs=[as_tensor(inp)])


def roll(inp: Any, shift: int | Iterable[int], axis: int | Iterable[int] | None = None) -> Tensor:
    """The elements moved along axes; what leaves at one end comes back at the other.

    Args:
        inp: any tensor.
        shift: by how many places, for each axis.
        axis: along which axes; by default along the flattened tensor.

    Raises:
        AssertionError: `shift` and `axis` do not match, or there is no such axis.

    >>> roll(Tensor([[1, 2], [3, 4], [5, 6]]), 1, 0).tolist()
    [[5, 6], [1, 2], [3, 4]]
    """
    x = as_tensor(inp)
    if axis is None:
        return reshape(roll(flatten(x), shift, 0), x.shape)
    shifts = list(shift) if isinstance(shift, Iterable) else [shift]
    axes = list(axis) if isinstance(axis, Iterable) else [axis]
    if isinstance(shift, Iterable) != isinstance(axis, Iterable) or len(shifts) != len(axes):
        raise AssertionError(f"roll needs one axis a shift, found shifts {shifts} and axes {axes}")
    for step, at in zip(shifts, axes, strict=True):
        if not -x.ndim <= at < x.ndim:
            raise AssertionError(f"axis {at} is outside a tensor of {x.ndim} dimensions")
        size = x.shape[at]
        step = step % size if size else 0
        if step:
            front, back = split(x, [size - step], at)
            x = concat([back, front], at)
    return x if x is not inp else x._frozen()


def cumsum(inp: Any, axis: int) -> Tensor:
    """Sums of the elements up to and including each one along an axis.

    Raises:
        EngineError: there is no such axis, or the dtype has no sums.

    >>> cumsum(Tensor([[1, 2, 3], [4, 5, 6]]), 1).tolist()
    [[1, 3, 6], [4, 9, 15]]
    """
    x = as_tensor(inp)
    (at,) = _within([axis], x.ndim)
    return apply1("CumsumV1", P.Cumsum(axis=at, exclusive=False, reverse=False), inputs=[x], scalar=False)

"""MegEngine's functions on the form of tensors: joining, splitting, reshaping, repeating, permuting.

Functions that make tensors are in `loadrun.layers.creation`, those that pick elements in
`loadrun.layers.selection`; both are offered here too.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import cast

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array
from ..tensors import Tensor, TensorLike, apply, apply1, as_tensor
from ..tensors.access import snapshot
from ..tensors.shaping import (
    axes_within,
    broadcast_to,
    concat,
    copy,
    entries_of,
    expand_dims,
    flatten,
    reshape,
    squeeze,
    stack,
    swapaxes,
    transpose,
)
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


def split(
    inp: TensorLike, nsplits_or_sections: int | Tensor | Array | Sequence[int | Tensor], axis: int = 0
) -> tuple[Tensor, ...]:
    """Return a tensor cut into parts along an axis.

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
    sections = entries_of(nsplits_or_sections) if not _is_number(nsplits_or_sections) else None
    sizes: list[int | Tensor] = []
    if sections is not None:
        places = [0, *sections, total]
        for before, after in pairwise(places):
            size = after - before
            if not isinstance(size, Tensor) and size < 0:
                raise ValueError(f"Invalid nsplits_or_secions: {nsplits_or_sections}")
            sizes.append(size)
    else:
        parts = int(cast("int | Tensor", nsplits_or_sections))
        if parts <= 0:
            raise ValueError(f"the number of parts must be positive, found {parts}")
        if parts > total:
            raise ValueError(f"axis {axis} of size {total} cannot be split into {parts} parts")
        sizes = [(total + (parts - 1 - i)) // parts for i in range(parts)]
    lengths = [as_tensor(n, "int32") for n in sizes]
    at = axis + x.ndim if axis < 0 else axis
    return tuple(apply("Split", P.Axis(axis=at), inputs=[x, *lengths], n=len(lengths), scalar=False))


def _is_number(value: TensorLike) -> bool:
    return isinstance(value, (int, np.integer)) or (
        isinstance(value, (Tensor, np.ndarray)) and not value.ndim
    )


def _product_of_sizes(sizes: Iterable[int]) -> int:
    total: int | None = None
    for n in sizes:
        total = n if total is None else total * n
    return 1 if total is None else total


def repeat(inp: TensorLike, repeats: int | Tensor, axis: int | None = None) -> Tensor:
    """Return each element repeated.

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
    front, back = _product_of_sizes(shape[: axis + 1]), _product_of_sizes(shape[axis + 1 :])
    wide = broadcast_to(reshape(x, (front, 1, back)), (front, repeats, back))
    return reshape(wide, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


def tile(inp: TensorLike, reps: int | Tensor | Array | Sequence[int | Tensor]) -> Tensor:
    """Return the whole tensor repeated along its axes.

    Args:
        inp: any tensor.
        reps: how many times along each axis, new leading ones included; numbers or a tensor.

    Raises:
        AssertionError: fewer numbers than the tensor has axes.

    >>> tile(Tensor([[1, 2], [3, 4]]), (1, 2)).tolist()
    [[1, 2, 1, 2], [3, 4, 3, 4]]
    """
    x = as_tensor(inp)
    times = entries_of(reps)
    if times is None:
        assert isinstance(reps, Tensor)
        times = [reps[i] for i in range(len(reps))]
    extra = len(times) - x.ndim
    if extra < 0:
        raise AssertionError(f"tile needs a number for each of {x.ndim} axes, found {len(times)}")
    for axis, count in enumerate(times[extra:]):
        shape = x.shape
        front, back = _product_of_sizes(shape[:axis]), _product_of_sizes(shape[axis:])
        wide = broadcast_to(reshape(x, (front, 1, back)), (front, count, back))
        x = reshape(wide, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))
    if not extra:
        return x if x is not inp else snapshot(x)
    return broadcast_to(x, (*times[:extra], *x.shape))


def roll(inp: TensorLike, shift: int | Iterable[int], axis: int | Iterable[int] | None = None) -> Tensor:
    """Return the elements moved along axes; what leaves at one end comes back at the other.

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
        raise AssertionError(f"roll needs one axis per shift, found shifts {shifts} and axes {axes}")
    for step, at in zip(shifts, axes, strict=True):
        if not -x.ndim <= at < x.ndim:
            raise AssertionError(f"axis {at} is outside a tensor of {x.ndim} dimensions")
        size = x.shape[at]
        step = step % size if size else 0
        if step:
            front, back = split(x, [size - step], at)
            x = concat([back, front], at)
    return x if x is not inp else snapshot(x)


def cumsum(inp: TensorLike, axis: int) -> Tensor:
    """Return sums of the elements up to and including each one along an axis.

    Raises:
        EngineError: there is no such axis, or the dtype has no sums.

    >>> cumsum(Tensor([[1, 2, 3], [4, 5, 6]]), 1).tolist()
    [[1, 3, 6], [4, 9, 15]]
    """
    x = as_tensor(inp)
    (at,) = axes_within([axis], x.ndim)
    return apply1("CumsumV1", P.Cumsum(axis=at, exclusive=False, reverse=False), inputs=[x], scalar=False)

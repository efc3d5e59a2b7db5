"""MegEngine's functions on the form of tensors: joining, splitting, reshaping, repeating, permuting.

Functions that make tensors are in `loadrun.layers.creation`, those that pick elements in
`loadrun.layers.tensor`; both are offered here too.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, cast, overload

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array
from ..ops.registry import pay
from ..tensors import Tensor, TensorLike, TracedInt, apply, as_tensor, const, elemwise, shape_tensor
from ..tensors.access import snapshot
from ..tensors.applying import apply1
from ..tensors.convert import Shape
from ..tensors.promotion import common_dtype
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

__all__ = ["arange", "broadcast_to", "complex", "concat", "cond_take", "copy", "cumsum", "diag"]
__all__ += ["expand_dims", "eye", "flatten", "full", "full_like", "gather", "imag", "linspace", "meshgrid"]
__all__ += ["non_zero", "ones", "ones_like", "polar", "real", "repeat", "reshape", "roll", "scatter", "split"]
__all__ += ["squeeze", "stack", "swapaxes", "tile", "transpose", "where", "zeros", "zeros_like"]


_M = P.ElemwiseMode


def _count_up(size: int, axis: int, ndim: int) -> Tensor:
    """Return 0, 1, ... along one axis of `ndim`."""
    shape = [1] * ndim
    shape[axis] = size
    if not isinstance(size, TracedInt):
        pay(4 * size)
        return const(np.arange(size, dtype=np.int32).reshape(shape))
    numbers = linspace(0, size - 1, size, dtype="int32")
    return apply1("ReshapeV1", P.OptionalAxisV1(), inputs=[numbers, shape_tensor(shape)], scalar=False)


def _positions(index: Tensor, axis: int) -> tuple[Tensor, ...]:
    """Return one index per axis, which together have the shape of `index`."""
    shape = index.shape
    axis = axis + len(shape) if axis < 0 else axis
    return tuple(index if i == axis else _count_up(n, i, len(shape)) for i, n in enumerate(shape))


def gather(inp: TensorLike, axis: int, index: TensorLike) -> Tensor:
    """Return elements taken along an axis: for axis 0 of a matrix ``out[i, j] = inp[index[i, j], j]``.

    Args:
        inp: the tensor to take from.
        axis: the axis along which to take.
        index: int32, of the same number of dimensions; the result has its shape.

    Raises:
        ValueError: the numbers of dimensions differ.
        EngineError: an index outside the tensor.

    >>> gather(Tensor([[1, 2], [3, 4], [5, 6]]), 0, Tensor([[0, 2], [1, 0]])).tolist()
    [[1, 6], [3, 2]]
    """
    x, at = as_tensor(inp), as_tensor(index)
    if x.ndim != at.ndim:
        raise ValueError(f"the index has {at.ndim} dimensions, the tensor {x.ndim}: they must be equal")
    flat = tuple(
        reshape(broadcast_to(p, at.shape) if p is not at else p, (-1,)) for p in _positions(at, axis)
    )
    return reshape(x[flat], at.shape)


def scatter(inp: Tensor, axis: int, index: TensorLike, source: TensorLike) -> Tensor:
    """Return elements written along an axis: for axis 0 of a matrix ``inp[index[i, j], j] = source[i, j]``.

    As in MegEngine the given tensor is changed, and returned. Of several elements for one place the last one stays.

    Args:
        inp: the tensor to write to.
        axis: the axis along which to write.
        index: int32, of the shape of `source`.
        source: the elements; nowhere larger than the tensor.

    Raises:
        ValueError: shapes that do not fit each other.
        EngineError: an index outside the tensor.

    >>> scatter(Tensor([[0, 0], [0, 0], [0, 0]]), 0, Tensor([[2, 1]]), Tensor([[5, 6]])).tolist()
    [[0, 0], [0, 6], [5, 0]]
    """
    x = as_tensor(inp)
    at, values = as_tensor(index), as_tensor(source)
    if not x.ndim == at.ndim == values.ndim:
        raise ValueError(
            f"the tensor, the index and the source have {x.ndim}, {at.ndim} and {values.ndim} dimensions: "
            "they must be equal"
        )
    large, part, mine = values.shape, at.shape, x.shape
    if any(a > b for a, b in zip(large, mine, strict=True)):
        raise ValueError(f"the source of shape {[*large]} is larger than the tensor of shape {[*mine]}")
    if any(a != b for a, b in zip(part, large, strict=True)):
        raise ValueError(f"the index has shape {[*part]}, the source {[*large]}: they must be equal")
    x[_positions(at, axis)] = values
    return x


@overload
def where(mask: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(mask: Tensor, x: Tensor, y: Tensor) -> Tensor: ...
def where(mask: Tensor, x: Tensor | None = None, y: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
    """Return elements of `x` where the mask is true, else of `y`; without them the positions where it is true.

    Args:
        mask: a boolean tensor.
        x: a tensor that broadcasts with the mask and `y`.
        y: likewise; both are promoted to their common dtype.

    Raises:
        TypeError: an argument is not a tensor.
        ValueError: the mask is not boolean.

    >>> where(Tensor([True, False]), Tensor([1, 2]), Tensor([0.5, 0.5])).tolist()
    [1.0, 0.5]
    """
    if x is None and y is None:
        return non_zero(mask, as_tuple=True)
    mask, x, y = _tensors(mask=mask, x=x, y=y)
    _check_mask(mask)
    kind = common_dtype([x, y])
    a, b = as_tensor(x, kind), as_tensor(y, kind)
    chosen = mask.astype(a.dtype)
    left = apply1("Elemwise", P.Elemwise(mode=_M.SWITCH_GT0), inputs=[chosen, a])
    right = apply1(
        "Elemwise", P.Elemwise(mode=_M.SWITCH_GT0), inputs=[elemwise(_M.SUB, const(1, a.dtype), chosen), b]
    )
    return elemwise(_M.ADD, left, right)


def _tensors(**values: Any) -> list[Tensor]:
    """Return arguments that must be tensors; sizes of traced ones pass for them."""
    for name, value in values.items():
        if not isinstance(value, (Tensor, Shape)):
            raise TypeError(f"{name} must be a tensor, found {type(value).__name__}")
    return [as_tensor(v) for v in values.values()]


def _check_mask(mask: Tensor) -> None:
    if mask.dtype != np.bool_:
        raise ValueError(f"the mask must be boolean, found {mask.dtype}")


def cond_take(mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the elements where a mask is true, and their positions in the flattened tensor; both are vectors.

    Args:
        mask: a boolean tensor.
        x: a tensor of the same shape.

    Raises:
        TypeError: an argument is not a tensor.
        ValueError: the mask is not boolean.
        EngineError: the shapes differ.

    >>> values, at = cond_take(Tensor([[True, False], [False, True]]), Tensor([[1, 2], [3, 4]]))
    >>> values.tolist(), at.tolist()
    ([1, 4], [0, 3])
    """
    mask, x = _tensors(mask=mask, x=x)
    _check_mask(mask)
    taken, at = apply("CondTake", P.CondTake(val=1.0), inputs=[x, mask], n=2, scalar=False)
    return taken, at


@overload
def non_zero(condition: Tensor, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def non_zero(condition: Tensor, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
def non_zero(condition: Tensor, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Return the positions of the elements that are not zero, in the order of the flattened tensor.

    Args:
        condition: any tensor.
        as_tuple: whether to give a vector an axis instead of a matrix with a row per element.

    Raises:
        TypeError: `condition` is not a tensor.

    >>> non_zero(Tensor([[0, 3], [4, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    if not isinstance(condition, Tensor):
        raise TypeError(f"the condition must be a tensor, found {type(condition).__name__}")
    mask = condition if condition.dtype == np.bool_ else elemwise(_M.NEQ, condition, 0)
    rest = apply("CondTake", P.CondTake(val=1.0), inputs=[mask, mask], n=2, scalar=False)[1]
    columns: list[Tensor] = []
    sizes = mask.shape or (1,)
    for size in sizes[:0:-1]:
        columns.append(elemwise(_M.MOD, rest, size))
        rest = elemwise(_M.FLOOR_DIV, rest, size)
    columns.append(rest)
    columns.reverse()
    if as_tuple:
        return tuple(columns)
    return stack(columns, axis=1)


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

"""Lowerings of the numpy functions that arrange axes; those that give views in numpy give views of a `TracedArray`."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..layers import emit as e
from ..tensors import Tensor, TracedInt
from ..tensors.access import as_vector
from . import indexing as numpy_index
from .array import TracedArray
from .axes import axes_of, axis_of, checked_shape, given_shape
from .promotion import operand
from .reductions import element_count, flat_or
from .registry import lowers
from .views import ViewPart, permuted


def viewed(a: Any, part: ViewPart) -> Any:
    """Return the view of a `TracedArray`, or what it would hold of anything else."""
    return a._viewed(part) if isinstance(a, TracedArray) else part.get(operand(a))


def indexed(a: Any, index: tuple[Any, ...]) -> Any:
    """Index by numbers and slices as numpy does: of a `TracedArray` a view."""
    x = operand(a)
    return viewed(a, numpy_index.part_of(x, numpy_index.select(x, index)))


@lowers("reshape")
def reshape(a: Any, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None) -> Any:
    """Return the values in another shape: a view where numpy gives one, else a copy."""
    want = given_shape(newshape if shape is None else shape)
    if isinstance(a, TracedArray):
        return a.reshape(want, order=order, copy=copy)
    x = operand(a)
    checked_shape(want, e.sizes(x))
    if order == "F":
        turned = permuted(range(len(e.sizes(x)))[::-1])
        return np.transpose(reshape(viewed(x, turned), want[::-1], copy=copy))
    return e.reshape(x, want)


@lowers("ravel")
def ravel(a: Any, order: str = "C") -> Any:
    """Return the values as a vector: a view where the array is contiguous."""
    if isinstance(a, TracedArray):
        return a.ravel(order)
    return reshape(a, (-1,), "F" if order == "F" else "C")


# Order of axes


def _permuted(a: Any, axes: Sequence[int]) -> Any:
    return viewed(a, permuted(axes))


def _ndim(a: Any) -> int:
    return len(e.sizes(a)) if isinstance(a, Tensor) else np.ndim(a)


@lowers("transpose", "permute_dims")
def transpose(a: Any, axes: Any = None) -> Any:
    """Return a view with the axes in another order, by default reversed."""
    ndim = _ndim(a)
    if axes is None:
        return _permuted(a, range(ndim)[::-1])
    order = [axis_of(i, ndim) for i in axes]
    if sorted(order) != [*range(ndim)]:
        raise ValueError("axes don't match array")
    return _permuted(a, order)


@lowers("matrix_transpose", "linalg.matrix_transpose")
def matrix_transpose(x: Any, /) -> Any:
    """Return a view with the last two axes exchanged."""
    return swapaxes(x, -1, -2)


@lowers("swapaxes")
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Return a view with two axes exchanged."""
    order = [*range(_ndim(a))]
    i, j = axis_of(axis1, len(order)), axis_of(axis2, len(order))
    order[i], order[j] = order[j], order[i]
    return _permuted(a, order)


def moved(ndim: int, source: Sequence[int], destination: Sequence[int]) -> list[int]:
    """Return the order of axes that moves some to other places."""
    order = [i for i in range(ndim) if i not in source]
    for to, come in sorted(zip(destination, source, strict=True)):
        order.insert(to, come)
    return order


@lowers("moveaxis")
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Return a view with axes moved to other places."""
    ndim = _ndim(a)
    pair = [
        [axis_of(i, ndim) for i in (v if isinstance(v, (list, tuple)) else (v,))]
        for v in (source, destination)
    ]
    if len(pair[0]) != len(pair[1]):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    return _permuted(a, moved(ndim, pair[0], pair[1]))


# Axes of size 1


def _unsqueezed(axes: Sequence[int]) -> ViewPart:
    return ViewPart(
        lambda x: e.add_axes(x, axes),
        lambda _, v: e.drop_axes(v, axes),
        lambda s, _: np.expand_dims(s, tuple(axes)),
        steady=True,
        key=("expanded", *axes),
    )


def _squeezed(axes: Sequence[int]) -> ViewPart:
    return ViewPart(
        lambda x: e.drop_axes(x, axes),
        lambda _, v: e.add_axes(v, axes),
        lambda s, _: np.squeeze(s, tuple(axes)),
        steady=True,
        key=("squeezed", *axes),
    )


@lowers("expand_dims")
def expand_dims(a: Any, axis: Any) -> Any:
    """Return a view with new axes of size 1."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    return viewed(a, _unsqueezed(axes_of(axes, _ndim(a) + len(axes))))


@lowers("squeeze")
def squeeze(a: Any, axis: Any = None) -> Any:
    """Return a view without axes of size 1."""
    shape = e.sizes(operand(a))
    axes = [i for i, n in enumerate(shape) if n == 1] if axis is None else axes_of(axis, len(shape))
    if any(shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return viewed(a, _squeezed(axes))


def _atleast(arys: Sequence[Any], ndim: int) -> Any:
    result = []
    for a in arys:
        now = _ndim(a)
        places = {3: {0: [0, 1, 2], 1: [0, 2], 2: [2]}, 2: {0: [0, 1], 1: [0]}, 1: {0: [0]}}[ndim]
        result.append(viewed(a, _unsqueezed(places[now])) if now < ndim else a)
    return result[0] if len(result) == 1 else tuple(result)


@lowers("atleast_1d")
def atleast_1d(*arys: Any) -> Any:
    """Return views with one axis at least."""
    return _atleast(arys, 1)


@lowers("atleast_2d")
def atleast_2d(*arys: Any) -> Any:
    """Return views with two axes at least."""
    return _atleast(arys, 2)


@lowers("atleast_3d")
def atleast_3d(*arys: Any) -> Any:
    """Return views with three axes at least."""
    return _atleast(arys, 3)


# Repeating


@lowers("broadcast_to")
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """Return a read-only view with another shape."""
    want = given_shape(shape)
    x = operand(array)
    if e.broadcast_shape([e.sizes(x), want]) != tuple(map(int, want)) or len(want) < len(e.sizes(x)):
        raise ValueError(f"cannot broadcast array of shape {e.sizes(x)} to shape {tuple(map(int, want))}")
    plain = tuple(map(int, want))
    part = ViewPart(
        lambda x: e.broadcast(x, want),
        None,
        lambda s, number: np.broadcast_to(s, [number(n) for n in want]),
        key=("broadcast", *plain),
    )
    return viewed(array, part)


@lowers("broadcast_arrays")
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Return read-only views with a common shape."""
    shape = e.broadcast_shape([operand(a) for a in args])
    return [broadcast_to(a, shape) for a in args]


@lowers("tile")
def tile(A: Any, reps: Any) -> Tensor:
    """Return the array repeated as a whole along axes."""
    counts = given_shape(reps)
    x = operand(A)
    extra = len(counts) - len(e.sizes(x))
    counts, old = (1,) * -extra + counts, (1,) * extra + tuple(x.shape)
    x = e.reshape(x, old) if extra > 0 else x
    sizes = [c if type(n) is int and n == 1 else n for c, n in zip(counts, old, strict=True)]
    if any(a is not b for a, b in zip(sizes, old, strict=True)):
        x = e.broadcast(x, sizes)
    for axis, (count, n) in enumerate(zip(counts, old, strict=True)):
        if not any(type(v) is int and v == 1 for v in (count, n)):
            x = _repeated(x, sizes, count, axis, whole=True)
            sizes[axis] = sizes[axis] * count
    return x


def _repeated(x: Tensor, shape: Sequence[int], count: int, axis: int, *, whole: bool) -> Tensor:
    """Return copies of an axis one after the other (`whole`), or every element several times."""
    n = shape[axis]
    if whole and len(shape) == 7:
        return e.concat([x] * int(count), axis)
    at = axis if whole else axis + 1
    pair = (count, n) if whole else (n, count)
    wide = e.broadcast(e.add_axes(x, [at]), (*shape[:axis], *pair, *shape[axis + 1 :]))
    total = n * count if isinstance(n, TracedInt) else count * n
    return e.reshape(wide, (*shape[:axis], total, *shape[axis + 1 :]))


@lowers("repeat")
def repeat(a: Any, repeats: Any, axis: Any = None) -> Tensor:
    """Return every element several times."""
    x, at = flat_or(a, axis)
    if isinstance(repeats, Tensor):
        repeats = repeats.numpy()
    if not isinstance(repeats, TracedInt) and np.size(repeats) > 1:
        places = np.repeat(np.arange(e.sizes(x)[at]), repeats)
        return e.gather(x, [(at, operand(places))])
    count = repeats if isinstance(repeats, TracedInt) else int(np.asarray(repeats).reshape(()))
    x = as_vector(x)
    return _repeated(x, x.shape, count, at, whole=False)


# Turning


@lowers("flip")
def flip(m: Any, axis: Any = None) -> Any:
    """Return a view with axes reversed."""
    axes = axes_of(axis, _ndim(m))
    if not _ndim(m):
        return operand(m)
    return indexed(m, tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(_ndim(m))))


@lowers("fliplr")
def fliplr(m: Any) -> Any:
    """Return a view with axis 1 reversed."""
    return flip(m, 1)


@lowers("flipud")
def flipud(m: Any) -> Any:
    """Return a view with axis 0 reversed."""
    return flip(m, 0)


@lowers("rot90")
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """Return a view turned by right angles."""
    first, second = (axis_of(i, _ndim(m)) for i in axes)
    if first == second:
        raise ValueError("Axes must be different.")
    turn = k % 4
    if turn == 0:
        return indexed(m, (Ellipsis,))
    if turn == 2:
        return flip(m, (first, second))
    if turn == 1:
        return swapaxes(flip(m, second), first, second)
    return flip(swapaxes(m, first, second), second)


@lowers("roll", arrays=True)
def roll(a: Any, shift: Any, axis: Any = None) -> Tensor:
    """Return elements moved along axes; what leaves one end enters at the other."""
    x = operand(a)
    if axis is None:
        return e.reshape(roll(e.flat(x), shift, 0), x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,)
    for by, at in np.broadcast(np.asarray(shifts, object), np.asarray(axes, object)):
        x = _rolled(x, by, axis_of(at, len(e.sizes(x))))
    return x


def _rolled(x: Tensor, by: Any, axis: int) -> Tensor:
    n = x.shape[axis]
    if isinstance(by, (Tensor, TracedInt)):
        size = e.like(n, operand(np.int32(0)))
        place = e.elem(e.M.SUB, e.arange(n), operand(by, np.int32))
        return e.gather(x, [(axis, e.elem(e.M.MOD, place, size))])
    step = operator.index(by)
    if not step or not int(n):
        return x
    cut: Any = -step
    if abs(step) > int(n):
        cut = -step % n
    tail = e.subtensor(x, [(axis, cut, None, None, None)])
    head = e.subtensor(x, [(axis, None, cut, None, None)])
    return e.concat([tail, head], axis)


# Descriptions


@lowers("shape")
def shape(a: Any) -> Any:
    """Return the sizes."""
    return a.shape if isinstance(a, Tensor) else operand(a).shape


@lowers("ndim")
def ndim(a: Any) -> int:
    """Return the number of axes."""
    return _ndim(a)


@lowers("size")
def size(a: Any, axis: Any = None) -> int:
    """Return the number of elements."""
    x = operand(a)
    return element_count(x, axes_of(axis, len(e.sizes(x))))

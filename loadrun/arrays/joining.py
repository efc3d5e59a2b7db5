"""Lowerings of the numpy functions that join arrays, cut them, and pad them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..layers import emit as e
from ..layers.shared.windows import padded
from ..tensors import Tensor, TracedInt, TracedNumber
from ..tensors.access import dtype_of
from ..tensors.naming import refused
from .axes import axis_of
from .manipulation import atleast_1d, atleast_2d, atleast_3d, indexed
from .promotion import common, narrow, operand, stacked, weak
from .reductions import flat_or
from .registry import lowers


def _tensors(arrays: Sequence[Any], dtype: Any = None) -> list[Tensor]:
    """Return tensors of one dtype."""
    parts = [stacked(a) if isinstance(a, (list, tuple)) else a for a in arrays]
    # In a sequence of arrays a Python number is an array of its own.
    parts = [np.asarray(a) if weak(a) and not isinstance(a, TracedNumber) else a for a in parts]
    want = narrow(common(parts) if dtype is None else dtype)
    return [operand(a, want) for a in parts]


def joined(xs: Sequence[Tensor], axis: int) -> Tensor:
    """Return tensors of one dtype joined; shapes are checked as numpy does."""
    first = e.sizes(xs[0])
    for i, x in enumerate(xs):
        now = e.sizes(x)
        if len(now) != len(first):
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match exactly, but along "
                f"the array at index 0 has {len(first)} dimension(s) and the array at index {i} has {len(now)}"
            )
        if any(n != m for a, (n, m) in enumerate(zip(first, now, strict=True)) if a != axis):
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match exactly, but the "
                f"array at index 0 has shape {first} and the array at index {i} has shape {now}"
            )
    return e.concat(xs, axis)


@lowers("concatenate", "concat")
def concatenate(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tensor:
    """Return arrays joined along an axis, of their common dtype."""
    xs = _tensors([*arrays], dtype)
    if axis is None:
        return e.concat([e.flat(x) for x in xs], 0)
    if not e.sizes(xs[0]):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    return joined(xs, axis_of(axis, len(e.sizes(xs[0]))))


@lowers("stack")
def stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tensor:
    """Return arrays of one shape joined along a new axis."""
    xs = _tensors([*arrays], dtype)
    if len({e.sizes(x) for x in xs}) > 1:
        raise ValueError("all input arrays must have the same shape")
    at = axis_of(axis, len(e.sizes(xs[0])) + 1)
    return e.concat([e.add_axes(x, [at]) for x in xs], at)


def _lifted(value: Any) -> list[Any]:
    return [*value] if isinstance(value, (list, tuple)) else [value]


@lowers("vstack", "row_stack")
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Return arrays on top of each other."""
    return concatenate(_lifted(atleast_2d(*_tensors([*tup]))), 0, dtype=dtype)


@lowers("hstack")
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Return arrays side by side."""
    parts = _lifted(atleast_1d(*_tensors([*tup])))
    return concatenate(parts, 0 if len(e.sizes(parts[0])) == 1 else 1, dtype=dtype)


@lowers("dstack")
def dstack(tup: Any) -> Tensor:
    """Join arrays along the third axis."""
    return concatenate(_lifted(atleast_3d(*_tensors([*tup]))), 2)


@lowers("column_stack")
def column_stack(tup: Any) -> Tensor:
    """Return vectors as columns."""
    parts = [e.add_axes(x, [1]) if len(e.sizes(x)) == 1 else x for x in _tensors([*tup])]
    return concatenate(parts, 1)


@lowers("append")
def append(arr: Any, values: Any, axis: Any = None) -> Tensor:
    """Append values to an array."""
    return concatenate((arr, values), axis)


@lowers("delete")
def delete(arr: Any, obj: Any, axis: Any = None) -> Tensor:
    """Return an array without some places."""
    x, at = flat_or(arr, axis, strict=True)
    n = e.sizes(x)[at]
    if isinstance(obj, Tensor):
        raise refused("np.delete is traced for places given as numbers", "the traced ones depend on the data")
    if isinstance(obj, (int, np.integer)) and not isinstance(obj, TracedInt):
        place = int(obj)
        if not -n <= place < n:
            raise IndexError(f"index {place} is out of bounds for axis {at} with size {n}")
        parts = []
        if place not in (0, -n):
            parts.append(e.subtensor(x, [(at, None, place, None, None)]))
        if place not in (-1, n - 1):
            parts.append(e.subtensor(x, [(at, place + 1, None, None, None)]))
        return e.concat(parts, at) if parts else e.subtensor(x, [(at, None, 0, None, None)])
    return e.gather(x, [(at, operand(np.delete(np.arange(n), obj)))])


# Cutting


def _between(ary: Any, bounds: Sequence[Any], axis: int) -> list[Any]:
    pairs = pairwise(bounds)
    return [indexed(ary, (*(slice(None),) * axis, slice(i, j))) for i, j in pairs]


def _bounds(n: int, parts: int, *, equal: bool) -> list[Any]:
    """Tell where parts begin; the first ones are one longer where it does not divide, unless they must be `equal`."""
    if not isinstance(n, TracedInt):
        return [i * (n // parts) + min(i, n % parts) for i in range(parts + 1)]
    if equal:
        step = n // parts
        return [0, *(step * i for i in range(1, parts)), None]
    rest = operand(n % parts)
    step_tensor = operand(n // parts)
    inner = [
        e.elem(
            e.M.ADD, e.elem(e.M.MUL, step_tensor, e.number(i, rest)), e.elem(e.M.MIN, rest, e.number(i, rest))
        )
        for i in range(1, parts)
    ]
    return [0, *inner, None]


@lowers("array_split")
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Return views of parts along an axis."""
    return _split_parts(ary, indices_or_sections, axis, equal=False)


def _split_parts(ary: Any, indices_or_sections: Any, axis: int, *, equal: bool) -> list[Any]:
    x = operand(ary)
    at = axis_of(axis, len(e.sizes(x)))
    if isinstance(indices_or_sections, (int, np.integer)):
        parts = int(indices_or_sections)
        if parts <= 0:
            raise ValueError("number sections must be larger than 0.")
        return _between(ary, _bounds(x.shape[at], parts, equal=equal), at)
    cuts = [c if isinstance(c, TracedInt) else int(c) for c in indices_or_sections]
    return _between(ary, [0, *cuts, None], at)


@lowers("split")
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Return views of equal parts along an axis, or of parts between places."""
    x = operand(ary)
    if isinstance(indices_or_sections, (int, np.integer)):
        n = e.sizes(x)[axis_of(axis, len(e.sizes(x)))]
        if n % int(indices_or_sections):
            raise ValueError("array split does not result in an equal division")
    return _split_parts(ary, indices_or_sections, axis, equal=True)


@lowers("hsplit")
def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Do `split` along axis 1, of a vector along axis 0."""
    return split(ary, indices_or_sections, 1 if len(e.sizes(operand(ary))) > 1 else 0)


@lowers("vsplit")
def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Do `split` along axis 0."""
    return split(ary, indices_or_sections, 0)


@lowers("dsplit")
def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Do `split` along axis 2."""
    return split(ary, indices_or_sections, 2)


# Padding


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        result = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            result[axis_of(axis, ndim)] = tuple(np.broadcast_to(width, 2).tolist())
        return result
    pairs = np.broadcast_to(np.asarray(pad_width), (ndim, 2)).tolist()
    if any(n < 0 for pair in pairs for n in pair):
        raise ValueError("index can't contain negative values")
    return [(int(b), int(a)) for b, a in pairs]


@lowers("pad", arrays=True)
def pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Tensor:
    """Return a border: constant, edge, reflect, symmetric or wrap."""
    x = operand(array)
    widths = _widths(pad_width, len(e.sizes(x)))
    if not isinstance(mode, str) or mode not in ("constant", "edge", "reflect", "symmetric", "wrap", "empty"):
        raise refused(
            f"np.pad has no lowering for mode {mode!r}", "", "use constant, edge, reflect, symmetric or wrap"
        )
    extra = set(kwargs) - {"constant_values"} if mode == "constant" else set(kwargs)
    if extra and not (extra == {"reflect_type"} and kwargs["reflect_type"] == "even"):
        raise refused(f"np.pad has no lowering for {', '.join(sorted(extra))}=")
    if not any(map(any, widths)):
        return x
    if mode in ("constant", "empty"):
        return _constant(x, widths, kwargs.get("constant_values", 0))
    for axis, (before, after) in enumerate(widths):
        limit = e.sizes(x)[axis] - (mode == "reflect")
        if mode != "edge" and max(before, after) > limit:
            raise refused(
                f"np.pad with mode {mode!r} is wider than axis {axis}, which has {e.sizes(x)[axis]} elements",
                way_out="pad in several steps",
            )
    if mode in ("edge", "reflect"):
        return padded(x, widths, mode)
    for axis, (before, after) in enumerate(widths):
        x = _mirrored(x, axis, before, after) if mode == "symmetric" else _wrapped(x, axis, before, after)
    return x


def _constant(x: Tensor, widths: Sequence[tuple[int, int]], values: Any) -> Tensor:
    """Return a border of one number, or of another on each side."""
    if isinstance(values, Tensor):
        numbers = None
    else:
        numbers = np.broadcast_to(np.asarray(values), (len(widths), 2))
        one = float(numbers.flat[0])
        if (numbers == one).all() and float(np.float32(one)) == float(np.asarray(one, dtype_of(x).np)):
            return padded(x, widths, "constant", one)
    for axis, pair in enumerate(widths):
        parts = [x]
        for side, width in enumerate(pair):
            if width:
                fill = values if numbers is None else numbers[axis, side]
                value = e.reshape(operand(fill, dtype_of(x).np), ())
                border = e.full(value, (*x.shape[:axis], width, *x.shape[axis + 1 :]))
                parts.insert(len(parts) if side else 0, border)
        x = e.concat(parts, axis)
    return x


def _mirrored(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    parts = [x]
    if before:
        parts.insert(0, e.subtensor(x, [(axis, before - 1, None, -1, None)]))
    if after:
        parts.append(e.subtensor(x, [(axis, None, -after - 1, -1, None)]))
    return e.concat(parts, axis)


def _wrapped(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    parts = [x]
    if before:
        parts.insert(0, e.subtensor(x, [(axis, -before, None, None, None)]))
    if after:
        parts.append(e.subtensor(x, [(axis, None, after, None, None)]))
    return e.concat(parts, axis)

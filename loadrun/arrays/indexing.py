"""numpy's indexing as MegEngine's operators.

Slices, integers, ``None`` and ``...`` become Subtensor and AxisAddRemove; arrays of integers and of booleans become
IndexingMultiAxisVec and CondTake. Bounds follow numpy: slices are cut to the array, integers outside it are an error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..layers import emit as e
from ..layers.emit import M
from ..tensors import Tensor, TracedInt, const
from ..tensors.access import dtype_of, is_scalar
from ..tensors.naming import refused
from .promotion import operand, stacked
from .views import UnknownLayoutError, ViewPart


@dataclass(eq=False)
class ParsedIndex:
    """An index, axis by axis.

    Attributes:
        front: slices that come before all else.
        slices: the slices that do something, by axis of the array.
        integers: the single indices, by axis of the array.
        entries: what stands on each axis after slicing, new axes included: an index tensor, "new", or None.
        mask: a boolean array that is the whole index.
        key: what equal basic indices have in common.
    """

    front: list[e.Index] = field(default_factory=list)
    slices: list[e.Index] = field(default_factory=list)
    integers: dict[int, Any] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)
    mask: Tensor | None = None
    dots: bool = False
    key: Any = None

    @property
    def basic(self) -> bool:
        """True if numpy makes a view of it."""
        return self.mask is None and not any(isinstance(v, Tensor) and not is_scalar(v) for v in self.entries)


def select(x: Tensor, index: Any) -> ParsedIndex:
    """Take an index apart.

    Raises:
        IndexError: as numpy raises it: too many indices, an integer out of bounds, no index at all.
        TraceError: an index that only numpy itself can follow, or that another size would make another one.
    """
    entries = list(index) if isinstance(index, tuple) else [index]
    parts = [_index_entry(v) for v in entries]
    shape = x.shape
    used = sum(_axes(p) for p in parts)
    dots = [i for i, p in enumerate(parts) if p is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > len(shape):
        raise IndexError(
            f"too many indices for array: array is {len(shape)}-dimensional, but {used} were indexed"
        )
    fill = [slice(None)] * (len(shape) - used)
    at = dots[0] if dots else len(parts)
    parts[at : at + len(dots)] = fill
    if len(entries) == 1 and parts and isinstance(parts[0], Tensor) and e.is_bool(parts[0]):
        _mask_fits(parts[0], shape, 0)
        return ParsedIndex(mask=parts[0])
    return _arranged(parts, shape, bool(dots))


def _arranged(parts: Sequence[Any], shape: tuple[int, ...], dots: bool) -> ParsedIndex:
    result = ParsedIndex(dots=dots)
    axis = 0
    keys: list[Any] = []
    for p in parts:
        if p is None:
            result.entries.append("new")
            keys.append("new")
            continue
        if isinstance(p, slice):
            front, item = _bounds(p, shape[axis], axis)
            if front is not None:
                result.front.append(front)
            if item is not None:
                result.slices.append(item)
            result.entries.append(None)
            keys.append(tuple(map(_key, (p.start, p.stop, p.step))))
        elif isinstance(p, Tensor) and e.is_bool(p):
            _mask_fits(p, shape, axis)
            result.entries += nonzero(p)
            axis += len(e.sizes(p)) - 1
        elif isinstance(p, Tensor) and not is_scalar(p):
            result.entries.append(_checked(p, shape[axis], axis))
        else:
            result.integers[axis] = _integer(p, shape[axis], axis)
            result.entries.append(result.integers[axis])
            keys.append(_key(p))
        axis += 1
    result.key = ("basic", *keys)
    return result


def _index_entry(value: Any) -> Any:
    """Return one entry of an index in a common form: None, ..., slice, int, or a tensor of integers or booleans."""
    if value is None or value is Ellipsis or isinstance(value, (slice, TracedInt)):
        return value
    if isinstance(value, (bool, np.bool_)):
        raise refused(
            "indexing with a single bool has no lowering", way_out="use None, or an array of booleans"
        )
    if isinstance(value, Tensor):
        if dtype_of(value).np.kind not in "biu" or dtype_of(value).is_quantized:
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        return e.cast(value, "int32") if dtype_of(value).is_wide else value
    if isinstance(value, (list, np.ndarray, tuple)):
        if not isinstance(value, np.ndarray) and any(isinstance(v, Tensor) for v in value):
            return stacked(list(value), np.dtype(np.int32))
        array = np.asarray(value)
        if array.size == 0 and not isinstance(value, np.ndarray):
            array = array.astype(np.int32)
        if array.dtype.kind not in "biu":
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        return operand(array) if array.ndim or array.dtype.kind == "b" else int(array)
    try:
        return operator.index(value)
    except TypeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays "
            f"are valid indices, found {type(value).__name__}"
        ) from None


def _axes(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    return len(e.sizes(part)) if isinstance(part, Tensor) and e.is_bool(part) else 1


def _key(value: Any) -> Any:
    return ("tensor", id(value)) if isinstance(value, Tensor) else None if value is None else int(value)


def _mask_fits(mask: Tensor, shape: tuple[int, ...], axis: int) -> None:
    want = tuple(map(int, shape[axis : axis + len(e.sizes(mask))]))
    if e.sizes(mask) != want:
        raise IndexError(
            f"boolean index of shape {e.sizes(mask)} did not match the indexed array along axes of shape {want}"
        )


def _integer(value: Any, size: int, axis: int) -> Any:
    if not isinstance(value, Tensor) and not -int(size) <= int(value) < int(size):
        raise IndexError(f"index {int(value)} is out of bounds for axis {axis} with size {int(size)}")
    return value


def _checked(index: Tensor, size: int, axis: int) -> Tensor:
    value = e.known(index)
    if value is not None and value.size and not (-int(size) <= value.min() and value.max() < int(size)):
        bad = int(value.max()) if value.max() >= int(size) else int(value.min())
        raise IndexError(f"index {bad} is out of bounds for axis {axis} with size {int(size)}")
    return index


def _bounds(s: slice, size: int, axis: int) -> tuple[e.Index | None, e.Index | None]:
    """Return a slice as Subtensor takes it, which refuses bounds before the beginning, and what must be cut before.

    Both are None if they take everything.
    """
    step = 1 if s.step is None else operator.index(s.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    begin, end = (
        v if v is None or isinstance(v, (Tensor, TracedInt)) else operator.index(v) for v in (s.start, s.stop)
    )
    n = int(size)
    if step > 0:
        begin, end = (_not_before(v, size) for v in (begin, end))
        # A symbolic bound that is 0 in this call may be another number in a later one.
        if type(begin) is int and begin == 0:
            begin = None
        if type(end) is int and type(size) is int and end >= size:
            end = None
    else:
        if isinstance(size, TracedInt) and any(type(v) is int and v < -n for v in (begin, end)):
            return _reversed_part(begin, end, size, axis), (axis, None, None, step, None)
        if type(begin) is int and begin < -n:
            begin = end = 0
        if type(end) is int and end < -n:
            end = None
    if begin is None and end is None and step == 1:
        return None, None
    return None, (axis, begin, end, None if step == 1 else step, None)


def _reversed_part(begin: Any, end: Any, size: int, axis: int) -> e.Index:
    """Return the part from which a slice with a negative step takes, the last element of the part first."""
    low = None if end is None else size if type(end) is int and end == -1 else _not_before(end + 1, size)
    high = None if begin is None or (type(begin) is int and begin == -1) else _not_before(begin + 1, size)
    return axis, low, high, None, None


def _not_before(bound: Any, size: int) -> Any:
    if not isinstance(bound, int) or isinstance(bound, TracedInt) or bound >= -int(size):
        return bound
    if not isinstance(size, TracedInt):
        return 0
    zero = const(np.int32(0))
    return e.elem(M.MAX, e.like(size + bound, zero), zero)


# Reading


def _places(entries: Sequence[Any]) -> list[int]:
    return [i for i, v in enumerate(entries) if isinstance(v, str)]


def part_of(x: Tensor, selection: ParsedIndex) -> ViewPart:
    """Return the view that a basic index is."""
    items = sorted([*selection.slices, *((a, None, None, None, v) for a, v in selection.integers.items())])
    front = selection.front
    new = _places([v for v in selection.entries if v is None or isinstance(v, str)])

    def get(x: Tensor) -> Tensor:
        return e.add_axes(e.subtensor(e.subtensor(x, front), items), new)

    def put(x: Tensor, value: Tensor) -> Tensor:
        if front:
            return e.set_subtensor(x, inner(e.subtensor(x, front), value), front)
        return inner(x, value)

    def inner(x: Tensor, value: Tensor) -> Tensor:
        if not items:
            return e.reshape(value, x.shape)
        if new:
            value = e.drop_axes(value, new) if len(new) < len(e.sizes(value)) else value
        value = e.reshape(value, (1,)) if len(selection.integers) == len(x.shape) else value
        return e.set_subtensor(x, value, items)

    def shadow(a: np.ndarray[Any, Any], number: Callable[[int], int]) -> np.ndarray[Any, Any]:
        for part in (front, items):
            index: list[Any] = [slice(None)] * a.ndim
            for axis, begin, end, step, idx in part:
                if isinstance(begin, Tensor) or isinstance(end, Tensor):
                    raise UnknownLayoutError
                if idx is None:
                    first, behind = (None if v is None else number(v) for v in (begin, end))
                    index[axis] = slice(first, behind, step)
                else:
                    # All places have the same layout.
                    index[axis] = 0
            place: Any = (*index, Ellipsis)
            a = a[place]
        return np.expand_dims(a, new)

    # One place of the first axes and a run of the next have the layout of the whole.
    *places, last = items or [(0, None, None, None, None)]
    run = not front and last[3] is None and all(idx is not None for *_, idx in places)
    steady = run and [axis for axis, *_ in (*places, last)] == list(range(len(places) + 1))
    return ViewPart(get, put, shadow, steady=steady, key=selection.key)


def _advanced(selection: ParsedIndex) -> list[tuple[int, Tensor]]:
    """Return the index tensors by axis of the sliced array with its new axes."""
    return [
        (i, v if isinstance(v, Tensor) else operand(v, np.int32))
        for i, v in enumerate(selection.entries)
        if v is not None and not isinstance(v, str)
    ]


def read(x: Tensor, selection: ParsedIndex) -> Tensor:
    """Return what an index with arrays selects, as a copy."""
    if selection.mask is not None:
        if len(e.sizes(selection.mask)) == len(e.sizes(x)):
            return e.cond_take(x, selection.mask)[0]
        return e.gather(x, [*enumerate(nonzero(selection.mask))])
    x = e.add_axes(e.subtensor(e.subtensor(x, selection.front), selection.slices), _places(selection.entries))
    return e.gather(x, _advanced(selection))


def nonzero(mask: Tensor) -> list[Tensor]:
    """Return the coordinates where a boolean tensor is true, one int32 vector an axis."""
    value = e.known(mask)
    if value is not None:
        return [const(v.astype(np.int32)) for v in np.nonzero(value)]
    if is_scalar(mask):
        raise refused("nonzero of a 0-d array has no lowering", way_out="give it an axis first")
    rest = e.cond_take(mask, mask)[1]
    result: list[Tensor] = []
    for n in mask.shape[:0:-1]:
        size = e.like(n, rest)
        result.append(e.elem(M.MOD, rest, size))
        rest = e.elem(M.FLOOR_DIV, rest, size)
    return [rest, *result[::-1]]


# Assigning


def assign(x: Tensor, selection: ParsedIndex, value: Tensor, add: bool = False) -> Tensor:
    """Return `x` with what an index with arrays selects replaced by a value (or with the value added to it)."""
    if selection.mask is not None:
        return _assign_masked(x, selection.mask, value, add)
    if selection.front:
        rest = replace(selection, front=[])
        return e.set_subtensor(x, assign(e.subtensor(x, selection.front), rest, value, add), selection.front)
    new = _places(selection.entries)
    sliced = e.add_axes(e.subtensor(x, selection.slices), new)
    ids = _advanced(selection)
    value = e.broadcast(fitted(value, _selected(sliced, ids)), _selected(sliced, ids))
    changed = e.drop_axes(e.scatter(sliced, value, ids, add), new)
    return e.set_subtensor(x, changed, selection.slices) if selection.slices else changed


def fitted(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Drop leading axes of size 1 that the selection does not have, as numpy allows."""
    extra = len(e.sizes(value)) - len(shape)
    if extra <= 0:
        return value
    if any(n != 1 for n in e.sizes(value)[:extra]):
        raise ValueError(
            f"shape mismatch: value array of shape {e.sizes(value)} could not be broadcast to indexing result of "
            f"shape {tuple(map(int, shape))}"
        )
    return e.reshape(value, value.shape[extra:])


def _selected(x: Tensor, ids: Sequence[tuple[int, Tensor]]) -> tuple[int, ...]:
    axes = [a for a, _ in ids]
    shape = x.shape
    rest = [n for i, n in enumerate(shape) if i not in axes]
    at = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    both = e.broadcast_shape([i for _, i in ids])
    return (*rest[:at], *both, *rest[at:])


def _assign_masked(x: Tensor, mask: Tensor, value: Tensor, add: bool) -> Tensor:
    ndim, depth = len(e.sizes(x)), len(e.sizes(mask))
    shape = e.sizes(value)
    if shape and depth == ndim and e.fluid(value):
        # Only the running graph knows whether there is one value or one per place.
        places = e.cond_take(mask, mask)[1]
        flat = e.scatter(e.flat(x), e.broadcast(value, places.shape), [(0, places)], add)
        return e.reshape(flat, x.shape)
    lead = shape[: max(0, len(shape) - (ndim - depth))]
    if all(n == 1 for n in lead):
        value = e.reshape(value, value.shape[len(lead) :]) if lead else value
        wide = e.reshape(mask, (*mask.shape, *(1,) * (ndim - depth))) if ndim > depth else mask
        return e.where(wide, e.elem(M.ADD, x, value) if add else value, x)
    if ndim > depth:
        ids = [*enumerate(nonzero(mask))]
        want = _selected(x, ids)
        return e.scatter(x, e.broadcast(fitted(value, want), want), ids, add)
    places = e.cond_take(mask, mask)[1]
    flat = e.scatter(e.flat(x), value, [(0, places)], add)
    return e.reshape(flat, x.shape)


def basic_value(x: Tensor, part: ViewPart, value: Tensor) -> Tensor:
    """Return the value broadcast to the part that it is assigned to."""
    want = part.get(x).shape
    return e.broadcast(fitted(value, want), want) if want else e.reshape(value, ())

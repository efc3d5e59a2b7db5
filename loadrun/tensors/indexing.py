"""``x[index]`` and ``x[index] = value`` in MegEngine's indexing operators.

Integers, slices and None become Subtensor and AxisAddRemove; integer arrays and masks become IndexingMultiAxisVec,
where a mask stands for the positions at which it is true. The bounds may be sizes and tensors of a trace. What an
index means is numpy's definition, which MegEngine's binding follows.
"""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..graph import params as P
from ..graph.dtypes import plain
from .applying import apply, apply1
from .convert import Shape, as_tensor, const, product_of, shape_tensor
from .naming import titled
from .shaping import with_axes
from .switches import active
from .symbolic import TracedInt, largest
from .value import Tensor

_INT = plain("Int32")
_BOOL = plain("Bool")
_LIMIT = 2**31 - 1


class _IndexPlan(NamedTuple):
    """An index as an operator: what it is applied to, its description and its index inputs."""

    source: Tensor
    items: tuple[P.IndexItem, ...]
    indices: list[Tensor]
    vectors: bool
    scalar: bool


def getitem(x: Tensor, index: Any) -> Tensor:
    """Return the part of a tensor that an index selects.

    Args:
        x: any tensor.
        index: what numpy takes: integers, slices, ``...``, None, boolean masks, integer arrays and lists, and
            tuples of them; numbers may be scalar tensors and sizes, arrays may be tensors.

    Raises:
        IndexError: more indices than axes, two ellipses, or a mask of another shape.
        ValueError: an index that is neither integer nor boolean.
        EngineError: an index outside the tensor.

    >>> from loadrun import Tensor
    >>> getitem(Tensor([[1, 2, 3], [4, 5, 6]]), (slice(None), [0, 2])).tolist()
    [[1, 3], [4, 6]]
    """
    mask = _mask(index)
    if mask is not None and mask._tuple_shape == x._tuple_shape:
        return apply("CondTake", P.CondTake(val=1.0), inputs=[x, mask], n=2, scalar=False)[0]
    return _subtensor(_plan(x, _entries(index)))


def setitem(x: Tensor, index: Any, value: Any) -> Tensor:
    """Return the tensor with the part that an index selects replaced; `x` itself stays as it is.

    Args:
        x: any tensor.
        index: as for `getitem`.
        value: a tensor, array or number that broadcasts to the selected part; converted to the dtype of `x`.

    Raises:
        IndexError: as for `getitem`.
        ValueError: the value does not broadcast to the part.

    >>> from loadrun import Tensor
    >>> setitem(Tensor([1, 2, 3]), slice(1, None), 9).tolist()
    [1, 9, 9]
    """
    if isinstance(index, Tensor) and index._dtype == _BOOL and _is_number(value):
        shape = index._tuple_shape
        if shape == x._tuple_shape[: len(shape)] and (shape or not x.ndim):
            # One operator does what MegEngine does by reading positions from the mask.
            with titled("IndexingSetMultiAxisVec"):
                return apply1("MaskedFill", P.Fill(value=float(value)), inputs=[x, index], scalar=x._scalar)
    entries = list(index) if isinstance(index, tuple) else [index]
    plan = _plan(x, entries)
    part = _subtensor(plan)
    if isinstance(value, (list, tuple)) and not any(isinstance(v, Tensor) for v in value):
        value = np.asarray(value)
    fitting = _fitted(as_tensor(value, like=x), part)
    if plan.source._scalar:
        return fitting
    kind = "IndexingSetMultiAxisVec" if plan.vectors else "SetSubtensor"
    desc = P.IndexDescMaskDump(items=plan.items)
    updated = apply1(kind, desc, inputs=[plan.source, fitting, *plan.indices])
    return updated if plan.source is x else _reshaped(updated, x.shape)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, TracedInt)


def _subtensor(plan: _IndexPlan) -> Tensor:
    if plan.source._scalar:
        return plan.source._frozen()
    kind = "IndexingMultiAxisVec" if plan.vectors else "Subtensor"
    desc = P.IndexDescMaskDump(items=plan.items)
    return apply1(kind, desc, inputs=[plan.source, *plan.indices], scalar=plan.scalar)


# From Python's index to entries: None, Ellipsis, slices, numbers, booleans, tensors of integers and masks


def _entries(index: Any) -> list[Any]:
    """Return the entries of a reading index; a list that is not one of numbers is a tuple, as MegEngine has it."""
    if isinstance(index, tuple):
        return list(index)
    if isinstance(index, list) and not all(isinstance(v, (int, float, np.generic)) for v in index):
        return list(index)
    return [index]


def _mask(index: Any) -> Tensor | None:
    """Return a boolean array or tensor as a tensor; None for anything else."""
    if isinstance(index, Tensor):
        return index if index._dtype == _BOOL else None
    if isinstance(index, (np.ndarray, np.bool_)) and index.dtype == np.bool_:
        return const(index)
    return None


def _entry(value: Any) -> Any:
    """Return one entry in the form that `_plan` takes."""
    if value is None or value is Ellipsis or isinstance(value, (slice, bool, TracedInt)):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Tensor):
        if value._dtype == _BOOL:
            return value if value.ndim else bool(value)
        if value._dtype.is_float or value._dtype.is_quantized:
            raise ValueError(f"an index must be an integer or a mask, found a tensor of {value._dtype}")
        return as_tensor(value, _INT)
    if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
        return _entry(Tensor(value))
    if isinstance(value, (np.ndarray, list, tuple)):
        array = np.asarray(value)
        if not array.size and array.dtype.kind == "f":
            array = array.astype(np.int32)
        if array.dtype.kind not in "iub":
            raise ValueError(f"an index must be an integer or a mask, found {value!r:.60}")
        if not array.ndim:
            return _entry(array[()])
        return const(array, None if array.dtype == np.bool_ else _INT)
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"an index must be an integer, slice, mask or array, found {value!r:.60}") from None


def _is_mask(entry: Any) -> bool:
    return isinstance(entry, Tensor) and entry._dtype == _BOOL


def _axes(entry: Any) -> int:
    """Return how many axes of the tensor an entry stands for."""
    if entry is None or entry is Ellipsis or isinstance(entry, bool):
        return 0
    return entry.ndim if _is_mask(entry) else 1


def _without_ellipsis(entries: list[Any], ndim: int) -> list[Any]:
    at = [i for i, e in enumerate(entries) if e is Ellipsis]
    if len(at) > 1:
        raise IndexError("only one ellipsis is allowed in an index")
    used = sum(map(_axes, entries))
    while used > ndim and isinstance(entries[-1], slice) and entries[-1] == slice(None):
        # MegEngine ignores full slices of missing axes.
        entries, used = entries[:-1], used - 1
    if used > ndim:
        raise IndexError(f"too many indices: the tensor has {ndim} axes, but {used} were indexed")
    if not at:
        return entries
    return [*entries[: at[0]], *[slice(None)] * (ndim - used), *entries[at[0] + 1 :]]


# From entries to an operator


def _plan(x: Tensor, index: Sequence[Any]) -> _IndexPlan:
    entries = _without_ellipsis([_entry(e) for e in index], x.ndim)
    source, entries = _masks_joined(x, entries)
    added = [i for i, e in enumerate(entries) if e is None or isinstance(e, bool)]
    if added:
        source = with_axes(source, added)
    items: list[P.IndexItem] = []
    indices: list[Tensor] = []
    single = 0
    for axis, entry in enumerate(entries):
        if entry is None or entry is True:
            continue
        if entry is False:
            entry = slice(0, 0)
        if not isinstance(entry, slice):
            items.append(P.IndexItem(axis, idx=True))
            indices.append(_position(entry))
            single += not (isinstance(entry, Tensor) and entry.ndim)
            continue
        bounds = _bounds(entry, source, axis)
        flags = [b is not None for b in bounds]
        if any(flags):
            items.append(P.IndexItem(axis, *flags))
            indices.extend(as_tensor(b, _INT) for b in bounds if b is not None)
    vectors = any(isinstance(e, Tensor) and e.ndim for e in entries)
    return _IndexPlan(source, tuple(items), indices, vectors, single == source.ndim and not vectors)


def _position(entry: Any) -> Tensor:
    """Return a number or the integers of a vector index; of a mask, where it is true."""
    if _is_mask(entry):
        return apply("CondTake", P.CondTake(val=1.0), inputs=[entry, entry], n=2, scalar=False)[1]
    if isinstance(entry, Tensor) and entry._const and 0 in entry._tuple_shape and active() is not None:
        # MegEngine does not load an empty constant.
        return apply1(
            "Broadcast", P.Empty(), inputs=[const(0, _INT), shape_tensor(entry._tuple_shape)], scalar=False
        )
    return as_tensor(entry, _INT)


def _bounds(entry: slice, source: Tensor, axis: int) -> list[Any]:
    """Return start, stop and step; a negative bound before the tensor is cut off.

    MegEngine refuses such bounds, numpy does not.
    """
    start, stop, step = (_bound(b) for b in (entry.start, entry.stop, entry.step))
    size = source.shape[axis]
    if step is None or (isinstance(step, int) and step > 0):
        start, stop = (_at_least(b, size) for b in (start, stop))
    elif (
        type(stop) is int
        and stop < -size
        and not isinstance(size, TracedInt)
        and not isinstance(step, Tensor)
    ):
        stop = None
    return [start, stop, step]


def _at_least(bound: Any, size: int) -> Any:
    """Return a bound that is in front of all elements as the position of the first."""
    if type(bound) is not int or bound >= -size:
        return bound
    # In a trace the size may differ in a later call, and the bound are within.
    return largest(bound, -size) if isinstance(size, TracedInt) else 0


def _bound(value: Any) -> Any:
    if value is None or isinstance(value, (Tensor, TracedInt)):
        return value
    try:
        return max(-_LIMIT, min(_LIMIT, operator.index(value)))
    except TypeError:
        raise ValueError(f"the bounds of a slice must be integers, found {value!r:.60}") from None


def _masks_joined(x: Tensor, entries: list[Any]) -> tuple[Tensor, list[Any]]:
    """Return the tensor with the axes of each mask of several dimensions made one, and the masks flat."""
    result: list[Any] = []
    axis = 0
    for entry in entries:
        if _is_mask(entry):
            rank = entry.ndim
            want, have = x._tuple_shape[axis : axis + rank], entry._tuple_shape
            if want != have:
                raise IndexError(
                    f"the mask has shape {list(have)}, the axes that it selects from {list(want)}"
                )
            if rank > 1:
                shape = x.shape
                joined = product_of(shape[axis : axis + rank])
                x = _reshaped(x, (*shape[:axis], joined, *shape[axis + rank :]))
                entry = _reshaped(entry, (joined,))
        result.append(entry)
        axis += _axes(entry)
    return x, result


def _reshaped(x: Tensor, shape: Sequence[Any]) -> Tensor:
    target = shape_tensor(tuple(shape) or (1,))
    return apply1("ReshapeV1", P.OptionalAxisV1(), inputs=[x, target], scalar=not len(shape))


# Values to write


def _fitted(value: Tensor, part: Tensor) -> Tensor:
    """Return the value in the shape of the part that it replaces.

    Sizes of a trace are broadcast even where they agree, since either may be 1, or cease to be, in a later call.
    """
    have, want = value._tuple_shape, part._tuple_shape
    extra = len(have) - len(want)
    low = have[max(extra, 0) :]
    if any(n != 1 for n in have[: max(extra, 0)]) or any(
        a not in (1, b) for a, b in zip(low, want[len(want) - len(low) :], strict=True)
    ):
        raise ValueError(f"a value of shape {list(have)} does not fit a part of shape {list(want)}")
    if extra > 0:
        value = _reshaped(value, value.shape[extra:])
    if low == want and not isinstance(value.shape, Shape) and not isinstance(part.shape, Shape):
        return value
    return (
        apply1("Broadcast", P.Empty(), inputs=[value, shape_tensor(part.shape)], scalar=False)
        if want
        else value
    )

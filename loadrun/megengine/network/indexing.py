"""Parts of variables whose shape only data tells."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.params import AxisAddRemove, AxisDesc, CondTake, IndexDescMaskDump, IndexItem
from ...tensors.access import is_scalar, snapshot
from ...tensors.apply import apply, apply1
from ...tensors.value import Tensor

__all__ = ["part_of_unknown"]


def part_of_unknown(x: Tensor, index: Any) -> Tensor:
    """Return what an index selects of a variable whose shape only data tells.

    Args:
        x: the variable.
        index: numbers, slices, None, masks of one axis and arrays of numbers; or one mask as large as the variable.

    Raises:
        IndexError: an ellipsis, which says nothing where the number of axes is not known.
    """
    entries = list(index) if isinstance(index, tuple) else [index]
    if any(e is Ellipsis for e in entries):
        raise IndexError(
            f"does not support Ellipsis when tensor's ndim is unknown: only data tells the shape of {x.name}; "
            "write one slice for each axis"
        )
    if len(entries) == 1 and _is_mask(entries[0]):
        return apply("CondTake", CondTake(val=1.0), inputs=[x, _index(entries[0])], n=2, scalar=False)[0]
    source: Tensor = snapshot(x)
    added = tuple(AxisDesc(0, axis) for axis, entry in enumerate(entries) if entry is None)
    if added:
        source = apply1("AxisAddRemove", AxisAddRemove(desc=added), inputs=[source], scalar=False)
    items: list[IndexItem] = []
    indices: list[Tensor] = []
    vectors = False
    for axis, entry in enumerate(entries):
        if isinstance(entry, slice):
            bounds = (entry.start, entry.stop, entry.step)
            flags = [b is not None for b in bounds]
            if any(flags):
                items.append(IndexItem(axis, *flags))
            indices += [_index(b) for b in bounds if b is not None]
        elif entry is not None:
            chosen = _index(entry)
            if _is_mask(entry):
                chosen = apply("CondTake", CondTake(val=1.0), inputs=[chosen, chosen], n=2, scalar=False)[1]
            vectors = vectors or not is_scalar(chosen)
            items.append(IndexItem(axis, idx=True))
            indices.append(chosen)
    if not items:
        return source
    kind = "IndexingMultiAxisVec" if vectors else "Subtensor"
    return apply1(kind, IndexDescMaskDump(items=tuple(items)), inputs=[source, *indices], scalar=False)


def _is_mask(entry: Any) -> bool:
    return getattr(entry, "dtype", None) == np.bool_


def _index(entry: Any) -> Tensor:
    """Return an index as the tensor that operators take."""
    if isinstance(entry, Tensor):
        return entry
    array = np.asarray(entry)
    if array.dtype.kind not in "iub":
        raise ValueError(f"an index must be an integer, slice, mask or array, found {entry!r:.60}")
    return Tensor(array if array.dtype == np.bool_ else array.astype(np.int32))

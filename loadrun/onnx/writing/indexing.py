"""Reading and writing parts of tensors: Slice, Gather, GatherND and ScatterND."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Opr, Var
from ...graph import params as P
from ...ops.shape import axis_of
from ..encode import ElemType
from .emitter import END, Dim
from .writer import OnnxWriter, elem_of, translation

__all__: list[str] = []

_START = -(2**63) + 1
"""Slice's bound for "to the first element" with a negative step."""


@dataclass
class _IndexedAxis:
    """One indexed axis: a slice given by optional scalars, or an index."""

    axis: int
    begin: Var | None
    end: Var | None
    step: Var | None
    index: Var | None


def _items(w: OnnxWriter, opr: Opr, first: int) -> list[_IndexedAxis]:
    rank = w.rank(opr.inputs[0])
    items, inputs = opr.get(P.IndexDescMaskDump).items, opr.inputs[first:]
    want = sum(sum(item[1:]) for item in items)
    if want != len(inputs):
        raise ValueError(f"the index describes {want} inputs, found {len(inputs)}")
    rest = iter(inputs)
    axes = []
    for item in items:
        taken = [next(rest) if flag else None for flag in (item.begin, item.end, item.step, item.idx)]
        axes.append(_IndexedAxis(axis_of(item.axis, rank), *taken))
    return sorted(axes, key=lambda i: i.axis)


def _bound(w: OnnxWriter, var: Var | None, default: int) -> Dim:
    return default if var is None else w.split_dims(var)[0]


def _slices(w: OnnxWriter, x: str, items: Sequence[_IndexedAxis]) -> str:
    """Emit the slices among the items, all in one Slice."""
    starts: list[Dim] = []
    ends: list[Dim] = []
    steps: list[Dim] = []
    axes = []
    for item in items:
        if item.index is not None:
            continue
        step = 1 if item.step is None else w.numbers(item.step, "the step of a slice")[0]
        starts.append(_bound(w, item.begin, 0 if step > 0 else END))
        ends.append(_bound(w, item.end, END if step > 0 else _START))
        steps.append(step)
        axes.append(item.axis)
    return w.slice(x, starts, ends, axes, steps) if axes else x


@translation("Subtensor")
def subtensor(w: OnnxWriter, opr: Opr) -> str:
    """Slice, and Gather for single indices, whose axes go; the last one stays."""
    items = _items(w, opr, 1)
    out, rank = _slices(w, w.name(opr.inputs[0]), items), w.rank(opr.inputs[0])
    single = [i for i in items if i.index is not None]
    # From the last axis on, so that those before keep their numbers.
    for item in reversed(single):
        assert item.index is not None
        value = w.value(item.index)
        last = len(single) == rank and item is single[0]
        if value is None or last:
            out = w.op("Gather", out, w.int64(item.index), axis=item.axis)
            out = out if last else w.squeeze(out, [item.axis])
        else:
            out = w.op("Gather", out, w.const(value.reshape(()).astype(np.int64)), axis=item.axis)
    return out


# Vector indices


def _axis_range(w: OnnxWriter, x: Var, item: _IndexedAxis | None, axis: int) -> tuple[str, Dim]:
    """Return the indices along an axis that a slice takes, and their count."""
    n = w.dim(x, axis)
    whole = w.range(n)
    if item is None:
        return whole, n
    cut = _IndexedAxis(0, item.begin, item.end, item.step, None)
    out = _slices(w, whole, [cut])
    return out, w.dim_of(out, 0)


def _positive(w: OnnxWriter, index: str, n: Dim) -> str:
    """Convert indices counted from the end to ones counted from the start."""
    size = w.const(np.int64(n)) if isinstance(n, int) else n
    return w.where(w.op("Less", index, w.const(np.int64(0))), w.op("Add", index, size), index)


def _selected(w: OnnxWriter, opr: Opr, first: int, kind: str) -> str:
    """Return coordinates of the selected elements: int64, the selection's shape plus one dimension of the rank."""
    x = opr.inputs[0]
    rank = w.rank(x)
    items = {i.axis: i for i in _items(w, opr, first)}
    vectors = [a for a, i in items.items() if i.index is not None]
    parts: list[tuple[str, int, int]] = []
    if kind == "multi":
        ranks = [w.rank(items[a].index) for a in vectors]  # type: ignore[arg-type]
        width = max(ranks, default=0)
        together = vectors == list(range(vectors[0], vectors[0] + len(vectors))) if vectors else True
        at = vectors[0] if together and vectors else 0
        others = [a for a in range(rank) if a not in vectors]
        order: list[int | None] = [*others[:at], None, *others[at:]] if vectors else list(others)
        total = len(others) + width
        place, start = {}, 0
        for o in order:
            place[o] = start
            start += width if o is None else 1
        for axis in range(rank):
            item = items.get(axis)
            if item is not None and item.index is not None:
                value = _positive(w, w.int64(item.index), w.dim(x, axis))
                index_rank = w.rank(item.index)
                begin = place[None] + width - index_rank
                parts.append((value, begin, index_rank))
            else:
                parts.append((_axis_range(w, x, item, axis)[0], place[axis], 1))
    else:
        total = rank
        for axis in range(rank):
            item = items.get(axis)
            if item is not None and item.index is not None:
                value = _positive(w, w.int64(item.index), w.dim(x, axis))
                if kind == "batched":
                    value = w.unsqueeze(value, range(1, axis))
                    parts.append((value, 0, axis + 1))
                else:
                    parts.append((value, axis, 1))
            else:
                parts.append((_axis_range(w, x, item, axis)[0], axis, 1))
    shaped = [
        w.unsqueeze(v, [*range(begin), *range(begin + index_rank, total)]) for v, begin, index_rank in parts
    ]
    return _together(w, shaped)


def _together(w: OnnxWriter, parts: list[str]) -> str:
    """Join coordinates that broadcast together to one value whose last dimension numbers the axes."""
    if len(parts) > 1:
        total = parts[0]
        for other in parts[1:]:
            total = w.op("Add", total, other)
        shape = w.op("Shape", total)
        parts = [w.expand(p, shape) for p in parts]
    w.need(11, "indexing several axes at once")
    return w.op("Concat", *(w.unsqueeze(p, [-1]) for p in parts), axis=-1)


@translation("IndexingMultiAxisVec")
def indexing_multi_axis_vec(w: OnnxWriter, opr: Opr) -> str:
    """Gather along one axis, else GatherND."""
    x = opr.inputs[0]
    items = _items(w, opr, 1)
    vectors = [i for i in items if i.index is not None]
    if not vectors:
        return _slices(w, w.name(x), items)
    if len(vectors) == 1:
        index = vectors[0].index
        assert index is not None
        cut = _slices(w, w.name(x), items)
        if w.opset < 11:
            return w.op(
                "Gather", cut, _positive(w, w.int64(index), w.dim(x, vectors[0].axis)), axis=vectors[0].axis
            )
        return w.op("Gather", cut, w.int64(index), axis=vectors[0].axis)
    axes = [v.axis for v in vectors]
    if axes == list(range(len(axes))):
        # The indexed axes lead: the others are whole rows.
        cut = _slices(w, w.name(x), items)
        indices = [_positive(w, w.int64(v.index), w.dim(x, v.axis)) for v in vectors if v.index is not None]
        width = max(w.rank(v.index) for v in vectors if v.index is not None)
        wide = [
            w.unsqueeze(g, range(width - w.rank(v.index)))
            for g, v in zip(indices, vectors, strict=True)
            if v.index is not None
        ]
        return w.op("GatherND", cut, _together(w, wide))
    return w.op("GatherND", w.name(x), _selected(w, opr, 1, "multi"))


@translation("MeshIndexing")
def mesh_indexing(w: OnnxWriter, opr: Opr) -> str:
    """Gather along one axis after the other."""
    items = _items(w, opr, 1)
    out = _slices(w, w.name(opr.inputs[0]), items)
    for item in items:
        if item.index is not None:
            out = w.op("Gather", out, w.int64(item.index), axis=item.axis)
    return out


@translation("BatchedMeshIndexing")
def batched_mesh_indexing(w: OnnxWriter, opr: Opr) -> str:
    """Emit GatherND."""
    return w.op("GatherND", w.name(opr.inputs[0]), _selected(w, opr, 1, "batched"))


# Writing


def _scatter(w: OnnxWriter, opr: Opr, index: str, value: str, add: bool) -> str:
    dtype = w.dtype(opr.inputs[0])
    x = w.name(opr.inputs[0])
    if not add:
        return w.op("ScatterND", x, index, value)
    w.need(16, "adding to elements of a tensor")
    elem = elem_of(dtype)
    if elem not in (ElemType.FLOAT, ElemType.INT32):
        wide = ElemType.FLOAT if dtype.is_float else ElemType.INT32
        out = w.op("ScatterND", w.cast(x, wide), index, w.cast(value, wide), reduction="add")
        return w.cast(out, elem)
    out = w.op("ScatterND", x, index, value, reduction="add")
    return w.round_bfloat16(out) if dtype.name == "BFloat16" else out


@translation("SetSubtensor", "IncrSubtensor")
def set_subtensor(w: OnnxWriter, opr: Opr) -> str:
    """Emit ScatterND over the coordinates that Subtensor would read."""
    x, value = opr.inputs[:2]
    rank = w.rank(x)
    items = {i.axis: i for i in _items(w, opr, 2)}
    parts, gone = [], []
    for axis in range(rank):
        item = items.get(axis)
        if item is not None and item.index is not None:
            parts.append(_positive(w, w.int64(item.index), w.dim(x, axis)))
            gone.append(axis)
        else:
            parts.append(_axis_range(w, x, item, axis)[0])
    shaped = [w.unsqueeze(p, [a for a in range(rank) if a != i]) for i, p in enumerate(parts)]
    index = _together(w, shaped)
    updates = w.name(value)
    if len(gone) == rank:
        updates = w.unsqueeze(updates, range(1, rank))
    else:
        updates = w.unsqueeze(updates, gone)
    return _scatter(w, opr, index, updates, opr.type == "IncrSubtensor")


@translation("IndexingSetMultiAxisVec", "IndexingIncrMultiAxisVec")
def set_multi_axis_vec(w: OnnxWriter, opr: Opr) -> str:
    """Emit ScatterND."""
    index = _selected(w, opr, 2, "multi")
    return _scatter(w, opr, index, w.name(opr.inputs[1]), "Incr" in opr.type)


@translation("SetMeshIndexing", "IncrMeshIndexing", "BatchedSetMeshIndexing", "BatchedIncrMeshIndexing")
def set_mesh_indexing(w: OnnxWriter, opr: Opr) -> str:
    """Emit ScatterND."""
    index = _selected(w, opr, 2, "batched" if opr.type.startswith("Batched") else "mesh")
    return _scatter(w, opr, index, w.name(opr.inputs[1]), "Incr" in opr.type)


# One-hot and remap


@translation("IndexingOneHot")
def indexing_one_hot(w: OnnxWriter, opr: Opr) -> str:
    """Emit GatherElements."""
    x, index = opr.inputs
    axis = opr.get(P.Axis).axis
    return w.op("GatherElements", w.name(x), w.unsqueeze(w.int64(index), [axis]), axis=axis)


@translation("IndexingSetOneHot")
def indexing_set_one_hot(w: OnnxWriter, opr: Opr) -> str:
    """Emit ScatterElements."""
    x, index, value = opr.inputs
    axis = opr.get(P.Axis).axis
    at = w.unsqueeze(w.int64(index), [axis])
    return w.op("ScatterElements", w.name(x), at, w.name(value), axis=axis)


@translation("IndexingRemap")
def indexing_remap(w: OnnxWriter, opr: Opr) -> str:
    """Emit GatherND."""
    x, table = opr.inputs
    return w.op("GatherND", w.name(x), w.int64(table))

"""Reading and writing parts of tensors: Slice, Gather, GatherND and ScatterND."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...graph import Opr, Var, params as P
from ...graph.dtypes import plain
from ...ops.shape import axis_of
from ..tensors import ElemType
from .emitter import END, Dim
from .formulas import coordinates, written
from .writer import OnnxWriter, elem_of, translation

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


def _slices(
    w: OnnxWriter, x: str, items: Sequence[_IndexedAxis], shape: Sequence[int | None] | None = None
) -> str:
    """Emit the slices among the items, all in one Slice; `shape` is that of the value."""
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
        n = None if shape is None else shape[item.axis]
        if n is not None and all(isinstance(b, int) for b in (starts[-1], ends[-1])):
            starts[-1], ends[-1] = _in_bounds(slice(starts[-1], ends[-1], step), n)
    return w.slice(x, starts, ends, axes, steps) if axes else x


def _in_bounds(cut: slice, n: int) -> tuple[int, int]:
    """Return the bounds of a slice of `n` elements counted from the first one; open ones as Slice has them."""
    start, stop, step = cut.indices(n)
    if step > 0:
        return start, END if stop >= n else stop
    return END if start >= n - 1 else start, _START if stop < 0 else stop


@translation("Subtensor")
def subtensor(w: OnnxWriter, opr: Opr) -> str:
    """Slice, and Gather for single indices, whose axes go; the last one stays."""
    items = _items(w, opr, 1)
    out, rank = _slices(w, w.name(opr.inputs[0]), items, w.shape(opr.inputs[0])), w.rank(opr.inputs[0])
    single = [i for i in items if i.index is not None]
    # From the last axis on, so that those before keep their numbers.
    for item in reversed(single):
        assert item.index is not None
        value = w.value(item.index)
        last = len(single) == rank and item is single[0]
        if value is None or last:
            out = w.op("Gather", out, _index(w, item.index), axis=item.axis)
            out = out if last else w.squeeze(out, [item.axis])
        else:
            out = w.op("Gather", out, w.const(value.reshape(()).astype(np.int64)), axis=item.axis)
    return out


# Vector indices


def _index(w: OnnxWriter, var: Var) -> str:
    """Return indices as Gather takes them, which may be int32."""
    same = w.dtype(var).name == "Int32" and w.value(var) is None and var.owner.type != "TypeCvtV2"
    return w.name(var) if same and w.name(var) not in w.wide else w.int64(var)


def _coordinates(w: OnnxWriter, items: Sequence[_IndexedAxis]) -> Var | None:
    """Return what holds the indices of the first axes along its last axis, as GatherND takes them."""
    tables: list[Var] = []
    for i, item in enumerate(items):
        opr = item.index.owner if item.index is not None else None
        if item.axis != i or opr is None or opr.type != "Subtensor":
            return None
        table, cuts = opr.inputs[0], _items(w, opr, 1)
        whole = len(cuts) == 1 and cuts[0].axis == w.rank(table) - 1 and w.rank(table) > 1
        at = w.value(cuts[0].index) if whole and cuts[0].index is not None else None
        if at is None or at.reshape(-1)[0] != i or w.shape(table)[-1] != len(items):
            return None
        tables.append(table)
    return tables[0] if tables and all(t is tables[0] for t in tables) else None


def _along(w: OnnxWriter, x: Var, items: Sequence[_IndexedAxis]) -> tuple[Var, int] | None:
    """Return indices along one axis and that axis, where those of all others count the elements of the first."""
    rank = w.rank(x)
    chosen = [i for i in items if i.index is not None and w.value(i.index) is None]
    if len(items) != rank or len(chosen) != 1 or chosen[0].index is None:
        return None
    index, axis = chosen[0].index, chosen[0].axis
    shape = w.shape(index)
    if len(shape) != rank:
        return None
    for i, n in enumerate(shape):
        steps = items[i].index
        value = None if steps is None or i == axis else w.value(steps)
        if i != axis and (n is None or value is None or value.ndim > rank):
            return None
        if value is not None and n is not None:
            counted = np.arange(n).reshape([n if k == i else 1 for k in range(rank)])
            if not np.array_equal(value.reshape((1,) * (rank - value.ndim) + value.shape), counted):
                return None
    return index, axis


def _places(w: OnnxWriter, opr: Opr, mesh: bool = False, rows: bool = False) -> str:
    """Return coordinates of the selected elements; see `coordinates`."""
    w.need(11, "indexing several axes at once")
    function = partial(coordinates, mesh=mesh, rows=rows)
    return written(w, opr, function, stored=True, types=[plain("Int64")])[0]


def _leading(items: Sequence[_IndexedAxis]) -> bool:
    """Return whether the first axes alone are indexed, so that whole rows are selected."""
    return [i.axis for i in items] == [*range(len(items))] and all(i.index is not None for i in items)


@translation("IndexingMultiAxisVec")
def indexing_multi_axis_vec(w: OnnxWriter, opr: Opr) -> str:
    """Gather along one axis, else GatherND."""
    x = opr.inputs[0]
    items = _items(w, opr, 1)
    vectors = [i for i in items if i.index is not None]
    if not vectors:
        return _slices(w, w.name(x), items, w.shape(x))
    if len(vectors) == 1:
        index = vectors[0].index
        assert index is not None
        cut = _slices(w, w.name(x), items, w.shape(x))
        at = _index(w, index) if w.opset >= 11 else w.int64(index)
        if w.opset < 11:
            # There are no indices from the end yet.
            at = w.where(
                w.op("Less", at, w.ints(0)), w.op("Add", at, w.vector([w.dim(x, vectors[0].axis)])), at
            )
        return w.op("Gather", cut, at, axis=vectors[0].axis)
    table, along = _coordinates(w, items), _along(w, x, items)
    if table is not None:
        return w.op("GatherND", w.name(x), w.int64(table))
    if along is not None:
        return w.op("GatherElements", w.name(x), _index(w, along[0]), axis=along[1])
    if _leading(vectors):
        return w.op("GatherND", _slices(w, w.name(x), items, w.shape(x)), _places(w, opr, rows=True))
    return w.op("GatherND", w.name(x), _places(w, opr))


@translation("MeshIndexing")
def mesh_indexing(w: OnnxWriter, opr: Opr) -> str:
    """Gather along one axis after the other."""
    items = _items(w, opr, 1)
    out = _slices(w, w.name(opr.inputs[0]), items, w.shape(opr.inputs[0]))
    for item in items:
        if item.index is not None:
            out = w.op("Gather", out, _index(w, item.index), axis=item.axis)
    return out


@translation("BatchedMeshIndexing")
def batched_mesh_indexing(w: OnnxWriter, opr: Opr) -> str:
    """Emit GatherND."""
    return w.op("GatherND", w.name(opr.inputs[0]), _places(w, opr, mesh=True))


# Writing


def _scatter(
    w: OnnxWriter, opr: Opr, index: str, value: str, add: bool, kind: str = "ScatterND", **attributes: int
) -> str:
    dtype = w.dtype(opr.inputs[0])
    x = w.name(opr.inputs[0])
    if not add:
        return w.op(kind, x, index, value, **attributes)
    w.need(16, "adding to elements of a tensor")
    elem = elem_of(dtype)
    if elem not in (ElemType.FLOAT, ElemType.INT32):
        wide = ElemType.FLOAT if dtype.is_float else ElemType.INT32
        out = w.op(kind, w.cast(x, wide), index, w.cast(value, wide), reduction="add", **attributes)
        return w.cast(out, elem)
    out = w.op(kind, x, index, value, reduction="add", **attributes)
    return w.round_bfloat16(out) if dtype.name == "BFloat16" else out


@translation("SetSubtensor", "IncrSubtensor")
def set_subtensor(w: OnnxWriter, opr: Opr) -> str:
    """Emit ScatterND over the coordinates that Subtensor would read."""
    x, value = opr.inputs[:2]
    rank, gone = w.rank(x), [i.axis for i in _items(w, opr, 2) if i.index is not None]
    index, updates = _places(w, opr, mesh=True), w.name(value)
    updates = w.unsqueeze(updates, range(1, rank) if len(gone) == rank else gone)
    return _scatter(w, opr, index, updates, opr.type == "IncrSubtensor")


@translation("IndexingSetMultiAxisVec", "IndexingIncrMultiAxisVec")
def set_multi_axis_vec(w: OnnxWriter, opr: Opr) -> str:
    """Emit ScatterElements or ScatterND."""
    x, updates = opr.inputs[:2]
    items, add = _items(w, opr, 2), "Incr" in opr.type
    table, along = _coordinates(w, items), _along(w, x, items)
    if along is not None and w.shape(updates) == w.shape(along[0]):
        return _scatter(w, opr, _index(w, along[0]), w.name(updates), add, "ScatterElements", axis=along[1])
    index = w.int64(table) if table is not None else _places(w, opr, rows=_leading(items))
    return _scatter(w, opr, index, w.name(updates), add)


@translation("SetMeshIndexing", "IncrMeshIndexing", "BatchedSetMeshIndexing", "BatchedIncrMeshIndexing")
def set_mesh_indexing(w: OnnxWriter, opr: Opr) -> str:
    """Emit ScatterND."""
    return _scatter(w, opr, _places(w, opr, mesh=True), w.name(opr.inputs[1]), "Incr" in opr.type)


# One-hot and remap


@translation("IndexingOneHot")
def indexing_one_hot(w: OnnxWriter, opr: Opr) -> str:
    """Emit GatherElements."""
    x, index = opr.inputs
    axis = opr.get(P.Axis).axis
    return w.op("GatherElements", w.name(x), w.unsqueeze(_index(w, index), [axis]), axis=axis)


@translation("IndexingSetOneHot")
def indexing_set_one_hot(w: OnnxWriter, opr: Opr) -> str:
    """Emit ScatterElements."""
    x, index, value = opr.inputs
    axis = opr.get(P.Axis).axis
    at = w.unsqueeze(_index(w, index), [axis])
    return w.op("ScatterElements", w.name(x), at, w.name(value), axis=axis)


@translation("IndexingRemap")
def indexing_remap(w: OnnxWriter, opr: Opr) -> str:
    """Emit GatherND."""
    x, table = opr.inputs
    return w.op("GatherND", w.name(x), w.int64(table))

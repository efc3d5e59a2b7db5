"""Reading and writing parts of tensors: Slice, Gather, GatherND and ScatterND."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Opr, Var
from ...graph import params as P
from ...graph.dtypes import Array
from ...ops.shape import axis_of
from ..encode import ElemType
from .emitter import END, Dim
from .writer import OnnxWriter, elem_of, translation

_MOST = 1 << 16
"""How many coordinates are stored."""
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


def _axis_range(w: OnnxWriter, x: Var, item: _IndexedAxis | None, axis: int) -> str:
    """Return the indices along an axis that a slice takes."""
    n = w.dim(x, axis)
    whole = w.range(n)
    if item is None:
        return whole
    begin, end, step = (None if v is None else w.value(v) for v in (item.begin, item.end, item.step))
    given = sum(v is not None for v in (item.begin, item.end, item.step))
    if isinstance(n, int) and given == sum(v is not None for v in (begin, end, step)):
        bounds = [None if v is None else int(v.reshape(-1)[0]) for v in (begin, end, step)]
        return w.const(np.arange(n, dtype=np.int64)[slice(*bounds)])
    return _slices(w, whole, [_IndexedAxis(0, item.begin, item.end, item.step, None)])


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


def _rows(w: OnnxWriter, items: Sequence[_IndexedAxis]) -> str | None:
    """Return coordinates along the first axes where these alone are indexed: of whole rows."""
    indices = [i.index for i in items if i.index is not None]
    if [i.axis for i in items] != list(range(len(indices))):
        return None
    width = max(map(w.rank, indices))
    return _together(w, [(v, width - w.rank(v), w.rank(v)) for v in indices], width)


def _selected(w: OnnxWriter, opr: Opr, first: int, kind: str) -> str:
    """Return coordinates of the selected elements: int64, the selection's shape plus one dimension of the rank."""
    x = opr.inputs[0]
    rank = w.rank(x)
    items = {i.axis: i for i in _items(w, opr, first)}
    vectors = [a for a, i in items.items() if i.index is not None]
    ranks = [w.rank(items[a].index) for a in vectors]  # type: ignore[arg-type]
    width, total = max(ranks, default=0), rank
    place = {axis: axis for axis in range(rank)}
    if kind == "multi" and vectors:
        together = vectors == list(range(vectors[0], vectors[0] + len(vectors)))
        at = vectors[0] if together else 0
        others = [a for a in range(rank) if a not in vectors]
        total = len(others) + width
        place = {a: i if i < at else i + width for i, a in enumerate(others)} | dict.fromkeys(vectors, at)
    parts: list[tuple[Var | str, int, int]] = []
    for axis in range(rank):
        item = items.get(axis)
        if item is None or item.index is None:
            parts.append((_axis_range(w, x, item, axis), place[axis], 1))
            continue
        own = w.rank(item.index)
        if kind == "batched":
            parts.append((w.unsqueeze(w.int64(item.index), range(1, axis)), 0, axis + 1))
        else:
            parts.append((item.index, place[axis] + (width - own if kind == "multi" else 0), own))
    return _together(w, parts, total)


def _together(w: OnnxWriter, parts: Sequence[tuple[Var | str, int, int]], rank: int) -> str:
    """Join coordinates that broadcast together to one value whose last dimension numbers the axes.

    Args:
        parts: each with its first axis in the result and the number of its axes.
        rank: the axes of the result without the last one.
    """
    w.need(11, "indexing several axes at once")
    places = [_placed(w, part, rank) for part in parts]
    fixed = [p for p in places if p is not None and None not in p]
    whole = np.broadcast_shapes(*fixed) if len(fixed) == len(parts) else None  # type: ignore[arg-type]
    if whole is not None and np.prod(whole) <= _MOST:
        narrow = all(isinstance(s, str) or w.dtype(s).name == "Int32" for s, *_ in parts)
        kind = np.int32 if narrow else np.int64
        rows = [_row(w, part, place, whole, kind) for part, place in zip(parts, fixed, strict=True)]
        joined = w.op("Concat", *rows, axis=rank) if len(rows) > 1 else rows[0]
        return w.cast_raw(joined, ElemType.INT64) if narrow else joined
    names = [_unsqueezed(w, part, rank) for part in parts]
    if len(names) > 1:
        total = names[0]
        for other in names[1:]:
            total = w.op("Add", total, other)
        shape = w.op("Shape", total)
        names = [w.expand(p, shape) for p in names]
    return w.op("Concat", *(w.unsqueeze(p, [rank]) for p in names), axis=rank)


def _known(w: OnnxWriter, source: Var | str) -> Array | None:
    if isinstance(source, Var):
        return w.value(source)
    return w.initializers[source].value if source in w.initializers else None


def _placed(w: OnnxWriter, part: tuple[Var | str, int, int], rank: int) -> tuple[int | None, ...] | None:
    """Return the shape of coordinates among those of all axes, None where it is not known."""
    source, begin, own = part
    value = _known(w, source)
    if value is None and isinstance(source, str):
        return None
    shape = value.shape if value is not None else w.shape(source)  # type: ignore[arg-type]
    return (*(1,) * begin, *shape, *(1,) * (rank - begin - own))


def _unsqueezed(w: OnnxWriter, part: tuple[Var | str, int, int], rank: int) -> str:
    source, begin, own = part
    name = w.int64(source) if isinstance(source, Var) else source
    return w.unsqueeze(name, [*range(begin), *range(begin + own, rank)])


def _row(
    w: OnnxWriter,
    part: tuple[Var | str, int, int],
    place: tuple[int | None, ...],
    whole: tuple[int, ...],
    kind: type[np.integer],
) -> str:
    """Return coordinates in the shape of all, with one more axis."""
    (source, begin, own), rank = part, len(whole)
    value = _known(w, source)
    if value is not None:
        return w.const(
            np.broadcast_to(value.reshape([n or 0 for n in place]), whole)[..., None].astype(kind), raw=True
        )
    assert isinstance(source, Var)
    name = w.name(source) if kind is np.int32 else w.int64(source)
    outside = [*range(begin), *range(begin + own, rank)]
    if place == whole:
        return w.unsqueeze(name, [*outside, rank])
    return w.unsqueeze(w.expand(w.unsqueeze(name, outside), w.ints(*whole)), [rank])


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
    rows = _rows(w, vectors)
    if rows is not None:
        return w.op("GatherND", _slices(w, w.name(x), items, w.shape(x)), rows)
    return w.op("GatherND", w.name(x), _selected(w, opr, 1, "multi"))


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
    return w.op("GatherND", w.name(opr.inputs[0]), _selected(w, opr, 1, "batched"))


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
    rank = w.rank(x)
    items = {i.axis: i for i in _items(w, opr, 2)}
    parts: list[tuple[Var | str, int, int]] = []
    gone = []
    for axis in range(rank):
        item = items.get(axis)
        if item is not None and item.index is not None:
            parts.append((item.index, axis, 1))
            gone.append(axis)
        else:
            parts.append((_axis_range(w, x, item, axis), axis, 1))
    index = _together(w, parts, rank)
    updates = w.name(value)
    if len(gone) == rank:
        updates = w.unsqueeze(updates, range(1, rank))
    else:
        updates = w.unsqueeze(updates, gone)
    return _scatter(w, opr, index, updates, opr.type == "IncrSubtensor")


@translation("IndexingSetMultiAxisVec", "IndexingIncrMultiAxisVec")
def set_multi_axis_vec(w: OnnxWriter, opr: Opr) -> str:
    """Emit ScatterElements or ScatterND."""
    x, updates = opr.inputs[:2]
    items, add = _items(w, opr, 2), "Incr" in opr.type
    table, along = _coordinates(w, items), _along(w, x, items)
    if along is not None and w.shape(updates) == w.shape(along[0]):
        return _scatter(w, opr, _index(w, along[0]), w.name(updates), add, "ScatterElements", axis=along[1])
    index = w.int64(table) if table is not None else _rows(w, items) or _selected(w, opr, 2, "multi")
    return _scatter(w, opr, index, w.name(updates), add)


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

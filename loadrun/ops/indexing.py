"""Reading and writing parts of a tensor.

Semantics follow MegEngine's ``FancyIndexingHelper`` (slices, scalar indices) and its naive multi-axis, mesh,
one-hot and remap kernels. An index may be negative; one outside the tensor is an error, also where MegEngine
would read memory out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..graph import Opr, params as P
from ..graph.dtypes import Array, DType
from .registry import Bound, Call, Shape, ShapeCall, first_input, kernel
from .shape import MAX_NDIM, axis_of, integers, known_value


class _Part(NamedTuple):
    """One indexed axis: a slice given by optional scalars, or an index; arrays, or input numbers in shape rules."""

    axis: int
    begin: Any
    end: Any
    step: Any
    idx: Any


def _parts(items: Sequence[P.IndexItem], inputs: Sequence[Any], ndim: int) -> list[_Part]:
    """Return the items by axis, with their inputs, which follow in file order."""
    if len(items) > MAX_NDIM:
        raise ValueError(f"at most {MAX_NDIM} axes can be indexed, found {len(items)}")
    want = sum(i.begin + i.end + i.step + i.idx for i in items)
    if want != len(inputs):
        raise ValueError(f"the index describes {want} inputs, found {len(inputs)}")
    rest = iter(inputs)
    parts = []
    for item in items:
        if item.idx == (item.begin or item.end or item.step):
            raise ValueError(f"axis {item.axis} must have either a slice or an index")
        taken = [next(rest) if flag else None for flag in (item.begin, item.end, item.step, item.idx)]
        parts.append(_Part(axis_of(item.axis, ndim), *taken))
    if len({p.axis for p in parts}) != len(parts):
        raise ValueError(f"an axis is indexed twice: {[i.axis for i in items]}")
    return sorted(parts, key=lambda p: p.axis)


def _whole_number(value: Array | None, default: int) -> int:
    if value is None:
        return default
    if value.shape != (1,):
        raise ValueError(f"an index of a slice must be a scalar, found shape {list(value.shape)}")
    return integers(value, "index")[0]


def _slice(part: _Part, size: int) -> slice:
    """Return the numpy slice of a part, refused where MegEngine says that it is out of bounds."""
    step = _whole_number(part.step, 1)
    if step == 0:
        raise ValueError(f"the step of the slice along axis {part.axis} is 0")
    if size == 0:
        return slice(0, 0)

    def place(value: Array | None, default: int) -> int:
        at = _whole_number(value, default)
        return at + size if at < 0 and value is not None else at

    if step > 0:
        end = min(place(part.end, size), size)
        begin = min(place(part.begin, 0), end)
        good = begin >= 0
    else:
        begin = min(place(part.begin, size - 1), size - 1)
        end = min(place(part.end, -1), begin)
        good = begin >= 0 and end >= -1
    if not good:
        text = ":".join("" if v is None else str(_whole_number(v, 0)) for v in part[1:4])
        raise ValueError(f"slice {text} is out of bounds for axis {part.axis} of size {size}")
    return slice(begin, end if end >= 0 else None, step)


def _slice_size(part: _Part, size: int) -> int:
    return len(range(*_slice(part, size).indices(size)))


# Subtensor


def _scalar_index(part: _Part, size: int) -> int:
    at = _whole_number(part.idx, 0)
    if not -size <= at < size:
        raise ValueError(f"index {at} is out of bounds for axis {part.axis} of size {size}")
    return at


def _basic(items: Sequence[P.IndexItem], shape: Shape, inputs: Sequence[Array]) -> tuple[Any, ...]:
    index: list[Any] = [slice(None)] * len(shape)
    for part in _parts(items, inputs, len(shape)):
        at, size = part.axis, shape[part.axis]
        index[at] = _slice(part, size) if part.idx is None else _scalar_index(part, size)
    return (*index, Ellipsis)


def _scalar_kept(x: Array) -> Array:
    return x if x.ndim else x.reshape(1)


def _known_parts(s: ShapeCall) -> list[_Part]:
    """Return the parts with values (slices) and input numbers (indices) in a shape rule."""
    items = s.get(P.IndexDescMaskDump).items
    parts = _parts(items, range(1, len(s.shapes)), len(s.shape(0)))

    def value(number: int | None) -> Array | None:
        return None if number is None else known_value(s, number)

    return [_Part(p.axis, value(p.begin), value(p.end), value(p.step), p.idx) for p in parts]


def _subtensor_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape: list[int] = list(s.shape(0))
    parts = _known_parts(s)
    for part in parts:
        if part.idx is None:
            shape[part.axis] = _slice_size(part, shape[part.axis])
        elif (at := s.values[part.idx]) is not None:
            _scalar_index(part._replace(idx=at), shape[part.axis])
    removed = {p.axis for p in parts if p.idx is not None}
    return (tuple(n for i, n in enumerate(shape) if i not in removed) or (1,),)


def _bind_subtensor(c: Call, s: ShapeCall) -> Bound | None:
    """Bind Subtensor for known indices."""
    if any(v is None for v in s.values[1:]):
        return None
    index = _basic(c.get(P.IndexDescMaskDump).items, s.shape(0), [v for v in s.values[1:] if v is not None])
    return lambda out, x, *inputs: _scalar_kept(x[index])


@kernel("Subtensor", dtype=first_input, shape=_subtensor_shape, bind=_bind_subtensor)
def subtensor(c: Call, x: Array, *inputs: Array) -> Array:
    """Index by slices and scalars as in numpy; an indexed axis goes, but the last one stays as ``[1]``.

    Raises:
        ValueError: an index outside the tensor, a begin before it, or a step of 0.
    """
    return _scalar_kept(x[_basic(c.get(P.IndexDescMaskDump).items, x.shape, inputs)])


# Writing: copies of the input with a part replaced or added to


def _modify_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0] != inputs[1]:
        raise ValueError(f"the tensor and the value must have one dtype, found {inputs[0]} and {inputs[1]}")
    return (inputs[0],)


def _copy(c: Call, x: Array, value: Array) -> Array:
    """Copy `x` to write into, or return it when nothing else reads it."""
    for i, buffer in enumerate(c.donated):
        if buffer is x and value is not x:
            return c.donated.pop(i)
    return x.copy()


def _fits(value: Array, shape: Shape) -> Array:
    if value.shape != shape:
        raise ValueError(f"the value has shape {list(value.shape)}, the selected part {list(shape)}")
    return value


def _adds(c: Call) -> bool:
    """Return whether the operator adds the value to a part, where others replace the part by it."""
    return "Incr" in c.opr.type


@kernel("SetSubtensor", "IncrSubtensor", dtype=_modify_dtype)
def set_subtensor(c: Call, x: Array, value: Array, *inputs: Array) -> Array:
    """Replace the part of the tensor that Subtensor would read by the value, or add the value to it.

    Raises:
        ValueError: as Subtensor, or the value has another shape.
    """
    index = _basic(c.get(P.IndexDescMaskDump).items, x.shape, inputs)
    out = _copy(c, x, value)
    part = _scalar_kept(out[index])
    _fits(value, part.shape)
    part[...] = part + value if _adds(c) else value
    return out


def _written(c: Call, x: Array, value: Array, index: tuple[Any, ...]) -> Array:
    """Return the tensor with a value in a part, or added to it; every addend counts where an element is named twice."""
    _fits(value, np.broadcast_to(np.zeros((), np.bool_), x.shape)[index].shape)
    out = _copy(c, x, value)
    if _adds(c):
        np.add.at(out, index, value)
    else:
        out[index] = value
    return out


# Vector indices


def _vector(part: _Part, size: int) -> Array:
    idx = part.idx
    assert idx is not None
    if idx.size and not (-size <= int(idx.min()) and int(idx.max()) < size):
        bad = int(idx.max()) if int(idx.max()) >= size else int(idx.min())
        raise ValueError(f"index {bad} is out of bounds for axis {part.axis} of size {size}")
    return idx


def _index_dtype(first: int) -> Callable[[Opr, tuple[DType, ...]], Sequence[DType]]:
    def rule(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
        if first == 2:
            _modify_dtype(opr, inputs)
        rest = iter(inputs[first:])
        for item in opr.get(P.IndexDescMaskDump).items:
            for flag in (item.begin, item.end, item.step):
                if flag:
                    next(rest, None)
            if item.idx:
                dtype = next(rest, None)
                if dtype is not None and dtype.name not in ("Int32", "Int64"):
                    raise ValueError(f"the index of axis {item.axis} must be Int32 or Int64, found {dtype}")
        return (inputs[0],)

    return rule


def _multi_axis(items: Sequence[P.IndexItem], shape: Shape, inputs: Sequence[Array]) -> tuple[Any, ...]:
    index: list[Any] = [slice(None)] * len(shape)
    for part in _parts(items, inputs, len(shape)):
        at, size = part.axis, shape[part.axis]
        index[at] = _slice(part, size) if part.idx is None else _vector(part, size)
    return tuple(index)


def _multi_axis_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape = list(s.shape(0))
    parts = _known_parts(s)
    vectors: list[tuple[int, Shape]] = []
    for part in parts:
        if part.idx is None:
            shape[part.axis] = _slice_size(part, shape[part.axis])
        else:
            vectors.append((part.axis, s.shape(part.idx)))
    if not vectors:
        return (tuple(shape),)
    axes = [a for a, _ in vectors]
    whole = np.broadcast_shapes(*(v for _, v in vectors))
    rest = [n for i, n in enumerate(shape) if i not in axes]
    at = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    return ((*rest[:at], *whole, *rest[at:]),)


@kernel("IndexingMultiAxisVec", dtype=_index_dtype(1), shape=_multi_axis_shape)
def indexing_multi_axis_vec(c: Call, x: Array, *inputs: Array) -> Array:
    """Index as numpy's advanced indexing: int32 indices broadcast together, slices on other axes.

    Where the indexed axes are neighbours the result has the indices' dimensions in their place, else first.

    Raises:
        ValueError: an index outside the tensor.
    """
    index = _multi_axis(c.get(P.IndexDescMaskDump).items, x.shape, inputs)
    vectors = [i for i, part in enumerate(index) if isinstance(part, np.ndarray)]
    if len(vectors) == 1:
        at = vectors[0]
        sliced = x[tuple(slice(None) if i == at else part for i, part in enumerate(index))]
        return sliced.take(index[at], at, mode="wrap") if x.shape[at] else sliced.take(index[at], at)
    return x[index]


@kernel("IndexingSetMultiAxisVec", "IndexingIncrMultiAxisVec", dtype=_index_dtype(2))
def indexing_set_multi_axis_vec(c: Call, x: Array, value: Array, *inputs: Array) -> Array:
    """Replace the elements that IndexingMultiAxisVec would read by the value, or add the value to them.

    Raises:
        ValueError: an index outside the tensor, or a value of another shape.
    """
    return _written(c, x, value, _multi_axis(c.get(P.IndexDescMaskDump).items, x.shape, inputs))


# Mesh indices


def _mesh(
    items: Sequence[P.IndexItem], shape: Shape, inputs: Sequence[Array], batched: bool
) -> tuple[Any, ...]:
    """Make index arrays, one per axis, that select the outer product of the indices."""
    ndim = len(shape)
    parts = {p.axis: p for p in _parts(items, inputs, ndim)}
    rank = 2 if batched else 1
    index: list[Array] = []
    for axis, size in enumerate(shape):
        part = parts.get(axis)
        if part is None:
            vector = np.arange(size)
        elif part.idx is None:
            vector = np.arange(size)[_slice(part, size)]
        else:
            if part.idx.ndim != rank or (batched and axis == 0):
                raise ValueError(
                    f"the index of axis {axis} must have {rank} dimensions"
                    f"{' and not be of axis 0' if batched else ''}, found shape {list(part.idx.shape)}"
                )
            vector = _vector(part, size)
        lead: Shape = (1,) * axis
        if vector.ndim == 2:
            if vector.shape[0] != index[0].size:
                raise ValueError(
                    f"the index of axis {axis} has {vector.shape[0]} rows for a batch of {index[0].size}"
                )
            lead = (vector.shape[0],) + (1,) * (axis - 1)
        index.append(vector.reshape((*lead, vector.shape[-1], *(1,) * (ndim - axis - 1))))
    return tuple(index)


def _mesh_shape(batched: bool) -> Callable[[ShapeCall], Sequence[Shape | None]]:
    def rule(s: ShapeCall) -> Sequence[Shape | None]:
        shape = list(s.shape(0))
        for part in _known_parts(s):
            if part.idx is None:
                shape[part.axis] = _slice_size(part, shape[part.axis])
            else:
                vector = s.shape(part.idx)
                if len(vector) != 1 + batched:
                    raise ValueError(
                        f"the index of axis {part.axis} must have {1 + batched} dimensions, "
                        f"found shape {list(vector)}"
                    )
                shape[part.axis] = vector[-1]
        return (tuple(shape),)

    return rule


def _mesh_index(c: Call, x: Array, inputs: Sequence[Array]) -> tuple[Any, ...]:
    return _mesh(c.get(P.IndexDescMaskDump).items, x.shape, inputs, c.opr.type.startswith("Batched"))


@kernel("MeshIndexing", dtype=_index_dtype(1), shape=_mesh_shape(False))
@kernel("BatchedMeshIndexing", dtype=_index_dtype(1), shape=_mesh_shape(True))
def mesh_indexing(c: Call, x: Array, *inputs: Array) -> Array:
    """Index by the outer product of one vector per axis; batched: another vector for every entry of axis 0.

    Raises:
        ValueError: an index outside the tensor or of the wrong rank.
    """
    return x[_mesh_index(c, x, inputs)]


_WRITES_MESH = ("SetMeshIndexing", "BatchedSetMeshIndexing", "IncrMeshIndexing", "BatchedIncrMeshIndexing")


@kernel(*_WRITES_MESH, dtype=_index_dtype(2))
def set_mesh_indexing(c: Call, x: Array, value: Array, *inputs: Array) -> Array:
    """Replace what MeshIndexing would read by the value, or add the value to it.

    Raises:
        ValueError: as MeshIndexing, or the value has another shape.
    """
    return _written(c, x, value, _mesh_index(c, x, inputs))


# One-hot and remap


def _one_hot(axis: int, src: Shape, index: Shape, value: Shape | None = None) -> Shape:
    if len(src) < 2 or not 0 <= axis < len(src):
        raise ValueError(f"there is no axis {axis} in shape {list(src)}, which needs two dimensions or more")
    if index != src[:axis] + src[axis + 1 :]:
        raise ValueError(f"the index has shape {list(index)}, expected {list(src[:axis] + src[axis + 1 :])}")
    out = (*src[:axis], 1, *src[axis + 1 :])
    if value is not None and value != out:
        raise ValueError(f"the value has shape {list(value)}, expected {list(out)}")
    return out


def _one_hot_index(axis: int, size: int, index: Array) -> Array:
    if index.size and not (int(index.min()) >= 0 and int(index.max()) < size):
        raise ValueError(
            f"indices {int(index.min())} to {int(index.max())} are out of bounds for axis {axis} of size {size}"
        )
    return np.expand_dims(index.astype(np.intp), axis)


@kernel(
    "IndexingOneHot",
    dtype=first_input,
    shape=lambda s: (_one_hot(s.get(P.Axis).axis, s.shape(0), s.shape(1)),),
)
def indexing_one_hot(c: Call, x: Array, index: Array) -> Array:
    """Take one element along an axis for every position of the others; the axis stays with size 1.

    Raises:
        ValueError: the index has not the input's shape without the axis, or names no element.
    """
    axis = c.get(P.Axis).axis
    _one_hot(axis, x.shape, index.shape)
    return np.take_along_axis(x, _one_hot_index(axis, x.shape[axis], index), axis)


def _set_one_hot_shape(s: ShapeCall) -> Sequence[Shape | None]:
    _one_hot(s.get(P.Axis).axis, s.shape(0), s.shape(1), s.shape(2))
    return (s.shape(0),)


@kernel("IndexingSetOneHot", dtype=first_input, shape=_set_one_hot_shape)
def indexing_set_one_hot(c: Call, x: Array, index: Array, value: Array) -> Array:
    """Replace the elements that IndexingOneHot would read by the value.

    Raises:
        ValueError: as IndexingOneHot, or the value has another shape.
    """
    axis = c.get(P.Axis).axis
    _one_hot(axis, x.shape, index.shape, value.shape)
    at = _one_hot_index(axis, x.shape[axis], index)
    out = _copy(c, x, value)
    np.put_along_axis(out, at, value, axis)
    return out


def _remap(src: Shape, table: Shape) -> Shape:
    if len(table) < 2 or table[-1] != len(src):
        raise ValueError(
            f"the map must end in a dimension of {len(src)}, one number per axis of {list(src)}, "
            f"found {list(table)}"
        )
    return table[:-1]


def _remap_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in ("Float32", "Int32") or inputs[1].name not in ("Int32", "Int64"):
        raise ValueError(
            f"expected a Float32 or Int32 tensor and an Int32 map, found {inputs[0]}, {inputs[1]}"
        )
    return (inputs[0],)


@kernel("IndexingRemap", dtype=_remap_dtype, shape=lambda s: (_remap(s.shape(0), s.shape(1)),))
def indexing_remap(c: Call, x: Array, table: Array) -> Array:
    """Take the elements at the coordinates in the map's last dimension.

    Raises:
        ValueError: a coordinate outside the tensor.
    """
    _remap(x.shape, table.shape)
    limits = np.array(x.shape)
    if table.size and not ((table >= 0) & (table < limits)).all():
        raise ValueError(f"the map names elements outside a tensor of shape {list(x.shape)}")
    return x[tuple(np.moveaxis(table, -1, 0))]

"""Shapes, and operators that move elements without computing with them."""

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from ...arrays.names import kernel, np
from ...graph.composite import Known, NodeTypes
from ...graph.dtypes import Array
from . import operator
from .common import axes_of, axis_of, integers, one_of, refuse_unless
from .indexing import taken
from .kernels import broadcast_shapes

Shape = tuple[int, ...]


@operator("Shape", out=("Int64",), shape=lambda x, start=0, end=None: (len(x.shape[start:end]),))
def shape(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    """Return the sizes of the axes between two."""
    return np.array(x.shape[start:end], np.int64)


@operator("Size", out=("Int64",), shape=lambda x: ())
def size(x: Array) -> Array:
    """Count the elements."""
    return np.array(x.size, np.int64)


# The same elements


def _reshaped(x: Array, shape: Known, *, allowzero: int = 0) -> Shape:
    sizes = integers(shape)
    for i, n in enumerate(sizes):
        if n == 0 and not allowzero:
            refuse_unless(i < x.ndim, f"the shape {sizes} copies axis {i} of {x.ndim}")
            sizes[i] = x.shape[i]
    free = [i for i, n in enumerate(sizes) if n < 0]
    refuse_unless(len(free) < 2 and min(sizes, default=0) >= -1, f"the shape {sizes} is none")
    for i in free:
        # numpy does not tell one size of no elements.
        rest = prod(n for n in sizes if n != -1)
        sizes[i] = x.size // rest if rest else 0
    refuse_unless(prod(sizes) == x.size, f"{x.size} elements do not fit the shape {integers(shape)}")
    return tuple(sizes)


@operator("Reshape", since=5, shape=_reshaped, views=True)
def reshape(x: Array, shape: Known, *, allowzero: int = 0) -> Array:
    """Put the elements into another shape; 0 copies a size, -1 is what remains."""
    return x.reshape(_reshaped(x, shape, allowzero=allowzero))


@operator("Reshape", views=True)
def reshape_1(x: Array, *, shape: Sequence[int] = ()) -> Array:
    """Put the elements into another shape."""
    return reshape(x, np.array(shape, np.int64))


def _flattened(x: Array, *, axis: int = 1) -> Shape:
    axis = axis if axis == x.ndim else axis_of(axis, x.ndim)
    return prod(x.shape[:axis]), prod(x.shape[axis:])


operator("Flatten", shape=_flattened)(lambda x, *, axis=1: x.reshape(_flattened(x, axis=axis)))


@operator("Squeeze", since=13, views=True)
def squeeze(x: Array, axes: Known | None = None) -> Array:
    """Take out axes of the size 1, by default all."""
    return squeeze_1(x, axes=integers(axes))


@operator("Squeeze", views=True)
def squeeze_1(x: Array, *, axes: Sequence[int] = ()) -> Array:
    """Take out axes of the size 1, by default all."""
    gone = axes_of(axes, x.ndim) if axes else [i for i, n in enumerate(x.shape) if n == 1]
    refuse_unless(all(x.shape[i] == 1 for i in gone), f"axes {gone} of {list(x.shape)} are not all 1")
    return np.squeeze(x, tuple(set(gone)))


@operator("Unsqueeze", since=13, views=True)
def unsqueeze(x: Array, axes: Known) -> Array:
    """Put in axes of the size 1."""
    return unsqueeze_1(x, axes=integers(axes))


@operator("Unsqueeze", views=True)
def unsqueeze_1(x: Array, *, axes: Sequence[int]) -> Array:
    """Put in axes of the size 1."""
    return np.expand_dims(x, tuple(axes_of(axes, x.ndim + len(axes))))


@operator("Transpose", views=True)
def transpose(x: Array, *, perm: Sequence[int] | None = None) -> Array:
    """Permute the axes, by default to the reverse order."""
    if perm is not None:
        refuse_unless(
            sorted(perm) == list(range(x.ndim)), f"{list(perm)} is not a permutation of {x.ndim} axes"
        )
    return np.transpose(x, perm)


# Joining and cutting


def _joined(*xs: Array, axis: int = 1) -> Shape:
    axis = axis_of(axis, xs[0].ndim)
    rests = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in xs}
    refuse_unless(
        len(rests) == 1, f"{', '.join(str(list(x.shape)) for x in xs)} differ in other axes than {axis}"
    )
    return *xs[0].shape[:axis], sum(x.shape[axis] for x in xs), *xs[0].shape[axis + 1 :]


operator("Concat", shape=_joined)(lambda *xs, axis=1: np.concatenate(xs, axis_of(axis, xs[0].ndim)))


def _parts(x: Array, axis: int, parts: Sequence[int] | None, types: NodeTypes) -> tuple[Array, ...]:
    """Cut an axis into parts, one for each output; without sizes into equal ones, of which the last may be smaller."""
    axis, count = axis_of(axis, x.ndim), len(types.wanted)
    n = x.shape[axis]
    if parts is None:
        each = -(-n // count)
        parts = [max(0, min(each, n - each * i)) for i in range(count)]
    refuse_unless(len(parts) == count, f"{len(parts)} parts were asked for, but the node has {count} outputs")
    refuse_unless(
        min(parts) >= 0 and sum(parts) == n, f"parts of {list(parts)} do not make up the {n} of axis {axis}"
    )
    ends = [*accumulate(parts)]
    before = (slice(None),) * axis
    return tuple(taken(x, (*before, slice(a, b))) for a, b in zip([0, *ends], ends, strict=False))


@operator("Split", since=13, views=True)
def split(
    x: Array, parts: Known | None = None, *, axis: int = 0, num_outputs: int | None = None, types: NodeTypes
) -> tuple[Array, ...]:
    """Cut an axis into parts."""
    refuse_unless(
        num_outputs in (None, len(types.wanted)),
        f"{num_outputs} parts were asked for, but the node has {len(types.wanted)} outputs",
    )
    return _parts(x, axis, None if parts is None else integers(parts), types)


@operator("Split", views=True)
def split_1(
    x: Array,
    parts: Known | None = None,
    *,
    axis: int = 0,
    split: Sequence[int] | None = None,
    types: NodeTypes,
) -> tuple[Array, ...]:
    """Cut an axis into parts."""
    return _parts(x, axis, split if parts is None else integers(parts), types)


@kernel
def positions(values: Array) -> list[int]:
    """Return where parts begin or end."""
    return integers(values)


@kernel
def cut(start: int, end: int, step: int, n: int) -> slice:
    """Return the part of an axis of n elements between two positions."""
    refuse_unless(step != 0, "a step is 0")
    if step > 0:
        return slice(*slice(start, end, step).indices(n))
    # Going back, bounds are clamped to the last entry and to one before the first, which numpy counts from the end.
    start, end = (min(max(v + n if v < 0 else v, low), n - 1) for v, low in ((start, 0), (end, -1)))
    return slice(start, None if end < 0 else end, step) if start >= 0 else slice(0, 0)


@operator("Slice", since=10, views=True)
def slices(
    x: Array, starts: Known, ends: Known, axes: Known | None = None, steps: Known | None = None
) -> Array:
    """Cut axes between two positions, by steps."""
    begin, stop = positions(starts), positions(ends)
    by = [1] * len(begin) if steps is None else integers(steps)
    places = range(len(begin)) if axes is None else axes_of(integers(axes), x.ndim)
    refuse_unless(
        len(begin) == len(stop) == len(by) == len(places) <= x.ndim,
        f"starts of {len(begin)}, ends of {len(stop)}, axes of {len(places)} numbers for {x.ndim} axes",
    )
    index = [slice(None)] * x.ndim
    for a, start, end, step in zip(places, begin, stop, by, strict=True):
        index[a] = cut(start, end, step, x.shape[a])
    return taken(x, tuple(index))


@operator("Slice", views=True)
def slice_1(
    x: Array, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Array:
    """Cut axes between two positions."""
    places = None if axes is None else np.array(axes, np.int64)
    return slices(x, np.array(starts, np.int64), np.array(ends, np.int64), places)


# Repetition


@operator("Expand", since=8, views=True)
def expand(x: Array, shape: Known) -> Array:
    """Broadcast to a shape, or to what it broadcasts to itself."""
    return np.broadcast_to(x, broadcast_shapes(x.shape, tuple(integers(shape))))


def _tiled(x: Array, repeats: Known) -> Shape:
    return tuple(n * r for n, r in zip(x.shape, integers(repeats), strict=True))


@operator("Tile", since=6, shape=_tiled)
def tile(x: Array, repeats: Known) -> Array:
    """Repeat along every axis."""
    return np.tile(x, integers(repeats))


def _repeats(x: Array, tiles: Array, axis: Array) -> Array:
    repeats = np.ones(x.ndim, np.int64)
    repeats[axis_of(int(axis.item()), x.ndim)] = int(tiles.item())
    return repeats


@operator("Tile", shape=lambda x, tiles, axis: _tiled(x, _repeats(x, tiles, axis)))
def tile_1(x: Array, tiles: Known, axis: Known) -> Array:
    """Repeat along one axis."""
    return tile(x, _repeats(x, tiles, axis))


# Blocks


def _block(x: Array, size: int, channels: int, mode: str) -> int:
    """Return the size of blocks, of which each must be whole."""
    refuse_unless(
        size >= 1 and x.ndim == 4, f"blocks of size {size} in {x.ndim} axes; expected at least 1, and 4 axes"
    )
    whole = x.shape[1] % channels == 0 if channels > 1 else not (x.shape[2] % size or x.shape[3] % size)
    refuse_unless(whole, f"blocks of size {size} do not divide the shape {list(x.shape)}")
    one_of("mode", mode, "DCR", "CRD")
    return size


@operator("DepthToSpace", views=True)
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Move channels into blocks of space."""
    b = _block(x, blocksize, blocksize**2, mode)
    n, d, h, w = x.shape
    if mode == "DCR":
        y = x.reshape(n, b, b, d // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, d // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, d // (b * b), h * b, w * b)


@operator("SpaceToDepth", views=True)
def space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Move blocks of space into channels."""
    b = _block(x, blocksize, 1, mode)
    n, d, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = x.reshape(n, d, h // b, b, w // b, b).transpose(order)
    return y.reshape(n, d * b * b, h // b, w // b)

"""Gathering, scattering and sorting; results whose sizes data decide."""

from ...arrays.names import kernel, np
from ...graph.composite import Known
from ...graph.dtypes import Array
from . import operator
from .common import axis_of, integers, like_first, one_of, refuse_unless, unknown_shape

Shape = tuple[int, ...]


def _gathered(x: Array, at: Array, *, axis: int = 0) -> Shape:
    axis = axis_of(axis, x.ndim)
    return (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])


@operator("Gather", shape=_gathered)
def gather(x: Array, at: Array, *, axis: int = 0) -> Array:
    """Take entries along an axis."""
    if not at.size:
        # numpy takes nothing from an axis that is empty.
        return np.zeros(_gathered(x, at, axis=axis), x.dtype)
    return np.take(x, at, axis_of(axis, x.ndim))


@operator("GatherElements", since=11, shape=lambda x, at, axis=0: at.shape)
def gather_elements(x: Array, at: Array, *, axis: int = 0) -> Array:
    """Take single elements by their positions along an axis."""
    axis = axis_of(axis, x.ndim)
    inside = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(at.shape))
    return np.take_along_axis(x[inside], at, axis)


def _gathered_nd(x: Array, at: Array, *, batch_dims: int = 0) -> Shape:
    same = 0 <= batch_dims < x.ndim and x.shape[:batch_dims] == at.shape[:batch_dims]
    refuse_unless(same, f"its batch_dims is {batch_dims}, but its first axes are not the same")
    return (*at.shape[:-1], *x.shape[batch_dims + at.shape[-1] :])


@operator("GatherND", since=11, shape=_gathered_nd)
def gather_nd(x: Array, at: Array, *, batch_dims: int = 0) -> Array:
    """Take parts by their positions along the first axes behind those of the batch."""
    _gathered_nd(x, at, batch_dims=batch_dims)
    rank = at.ndim - 1
    batch = [
        np.arange(x.shape[b]).reshape([-1 if i == b else 1 for i in range(rank)]) for b in range(batch_dims)
    ]
    ids = batch + [at[..., i] for i in range(at.shape[-1])]
    return taken(x, tuple(ids)) if ids else x


@kernel
def taken(x: Array, at: tuple[Array | slice, ...]) -> Array:
    """Take parts by positions or slices of the first axes."""
    return x[at]


# Writing


@kernel
def combined(x: Array, at: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """Return a copy in which updates replace elements, or are combined with them."""
    one_of("reduction", reduction, "none", "add", "mul", "max", "min")
    y = x.copy()
    if reduction == "none":
        y[at] = updates
    elif reduction == "add":
        np.add.at(y, at, updates)
    elif reduction == "mul":
        np.multiply.at(y, at, updates)
    elif reduction == "max":
        np.maximum.at(y, at, updates)
    else:
        np.minimum.at(y, at, updates)
    return y


@operator("ScatterElements", since=11, shape=like_first)
@operator("Scatter", since=9, shape=like_first)
def scatter_elements(x: Array, at: Array, updates: Array, *, axis: int = 0, reduction: str = "none") -> Array:
    """Write single elements by their positions along an axis."""
    axis = axis_of(axis, x.ndim)
    rank = range(x.ndim)
    ids = [np.arange(at.shape[i]).reshape([-1 if k == i else 1 for k in rank]) for i in rank]
    return combined(x, tuple(at if i == axis else ids[i] for i in rank), updates, reduction)


@operator("ScatterND", since=11, shape=like_first)
def scatter_nd(x: Array, at: Array, updates: Array, *, reduction: str = "none") -> Array:
    """Write parts by their positions along the first axes."""
    return combined(x, tuple(at[..., i] for i in range(at.shape[-1])), updates, reduction)


@operator("TensorScatter", since=24, shape=like_first)
def tensor_scatter(
    x: Array, updates: Array, start: Array | None = None, *, axis: int = -2, mode: str = "linear"
) -> Array:
    """Write new entries into a cache along an axis, from a start for every batch."""
    one_of("mode", mode, "linear", "circular")
    axis = axis_of(axis, x.ndim)
    count = updates.shape[axis]
    first = np.zeros(x.shape[0], np.int64) if start is None else start
    at = first[:, None] + np.arange(count)
    if mode == "circular":
        at = at % x.shape[axis]
    places = np.arange(x.shape[0])[:, None], at
    y = combined(np.moveaxis(x, axis, 1), places, np.moveaxis(updates, axis, 1), "none")
    return np.moveaxis(y, 1, axis)


def _marked(at: Array, depth: Known, values: Array, *, axis: int = -1) -> Shape:
    size, axis = int(depth.item()), axis_of(axis, at.ndim + 1)
    refuse_unless(0 <= size < 1 << 31, f"its depth is {size}, expected 0 to {(1 << 31) - 1}")
    return *at.shape[:axis], size, *at.shape[axis:]


@operator("OneHot", since=9, out=(2,), shape=_marked)
def one_hot(at: Array, depth: Known, values: Array, *, axis: int = -1) -> Array:
    """Mark positions along a new axis by the second of two values."""
    axis = axis_of(axis, at.ndim + 1)
    size = _marked(at, depth, values, axis=axis)[axis]
    at = np.expand_dims(at.astype(np.int64), axis)
    grid = np.arange(size).reshape([-1 if i == axis else 1 for i in range(at.ndim)])
    return np.where(np.where(at < 0, at + size, at) == grid, values[1], values[0])


@operator("ReverseSequence", since=10, shape=like_first)
def reverse_sequence(x: Array, lengths: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    """Reverse the beginning of every sequence, as long as it is."""
    refuse_unless(
        {batch_axis, time_axis} == {0, 1},
        f"its batch_axis is {batch_axis} and its time_axis {time_axis}, expected 0 and 1",
    )
    step = np.expand_dims(np.arange(x.shape[time_axis]), batch_axis)
    length = np.expand_dims(lengths, time_axis)
    at = np.where(step < length, length - 1 - step, step)
    return np.take_along_axis(x, at.reshape(*at.shape, *[1] * (x.ndim - 2)), time_axis)


# Order


def _best(x: Array, k: int, axis: int) -> list[Shape]:
    axis = axis_of(axis, x.ndim)
    refuse_unless(0 <= k <= x.shape[axis], f"k is {k}, the axis has {x.shape[axis]}")
    return [(*x.shape[:axis], k, *x.shape[axis + 1 :])] * 2


@kernel
def least(keys: Array, k: int) -> Array:
    """Return the positions of the least of the last axis, in order, the first among equal ones."""
    n = keys.shape[-1]
    if k and 16 * k < n > 1024:
        # Few of many: only those that are no greater than the last of them need sorting.
        bound = np.partition(keys, k - 1)[..., k - 1 : k]
        rows = [np.flatnonzero(row) for row in (keys <= bound).reshape(-1, n)]
        if all(len(at) >= k for at in rows):
            flat = keys.reshape(-1, n)
            best = [at[np.argsort(row[at], kind="stable")[:k]] for at, row in zip(rows, flat, strict=True)]
            return np.stack(best).reshape(*keys.shape[:-1], k)
    return np.argsort(keys, -1, kind="stable")[..., :k]


def _top(x: Array, k: int, axis: int, largest: int = 1) -> tuple[Array, Array]:
    axis = axis_of(axis, x.ndim)
    _best(x, k, axis)
    keys = x
    if largest:
        # The least integer has no negative, so their bits are turned.
        keys = -x if x.dtype.kind == "f" else ~x
    at = np.moveaxis(least(np.moveaxis(keys, axis, -1), k), -1, axis)
    return np.take_along_axis(x, at, axis), at


@operator(
    "TopK",
    since=10,
    out=(0, "Int64"),
    shape=lambda x, k, axis=-1, largest=1, sorted=1: _best(x, integers(k)[0], axis),
)
def top_k(x: Array, k: Known, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:
    """Return the largest or least elements along an axis, the first among equal ones, and their positions."""
    return _top(x, integers(k)[0], axis, largest)


@operator("TopK", out=(0, "Int64"), shape=lambda x, k, axis=-1: _best(x, k, axis))
def top_k_1(x: Array, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    """Return the largest elements along an axis and their positions."""
    return _top(x, k, axis)


# Sizes that data decide


@operator("NonZero", since=9, out=("Int64",), shape=unknown_shape)
def non_zero(x: Array) -> Array:
    """Return the positions of what is not zero, a column each."""
    return np.stack(np.nonzero(x if x.ndim else x.reshape(1)))


@operator("Compress", since=9, shape=unknown_shape)
def compress(x: Array, mask: Array, *, axis: int | None = None) -> Array:
    """Take the entries of an axis at which a mask is true."""
    axis = None if axis is None else axis_of(axis, x.ndim)
    # A mask that is longer than the axis counts as far as that goes.
    return np.compress(mask[: x.size if axis is None else x.shape[axis]], x, axis)


@operator("Unique", since=11, out=(0, "Int64"), shape=unknown_shape)
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, Array, Array, Array]:
    """Return what is distinct, where each comes first, which of them every entry is, and how often each occurs."""
    axis = None if axis is None or x.ndim < 2 else axis_of(axis, x.ndim)
    y, first, inverse, counts = np.unique(x, True, True, True, axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        y, first, counts, inverse = np.take(y, order, axis or 0), first[order], counts[order], rank[inverse]
    return y, first, inverse, counts

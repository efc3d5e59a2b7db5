"""Gathering and scattering at computed positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays.selection import along
from ...build import emit as e
from ...graph import params as P
from ...graph.dtypes import Array
from ...tensors import Tensor, TracedInt, apply, const
from ...tensors.access import dtype_of, mark_constant, session_of, static_shape
from ..call import NodeCall, lower
from ..values import INT64, UnsupportedNodeError, Value
from . import M, cast, const_like, is_open, of_length, transposed
from .shapes import product, sliced

__all__ = ["from_front", "linear", "ordered", "put"]

_EQ, _LT = P.ElemwiseMultiTypeMode.EQ, P.ElemwiseMultiTypeMode.LT
_MOST_STEPS = 512


def from_front(index: Tensor, size: int) -> Tensor:
    """Positions with those below 0 counted from the end."""
    index = e.whole(index)
    value = e.known(index)
    if value is not None and not isinstance(size, TracedInt):
        return (
            const(np.where(value < 0, value + int(size), value).astype(np.int32))
            if (value < 0).any()
            else index
        )
    if value is not None and not (value < 0).any():
        return index
    below = e.elem(M.COND_LT_MOV, index, const_like(0, index), e.like(size, index))
    return e.elem(M.ADD, index, below)


def _checked(positions: Array | None, size: int) -> None:
    """Refuse constant positions that are outside; of an open size, those that are outside of any tensor."""
    if positions is None or not positions.size:
        return
    limit = 2**31 - 1 if isinstance(size, TracedInt) else int(size)
    if int(positions.max()) >= limit or int(positions.min()) < -limit:
        raise UnsupportedNodeError(f"an index is out of range for {limit} elements")


@lower("Gather")
def _gather(c: NodeCall) -> Tensor:
    x, at = c.t(0), c.t(1)
    axis = c.axis("axis", 0, x.ndim)
    _checked(c.value(1).constant(), x.shape[axis])
    position = c.value(1).constant()
    if position is not None and position.ndim == 0:
        return e.subtensor(x, [(axis, None, None, None, int(position))])
    if 0 in static_shape(at):
        return e.full(const_like(0, x), (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]))
    return e.gather(x, [(axis, e.whole(at))])


@lower("GatherElements")
def _gather_elements(c: NodeCall) -> Tensor:
    x, at = c.t(0), c.t(1)
    axis = c.axis("axis", 0, x.ndim)
    _checked(c.value(1).constant(), x.shape[axis])
    at = from_front(at, x.shape[axis])
    for i in range(x.ndim):
        if i != axis and static_shape(at)[i] != static_shape(x)[i]:
            x = sliced(x, i, 0, at.shape[i])
    return along(x, at, axis)


def _batch_ids(shape: Sequence[int], batch: int, rank: int) -> list[Tensor]:
    """Return positions along the first axes, which broadcast to `rank` axes."""
    return [e.reshape(e.arange(shape[b]), [-1 if i == b else 1 for i in range(rank)]) for b in range(batch)]


@lower("GatherND")
def _gather_nd(c: NodeCall) -> Tensor:
    x, at = c.t(0), e.whole(c.t(1))
    batch = c.number("batch_dims")
    at = of_length(at, at.ndim - 1)
    depth = static_shape(at)[-1]
    rank = at.ndim - 1
    if static_shape(x)[:batch] != static_shape(at)[:batch] or not 0 <= batch < x.ndim:
        raise UnsupportedNodeError(f"its batch_dims is {batch}, but its first axes are not the same")
    ids, positions = _batch_ids(x.shape, batch, rank), c.value(1).constant()
    for i in range(depth):
        _checked(None if positions is None else positions[..., i], x.shape[batch + i])
        part = e.subtensor(at, [(at.ndim - 1, None, None, None, i)])
        ids.append(from_front(part, x.shape[batch + i]))
    return e.gather(x, list(enumerate(ids)))


# Writing


def linear(ids: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Merge positions along several axes into one, counted from the front."""
    total = ids[0]
    for index, size in zip(ids[1:], sizes[1:], strict=True):
        total = e.elem(M.ADD, e.elem(M.MUL, total, e.like(size, total)), index)
    return total


def put(rows: Tensor, at: Tensor, updates: Tensor, how: str) -> Tensor:
    """Replace rows by updates, or combine them.

    Args:
        rows: (P, ...).
        at: (M,) int32, which rows.
        updates: (M, ...).
        how: ONNX's name of the combination.
    """
    if 0 in static_shape(updates):
        return rows
    if how == "none":
        return e.scatter(rows, updates, [(0, at)])
    if how == "add" and dtype_of(rows).name != "Bool":
        return e.scatter(rows, updates, [(0, at)], add=True)
    combine = {
        "mul": lambda a, b: e.elem(M.MUL, a, b),
        "max": lambda a, b: e.elem(M.MAX, a, b),
        "min": lambda a, b: e.elem(M.MIN, a, b),
    }.get(how)
    if combine is None:
        raise UnsupportedNodeError(f"its reduction {how!r} cannot be expressed for {dtype_of(rows)}")
    at = of_length(at, 0)
    for chosen in _rounds(at):
        part, where = e.gather(updates, [(0, chosen)]), e.gather(at, [(0, chosen)])
        rows = e.scatter(rows, combine(e.gather(rows, [(0, where)]), part), [(0, where)])
    return rows


def _rounds(at: Tensor) -> list[Tensor]:
    """Group updates into rounds, none of which has a row twice."""
    rows = e.known(at)
    if rows is None:
        count = static_shape(at)[0]
        if count > _MOST_STEPS:
            raise UnsupportedNodeError(
                f"{count} positions that depend on data are combined one by one; at most {_MOST_STEPS}"
            )
        return [const(np.array([i], np.int32)) for i in range(count)]
    seen: dict[int, int] = {}
    rounds: list[list[int]] = []
    for i, row in enumerate(rows.tolist()):
        n = seen.get(row, 0)
        seen[row] = n + 1
        if n == len(rounds):
            rounds.append([])
        rounds[n].append(i)
    return [const(np.array(r, np.int32)) for r in rounds]


@lower("ScatterElements", "Scatter")
def _scatter_elements(c: NodeCall) -> Tensor:
    x, at, updates = c.t(0), c.t(1), c.t(2)
    axis = c.axis("axis", 0, x.ndim)
    _checked(c.value(1).constant(), x.shape[axis])
    at = from_front(at, x.shape[axis])
    shape = at.shape
    ids = []
    for i in range(x.ndim):
        if i == axis:
            ids.append(at)
        else:
            one = e.reshape(e.arange(shape[i]), [-1 if k == i else 1 for k in range(x.ndim)])
            ids.append(one)
    flat = e.flat(e.broadcast(linear(ids, x.shape), shape))
    all_known = all(e.known(i) is not None for i in ids)
    if all_known:
        mark_constant(flat)
        flat = _settled(flat)
    done = put(e.flat(x), flat, e.flat(updates), c.text("reduction", "none"))
    return e.reshape(done, x.shape)


def _settled(x: Tensor) -> Tensor:
    """Turn a tensor computed from constants into a constant."""
    session = session_of(x)
    return x if session is None else const(np.array(session.value(x)))


@lower("ScatterND")
def _scatter_nd(c: NodeCall) -> Tensor:
    x, at, updates = c.t(0), e.whole(c.t(1)), c.t(2)
    depth = static_shape(at)[-1]
    if 0 in static_shape(at)[:-1]:
        return x
    ids, positions = [], c.value(1).constant()
    for i in range(depth):
        _checked(None if positions is None else positions[..., i], x.shape[i])
        part = e.flat(e.subtensor(at, [(at.ndim - 1, None, None, None, i)]))
        ids.append(from_front(part, x.shape[i]))
    row = linear(ids, x.shape[:depth])
    if positions is not None:
        row = _settled(row)
    rest = x.shape[depth:]
    rows = e.reshape(x, (product(x.shape[:depth]), *rest))
    parts = e.reshape(updates, (product(at.shape[:-1]), *rest))
    done = put(rows, row, parts, c.text("reduction", "none"))
    return e.reshape(done, x.shape)


@lower("TensorScatter")
def _tensor_scatter(c: NodeCall) -> Tensor:
    """Write new entries into a cache along an axis, from a start for each batch."""
    x, updates = c.t(0), c.t(1)
    axis = c.axis("axis", -2, x.ndim)
    size, count = x.shape[axis], updates.shape[axis]
    order = [0, axis, *[i for i in range(1, x.ndim) if i != axis]]
    back = [order.index(i) for i in range(x.ndim)]
    cache, new = transposed(x, order), transposed(updates, order)
    batch = e.reshape(e.arange(x.shape[0]), (-1, 1))
    steps = e.add_axes(e.arange(count), [0])
    start = e.whole(c.t(2)) if c.has(2) else const(np.zeros(1, np.int32))
    at = e.elem(M.ADD, e.add_axes(start, [1]), steps)
    if c.choice("mode", "linear", "circular") == "circular":
        at = e.elem(M.MOD, at, e.like(size, at))
    at = e.broadcast(at, (x.shape[0], count))
    return transposed(e.scatter(cache, new, [(0, batch), (1, at)]), back)


@lower("OneHot", like=2)
def _one_hot(c: NodeCall) -> Tensor:
    at, values = c.t(0), c.t(2)
    depth = int(c.constant(1, "depth").reshape(-1)[0])
    if not 0 <= depth < 1 << 31:
        raise UnsupportedNodeError(f"its depth is {depth}, expected 0 to {(1 << 31) - 1}")
    rank = at.ndim + 1
    axis = c.axis("axis", -1, rank)
    at = e.whole(at)
    at = e.add_axes(from_front(at, depth), [axis])
    grid = e.reshape(e.arange(depth), [-1 if i == axis else 1 for i in range(rank)])
    off, on = (e.subtensor(values, [(0, None, None, None, i)]) for i in (0, 1))
    return e.where(e.compare(_EQ, at, grid), on, off)


@lower("ReverseSequence")
def _reverse_sequence(c: NodeCall) -> Tensor:
    batch, time = c.number("batch_axis", 1), c.number("time_axis", 0)
    if {batch, time} != {0, 1}:
        raise UnsupportedNodeError(f"its batch_axis is {batch} and its time_axis {time}, expected 0 and 1")
    return reversed_sequences(c.t(0), e.whole(c.t(1)), batch, time)


def reversed_sequences(x: Tensor, lengths: Tensor, batch: int, time: int) -> Tensor:
    """Reverse the beginning of every sequence of a batch, as long as its int32 length; the rest stays."""
    shape = [1] * x.ndim
    shape[batch] = -1
    length = e.reshape(lengths, shape)
    shape[batch], shape[time] = 1, -1
    step = e.reshape(e.arange(x.shape[time]), shape)
    turned = e.elem(M.SUB, e.elem(M.SUB, length, const_like(1, length)), step)
    at = e.where(e.compare(_LT, step, length), turned, step)
    full = [n if i in (batch, time) else 1 for i, n in enumerate(x.shape)]
    at = e.broadcast(at, full)
    ids = []
    for i in range(x.ndim):
        place = [-1 if k == i else 1 for k in range(x.ndim)]
        ids.append((i, at if i == time else e.reshape(e.arange(x.shape[i]), place)))
    return e.gather(x, ids)


# Order


def ordered(x: Tensor, axis: int, largest: bool) -> Tensor:
    """Return the positions of sorted elements along an axis; ties keep their order."""
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    back = [order.index(i) for i in range(x.ndim)]
    rows = transposed(x, order)
    keys = e.real(rows) if dtype_of(x).is_float else e.whole(rows)
    if largest and dtype_of(keys).is_float:
        keys = e.elem(M.NEGATE, keys)
    elif largest:
        # Their bits turned, as the least integer has no negative.
        bits = np.iinfo(dtype_of(keys).np)
        keys = e.elem(M.SUB, const_like(bits.max + bits.min, keys), keys)
    flat = e.reshape(keys, (product(keys.shape[:-1]), keys.shape[-1]))
    param = P.Argsort(order=P.ArgsortOrder.ASCENDING)
    _, places = apply("Argsort", param, inputs=[flat], n=2, scalar=False)
    return transposed(e.reshape(places, rows.shape), back)


@lower("TopK")
def _top_k(c: NodeCall) -> tuple[Tensor, Value]:
    x = c.t(0)
    axis = c.axis("axis", -1, x.ndim)
    k: int | Tensor
    if c.opset < 10:
        k = c.number("k")
    else:
        known = c.value(1).constant()
        k = int(known.reshape(-1)[0]) if known is not None else c.sizes(1, "k")[0]
    if not 0 <= int(k) <= static_shape(x)[axis]:
        raise UnsupportedNodeError(f"k is {int(k)}, the axis has {static_shape(x)[axis]}")
    at = sliced(ordered(x, axis, c.flag("largest", 1)), axis, 0, k)
    return along(x, at, axis), Value(INT64, at)


# Sizes that data decide


def _places(mask: Tensor) -> Tensor:
    """Return the positions, in the flattened tensor, where a mask is true."""
    flat = e.flat(mask)
    return e.cond_take(flat, flat)[1]


@lower("NonZero")
def _non_zero(c: NodeCall) -> Value:
    x = c.t(0)
    if not x.ndim:
        x = e.reshape(x, (1,))
    mask = x if e.is_bool(x) else e.logical_not(e.compare(_EQ, x, const_like(0, x)))
    rest = _places(mask)
    rows: list[Tensor] = []
    for n in x.shape[:0:-1]:
        size = e.like(n, rest)
        rows.insert(0, e.add_axes(e.elem(M.MOD, rest, size), [0]))
        rest = e.elem(M.FLOOR_DIV, rest, size)
    rows.insert(0, e.add_axes(rest, [0]))
    return Value(INT64, e.concat(rows, 0))


@lower("Compress")
def _compress(c: NodeCall) -> Tensor:
    x = c.t(0)
    mask = c.t(1)
    if "axis" in c.attributes:
        axis = c.axis("axis", 0, x.ndim)
    else:
        x, axis = e.flat(x), 0
    # A mask that is longer than the axis counts as far as that goes.
    return e.gather(x, [(axis, _places(e.subtensor(mask, [(0, None, x.shape[axis], None, None)])))])


@lower("Unique")
def _unique(c: NodeCall) -> tuple[Tensor | Value, ...]:
    x = c.t(0)
    if "axis" in c.attributes and x.ndim > 1:
        axis = c.axis("axis", 0, x.ndim)
        order = [axis, *[i for i in range(x.ndim) if i != axis]]
        rows = transposed(x, order)
        for i in range(1, rows.ndim):
            rows = of_length(rows, i)
        keys = e.reshape(rows, (rows.shape[0], -1))
    else:
        rows, order = e.flat(x), [0]
        keys = e.reshape(rows, (-1, 1))
    back = [order.index(i) for i in range(len(order))]
    return uniques(rows, keys, back, by_value=c.flag("sorted", 1))


def uniques(rows: Tensor, keys: Tensor, back: list[int], *, by_value: bool) -> tuple[Tensor | Value, ...]:
    """Return distinct rows, the first position of each, the index of every row among them, and counts.

    Args:
        rows: what is returned of each key.
        keys: (N, K), what is compared.
        back: the order of axes in which the result is wanted.
        by_value: whether they are sorted, or stay in the order in which each comes first.
    """
    n = keys.shape[0]
    if static_shape(keys)[1] > 256:
        raise UnsupportedNodeError(
            f"rows of {static_shape(keys)[1]} elements; 256 at most can be sorted one key after another"
        )
    # Ordered by the last column first; every order keeps that of equal ones.
    place = e.arange(n)
    for column in range(static_shape(keys)[1] - 1, -1, -1):
        key = e.subtensor(keys, [(1, None, None, None, column)])
        now = e.gather(key, [(0, place)])
        place = e.gather(place, [(0, ordered(now, 0, False))])
    lined = e.gather(keys, [(0, place)])
    fresh = const(np.ones(1, np.int32))
    if n > 1 or (n == 1 and is_open(n)):
        late, early = sliced(lined, 0, 1, None), sliced(lined, 0, 0, -1)
        differ = e.whole(e.logical_not(e.compare(_EQ, late, early)))
        fresh = e.concat([fresh, e.reduce(differ, P.ReduceMode.MAX, [1])], 0)
    group = _running(fresh)
    starts = _places(cast(fresh, "bool"))
    first = e.gather(place, [(0, starts)])
    inverse = e.scatter(place, e.elem(M.SUB, group, const_like(1, group)), [(0, place)])
    if not by_value:
        by = ordered(first, 0, False)
        first = e.gather(first, [(0, by)])
        rank = e.scatter(by, e.arange(by.shape[0]), [(0, by)])
        inverse = e.gather(rank, [(0, inverse)])
    result = e.gather(rows, [(0, first)])
    counts = e.compare(_EQ, e.add_axes(inverse, [0]), e.add_axes(e.arange(first.shape[0]), [1]))
    how_often = e.reduce(e.whole(counts), P.ReduceMode.SUM, [1])
    others = tuple(Value(INT64, v) for v in (first, inverse, how_often))
    return (transposed(result, back) if result.ndim > 1 else result, *others)


def _running(x: Tensor) -> Tensor:
    from ...arrays.reductions import cumulated  # for start-up

    return cumulated(x, 0)

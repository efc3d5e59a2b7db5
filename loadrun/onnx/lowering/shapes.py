"""Constants, shapes, and operators that move elements without computing with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...build import emit as e
from ...build.layers.sizes import joined
from ...graph import params as P
from ...tensors import Tensor, TracedInt, apply1, const
from ...tensors.access import as_vector, static_shape
from ...tensors.convert import shape_tensor
from ...tensors.symbolic import is_natural, largest, least
from ..call import NodeCall, front, lower
from ..tensors import STRING, dense
from ..values import FLOAT, INT64, UnsupportedNodeError, Value, objects
from . import M, const_like, is_open, transposed

__all__ = ["cut", "flat_to_2d", "product", "sliced"]

_LT = P.ElemwiseMultiTypeMode.LT
_FAR = 2**30
"""From here on a bound means the end, of any size; exporters write the largest integers."""


def product(sizes: Sequence[int]) -> int:
    """Multiply sizes; the product is symbolic if one is."""
    total = 1
    for n in sizes:
        total = n * total
    return total


@lower("Constant", foldable=False)
def _constant(c: NodeCall) -> Value:
    if "sparse_value" in c.attributes:
        sparse = c.attributes["sparse_value"].sparse
        if sparse is None or sparse.values is None:
            raise UnsupportedNodeError("its sparse value is missing")
        return Value(sparse.values.data_type, array=dense(sparse, c.importer.external))
    stored = c.tensor("value")
    if stored is not None:
        return c.importer.stored(stored)
    if "value_float" in c.attributes:
        return Value(FLOAT, array=np.array(c.real("value_float"), np.float32))
    if "value_int" in c.attributes:
        return Value(INT64, array=np.array(c.number("value_int"), np.int64))
    if "value_floats" in c.attributes:
        return Value(FLOAT, array=np.array(c.floats("value_floats"), np.float32))
    if "value_ints" in c.attributes:
        return Value(INT64, array=np.array(c.ints("value_ints"), np.int64))
    for name in ("value_string", "value_strings"):
        if name in c.attributes:
            strings = c.text(name) if name == "value_string" else c.texts(name)
            return Value(STRING, array=np.array(strings, object))
    raise UnsupportedNodeError("it has no value")


@lower("Shape", foldable=False)
def _shape(c: NodeCall) -> Value:
    shape = list(c.value(0).shape)
    n = len(shape)
    start, end = c.number("start"), c.number("end", n)
    start, end = (min(max(v + n if v < 0 else v, 0), n) for v in (start, end))
    return Value.of_sizes(INT64, objects(shape[start:end]))


@lower("Size", foldable=False)
def _size(c: NodeCall) -> Value:
    return Value.of_sizes(INT64, product(c.value(0).shape))


@lower("Reshape")
def _reshape(c: NodeCall) -> Tensor:
    x = c.t(0)
    if c.opset < 5:
        return _reshaped(x, c.ints("shape") or [], False)
    target = c.value(1)
    if target.sizes is None and target.constant() is None:
        return _reshaped_by(c, x)
    return _reshaped(x, c.sizes(1, "shape"), c.flag("allowzero"))


def _reshaped(x: Tensor, target: Sequence[int], allowzero: bool) -> Tensor:
    sizes = list(target)
    if not allowzero:
        for i, n in enumerate(sizes):
            if not isinstance(n, TracedInt) and n == 0:
                if i >= x.ndim:
                    raise UnsupportedNodeError(f"the shape {sizes} copies axis {i} of {x.ndim}")
                sizes[i] = x.shape[i]
    free = [i for i, n in enumerate(sizes) if not isinstance(n, TracedInt) and n == -1]
    if len(free) > 1 or any(int(n) < -1 for n in sizes):
        raise UnsupportedNodeError(f"the shape {[int(n) for n in sizes]} is none")
    if free and 0 in [int(n) for i, n in enumerate(sizes) if i not in free]:
        sizes[free[0]] = 0
    return e.reshape(x, sizes)


def _reshaped_by(c: NodeCall, x: Tensor) -> Tensor:
    """Reshape to sizes that are computed in the graph; the position of -1 is taken from the present ones."""
    known = c.constant(1, "shape")
    wanted = [int(v) for v in known]
    target = c.t(1)
    parts: list[Any] = []
    for i, n in enumerate(wanted):
        if n in (0, -1):
            parts.append(x.shape[i] if n == 0 else 1)
        else:
            parts.append(e.subtensor(target, [(0, None, None, None, i)]))
    free = [i for i, n in enumerate(wanted) if n == -1]
    param = P.OptionalAxisV1(axis=free[0] if free else 7)
    return apply1("ReshapeV1", param, inputs=[as_vector(x), shape_tensor(parts)], scalar=False)


def _empty_2d(x: Tensor, axis: int) -> Tensor:
    rows = int(np.prod([int(n) for n in x.shape[:axis]]))
    columns = int(np.prod([int(n) for n in x.shape[axis:]]))
    return e.reshape(x, (rows, columns))


def flat_to_2d(x: Tensor, axis: int) -> Tensor:
    """Merge the axes before one, and those from it on, to two axes."""
    if x.ndim == 2 and axis == 1:
        return x
    if axis == 0:
        return e.reshape(x, (1, -1))
    rows = 1
    for n in x.shape[:axis]:
        rows = n * rows
    return e.reshape(x, (rows, -1)) if 0 not in static_shape(x) else _empty_2d(x, axis)


@lower("Flatten")
def _flatten(c: NodeCall) -> Tensor:
    x = c.t(0)
    # All axes may be merged into the first one.
    return flat_to_2d(x, x.ndim if c.number("axis", 1) == x.ndim else c.axis("axis", 1, x.ndim))


def _axes(c: NodeCall, what: str = "axes") -> list[int] | None:
    if c.opset >= 13:
        return c.integers(1, what) if c.has(1) else None
    return c.ints("axes")


@lower("Squeeze")
def _squeeze(c: NodeCall) -> Tensor:
    x = c.t(0)
    axes = _axes(c)
    if not axes:
        gone = [i for i, n in enumerate(static_shape(x)) if n == 1]
    else:
        gone = sorted({front(a, x.ndim) for a in axes})
        if any(static_shape(x)[i] != 1 for i in gone):
            raise UnsupportedNodeError(f"axes {gone} of {list(static_shape(x))} are not all 1")
    return e.drop_axes(x, gone)


@lower("Unsqueeze")
def _unsqueeze(c: NodeCall) -> Tensor:
    x = c.t(0)
    axes = _axes(c) or []
    rank = x.ndim + len(axes)
    return e.add_axes(x, {front(a, rank) for a in axes})


@lower("Transpose")
def _transpose(c: NodeCall) -> Tensor:
    x = c.t(0)
    perm = c.ints("perm")
    axes = perm if perm is not None else list(range(x.ndim))[::-1]
    if sorted(axes) != list(range(x.ndim)):
        raise UnsupportedNodeError(f"{axes} is not a permutation of {x.ndim} axes")
    # One that moves nothing stays too: comparing models, it may be the one that should have.
    return e.permute(x, axes, always=True) if x.ndim else x


@lower("Concat")
def _concat(c: NodeCall) -> Tensor:
    xs = [c.t(i) for i in range(len(c.inputs))]
    return joined(xs, c.axis("axis", 1 if c.opset < 4 else 0, xs[0].ndim))


@lower("Split")
def _split(c: NodeCall) -> tuple[Tensor, ...]:
    x = c.t(0)
    axis = c.axis("axis", 0, x.ndim)
    parts: Sequence[int] | None = c.ints("split")
    if (c.opset >= 13 and c.has(1)) or (c.opset < 2 and c.has(1)):
        parts = c.sizes(1, "split")
    if parts is None:
        count = c.number("num_outputs", len(c.wanted)) if c.opset >= 18 else len(c.wanted)
        _check_parts(count, c)
        n = x.shape[axis]
        # Where the parts need not be equal, the last one is smaller.
        each = (n + count - 1) // count if c.opset >= 18 or int(n) % count else n // count
        parts = [each] * (count - 1) + [n - each * (count - 1)]
    _check_parts(len(parts), c)
    result, at = [], 0
    for i, n in enumerate(parts):
        end = None if i == len(parts) - 1 else n + at
        result.append(sliced(x, axis, at, end))
        at = n + at
    return tuple(result)


def _check_parts(count: int, c: NodeCall) -> None:
    if count != len(c.wanted):
        raise UnsupportedNodeError(f"{count} parts were asked for, but the node has {len(c.wanted)} outputs")


def sliced(
    x: Tensor, axis: int, start: int | Tensor | None, stop: int | Tensor | None, step: int = 1
) -> Tensor:
    """Slice an axis between two positions; None for the end."""
    if not isinstance(start, (TracedInt, Tensor)) and start == 0 and stop is None and step == 1:
        return x
    plain = isinstance(start, int) and not isinstance(start, TracedInt) and start == 0
    begin = None if start is None or (plain and step > 0) else start
    return e.subtensor(x, [(axis, begin, stop, None if step == 1 else step, None)])


@lower("Slice")
def _slice(c: NodeCall) -> Tensor:
    x = c.t(0)
    starts: Sequence[int | Tensor]
    ends: Sequence[int | Tensor]
    if c.opset < 10:
        starts, ends = c.ints("starts") or [], c.ints("ends") or []
        axes = c.ints("axes") or list(range(len(starts)))
        steps = [1] * len(starts)
    else:
        count = c.value(1).numbers[0]
        axes = c.integers(3, "axes") if c.has(3) else list(range(count))
        steps = c.integers(4, "steps") if c.has(4) else [1] * len(axes)
        starts, ends = _bounds(c, 1), _bounds(c, 2)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        x = cut(x, front(axis, x.ndim), start, end, max(-_FAR, min(step, _FAR)))
    return x


def _bounds(c: NodeCall, i: int) -> Sequence[int | Tensor]:
    value = c.value(i)
    if value.sizes is not None:
        return list(value.sizes.reshape(-1))
    constant = value.constant()
    if constant is not None:
        return [int(v) for v in constant.reshape(-1)]
    whole = value.tensor
    return [e.subtensor(whole, [(0, None, None, None, k)]) for k in range(value.numbers[0])]


def cut(x: Tensor, axis: int, start: int | Tensor, end: int | Tensor, step: int) -> Tensor:
    """Slice one axis. Bounds beyond the ends are clamped, which MegEngine's kernels do not all do."""
    if step == 0:
        raise UnsupportedNodeError("a step is 0")
    size = x.shape[axis]
    n = int(size)
    if step < 0 and (isinstance(start, Tensor) or isinstance(end, Tensor)):
        like = start if isinstance(start, Tensor) else end
        bounds = [_from_the_end(b, size, like, least) for b, least in ((start, 0), (end, -1))]
        return _forward(x, axis, bounds, step)
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        return e.subtensor(
            x, [(axis, _within(start, size), _within(end, size), None if step == 1 else step, None)]
        )
    if step < 0:
        return _cut_back(x, axis, start, end, step)
    begin = _placed(start, size, n)
    stop = _placed(end, size, n)
    first = None if not isinstance(begin, TracedInt) and begin == 0 else begin
    last = None if not isinstance(stop, TracedInt) and int(stop) >= n else stop
    if first is None and last is None and step == 1:
        return x
    if last is not None and int(last) <= int(first or 0):
        # Empty at these sizes, but maybe not at others.
        last = largest(last, first or 0) if is_open(last, first or 0) else first or 0
    return e.subtensor(x, [(axis, first, last, None if step == 1 else step, None)])


def _forward(x: Tensor, axis: int, bounds: Sequence[int | Tensor], step: int) -> Tensor:
    """Go forward in the reversed axis, from and up to bounds counted there: no number says "back to the first"."""
    x = e.subtensor(x, [(axis, None, None, -1, None)])
    return e.subtensor(x, [(axis, bounds[0], bounds[1], None if step == -1 else -step, None)])


def _placed(bound: int, size: int, n: int) -> int:
    """Count a bound from the front and clamp it to the ends, at any size; a large number stands for the end."""
    if isinstance(bound, TracedInt):
        return bound if is_natural(bound) else largest(_from_front(bound, size), 0)
    at = int(bound)
    if at >= _FAR:
        return _FAR
    if at < 0:
        if at == -1 and n:
            return size - 1
        return largest(size + at, 0) if is_open(size) and at > -_FAR else max(n + at, 0)
    if at < n:
        return at
    return least(size, at) if is_open(size) else n


def _cut_back(x: Tensor, axis: int, start: int, end: int, step: int) -> Tensor:
    size = x.shape[axis]
    begin, stop = _placed_back(start, size, 0), _placed_back(end, size, -1)
    if is_open(begin, stop):
        bounds = [_larger(size - 1 - begin, 0), _larger(size - 1 - stop, _larger(size - 1 - begin, 0))]
        return _forward(x, axis, bounds, step)
    if begin <= stop:
        return e.subtensor(x, [(axis, 0, 0, None, None)])
    return e.subtensor(
        x, [(axis, None if begin == size - 1 else begin, None if stop < 0 else stop, step, None)]
    )


def _placed_back(bound: int, size: int, first: int) -> int:
    """Count a bound of a slice that goes back from the front, and clamp it to the last entry and to `first`."""
    if not isinstance(bound, TracedInt):
        bound = max(min(int(bound), _FAR), -_FAR)
    at = _larger(_from_front(bound, size), first)
    return least(at, size - 1) if is_open(at, size) else min(at, size - 1)


def _from_front(bound: int, size: int) -> int:
    """Count a bound from the front, whatever its sign is at other sizes."""
    if not is_open(bound):
        return bound + size if bound < 0 else bound
    return bound if is_natural(bound) else bound + size * least(largest(0 - bound, 0), 1)


def _larger(a: int, b: int) -> int:
    number: int = largest(a, b) if is_open(a, b) else max(a, b)
    return number


def _within(bound: int | Tensor, size: int) -> int | Tensor:
    """Clamp a bound from the graph to the ends."""
    if not isinstance(bound, Tensor):
        return max(min(int(bound), 2**31 - 1), -(2**31 - 1))
    top = e.like(size, bound)
    return e.elem(M.MIN, e.elem(M.MAX, bound, e.elem(M.NEGATE, top)), top)


def _from_the_end(bound: int | Tensor, size: int, like: int | Tensor, first: int) -> Tensor:
    """Do as `_placed_back`, and count from the last entry; bounds are tensors or like one."""
    assert isinstance(like, Tensor)
    at = bound if isinstance(bound, Tensor) else e.number(max(min(int(bound), _FAR), -_FAR), like)
    last = e.like(size - 1, at)
    at = e.where(e.compare(_LT, at, e.number(0, at)), e.elem(M.ADD, at, e.like(size, at)), at)
    return e.elem(M.SUB, last, e.elem(M.MIN, e.elem(M.MAX, at, e.number(first, at)), last))


@lower("Expand")
def _expand(c: NodeCall) -> Tensor:
    x = c.t(0)
    value = c.value(1)
    if value.sizes is None and value.constant() is None and value.supposed() is None:
        return _expanded_by(x, c.t(1))
    target = c.sizes(1, "shape")
    return e.broadcast(x, e.broadcast_shape([x, tuple(target)]))


def _expanded_by(x: Tensor, target: Tensor) -> Tensor:
    """Expand to a shape that data decide; only its length is known."""
    rank = max(x.ndim, static_shape(target)[0])
    own = shape_tensor((1,) * (rank - x.ndim) + tuple(x.shape))
    missing = rank - static_shape(target)[0]
    if missing:
        target = e.concat([const(np.ones(missing, np.int32)), target], 0)
    one = e.compare(P.ElemwiseMultiTypeMode.EQ, target, const_like(1, target))
    return apply1("Broadcast", P.Empty(), inputs=[as_vector(x), e.where(one, own, target)], scalar=False)


@lower("Tile")
def _tile(c: NodeCall) -> Tensor:
    x = c.t(0)
    if c.opset < 6:
        axis = int(c.constant(2, "axis").item())
        repeats = [1] * x.ndim
        repeats[axis] = int(c.constant(1, "tiles").item())
        return tiled(x, repeats)
    return tiled(x, c.sizes(1, "repeats"))


def tiled(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """Repeat the tensor along its axes."""
    for axis, count in enumerate(repeats):
        if not isinstance(count, TracedInt) and int(count) == 1:
            continue
        shape = x.shape
        wide = e.add_axes(x, [axis])
        wide = e.broadcast(wide, (*shape[:axis], count, *shape[axis:]))
        x = e.reshape(wide, (*shape[:axis], count * shape[axis], *shape[axis + 1 :]))
    return x


def _block_size(c: NodeCall, x: Tensor) -> int:
    b = c.number("blocksize")
    if b < 1 or x.ndim != 4:
        raise UnsupportedNodeError(f"blocks of size {b} in {x.ndim} axes; expected at least 1, and 4 axes")
    return b


@lower("DepthToSpace")
def _depth_to_space(c: NodeCall) -> Tensor:
    x = c.t(0)
    b = _block_size(c, x)
    n, d, h, w = x.shape
    if c.choice("mode", "DCR", "CRD") == "DCR":
        y = transposed(e.reshape(x, (n, b, b, d // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = transposed(e.reshape(x, (n, d // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return e.reshape(y, (n, d // (b * b), h * b, w * b))


@lower("SpaceToDepth")
def _space_to_depth(c: NodeCall) -> Tensor:
    x = c.t(0)
    b = _block_size(c, x)
    n, d, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if c.choice("mode", "DCR", "CRD") == "DCR" else (0, 1, 3, 5, 2, 4)
    y = transposed(e.reshape(x, (n, d, h // b, b, w // b, b)), order)
    return e.reshape(y, (n, d * (b * b), h // b, w // b))

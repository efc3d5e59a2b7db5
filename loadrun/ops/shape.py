"""Operators that give a tensor another shape, join and cut tensors.

Semantics follow MegEngine's ``tensor_manip`` operators. Results are views of their input wherever numpy can
express them.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..graph import Opr, params as P
from ..graph.dtypes import Array, DType, plain
from .registry import Bound, Call, Shape, ShapeCall, UnknownShape, first_input, int32, kernel

MAX_NDIM = 7
"""No MegEngine tensor has more dimensions."""
NO_AXIS = 7
"""`OptionalAxisV1.axis` when no axis is meant."""


def integers(value: Array, what: str) -> tuple[int, ...]:
    """Return the numbers of a one-dimensional tensor, which must be whole.

    Raises:
        ValueError: it has another rank, or holds fractions.

    >>> integers(np.array([2, 3], "i4"), "shape")
    (2, 3)
    """
    if value.ndim != 1:
        raise ValueError(f"the {what} must be one-dimensional, found shape {list(value.shape)}")
    numbers = value.tolist()
    whole = tuple(int(v) for v in numbers) if all(np.isfinite(numbers)) else ()
    if list(whole) != numbers:
        raise ValueError(f"the {what} must hold whole numbers, found {numbers[:8]}")
    return whole


def target_shape(value: Array, placeholder: int | None = None) -> Shape:
    """Read a shape from a tensor's value; entry `placeholder` may hold anything.

    Raises:
        ValueError: not a vector of one to seven whole, non-negative numbers.
    """
    if value.size > MAX_NDIM:
        raise ValueError(f"a shape has 1 to {MAX_NDIM} dimensions, found {value.size}")
    shape = integers(value, "shape")
    if not shape:
        raise ValueError(f"a shape has 1 to {MAX_NDIM} dimensions, found 0")
    if any(n < 0 for i, n in enumerate(shape) if i != placeholder):
        raise ValueError(f"a shape cannot have negative dimensions, found {list(shape)}")
    return shape


def known_value(s: ShapeCall, index: int) -> Array:
    """Return the value of an input that a shape rule needs; an unknown one makes the outputs' shapes unknown."""
    value = s.values[index]
    if value is None:
        raise UnknownShape
    return value


def axis_of(axis: int, ndim: int) -> int:
    """Return a possibly negative axis as a number from 0.

    Raises:
        ValueError: there is no such axis.

    >>> axis_of(-1, 3)
    2
    """
    if not -ndim <= axis < ndim:
        raise ValueError(f"there is no axis {axis} in a tensor of {ndim} dimensions")
    return axis % ndim


def c_cast(value: float, dtype: np.dtype[Any]) -> np.generic:
    """Convert a float32 number to an integer as C does: fractions are cut off, numbers out of range wrap.

    >>> int(c_cast(-1.5, np.dtype("u1")))
    255
    """
    if dtype.kind in "iu":
        whole = int(value) if np.isfinite(value) else 0
        return np.uint64(whole & (2 ** (8 * dtype.itemsize) - 1)).astype(dtype)
    return dtype.type(value)


# GetVarShape


def _common_shape(shapes: Sequence[Shape]) -> Shape:
    out: Shape = (1,)
    for cur in shapes:
        if out == (1,):
            out = cur
        elif cur != (1,):
            n = max(len(out), len(cur))
            pairs = zip((1,) * (n - len(out)) + out, (1,) * (n - len(cur)) + cur, strict=True)
            merged = []
            for a, b in pairs:
                if a != b and a > 1 and b > 1:
                    raise ValueError(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
                merged.append(max(a, b) if a and b else 0)
            out = tuple(merged)
    return out


def _get_var_shape_shape(s: ShapeCall) -> Sequence[Shape | None]:
    if s.get(P.OptionalAxisV1).axis != NO_AXIS:
        return ((1,),)
    return ((len(_common_shape([s.shape(i) for i in range(len(s.shapes))])),),)


@kernel("GetVarShapeV1", dtype=int32, shape=_get_var_shape_shape)
def get_var_shape(c: Call, *xs: Array) -> Array:
    """Return the shape that all inputs broadcast to as an int32 vector, or one entry of it as ``[1]``.

    Raises:
        ValueError: the inputs do not broadcast together, or the axis does not exist.
    """
    axis = c.get(P.OptionalAxisV1).axis
    shape = _common_shape([x.shape for x in xs])
    return np.array(shape if axis == NO_AXIS else (shape[axis_of(axis, len(shape))],), np.int32)


# Reshape and Broadcast


def _reshape_target(opr: Opr, shape: Shape, target: Array) -> Shape:
    axis = opr.get(P.OptionalAxisV1).axis
    if axis == NO_AXIS:
        want = target_shape(target)
    else:
        axis = axis_of(axis, target.size)
        dims = target_shape(target, axis)
        rest = prod(dims[:axis] + dims[axis + 1 :])
        if not rest or prod(shape) % rest:
            raise ValueError(
                f"cannot reshape {list(shape)} to {list(dims)} with dimension {axis} following from the others"
            )
        want = (*dims[:axis], prod(shape) // rest, *dims[axis + 1 :])
    if prod(want) != prod(shape):
        raise ValueError(
            f"cannot reshape {list(shape)} ({prod(shape)} elements) to {list(want)} ({prod(want)} elements)"
        )
    return want


def _reshape_shape(s: ShapeCall) -> Sequence[Shape | None]:
    target = known_value(s, 1)
    if s.get(P.OptionalAxisV1).axis == NO_AXIS and s.shapes[0] is None:
        return (target_shape(target),)
    return (_reshape_target(s.opr, s.shape(0), target),)


def _bind_reshape(c: Call, s: ShapeCall) -> Bound | None:
    (shape,) = _reshape_shape(s)
    return lambda out, x, target: x.reshape(shape)


@kernel("ReshapeV1", dtype=first_input, shape=_reshape_shape, bind=_bind_reshape)
def reshape(c: Call, x: Array, target: Array) -> Array:
    """Put the elements into another shape; with an axis set, that entry of the target follows from the others.

    Raises:
        ValueError: the numbers of elements differ.
    """
    return x.reshape(_reshape_target(c.opr, x.shape, target))


def _broadcast_target(shape: Shape, want: Shape) -> Shape:
    padded = (1,) * (len(want) - len(shape)) + shape
    if shape == (1,) or (
        len(padded) == len(want) and all(a in (1, b) for a, b in zip(padded, want, strict=True))
    ):
        return want
    raise ValueError(f"cannot broadcast {list(shape)} to {list(want)}")


def _broadcast_shape(s: ShapeCall) -> Sequence[Shape | None]:
    want = target_shape(known_value(s, 1))
    if s.shapes[0] is not None:
        _broadcast_target(s.shapes[0], want)
    return (want,)


@kernel("Broadcast", dtype=first_input, shape=_broadcast_shape)
def broadcast(c: Call, x: Array, target: Array) -> Array:
    """Repeat the input along its axes of size 1 (and new leading ones) up to the target shape.

    Raises:
        ValueError: the shape does not broadcast to the target.
    """
    return np.broadcast_to(x, _broadcast_target(x.shape, target_shape(target)))


# Dimshuffle and AxisAddRemove


def _dimshuffle(p: P.Dimshuffle, shape: Shape) -> tuple[list[int], Shape]:
    """Return the transposition of the used axes, and the resulting shape."""
    ndim = p.ndim or max(p.pattern, default=-1) + 1
    if not 0 < len(p.pattern) <= MAX_NDIM:
        raise ValueError(f"the pattern must have 1 to {MAX_NDIM} entries, found {len(p.pattern)}")
    if len(shape) != ndim:
        raise ValueError(f"the pattern is for {ndim} dimensions, found shape {list(shape)}")
    used = [a for a in p.pattern if a >= 0]
    if any(not -1 <= a < ndim for a in p.pattern) or len(set(used)) != len(used):
        raise ValueError(f"pattern {list(p.pattern)} does not select axes of {ndim} dimensions once each")
    lost = [a for a in range(ndim) if a not in used]
    if any(shape[a] != 1 for a in lost):
        raise ValueError(f"pattern {list(p.pattern)} drops an axis of {list(shape)} whose size is not 1")
    return used + lost, tuple(1 if a < 0 else shape[a] for a in p.pattern)


def _dimshuffle_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_dimshuffle(s.get(P.Dimshuffle), s.shape(0))[1],)


def _bind_dimshuffle(c: Call, s: ShapeCall) -> Bound | None:
    p = c.get(P.Dimshuffle)
    order, _ = _dimshuffle(p, s.shape(0))
    if -1 in p.pattern or len(order) != len(p.pattern):
        return None
    return lambda out, x: x.transpose(order)


@kernel("Dimshuffle", dtype=first_input, shape=_dimshuffle_shape, bind=_bind_dimshuffle)
def dimshuffle(c: Call, x: Array) -> Array:
    """Put axes into the order of the pattern; -1 makes a new axis of size 1, axes left out must have size 1.

    Raises:
        ValueError: the pattern does not fit the shape; an axis named twice is refused too, since MegEngine
            reads beyond the tensor there.
    """
    p = c.get(P.Dimshuffle)
    order, _ = _dimshuffle(p, x.shape)
    used = sum(a >= 0 for a in p.pattern)
    moved = x.transpose(order)[(slice(None),) * used + (0,) * (x.ndim - used) + (Ellipsis,)]
    return moved[tuple(None if a < 0 else slice(None) for a in p.pattern)]


def _axis_add_remove(p: P.AxisAddRemove, shape: Shape) -> Shape:
    if not p.desc:
        raise ValueError("the list of axes to add and remove is empty")
    out = list(shape)
    for method, axis in p.desc:
        if method == 0:
            if len(out) == MAX_NDIM:
                raise ValueError(f"cannot add an axis to {MAX_NDIM} dimensions")
            out.insert(axis_of(axis, len(out) + 1), 1)
        elif method == 1:
            at = axis_of(axis, len(out))
            if out[at] != 1:
                raise ValueError(f"cannot remove axis {at} of {out}: its size is not 1")
            if len(out) > 1:
                del out[at]
        else:
            raise ValueError(f"method {method} is neither 0 (add) nor 1 (remove)")
    return tuple(out)


def _axis_add_remove_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_axis_add_remove(s.get(P.AxisAddRemove), s.shape(0)),)


def _bind_axis_add_remove(c: Call, s: ShapeCall) -> Bound | None:
    shape = _axis_add_remove(c.get(P.AxisAddRemove), s.shape(0))
    return lambda out, x: x.reshape(shape)


@kernel("AxisAddRemove", dtype=first_input, shape=_axis_add_remove_shape, bind=_bind_axis_add_remove)
def axis_add_remove(c: Call, x: Array) -> Array:
    """Insert and remove axes of size 1, one after the other; the only axis of ``[1]`` stays.

    Raises:
        ValueError: an axis does not exist, or one to remove has another size.
    """
    return x.reshape(_axis_add_remove(c.get(P.AxisAddRemove), x.shape))


# Concat and Split


def promote(dtypes: Sequence[DType]) -> DType:
    """Return the dtype that inputs of several dtypes are converted to before they are joined.

    Raises:
        ValueError: MegEngine has no common dtype for them.

    >>> str(promote([DType("Int32"), DType("Float16")]))
    'Float32'
    """
    out = dtypes[0]
    for cur in dtypes[1:]:
        if cur == out:
            continue
        if out.is_quantized or cur.is_quantized:
            near = abs(out.scale - cur.scale) < 1e-6 and out.zero_point == cur.zero_point
            if out.name != cur.name or not near:
                raise ValueError(f"there is no common dtype for {out} and {cur}")
            continue
        a, b = (plain("Float32") if d.name == "Float16" else d for d in (out, cur))
        kinds = [d.np.kind.replace("u", "i") for d in (a, b)]
        if kinds[0] != kinds[1]:
            out = plain("Float32")
        elif a.np.kind != b.np.kind:
            raise ValueError(f"there is no common dtype for {out} and {cur}")
        else:
            out = a if a.bits > b.bits else b
    return out


def _concat(axis: int, shapes: Sequence[Shape]) -> Shape:
    first = shapes[0]
    at = axis_of(axis, len(first))
    for i, s in enumerate(shapes):
        if len(s) != len(first) or s[:at] + s[at + 1 :] != first[:at] + first[at + 1 :]:
            raise ValueError(
                f"input {i} of shape {list(s)} cannot be joined with {list(first)} along axis {at}"
            )
    return (*first[:at], sum(s[at] for s in shapes), *first[at + 1 :])


def _concat_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_concat(s.get(P.Axis).axis, [s.shape(i) for i in range(len(s.shapes))]),)


@kernel("Concat", dtype=lambda opr, inputs: (opr.output_dtype or promote(inputs),), shape=_concat_shape)
def concat(c: Call, *xs: Array) -> Array:
    """Join the inputs along an axis.

    Raises:
        ValueError: shapes differ in another axis.
    """
    axis = c.get(P.Axis).axis
    _concat(axis, [x.shape for x in xs])
    want = c.outputs[0].np
    return np.concatenate([x if x.dtype == want else x.astype(want) for x in xs], axis)


def _split(axis: int, shape: Shape, sizes: Sequence[int]) -> tuple[int, list[Shape]]:
    at = axis_of(axis, len(shape))
    if any(n < 0 for n in sizes) or sum(sizes) != shape[at]:
        raise ValueError(f"sizes {list(sizes)} do not sum to {shape[at]}, axis {at} of {list(shape)}")
    return at, [(*shape[:at], n, *shape[at + 1 :]) for n in sizes]


def scalar(value: Array, what: str) -> int:
    """Return the integer in a tensor of shape ``[1]``.

    Raises:
        ValueError: another shape, or a fraction.
    """
    if value.shape != (1,):
        raise ValueError(f"the {what} must be a scalar, found shape {list(value.shape)}")
    return integers(value, what)[0]


def _split_shape(s: ShapeCall) -> Sequence[Shape | None]:
    sizes = [scalar(known_value(s, i), "size") for i in range(1, len(s.shapes))]
    return _split(s.get(P.Axis).axis, s.shape(0), sizes)[1]


@kernel("Split", dtype=first_input, shape=_split_shape)
def split(c: Call, x: Array, *sizes: Array) -> tuple[Array, ...]:
    """Cut the input along an axis into parts of the given sizes.

    Raises:
        ValueError: the sizes do not sum to the axis.
    """
    lengths = [scalar(n, "size") for n in sizes]
    at, _ = _split(c.get(P.Axis).axis, x.shape, lengths)
    stops = np.cumsum(lengths).tolist()
    lead = (slice(None),) * at
    return tuple(x[lead + (slice(b - n, b),)] for n, b in zip(lengths, stops, strict=True))

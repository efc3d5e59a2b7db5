"""Operators that pad, fill and make simple tensors.

Semantics follow MegEngine's ``tensor_gen`` operators and its naive Padding, Diag, Eye, Linspace, MaskedFill and
Where kernels.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from ..graph import Opr, params as P
from ..graph.dtypes import Array, DType, plain
from .registry import Call, Shape, first_input, kernel
from .shape import MAX_NDIM, c_cast, known_value, target_shape

# Padding


def _padding(p: P.Padding, shape: Shape) -> tuple[list[tuple[int, int]], Shape]:
    if len(shape) > MAX_NDIM:
        raise ValueError(f"padding takes 1 to {MAX_NDIM} dimensions, found {len(shape)}")
    sides = [
        (int(getattr(p, f"front_offset_dim{i}")), int(getattr(p, f"back_offset_dim{i}")))
        for i in range(len(shape))
    ]
    if p.padding_mode == P.PaddingMode.REFLECT and any(
        front >= n or back >= n for (front, back), n in zip(sides, shape, strict=True)
    ):
        raise ValueError(f"reflection by {sides} needs larger dimensions than {list(shape)}")
    if p.padding_mode == P.PaddingMode.REPLICATE and 0 in shape and any(map(any, sides)):
        raise ValueError(f"there is no edge to repeat in an empty tensor of shape {list(shape)}")
    return sides, tuple(front + n + back for (front, back), n in zip(sides, shape, strict=True))


def _padding_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name in ("Bool", "IntB1", "IntB2", "IntB4"):
        raise ValueError(f"padding does not take {inputs[0]}")
    return (inputs[0],)


@kernel("Padding", dtype=_padding_dtype, shape=lambda s: (_padding(s.get(P.Padding), s.shape(0))[1],))
def padding(c: Call, x: Array) -> Array:
    """Add a border to the input: a constant, the edge repeated, or a reflection without the edge itself.

    The constant is a stored number, not a real one, for quantized types.

    Raises:
        ValueError: a reflection as wide as the dimension itself.
    """
    p = c.get(P.Padding)
    sides, want = _padding(p, x.shape)
    if p.padding_mode == P.PaddingMode.CONSTANT:
        out = np.full(want, c_cast(p.padding_val, x.dtype), x.dtype)
        out[tuple(slice(front, front + n) for (front, _), n in zip(sides, x.shape, strict=True))] = x
        return out
    out = x
    for axis, at in enumerate(_padding_sources(p, x.shape)):
        if len(at) > x.shape[axis]:
            out = out.take(at, axis)
    return out


def _padding_sources(p: P.Padding, shape: Shape) -> list[Array]:
    """Return, for every axis, which element each element of the padded axis repeats; outside where it is constant."""
    sources = []
    for (front, back), n in zip(_padding(p, shape)[0], shape, strict=True):
        at = np.arange(-front, n + back)
        if p.padding_mode == P.PaddingMode.REPLICATE:
            at = at.clip(0, max(n - 1, 0))
        elif p.padding_mode == P.PaddingMode.REFLECT:
            at = np.minimum(np.abs(at), 2 * n - 2 - np.abs(at))
        sources.append(at)
    return sources


# Diag, Eye, Linspace, Alloc


def _diag(k: int, shape: Shape) -> Shape:
    if len(shape) == 1:
        return (shape[0] + abs(k),) * 2
    if len(shape) != 2:
        raise ValueError(f"expected a vector or a matrix, found shape {list(shape)}")
    m, n = shape
    length = min(n - k, m) if k >= 0 else min(m + k, n)
    if length <= 0 and m * n:
        raise ValueError(f"diagonal {k} lies outside a matrix of shape {list(shape)}")
    return (max(length, 0),)


@kernel("Diag", dtype=first_input, shape=lambda s: (_diag(s.get(P.Diag).k, s.shape(0)),))
def diag(c: Call, x: Array) -> Array:
    """Return diagonal `k` of a matrix, or the matrix that has a vector as its diagonal `k` and zeros elsewhere.

    Raises:
        ValueError: neither vector nor matrix, or the diagonal is outside the matrix.
    """
    k = c.get(P.Diag).k
    want = _diag(k, x.shape)
    if x.ndim == 2:
        return np.diagonal(x, k) if want[0] else np.empty(0, x.dtype)
    out = np.zeros(want, x.dtype)
    np.fill_diagonal(out[max(-k, 0) :, max(k, 0) :], x)
    return out


def _eye(value: Array) -> Shape:
    shape = target_shape(value)
    if len(shape) > 2:
        raise ValueError(f"an identity matrix has 1 or 2 dimensions, found shape {list(shape)}")
    return shape if len(shape) == 2 else shape * 2


@kernel(
    "Eye",
    dtype=lambda opr, inputs: (plain(opr.get(P.Eye).dtype.name),),
    shape=lambda s: (_eye(known_value(s, 0)),),
)
def eye(c: Call, shape: Array) -> Array:
    """Make a matrix with ones on diagonal `k`; one number as shape means a square."""
    rows, columns = _eye(shape)
    out = np.zeros((rows, columns), c.outputs[0].np)
    k = c.get(P.Eye).k
    np.fill_diagonal(out[max(-k, 0) :, max(k, 0) :], 1)
    return out


@kernel(
    "Linspace",
    dtype=lambda opr, inputs: (plain("Float32"),),
    shape=lambda s: (target_shape(known_value(s, 2)),),
)
def linspace(c: Call, start: Array, stop: Array, num: Array) -> Array:
    """Space float32 numbers evenly from start to stop, computed in double precision.

    Raises:
        ValueError: start or stop is no scalar.
    """
    if start.shape != (1,) or stop.shape != (1,):
        raise ValueError(f"start and stop must be scalars, found {list(start.shape)}, {list(stop.shape)}")
    shape = target_shape(num)
    n = prod(shape)
    first, last = float(start[0]), float(stop[0])
    step = (last - first) / max(n - 1 if c.get(P.Linspace).endpoint else n, 1)
    return (first + np.arange(n) * step).astype(np.float32).reshape(shape)


@kernel(
    "Alloc",
    dtype=lambda opr, inputs: (opr.output_dtype or plain(opr.get(P.DTypeParam).dtype.name),),
    shape=lambda s: (target_shape(known_value(s, 0)),),
)
def alloc(c: Call, shape: Array) -> Array:
    """Make zeros of that shape; MegEngine leaves the memory as it finds it."""
    return np.zeros(target_shape(shape), c.outputs[0].np)


# MaskedFill and Where


def _agree(shape: Shape, want: Shape, what: str) -> None:
    if shape != want:
        raise ValueError(f"{what} has shape {list(shape)}, expected {list(want)}")


def _masked_fill_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[1].name != "Bool":
        raise ValueError(f"the mask must be Bool, found {inputs[1]}")
    return (inputs[0],)


def _leading(shape: Shape, mask: Shape) -> Shape:
    _agree(mask, shape[: len(mask)], "the mask")
    return shape


@kernel("MaskedFill", dtype=_masked_fill_dtype, shape=lambda s: (_leading(s.shape(0), s.shape(1)),))
def masked_fill(c: Call, x: Array, mask: Array) -> Array:
    """Put `value` into the input where the mask, which has the input's leading dimensions, is true.

    Raises:
        ValueError: the mask's shape is not the beginning of the input's.
    """
    _leading(x.shape, mask.shape)
    wide = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
    return np.where(wide, c_cast(c.get(P.Fill).value, x.dtype), x)


def _where_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    mask, x, y = inputs
    if mask.name != "Bool" or x != y or x.is_quantized:
        raise ValueError(f"expected a Bool mask and two tensors of one plain dtype, found {mask}, {x}, {y}")
    return (x,)


def _where_shapes(mask: Shape, x: Shape, y: Shape) -> Shape:
    _agree(mask, x, "the mask")
    _agree(y, x, "the second tensor")
    return x


@kernel("Where", dtype=_where_dtype, shape=lambda s: (_where_shapes(s.shape(0), s.shape(1), s.shape(2)),))
def where(c: Call, mask: Array, x: Array, y: Array) -> Array:
    """Take the elements of `x` where the mask is true, else of `y`; all three have one shape.

    Raises:
        ValueError: the shapes differ.
    """
    _where_shapes(mask.shape, x.shape, y.shape)
    return np.where(mask, x, y)

"""ReduceV2 and CumsumV1.

Reducing several axes follows MegEngine's scheduler: neighbouring reduced axes become one, then the longest is
reduced first, each with a result of the operator's own dtype. That order shows in integer means, which truncate
at every step, and in float16 sums, which round after every addition.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from ..graph import Opr
from ..graph.dtypes import Array, DType, plain
from ..graph.params import Cumsum, Reduce, ReduceDataType as Kind, ReduceMode as Mode
from .numeric.quant import round_away
from .numeric.special import lowest, rounded, stored, sum_rounded
from .registry import Bound, Call, Shape, ShapeCall, kernel, per_input
from .shape import axis_of
from .typecvt import convert

_MAX_NDIM = 7
_REFUSED = {
    "Quantized8Asymm": (Mode.SUM, Mode.SUM_SQR, Mode.PRODUCT),
    "QuantizedS8": (Mode.SUM_SQR, Mode.PRODUCT),
    "QuantizedS32": (Mode.SUM, Mode.MEAN),
}
"""Modes that a quantized type cannot have without a data type."""
_LONG = 4096
"""Longer sums over an axis that is not the last are added in two halves, which keeps float32 exact enough."""


def _by_target(p: Reduce) -> bool:
    return not -_MAX_NDIM <= p.axis < _MAX_NDIM


def _out_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    p = opr.get(Reduce)
    want = 2 if _by_target(p) else 1
    if len(inputs) != want:
        raise ValueError(f"Reduce with axis {p.axis} takes {want} inputs, found {len(inputs)}")
    src = inputs[0]
    if src.is_quantized and p.data_type == Kind.DEFAULT and p.mode in _REFUSED.get(src.name, tuple(Mode)):
        raise ValueError(f"Reduce {p.mode.name} does not take {src}")
    if src.name == "Uint16":
        raise ValueError(f"Reduce {p.mode.name} does not take Uint16; convert it to int32 or float32")
    if p.data_type in (Kind.FLOAT_O16xC32, Kind.FLOAT_IO16xC32):
        if not src.is_float:
            raise ValueError(f"Reduce {p.data_type.name} takes float inputs, found {src}")
        return (plain("Float16"),)
    if p.data_type == Kind.FLOAT_O32xC32:
        return (plain("Float32"),)
    if p.data_type in (Kind.QUINT_I8xO32, Kind.QINT_I8xO32):
        name = "Quantized8Asymm" if p.data_type == Kind.QUINT_I8xO32 else "QuantizedS8"
        if src.name != name:
            raise ValueError(f"Reduce {p.data_type.name} takes {name}, found {src}")
        return (DType("QuantizedS32", src.scale),)
    return (src,)


def target_axes(shape: Shape, target: Shape) -> tuple[int, ...]:
    """Return the axes over which `shape` is reduced to `target`; a target of fewer dimensions is aligned to the right.

    Raises:
        ValueError: a size of the target is neither 1 nor that of the input.

    >>> target_axes((2, 3, 4), (2, 1, 4)), target_axes((2, 3, 4), (1,))
    ((1,), (0, 1, 2))
    """
    if target == (1,):
        return tuple(range(len(shape)))
    full = (1,) * (len(shape) - len(target)) + target
    if len(full) != len(shape) or any(t not in (1, n) for t, n in zip(full, shape, strict=True)):
        raise ValueError(f"shape {list(shape)} cannot be reduced to {list(target)}")
    return tuple(i for i, (t, n) in enumerate(zip(full, shape, strict=True)) if t != n)


def _shape(s: ShapeCall) -> Sequence[Shape | None]:
    p = s.get(Reduce)
    src = s.shape(0)
    if _by_target(p):
        target = s.ints(1)
        target_axes(src, target)
        return (target,)
    axis = axis_of(p.axis, len(src))
    return ((*src[:axis], 1, *src[axis + 1 :]),)


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return prod(inputs[0]) * (2 if opr.get(Reduce).mode == Mode.SUM_SQR else 1)


def _bind(c: Call, s: ShapeCall) -> Bound | None:
    """Reduce for known shapes, where nothing is converted."""
    p, src = c.get(Reduce), c.inputs[0]
    shapes = _shape(s)
    x, shape = s.shape(0), shapes[0]
    if shape is None or 0 in x or not src == c.outputs[0] == _work_dtype(p.mode, p.data_type, src):
        return None
    axes = target_axes(x, shape) if _by_target(p) else (axis_of(p.axis, len(x)),)
    sizes, order = _merged(x, axes)
    if len(order) != 1:
        return None
    mode, (axis,) = p.mode, order
    if _starts_finite(c, src):
        return lambda out, x, *target: _extreme(x.reshape(sizes), order, mode, src).reshape(shape)
    return lambda out, x, *target: reduce_axis(x.reshape(sizes), axis, mode, src).reshape(shape)


@kernel("ReduceV2", dtype=_out_dtype, shape=_shape, flops=_flops, bind=_bind)
def reduce(c: Call, x: Array, target: Array | None = None) -> Array:
    """Reduce over one axis, or to a target shape: sum, mean, product, minimum, maximum or sum of squares."""
    p = c.get(Reduce)
    if target is None:
        axis = axis_of(p.axis, x.ndim)
        axes: tuple[int, ...] = (axis,)
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    else:
        shape = tuple(int(n) for n in target.reshape(-1))
        axes = target_axes(x.shape, shape)
    src, dst = c.inputs[0], c.outputs[0]
    if not x.size:
        return _empty(p.mode, shape, dst)
    work = _work_dtype(p.mode, p.data_type, src)
    x = _integers(x, src) if src != work and work.name == "QuantizedS32" else convert(x, src, work)
    mode = p.mode
    steps = _merged(x.shape, axes)
    if not steps[1] and mode == Mode.SUM_SQR:
        x = stored(x.astype(np.float32) ** 2, work) if work.is_float else x * x
    x = x.reshape(steps[0])
    if axes and _starts_finite(c, work):
        return convert(_extreme(x, steps[1], mode, work), work, dst).reshape(shape)
    for i in steps[1]:
        x = reduce_axis(x, i, mode, work)
        mode = Mode.SUM if mode == Mode.SUM_SQR else mode
    return convert(x, work, dst).reshape(shape)


def _starts_finite(c: Call, work: DType) -> bool:
    """Tell whether a maximum or minimum starts, as MegEngine's kernels do, with a number that is not infinite."""
    return c.get(Reduce).mode in (Mode.MAX, Mode.MIN) and work.is_float and not c.opr.exact


def _extreme(x: Array, axes: Sequence[int], mode: Mode, dtype: DType) -> Array:
    """Return the maximum or minimum over axes, of infinite numbers the last finite one.

    MegEngine's kernels for float16 and bfloat16 pass NaN over.
    """
    limit = x.dtype.type(lowest(dtype) if mode == Mode.MAX else -lowest(dtype))
    if dtype.name in ("Float16", "BFloat16"):
        x = (np.fmax if mode == Mode.MAX else np.fmin)(x, limit)
    for i in axes:
        x = reduce_axis(x, i, mode, dtype)
    return np.maximum(x, limit) if mode == Mode.MAX else np.minimum(x, limit)


def _work_dtype(mode: Mode, kind: Kind, src: DType) -> DType:
    if src.is_quantized and mode in (Mode.SUM, Mode.MEAN):
        return DType("QuantizedS32", src.scale)
    return src if kind == Kind.DEFAULT else plain("Float32")


def _integers(x: Array, src: DType) -> Array:
    """Subtract the zero point from quantized values, int32."""
    return x.astype(np.int32) - np.int32(src.zero_point)


def _empty(mode: Mode, shape: Shape, dst: DType) -> Array:
    if mode in (Mode.MIN, Mode.MAX) and 0 not in shape:
        raise ValueError(f"Reduce {mode.name} of an array without elements")
    value = {Mode.PRODUCT: 1.0, Mode.MEAN: float("nan")}.get(mode, 0.0)
    return convert(
        np.full(shape, value, np.float32), plain("Float32"), dst if not dst.is_quantized else plain("Int32")
    )


def _merged(shape: Shape, axes: Sequence[int]) -> tuple[Shape, list[int]]:
    """Join neighbouring reduced axes; return the shape and the axes in the order of reduction."""
    sizes: list[int] = []
    reduced: list[bool] = []
    for i, n in enumerate(shape):
        gone = i in axes
        # Axes of size 1 count as reduced, so they join what lies beside them.
        if gone and reduced and reduced[-1]:
            sizes[-1] *= n
        else:
            sizes.append(n)
            reduced.append(gone)
    order = [i for i, r in enumerate(reduced) if r and sizes[i] != 1]
    order.sort(key=lambda i: -sizes[i])
    return tuple(sizes), order


def reduce_axis(x: Array, axis: int, mode: Mode, dtype: DType) -> Array:
    """Reduce one axis (kept with size 1) in the arithmetic of `dtype`.

    Args:
        x: values in the storage dtype of `dtype`.
        axis: axis of at least one element.
        mode: what to compute.
        dtype: data type of input and result.
    """
    if mode == Mode.MAX:
        return np.max(x, axis=axis, keepdims=True)
    if mode == Mode.MIN:
        return np.min(x, axis=axis, keepdims=True)
    if dtype.name in ("Float16", "BFloat16"):
        return _half(x, axis, mode, dtype)
    if mode == Mode.PRODUCT:
        return np.multiply.reduce(x, axis=axis, keepdims=True, dtype=x.dtype)
    if mode == Mode.SUM_SQR:
        x = x * x
    total = _sum(x, axis)
    if mode != Mode.MEAN:
        return total
    n = x.shape[axis]
    if x.dtype.kind == "f":
        total *= np.float32(1) / np.float32(n)
        return total
    return _int_mean(total, n, dtype)


def _sum(x: Array, axis: int) -> Array:
    n = x.shape[axis]
    if n > _LONG and x.dtype.kind == "f" and axis != x.ndim - 1:
        low, high = np.split(x, [n // 2], axis)
        result: Array = _sum(low, axis) + _sum(high, axis)
        return result
    return np.add.reduce(x, axis=axis, keepdims=True, dtype=x.dtype)


def _int_mean(total: Array, n: int, dtype: DType) -> Array:
    if dtype.is_quantized:
        return round_away(total.astype(np.float32) / np.float32(n)).astype(total.dtype)
    divisor = int(np.array(n).astype(total.dtype))
    if not divisor:
        raise ValueError(f"the mean of {n} elements of {dtype} divides by {n}, which wraps to 0")
    wide = total.astype(np.int64)
    quotient = np.abs(wide) // abs(divisor)
    return np.where((wide < 0) != (divisor < 0), -quotient, quotient).astype(total.dtype)


def _half(x: Array, axis: int, mode: Mode, dtype: DType) -> Array:
    wide = x.astype(np.float32)
    if mode == Mode.PRODUCT:
        rows = np.moveaxis(wide, axis, 0)
        acc = np.ones((1, *rows.shape[1:]), np.float32)
        for i in range(len(rows)):
            acc = rounded(acc * rows[i : i + 1], dtype)
        return stored(np.moveaxis(acc, 0, axis), dtype)
    if mode == Mode.SUM_SQR:
        wide = rounded(wide * wide, dtype)
    total = sum_rounded(wide, axis, dtype)
    if mode == Mode.MEAN:
        total = total / rounded(np.full(1, x.shape[axis], np.float32), dtype)
    return stored(total, dtype)


def _cumsum_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    src = inputs[0]
    if src.is_quantized or src.name in ("Bool", "Uint16", "Byte", "Complex64") or src.bits < 8:
        raise ValueError(f"Cumsum does not take {src}")
    return inputs


@kernel("CumsumV1", dtype=_cumsum_dtype, flops=per_input(1))
def cumsum(c: Call, x: Array) -> Array:
    """Sum cumulatively along an axis, from either end, with or without the element itself."""
    p = c.get(Cumsum)
    axis = axis_of(p.axis, x.ndim)
    if not x.size:
        return np.empty(x.shape, x.dtype)
    rows = np.moveaxis(x, axis, 0)
    if p.reverse:
        rows = rows[::-1]
    out = np.zeros(rows.shape, x.dtype)
    into = out[1:] if p.exclusive else out
    source = rows[: len(into)]
    dtype = c.inputs[0]
    if dtype.name in ("Float16", "BFloat16"):
        acc = np.zeros((1, *rows.shape[1:]), np.float32)
        for i in range(len(source)):
            acc = rounded(acc + source[i : i + 1], dtype)
            into[i : i + 1] = acc
    else:
        np.cumsum(source, axis=0, dtype=x.dtype, out=into)
    if p.reverse:
        out = out[::-1]
    return np.moveaxis(out, 0, axis)

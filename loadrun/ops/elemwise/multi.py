"""ElemwiseMultiType in all modes, and AffineInt, its old form.

Quantized modes compute the Elemwise mode of the same name on real numbers and quantize the result. Where MegEngine
has x86 vector code for a mode, that multiplies by the reciprocal of the output's scale; elsewhere its plain code
divides, which shows on exact ties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, DType, plain
from ...graph.params import ElemwiseMode, ElemwiseMultiType, ElemwiseMultiTypeMode as M
from ..numeric.quant import dequantize, quantize, quantizer, reals
from ..numeric.special import broadcast, in_chunks
from ..registry import Bound, Call, Shape, ShapeCall, kernel
from ..typecvt import convert
from .integers import rmulh
from .modes import elemwise_shape, promote
from .table import ARITY, FLOAT, ROWS, ModeTrait as T, modes

_QUANTIZED: dict[M, ElemwiseMode] = {m: ElemwiseMode[m.name[1:]] for m in M if m.name.startswith("Q")}

_BOOL = {M[mode.name]: ROWS[mode] for mode in modes(T.COMPARES)}

_INT = "an integer type"
_INTEGERS = ("Int8", "Int16", "Int32", "Uint8", "Uint16")


def _mode(opr: Opr) -> M:
    if opr.type == "AffineInt":
        return M.FUSE_MUL_ADD3_IXxF32xF32xI8
    return opr.get(ElemwiseMultiType).mode


def _count(mode: M) -> int:
    if mode in _QUANTIZED:
        return ARITY[_QUANTIZED[mode]]
    if mode in _BOOL:
        return _BOOL[mode].arity
    return len(_FIXED[mode].inputs)


def _dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    mode = _mode(opr)
    if len(inputs) != _count(mode):
        raise ValueError(f"{mode.name} takes {_count(mode)} inputs, found {len(inputs)}")
    want = opr.output_dtype
    if mode in _FIXED:
        names, out, _ = _FIXED[mode]
        for name, t in zip(names, inputs, strict=True):
            if t.name != name and not (name is _INT and t.name in _INTEGERS):
                raise ValueError(f"{mode.name} takes {', '.join(names)}, found {', '.join(map(str, inputs))}")
        return (plain(out),)
    if want is None:
        raise ValueError(f"{mode.name} needs a configured output dtype")
    if mode in _BOOL:
        return (_truth(mode, inputs, want),)
    if not want.is_quantized or not all(t.is_quantized for t in inputs):
        raise ValueError(
            f"{mode.name} takes and gives quantized types, found {', '.join(map(str, inputs))} to {want}"
        )
    if len({t.name for t in inputs}) > 1:
        raise ValueError(
            f"{mode.name} takes inputs of one quantized type, found {', '.join(map(str, inputs))}"
        )
    return (want,)


def _truth(mode: M, inputs: tuple[DType, ...], want: DType) -> DType:
    """Compute the result of a comparison or of a test of one float."""
    if want.name != "Bool":
        raise ValueError(f"{mode.name} gives Bool, not {want}")
    if len(inputs) == 2:
        if promote(inputs).name == "Uint16":
            raise ValueError(f"{mode.name} does not take Uint16; convert it to int32 or float32")
    elif not inputs[0].is_float:
        raise ValueError(f"{mode.name} takes a float input, found {inputs[0]}")
    return want


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return prod(outputs[0]) * max(1, len(inputs) - 1)


def _bind(c: Call, s: ShapeCall) -> Bound | None:
    """Bind a quantized mode for known shapes: bytes of one input by a table, others in as few calls as possible."""
    mode, target = _mode(c.opr), c.outputs[0]
    shapes = [s.shape(i) for i in range(len(s.shapes))]
    shape = broadcast(shapes)
    if mode not in _QUANTIZED or 0 in shape:
        return None
    func, divide = _computed(c, _QUANTIZED[mode], shapes, shape)
    if len(shapes) == 1 and c.inputs[0].np.itemsize == target.np.itemsize == 1:
        return _by_table(c, func, divide)
    last = quantizer(
        shape, target, divide
    )  # None for large arrays, which the general kernel computes in pieces.
    if last is None:
        return None
    real, done = [reals(t) for t in c.inputs], last
    fitting = shapes[0] == shape

    def bound(out: Array | None, *xs: Array) -> Array:
        values = [r(x) for r, x in zip(real, xs)]  # noqa: B905
        result = values[0] if fitting else np.empty(shape, np.float32)
        func(result, *values)
        return done(result)

    return bound


def _by_table(c: Call, func: Callable[..., object], divide: bool) -> Bound:
    """Bind a mode of one input of bytes, with the results for all bytes computed in advance."""
    target = c.outputs[0]
    every = np.arange(256, dtype=np.uint8).view(c.inputs[0].np)
    values = dequantize(every, c.inputs[0])
    func(values, values)
    table = quantize(values, target, divide=divide).tobytes()

    def bound(out: Array | None, x: Array) -> Array:
        # A bytearray, so that the result is writable like any other.
        return np.frombuffer(bytearray(x.tobytes().translate(table)), target.np).reshape(x.shape)

    return bound


@kernel("ElemwiseMultiType", "AffineInt", dtype=_dtype, shape=elemwise_shape, flops=_flops, bind=_bind)
def elemwise_multi_type(c: Call, *xs: Array) -> Array:
    """Apply one mode to inputs that broadcast together, with an output of another type."""
    mode = _mode(c.opr)
    shape = broadcast([x.shape for x in xs])
    out = c.outputs[0]
    if 0 in shape:
        return np.empty(shape, out.np)
    if mode in _QUANTIZED:
        return _quantized(c, _QUANTIZED[mode], xs, shape)
    if mode in _BOOL:
        if len(xs) == 2 and c.inputs[0] != c.inputs[1]:
            common = promote(c.inputs)
            xs = tuple(convert(x, t, common) for x, t in zip(xs, c.inputs, strict=True))
        compare = _BOOL[mode].wide
        assert compare is not None
        return np.asarray(compare(*xs))
    result = _FIXED[mode].func(*xs, out.np)
    return result if result.shape == shape else np.broadcast_to(result, shape)


_VECTOR, _FALLBACK, _FROM_S32 = modes(T.VECTOR), modes(T.FALLBACK), modes(T.FROM_S32)
_LIBRARY = modes(T.LIBRARY)


def _exact(func: Callable[..., object]) -> Callable[..., object]:
    """Compute a float32 function by way of float64: fine output scales show the last bit of float32."""

    def apply(out: Array, *xs: Array) -> None:
        wide = np.empty(out.shape, np.float64)
        func(wide, *(x.astype(np.float64) for x in xs))
        out[...] = wide

    return apply


def _has_vector_code(
    mode: ElemwiseMode, source: str, target: str, shapes: Sequence[Shape], out: Shape
) -> bool:
    """Return whether MegEngine's x86 build runs this on vector code, which multiplies by the reciprocal scale."""
    if source == "QuantizedS32":
        known = mode in _FROM_S32 and target in ("QuantizedS8", "Quantized8Asymm")
    elif source == target == "QuantizedS8":
        known = mode in _VECTOR | _FALLBACK
    else:
        known = source == target == "Quantized8Asymm" and mode in _VECTOR
    return known and any(s == out for s in shapes) and all(s == out or _channel_like(s, out) for s in shapes)


def _channel_like(shape: Shape, out: Shape) -> bool:
    """Return whether an input is a single value or varies along one run of axes, with axes after it (NCHW channels)."""
    full = (1,) * (len(out) - len(shape)) + shape
    where = [i for i, n in enumerate(full) if n != 1]
    if not where:
        return True
    first, last = where[0], where[-1]
    inside = full[first : last + 1] == out[first : last + 1]
    return inside and prod(out[last + 1 :]) > 1


def _computed(
    c: Call, mode: ElemwiseMode, shapes: Sequence[Shape], out: Shape
) -> tuple[Callable[..., object], bool]:
    """Return what a mode computes on real numbers, and whether the result is divided by its scale."""
    vector = _has_vector_code(mode, c.inputs[0].name, c.outputs[0].name, shapes, out)
    func: Callable[..., object] = FLOAT[mode]
    return _exact(func) if not vector and mode in _LIBRARY else func, not vector


def _quantized(c: Call, mode: ElemwiseMode, xs: Sequence[Array], shape: Shape) -> Array:
    target = c.outputs[0]
    func, divide = _computed(c, mode, [x.shape for x in xs], shape)
    out = np.empty(shape, target.np)

    def apply(out: Array, *parts: Array) -> None:
        real = [dequantize(x, t) for x, t in zip(parts, c.inputs, strict=True)]
        # The first input's buffer can take the result where it has its shape.
        result = real[0] if real[0].shape == out.shape else np.empty(out.shape, np.float32)
        func(result, *real)
        out[...] = quantize(result, target, divide=divide)

    in_chunks(apply, out, xs, True)
    return out


def round_shr(x: Array, shift: Array, want: np.dtype[Any]) -> Array:
    """Compute ``x / 2^shift``, halves away from zero, in the arithmetic of the type of `x`, saturated to `want`."""
    k = shift.astype(np.int32) & 31
    mask = (np.left_shift(np.int32(1), k) - np.int32(1)).astype(x.dtype)
    threshold = (mask >> mask.dtype.type(1)).astype(np.int32) + (x < 0)
    result = (x.astype(np.int32) >> k) + ((x & mask).astype(np.int32) > threshold)
    info = np.iinfo(want)
    if x.dtype != want:
        result = np.clip(result, info.min, info.max)
    return result.astype(want)


def _multiply_add(x: Array, k: Array, b: Array, want: np.dtype[Any]) -> Array:
    return np.asarray(x.astype(want) * k + b)


def _multiply_add_round(x: Array, k: Array, b: Array, want: np.dtype[Any]) -> Array:
    real = np.rint(x.astype(np.float32) * k + b)
    return np.minimum(np.fmax(real, np.float32(-128)), np.float32(127)).astype(want)


def _multiply(x: Array, k: Array, want: np.dtype[Any]) -> Array:
    return np.asarray(x.astype(want) * k)


def _add_rmulh_round_shr(
    x: Array, b: Array, multiplier: Array, shift: Array, low: Array, high: Array, want: np.dtype[Any]
) -> Array:
    total = np.asarray(x + b)
    scaled = np.empty(broadcast([total.shape, multiplier.shape]), x.dtype)
    rmulh(scaled, total, multiplier)
    return np.maximum(np.minimum(round_shr(scaled, shift, want), high), low)


class _Fixed(NamedTuple):
    """A mode of fixed types: the inputs' and the output's, and ``func(*inputs, output dtype)``."""

    inputs: tuple[str, ...]
    output: str
    func: Callable[..., Array]


_AFFINE = ("Float32", "Float32")
_SHIFTS = ("Int8", "Int8", "Int8")
_FIXED: dict[M, _Fixed] = {
    M.FUSE_MUL_ADD3_INT16x32x32x32: _Fixed(("Int16", "Int32", "Int32"), "Int32", _multiply_add),
    M.FUSE_MUL_ADD3_IXxF32xF32xI8: _Fixed((_INT, *_AFFINE), "Int8", _multiply_add_round),
    M.ROUND_SHR_SATURATE_IXxI8xI8: _Fixed((_INT, "Int8"), "Int8", round_shr),
    M.ROUND_SHR_SATURATE_IXxI8xI16: _Fixed((_INT, "Int8"), "Int16", round_shr),
    M.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8: _Fixed(
        (*("Int16",) * 3, *_SHIFTS), "Int8", _add_rmulh_round_shr
    ),
    M.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8: _Fixed(
        (*("Int32",) * 3, *_SHIFTS), "Int8", _add_rmulh_round_shr
    ),
    M.FUSE_MUL_ADD3_INT16xF32xF32xF32: _Fixed(("Int16", *_AFFINE), "Float32", _multiply_add),
    M.MUL_INT16xF32xF32: _Fixed(("Int16", "Float32"), "Float32", _multiply),
    M.FUSE_MUL_ADD3_UINT8xF32xF32xF32: _Fixed(("Uint8", *_AFFINE), "Float32", _multiply_add),
}

"""TypeCvtV2: conversion between data types, plain and quantized."""

from collections.abc import Callable

import numpy as np

from ..graph.dtypes import Array, DType
from .catalog import TypeParam
from .numeric.quant import HIGHEST, LOWEST, dequantize, quantize, quantizer, reals, requantize, requantizer
from .numeric.special import round_half
from .registry import Bound, Call, Shape, ShapeCall, kernel

_UNUSABLE = ("Byte", "IntB1", "IntB2", "IntB4", "Complex64")
_SHORT = 8
"""Channels up to which turned pixels are converted channel by channel."""


def convert(x: Array, source: DType, target: DType) -> Array:
    """Convert the values of `x` to another data type as MegEngine's x86 TypeCvt kernels do.

    Floats become integers by truncation to int32 and wrap from there, NaN and what is outside int32 becomes
    -2^31; anything but zero becomes True; integers wrap; float16 ties round away from zero; quantized types go
    by their real value, rounded half away from zero and saturated (float32 and quantized values that are too
    large for QuantizedS32 become -2^31). The result is `x` itself where nothing changes.

    Args:
        x: values in the storage dtype of `source`, any shape.
        source: data type of `x`.
        target: data type of the result.

    Raises:
        ValueError: MegEngine cannot convert between these types.

    >>> convert(np.array([-1.9, 300.0, np.nan], "f4"), DType("Float32"), DType("Int8")).tolist()
    [-1, 44, 0]
    >>> convert(np.array([3, -4], "i1"), DType("QuantizedS8", 0.5), DType("Float32")).tolist()
    [1.5, -2.0]
    """
    if source == target:
        return x
    if source.name in _UNUSABLE or target.name in _UNUSABLE:
        raise ValueError(f"MegEngine cannot convert {source} to {target}")
    if target.is_quantized:
        if source.is_quantized:
            return requantize(x, source, target)
        if source.name in ("Bool", "Uint16") and target.bits >= 8:
            raise ValueError(f"MegEngine cannot convert {source} to {target}")
        return quantize(x, target, overflow=LOWEST if source.name == "Float32" else HIGHEST)
    if source.is_quantized:
        x = dequantize(x, source)
    if source.is_wide or target.is_wide:
        return exactly(x, target.np)
    return _plain(x, target.np)


def exactly(x: Array, want: np.dtype[np.generic]) -> Array:
    """Convert numbers as ONNX Runtime and PyTorch do on x86.

    Integers wrap. Floats are cut to integers; NaN and what is outside of int64 (of int32 for int32) becomes the
    least number of the type, and of narrower types the low bits of that of int32. float16 rounds ties to even.

    >>> exactly(np.array([3e9, -1.5, np.nan]), np.dtype("i8")).tolist()
    [3000000000, -1, -9223372036854775808]
    >>> exactly(np.array([3e9, -1.5], "f4"), np.dtype("i4")).tolist()
    [-2147483648, -1]
    """
    if x.dtype == want:
        return x
    if want.kind == "b":
        return x != 0
    if x.dtype.kind != "f" or want.kind not in "iu":
        with np.errstate(all="ignore"):
            return x.astype(want)
    # Outside of the type the C cast is undefined; written out so that all machines give what x86 gives.
    through, limit = (np.int64, 2.0**63) if want.itemsize == 8 or want == np.uint32 else (np.int32, 2.0**31)
    real = x.astype(np.float64, copy=False)
    if want == np.uint64:
        high = real >= limit
        low = np.where(np.abs(real - limit * high) < limit, real - limit * high, -limit).astype(np.int64)
        return np.asarray(low.view(np.uint64) + high.astype(np.uint64) * np.uint64(2**63))
    return np.where(np.abs(real) < limit, np.trunc(real), -limit).astype(through).astype(want)


def _plain(x: Array, want: np.dtype[np.generic]) -> Array:
    if x.dtype == want:
        return x
    if want.kind == "b":
        return x != 0
    if want == np.float16:
        return round_half(x)
    if x.dtype.kind == "f" and want.kind in "iu":
        wide = x.astype(np.float32, copy=False)
        # Outside int32 the C cast is undefined and x86 gives -2^31; written out so that all machines agree.
        wide = np.where(np.abs(wide) < np.float32(2**31), wide, np.float32(-(2**31)))
        return wide.astype(np.int32).astype(want, copy=False)
    if x.ndim > 1 and 1 < x.shape[-1] <= _SHORT and x.strides[-1] < 0 and x[..., ::-1].flags.c_contiguous:
        # Pixels with reversed channels: one long loop per channel instead of a short one per pixel.
        out = np.empty(x.shape, want)
        for i in range(x.shape[-1]):
            out[..., i] = x[..., i]
        return out
    return x.astype(want)


def _bind(c: Call, s: ShapeCall) -> Bound | None:
    """Bind the conversions of quantized networks for known shapes."""
    conversion = _quantized(s.shape(0), c.inputs[0], c.outputs[0])
    return None if conversion is None else lambda out, x: conversion(x)


def _quantized(shape: Shape, source: DType, target: DType) -> Callable[[Array], Array] | None:
    if source == target:
        return None
    if target.is_quantized:
        if source.is_quantized:
            return requantizer(shape, source, target)
        return quantizer(shape, target) if source.name == "Float32" else None
    return reals(source) if source.is_quantized and target.name == "Float32" else None


@kernel("TypeCvtV2", dtype=lambda opr, inputs: (opr.get(TypeParam).dtype,), bind=_bind)
def type_cvt(c: Call, x: Array) -> Array:
    """Convert the input to the parameter's dtype."""
    source, target = c.inputs[0], c.outputs[0]
    if c.opr.exact and not source.is_quantized and not target.is_quantized and target.bits >= 8:
        # bfloat16 is rounded where kernels are chosen.
        return exactly(x, target.np)
    return convert(x, source, target)

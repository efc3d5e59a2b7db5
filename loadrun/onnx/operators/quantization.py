"""Quantized numbers: halves round to even, sums of products are exact, results saturate."""

from collections.abc import Mapping
from typing import Any

from ...arrays.names import kernel, np
from ...graph.composite import Flag, NodeTypes
from ...graph.dtypes import Array, DType, plain
from . import operator
from .common import axis_of, refuse_unless, taking, tensor_type
from .convolution import integer_convolution, integer_shape
from .kernels import SMALL, halved, rounded_small
from .linalg import integer_product, product_shape
from .windows import SPACE

CONTRIB = "com.microsoft"
_UINT8 = plain("Uint8")
_FEW_BITS = {"Uint4": (0, 15), "Int4": (-8, 7), "Uint2": (0, 3), "Int2": (-2, 1)}


def single(v: Array) -> Array:
    """Drop the axis of a scale or zero point of one element."""
    return v.reshape(()) if v.size == 1 and v.ndim <= 1 else v


def spread(v: Array, x: Array, axis: int, block: int) -> Array:
    """Shape scales or zero points to broadcast with `x`: one, one for each index of an axis, or of a block."""
    if v.size == 1 and v.ndim <= 1:
        return v.reshape(())
    at = axis_of(axis, x.ndim) if x.ndim > 1 else 0
    if v.ndim == 1 and not (block and x.ndim == 1):
        return v.reshape([-1 if i == at else 1 for i in range(x.ndim)])
    refuse_unless(v.ndim == x.ndim, f"scales or zero points of {v.ndim} axes for {x.ndim}")
    size = x.shape[at]
    each = block or -(-size // max(v.shape[at], 1))
    refuse_unless(
        v.shape[at] * each >= size, f"{v.shape[at]} blocks of {each} elements for {size} along axis {at}"
    )
    return np.repeat(v, each, at)[(slice(None),) * at + (slice(size),)]


def range_of(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest number of an integer type."""
    return _FEW_BITS.get(dtype.name) or (int(np.iinfo(dtype.np).min), int(np.iinfo(dtype.np).max))


@kernel
def rounded_to(quotient: Array, zero: Array | None, dtype: DType) -> Array:
    """Round to whole numbers, halves to even ones, add a zero point and saturate."""
    return saturated(np.rint(quotient), zero, dtype)


def saturated(whole: Array, zero: Array | None, dtype: DType) -> Array:
    """Add a zero point to whole float numbers, within the range of an integer type."""
    low, high = range_of(dtype)
    # Counted from the least number, which is what processors make of NaN.
    if zero is not None:
        whole = whole + (zero.astype(whole.dtype) - low)
    elif low:
        whole = whole - low
    steps = np.clip(whole, 0, high - low).astype(f"u{dtype.np.itemsize}")
    return steps.astype(dtype.np) + dtype.np.type(low) if low else steps


def quantized(x: Array, scale: Array, zero: Array | None, dtype: DType) -> Array:
    """Compute round(x / scale) + zero point, saturated."""
    return rounded_to(x / scale, zero, dtype)


@kernel
def dequantized(x: Array, scale: Array, zero: Array | None = None) -> Array:
    """Compute (x - zero point) * scale in the scale's type."""
    if zero is None or x.dtype.kind == "f":
        return x.astype(scale.dtype) * scale
    wide = np.int32 if x.dtype.itemsize > 2 else scale.dtype
    return (x.astype(wide) - zero.astype(wide)).astype(scale.dtype) * scale


def requantized(total: Array, factor: Array, zero: Array | None, dtype: DType) -> Array:
    """Multiply whole sums by a factor, round and saturate."""
    return rounded_to(total.astype(factor.dtype) * factor, zero, dtype)


def _shape(x: Array, *others: Array | None, **attributes: Any) -> tuple[int, ...]:
    return x.shape


# To and from integers and small floats


def _quantized_type(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    zero = types.inputs[2] if len(types.inputs) > 2 else None
    asked = attributes.get("output_dtype", 0)
    if zero is None:
        return tensor_type(asked) if asked else _UINT8
    if asked and tensor_type(asked) != zero:
        raise ValueError(f"its output_dtype is {tensor_type(asked).spelling}, its zero point {zero.spelling}")
    return zero


def _precision(types: NodeTypes, precision: int) -> DType:
    """Return the type in which an input is divided by its scale.

    That is the scale's; before opset 23, ONNX Runtime's kernels for float16 divide in float32.
    """
    scale = types.inputs[1]
    assert scale is not None
    if types.opset < 23 and scale.name == "Float16":
        return plain("Float32")
    return tensor_type(precision) if precision else scale


@operator("QuantizeLinear", domain=CONTRIB, out=(_quantized_type,), pointwise=True, shape=_shape)
@operator("QuantizeLinear", since=10, out=(_quantized_type,), pointwise=True, shape=_shape)
def quantize_linear(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    types: NodeTypes,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: Flag = 1,
) -> Array:
    """Divide by a scale, round, add a zero point, and saturate."""
    kind, to = _precision(types, precision), types.outputs[0]
    x = x if x.dtype.kind == "f" else x.astype(scale.dtype)
    quotient = halved(halved(x, kind) / spread(halved(scale, kind), x, axis, block_size), kind)
    if to.name in SMALL:
        return rounded_small(quotient, SMALL[to.name], saturate)
    return rounded_to(quotient, None if zero is None else spread(zero, x, axis, block_size), to)


def _real_type(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    asked, scale = attributes.get("output_dtype", 0), types.inputs[1]
    assert scale is not None
    return tensor_type(asked) if asked else scale


@operator("DequantizeLinear", domain=CONTRIB, out=(1,), pointwise=True, shape=_shape)
@operator("DequantizeLinear", since=10, out=(_real_type,), pointwise=True, shape=_shape)
def dequantize_linear(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    """Subtract a zero point and multiply by a scale."""
    zero = None if zero is None else spread(zero, x, axis, block_size)
    return dequantized(x, spread(scale, x, axis, block_size), zero)


def dynamic(x: Array) -> tuple[Array, Array, Array]:
    """Quantize to uint8 over the range of a tensor and 0; return scale and zero point too."""
    high, low = x.max(initial=0), x.min(initial=0)
    scale = np.where(high == low, x.dtype.type(1), (high - low) / 255)
    start = -low / scale
    # A range of denormal numbers has the scale 0.
    zero = saturated(np.rint(np.where(np.isnan(start), x.dtype.type(255), start)), None, _UINT8)
    return quantized(x, scale, zero, _UINT8), scale, zero


@operator("DynamicQuantizeLinear", since=11, out=("Uint8", 0, "Uint8"), shape=lambda x: [x.shape, (), ()])
def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """Quantize to uint8 over the range of a tensor; return scale and zero point too."""
    return dynamic(x)


# Products


@operator("QLinearMatMul", since=10, out=(7,), shape=lambda *xs, **_: product_shape(xs[0], xs[3]))
def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
    *,
    types: NodeTypes,
) -> Array:
    """Multiply quantized matrices and quantize the product; scales of one per row or column are vectors."""
    total = integer_product(a, b, single(a_zero), single(b_zero))
    a_scale = single(a_scale)
    a_scale = a_scale[:, None] if a_scale.ndim == 1 else a_scale
    factor = a_scale * single(b_scale) / single(y_scale)
    return requantized(total, factor, single(y_zero), types.outputs[0])


def convolution_shape(
    x: Array, x_scale: Array, x_zero: Array, w: Array, *others: Array | None, types: NodeTypes, **space: Any
) -> tuple[int, ...]:
    """Return the shape of a quantized convolution."""
    return integer_shape(x, w, **space)


@operator("QLinearConv", since=10, out=(7,), shape=convolution_shape)
@taking(**SPACE)
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    w: Array,
    w_scale: Array,
    w_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
    *,
    types: NodeTypes,
    group: int = 1,
    **space: Any,
) -> Array:
    """Convolve quantized tensors, add a bias of sums, and quantize the result."""
    total = integer_convolution(x, w, single(x_zero), single(w_zero), group, **space)
    channels = (-1, *[1] * (x.ndim - 2))
    total = total if bias is None else total + bias.reshape(channels)
    scale = single(w_scale)
    scale = scale.reshape(channels) if scale.ndim else scale
    return requantized(total, single(x_scale) * scale / single(y_scale), single(y_zero), types.outputs[0])

"""com.microsoft's operators on quantized numbers, as ONNX Runtime's quantizer and optimizer write them."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from math import prod
from typing import Any

from ...arrays.names import np
from ...graph.composite import Flag, NodeTypes
from ...graph.dtypes import Array, DType, dtype_of, plain
from . import operator
from .activations import sigmoid, softmax
from .common import axis_of, like_first, refuse_unless, taking
from .convolution import laid_out
from .functions import leaky_relu
from .kernels import broadcast_shapes, int_matmul, matrix_product as matmul
from .linalg import integer_product, less, product_shape
from .pooling import POOL, counted, folded, of_channels, pooled_shape, pooling_window, seen
from .quantization import (
    convolution_shape,
    dequantized,
    dynamic,
    qlinear_conv,
    quantized,
    requantized,
    saturated,
    single,
)
from .transformers import ATTENDING, attention_shapes, embedded, refuse_given, self_attended
from .windows import SpatialWindow

CONTRIB = "com.microsoft"
_MOST_IN_ORDER = 64
"""The elements of a window up to which they are summed in ONNX Runtime's order, by which ties come out the same."""


def _zero(zero: Array | None) -> Array | None:
    return None if zero is None else single(zero)


def _real(x: Array, scale: Array, zero: Array | None) -> Array:
    return dequantized(x, single(scale), _zero(zero))


def _whole(y: Array, scale: Array, zero: Array | None, like: Array) -> Array:
    return quantized(y, single(scale), _zero(zero), dtype_of(like))


# Products


@operator("MatMulIntegerToFloat", domain=CONTRIB, out=(2,), shape=lambda a, b, *others: product_shape(a, b))
def matmul_integer_to_float(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero: Array | None = None,
    b_zero: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """Multiply quantized matrices, and the product by their scales."""
    total = integer_product(a, b, _zero(a_zero), _zero(b_zero))
    y = total.astype(a_scale.dtype) * (single(a_scale) * single(b_scale))
    return y if bias is None else y + bias


@operator("DynamicQuantizeMatMul", domain=CONTRIB, shape=lambda a, b, *others: product_shape(a, b))
def dynamic_quantize_matmul(
    a: Array, b: Array, b_scale: Array, b_zero: Array | None = None, bias: Array | None = None
) -> Array:
    """Quantize the first factor over its range, and multiply."""
    whole, scale, zero = dynamic(a)
    return matmul_integer_to_float(whole, b, scale, b_scale, zero, b_zero, bias)


def _gemm_type(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    scale, zero = (*types.inputs[7:], None, None)[:2]
    return zero or plain("Float32" if scale is None else "Uint8")


@operator("QGemm", domain=CONTRIB, out=(_gemm_type,))
def qgemm(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    c: Array | None = None,
    y_scale: Array | None = None,
    y_zero: Array | None = None,
    *,
    types: NodeTypes,
    alpha: float = 1.0,
    transA: Flag = 0,
    transB: Flag = 0,
) -> Array:
    """Compute (A @ B + C) * alpha without zero points, times both scales; quantize where there is a scale for that."""
    total = integer_product(a.T if transA else a, b.T if transB else b, single(a_zero), single(b_zero))
    total = total if c is None else total + c
    factor = single(a_scale) * single(b_scale)
    factor = (factor if y_scale is None else factor / single(y_scale)) * factor.dtype.type(alpha)
    if y_scale is None:
        return total.astype(factor.dtype) * factor
    return requantized(total, factor, _zero(y_zero), types.outputs[0])


@operator(
    "MulInteger", domain=CONTRIB, out=("Int32",), shape=lambda a, z, b, *_: broadcast_shapes(a.shape, b.shape)
)
def mul_integer(a: Array, a_zero: Array | None, b: Array, b_zero: Array | None = None) -> Array:
    """Multiply 8-bit numbers without their zero points in int32."""
    return less(a, _zero(a_zero)).astype(np.int32) * less(b, _zero(b_zero))


@operator("MatMulInteger16", domain=CONTRIB, out=("Int32",), shape=product_shape)
def matmul_integer_16(a: Array, b: Array) -> Array:
    """Multiply 16-bit matrices in int32."""
    a, b, shape = np.atleast_2d(a), b if b.ndim > 1 else b[:, None], product_shape(a, b)
    return int_matmul(a, b).reshape(shape)


operator("QLinearConv", domain=CONTRIB, out=(7,), shape=laid_out(convolution_shape))(laid_out(qlinear_conv))


# Functions


def _in_floats(function: Callable[..., Array]) -> Callable[..., Array]:
    """Compute a function in floats."""

    def called(
        x: Array,
        x_scale: Array,
        x_zero: Array | None,
        y_scale: Array,
        y_zero: Array | None = None,
        **how: Any,
    ) -> Array:
        return _whole(function(_real(x, x_scale, x_zero), **how), y_scale, y_zero, x)

    return called


_POINTWISE: dict[str, Any] = {"domain": CONTRIB, "pointwise": True}
operator("QLinearSigmoid", **_POINTWISE)(_in_floats(sigmoid))
operator("QLinearLeakyRelu", **_POINTWISE)(taking(alpha=0.01)(_in_floats(leaky_relu)))


@operator("QLinearSoftmax", domain=CONTRIB, shape=like_first)
def qlinear_softmax(
    x: Array,
    x_scale: Array,
    x_zero: Array | None,
    y_scale: Array,
    y_zero: Array | None = None,
    *,
    opset: int,
    axis: int = -1,
) -> Array:
    """Compute softmax in floats; ONNX Runtime multiplies by the whole part of the inverse scale."""
    real, at = _real(x, x_scale, x_zero), axis_of(axis, x.ndim)
    if opset < 13:
        real = real.reshape(prod(x.shape[:at]), prod(x.shape[at:]))
        at = 1
    whole = np.rint(softmax(real, at) * np.floor(1 / single(y_scale)))
    return saturated(whole, _zero(y_zero), dtype_of(x)).reshape(x.shape)


def _offset(zero: Array | None, like: Array) -> Any:  # noqa: ANN401 - a number or an array
    return 0 if zero is None else single(zero).astype(like.dtype)


def _of_two(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return an operator of two quantized inputs by what it computes of numbers, scales and zero points."""

    def called(*inputs: Array) -> Array:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (*inputs, None)[:8]
        one, other, out = map(single, (a_scale, b_scale, y_scale))  # type: ignore[arg-type]
        zeros = (_offset(z, one) for z in (a_zero, b_zero, y_zero))
        whole = function(a.astype(one.dtype), b.astype(one.dtype), one, other, out, *zeros)  # type: ignore[union-attr]
        return saturated(np.rint(whole), None, dtype_of(inputs[0]))

    return called


def _added(a: Array, b: Array, by: Array, other: Array, out: Array, za: Array, zb: Array, zy: Array) -> Array:
    """Compute a * ra + b * rb with ratios of scales; zero points become one number, as in ONNX Runtime's kernel."""
    by, other = by / out, other / out
    return zy - (by * za + other * zb) + by * a + other * b


def _product(
    a: Array, b: Array, by: Array, other: Array, out: Array, za: Array, zb: Array, zy: Array
) -> Array:
    """Multiply without zero points, and by the ratio of the scales."""
    return (a - za) * (b - zb) * (by * other / out) + zy


operator("QLinearAdd", **_POINTWISE)(_of_two(_added))
operator("QLinearMul", **_POINTWISE)(_of_two(_product))


@operator("QLinearWhere", domain=CONTRIB, out=(1,), pointwise=True)
def qlinear_where(condition: Array, *parts: Array) -> Array:
    """Choose from one or the other in floats."""
    (x, y), (scale, zero) = (parts[:3], parts[3:6]), parts[6:]
    return _whole(np.where(condition, _real(*x), _real(*y)), scale, zero, parts[0])


@operator("QLinearConcat", domain=CONTRIB, out=(1,))
def qlinear_concat(y_scale: Array, y_zero: Array, *parts: Array, axis: int) -> Array:
    """Join tensors of different scales."""
    whole = bool(parts) and not len(parts) % 3
    refuse_unless(whole, f"{len(parts)} inputs, expected tensor, scale and zero point")
    real = [_real(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    return _whole(np.concatenate(real, axis_of(axis, real[0].ndim)), y_scale, y_zero, y_zero)


# Pooling


def qlinear_global_average_pool(
    x: Array, x_scale: Array, x_zero: Array, y_scale: Array, y_zero: Array
) -> Array:
    """Take the mean over all of space; the sums are whole numbers."""
    axes = tuple(range(2, x.ndim))
    total = less(x, single(x_zero)).sum(axes, dtype=np.int32, keepdims=True)
    # In this order ONNX Runtime computes the factor.
    factor = single(x_scale) / (single(y_scale) * single(y_scale).dtype.type(prod(x.shape[2:])))
    return requantized(total, factor, single(y_zero), dtype_of(x))


@taking(**POOL)
def qlinear_average_pool(
    x: Array,
    x_scale: Array,
    x_zero: Array | None,
    y_scale: Array,
    y_zero: Array | None = None,
    *,
    kernel_shape: list[int],
    count_include_pad: Flag = 0,
    **space: Any,
) -> Array:
    """Take the mean of every window, in floats; the zero point is added before the mean is rounded."""
    real = _real(x, x_scale, x_zero)
    window = pooling_window(real, kernel_shape, **space)
    size = prod(kernel_shape)
    total = _in_order(real, window) if size <= _MOST_IN_ORDER else folded(real, window, np.add, 0)
    # What `ceil_mode` adds beyond the pads counts, too, unlike in AveragePool.
    count = np.asarray(size) if count_include_pad else counted(window, include=False)
    y = total / count.astype(total.dtype) / single(y_scale)
    return saturated(np.rint(y + _offset(y_zero, y)), None, dtype_of(x))


operator("QLinearGlobalAveragePool", domain=CONTRIB, shape=laid_out(of_channels))(
    laid_out(qlinear_global_average_pool)
)
operator(
    "QLinearAveragePool", domain=CONTRIB, shape=laid_out(lambda x, *_, **space: pooled_shape(x, **space))
)(laid_out(qlinear_average_pool))


def _in_order(x: Array, window: SpatialWindow) -> Array:
    """Sum the elements of every window one after the other."""
    for i in range(len(window.out)):
        x = seen(x, 2 + i, window, i, 0)
    total: Array | None = None
    for taps in product(*map(range, window.kernel)):
        steps = zip(taps, window.out, window.strides, strict=True)
        where = [slice(None)] * 2 + [slice(t, t + (n - 1) * s + 1, s) for t, n, s in steps]
        part = x[tuple(where)]
        total = part if total is None else total + part
    assert total is not None
    return total


# Transformers


@operator("QAttention", domain=CONTRIB, out=(3,), shape=attention_shapes)
@taking(num_heads=None, **ATTENDING)
def qattention(
    x: Array,
    weights: Array,
    bias: Array,
    x_scale: Array,
    w_scale: Array,
    mask: Array | None = None,
    x_zero: Array | None = None,
    w_zero: Array | None = None,
    past: Array | None = None,
    *,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
    **how: Any,
) -> tuple[Array, Array]:
    """Project in integers, then attend in floats."""
    refuse_given(do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    projected = matmul_integer_to_float(x, weights, x_scale, w_scale, x_zero, w_zero, bias)
    return self_attended(projected, mask, past, **how)


@operator(
    "QEmbedLayerNormalization",
    domain=CONTRIB,
    out=(8, "Int32"),
    shape=lambda ids, segments, words, *_, epsilon=0.0: [(*ids.shape, words.shape[1]), ids.shape[:1]],
)
def qembed(
    ids: Array,
    segment_ids: Array | None,
    words: Array,
    places: Array,
    segments: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None,
    *quanta: Array | None,
    epsilon: float = 1e-12,
) -> tuple[Array, Array]:
    """Look up, add and normalize words, positions and segments of quantized tables."""
    tables = (words, places, segments, gamma, beta)
    real: list[Any] = [
        None if table is None or scale is None else _real(table, scale, zero)
        for table, scale, zero in zip(tables, quanta[:5], quanta[5:], strict=True)
    ]
    there = all(v is not None for v in (*real[:2], *real[3:]))
    refuse_unless(there, "a table or the scale of its normalization is missing")
    words_, places_, segments_, gamma_, beta_ = real
    return embedded(ids, segment_ids, words_, places_, segments_, gamma_, beta_, mask, epsilon=epsilon)[:2]


# Numbers of few bits in blocks


@cache
def _codes(bits: int) -> Array:
    """Return the numbers that each byte holds, the first in the lowest bits."""
    table = np.stack([np.arange(256) >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], -1)
    table.flags.writeable = False
    return table


def _unpacked(raw: Array, bits: int, dtype: type[np.generic] = np.uint8, middle: int = 0) -> Array:
    """Return the numbers in bytes, along the last axis, less a middle one."""
    table = (_codes(bits) - middle).astype(dtype)
    return np.take(table, raw, 0).reshape(*raw.shape[:-1], raw.shape[-1] * (8 // bits))


@operator("MatMulNBits", domain=CONTRIB, shape=lambda x, *_, N, **__: (*x.shape[:-1], N))
def matmul_nbits(
    x: Array,
    weight: Array,
    scales: Array,
    zero_points: Array | None = None,
    group: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Array:
    """Multiply by a weight of 2, 4 or 8-bit numbers, each block of a row with its own scale.

    The weight is (N, blocks, bytes of a block), scales are (N, blocks), zero points packed like the weight or none (the
    middle then). A group index says for each of K whose scale and zero point it has, instead of its block's.
    """
    refuse_unless(
        bits in (2, 4, 8) and block_size > 0 and not weight_prepacked,
        f"weights of {bits} bits in blocks of {block_size}{' as one kernel packs them' * bool(weight_prepacked)} "
        "cannot be expressed",
    )
    refuse_unless(
        group is None or zero_points is None,
        "zero points beside a group index, with which ONNX Runtime leaves them out",
    )
    blocks = -(-K // block_size)
    middle = 1 << (bits - 1) if zero_points is None else 0
    values = _unpacked(weight.reshape(N, blocks, -1), bits, x.dtype, middle)[:, :, :block_size]
    scales = scales.reshape(N, blocks).astype(x.dtype)
    if zero_points is not None:
        packed = zero_points.dtype == np.uint8
        zero = _unpacked(zero_points.reshape(N, -1), bits)[:, :blocks] if packed else zero_points
        values = values - zero.reshape(N, blocks, 1).astype(x.dtype)
    if group is None:
        matrix = (values * scales[:, :, None]).reshape(N, -1)[:, :K]
    else:
        of = group[:K]
        inside = not of.size or 0 <= of.min() <= of.max() < blocks
        refuse_unless(inside, f"its group index names other blocks than its {blocks}")
        matrix = values.reshape(N, -1)[:, :K] * np.take(scales, of, 1)
    y = matmul(x.reshape(prod(x.shape[:-1]), x.shape[-1]), matrix.T).reshape(*x.shape[:-1], N)
    return y if bias is None else y + bias


def _gathered_shape(
    data: Array, at: Array, *others: Array | None, types: NodeTypes, **attributes: Any
) -> tuple[int, ...]:
    bits, axis = attributes.get("bits", 4), axis_of(attributes.get("gather_axis", 0), data.ndim)
    shape = (*data.shape[:axis], *at.shape, *data.shape[axis + 1 :])
    return (*shape[:-1], shape[-1] * (8 // bits)) if _packed(types, bits) else shape


def _packed(types: NodeTypes, bits: int) -> bool:
    """Return whether bytes hold several numbers, along the last axis."""
    return types.inputs[0] == plain("Uint8") and bits < 8


@operator("GatherBlockQuantized", domain=CONTRIB, out=(2,), shape=_gathered_shape)
def gather_block_quantized(
    data: Array,
    at: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    types: NodeTypes,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Array:
    """Gather rows of a table whose blocks have scales of their own.

    Without zero points that is the middle of uint8 data, and 0 of other types.
    """
    refuse_unless(
        bits in (2, 4, 8) and block_size >= 16,
        f"tables of {bits} bits in blocks of {block_size} cannot be expressed",
    )
    axis, along = axis_of(gather_axis, data.ndim), axis_of(quantize_axis, data.ndim)
    packed = _packed(types, bits)
    apart = axis != along and not (packed and axis == data.ndim - 1)
    refuse_unless(apart, f"rows along axis {axis} of blocks along axis {along} cannot be gathered")
    data, scales = np.take(data, at, axis), np.take(scales, at, axis)
    along = along if along < axis else along + at.ndim - 1
    zero: Any = scales.dtype.type(1 << (bits - 1) if types.inputs[0] == plain("Uint8") else 0)
    if zero_points is not None:
        zero = np.take(zero_points, at, axis)
        zero = (_unpacked(zero, bits)[..., : scales.shape[-1]] if packed else zero).astype(scales.dtype)
    data = _unpacked(data, bits) if packed else data
    n = data.shape[along]
    scale, zero = (
        np.repeat(np.broadcast_to(v, scales.shape), block_size, along)[(slice(None),) * along + (slice(n),)]
        for v in (scales, zero)
    )
    return (data.astype(scale.dtype) - zero) * scale

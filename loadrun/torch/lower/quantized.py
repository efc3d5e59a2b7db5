"""Quantization: integers with a scale, and floats that were rounded to such."""

from typing import Any

import numpy as np

from ...tensors.access import value_of
from ..call import INT_MAX, FxCall, as_array, as_tensor, axis_of
from ..registry import UnsupportedCallError, aten


def _rounded(x: Any, inverse: Any, zero: Any, low: Any, high: Any) -> Any:
    """Quantize a value by the inverse of the scale, as a float of its dtype: halves go to the even integer."""
    kind = inverse.dtype
    result = np.rint(as_array(x, kind) * inverse) + as_array(zero, kind)
    return np.clip(result, as_array(low, kind), as_array(high, kind))


def _along(value: Any, call: FxCall, axis: int, dtype: str = "float32") -> Any:
    shape = [1] * len(call.shape_of(0))
    shape[axis_of(axis, len(shape))] = -1
    return as_array(value, dtype).reshape(tuple(shape))


def _precise(scale: Any) -> str:
    """Return the float dtype that scales have, which is float64 for a number."""
    return "float64" if isinstance(scale, float) or as_tensor(scale).dtype == np.float64 else "float32"


@aten("quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.quantize_per_tensor.tensor")
def quantize(call: FxCall, x: Any, scale: Any, zero: Any, low: int, high: int, dtype: Any) -> Any:
    """Quantize values to integers."""
    inverse = 1 / scale if isinstance(scale, float) else 1 / as_array(scale, _precise(scale))
    return as_tensor(
        as_array(_rounded(x, as_array(inverse, "float32"), zero, low, high), "int32"), call.dtype
    )


@aten(
    "quantized_decomposed.dequantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.tensor"
)
def dequantize(call: FxCall, x: Any, scale: Any, zero: Any, low: int, high: int, dtype: Any, **_: Any) -> Any:
    """Dequantize integers."""
    return as_array(
        (as_array(x, "float32") - as_array(zero, "float32")) * as_array(scale, "float32"), call.dtype
    )


@aten("quantized_decomposed.quantize_per_channel.default")
def quantize_channels(
    call: FxCall, x: Any, scales: Any, zeros: Any, axis: int, low: int, high: int, dtype: Any
) -> Any:
    """Quantize values to integers, with a scale for each channel."""
    kind = _precise(scales)
    inverse = 1 / _along(scales, call, axis, kind)
    result = _rounded(x, inverse, _along(zeros, call, axis, kind), low, high)
    return as_tensor(as_array(result, "int32"), call.dtype)


@aten("quantized_decomposed.dequantize_per_channel.default")
def dequantize_channels(
    call: FxCall, x: Any, scales: Any, zeros: Any, axis: int, low: int, high: int, dtype: Any, **_: Any
) -> Any:
    """Dequantize integers, with a scale for each channel."""
    zero = 0 if zeros is None else _along(zeros, call, axis)
    return (as_array(x, "float32") - zero) * _along(scales, call, axis)


@aten("aten.fake_quantize_per_tensor_affine.default", "aten.fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize(call: FxCall, x: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
    """Round floats to values that scaled integers can represent."""
    # What is no number becomes the least one.
    result = np.fmax(_rounded(x, 1 / as_array(scale, "float32"), zero, low, high), np.float32(low))
    return (result - as_array(zero, "float32")) * as_array(scale, "float32")


@aten("aten.fake_quantize_per_channel_affine.default")
def fake_quantize_channels(
    call: FxCall, x: Any, scales: Any, zeros: Any, axis: int, low: int, high: int
) -> Any:
    """Fake-quantize with a scale for each channel."""
    scale, zero = _along(scales, call, axis), _along(zeros, call, axis)
    # Torch's integers of 64 bits end below; so what exceeds them, as what is no number, becomes the least one.
    exceeds = ~(np.abs(as_array(x, "float32") * (1 / scale)) < np.float32(2**63))
    result = np.where(exceeds, np.float32(low), _rounded(x, 1 / scale, zero, low, high))
    return (result - zero) * scale


@aten("quantized_decomposed.choose_qparams.tensor", "quantized_decomposed.choose_qparams_symmetric.tensor")
def choose(call: FxCall, x: Any, low: int, high: int, eps: float, dtype: Any) -> Any:
    """Compute scale and zero point that cover all values of a tensor."""
    x = as_array(x, "float32")
    least = np.minimum(np.min(x), np.float32(0))
    most = np.maximum(np.max(x), np.float32(0))
    if "symmetric" in str(call.node.target):
        most = np.maximum(-least, most)
        least = -most
    scale = np.maximum((most - least) / np.float32(high - low), np.float32(eps))
    zero = np.clip(np.float32(low) - np.rint(least / scale), np.float32(low), np.float32(high))
    if "symmetric" in str(call.node.target):
        zero = np.zeros_like(zero) + np.float32((low + high + 1) // 2)
    return scale, as_array(zero, "int32")


_LIMITS = {"torch.qint8": (-128, 127), "torch.quint8": (0, 255), "torch.qint32": (-INT_MAX - 1, INT_MAX)}


@aten("aten.quantize_per_tensor.default", "aten.quantize_per_tensor.tensor_qparams")
def quantize_tensor(call: FxCall, x: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    """Quantize a tensor and return the values that it stands for."""
    low, high = map(np.float32, _LIMITS[str(dtype)])
    scale, shift = as_array(scale, "float32"), as_array(zero, "float32")
    inverse, x = 1 / scale, as_array(x, "float32")
    # The zero point is added before the rounding here. Torch's bytes are summed by instructions that round once, and
    # what is no number becomes the largest; the least where integers have 32 bits, whose differences wrap around.
    if str(dtype) == "torch.qint32":
        total = np.rint(np.fmax(x * inverse + shift, low))
        fits = total < high
        whole = np.where(fits, as_array(np.where(fits, total, np.float32(0)), "int32"), np.int32(INT_MAX))
        return as_array(whole - as_array(zero, "int32"), "float32") * scale
    exact = as_array(x, "float64") * as_array(inverse, "float64") + as_array(shift, "float64")
    total = np.fmin(as_array(exact, "float32"), high)
    return (np.rint(np.clip(total, low, high)) - shift) * scale


@aten("aten.quantize_per_channel.default")
def quantize_tensor_channels(call: FxCall, x: Any, scales: Any, zeros: Any, axis: int, dtype: Any) -> Any:
    """Quantize with a scale for each channel and return the values that it stands for."""
    return fake_quantize_channels(call, x, scales, zeros, axis, *_LIMITS[str(dtype)])


aten("aten.dequantize.self")(lambda call, x: as_tensor(x))


@aten("aten._fused_moving_avg_obs_fq_helper_functional.default")
def observed(
    call: FxCall,
    x: Any,
    observes: Any,
    rounds: Any,
    least: Any,
    most: Any,
    scale: Any,
    zero: Any,
    average: float,
    low: int,
    high: int,
    axis: int,
    per_channel: bool = False,
    symmetric: bool = False,
) -> Any:
    """Fake-quantize as a module with its observers off, by the scales that they found."""
    flags = [value_of(as_tensor(v)) for v in (observes, rounds)]
    if flags[0] is None or flags[0].any():
        raise UnsupportedCallError(
            "an observer that learns scales; call module.apply(torch.ao.quantization.disable_observer)"
        )
    if flags[1] is not None and not flags[1].any():
        result: Any = as_tensor(x)
    elif per_channel:
        result = fake_quantize_channels(call, x, scale, zero, axis, low, high)
    else:
        result = fake_quantize(call, x, as_array(scale).reshape(()), as_array(zero).reshape(()), low, high)
    return (
        result,
        np.ones_like(as_array(x, "bool")),
        as_tensor(least),
        as_tensor(most),
        as_tensor(scale),
        as_tensor(zero),
    )

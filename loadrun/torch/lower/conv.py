"""Convolutions of one, two and three dimensions, and their transposes."""

from collections.abc import Sequence
from typing import Any

from ...layers import emit as e
from ...layers.shared import windows as build
from ...layers.shared.windows import WindowGeometry
from ...tensors import Tensor
from ...tensors.access import static_shape
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..values import as_tensor


def many(call: FxCall, value: Any, n: int, default: Sequence[int] = ()) -> list[int]:
    """Return one number for each spatial axis; a single one stands for all."""
    numbers = list(value) if isinstance(value, (list, tuple)) else [value]
    numbers = call.static(numbers or list(default), "a parameter of the windows")
    return numbers * n if len(numbers) == 1 else numbers


def _parts(call: FxCall, x: Any, weight: Any, bias: Any) -> tuple[Tensor, Tensor, Tensor | None, bool]:
    """Return input, weight and bias as tensors, the input with a batch axis, and whether it had none."""
    if call.dtype.kind != "f":
        raise UnsupportedCallError("a convolution of integers; convert to float32 first")
    image, filters = as_tensor(x, call.dtype), as_tensor(weight, call.dtype)
    single = image.ndim == filters.ndim - 1
    flat = None if bias is None else as_tensor(bias, call.dtype)
    return e.add_axes(image, [0]) if single else image, filters, flat, single


def convolved(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    pads: Sequence[tuple[int, int]],
    dilation: Any,
    groups: int,
) -> Any:
    """Convolve (N, C, ...) or (C, ...)."""
    x, weight, bias, single = _parts(call, x, weight, bias)
    kernel = static_shape(weight)[2:]
    n = len(kernel)
    window = WindowGeometry(kernel, many(call, stride, n), many(call, dilation, n), pads)
    (groups,) = call.static([groups], "the number of groups")
    y = build.convolved(x, weight, window, groups, bias)
    return e.drop_axes(y, [0]) if single else y


@aten(*(f"aten.conv{n}d.{overload}" for n in (1, 2, 3) for overload in ("default", "padding")))
def conv(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Apply MegEngine's convolutions; "same" pads one more at the end where the total is odd."""
    n = len(call.shape_of(1)) - 2
    if padding == "same":
        kernel = call.static(call.shape_of(1)[2:], "the size of a filter")
        total = [d * (k - 1) for d, k in zip(many(call, dilation, n), kernel, strict=True)]
        pads = [(t // 2, t - t // 2) for t in total]
    else:
        pads = [(p, p) for p in many(call, 0 if padding == "valid" else padding, n)]
    return convolved(call, x, weight, bias, stride, pads, dilation, groups)


@aten("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """Compute the adjoints of convolutions."""
    x, weight, bias, single = _parts(call, x, weight, bias)
    kernel = static_shape(weight)[2:]
    steps, pads, extra, spread = (
        many(call, v, len(kernel)) for v in (stride, padding, output_padding, dilation)
    )
    if any(more >= step for more, step in zip(extra, steps, strict=True)):
        raise UnsupportedCallError("output_padding must be less than the stride")
    window = WindowGeometry(kernel, steps, spread, [(p, p) for p in pads])
    (groups,) = call.static([groups], "the number of groups")
    y = build.transposed(x, weight, window, extra, groups, bias)
    return e.drop_axes(y, [0]) if single else y


@aten("aten.convolution.default")
def convolution(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """Lower any convolution."""
    if transposed:
        return conv_transpose(call, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(call, x, weight, bias, stride, padding, dilation, groups)

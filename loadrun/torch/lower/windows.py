"""Convolutions of one, two and three dimensions, their transposes, and pooling."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...layers import emit as e
from ...layers.shared import windows as build
from ...layers.shared.windows import WindowGeometry
from ...tensors import Tensor
from ...tensors.access import static_shape
from ..call import FxCall, as_array, as_tensor
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size


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
    x, weight, bias, single = _parts(call, x, weight, bias)
    kernel = static_shape(weight)[2:]
    n = len(kernel)
    steps, spread = many(call, stride, n), many(call, dilation, n)
    if padding == "same":
        sizes = call.static(call.shape_of(1)[2:], "the size of a filter")
        total = [d * (k - 1) for d, k in zip(spread, sizes, strict=True)]
        pads = [(t // 2, t - t // 2) for t in total]
    else:
        pads = [(p, p) for p in many(call, 0 if padding == "valid" else padding, n)]
    (groups,) = call.static([groups], "the number of groups")
    y = build.convolved(x, weight, WindowGeometry(kernel, steps, spread, pads), groups, bias)
    return e.drop_axes(y, [0]) if single else y


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


def _window(
    call: FxCall, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> WindowGeometry:
    n = _dimensions(call)
    sizes = many(call, kernel, n)
    pads = [(p, p) for p in many(call, padding, n)]
    window = WindowGeometry(sizes, many(call, stride, n, sizes), many(call, dilation, n), pads)
    known = call.shape_of(0)[-n:]
    if all(isinstance(v, int) for v in known):
        window.sizes = known
    if ceil:
        window.complete(window.sizes or x.shape[-n:])
    return window


def _with_images(call: FxCall, x: Any, dtype: Any = None) -> tuple[Tensor, bool]:
    """Return the input as (N, C, ...), and whether it had no batch axis."""
    value = as_tensor(x, dtype)
    single = value.ndim == _dimensions(call) + 1
    return e.add_axes(value, [0]) if single else value, single


def _places_are_read(call: FxCall) -> bool:
    """Return whether something reads the second result of a pooling."""
    return any(u.args[1:] == (1,) and u.users for u in call.node.users)


def _dimensions(call: FxCall) -> int:
    name = str(call.node.target)
    return next(n for n in (1, 2, 3) if f"{n}d" in name)


@aten(
    *(f"aten.max_pool{n}d.default" for n in (1, 2, 3)),
    *(f"aten.max_pool{n}d_with_indices.default" for n in (1, 2, 3)),
)
def max_pool(
    call: FxCall,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> Any:
    """Compute the maxima of windows, and their positions in the flattened image where these are asked for."""
    x, single = _with_images(call, x)
    window = _window(call, x, kernel, stride, padding, dilation, ceil)
    if "with_indices" in str(call.node.target) and _places_are_read(call):
        outputs = build.max_with_places(x, window)
        return tuple(e.drop_axes(v, [0]) if single else v for v in outputs)
    y = build.max_pooled(x, window)
    y = e.drop_axes(y, [0]) if single else y
    return (y, as_tensor(np.int32(0))) if "with_indices" in str(call.node.target) else y


@aten("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    call: FxCall,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: Any = None,
) -> Any:
    """Compute the means of windows."""
    whole = call.dtype.kind != "f"
    x, single = _with_images(call, x, call.dtype)
    window = _window(call, x, kernel, stride, padding, 1, ceil)
    if whole:
        # Rounded towards zero; sums of integers are exact.
        total = as_array(build.summed(x, window))
        counts = build.counted(x, window, include=count_include_pad) if divisor is None else divisor
        y = as_tensor(np.sign(total) * (np.absolute(total) // as_array(counts, call.dtype)))
    else:
        y = build.averaged(x, window, include=count_include_pad, divisor=divisor)
    return e.drop_axes(y, [0]) if single else y


@aten(
    "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten.adaptive_avg_pool3d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
)
def adaptive_avg_pool(call: FxCall, x: Any, out: Any) -> Any:
    """Compute the means of windows that divide an axis, overlapping where it cannot be divided."""
    n = _dimensions(call)
    shape = call.shape_of(0)
    outer = len(shape) - n
    wanted = call.shape[outer:]
    values = as_array(x, call.dtype)
    if all(isinstance(w, int) and w == 1 for w in wanted):
        return np.mean(values, axis=tuple(range(outer, len(shape))), keepdims=True)
    for axis, (size, want) in enumerate(zip(shape[outer:], wanted, strict=True), outer):
        if str(size) == str(want):
            continue
        if isinstance(want, int) and want == 1:
            values = np.mean(values, axis=axis, keepdims=True)
            continue
        picked, inside, _, counts = _windows(values, axis, size, as_size(out[axis - outer]))
        total = np.sum(np.where(inside, picked, as_array(0, values.dtype)), axis=axis + 1)
        values = total / as_array(counts, values.dtype)
    return values


def _windows(values: Any, axis: int, size: Any, count: Any) -> tuple[Any, Any, Any, Any]:
    """Gather the elements of an axis's windows along a new axis behind it, whose sizes may be symbolic.

    Returns:
        the elements, the last of a shorter window again and again, which of them count, where the windows begin, and
        how many elements they have.
    """
    if type(size) is type(count) is int:
        # Begin and end of torch's adaptive windows.
        edges = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        starts, ends = np.array(edges, np.int32).T
        longest = int((ends - starts).max(initial=0))
    else:
        size = values.shape[axis]
        n, many = as_array(size, "int32"), as_array(count, "int32")
        number = as_array(e.arange(count), "int32")
        starts, ends = number * n // many, ((number + 1) * n + (many - 1)) // many
        longest = size // count + 2
    place = starts[:, None] + (
        np.arange(longest, dtype=np.int32) if type(longest) is int else as_array(e.arange(longest))
    )
    rest = (1,) * (len(values.shape) - axis - 1)
    inside = as_array(place < ends[:, None]).reshape((-1, longest, *rest))
    picked = np.take(values, np.minimum(place, ends[:, None] - 1), axis=axis)
    return picked, inside, as_array(starts).reshape((-1, *rest)), as_array(ends - starts).reshape((-1, *rest))


@aten(
    "aten.adaptive_max_pool1d.default", "aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default"
)
def adaptive_max_pool(call: FxCall, x: Any, out: Any) -> Any:
    """Compute the maxima of such windows, and their positions in the flattened image."""
    shape = call.shape_of(0)
    outer = len(shape) - _dimensions(call)
    values, places = as_array(x), as_array(np.int32(0))
    wanted = call.shape[outer:]
    indexed = _places_are_read(call)
    if not indexed and all(isinstance(n, int) and n == 1 for n in wanted):
        return np.max(values, axis=tuple(range(outer, len(shape))), keepdims=True), places
    inner: Any = 1
    for axis in range(len(shape) - 1, outer - 1, -1):
        size = values.shape[axis]
        picked, _, starts, _ = _windows(values, axis, shape[axis], as_size(out[axis - outer]))
        if indexed:
            best = as_array(np.argmax(picked, axis=axis + 1), "int32") + starts
            places = (
                best if axis == len(shape) - 1 else best * inner + np.take_along_axis(places, best, axis=axis)
            )
            inner = inner * size
        values = np.max(picked, axis=axis + 1)
    return values, places

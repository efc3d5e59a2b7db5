"""Dtypes, shapes, geometry and cost of the convolution family, and the plan that its kernels follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ...graph import Opr, params as P
from ...graph.dtypes import DType
from ...graph.params import Format
from ..registry import Shape, ShapeCall
from .layout import Packing, filter_packing, input_packing, output_packing

_LIMIT = 1 << 31


@dataclass(frozen=True)
class Geometry:
    """A convolution of any number of spatial axes on plain (batch, channel, spatial...) arrays.

    Attributes:
        kernel, pad, stride, dilate, size, out: per spatial axis; `size` is the input's, `out` the output's.
        groups: channel groups.
        icg, ocg: input and output channels of one group.
        apart: whether the data have their stride phases one after the other.
    """

    kernel: tuple[int, ...]
    pad: tuple[int, ...]
    stride: tuple[int, ...]
    dilate: tuple[int, ...]
    size: tuple[int, ...]
    out: tuple[int, ...]
    groups: int
    icg: int
    ocg: int
    apart: bool = False

    @property
    def channels(self) -> int:
        """Output channels."""
        return self.groups * self.ocg

    @property
    def taps(self) -> int:
        """Filter taps over all spatial axes."""
        return prod(self.kernel)

    @property
    def points(self) -> int:
        """Output positions of one channel."""
        return prod(self.out)

    @property
    def pointwise(self) -> bool:
        """True if the input itself is the matrix that the filter is multiplied with."""
        return self.taps == 1 and all(s == 1 for s in self.stride) and not any(self.pad)


def output_size(size: int, kernel: int, pad: int, stride: int, dilate: int) -> int:
    """Return the output length of one axis: ``floor((size + 2 pad - (kernel - 1) dilate - 1) / stride) + 1``.

    Raises:
        ValueError: a stride or dilation of 0, an empty filter, or a window larger than the padded input.

    >>> output_size(224, 7, 3, 2, 1)
    112
    """
    if stride < 1 or dilate < 1:
        raise ValueError(f"stride and dilation must be at least 1, got stride {stride}, dilation {dilate}")
    if kernel < 1:
        raise ValueError(f"a filter axis of size {kernel} has no taps")
    if max(stride, dilate) >= _LIMIT:
        raise ValueError(f"stride and dilation must be below 2^31, got stride {stride}, dilation {dilate}")
    if size + 2 * pad >= _LIMIT:
        raise ValueError(f"an axis of {size} with padding {pad} is beyond 2^31 elements")
    window = (kernel - 1) * dilate + 1
    if size + 2 * pad < window:
        raise ValueError(
            f"a filter of {kernel} taps with dilation {dilate} spans {window} elements, "
            f"more than the input's {size} with padding {pad} on both sides"
        )
    return (size + 2 * pad - window) // stride + 1


def geometry(
    x: Shape,
    groups: int,
    icg: int,
    ocg: int,
    kernel: Sequence[int],
    pad: Sequence[int],
    stride: Sequence[int],
    dilate: Sequence[int],
) -> Geometry:
    """Check a plain input shape (batch, channels, spatial...) against a filter.

    Raises:
        ValueError: ranks, channels or windows that do not fit.
    """
    if len(x) != 2 + len(kernel):
        raise ValueError(f"the input must have {2 + len(kernel)} axes, got shape {list(x)}")
    if groups < 1 or icg < 1 or ocg < 1:
        raise ValueError(f"a filter with {groups} groups of {icg} -> {ocg} channels computes nothing")
    if x[1] != groups * icg:
        raise ValueError(
            f"the input has {x[1]} channels, the filter takes {groups * icg} ({groups} groups of {icg})"
        )
    out = tuple(map(output_size, x[2:], kernel, pad, stride, dilate))
    return Geometry(
        tuple(kernel), tuple(pad), tuple(stride), tuple(dilate), tuple(x[2:]), out, groups, icg, ocg
    )


BiasParam: TypeAlias = P.ConvBias | P.BatchConvBias
ConvParam: TypeAlias = P.Convolution | P.Convolution3D | BiasParam
"""The parameter records of the convolutions that a plan is made for."""
QUANTIZED = ("QuantizedS8", "Quantized8Asymm", "QuantizedS4", "Quantized4Asymm", "QuantizedS1")
_DOT = ("QuantizedS8", "Quantized8Asymm")
_PLANS = 1024
"""How many plans are kept; the layers of a network have a few dozen for each set of input shapes."""
_NO_DILATION = frozenset(Format) - {Format.NCHW, Format.NHWC, Format.NHWCD4}


@dataclass(frozen=True, eq=False)
class Plan:
    """The way a convolution's arrays become plain ones.

    Attributes:
        x, w, out: layouts of the convolution's input, filter and output.
        geo: sizes and taps.
        flip: whether the filter is turned (mode CONVOLUTION).
    """

    x: Packing
    w: Packing
    out: Packing
    geo: Geometry
    flip: bool


def product_scale(a: DType, b: DType) -> float:
    """Return the scale of the products, rounded to float32 as MegEngine does."""
    return float(np.float32(a.scale) * np.float32(b.scale))


def _numbers(p: ConvParam) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    axes = ("d", "h", "w") if isinstance(p, P.Convolution3D) else ("h", "w")
    pad, stride, dilate = (
        tuple(int(getattr(p, f"{k}_{a}")) for a in axes) for k in ("pad", "stride", "dilate")
    )
    return pad, stride, dilate


def _layout(p: ConvParam) -> tuple[Any, bool, bool]:
    """Return (format, grouped, flip) with the checks that need no shape."""
    volume = isinstance(p, P.Convolution3D)
    fmt: Any = p.format.name if volume else Format(int(p.format))
    grouped = p.sparse.name == "GROUP"
    flip = p.mode.name == "CONVOLUTION"
    if fmt == Format.NHWCD4 and flip:
        raise ValueError("format NHWCD4 has no mode CONVOLUTION, only CROSS_CORRELATION")
    _, _, dilate = _numbers(p)
    if not volume and fmt in _NO_DILATION and dilate != (1, 1):
        raise ValueError(f"format {fmt.name} takes no dilation, got {dilate}")
    return fmt, grouped, flip


def conv_plan(p: ConvParam, inputs: Sequence[DType], x: Shape, w: Shape) -> Plan:
    """Plan a convolution for input and filter shapes.

    Raises:
        ValueError: shapes that do not fit each other, the format or the window.
    """
    return _conv_plan(p, inputs[0].name in _DOT, x, w)


# Testcases of several sizes alternate, so plans are kept for more than the last size.
@lru_cache(maxsize=_PLANS)
def _conv_plan(p: ConvParam, dot: bool, x: Shape, w: Shape) -> Plan:
    fmt, grouped, flip = _layout(p)
    packed_x = input_packing(fmt, x)
    packed_w = filter_packing(fmt, w, grouped, dot)
    groups, ocg, icg, *kernel = packed_w.plain
    hybrid = (
        not isinstance(fmt, str) and len(x) == 4 and fmt in (Format.NCHW88, Format.NCHW44, Format.NCHW44_DOT)
    )
    if hybrid != (len(w) == 5 and fmt in (Format.NCHW88, Format.NCHW44, Format.NCHW44_DOT)):
        raise ValueError(f"{fmt.name} data of shape {list(x)} does not go with a filter of shape {list(w)}")
    geo = geometry(packed_x.plain, groups, icg, ocg, kernel, *_numbers(p))
    out = output_packing(fmt, (packed_x.plain[0], geo.channels, *geo.out))
    return Plan(packed_x, packed_w, out, geo, flip)


def backward_plan(
    p: ConvParam, inputs: Sequence[DType], w: Shape, diff: Shape, like_shape: Shape | None
) -> Plan:
    """Return the plan of a transposed convolution, as that of the convolution from its result to `diff`.

    Raises:
        ValueError: as `conv_plan`; also when the given result shape cannot give `diff`.
    """
    return _backward_plan(p, inputs[0].name in _DOT, w, diff, like_shape)


@lru_cache(maxsize=_PLANS)
def _backward_plan(p: ConvParam, dot: bool, w: Shape, diff: Shape, like_shape: Shape | None) -> Plan:
    fmt, grouped, flip = _layout(p)
    allowed: tuple[Any, ...] = (Format.NCHW, Format.NHWC, Format.NCHW4, Format.NCHW44, Format.NHWCD4, "NCDHW")
    if fmt not in allowed:
        raise ValueError(
            f"a transposed convolution has no format {fmt if isinstance(fmt, str) else fmt.name}"
        )
    packed_w = filter_packing(fmt, w, grouped, dot)
    groups, ocg, icg, *kernel = packed_w.plain
    packed_diff = input_packing(fmt, diff)
    n, channels, *out = packed_diff.plain
    if channels != groups * ocg:
        raise ValueError(f"the input has {channels} channels, the filter takes {groups * ocg}")
    pad, stride, dilate = _numbers(p)
    if like_shape is None:
        size = [
            (o - 1) * s + (k - 1) * d + 1 - 2 * q
            for o, k, q, s, d in zip(out, kernel, pad, stride, dilate, strict=True)
        ]
        if min(size) < 1 or min(out) < 1:
            raise ValueError(f"an input of {out} with padding {list(pad)} leaves a result of size {size}")
        plain: Shape = (n, groups * icg, *size)
    else:
        plain = input_packing(fmt, like_shape).plain
    geo = geometry(plain, groups, icg, ocg, kernel, pad, stride, dilate)
    if plain[0] != n or geo.out != tuple(out):
        raise ValueError(
            f"a result of {list(plain)} would come from an input of {[plain[0], channels, *geo.out]}, "
            f"got {[n, channels, *out]}"
        )
    return Plan(output_packing(fmt, plain), packed_w, packed_diff, geo, flip)


def conv_shape(kind: type[Any], batched: bool = False) -> Callable[[ShapeCall], Sequence[Shape | None]]:
    """Return the shape rule of a convolution with parameter record `kind`."""

    def rule(s: ShapeCall) -> Sequence[Shape | None]:
        x, w = s.shape(0), s.shape(1)
        if batched:
            check_batch(x, w)
        return (conv_plan(s.get(kind), s.inputs, x, w[batched:]).out.shape,)

    return rule


def check_batch(x: Shape, w: Shape) -> None:
    """Check that BatchConvBias has one filter per sample.

    Raises:
        ValueError: the numbers differ.
    """
    if not w or not x or x[0] != w[0]:
        raise ValueError(
            f"a batch convolution needs one filter per sample, got shapes {list(x)} and {list(w)}"
        )


def backward_shape(kind: type[Any]) -> Callable[[ShapeCall], Sequence[Shape | None]]:
    """Return the shape rule of a transposed convolution."""

    def rule(s: ShapeCall) -> Sequence[Shape | None]:
        like_shape = s.shape(2) if len(s.shapes) > 2 else None
        return (backward_plan(s.get(kind), s.inputs, s.shape(0), s.shape(1), like_shape).x.shape,)

    return rule


def _work(geo: Geometry, batch: int) -> int:
    return 2 * batch * geo.channels * geo.points * geo.taps * geo.icg


def _types(opr: Opr) -> tuple[DType, ...]:
    return tuple(v.dtype or DType("Float32") for v in opr.inputs)


def conv_flops(kind: type[Any], batched: bool = False) -> Callable[..., int]:
    """Return the cost rule of a convolution: two operations per product."""

    def rule(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        plan = conv_plan(opr.get(kind), _types(opr), inputs[0], inputs[1][batched:])
        return _work(plan.geo, plan.x.plain[0])

    return rule


def backward_flops(kind: type[Any]) -> Callable[..., int]:
    """Return the cost rule of a transposed convolution."""

    def rule(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        plan = backward_plan(opr.get(kind), _types(opr), inputs[0], inputs[1], outputs[0])
        return _work(plan.geo, plan.x.plain[0])

    return rule


def _near(a: DType, b: DType) -> bool:
    return (
        a.name == b.name
        and a.zero_point == b.zero_point
        and abs(a.scale - b.scale) <= 1e-6 * max(1.0, abs(b.scale))
    )


def conv_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    """Return the output dtype of ConvolutionV2, ConvBias and BatchConvBias (dnn `check_or_deduce_dtype_fwd`).

    Raises:
        ValueError: dtypes that MegEngine does not convolve.
    """
    x, w = inputs[:2]
    mixed = x.name == "Quantized4Asymm" and w.name == "QuantizedS4"
    if x.name != w.name and not mixed:
        raise ValueError(f"data of {x} and a filter of {w} cannot be convolved")
    asked = opr.output_dtype
    supported: list[DType]
    if x.is_float:
        supported = [x]
    elif x.name == "Int8":
        supported = [DType("Int32"), DType("Int16")]
    elif x.name in QUANTIZED:
        supported = [DType("QuantizedS32", product_scale(x, w))]
        if asked is not None and _converts(x.name, asked.name):
            supported.append(asked)
        if x.name == "QuantizedS8":
            supported.append(DType("Float32"))
    else:
        raise ValueError(f"{x} cannot be convolved")
    if asked is None:
        return (supported[0],)
    if not any(_near(asked, s) for s in supported):
        raise ValueError(f"a convolution of {x} and {w} cannot give {asked}")
    return (asked,)


def _converts(source: str, target: str) -> bool:
    low = ("QuantizedS4", "Quantized4Asymm")
    return (
        source == target
        or (source == "QuantizedS8" and target in low)
        or (source in low and target == "QuantizedS8")
    )


def backward_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    """Return the output dtype of ConvolutionBackwardData.

    Raises:
        ValueError: dtypes that MegEngine does not convolve.
    """
    w, x = inputs[:2]
    asked = opr.output_dtype
    if w.name != x.name:
        raise ValueError(f"data of {x} and a filter of {w} cannot be convolved")
    if w.is_float:
        supported = [w]
    elif w.name == "Int8":
        supported = [DType("Int32")]
    elif w.name in _DOT:
        supported = [DType("QuantizedS32", product_scale(w, x))]
        if asked is not None and asked.name == x.name:
            supported.append(asked)
    else:
        raise ValueError(f"a transposed convolution does not take {x}")
    if asked is None:
        return (supported[0],)
    if not any(_near(asked, s) for s in supported):
        raise ValueError(f"a transposed convolution of {x} and {w} cannot give {asked}")
    return (asked,)


def volume_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    """Return the output dtype of 3-D convolutions.

    Raises:
        ValueError: anything but two equal dtypes of Float32, Float16 and, outside of files, Float64.
    """
    half = opr.get(P.Convolution3D).data_type.name == "FLOAT_IO16xC32"
    allowed = ("Float16",) if half else ("Float32", "Float16")
    if inputs[0].name != inputs[1].name or inputs[0].name not in (*allowed, "Float64"):
        raise ValueError(
            f"3-D convolutions take two of {' or '.join(allowed)}, got {inputs[0]} and {inputs[1]}"
        )
    return (inputs[0],)

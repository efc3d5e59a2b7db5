"""Convolutions in every layout and dtype that MegEngine's CPU kernels take.

Every layout is turned into plain (batch, channel, height, width) arrays, for which there is one fast path;
integers go through it too, as floating-point numbers that hold them exactly. Constant filters are converted once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ...base.registry import late
from ...graph import params as P
from ...graph.dtypes import Array, DType
from ...graph.params import Format, NonlineMode
from ..registry import Bound, Call, Finish, Shape, ShapeCall, kernel
from . import rules
from .fast import conv_fast, planned
from .gemm import Real, Requantize
from .layout import from_plain, output_packing, to_plain
from .operands import (
    is_stepwise,
    narrowed,
    plain_filters,
    plain_numbers,
    takes_columns,
    whole_numbers,
)

with late(__name__):
    from . import depthwise, integer, steps as kernel_steps, transpose, volume


def _bind(c: Call, s: ShapeCall) -> Bound | None:
    """Bind a plain float32 convolution, or a small integer one with constant filters, as a function of its data."""
    if c.inputs[0].is_float:
        run = bind_float(c, s)
        return None if run is None else lambda out, *args: run(None, *args)
    return _bind_integer(c, s)


def phases_between(first: Call, second: Call, shapes: Sequence[Sequence[Shape]]) -> tuple[int, ...] | None:
    """Return the stride whose phases a pointwise convolution may put one after the other for the depthwise one behind.

    Few channels are sorted then, before they become many.

    Args:
        first, second: float32 NCHW convolutions, the second one of what the first gives.
        shapes: of their inputs.

    Returns:
        None where they are of other kinds, or there is nothing to sort.
    """
    before: Any = first.opr.params[0]
    after: Any = second.opr.params[0]
    a = rules.conv_plan(before, first.inputs, *shapes[0][:2]).geo
    b = rules.conv_plan(after, second.inputs, *shapes[1][:2]).geo
    pointwise = a.pointwise and a.groups == 1 and all(prod(shape) == a.ocg for shape in shapes[0][2:])
    sorts = pointwise and b.groups == a.ocg and max(b.stride) > 1 and depthwise.takes_phases(b)
    return b.stride if sorts else None


def _sorted(x: Array, stride: tuple[int, ...]) -> Array:
    """Put the stride phases of images one after the other."""
    batch, channels, h, w = x.shape
    sy, sx = stride
    apart = x.reshape(batch, channels, h // sy, sy, w // sx, sx).transpose(0, 1, 3, 5, 2, 4)
    return apart.reshape(x.shape)


def bind_float(
    c: Call, s: ShapeCall, *, before: tuple[int, ...] | None = None, apart: bool = False
) -> Callable[..., Array] | None:
    """Bind a float32 NCHW convolution for known shapes: a function of what follows it, or None, and of its inputs.

    Args:
        before: the stride of the next convolution, whose phases it puts one after the other, see `phases_between`.
        apart: whether its data are so.
    """
    p: Any = s.opr.params[0]
    if p.format.name != "NCHW" or any(d.name != "Float32" for d in (*c.inputs[:2], *c.outputs)):
        return None
    plan = rules.conv_plan(p, c.inputs, s.shape(0), s.shape(1))
    convolve, memo = planned(plan.x.plain[0], replace(plan.geo, apart=apart)), c.memo
    if not isinstance(p, P.ConvBias):

        def plain(finish: Finish | None, x: Array, w: Array) -> Array:
            filters = memo.get("filters")
            x = x if before is None else _sorted(x, before)
            return convolve(x, plain_filters(c, w, plan, 1) if filters is None else filters, finish, _kept(c))

        return plain

    fixed: list[tuple[Array | None, Array | None]] = []
    last: list[tuple[Finish | None, Finish | None]] = []

    def biased(finish: Finish | None, x: Array, w: Array, *rest: Array) -> Array:
        x = x if before is None else _sorted(x, before)
        if last and last[0][0] is finish:
            return convolve(x, plain_filters(c, w, plan, 1), last[0][1], _kept(c))
        bias, z = fixed[0] if fixed else _addends(c, Format.NCHW, plan, rest)
        if not fixed and all(c.const[2:]):
            # Pieces take their part of it hundreds of times.
            bias, z = (v if v is None else v.reshape(*v.shape[:2], -1) for v in (bias, z))
            fixed.append((bias, z))
        ends = Real(p.nonlineMode, bias, z, then=finish)
        follows = None if ends.idle else ends
        if fixed:
            last[:] = [(finish, follows)]
        return convolve(x, plain_filters(c, w, plan, 1), follows, _kept(c))

    return biased


def _kept(c: Call) -> dict[Any, Any]:
    """Return where what is derived from the filters is kept, for this run or for all of them."""
    return c.memo if len(c.const) > 1 and c.const[1] else {}


def _bind_integer(c: Call, s: ShapeCall) -> Bound | None:
    p: Any = s.opr.params[0]
    if len(c.inputs) > len(("x", "w", "bias")) or not all(c.const[1:]):
        return None

    plan = rules.conv_plan(p, c.inputs, s.shape(0), s.shape(1))
    if not integer.fits(plan):
        return None
    general = conv_bias if isinstance(p, P.ConvBias) else convolution
    cache: list[Callable[[Array], Array] | None] = []

    def bound(out: Array | None, x: Array, w: Array, *rest: Array) -> Array:
        if not cache:
            cache.append(_whole_integer(c, p, plan, w, *rest))
        return general(c, x, w, *rest) if cache[0] is None else cache[0](x)

    return bound


def _whole_integer(
    c: Call, p: rules.ConvParam, plan: rules.Plan, w: Array, bias: Array | None = None
) -> Callable[[Array], Array] | None:
    """Return the convolution as a function of its data; None if only the general kernel has what it asks for."""
    dtype, target = c.inputs[0], c.outputs[0]
    fmt, mode = Format(int(p.format)), getattr(p, "nonlineMode", NonlineMode.IDENTITY)
    filters = plain_filters(c, w, plan, 1)
    if filters.dtype != np.float32 or dtype.name == "Int8":
        return None
    if bias is not None:
        if c.inputs[2].name == "Float32" or mode == NonlineMode.SIGMOID:
            return None
        _check_bias(c)
        bias = _addend(c, fmt, plan, bias, "bias").astype(np.int32)
    finish = _quantized_finish(c, fmt, plan, mode, bias, None)
    if isinstance(finish, Real) or (finish is not None and target.name == "QuantizedS32"):
        return None
    if finish is not None and finish.addend is not None and finish.addend.dtype != np.float32:
        return None

    return integer.whole_convolution(plan, dtype, filters, finish, target)


@kernel(
    "ConvolutionV2",
    dtype=rules.conv_dtype,
    shape=rules.conv_shape(P.Convolution),
    flops=rules.conv_flops(P.Convolution),
    bind=_bind,
)
def convolution(c: Call, x: Array, w: Array) -> Array:
    """Convolve (MegEngine dnn naive convolution).

    Float16 and bfloat16 sums are rounded after every product unless the compute mode is FLOAT32; integer sums
    are exact modulo 2^32.

    Raises:
        ValueError: shapes that do not fit.
    """
    p = c.get(P.Convolution)
    plan = rules.conv_plan(p, c.inputs, x.shape, w.shape)
    filters = plain_filters(c, w, plan, 1)
    dtype, target = c.inputs[0], c.outputs[0]
    data = plain_numbers(x, plan.x, dtype, filters.dtype)
    if dtype.is_float:
        if is_stepwise(p, dtype):
            result = kernel_steps.conv_steps(
                data, filters, plan.geo, kernel_steps.rounding(dtype.name), takes_columns(p, plan), plan.flip
            ).astype(target.np)
        else:
            result = narrowed(conv_fast(data, filters, plan.geo, memo=_kept(c)), dtype)
    else:
        finish = _quantized_finish(c, Format(int(p.format)), plan, NonlineMode.IDENTITY, None, None)
        result = conv_fast(data, filters, plan.geo, finish, _kept(c))
        result = result.astype(target.np) if finish else whole_numbers(result, target.np)
    return from_plain(result, plan.out)


def _chanwise(geo: rules.Geometry, flip: bool) -> bool:
    """Return whether MegEngine's chanwise int8 kernels take this convolution; they round in their own way."""
    square = geo.kernel[0] == geo.kernel[1] and geo.stride[0] == geo.stride[1]
    small = geo.kernel[0] in (2, 3, 5, 7) and geo.stride[0] in (1, 2)
    return square and small and geo.icg == geo.ocg == 1 and geo.dilate == (1, 1) and not flip


def _quantized_finish(
    c: Call, fmt: Format, plan: rules.Plan, mode: NonlineMode, bias: Array | None, z: Array | None
) -> Real | Requantize | None:
    """Return a function that turns exact sums into the output dtype; None when they are the output.

    Args:
        bias: plain integers, already in the dtype of the sums.
        z: plain real numbers (a float bias too).
    """
    x, target = c.inputs[0], c.outputs[0]
    if target.name in ("Int32", "Int16", "QuantizedS32") and mode == NonlineMode.IDENTITY and z is None:
        return Real(bias=bias) if bias is not None else None
    scale = rules.product_scale(x, c.inputs[1])
    if target.name == "Float32":
        return Real(mode, bias, z, scale)
    plain = fmt == Format.NCHW and z is None and target.name == x.name
    if plain and x.name == "QuantizedS8" and not _chanwise(plan.geo, plan.flip):
        rule = "separate"
    elif plain and x.name in ("QuantizedS8", "Quantized8Asymm"):
        rule = "product" if mode == NonlineMode.IDENTITY else "reciprocal"
    else:
        rule = "division"
    return Requantize(scale, target, rule, mode, bias, z)


def _addend(c: Call, fmt: Format, plan: rules.Plan, value: Array, what: str) -> Array:
    """Return a bias (one number per channel, or one per element) as a plain array."""
    single = output_packing(fmt, (1, plan.geo.channels, *(1,) * len(plan.geo.out)))
    for packing in (single, plan.out):
        if value.shape == packing.shape:
            return to_plain(value, packing)
    raise ValueError(
        f"the {what} must have shape {list(single.shape)} or {list(plan.out.shape)}, got {list(value.shape)}"
    )


def _addends(
    c: Call, fmt: Format, plan: rules.Plan, rest: tuple[Array, ...]
) -> tuple[Array | None, Array | None]:
    """Return bias and z, where they are given, as plain arrays; z in real numbers."""
    bias = _addend(c, fmt, plan, rest[0], "bias") if rest else None
    if len(rest) < 2:
        return bias, None
    if rest[1].shape != plan.out.shape:
        raise ValueError(f"z must have shape {list(plan.out.shape)}, got {list(rest[1].shape)}")
    return bias, _real(to_plain(rest[1], plan.out), c.inputs[3])


def _conv_bias(
    c: Call, p: rules.BiasParam, plan: rules.Plan, x: Array, filters: Array, rest: tuple[Array, ...]
) -> Array:
    """Compute convolution, bias, residual and nonlinearity as a plain array of the output dtype."""
    dtype, target = c.inputs[0], c.outputs[0]
    requantizer = c.memo.get("requantize")
    if requantizer is not None:
        return conv_fast(x, filters, plan.geo, requantizer, _kept(c)).astype(target.np)
    bias, z = _addends(c, Format(int(p.format)), plan, rest)
    if dtype.is_float:
        return _float_bias(c, p, plan, x, filters, bias, z)
    if dtype.name == "Int8":
        sums = whole_numbers(conv_fast(x, filters, plan.geo, memo=_kept(c)), target.np)
        for value in (bias, z):
            if value is not None:
                sums += value.astype(target.np)
        if p.nonlineMode not in (NonlineMode.IDENTITY, NonlineMode.RELU):
            raise ValueError(f"{p.nonlineMode.name} needs real numbers, the result is {target}")
        return np.maximum(sums, 0, out=sums) if p.nonlineMode == NonlineMode.RELU else sums
    bias, finish = _integer_finish(c, p, plan, filters.dtype == np.float64, bias, z)
    if isinstance(finish, Real) and target.name != "Float32":
        # float32 may not hold the bias exactly.
        sums = whole_numbers(conv_fast(x, filters, plan.geo, memo=_kept(c)), target.np)
        return sums if bias is None else sums + bias.astype(target.np)
    result = conv_fast(x, filters, plan.geo, finish, _kept(c))
    return whole_numbers(result, target.np) if finish is None else result.astype(target.np)


def _integer_finish(
    c: Call, p: rules.BiasParam, plan: rules.Plan, wide: bool, bias: Array | None, z: Array | None
) -> tuple[Array | None, Real | Requantize | None]:
    """Return the integer bias and what follows exact sums; kept where it is the same in every run and for all sizes.

    Args:
        wide: whether the sums are float64.
    """
    if p.nonlineMode == NonlineMode.SIGMOID and c.outputs[0].is_quantized:
        raise ValueError("SIGMOID needs real numbers, a quantized convolution has IDENTITY, RELU and H_SWISH")
    if bias is not None:
        if c.inputs[2].name == "Float32":
            z, bias = bias if z is None else z + bias, None
        else:
            _check_bias(c)
            bias = bias.astype(np.float64 if wide else np.int32)
    finish = _quantized_finish(c, Format(int(p.format)), plan, p.nonlineMode, bias, z)
    single = bias is None or bias.size == plan.geo.channels
    if isinstance(finish, Requantize) and z is None and single and c.const and all(c.const[1:]):
        c.memo["requantize"] = finish
    return bias, finish


def _check_bias(c: Call) -> None:
    want, bias = rules.product_scale(*c.inputs[:2]), c.inputs[2]
    if bias.name != "QuantizedS32" or abs(bias.scale - want) >= 1e-6:
        raise ValueError(f"the bias of this convolution must be QuantizedS32 of scale {want:.9g}, got {bias}")


def _real(x: Array, dtype: DType) -> Array:
    """Convert stored values to real numbers; plain numbers stay."""
    if not dtype.is_quantized:
        return x
    return (x.astype(np.float32) - np.float32(dtype.zero_point)) * np.float32(dtype.scale)


def _float_bias(
    c: Call,
    p: rules.BiasParam,
    plan: rules.Plan,
    x: Array,
    filters: Array,
    bias: Array | None,
    z: Array | None,
) -> Array:
    dtype = c.inputs[0]
    if dtype.name == "Float32":
        finish = Real(p.nonlineMode, bias, z)
        return conv_fast(x, filters, plan.geo, None if finish.idle else finish, _kept(c))

    # The narrow types round after the convolution, the bias, z and the nonlinearity.
    round_ = kernel_steps.rounding(dtype.name)
    steps = is_stepwise(p, dtype)
    sums = (
        kernel_steps.conv_steps(x, filters, plan.geo, round_, takes_columns(p, plan), plan.flip)
        if steps
        else conv_fast(x, filters, plan.geo, memo=_kept(c))
    )
    round_(sums)
    for value in (bias, z):
        if value is not None:
            sums += value
            round_(sums)
    Real(p.nonlineMode)(sums, 0, 0, slice(None))
    return narrowed(sums, dtype)


@kernel(
    "ConvBiasForwardV4",
    dtype=rules.conv_dtype,
    shape=rules.conv_shape(P.ConvBias),
    flops=rules.conv_flops(P.ConvBias),
    bind=_bind,
)
def conv_bias(c: Call, x: Array, w: Array, *rest: Array) -> Array:
    """Compute ``act(conv(x, w) + bias + z)`` (MegEngine dnn naive conv_bias).

    Quantized results are rounded like the x86 kernels (see `finish.Requantize`). The x86 kernels for NCHW
    leave z out and mistake a full-size bias of int8 data; both are computed here as the naive kernel does.

    Args:
        rest: bias (one per channel in the output's layout, or of the output's shape) and z, both optional.

    Raises:
        ValueError: shapes that do not fit, a bias of another scale, or a nonlinearity the dtype has not.
    """
    p = c.get(P.ConvBias)
    plan = rules.conv_plan(p, c.inputs, x.shape, w.shape)
    filters = plain_filters(c, w, plan, 1)
    data = plain_numbers(x, plan.x, c.inputs[0], filters.dtype)
    return from_plain(_conv_bias(c, p, plan, data, filters, rest), plan.out)


@kernel(
    "BatchConvBiasForwardV1",
    dtype=rules.conv_dtype,
    shape=rules.conv_shape(P.BatchConvBias, batched=True),
    flops=rules.conv_flops(P.BatchConvBias, batched=True),
)
def batch_conv_bias(c: Call, x: Array, w: Array, *rest: Array) -> Array:
    """Compute ConvBias with a filter for every sample: w is (batch, filter...) (MegEngine dnn naive batch_conv_bias).

    Raises:
        ValueError: see `conv_bias`; also another number of filters than samples.
    """
    p = c.get(P.BatchConvBias)
    rules.check_batch(x.shape, w.shape)
    whole = rules.conv_plan(p, c.inputs, x.shape, w.shape[1:])
    out = np.empty(whole.out.plain, c.outputs[0].np)
    call = Call(c.opr, c.inputs, c.outputs)
    for n in range(x.shape[0]):
        plan = rules.conv_plan(p, c.inputs, x[n : n + 1].shape, w.shape[1:])
        filters = plain_filters(call, w[n], plan, 1)
        data = plain_numbers(x[n : n + 1], plan.x, c.inputs[0], filters.dtype)
        part = tuple(r if r.shape[0] == 1 else r[n : n + 1] for r in rest)
        out[n] = _conv_bias(call, p, plan, data, filters, part)[0]
    return from_plain(out, whole.out)


@kernel(
    "ConvolutionBackwardDataV2",
    dtype=rules.backward_dtype,
    shape=rules.backward_shape(P.Convolution),
    flops=rules.backward_flops(P.Convolution),
)
def transposed(c: Call, w: Array, diff: Array, like: Array | None = None) -> Array:
    """Compute the transposed convolution (MegEngine dnn naive convolution, backward_data).

    Args:
        like: only its shape counts, it is the result's.

    Raises:
        ValueError: shapes that do not fit, or a given result shape that cannot give `diff`.
    """
    return _transposed(c, c.get(P.Convolution), w, diff, like)


def _transposed(c: Call, p: rules.ConvParam, w: Array, diff: Array, like: Array | None) -> Array:
    plan = rules.backward_plan(p, c.inputs, w.shape, diff.shape, None if like is None else like.shape)
    filters = plain_filters(c, w, plan, 0, wide=True)
    dtype, target = c.inputs[1], c.outputs[0]
    data = plain_numbers(diff, plan.out, dtype, filters.dtype)
    steps = dtype.is_float and is_stepwise(p, dtype)
    image = not isinstance(p, P.Convolution3D) and p.format.name == "NCHW"
    if dtype.name in ("Float16", "BFloat16") and image and plan.geo.dilate == (1, 1):
        result = kernel_steps.deconv_columns(
            data, filters, plan.geo, kernel_steps.rounding(dtype.name), steps, plan.flip
        ).astype(target.np)
    elif steps:
        result = kernel_steps.deconv_steps(data, filters, plan.geo, kernel_steps.rounding(dtype.name)).astype(
            target.np
        )
    else:
        result = transpose.deconv_fast(data, filters, plan.geo)
        if dtype.is_float:
            result = narrowed(result, dtype)
        elif target.name in rules.QUANTIZED:
            flat = result.reshape(1, -1)
            Requantize(rules.product_scale(*c.inputs[:2]), target, "product")(flat, 0, 0, slice(None))
            result = result.astype(target.np)
        else:
            result = whole_numbers(result, target.np)
    return from_plain(result, plan.x)


@kernel(
    "Convolution3D",
    dtype=rules.volume_dtype,
    shape=rules.conv_shape(P.Convolution3D),
    flops=rules.conv_flops(P.Convolution3D),
)
def convolution_3d(c: Call, x: Array, w: Array) -> Array:
    """Convolve volumes, NCDHW or NDHWC (MegEngine dnn naive convolution3d).

    Raises:
        ValueError: shapes that do not fit.
    """
    p = c.get(P.Convolution3D)
    plan = rules.conv_plan(p, c.inputs, x.shape, w.shape)
    filters = plain_filters(c, w, plan, 1)
    dtype = c.inputs[0]
    data = plain_numbers(x, plan.x, dtype, filters.dtype)
    if is_stepwise(p, dtype):
        result = kernel_steps.conv_steps(
            data, filters, plan.geo, kernel_steps.rounding(dtype.name), turned=plan.flip
        ).astype(c.outputs[0].np)
    else:
        result = narrowed(volume.conv_volume(data, filters, plan.geo), dtype)
    return from_plain(result, plan.out)


@kernel(
    "Convolution3DBackwardData",
    dtype=rules.volume_dtype,
    shape=rules.backward_shape(P.Convolution3D),
    flops=rules.backward_flops(P.Convolution3D),
)
def transposed_3d(c: Call, w: Array, diff: Array, like: Array | None = None) -> Array:
    """Compute the transposed convolution of volumes (MegEngine dnn naive convolution3d, backward_data).

    Args:
        like: only its shape counts, it is the result's.

    Raises:
        ValueError: shapes that do not fit.
    """
    return _transposed(c, c.get(P.Convolution3D), w, diff, like)

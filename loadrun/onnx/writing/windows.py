"""Convolutions of every layout and dtype as Conv, ConvTranspose and ConvInteger; pooling."""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...graph import Opr, Var, params as P
from ...graph.dtypes import Array
from ...ops.conv.layout import Packing
from ...ops.conv.rules import Plan, backward_plan, conv_plan
from ...ops.pooling import pool_windows
from ..tensors import ElemType
from .elemwise_float import compose, stepwise_h_swish
from .emitter import UnsupportedOprError
from .formulas import in_other_layout, in_plain_layout, written
from .integers import integer_weights
from .layers import unsigned
from .writer import OnnxWriter, elem_of, translation

# Convolutions of every layout and dtype as Conv, ConvTranspose and ConvInteger.
#
# Quantized ones become DequantizeLinear, Conv on real numbers and QuantizeLinear, which runtimes fuse to integer
# arithmetic; where the result is the integer sums themselves, ConvInteger computes them.

CONVOLUTIONS = ("ConvolutionV2", "Convolution3D", "ConvolutionBackwardDataV2", "Convolution3DBackwardData")

_Convolution = P.Convolution | P.Convolution3D | P.ConvBias


def activate(w: OnnxWriter, x: str, mode: P.NonlineMode) -> str:
    """Apply the nonlinearity of a convolution to float32 values."""
    if mode == P.NonlineMode.IDENTITY:
        return x
    return compose(w, P.ElemwiseMode[mode.name], x)


def _attributes(plan: Plan) -> dict[str, Any]:
    geo = plan.geo
    attributes: dict[str, Any] = {"kernel_shape": list(geo.kernel)}
    if any(geo.pad):
        attributes["pads"] = [*geo.pad, *geo.pad]
    if any(s != 1 for s in geo.stride):
        attributes["strides"] = list(geo.stride)
    if any(d != 1 for d in geo.dilate):
        attributes["dilations"] = list(geo.dilate)
    if geo.groups != 1:
        attributes["group"] = geo.groups
    return attributes


def _filter(w: OnnxWriter, var: Var, plan: Plan) -> str:
    """Return the filter as stored, as (all outputs, inputs of a group, window), flipped if the mode asks for it."""
    value, shape = w.value(var), (plan.geo.channels, *plan.w.plain[2:])
    axes = [*range(2, len(shape))]
    if value is None:
        out = w.name(var) if w.rank(var) == len(shape) else w.reshape(w.name(var), shape)
        back, ends = [-1] * len(axes), [-(2**63) + 1] * len(axes)
        return w.slice(out, back, ends, axes, back) if plan.flip else out
    if value.ndim == len(shape) and not plan.flip:
        return w.name(var)
    plain = value.reshape(shape)
    return w.derived(var, "plain", np.ascontiguousarray(np.flip(plain, tuple(axes)) if plan.flip else plain))


def _sums(w: OnnxWriter, x: Var, f: Var, plan: Plan) -> str:
    """Emit the sums of integer products as plain int32."""
    data, filters = w.name(x), _filter(w, f, plan)
    a, b = w.dtype(x), w.dtype(f)
    if w.opset < 10:
        real = [w.centred(v, t, ElemType.FLOAT) for v, t in ((data, a), (filters, b))]
        return w.cast(w.op("Conv", *real, **_attributes(plan)), ElemType.INT32)
    data, first = unsigned(w, data, a)
    filters, second = unsigned(w, filters, b)
    return w.op("ConvInteger", data, filters, first, second, **_attributes(plan))


def _vector(w: OnnxWriter, var: Var, plan: Plan) -> str:
    """Return a constant bias, one number per channel, as ONNX's B input; "" if it is no such thing."""
    value = w.value(var)
    one = (plan.geo.channels, *(1,) * len(plan.geo.out))
    if value is None or value.size != plan.geo.channels or value.shape[-len(one) :] != one:
        return ""
    return w.derived(var, "bias", np.ascontiguousarray(value.reshape(-1)))


@translation("ConvolutionV2", "Convolution3D", "ConvBiasForwardV4")
def convolution(w: OnnxWriter, opr: Opr, *bias: Var) -> str:
    """Emit Conv, then the residual sum and the nonlinearity; for integers ConvInteger, or Conv on real numbers."""
    x, f, *rest = opr.inputs
    p: Any = opr.params[0]
    w.fixed(f)
    plan = conv_plan(p, [w.dtype(x), w.dtype(f)], w.example(x), w.example(f))
    if _PLAIN[p.format.name] != p.format.name:
        return _in_plain_layout(w, opr, [plan.x, plan.w, plan.out], plan.out, 1)
    return _convolve(w, opr, p, plan, (*rest, *bias))


_PLAIN = {f.name: "NCHW" for f in P.Format} | {f.name: "NCDHW" for f in P.Convolution3DFormat}


def _in_plain_layout(w: OnnxWriter, opr: Opr, packings: Sequence[Packing], out: Packing, filters: int) -> str:
    """Write a convolution of another layout by the one on plain images."""
    p: Any = opr.params[0]
    how = {"format": type(p.format)[_PLAIN[p.format.name]], "sparse": type(p.sparse)["GROUP"]}
    function = partial(in_plain_layout, packings=packings, out=out, filters=filters, **how)
    return written(w, opr, function, typed=True)[0]


@translation("DeformableConvForwardV1")
def deformable(w: OnnxWriter, opr: Opr) -> str:
    """Emit DeformConv."""
    x, f, offset, mask = opr.inputs
    w.fixed(f)
    plan = conv_plan(opr.get(P.Convolution), [w.dtype(x), w.dtype(f)], w.example(x), w.example(f))
    inputs = w.name(x), _filter(w, f, plan), w.name(offset), "", w.name(mask)
    parts = w.fixed(mask, [1])[0] // prod(plan.geo.kernel)
    return w.op("DeformConv", *inputs, **_attributes(plan), offset_group=parts)


def convolution_with_bias(w: OnnxWriter, opr: Opr, bias: Var, value: Array) -> str | None:
    """Write a convolution, which may be transposed, with one constant number for every channel."""
    p: Any = opr.params[0]
    rank = w.rank(opr.outputs[0])
    channels = w.shape(opr.outputs[0])[1]
    plain = value.size == channels and value.shape[-rank + 1 :] == (channels, *(1,) * (rank - 2))
    if p.format.name not in ("NCHW", "NCDHW") or value.ndim > rank or not plain:
        return None
    if opr.type in ("ConvolutionV2", "Convolution3D"):
        return convolution(w, opr, bias)
    return transposed(w, opr, w.derived(bias, "bias", np.ascontiguousarray(value.reshape(-1))))


def _convolve(w: OnnxWriter, opr: Opr, p: _Convolution, plan: Plan, rest: tuple[Var, ...]) -> str:
    x, f = opr.inputs[:2]
    source, target = w.dtype(x), w.dtype(opr.outputs[0])
    mode = getattr(p, "nonlineMode", P.NonlineMode.IDENTITY)
    sums = mode == P.NonlineMode.IDENTITY and len(rest) < 2
    if source.name == "Int8" or (source.is_quantized and target.name == "QuantizedS32" and sums):
        return _integer(w, opr, plan, rest, mode)
    filters = _filter(w, f, plan)
    if source.is_quantized:
        data, filters = w.dequantized(x), w.dequantize(filters, w.dtype(f))
    else:
        data = w.name(x)
    wide = source.name == "Float16"
    bias, later = "", list(rest)
    if rest and w.dtype(rest[0]).name == "Float32":
        bias = _vector(w, rest[0], plan)
    elif rest and source.is_quantized and (key := _vector(w, rest[0], plan)):
        bias = w.dequantize(key, w.dtype(rest[0]))
    if bias:
        later = later[1:]
    if wide and (later or mode != P.NonlineMode.IDENTITY):
        data, filters = w.cast(data, ElemType.FLOAT), w.cast(filters, ElemType.FLOAT)
    filters, bias = integer_weights(w, x, filters, bias)
    out = w.op("Conv", data, filters, bias, **_attributes(plan))
    for var in later:
        out = w.op("Add", out, w.float(var))
    if target.is_quantized and mode == P.NonlineMode.H_SWISH:
        out = stepwise_h_swish(w, out)
    else:
        out = activate(w, out, mode)
    if wide and not later and mode == P.NonlineMode.IDENTITY:
        return out
    return w.stored(out, target)


def _integer(w: OnnxWriter, opr: Opr, plan: Plan, rest: tuple[Var, ...], mode: P.NonlineMode) -> str:
    """Compute integer sums, with integers added to them."""
    x, f = opr.inputs[:2]
    target = w.dtype(opr.outputs[0])
    out = _sums(w, x, f, plan)
    for var in rest:
        out = w.op("Add", out, w.cast(w.name(var), ElemType.INT32))
    if mode == P.NonlineMode.RELU:
        out = w.op("Max", out, w.const(np.int32(0)))
    return out if target.np == np.int32 else w.cast(out, ElemType.INT16)


# Transposed


@translation("ConvolutionBackwardDataV2", "Convolution3DBackwardData")
def transposed(w: OnnxWriter, opr: Opr, bias: str = "") -> str:
    """Emit ConvTranspose; a given shape becomes output_padding."""
    f, diff, *like = opr.inputs
    p: Any = opr.params[0]
    types = [w.dtype(f), w.dtype(diff)]
    like_shape = w.example(like[0]) if like else None
    w.fixed(f)
    plan = backward_plan(p, types, w.example(f), w.example(diff), like_shape)
    if _PLAIN[p.format.name] != p.format.name:
        return _in_plain_layout(w, opr, [plan.w, plan.out, plan.x], plan.x, 0)
    extra = _output_padding(w, opr, p)
    attributes = _attributes(plan)
    if any(extra):
        attributes["output_padding"] = extra
    target = w.dtype(opr.outputs[0])
    filters = _filter(w, f, plan)
    raw = not types[0].is_float and not target.name.startswith(("Quantized8", "QuantizedS8", "QuantizedS4"))
    if types[0].is_float:
        data, real = w.name(diff), filters
        if types[0].name == "Float16":
            data, real = w.cast(data, ElemType.FLOAT), w.cast(filters, ElemType.FLOAT)
    elif raw:
        data, real = (
            w.centred(v, t, ElemType.FLOAT) for v, t in ((w.name(diff), types[1]), (filters, types[0]))
        )
    else:
        data, real = w.dequantized(diff), w.dequantize(filters, types[0])
    out = w.op("ConvTranspose", data, real, bias, **attributes)
    return w.cast(out, ElemType.INT32) if raw else w.stored(out, target)


def _output_padding(w: OnnxWriter, opr: Opr, p: _Convolution) -> list[int]:
    """Compute the excess over the smallest output size, which must be the same at all sizes.

    Raises:
        UnsupportedOprError: it is not.
    """
    excess = set()
    f, diff, *like = opr.inputs
    if not like:
        return []
    for known in w.known:
        small, large = known.shapes.get(diff.id), known.shapes.get(opr.outputs[0].id)
        if small is None or large is None:
            raise UnsupportedOprError("a transposed convolution of unknown size")
        at = backward_plan(p, [w.dtype(f), w.dtype(diff)], w.example(f), small, large)
        geo = at.geo
        least = [
            (o - 1) * s + (k - 1) * d + 1 - 2 * q
            for o, s, k, d, q in zip(
                at.out.plain[2:], geo.stride, geo.kernel, geo.dilate, geo.pad, strict=True
            )
        ]
        excess.add(tuple(n - m for n, m in zip(at.x.plain[2:], least, strict=True)))
    if len(excess) > 1:
        raise UnsupportedOprError("a transposed convolution whose size modulo the stride changes")
    extra = list(excess.pop())
    if any(e < 0 for e in extra):
        raise UnsupportedOprError("a transposed convolution whose result is cut off")
    return extra


@translation("PoolingV1")
def pooling(w: OnnxWriter, opr: Opr) -> str:
    """Emit MaxPool or AveragePool."""
    p = opr.get(P.Pooling)
    if P.Format(p.format) != P.Format.NCHW:
        return in_other_layout(w, opr, P.Format(p.format))
    attributes = {
        "kernel_shape": [p.window_h, p.window_w],
        "strides": [p.stride_h, p.stride_w],
        "pads": [p.pad_h, p.pad_w, p.pad_h, p.pad_w],
    }
    for known in w.known:
        shape = known.shapes.get(opr.inputs[0].id)
        if shape is None:
            raise UnsupportedOprError("pooling of data of unknown size")
        if any(one.empty for one in pool_windows(p, shape)[1]):
            raise UnsupportedOprError("a window that lies wholly in the padding")
    return _pool(w, opr, p.mode, attributes)


@translation("AdaptivePoolingV1")
def adaptive_pooling(w: OnnxWriter, opr: Opr) -> str:
    """Emit MaxPool or AveragePool with windows that follow from the sizes, which must be fixed; or a global one."""
    p = opr.get(P.AdaptivePooling)
    if P.Format(p.format) != P.Format.NCHW:
        return in_other_layout(w, opr, P.Format(p.format))
    x, want = opr.inputs
    sizes = w.split_dims(want)
    axes, windows = pool_windows(p, w.example(x), np.array(_example(w, want)))
    changing = any(w.shape(x)[a] is None for a in axes)
    if changing and all(n == 1 for n in sizes):
        if not w.dtype(x).is_float:
            raise UnsupportedOprError("adaptive pooling of quantized data whose size changes")
        return w.op("GlobalMaxPool" if p.mode == P.PoolingMode.MAX else "GlobalAveragePool", w.name(x))
    if changing or any(isinstance(n, str) for n in sizes):
        raise UnsupportedOprError("adaptive pooling needs fixed sizes: its windows follow from them")
    attributes = {
        "kernel_shape": [one.window for one in windows],
        "strides": [one.stride for one in windows],
        "pads": [0, 0, 0, 0],
    }
    return _pool(w, opr, p.mode, attributes)


def _example(w: OnnxWriter, want: object) -> list[int]:
    sizes = w.known[0].values.get(want.id)  # type: ignore[attr-defined]
    if sizes is None:
        raise UnsupportedOprError("the output size of adaptive pooling is known only when the model runs")
    return [int(n) for n in sizes.reshape(-1)]


def _pool(w: OnnxWriter, opr: Opr, mode: P.PoolingMode, attributes: dict[str, list[int]]) -> str:
    x = opr.inputs[0]
    dtype = w.dtype(x)
    if mode == P.PoolingMode.MAX:
        small = dtype.name in ("Int8", "Uint8", "QuantizedS8", "Quantized8Asymm") and w.opset >= 12
        if small or dtype.np.kind == "f":
            return w.op("MaxPool", w.name(x), **attributes)
        out = w.op("MaxPool", w.cast(w.name(x), ElemType.FLOAT), **attributes)
        return w.cast(out, ElemType.of(dtype.np))
    include = int(mode == P.PoolingMode.AVERAGE)
    if not dtype.is_quantized:
        data = w.float(x)
        out = w.op("AveragePool", data, count_include_pad=include, **attributes)
        if dtype.name == "Int8":
            # The plain average truncates, the other rounds.
            return w.cast(w.cast(out if include else w.round_away(out), ElemType.INT32), ElemType.INT8)
        return w.stored(out, dtype)
    # Averages of integers are often halves: round them before the scale blurs them.
    whole = w.centred(w.name(x), dtype, ElemType.FLOAT)
    out = w.round_away(w.op("AveragePool", whole, count_include_pad=include, **attributes))
    if dtype.zero_point:
        out = w.op("Add", out, w.f32(dtype.zero_point))
    return w.cast(out, elem_of(dtype))

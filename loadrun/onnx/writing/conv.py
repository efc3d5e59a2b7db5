"""Convolutions of every layout and dtype as Conv, ConvTranspose and ConvInteger.

Quantized ones become DequantizeLinear, Conv on real numbers and QuantizeLinear, which runtimes fuse to integer
arithmetic; where the result is the integer sums themselves, ConvInteger computes them.
"""

from typing import Any

import numpy as np

from ...graph import Opr, Var
from ...graph import params as P
from ...graph.dtypes import Array, DType
from ...graph.params import Format, NonlineMode
from ...ops.conv.layout import Packing, output_packing
from ...ops.conv.layout import to_plain as array_to_plain
from ...ops.conv.rules import Plan, backward_plan, conv_plan
from ..encode import ElemType
from .elemwise_float import compose, stepwise_h_swish
from .emitter import Dim, UnsupportedOprError
from .integers import integer_weights
from .layout import plain_dims, to_packed, to_plain
from .linalg import unsigned
from .writer import OnnxWriter, translation

CONVOLUTIONS = ("ConvolutionV2", "Convolution3D", "ConvolutionBackwardDataV2", "Convolution3DBackwardData")

_Convolution = P.Convolution | P.Convolution3D | P.ConvBias


def activate(w: OnnxWriter, x: str, mode: NonlineMode) -> str:
    """Apply the nonlinearity of a convolution to float32 values."""
    if mode == NonlineMode.IDENTITY:
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


def _filter_array(w: OnnxWriter, var: Var, plan: Plan) -> Array | None:
    """Return a constant filter as (all outputs, inputs of a group, window), flipped if the mode asks for it."""
    value = w.value(var)
    if value is None:
        return None
    plain = array_to_plain(value, plan.w)
    if plan.flip:
        plain = np.flip(plain, tuple(range(3, plain.ndim)))
    return np.ascontiguousarray(plain.reshape(-1, *plain.shape[2:]))


def _filter(w: OnnxWriter, var: Var, plan: Plan) -> str:
    """Return the filter as stored, in ONNX's layout."""
    array = _filter_array(w, var, plan)
    if array is not None:
        value = w.value(var)
        if value is not None and value.shape == array.shape and not plan.flip:
            return w.name(var)
        return w.derived(var, "plain", array)
    shape = [*plan.w.plain[:1], *plan.w.plain[1:]]
    out = w.reshape(w.transpose(w.name(var), plan.w.order), [shape[0] * shape[1], *shape[2:]])
    if plan.flip:
        axes = list(range(2, 2 + len(shape) - 3))
        out = w.slice(out, [-1] * len(axes), [-(2**63) + 1] * len(axes), axes, [-1] * len(axes))
    return out


def _geometry_holds(w: OnnxWriter, opr: Opr, x: Var, f: Var) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return example shapes of data and filter, requiring that the filter's is fixed."""
    w.fixed(f)
    return w.example(x), w.example(f)


def _sums(w: OnnxWriter, x: Var, f: Var, plan: Plan) -> str:
    """Emit the sums of integer products as plain int32."""
    data, filters = to_plain(w, w.name(x), x, plan.x), _filter(w, f, plan)
    a, b = w.dtype(x), w.dtype(f)
    if w.opset < 10:
        real = w.op("Conv", _centred_floats(w, data, a), _centred_floats(w, filters, b), **_attributes(plan))
        return w.cast(real, ElemType.INT32)
    data, first = unsigned(w, data, a)
    filters, second = unsigned(w, filters, b)
    return w.op("ConvInteger", data, filters, first, second, **_attributes(plan))


def _centred_floats(w: OnnxWriter, x: str, dtype: DType) -> str:
    """Convert stored integers to float32 without their zero point."""
    out = w.cast(x, ElemType.FLOAT)
    return w.op("Sub", out, w.f32(dtype.zero_point)) if dtype.zero_point else out


def _addend(w: OnnxWriter, var: Var, fmt: Format | str, plan: Plan, name: str) -> str:
    """Convert a bias (one number per channel, or one per element) to the plain layout."""
    single = output_packing(fmt, (1, plan.geo.channels, *(1,) * len(plan.geo.out)))
    packing = single if w.example(var) == single.shape else plan.out
    return to_plain(w, name, var, packing)


def _vector(w: OnnxWriter, var: Var, plan: Plan) -> str:
    """Return a constant float bias, one number per channel, as ONNX's B input; "" if it is no such thing."""
    value = w.value(var)
    if value is None or w.example(var) == plan.out.shape != value.shape or value.size != plan.geo.channels:
        return ""
    shape = value.shape
    if value.size != plan.geo.channels or sum(n != 1 for n in shape) > 2:
        return ""
    return w.derived(var, "bias", np.ascontiguousarray(value.reshape(-1)))


def _out_dims(w: OnnxWriter, opr: Opr, packing: Packing) -> list[Dim]:
    """Return the plain sizes of the result; -1 for one that changes is not enough if channels are split."""
    shape = w.shape(opr.outputs[0])
    dims: list[Dim] = [-1 if n is None else n for n in shape]
    return plain_dims(w, dims, packing)


def _finish(w: OnnxWriter, opr: Opr, plain: str, packing: Packing) -> str:
    """Convert the plain result to the operator's layout."""
    if packing.order == tuple(range(len(packing.plain))):
        return plain
    changing = sum(n is None for n in w.shape(opr.outputs[0]))
    if len(packing.order) > len(packing.plain) and changing:
        batch, channels, *space = (w.dim_of(plain, i) for i in range(len(packing.plain)))
        del channels
        fixed = plain_dims(w, [1 if n is None else n for n in w.shape(opr.outputs[0])], packing)
        return to_packed(w, plain, [batch, fixed[1], *space], packing)
    return to_packed(w, plain, _out_dims(w, opr, packing), packing)


def _parameters(opr: Opr, deep: bool) -> P.Convolution | P.Convolution3D:
    return opr.get(P.Convolution3D) if deep else opr.get(P.Convolution)


@translation("ConvolutionV2", "Convolution3D")
def convolution(w: OnnxWriter, opr: Opr) -> str:
    """Emit Conv; for integers ConvInteger, or Conv between DequantizeLinear and QuantizeLinear."""
    return _convolution(w, opr)


def _convolution(w: OnnxWriter, opr: Opr, *bias: Var) -> str:
    x, f = opr.inputs
    p = _parameters(opr, opr.type == "Convolution3D")
    plan = conv_plan(p, [w.dtype(x), w.dtype(f)], *_geometry_holds(w, opr, x, f))
    return _finish(w, opr, _convolve(w, opr, p, plan, bias), plan.out)


def convolution_with_bias(w: OnnxWriter, opr: Opr, bias: Var, value: Array) -> str | None:
    """Write a convolution, which may be transposed, with one constant number for every channel."""
    p, rank = _parameters(opr, opr.type.startswith("Convolution3D")), w.rank(opr.outputs[0])
    channels = w.shape(opr.outputs[0])[1]
    plain = value.size == channels and value.shape[-rank + 1 :] == (channels, *(1,) * (rank - 2))
    if p.format.name not in ("NCHW", "NCDHW") or value.ndim > rank or not plain:
        return None
    if opr.type in ("ConvolutionV2", "Convolution3D"):
        return _convolution(w, opr, bias)
    return transposed(w, opr, w.derived(bias, "bias", np.ascontiguousarray(value.reshape(-1))))


@translation("ConvBiasForwardV4")
def conv_bias(w: OnnxWriter, opr: Opr) -> str:
    """Emit Conv with a bias, then the residual sum and the nonlinearity."""
    x, f, *rest = opr.inputs
    p = opr.get(P.ConvBias)
    plan = conv_plan(p, [w.dtype(x), w.dtype(f)], *_geometry_holds(w, opr, x, f))
    return _finish(w, opr, _convolve(w, opr, p, plan, tuple(rest)), plan.out)


def _convolve(w: OnnxWriter, opr: Opr, p: _Convolution, plan: Plan, rest: tuple[Var, ...]) -> str:
    x, f = opr.inputs[:2]
    source, target = w.dtype(x), w.dtype(opr.outputs[0])
    mode = getattr(p, "nonlineMode", NonlineMode.IDENTITY)
    fmt: Format | str = p.format.name if isinstance(p, P.Convolution3D) else Format(int(p.format))
    sums = mode == NonlineMode.IDENTITY and len(rest) < 2
    if source.name == "Int8" or (source.is_quantized and target.name == "QuantizedS32" and sums):
        return _integer(w, opr, plan, fmt, rest, mode)
    filters = _filter(w, f, plan)
    if source.is_quantized:
        data = to_plain(w, w.dequantized(x), x, plan.x) if plan.x.order else w.dequantized(x)
        filters = w.dequantize(filters, w.dtype(f))
    else:
        data = to_plain(w, w.name(x), x, plan.x)
    wide = source.name == "Float16"
    bias, later = "", list(rest)
    if rest and w.dtype(rest[0]).name == "Float32":
        bias = _vector(w, rest[0], plan)
    elif rest and source.is_quantized:
        bias = _quantized_vector(w, rest[0], plan)
    if bias:
        later = later[1:]
    if wide and (later or mode != NonlineMode.IDENTITY):
        data, filters = w.cast(data, ElemType.FLOAT), w.cast(filters, ElemType.FLOAT)
    filters, bias = integer_weights(w, x, filters, bias)
    out = w.op("Conv", data, filters, bias, **_attributes(plan))
    for var in later:
        out = w.op("Add", out, _addend(w, var, fmt, plan, w.float(var)))
    if target.is_quantized and mode == NonlineMode.H_SWISH:
        out = stepwise_h_swish(w, out)
    else:
        out = activate(w, out, mode)
    if wide and not later and mode == NonlineMode.IDENTITY:
        return out
    return w.stored(out, target)


def _quantized_vector(w: OnnxWriter, var: Var, plan: Plan) -> str:
    """Dequantize a constant bias with DequantizeLinear."""
    key = _vector(w, var, plan)
    return w.dequantize(key, w.dtype(var)) if key else ""


def _integer(
    w: OnnxWriter, opr: Opr, plan: Plan, fmt: Format | str, rest: tuple[Var, ...], mode: NonlineMode
) -> str:
    """Compute integer sums, with integers added to them."""
    x, f = opr.inputs[:2]
    target = w.dtype(opr.outputs[0])
    out = _sums(w, x, f, plan)
    for var in rest:
        out = w.op("Add", out, w.cast(_addend(w, var, fmt, plan, w.name(var)), ElemType.INT32))
    if mode == NonlineMode.RELU:
        out = w.op("Max", out, w.const(np.int32(0)))
    return out if target.np == np.int32 else w.cast(out, ElemType.INT16)


@translation("BatchConvBiasForwardV1")
def batch_conv_bias(w: OnnxWriter, opr: Opr) -> str:
    """Convolve every sample with its own filter: the samples become groups of one."""
    x, f, *rest = opr.inputs
    p = opr.get(P.BatchConvBias)
    n = w.fixed(x)[0]
    shapes = w.example(x), w.fixed(f)
    plan = conv_plan(p, [w.dtype(x), w.dtype(f)], shapes[0], shapes[1][1:])
    filters = w.value(f)
    target, geo = w.dtype(opr.outputs[0]), plan.geo
    if filters is None:
        whole = w.transpose(w.float(f), [0, *(a + 1 for a in plan.w.order)])
    else:
        plain = np.stack([array_to_plain(one, plan.w) for one in filters])
        whole = w.dequantize(w.const(plain), w.dtype(f)) if w.dtype(f).is_quantized else w.const(plain)
    _, ocg, icg, *kernel = plan.w.plain
    whole = w.reshape(whole, [n * geo.groups * ocg, icg, *kernel])
    data = to_plain(w, w.float(x), x, plan.x)
    channels, *space = plan.x.plain[1:]
    attributes = _attributes(plan) | {"group": n * geo.groups}
    out = w.op("Conv", w.reshape(data, [1, n * channels, *space]), whole, **attributes)
    out = w.reshape(out, list(plan.out.plain))
    for var in rest:
        out = w.op("Add", out, _addend(w, var, Format(int(p.format)), plan, w.float(var)))
    out = activate(w, out, p.nonlineMode)
    if target.name in ("Int32", "QuantizedS32") and not target.is_quantized:
        return _finish(w, opr, w.cast(out, ElemType.INT32), plan.out)
    return _finish(w, opr, w.stored(out, target), plan.out)


# Transposed


@translation("ConvolutionBackwardDataV2", "Convolution3DBackwardData")
def transposed(w: OnnxWriter, opr: Opr, bias: str = "") -> str:
    """Emit ConvTranspose; a given shape becomes output_padding."""
    f, diff, *like = opr.inputs
    p = _parameters(opr, opr.type == "Convolution3DBackwardData")
    types = [w.dtype(f), w.dtype(diff)]
    like_shape = w.example(like[0]) if like else None
    w.fixed(f)
    plan = backward_plan(p, types, w.example(f), w.example(diff), like_shape)
    extra = _output_padding(w, opr, p, plan)
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
        data, real = _centred_floats(w, w.name(diff), types[1]), _centred_floats(w, filters, types[0])
    else:
        data, real = w.dequantized(diff), w.dequantize(filters, types[0])
    out = w.op("ConvTranspose", to_plain(w, data, diff, plan.out), real, bias, **attributes)
    out = w.cast(out, ElemType.INT32) if raw else w.stored(out, target)
    return _finish(w, opr, out, plan.x)


def _output_padding(w: OnnxWriter, opr: Opr, p: _Convolution, plan: Plan) -> list[int]:
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

"""Passes that make one operator of several."""

from functools import partial

import numpy as np

from ..base.errors import EngineError
from ..graph import Graph, Opr, Var, params as P
from ..graph.dtypes import DType
from ..ops.catalog import TypeParam
from ..ops.elemwise.table import AFTER_SUM, ROWS
from .arithmetic.identities import elemwise
from .arithmetic.terms import mode_of
from .layouts.layouts import shape_of
from .rewriter import Rewriter, each

# MegEngine's FuseConvBiasNonlin: convolution, bias and activation as one ConvBias.

M = P.ElemwiseMode
_ALONE = {P.ElemwiseMode[n.name]: n for n in P.NonlineMode if n != P.NonlineMode.IDENTITY}
_WITH_BIAS = {
    M.ADD: P.NonlineMode.IDENTITY,
    **{mode: _ALONE[plain] for mode, plain in AFTER_SUM.items() if plain in _ALONE},
}
_FLOATS = ("Float32", "Float16")


def fuse_conv_bias(graph: Graph, *, half: bool = True) -> Graph:
    """Fuse what follows convolutions: a bias of shape (1, C, 1, 1) or of the output's shape, RELU, SIGMOID, H_SWISH,
    and the conversion of a quantized result to QuantizedS8.

    Float results are the same bits in the reference engine; a conversion that is fused rounds once instead of twice.

    Args:
        half: whether float16 convolutions are fused, too, of which MegEngine's x86 kernels leave the bias out.
    """
    floats = _FLOATS if half else _FLOATS[:1]
    r = Rewriter(graph)

    def visit(opr: Opr) -> Var | None:
        if opr.type == "TypeCvtV2":
            return _conversion(r, opr)
        dtype = opr.outputs[0].dtype
        fits = opr.type == "Elemwise" and dtype is not None and dtype.name in floats
        return _elemwise(r, opr) if fits else None

    r.rewrite(visit)
    return r.finish()


def _alone(r: Rewriter, old: Var) -> bool:
    """Return whether exactly one operator reads a variable, if only its shape."""
    return not r.is_output(old) and len(r.readers.get(old.id, ())) == 1


def _elemwise(r: Rewriter, opr: Opr) -> Var | None:
    mode = mode_of(opr)
    if mode in _WITH_BIAS and len(opr.inputs) == 2:
        for source, bias in (opr.inputs, opr.inputs[::-1]):
            conv = r.var(source).owner
            if conv.type == "ConvolutionV2" and _alone(r, source):
                if _bias_fits(r, conv, r.var(source), r.var(bias)):
                    return _convolution(r, conv, _WITH_BIAS[mode], r.var(bias))
                return None
    if mode in _ALONE and _alone(r, opr.inputs[0]):
        inner = r.var(opr.inputs[0]).owner
        if inner.type == "ConvolutionV2" and inner.get(P.Convolution).format in (
            P.Format.NCHW,
            P.Format.NCHW4,
            P.Format.NHWC,
        ):
            return _convolution(r, inner, _ALONE[mode])
        if inner.type == "ConvBiasForwardV4" and len(inner.inputs) == 3:
            p = inner.get(P.ConvBias)
            twice = p.nonlineMode == _ALONE[mode] == P.NonlineMode.RELU
            if p.nonlineMode == P.NonlineMode.IDENTITY or twice:
                return _replaced(r, inner, p.replace(nonlineMode=_ALONE[mode]))
    return None


def _convolution(r: Rewriter, conv: Opr, nonlinearity: P.NonlineMode, *bias: Var) -> Var:
    shared = {k: v for k, v in conv.get(P.Convolution).pairs() if k != "sparse"}
    param = P.ConvBias(
        nonlineMode=nonlinearity, sparse=P.Sparse(int(conv.get(P.Convolution).sparse)), **shared
    )
    return r.add(
        "ConvBiasForwardV4",
        param,
        conv.get(P.ExecutionPolicy),
        inputs=[*conv.inputs, *bias],
        output_dtype=conv.output_dtype,
        like=conv,
    )[0]


def _replaced(r: Rewriter, conv: Opr, param: P.ConvBias) -> Var:
    return r.add(
        conv.type,
        param,
        conv.get(P.ExecutionPolicy),
        inputs=conv.inputs,
        output_dtype=conv.output_dtype,
        like=conv,
    )[0]


def _bias_fits(r: Rewriter, conv: Opr, result: Var, bias: Var) -> bool:
    bias_shape, weight, p = r.shape(bias), r.shape(conv.inputs[1]), conv.get(P.Convolution)
    if bias_shape is None or weight is None or r.dtype(bias) != r.dtype(result):
        return False
    if not r.constant(bias):
        # A constant of the output's shape or a computed value of one row would not fit other batch sizes.
        return bias_shape == r.shape(result)
    channels = weight[0] * (weight[1] if p.sparse == P.Sparse.GROUP else 1)
    shapes = {
        P.Format.NCHW: (1, channels, 1, 1),
        P.Format.NHWC: (1, 1, 1, channels),
        P.Format.NCHW4: (1, channels // 4, 1, 1, 4),
    }
    return bias_shape == shapes.get(p.format)


def _conversion(r: Rewriter, opr: Opr) -> Var | None:
    target = opr.get(TypeParam).dtype
    source = opr.inputs[0]
    conv = r.var(source).owner
    if conv.type != "ConvBiasForwardV4" or not _alone(r, source) or len(conv.inputs) > 3:
        return None
    if r.dtype(r.var(source)).name != "QuantizedS32" or target.name != "QuantizedS8":
        return None
    if r.dtype(conv.inputs[0]).name != "QuantizedS8":
        return None
    return r.add(conv.type, *conv.params, inputs=conv.inputs, output_dtype=target, like=conv)[0]


# MegEngine's FuseConvBiasZ: a residual sum as the fourth input of a ConvBias.

Q = P.ElemwiseMultiTypeMode
_MODES: dict[object, P.NonlineMode] = {
    M.ADD: P.NonlineMode.IDENTITY,
    M.FUSE_ADD_RELU: P.NonlineMode.RELU,
    Q.QADD: P.NonlineMode.IDENTITY,
    Q.QFUSE_ADD_RELU: P.NonlineMode.RELU,
    Q.QFUSE_ADD_H_SWISH: P.NonlineMode.H_SWISH,
}


def fuse_conv_bias_z(graph: Graph) -> Graph:
    """Fuse the sum of a ConvBias and a value of the same shape and type.

    A quantized result is rounded once where the separate operators round twice, so that it may differ by one quantum.
    """
    r = Rewriter(graph)
    r.rewrite(partial(_fused, r))
    return r.finish()


def _fused(r: Rewriter, opr: Opr) -> Var | None:
    if opr.type == "Elemwise":
        mode: object = mode_of(opr)
    elif opr.type == "ElemwiseMultiType":
        mode = opr.get(P.ElemwiseMultiType).mode
    else:
        return None
    if mode not in _MODES or len(opr.inputs) != 2:
        return None
    for source, other in (opr.inputs, opr.inputs[::-1]):
        conv = r.var(source).owner
        if conv.type != "ConvBiasForwardV4" or len(conv.inputs) != 3 or not r.single(source):
            continue
        if conv.get(P.ConvBias).nonlineMode != P.NonlineMode.IDENTITY:
            continue
        return _with_z(r, opr, conv, r.var(source), r.var(other), _MODES[mode])
    return None


def _with_z(r: Rewriter, opr: Opr, conv: Opr, result: Var, z: Var, nonlinearity: P.NonlineMode) -> Var | None:
    p, shape = conv.get(P.ConvBias), r.shape(result)
    if p.format not in (P.Format.NCHW, P.Format.NCHW4, P.Format.NHWC) or shape is None or z is result:
        return None
    if shape == r.shape(conv.inputs[2]) or shape != r.shape(z) or r.dtype(result).name != r.dtype(z).name:
        return None
    _, *policy = conv.params
    return r.add(
        conv.type,
        p.replace(nonlineMode=nonlinearity),
        *policy,
        inputs=[*conv.inputs, z],
        output_dtype=opr.outputs[0].dtype if r.dtype(z).is_quantized else conv.output_dtype,
        like=conv,
    )[0]


# MegEngine's ConvertBatchNorm: batch normalization with stored statistics, written as elementwise arithmetic.


def expand_batchnorm(graph: Graph, *, behind_convolutions: bool = False) -> Graph:
    """Replace BatchNormV1 by ``scale * (x - mean) * (variance + epsilon) ** -0.5 + bias``.

    Only the normalized output may be in use, and all inputs must have one dtype. Results agree to within rounding.

    Args:
        behind_convolutions: leave alone what does not follow a convolution that it can be folded into.
    """
    r = Rewriter(graph)
    for opr in r.rest():
        if opr.type != "BatchNormV1" or not _can(r, opr, behind_convolutions):
            r.copy(opr)
            continue
        x, scale, bias, mean, variance = (r.var(v) for v in opr.inputs)
        dtype = r.dtype(x)
        epsilon = r.put(np.array([opr.get(P.BN).epsilon]).astype(dtype.np), dtype)
        (inverse,) = r.add("PowC", P.PowC(exp=-0.5), inputs=[elemwise(r, M.ADD, variance, epsilon)])
        # Adding the negated mean is the same, and redistribution handles sums.
        centred = elemwise(r, M.ADD, x, elemwise(r, M.NEGATE, mean))
        scaled = elemwise(r, M.MUL, elemwise(r, M.MUL, scale, centred), inverse)
        r.replace(opr.outputs[-1], elemwise(r, M.ADD, scaled, bias))
    return r.finish()


def _can(r: Rewriter, opr: Opr, behind: bool) -> bool:
    if len(opr.inputs) != 5 or opr.get(P.BN).fwd_mode != P.BNFwdMode.INFERENCE:
        return False
    if any(r.readers.get(v.id) or r.is_output(v) for v in opr.outputs[:-1]):
        return False
    types = {r.dtype(r.var(v)) for v in opr.inputs}
    if len(types) != 1 or not next(iter(types)).is_float:
        return False
    if not behind:
        return True
    source = opr.inputs[0]
    return (
        source.owner.type == "ConvolutionV2"
        and r.single(source)
        and all(r.constant(r.var(v)) for v in (source.owner.inputs[1], *opr.inputs[1:]))
    )


# MegEngine's FuseDeconvCvt: a conversion to QuantizedS8 as part of the transposed convolution before it.


def fuse_deconv_conversion(graph: Graph) -> Graph:
    """Let a quantized transposed convolution give QuantizedS8 itself.

    Rounded once instead of twice, a result may differ by one quantum.
    """

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        source, target = opr.inputs[0], opr.get(TypeParam).dtype
        conv = r.var(source).owner
        if conv.type != "ConvolutionBackwardDataV2" or target.name != "QuantizedS8" or not r.single(source):
            return None
        if any(r.dtype(v).name != "QuantizedS8" for v in conv.inputs[:2]):
            return None
        return r.add(conv.type, *conv.params, inputs=conv.inputs, output_dtype=target, like=conv)[0]

    return each(graph, visit, "TypeCvtV2")


# Preparing 8-bit images in one operator: conversion, padding to four channels and packing become one
# RelayoutFormat, or part of the warp before them (MegEngine's FuseNCHW4Int8Preprocess and
# FuseWarpPerspectiveDimshuffle).

_F32 = DType("Float32")
_BYTES = ("Uint8", "Quantized8Asymm")
_SHIFTS = frozenset(mode for mode, row in ROWS.items() if row.neutral == 0)


def fuse_packing(graph: Graph) -> Graph:
    """Replace ``pack(concat(quantize(x - 128), zeros))`` by one RelayoutFormat that does all of it.

    The image is uint8 with 128 for zero, or Quantized8Asymm; the result is QuantizedS8 in packs of four channels, or
    NHWC with four channels. Results may differ by one quantum where a value is between two.
    """

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        result = opr.outputs[0].dtype
        if result is None or result.name != "QuantizedS8":
            return None
        shuffle, source = opr, None
        if opr.type == "TypeCvtV2":
            shuffle = opr.inputs[0].owner
            if shuffle.type != "Dimshuffle" or not r.single(opr.inputs[0]):
                return None
        padded = _packed(r, shuffle)
        if padded is None:
            return None
        source = _shifted(r, padded) if opr.type == "TypeCvtV2" else _quantized(r, padded)
        if source is None:
            return None
        mode = P.RelayoutFormat(mode=P.RelayoutMode.NCHW_NCHW4)
        try:
            (packed,) = r.add("RelayoutFormatV1", mode, inputs=[r.var(source)], output_dtype=result)
        except EngineError:
            return None
        if len(shuffle.get(P.Dimshuffle).pattern) == 4:
            target = shape_of(r, packed, (0, 2, 3, 4))
            (packed,) = r.add("ReshapeV1", P.OptionalAxisV1(), inputs=[packed, target])
        return packed

    return each(graph, visit, "Dimshuffle", "TypeCvtV2")


def _packed(r: Rewriter, shuffle: Opr) -> Var | None:
    """Return what is padded to four channels by zeros and packed by a Dimshuffle of the old graph."""
    padded = _before_packing(r, shuffle)
    if padded is None:
        return None
    join = padded.owner
    if join.type != "Concat" or join.get(P.Axis).axis != 1 or len(join.inputs) != 2:
        return None
    data, padding = join.inputs
    channels, total = r.old_shape(data), r.old_shape(padded)
    if _filling(r, padding) != 0 or channels is None or total is None:
        return None
    return data if total[1] == -(-channels[1] // 4) * 4 else None


def _before_packing(r: Rewriter, shuffle: Opr) -> Var | None:
    """Return the images of whole packs that a Dimshuffle, after a Reshape if there are several packs, moves last."""
    var = shuffle.inputs[0]
    shape, pattern = r.old_shape(var), shuffle.get(P.Dimshuffle).pattern
    if shape is None or not r.single(var):
        return None
    if pattern == (0, 2, 3, 1):
        return var if len(shape) == 4 and shape[1] == 4 else None
    if pattern != (0, 1, 3, 4, 2) or len(shape) != 5 or shape[2] != 4 or var.owner.type != "ReshapeV1":
        return None
    var = var.owner.inputs[0]
    plain = r.old_shape(var)
    fits = plain is not None and len(plain) == 4 and plain[1] == 4 * shape[1]
    return var if fits and r.single(var) else None


def _filling(r: Rewriter, old: Var) -> float | None:
    """Return the one real number that a constant, or a constant that is broadcast, holds everywhere."""
    number = _uniform(r, old)
    return _uniform(r, old.owner.inputs[0]) if number is None and old.owner.type == "Broadcast" else number


def _uniform(r: Rewriter, old: Var) -> float | None:
    """Return the real number that all elements of a constant stand for."""
    dtype = old.dtype
    if dtype is None or not dtype.is_quantized:
        return r.scalar(r.var(old))
    value = r.value(r.var(old))
    if value is None or not value.size or (value != value.reshape(-1)[0]).any():
        return None
    return (float(value.reshape(-1)[0]) - dtype.zero_point) * dtype.scale


def _quantized(r: Rewriter, old: Var) -> Var | None:
    """Return the image before a conversion to QuantizedS8."""
    opr = old.owner
    if opr.type != "TypeCvtV2" or not r.single(old):
        return None
    source = opr.inputs[0]
    if source.dtype is not None and source.dtype.name == "Quantized8Asymm":
        return source
    return _shifted(r, source)


def _shifted(r: Rewriter, old: Var) -> Var | None:
    """Return the uint8 image from which 128 is subtracted as float32."""
    opr = old.owner
    if mode_of(opr) not in _SHIFTS or not r.single(old):
        return None
    least = -128.0 if mode_of(opr) == P.ElemwiseMode.ADD else 128.0
    pairs = [opr.inputs] if mode_of(opr) == P.ElemwiseMode.SUB else [opr.inputs, opr.inputs[::-1]]
    for image, number in pairs:
        value = r.value(r.var(number))
        cast = image.owner
        if value is None or value.size != 1 or value.dtype != np.float32 or value.reshape(-1)[0] != least:
            continue
        if cast.type == "TypeCvtV2" and r.single(image) and cast.get(TypeParam).dtype == _F32:
            source = cast.inputs[0]
            return source if source.dtype is not None and source.dtype.name == "Uint8" else None
    return None


def fuse_warp(graph: Graph) -> Graph:
    """Let a WarpPerspective of 8-bit images give the type and layout that it is converted to.

    The result is rounded once, not to a byte before, so that it may differ by half a step of a byte.
    """

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        packs = opr.type == "RelayoutFormatV1"
        result = opr.outputs[0].dtype
        if packs and opr.get(P.RelayoutFormat).mode != P.RelayoutMode.NCHW_NCHW4:
            return None
        if result is None or result.name != ("QuantizedS8" if packs else "Float32"):
            return None
        inner, turned = opr.inputs[0], False
        if inner.owner.type == "Dimshuffle" and inner.owner.get(P.Dimshuffle).pattern == (0, 3, 1, 2):
            if not r.single(inner):
                return None
            inner, turned = inner.owner.inputs[0], True
        return _warp(r, inner, result, turned=turned, packs=packs)

    return each(graph, visit, "RelayoutFormatV1", "TypeCvtV2")


def _warp(r: Rewriter, old: Var, result: DType, *, turned: bool, packs: bool) -> Var | None:
    warp = old.owner
    if warp.type != "WarpPerspectiveV2" or not r.single(old) or r.frozen(warp):
        return None
    p, source, shape = warp.get(P.WarpPerspective), warp.inputs[0], r.old_shape(old)
    if source.dtype is None or source.dtype.name not in _BYTES or shape is None:
        return None
    if p.format != (P.Format.NHWC if turned else P.Format.NCHW) or (packs and shape[3 if turned else 1] >= 4):
        return None
    if packs:
        form = P.Format.NHWC_NCHW4_IC_SMALL if turned else P.Format.NCHW_NCHW4_IC_SMALL
    else:
        form = P.Format.NHWC_NCHW if turned else P.Format.NCHW
    operands = [r.var(v) for v in warp.inputs]
    try:
        return r.add(
            "WarpPerspectiveV2", p.replace(format=form), inputs=operands, output_dtype=result, like=warp
        )[0]
    except EngineError:
        return None

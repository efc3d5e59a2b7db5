"""Convolution, bias and activation as one ConvBias (MegEngine's FuseConvBiasNonlin)."""

from __future__ import annotations

from ...graph import Graph, Opr, Var
from ...graph.params import ConvBias, Convolution, ElemwiseMode, ExecutionPolicy, Format, NonlineMode, Sparse
from ...ops.catalog import TypeParam
from ...ops.elemwise.table import ROWS
from ..arithmetic.terms import mode_of
from ..rewriter import Rewriter

M = ElemwiseMode
_ALONE = {mode: row.nonline for mode, row in ROWS.items() if row.nonline is not None}
_WITH_BIAS = {
    M.ADD: NonlineMode.IDENTITY,
    **{
        mode: _ALONE[row.after_add]
        for mode, row in ROWS.items()
        if row.after_add is not None and row.after_add in _ALONE
    },
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
        if inner.type == "ConvolutionV2" and inner.get(Convolution).format in (
            Format.NCHW,
            Format.NCHW4,
            Format.NHWC,
        ):
            return _convolution(r, inner, _ALONE[mode])
        if inner.type == "ConvBiasForwardV4" and len(inner.inputs) == 3:
            p = inner.get(ConvBias)
            twice = p.nonlineMode == _ALONE[mode] == NonlineMode.RELU
            if p.nonlineMode == NonlineMode.IDENTITY or twice:
                return _replaced(r, inner, p.replace(nonlineMode=_ALONE[mode]))
    return None


def _convolution(r: Rewriter, conv: Opr, nonlinearity: NonlineMode, *bias: Var) -> Var:
    shared = {k: v for k, v in conv.get(Convolution).pairs() if k != "sparse"}
    param = ConvBias(nonlineMode=nonlinearity, sparse=Sparse(int(conv.get(Convolution).sparse)), **shared)
    return r.add(
        "ConvBiasForwardV4",
        param,
        conv.get(ExecutionPolicy),
        inputs=[*conv.inputs, *bias],
        output_dtype=conv.output_dtype,
        like=conv,
    )[0]


def _replaced(r: Rewriter, conv: Opr, param: ConvBias) -> Var:
    return r.add(
        conv.type,
        param,
        conv.get(ExecutionPolicy),
        inputs=conv.inputs,
        output_dtype=conv.output_dtype,
        like=conv,
    )[0]


def _bias_fits(r: Rewriter, conv: Opr, result: Var, bias: Var) -> bool:
    bias_shape, weight, p = r.shape(bias), r.shape(conv.inputs[1]), conv.get(Convolution)
    if bias_shape is None or weight is None or r.dtype(bias) != r.dtype(result):
        return False
    if not r.constant(bias):
        # A constant of the output's shape or a computed value of one row would not fit other batch sizes.
        return bias_shape == r.shape(result)
    channels = weight[0] * (weight[1] if p.sparse == Sparse.GROUP else 1)
    shapes = {
        Format.NCHW: (1, channels, 1, 1),
        Format.NHWC: (1, 1, 1, channels),
        Format.NCHW4: (1, channels // 4, 1, 1, 4),
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

"""A residual sum as the fourth input of a ConvBias (MegEngine's FuseConvBiasZ)."""

from functools import partial

from ...graph import Graph, Opr, Var
from ...graph import params as P
from ..arithmetic.terms import mode_of
from ..rewriter import Rewriter

M, Q = P.ElemwiseMode, P.ElemwiseMultiTypeMode
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

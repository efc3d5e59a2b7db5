"""Batch normalization with stored statistics, written as elementwise arithmetic (MegEngine's ConvertBatchNorm)."""

import numpy as np

from ...graph import Graph, Opr
from ...graph.params import BN, BNFwdMode, ElemwiseMode, PowC
from ..arithmetic.identities import elemwise
from ..rewriter import Rewriter

M = ElemwiseMode


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
        epsilon = r.put(np.array([opr.get(BN).epsilon]).astype(dtype.np), dtype)
        (inverse,) = r.add("PowC", PowC(exp=-0.5), inputs=[elemwise(r, M.ADD, variance, epsilon)])
        # Adding the negated mean is the same, and redistribution handles sums.
        centred = elemwise(r, M.ADD, x, elemwise(r, M.NEGATE, mean))
        scaled = elemwise(r, M.MUL, elemwise(r, M.MUL, scale, centred), inverse)
        r.replace(opr.outputs[-1], elemwise(r, M.ADD, scaled, bias))
    return r.finish()


def _can(r: Rewriter, opr: Opr, behind: bool) -> bool:
    if len(opr.inputs) != 5 or opr.get(BN).fwd_mode != BNFwdMode.INFERENCE:
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

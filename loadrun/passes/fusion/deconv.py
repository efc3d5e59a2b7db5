"""A conversion to QuantizedS8 as part of the transposed convolution before it (MegEngine's FuseDeconvCvt)."""

from __future__ import annotations

from ...graph import Graph, Opr, Var
from ...ops.catalog import TypeParam
from ..rewriter import Rewriter, each


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

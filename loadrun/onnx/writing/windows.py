"""Windows as data: unfolding and folding images, convolutions with a filter per position."""

from ...graph import Opr
from ...graph import params as P
from ...graph.params import Sparse
from .writer import OnnxWriter, translation


@translation("DeformableConvForwardV1")
def deformable(w: OnnxWriter, opr: Opr) -> str:
    """Emit DeformConv."""
    p, (x, f, offset, mask) = opr.get(P.Convolution), opr.inputs
    shape = w.fixed(f)
    groups, ocg, icg, fh, fw = shape if p.sparse == Sparse.GROUP else (1, *shape)
    parts = w.fixed(mask, [1])[0] // (fh * fw)
    weight = w.reshape(w.name(f), [groups * ocg, icg, fh, fw]) if len(shape) == 5 else w.name(f)
    return w.op(
        "DeformConv",
        w.name(x),
        weight,
        w.name(offset),
        "",
        w.name(mask),
        kernel_shape=[fh, fw],
        pads=[p.pad_h, p.pad_w] * 2,
        strides=[p.stride_h, p.stride_w],
        dilations=[p.dilate_h, p.dilate_w],
        group=groups,
        offset_group=parts,
    )

"""Windows as data: unfolding and folding images, convolutions with a filter per position."""

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.params import Sparse
from ...ops.numeric.taps import Taps
from ..encode import ElemType
from .emitter import UnsupportedOprError
from .writer import OnnxWriter, elem_of, translation


def _spread(size: int, taps: Taps) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Build a matrix [size, window * out] that puts every tap of every window at its place."""
    out = np.zeros((size, taps.window, taps.out), np.float32)
    for k, to, at in taps:
        out[range(*at.indices(size)), k, range(*to.indices(taps.out))] = 1
    return out.reshape(size, -1)


@translation("SlidingWindowTranspose")
def sliding_window_transpose(w: OnnxWriter, opr: Opr) -> str:
    """Multiply by matrices of zeros and ones that put every tap at its place."""
    p, (x,) = opr.get(P.SlidingWindowTranspose), opr.inputs
    dtype = w.dtype(x)
    n, c, oh, ow = w.dims(x)[:4]
    if not isinstance(oh, int) or not isinstance(ow, int):
        raise UnsupportedOprError("windows whose number changes")
    rows = Taps(p.out_h, oh, p.window_h, p.stride_h, p.pad_h, p.dilate_h)
    columns = Taps(p.out_w, ow, p.window_w, p.stride_w, p.pad_w, p.dilate_w)
    wide = ElemType.FLOAT if dtype.is_float else ElemType.INT32
    value = w.name(x) if elem_of(dtype) is wide else w.cast(w.name(x), wide)
    # [N, C, KH, OH, KW, OW] as [N, C, KH * OH, KW * OW]
    flat = w.reshape(w.transpose(value, [0, 1, 4, 2, 5, 3]), [n, c, p.window_h * oh, p.window_w * ow])
    first, second = (m.astype(wide.numpy) for m in (_spread(p.out_h, rows), _spread(p.out_w, columns).T))
    out = w.op("MatMul", w.op("MatMul", w.const(first), flat), w.const(np.ascontiguousarray(second)))
    if dtype.is_float:
        return w.stored(out, dtype)
    return out if elem_of(dtype) is wide else w.cast(out, elem_of(dtype))


@translation("MaskConvolutionV2")
def mask_convolution(w: OnnxWriter, opr: Opr) -> str:
    """Emit Conv, with zeros where the mask is 0."""
    p, (x, f, mask) = opr.get(P.Convolution), opr.inputs
    shape = w.fixed(f)
    groups, ocg, icg, fh, fw = shape if p.sparse == Sparse.GROUP else (1, *shape)
    weight = w.reshape(w.name(f), [groups * ocg, icg, fh, fw])
    if p.mode == P.ConvMode.CONVOLUTION:
        weight = w.slice(weight, [-1, -1], [-(2**63) + 1] * 2, (2, 3), [-1, -1])
    out = w.op(
        "Conv",
        w.name(x),
        weight,
        kernel_shape=[fh, fw],
        pads=[p.pad_h, p.pad_w] * 2,
        strides=[p.stride_h, p.stride_w],
        dilations=[p.dilate_h, p.dilate_w],
        group=groups,
    )
    return w.where(w.cast(w.name(mask), ElemType.BOOL), out, w.f32(0))


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

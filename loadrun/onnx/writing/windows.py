"""Windows as data: unfolding and folding images, convolutions with a filter per position."""

from collections.abc import Sequence

import numpy as np

from ...graph import Opr, Var
from ...graph import params as P
from ...graph.dtypes import DType
from ...graph.params import Sparse
from ...ops.numeric.taps import Taps
from ..encode import ElemType
from .emitter import Dim, UnsupportedOprError
from .writer import OnnxWriter, elem_of, translation


def _movable(w: OnnxWriter, x: str, dtype: DType) -> tuple[str, ElemType]:
    """Cast a value to a type that runtimes can pad; return it with its original type."""
    elem = elem_of(dtype)
    if elem in (ElemType.INT16, ElemType.UINT16):
        return w.cast(x, ElemType.INT32), elem
    return x, elem


def _window_count(w: OnnxWriter, n: Dim, window: int, pad: int, stride: int, dilate: int) -> Dim:
    """Count the windows along an axis."""
    extent = w.arith("Add", n, 2 * pad - ((window - 1) * dilate + 1))
    return w.arith("Add", w.arith("Div", extent, stride), 1)


def _index(w: OnnxWriter, out: Dim, window: int, stride: int, dilate: int) -> str:
    """Return positions [window, out] in the padded axis."""
    if isinstance(out, int):
        return w.const(np.arange(window)[:, None] * dilate + np.arange(out, dtype=np.int64) * stride)
    taps = w.const((np.arange(window, dtype=np.int64) * dilate)[:, None])
    return w.op("Add", taps, w.op("Mul", w.range(out), w.const(np.int64(stride))))


def unfolded(
    w: OnnxWriter,
    x: str,
    dims: Sequence[Dim],
    axes: tuple[int, int],
    kernel: Sequence[int],
    pad: Sequence[int],
    stride: Sequence[int],
    dilate: Sequence[int],
    fill: str = "",
) -> str:
    """Gather every tap of every window: two axes of `x` become (window, position) pairs; zero outside."""
    rank = len(dims)
    if any(pad):
        pads = [0] * (2 * rank)
        for axis, p in zip(axes, pad, strict=True):
            pads[axis] = pads[rank + axis] = p
        x = w.pad(x, pads, value=fill)
    # The later axis first, so that the earlier one keeps its number.
    for axis, size, k, p, s, d in sorted(
        zip(axes, (dims[a] for a in axes), kernel, pad, stride, dilate, strict=True), reverse=True
    ):
        x = w.op("Gather", x, _index(w, _window_count(w, size, k, p, s, d), k, s, d), axis=axis)
    return x


@translation("Images2Neibs")
def images2neibs(w: OnnxWriter, opr: Opr) -> str:
    """Gather of the windows' rows and columns from the padded image."""
    p, (x,) = opr.get(P.Images2Neibs), opr.inputs
    dtype = w.dtype(x)
    value, elem = _movable(w, w.name(x), dtype)
    five = w.rank(x) == 5
    zero = w.const(
        np.zeros((), ElemType.INT32.numpy if elem in (ElemType.INT16, ElemType.UINT16) else elem.numpy)
    )
    out = unfolded(
        w,
        value,
        w.dims(x),
        (1, 3) if five else (2, 3),
        (p.window_h, p.window_w),
        (p.pad_h, p.pad_w),
        (p.stride_h, p.stride_w),
        (p.dilate_h, p.dilate_w),
        zero,
    )
    # [N, KH, OH, C, KW, OW, 4] or [N, C, KH, OH, KW, OW]
    out = w.transpose(out, [0, 2, 3, 5, 1, 4, 6] if five else [0, 1, 3, 5, 2, 4])
    return w.cast(out, elem) if elem in (ElemType.INT16, ElemType.UINT16) else out


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


@translation("MaskPropagate")
def mask_propagate(w: OnnxWriter, opr: Opr) -> str:
    """Tell for every window whether any element is nonzero, gathered by rows and columns."""
    p, (x,) = opr.get(P.MaskPropagate), opr.inputs
    some = w.cast(w.cast(w.name(x), ElemType.BOOL), ElemType.INT32)
    out = unfolded(
        w,
        some,
        w.dims(x),
        (0, 1),
        (p.kernel_h, p.kernel_w),
        (p.pad_h, p.pad_w),
        (p.stride_h, p.stride_w),
        (p.dilate_h, p.dilate_w),
        w.const(np.int32(0)),
    )
    return w.cast(w.reduce("ReduceMax", out, [0, 2], 0), elem_of(w.dtype(x)))


# Convolutions by position


def _columns(
    w: OnnxWriter, x: Var, p: P.Convolution | P.LocalShare, kernel: Sequence[int], flip: bool
) -> str:
    """Unfold to [N, C, KH, OH, KW, OW] in float32."""
    out = unfolded(
        w,
        w.float(x),
        w.dims(x),
        (2, 3),
        kernel,
        (p.pad_h, p.pad_w),
        (p.stride_h, p.stride_w),
        (p.dilate_h, p.dilate_w),
    )
    return _axes_swapped(w, out, (2, 4)) if flip else out


def _axes_swapped(w: OnnxWriter, x: str, axes: tuple[int, int]) -> str:
    return w.slice(x, [-1, -1], [-(2**63) + 1] * 2, axes, [-1, -1])


@translation("LocalV2", "GroupLocalV2")
def local(w: OnnxWriter, opr: Opr) -> str:
    """Multiply windows by the filter of every position with MatMul."""
    p, (x, f) = opr.get(P.Convolution), opr.inputs
    grouped = opr.type == "GroupLocalV2"
    shape = w.fixed(f)
    groups, oh, ow, icg, fh, fw, ocg = shape if grouped else (1, *shape)
    n = w.dim(x, 0)
    cols = _columns(w, x, p, (fh, fw), p.mode == P.ConvMode.CONVOLUTION)
    # [N, G, ICG, KH, OH, KW, OW] to [G, OH, OW, N, ICG, KH, KW]
    parts = w.reshape(cols, [n, groups, icg, fh, oh, fw, ow])
    left = w.reshape(w.transpose(parts, [1, 4, 6, 0, 2, 3, 5]), [groups, oh * ow, n, icg * fh * fw])
    right = w.reshape(w.float(f), [groups, oh * ow, icg * fh * fw, ocg])
    out = w.transpose(w.op("MatMul", left, right), [2, 0, 3, 1])
    return w.stored(w.reshape(out, [n, groups * ocg, oh, ow]), w.dtype(x))


@translation("LocalShareForwardV1")
def local_share(w: OnnxWriter, opr: Opr) -> str:
    """Multiply windows by the filter of every cell with MatMul."""
    p, (x, f) = opr.get(P.LocalShare), opr.inputs
    shape = w.fixed(f)
    groups, gh, gw, icg, fh, fw, ocg = shape if p.sparse == Sparse.GROUP else (1, *shape)
    n = w.dim(x, 0)
    oh, ow = w.fixed(opr.outputs[0], [2, 3])
    ch, cw = oh // gh, ow // gw
    cols = _columns(w, x, p, (fh, fw), False)
    w.need(13, "tensors of nine dimensions")
    parts = w.reshape(cols, [n, groups, icg, fh, gh, ch, fw, gw, cw])
    left = w.transpose(parts, [1, 4, 7, 0, 5, 8, 2, 3, 6])
    left = w.reshape(left, [groups, gh, gw, w.arith("Mul", n, ch * cw), icg * fh * fw])
    right = w.reshape(w.float(f), [groups, gh, gw, icg * fh * fw, ocg])
    out = w.reshape(w.op("MatMul", left, right), [groups, gh, gw, n, ch, cw, ocg])
    out = w.transpose(out, [3, 0, 6, 1, 4, 2, 5])
    return w.stored(w.reshape(out, [n, groups * ocg, oh, ow]), w.dtype(x))


@translation("RegionRestrictedConvolution")
def region_restricted(w: OnnxWriter, opr: Opr) -> str:
    """Zero windows where the region differs, then multiply by the filter with MatMul."""
    p, (x, f, rin, rout) = opr.get(P.Convolution), opr.inputs
    shape = w.fixed(f)
    groups, ocg, icg, fh, fw = shape if p.sparse == Sparse.GROUP else (1, *shape)
    flip = p.mode == P.ConvMode.CONVOLUTION
    n, _, height, width = w.dims(x)
    cols = _columns(w, x, p, (fh, fw), flip)
    regions = w.unsqueeze(w.cast(w.name(rin), ElemType.INT32), [1])
    geometry = ((fh, fw), (p.pad_h, p.pad_w), (p.stride_h, p.stride_w), (p.dilate_h, p.dilate_w))
    seen = unfolded(w, regions, [n, 1, height, width], (2, 3), *geometry, w.const(np.int32(0)))
    if flip:
        seen = _axes_swapped(w, seen, (2, 4))
    region = w.unsqueeze(w.cast(w.name(rout), ElemType.INT32), [1, 2, 4])
    cols = w.where(w.op("Equal", seen, region), cols, w.f32(0))
    oh, ow = w.dims(rout)[1:]
    points = w.arith("Mul", oh, ow)
    # [N, C, KH, OH, KW, OW] to [N, C, KH, KW, OH, OW]
    flat = w.reshape(w.transpose(cols, [0, 1, 2, 4, 3, 5]), [n, groups, icg * fh * fw, points])
    left = w.reshape(w.float(f), [groups, ocg, icg * fh * fw])
    out = w.reshape(w.op("MatMul", left, flat), [n, groups * ocg, oh, ow])
    return w.stored(out, w.dtype(opr.outputs[0]))


@translation("MaskConvolutionV2")
def mask_convolution(w: OnnxWriter, opr: Opr) -> str:
    """Emit Conv, with zeros where the mask is 0."""
    p, (x, f, mask) = opr.get(P.Convolution), opr.inputs
    shape = w.fixed(f)
    groups, ocg, icg, fh, fw = shape if p.sparse == Sparse.GROUP else (1, *shape)
    weight = w.reshape(w.name(f), [groups * ocg, icg, fh, fw])
    if p.mode == P.ConvMode.CONVOLUTION:
        weight = _axes_swapped(w, weight, (2, 3))
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

"""Convolutions whose filter, taps or inputs depend on the position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ...graph import Opr, params as P
from ...graph.dtypes import Array, DType, round_bfloat16
from ..numeric.special import round_half
from ..numeric.taps import taps_of
from ..registry import Call, Shape, ShapeCall, alike, kernel
from .fast import conv_fast
from .rules import Geometry, geometry

_CHUNK = 1 << 21
"""Elements of one block of sampled columns."""
_INTEGERS = frozenset({"Int32", "Int16", "Int8"})


def conv_columns(x: Array, geo: Geometry, flip: bool = False) -> Array:
    """Return what every tap of every window sees: [N, C, KH, KW, OH, OW], zero outside the input."""
    out = np.zeros((*x.shape[:2], geo.taps, *geo.out), x.dtype)
    for number, to, at in taps_of(geo) if out.size else ():
        out[:, :, geo.taps - 1 - number if flip else number][to] = x[at]
    return out.reshape(*x.shape[:2], *geo.kernel, *geo.out)


def _nchw(p: P.Convolution | P.LocalShare, what: str) -> None:
    if p.format != P.Format.NCHW:
        raise ValueError(f"{what} takes format NCHW only, found {P.Format(p.format).name}")


# Local and GroupLocal: one filter for every output position.


def _local_geometry(p: P.Convolution, x: Shape, w: Shape, grouped: bool) -> Geometry:
    if len(w) != 6 + grouped:
        raise ValueError(f"the filter must have {6 + grouped} axes, found shape {list(w)}")
    if (p.dilate_h, p.dilate_w) != (1, 1) or p.sparse != P.Sparse.DENSE:
        raise ValueError("local convolution has neither dilation nor sparse groups")
    if grouped and p.mode != P.ConvMode.CROSS_CORRELATION:
        raise ValueError("grouped local convolution is cross-correlation only")
    groups, oh, ow, icg, fh, fw, ocg = w if grouped else (1, *w)
    geo = geometry(x, groups, icg, ocg, (fh, fw), (p.pad_h, p.pad_w), (p.stride_h, p.stride_w), (1, 1))
    if geo.out != (oh, ow):
        raise ValueError(f"the filter is for {oh}x{ow} positions, the output has {geo.out[0]}x{geo.out[1]}")
    return geo


def _local_shape(s: ShapeCall) -> Sequence[Shape | None]:
    x = s.shape(0)
    geo = _local_geometry(s.get(P.Convolution), x, s.shape(1), s.opr.type == "GroupLocalV2")
    return ((x[0], geo.channels, *geo.out),)


def _per_position(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Count a multiply-add per filter element (and spatial cell it serves) and sample."""
    return 2 * inputs[0][0] * prod(inputs[1])


@kernel(
    "LocalV2",
    "GroupLocalV2",
    dtype=alike("Float32", "Float16"),
    shape=_local_shape,
    flops=_per_position,
)
def local(c: Call, x: Array, w: Array) -> Array:
    """Convolve [N, C, H, W] with a filter of its own for every output position.

    The filter is [OH, OW, IC, FH, FW, OC], with groups [G, OH, OW, IC/G, FH, FW, OC/G]. Semantics of
    MegEngine's dnn naive Local and GroupLocal; float16 data is summed in float32.
    """
    p = c.get(P.Convolution)
    geo = _local_geometry(p, x.shape, w.shape, c.opr.type == "GroupLocalV2")
    n, points, depth = x.shape[0], geo.points, geo.icg * geo.taps
    cols = conv_columns(x, geo, flip=p.mode == P.ConvMode.CONVOLUTION)
    left = cols.reshape(n, geo.groups, depth, points).transpose(1, 3, 0, 2)
    right = w.reshape(geo.groups, points, depth, geo.ocg)
    half = x.dtype == np.float16
    if half:
        left, right = left.astype(np.float32), right.astype(np.float32)
    out = np.matmul(left, right).transpose(2, 0, 3, 1).reshape(n, geo.channels, *geo.out)
    return round_half(out) if half else out


# LocalShare: one filter for every cell of a grid over the output.


def _share_geometry(p: P.LocalShare, x: Shape, w: Shape) -> tuple[Geometry, tuple[int, int]]:
    _nchw(p, "LocalShare")
    grouped = p.sparse == P.Sparse.GROUP
    if len(w) != 6 + grouped:
        raise ValueError(f"the filter must have {6 + grouped} axes, found shape {list(w)}")
    if (p.dilate_h, p.dilate_w) != (1, 1):
        raise ValueError("LocalShare has no dilation")
    groups, gh, gw, icg, fh, fw, ocg = w if grouped else (1, *w)
    if (gh, gw) != (p.spatial_groups_h, p.spatial_groups_w):
        raise ValueError(
            f"the filter has {gh}x{gw} cells, the operator {p.spatial_groups_h}x{p.spatial_groups_w}"
        )
    geo = geometry(x, groups, icg, ocg, (fh, fw), (p.pad_h, p.pad_w), (p.stride_h, p.stride_w), (1, 1))
    if gh < 1 or gw < 1 or geo.out[0] % gh or geo.out[1] % gw:
        raise ValueError(f"an output of {geo.out[0]}x{geo.out[1]} has no {gh}x{gw} equal cells")
    return geo, (gh, gw)


def _share_shape(s: ShapeCall) -> Sequence[Shape | None]:
    x = s.shape(0)
    geo, _ = _share_geometry(s.get(P.LocalShare), x, s.shape(1))
    return ((x[0], geo.channels, *geo.out),)


def _share_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    geo, _ = _share_geometry(opr.get(P.LocalShare), inputs[0], inputs[1])
    return 2 * inputs[0][0] * geo.channels * geo.points * geo.taps * geo.icg


@kernel("LocalShareForwardV1", dtype=alike("Float32"), shape=_share_shape, flops=_share_flops)
def local_share(c: Call, x: Array, w: Array) -> Array:
    """Convolve [N, C, H, W] with the output cut into a grid, one filter per cell.

    The filter is [GH, GW, IC, FH, FW, OC], with groups one more axis before. Semantics of MegEngine's dnn
    naive LocalShare, which never flips the filter.
    """
    geo, (gh, gw) = _share_geometry(c.get(P.LocalShare), x.shape, w.shape)
    n, depth = x.shape[0], geo.icg * geo.taps
    ch, cw = geo.out[0] // gh, geo.out[1] // gw
    cols = conv_columns(x, geo).reshape(n, geo.groups, depth, gh, ch, gw, cw)
    left = cols.transpose(1, 3, 5, 0, 4, 6, 2).reshape(geo.groups, gh, gw, n * ch * cw, depth)
    out = np.matmul(left, w.reshape(geo.groups, gh, gw, depth, geo.ocg))
    out = out.reshape(geo.groups, gh, gw, n, ch, cw, geo.ocg).transpose(3, 0, 6, 1, 4, 2, 5)
    return out.reshape(n, geo.channels, *geo.out)


# Deformable convolution: taps at fractional positions.


def _conv_geometry(p: P.Convolution, x: Shape, w: Shape, what: str) -> Geometry:
    """Return the geometry of an operator on NCHW images with a filter [OC, IC, FH, FW], groups being an axis before."""
    _nchw(p, what)
    grouped = p.sparse == P.Sparse.GROUP
    if len(w) != 4 + grouped:
        raise ValueError(f"the filter must have {4 + grouped} axes, found shape {list(w)}")
    groups, ocg, icg, fh, fw = w if grouped else (1, *w)
    stride, dilate = (p.stride_h, p.stride_w), (p.dilate_h, p.dilate_w)
    return geometry(x, groups, icg, ocg, (fh, fw), (p.pad_h, p.pad_w), stride, dilate)


def _deformable(p: P.Convolution, x: Shape, w: Shape, offset: Shape, mask: Shape) -> tuple[Geometry, int]:
    geo = _conv_geometry(p, x, w, "DeformableConv")
    if p.mode != P.ConvMode.CROSS_CORRELATION:
        raise ValueError("DeformableConv is cross-correlation only")
    if len(offset) != 4 or len(mask) != 4:
        raise ValueError(f"offset and mask have 4 axes, found {list(offset)} and {list(mask)}")
    parts = mask[1] // geo.taps
    want_offset = (x[0], 2 * geo.taps * parts, *geo.out)
    want_mask = (x[0], geo.taps * parts, *geo.out)
    if offset != want_offset or mask != want_mask or parts < 1:
        raise ValueError(
            f"{geo.taps} taps on {geo.out[0]}x{geo.out[1]} positions need offsets [N, 2*G*taps, OH, OW] and "
            f"masks [N, G*taps, OH, OW], found {list(offset)} and {list(mask)}"
        )
    if x[1] % parts or geo.channels % parts:
        raise ValueError(f"{x[1]} input and {geo.channels} output channels have no {parts} equal parts")
    return geo, parts


def _deformable_shape(s: ShapeCall) -> Sequence[Shape | None]:
    x = s.shape(0)
    geo, _ = _deformable(s.get(P.Convolution), x, s.shape(1), s.shape(2), s.shape(3))
    return ((x[0], geo.channels, *geo.out),)


def _deformable_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    geo, _ = _deformable(opr.get(P.Convolution), *inputs)
    sampling = 8 * inputs[0][1] * geo.taps
    return inputs[0][0] * geo.points * (2 * geo.channels * geo.taps * geo.icg + sampling)


@kernel("DeformableConvForwardV1", dtype=alike("Float32"), shape=_deformable_shape, flops=_deformable_flops)
def deformable_conv(c: Call, x: Array, w: Array, offset: Array, mask: Array) -> Array:
    """Convolve with taps moved by `offset`, sampled bilinearly and multiplied by `mask`.

    Channel 2k of `offset` is the vertical, 2k+1 the horizontal displacement of tap k. Semantics of
    MegEngine's dnn naive DeformableConv: a sample outside (-1, size) is 0, and so are missing neighbours.
    """
    geo, parts = _deformable(c.get(P.Convolution), x.shape, w.shape, offset.shape, mask.shape)
    n, channels = x.shape[:2]
    taps, points = geo.taps, geo.points
    out = np.empty((n, geo.channels, points), np.float32)
    filters = w.reshape(geo.groups, geo.ocg, geo.icg, taps).transpose(0, 3, 2, 1)
    filters = filters.reshape(geo.groups, taps * geo.icg, geo.ocg)
    ys, xs = _tap_positions(geo)
    step = max(1, _CHUNK // max(1, taps * channels))
    part = channels // parts
    for i in range(n):
        # One row per pixel, and a row of zeros for all that is outside.
        image = np.zeros((parts, geo.size[0] * geo.size[1] + 1, part), np.float32)
        image[:, :-1] = x[i].reshape(parts, part, -1).transpose(0, 2, 1)
        moves = offset[i].reshape(parts, taps, 2, points)
        weights = mask[i].reshape(parts, taps, points)
        for at in range(0, points, step):
            here = slice(at, min(at + step, points))
            cols = np.empty((here.stop - at, taps, channels), np.float32)
            for g in range(parts):
                h = ys[here] + moves[g, :, 0, here].T
                v = xs[here] + moves[g, :, 1, here].T
                seen = _bilinear(image[g], h, v, geo.size)
                np.multiply(seen, weights[g, :, here].T[..., None], out=cols[:, :, g * part : (g + 1) * part])
            for g in range(geo.groups):
                block = cols[:, :, g * geo.icg : (g + 1) * geo.icg].reshape(len(cols), -1)
                out[i, g * geo.ocg : (g + 1) * geo.ocg, here] = (block @ filters[g]).T
    return out.reshape(n, geo.channels, *geo.out)


def _tap_positions(geo: Geometry) -> tuple[Array, Array]:
    """Return the row and the column of every tap of every window, float32 [points, taps]."""
    base = [
        ((np.arange(o) * s - p).astype(np.float32), (np.arange(k) * d).astype(np.float32))
        for o, s, p, k, d in zip(geo.out, geo.stride, geo.pad, geo.kernel, geo.dilate, strict=True)
    ]
    ys = np.repeat(base[0][0], geo.out[1])[:, None] + np.repeat(base[0][1], geo.kernel[1])
    xs = np.tile(base[1][0], geo.out[0])[:, None] + np.tile(base[1][1], geo.kernel[0])
    return ys, xs


def _bilinear(image: Array, h: Array, w: Array, size: tuple[int, ...]) -> Array:
    """Sample pixel rows at fractional positions; `image` ends with a row of zeros."""
    inside = (h > -1) & (w > -1) & (h < size[0]) & (w < size[1])
    h, w = np.where(inside, h, np.float32(-2)), np.where(inside, w, np.float32(-2))
    top, left = np.floor(h), np.floor(w)
    lh, lw = (h - top)[..., None], (w - left)[..., None]
    y0, x0 = top.astype(np.int64), left.astype(np.int64)
    zero = image.shape[0] - 1

    def corner(y: Array, x: Array) -> Array:
        there = (y >= 0) & (y < size[0]) & (x >= 0) & (x < size[1])
        return image[np.where(there, y * size[1] + x, zero)]

    one = np.float32(1)
    total = corner(y0, x0) * ((one - lh) * (one - lw))
    total += corner(y0, x0 + 1) * ((one - lh) * lw)
    total += corner(y0 + 1, x0) * (lh * (one - lw))
    total += corner(y0 + 1, x0 + 1) * (lh * lw)
    return total


# Convolution restricted to regions.


def _region_geometry(p: P.Convolution, x: Shape, w: Shape, rin: Shape, rout: Shape) -> Geometry:
    geo = _conv_geometry(p, x, w, "RegionRestrictedConvolution")
    if rin != (x[0], *geo.size) or rout != (x[0], *geo.out):
        raise ValueError(
            f"regions must be {[x[0], *geo.size]} for the input and {[x[0], *geo.out]} for the output, "
            f"found {list(rin)} and {list(rout)}"
        )
    return geo


def _region_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    x, w, rin, rout = inputs
    if not x.is_float or w.name != x.name:
        raise ValueError(f"data and filter must be of one float type, found {x.name} and {w.name}")
    if rin.name != rout.name or rin.name not in ("Int32", "Uint8"):
        raise ValueError(f"regions must both be Int32 or Uint8, found {rin.name} and {rout.name}")
    return (opr.output_dtype or x,)


def _region_shape(s: ShapeCall) -> Sequence[Shape | None]:
    x = s.shape(0)
    geo = _region_geometry(s.get(P.Convolution), x, s.shape(1), s.shape(2), s.shape(3))
    if geo.stride != (1, 1):
        raise ValueError(f"RegionRestrictedConvolution has stride 1 only, found {list(geo.stride)}")
    return ((x[0], geo.channels, *geo.out),)


def _conv_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    geo = _conv_geometry(opr.get(P.Convolution), inputs[0], inputs[1], opr.type)
    return 2 * inputs[0][0] * geo.channels * geo.points * geo.taps * geo.icg


@kernel("RegionRestrictedConvolution", dtype=_region_dtype, shape=_region_shape, flops=_conv_flops)
def region_restricted_conv(c: Call, x: Array, w: Array, rin: Array, rout: Array) -> Array:
    """Convolve so that an output sees only inputs of its own region.

    Region ids are [N, H, W] for the input and [N, OH, OW] for the output. Semantics of MegEngine's dnn naive
    RegionRestrictedConvolution; with compute mode DEFAULT half-width sums are rounded after every product.
    """
    p = c.get(P.Convolution)
    geo = _region_geometry(p, x.shape, w.shape, rin.shape, rout.shape)
    flip = p.mode == P.ConvMode.CONVOLUTION
    n, depth = x.shape[0], geo.icg * geo.taps
    same = conv_columns(rin[:, None], geo, flip) == rout[:, None, None, None]
    cols = np.where(same, conv_columns(x, geo, flip), x.dtype.type(0))
    left = w.reshape(geo.groups, geo.ocg, depth)
    right = cols.reshape(n, geo.groups, depth, geo.points)
    name = c.inputs[0].name
    if name == "Float32" or p.compute_mode == P.ComputeMode.FLOAT32:
        out = np.matmul(left.astype(np.float32, copy=False), right.astype(np.float32, copy=False))
        out = round_half(out) if name == "Float16" else out
    else:
        order = np.arange(depth).reshape(geo.icg, geo.taps).T.reshape(-1)
        out = _rounded_products(left, right, order, round_half if name == "Float16" else round_bfloat16)
    return out.reshape(n, geo.channels, *geo.out)


def _rounded_products(left: Array, right: Array, order: Array, cut: Callable[[Array], Array]) -> Array:
    """Multiply matrices of narrow floats, rounding every partial sum."""
    a, b = left.astype(np.float32, copy=False), right.astype(np.float32, copy=False)
    out = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), left.dtype)
    for k in order:
        out = cut(out + a[..., :, k, None] * b[..., None, k, :])
    return out


# Convolution with a mask.


def _mask_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    x, w, mask = inputs
    if x.name != "Float32" or w.name != "Float32" or mask.name not in _INTEGERS:
        raise ValueError(
            f"MaskConvolution takes Float32 data and filter and an integer mask, "
            f"found {x.name}, {w.name}, {mask.name}"
        )
    return (x,)


def _mask_geometry(p: P.Convolution, x: Shape, w: Shape, mask: Shape) -> Geometry:
    geo = _conv_geometry(p, x, w, "MaskConvolution")
    if mask != geo.out:
        raise ValueError(f"the mask must be {list(geo.out)}, found {list(mask)}")
    return geo


def _mask_shape(s: ShapeCall) -> Sequence[Shape | None]:
    x = s.shape(0)
    geo = _mask_geometry(s.get(P.Convolution), x, s.shape(1), s.shape(2))
    return ((x[0], geo.channels, *geo.out),)


@kernel("MaskConvolutionV2", dtype=_mask_dtype, shape=_mask_shape, flops=_conv_flops)
def mask_conv(c: Call, x: Array, w: Array, mask: Array) -> Array:
    """Convolve, with zeros where the mask [OH, OW] is 0 (MegEngine dnn fallback MaskConv)."""
    p = c.get(P.Convolution)
    geo = _mask_geometry(p, x.shape, w.shape, mask.shape)
    filters = w.reshape(geo.groups, geo.ocg, geo.icg, *geo.kernel)
    if p.mode == P.ConvMode.CONVOLUTION:
        filters = filters[..., ::-1, ::-1]
    out = conv_fast(x, np.require(filters, np.float32, ["C", "A"]), geo)
    out[:, :, mask == 0] = 0
    return out


def _region_backward_geometry(p: P.Convolution, w: Shape, diff: Shape, rin: Shape, rout: Shape) -> Geometry:
    if len(rin) != 3 or len(diff) != 4:
        raise ValueError(f"the result has 4 axes and regions 3, found {list(diff)} and {list(rin)}")
    channels = w[2] * w[0] if p.sparse == P.Sparse.GROUP and len(w) == 5 else w[1]
    geo = _region_geometry(p, (rin[0], channels, *rin[1:]), w, rin, rout)
    if diff != (rin[0], geo.channels, *geo.out):
        raise ValueError(f"the gradient must be {[rin[0], geo.channels, *geo.out]}, found {list(diff)}")
    sides = zip(geo.out, geo.stride, geo.kernel, geo.dilate, geo.pad, strict=True)
    reached = tuple((o - 1) * s + (k - 1) * d + 1 - 2 * pad for o, s, k, d, pad in sides)
    if reached != geo.size:
        raise ValueError(
            f"with stride {list(geo.stride)} the windows must end where the data does: those of the gradient cover "
            f"{list(reached)}, the regions say {list(geo.size)}"
        )
    return geo


def _region_backward_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    w, diff, rin, rout, *_ = inputs
    return _region_dtype(opr, (diff, w, rin, rout))


def _region_backward_shape(s: ShapeCall) -> Sequence[Shape | None]:
    rin = s.shape(2)
    geo = _region_backward_geometry(s.get(P.Convolution), s.shape(0), s.shape(1), rin, s.shape(3))
    return ((rin[0], geo.groups * geo.icg, *geo.size),)


def _region_backward_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    geo = _region_backward_geometry(opr.get(P.Convolution), *inputs[:4])
    return 2 * inputs[1][0] * geo.channels * geo.points * geo.taps * geo.icg


@kernel(
    "RegionRestrictedConvolutionBackwardData",
    dtype=_region_backward_dtype,
    shape=_region_backward_shape,
    flops=_region_backward_flops,
)
def region_restricted_backward(
    c: Call, w: Array, diff: Array, rin: Array, rout: Array, *like: Array
) -> Array:
    """Compute the gradient of `region_restricted_conv` by its data: every output spreads to the inputs of its
    own region.

    Semantics of MegEngine's dnn naive kernel, which fails for float16; here those gradients are summed in float32 and
    rounded once.
    """
    p = c.get(P.Convolution)
    geo = _region_backward_geometry(p, w.shape, diff.shape, rin.shape, rout.shape)
    n, flip = len(rin), p.mode == P.ConvMode.CONVOLUTION
    out = np.zeros((n, geo.groups, geo.icg, *geo.size), np.float32)
    grad = diff.astype(np.float32, copy=False).reshape(n, geo.groups, geo.ocg, geo.points)
    taps = w.astype(np.float32, copy=False).reshape(geo.groups, geo.ocg, geo.icg, geo.taps)
    for number, to, at in taps_of(geo):
        tap = taps[..., geo.taps - 1 - number if flip else number]
        spread = np.matmul(tap.swapaxes(1, 2), grad).reshape(n, geo.groups, geo.icg, *geo.out)[to]
        same = (rin[at] == rout[to])[:, None, None]
        out[at] += np.where(same, spread, np.float32(0))
    out = out.reshape(n, -1, *geo.size)
    return round_half(out) if c.outputs[0].name == "Float16" else out

"""Convolutions, local ones included, and pooling: one product for every filter tap, and what a window sees."""

from collections.abc import Iterator, Sequence
from math import prod
from types import EllipsisType
from typing import Any

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ..conv.layout import from_plain, to_plain
from ..conv.rules import Geometry, Plan, backward_plan, conv_plan, geometry
from ..elemwise.formulas import Formula, h_swish, relu, sigmoid
from ..registry import Call, Shape
from .images import bilinear, pixels_of

Place = tuple[EllipsisType | slice, ...]


def taps(geo: Geometry) -> Iterator[tuple[tuple[int, ...], Place, Place]]:
    """Yield every tap that meets the input: its place in the filter, outputs that have it, inputs they see.

    Output ``o`` sees input ``o * stride - pad + tap * dilate`` of each spatial axis.

    >>> from loadrun.ops.conv.rules import geometry
    >>> geo = geometry((1, 1, 5), 1, 1, 1, (3,), (1,), (2,), (1,))
    >>> next(taps(geo))
    ((0,), (Ellipsis, slice(1, 3, None)), (Ellipsis, slice(1, 4, 2)))
    """
    for tap in np.ndindex(*geo.kernel):
        met = []
        for k, size, out, stride, pad, dilate in zip(
            tap, geo.size, geo.out, geo.stride, geo.pad, geo.dilate, strict=True
        ):
            start = k * dilate - pad
            first = max(0, -(start // stride))
            end = min(out, (size - 1 - start) // stride + 1)
            at = first * stride + start
            met.append((slice(first, end), slice(at, at + (end - 1 - first) * stride + 1, stride)))
        if all(to.start < to.stop for to, _ in met):
            yield tap, (..., *(to for to, _ in met)), (..., *(at for _, at in met))


def columns(x: Array, geo: Geometry) -> Array:
    """Gather what every window of [N, C, size...] sees, zero outside: [kernel..., N, C, out...]."""
    n = len(geo.kernel)
    seen = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in geo.pad)])
    for i, (k, out, stride, dilate) in enumerate(
        zip(geo.kernel, geo.out, geo.stride, geo.dilate, strict=True)
    ):
        seen = seen.take(np.arange(k)[:, None] * dilate + np.arange(out) * stride, 2 + 2 * i)
    return seen.transpose(*range(2, 2 + 2 * n, 2), 0, 1, *range(3, 3 + 2 * n, 2))


_ACTIVATE: dict[P.NonlineMode, Formula] = {
    P.NonlineMode.IDENTITY: lambda x: x,
    P.NonlineMode.RELU: relu,
    P.NonlineMode.SIGMOID: sigmoid,
    P.NonlineMode.H_SWISH: h_swish,
}


def convolve(x: Array, w: Array, geo: Geometry) -> Array:
    """Add up ``w[g, o, i, tap] * x[n, g, i, position of the tap]`` over input channels and taps.

    Args:
        x: [N, groups * IC, size...].
        w: [groups, OC, IC, kernel...].
        geo: how windows lie.

    Returns:
        [N, groups * OC, out...].
    """
    x = x.reshape(len(x), geo.groups, geo.icg, *geo.size)
    y = np.zeros((len(x), geo.groups, geo.ocg, *geo.out))
    # numpy multiplies matrices quickly only where their memory is contiguous.
    w = np.ascontiguousarray(np.moveaxis(w, (0, 1, 2), (-3, -2, -1)))
    for tap, to, at in taps(geo):
        y[to] += _products(w[tap], x[at])
    return y.reshape(len(x), geo.channels, *geo.out)


def _spread(y: Array, w: Array, geo: Geometry) -> Array:
    """Add every output of `convolve` times the filter to the inputs that it was made of."""
    y = y.reshape(len(y), geo.groups, geo.ocg, *geo.out)
    x = np.zeros((len(y), geo.groups, geo.icg, *geo.size))
    w = np.ascontiguousarray(np.moveaxis(w, (0, 2, 1), (-3, -2, -1)))
    for tap, to, at in taps(geo):
        x[at] += _products(w[tap], y[to])
    return x.reshape(len(y), geo.groups * geo.icg, *geo.size)


def _products(w: Array, x: Array) -> Array:
    """Multiply [G, O, I] with [N, G, I, positions...], summed over I."""
    n, groups, depth, *size = x.shape
    y = np.matmul(w, x.reshape(n, groups, depth, prod(size)))
    return y.reshape(n, groups, w.shape[1], *size)


def _filters(w: Array, plan: Plan) -> Array:
    plain = to_plain(w, plan.w)
    return np.flip(plain, tuple(range(3, plain.ndim))) if plan.flip else plain


def convolution(c: Call, x: Array, w: Array, *rest: Array) -> Array:
    """Convolve images or volumes in every layout, then add bias and residual and apply the nonlinearity."""
    p: Any = c.opr.params[0]
    plan = conv_plan(p, c.inputs, x.shape, w.shape)
    y = from_plain(convolve(to_plain(x, plan.x), _filters(w, plan), plan.geo), plan.out)
    for addend in rest:
        y = y + addend
    return y if isinstance(p, P.Convolution | P.Convolution3D) else np.asarray(_ACTIVATE[p.nonlineMode](y))


def batched(c: Call, x: Array, w: Array, *rest: Array) -> Array:
    """Convolve every sample with a filter of its own."""
    samples = (
        convolution(c, x[n : n + 1], w[n], *(r if len(r) == 1 else r[n : n + 1] for r in rest))
        for n in range(len(x))
    )
    return np.concatenate(list(samples))


def transposed(c: Call, w: Array, diff: Array, like: Array | None = None) -> Array:
    """Transpose the convolution of images or volumes."""
    p: Any = c.opr.params[0]
    like_shape = None if like is None else like.shape
    plan = backward_plan(p, c.inputs, w.shape, diff.shape, like_shape)
    return from_plain(_spread(to_plain(diff, plan.out), _filters(w, plan), plan.geo), plan.x)


def _window_geometry(
    p: P.Convolution | P.LocalShare, x: Shape, groups: int, icg: int, ocg: int, kernel: Shape
) -> Geometry:
    """Tell how the windows of a filter are on images."""
    pad, stride, dilate = (p.pad_h, p.pad_w), (p.stride_h, p.stride_w), (p.dilate_h, p.dilate_w)
    return geometry(x, groups, icg, ocg, kernel, pad, stride, dilate)


def _image_filter(p: P.Convolution, x: Array, w: Array) -> tuple[Array, Geometry]:
    """Give the filter as [G, O, I, KH, KW], turned for mode CONVOLUTION, and how its windows lie."""
    w = w.reshape(-1 if w.ndim == 5 else 1, *w.shape[-4:])
    geo = _window_geometry(p, x.shape, w.shape[0], w.shape[2], w.shape[1], w.shape[3:])
    return (w[..., ::-1, ::-1] if p.mode == P.ConvMode.CONVOLUTION else w), geo


def _windows_of(x: Array, geo: Geometry) -> Array:
    """Gather what windows see as [KH, KW, N, G, I, OH, OW]."""
    return columns(x, geo).reshape(*geo.kernel, x.shape[0], geo.groups, geo.icg, *geo.out)


def local(c: Call, x: Array, w: Array) -> Array:
    """Convolve with a filter [(G,) OH, OW, I, KH, KW, O] of its own for every position."""
    p = c.get(P.Convolution)
    w = w if w.ndim == 7 else w[None]
    geo = _window_geometry(p, x.shape, w.shape[0], w.shape[3], w.shape[6], w.shape[4:6])
    if p.mode == P.ConvMode.CONVOLUTION:
        w = w[:, :, :, :, ::-1, ::-1]
    y = np.einsum("hwngiyx,gyxihwo->ngoyx", _windows_of(x, geo), w)
    return y.reshape(x.shape[0], geo.channels, *geo.out)


def local_share(c: Call, x: Array, w: Array) -> Array:
    """Convolve with a filter [(G,) cells, cells, I, KH, KW, O] of its own for every cell of the output."""
    w = w if w.ndim == 7 else w[None]
    geo = _window_geometry(c.get(P.LocalShare), x.shape, w.shape[0], w.shape[3], w.shape[6], w.shape[4:6])
    for axis, size in zip((1, 2), geo.out, strict=True):
        w = w.take(np.arange(size) // (size // w.shape[axis]), axis)
    y = np.einsum("hwngiyx,gyxihwo->ngoyx", _windows_of(x, geo), w)
    return y.reshape(x.shape[0], geo.channels, *geo.out)


def deformable(c: Call, x: Array, w: Array, offset: Array, mask: Array) -> Array:
    """Convolve bilinear samples, taken where `offset` moves the taps and multiplied by `mask`."""
    w, geo = _image_filter(c.get(P.Convolution), x, w)
    n, parts, (kh, kw), (oh, ow) = len(x), mask.shape[1] // geo.taps, geo.kernel, geo.out
    rows, cols = _tap_places(geo, offset.reshape(n, parts, kh, kw, 2, oh, ow))
    images = x.reshape(n * parts, -1, *geo.size)
    where = (n * parts, kh, kw, oh, ow)
    seen = np.stack(
        [
            bilinear(pixels_of(image), r, q)
            for image, r, q in zip(images, rows.reshape(where), cols.reshape(where), strict=True)
        ]
    )
    seen *= mask.reshape(n * parts, 1, kh, kw, oh, ow)
    y = np.einsum("ngihwyx,goihw->ngoyx", seen.reshape(n, geo.groups, geo.icg, kh, kw, oh, ow), w)
    return y.reshape(n, geo.channels, oh, ow)


def _tap_places(geo: Geometry, offset: Array) -> tuple[Array, Array]:
    """Give the rows and columns [N, parts, KH, KW, OH, OW] of taps, moved by `offset` [..., 2, OH, OW]."""
    (kh, kw), (oh, ow) = geo.kernel, geo.out
    rows, cols = (
        np.arange(k)[:, None] * d + np.arange(o) * s - p
        for k, d, o, s, p in zip(geo.kernel, geo.dilate, geo.out, geo.stride, geo.pad, strict=True)
    )
    return (
        rows.reshape(kh, 1, oh, 1) + offset[:, :, :, :, 0],
        cols.reshape(1, kw, 1, ow) + offset[:, :, :, :, 1],
    )


def region_restricted(c: Call, x: Array, w: Array, rin: Array, rout: Array) -> Array:
    """Convolve so that an output sees inputs of its own region only."""
    w, geo = _image_filter(c.get(P.Convolution), x, w)
    alike = columns(rin[:, None], geo)[:, :, :, None] == rout[:, None, None]
    y = np.einsum("hwngiyx,goihw->ngoyx", np.where(alike, _windows_of(x, geo), 0), w)
    return y.reshape(x.shape[0], geo.channels, *geo.out)


def region_data(c: Call, w: Array, diff: Array, rin: Array, rout: Array, *like: Array) -> Array:
    """Give every input the gradients of what it makes in its own region."""
    channels = w.shape[-3] * (w.shape[0] if w.ndim == 5 else 1)
    w, geo = _image_filter(c.get(P.Convolution), np.empty((len(rin), channels, *rin.shape[1:])), w)
    alike = columns(rin[:, None], geo)[:, :, :, None] == rout[:, None, None]
    grad = diff.reshape(len(rin), geo.groups, geo.ocg, *geo.out)
    seen = np.where(alike, np.einsum("ngoyx,goihw->hwngiyx", grad, w), 0)
    out = np.zeros((*seen.shape[2:5], *geo.size))
    for tap, to, at in taps(geo):
        out[at] += seen[tap][to]
    return out.reshape(len(out), -1, *geo.size)


def masked(c: Call, x: Array, w: Array, mask: Array) -> Array:
    """Convolve, with zeros where the mask is 0."""
    return np.where(mask != 0, convolve(x, *_image_filter(c.get(P.Convolution), x, w)), 0)


def unfolded(c: Call, x: Array) -> Array:
    """Add windows [N, C, OH, OW, KH, KW] up on the image from which they were taken."""
    p = c.get(P.SlidingWindowTranspose)
    n, channels, _, _, *kernel = x.shape
    image = np.zeros((n, channels, p.out_h, p.out_w))
    pad, stride, dilate = (p.pad_h, p.pad_w), (p.stride_h, p.stride_w), (p.dilate_h, p.dilate_w)
    geo = geometry(image.shape, 1, channels, 1, kernel, pad, stride, dilate)
    by_tap = np.moveaxis(x, (4, 5), (0, 1))
    for tap, to, at in taps(geo):
        image[at] += by_tap[tap][to]
    return image


Ends = list[tuple[int, int]]
_AXES = {P.Format.NHWC: (1, 2), P.Format.NHWCD4: (1, 3), P.Format.CHWN4: (1, 2)}
"""Rows and columns of layouts that do not have them as axes 2 and 3."""


def pooling(c: Call, x: Array, *size: Array) -> Array | None:
    """Pool over windows of given or, to a target size, of derived height and width."""
    p: Any = c.opr.params[0]
    (rows, cols), ends = _window_ends(p, x.shape, *size)
    empty = any(first >= end for axis in ends for first, end in axis)
    if not x.size or (empty and p.mode != P.PoolingMode.AVERAGE):
        return None
    if p.mode == P.PoolingMode.MAX:
        # MegEngine starts with the lowest finite number.
        top = _folded(x, (rows, cols), ends, np.max)
        return top if c.opr.exact else np.maximum(top, np.finfo(np.float32).min)
    total = _folded(x, (rows, cols), ends, np.sum)
    if p.mode == P.PoolingMode.AVERAGE and not size:
        return total / (p.window_h * p.window_w)
    return total / _folded(np.ones_like(x), (rows, cols), ends, np.sum)


def _window_ends(
    p: P.Pooling | P.AdaptivePooling, shape: Shape, *size: Array
) -> tuple[tuple[int, int], tuple[Ends, Ends]]:
    """Give the axes that are pooled, and the first and past-the-last element of each window on them."""
    rows, cols = _AXES.get(P.Format(p.format), (2, 3))
    if size:
        want = [int(n) for n in size[0].reshape(-1)]
        return (rows, cols), (_adaptive(shape[rows], want[0]), _adaptive(shape[cols], want[-1]))
    assert isinstance(p, P.Pooling)
    return (rows, cols), (
        _ends(shape[rows], p.window_h, p.stride_h, p.pad_h),
        _ends(shape[cols], p.window_w, p.stride_w, p.pad_w),
    )


def _ends(size: int, window: int, stride: int, pad: int) -> Ends:
    """Return the first and past-the-last element of the input in every window."""
    starts = range(-pad, size + pad - window + 1, stride)
    return [(min(max(at, 0), size), max(min(at + window, size), 0)) for at in starts]


def _adaptive(size: int, out: int) -> Ends:
    """Let `out` equal windows lie ``size // out`` apart, the last one at the end."""
    stride = size // out
    return _ends(size, size - (out - 1) * stride, stride, 0)


def _folded(
    x: Array, axes: tuple[int, int], ends: Sequence[Sequence[tuple[int, int]]], fold: Formula
) -> Array:
    for axis, windows in zip(axes, ends, strict=True):
        parts = [fold(np.moveaxis(x, axis, 0)[first:end], axis=0) for first, end in windows]
        x = np.stack(parts, axis)
    return x

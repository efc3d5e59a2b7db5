"""Convolutions whose filter, taps or inputs depend on the position, as sums over what each window sees."""

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ..conv.rules import Geometry, geometry
from ..registry import Call, Shape
from .convolution import convolve
from .sampling import bilinear, pixels_of
from .windows import columns, taps


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

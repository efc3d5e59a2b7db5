"""Gradients of convolutions and of pooling: sums over what each window sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ..conv.layout import from_plain, to_plain
from ..conv.rules import Geometry, conv_plan, geometry
from ..registry import Call
from .local import image_filter, tap_places, window_geometry, windows_of
from .pooling import window_ends
from .sampling import bilinear, pixels_of, slopes, spread
from .windows import columns, taps

__all__ = [
    "adaptive",
    "deformable_data",
    "deformable_filter",
    "filters",
    "folded",
    "local_data",
    "local_filter",
    "pooling",
    "region_data",
    "region_filter",
    "unfolded",
]


def filters(c: Call, x: Array, diff: Array, w: Array) -> Array:
    """Add up, for every tap, the inputs that it sees times the gradients of what they make."""
    p: Any = c.opr.params[0]
    plan = conv_plan(p, (c.inputs[0], c.inputs[2]), x.shape, w.shape)
    geo = plan.geo
    x, diff = to_plain(x, plan.x), to_plain(diff, plan.out)
    seen = columns(x, geo).reshape(geo.taps, len(x), geo.groups, geo.icg, geo.points)
    grad = diff.reshape(len(x), geo.groups, geo.ocg, geo.points)
    out = np.einsum("kngip,ngop->goik", seen, grad, optimize=True)
    out = out.reshape(geo.groups, geo.ocg, geo.icg, *geo.kernel)
    return from_plain(np.flip(out, tuple(range(3, out.ndim))) if plan.flip else out, plan.w)


def _added(seen: Array, geo: Geometry) -> Array:
    """Add gradients [KH, KW, N, G, I, OH, OW] of what windows see to the images [N, C, H, W]."""
    out = np.zeros((*seen.shape[2:5], *geo.size))
    for tap, to, at in taps(geo):
        out[at] += seen[tap][to]
    return out.reshape(len(out), -1, *geo.size)


# ---- Filters by position: Local, GroupLocal and LocalShare


def _local(c: Call, x: Array, w: Array) -> tuple[Array, Geometry, bool]:
    """Give the filter [G, cells, cells, I, KH, KW, O], how windows lie, and whether the filter is turned."""
    p: Any = c.opr.params[0]
    w = w if w.ndim == 7 else w[None]
    geo = window_geometry(p, x.shape, w.shape[0], w.shape[3], w.shape[6], w.shape[4:6])
    turned = isinstance(p, P.Convolution) and p.mode == P.ConvMode.CONVOLUTION
    return (w[:, :, :, :, ::-1, ::-1] if turned else w), geo, turned


def local_data(c: Call, w: Array, diff: Array, x: Array) -> Array:
    """Give every input the gradients of what it makes, by its filters there."""
    w, geo, _ = _local(c, x, w)
    for axis, size in zip((1, 2), geo.out, strict=True):
        w = np.repeat(w, size // w.shape[axis], axis)
    grad = diff.reshape(len(x), geo.groups, geo.ocg, *geo.out)
    return _added(np.einsum("ngoyx,gyxihwo->hwngiyx", grad, w), geo)


def local_filter(c: Call, x: Array, diff: Array, w: Array) -> Array:
    """Add up, for every cell, the inputs that its outputs see times their gradients."""
    cells, geo, turned = _local(c, x, w)
    grad = diff.reshape(len(x), geo.groups, geo.ocg, *geo.out)
    out = np.einsum("hwngiyx,ngoyx->gyxihwo", windows_of(x, geo), grad)
    rows, cols = cells.shape[1:3]
    out = out.reshape(geo.groups, rows, geo.out[0] // rows, cols, geo.out[1] // cols, *out.shape[3:]).sum(
        (2, 4)
    )
    return (out[:, :, :, :, ::-1, ::-1] if turned else out).reshape(w.shape)


# ---- Regions


def _alike(rin: Array, rout: Array, geo: Geometry) -> Array:
    """Tell which inputs of windows are of the output's region: [KH, KW, N, 1, 1, OH, OW]."""
    return columns(rin[:, None], geo)[:, :, :, None] == rout[:, None, None]


def region_filter(c: Call, x: Array, diff: Array, rin: Array, rout: Array, w: Array) -> Array:
    """Add up, for every tap, inputs of the output's own region times its gradient."""
    p = c.get(P.Convolution)
    _, geo = image_filter(p, x, w)
    seen = np.where(_alike(rin, rout, geo), windows_of(x, geo), 0)
    grad = diff.reshape(len(x), geo.groups, geo.ocg, *geo.out)
    out = np.einsum("hwngiyx,ngoyx->goihw", seen, grad)
    return (out[..., ::-1, ::-1] if p.mode == P.ConvMode.CONVOLUTION else out).reshape(w.shape)


def region_data(c: Call, w: Array, diff: Array, rin: Array, rout: Array, *like: Array) -> Array:
    """Give every input the gradients of what it makes in its own region."""
    channels = w.shape[-3] * (w.shape[0] if w.ndim == 5 else 1)
    w, geo = image_filter(c.get(P.Convolution), np.empty((len(rin), channels, *rin.shape[1:])), w)
    grad = diff.reshape(len(rin), geo.groups, geo.ocg, *geo.out)
    seen = np.einsum("ngoyx,goihw->hwngiyx", grad, w)
    return _added(np.where(_alike(rin, rout, geo), seen, 0), geo)


# ---- Deformable convolution


def _moved(
    c: Call, x: Array, w: Array, offset: Array, mask: Array
) -> tuple[Array, Geometry, Array, tuple[Array, Array], Array]:
    """Give filter, geometry, images and the places of taps by sample and part, and what the taps see there."""
    w, geo = image_filter(c.get(P.Convolution), x, w)
    n, parts = len(x), mask.shape[1] // geo.taps
    places = tap_places(geo, offset.reshape(n, parts, *geo.kernel, 2, *geo.out))
    flat = places[0].reshape(n * parts, -1), places[1].reshape(n * parts, -1)
    images = x.reshape(n * parts, -1, *geo.size)
    seen = np.stack([bilinear(pixels_of(image), *at) for image, *at in zip(images, *flat, strict=True)])
    return w, geo, images, flat, seen


def deformable_data(
    c: Call, x: Array, w: Array, offset: Array, mask: Array, diff: Array
) -> tuple[Array, Array, Array]:
    """Give the gradients by images, by the taps' displacements and by their factors."""
    w, geo, images, (rows, cols), seen = _moved(c, x, w, offset, mask)
    n, parts = len(x), len(images) // len(x)
    grad = diff.reshape(n, geo.groups, geo.ocg, *geo.out)
    by_seen = np.einsum("ngoyx,goihw->ngihwyx", grad, w).reshape(seen.shape)
    factor = mask.reshape(n * parts, 1, -1)
    by_image = [spread(g, r, q, geo.size) for g, r, q in zip(by_seen * factor, rows, cols, strict=True)]
    moved = [
        np.stack([(g * slope).sum(0) for slope in slopes(pixels_of(image), r, q)])
        for image, g, r, q in zip(images, by_seen * factor, rows, cols, strict=True)
    ]
    by_offset = np.stack(moved).reshape(n, parts, 2, geo.taps, -1).swapaxes(2, 3)
    return (
        np.stack(by_image).reshape(x.shape),
        by_offset.reshape(offset.shape),
        (by_seen * seen).sum(1).reshape(mask.shape),
    )


def deformable_filter(c: Call, x: Array, w: Array, offset: Array, mask: Array, diff: Array) -> Array:
    """Add up, for every tap, its samples times the gradients of what they make."""
    _, geo, images, _, seen = _moved(c, x, w, offset, mask)
    seen = seen * mask.reshape(len(images), 1, -1)
    seen = seen.reshape(len(x), geo.groups, geo.icg, *geo.kernel, *geo.out)
    grad = diff.reshape(len(x), geo.groups, geo.ocg, *geo.out)
    return np.einsum("ngihwyx,ngoyx->goihw", seen, grad).reshape(w.shape)


# ---- Windows


def folded(c: Call, diff: Array, x: Array) -> Array:
    """Add gradients of windows [N, C, OH, OW, KH, KW] up on the images."""
    return _added(np.moveaxis(diff, (4, 5), (0, 1))[:, :, :, None], _geometry(c, x.shape)).reshape(x.shape)


def unfolded(c: Call, diff: Array, x: Array) -> Array:
    """Give every window the gradients of the elements that it was added to."""
    return np.moveaxis(columns(diff, _geometry(c, diff.shape)), (0, 1), (4, 5))


def _geometry(c: Call, shape: tuple[int, ...]) -> Geometry:
    p: Any = c.opr.params[0]
    pad, stride, dilate = (p.pad_h, p.pad_w), (p.stride_h, p.stride_w), (p.dilate_h, p.dilate_w)
    return geometry(shape, 1, shape[1], 1, (p.window_h, p.window_w), pad, stride, dilate)


def pooling(c: Call, x: Array, y: Array, diff: Array, *size: Array) -> Array | None:
    """Give the gradient of a window to its largest elements, or all of them in equal parts."""
    p: Any = c.opr.params[0]
    axes, (rows, cols) = window_ends(p, x.shape, *size)
    x, y, diff = (np.moveaxis(a, axes, (-2, -1)) for a in (x, y, diff))
    out = np.zeros(x.shape)
    for i, (top, bottom) in enumerate(rows):
        for j, (left, right) in enumerate(cols):
            at = (..., slice(top, bottom), slice(left, right))
            g = diff[..., i, j, None, None]
            if p.mode == P.PoolingMode.MAX:
                out[at] += np.where(x[at] == y[..., i, j, None, None], g, 0)
            else:
                whole = p.mode == P.PoolingMode.AVERAGE and not size
                out[at] += g / (p.window_h * p.window_w if whole else (bottom - top) * (right - left))
    return np.moveaxis(out, (-2, -1), axes)


def adaptive(c: Call, x: Array, size: Array, y: Array, diff: Array) -> Array | None:
    """Do `pooling` for windows that a target size defines."""
    return pooling(c, x, y, diff, size)

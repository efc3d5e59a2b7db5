"""Gradients of resizing, perspective warps and remapping: by the images, by the matrices and by the map."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ..image.resize import resize_taps
from ..image.sampling import border_index, to_integer
from ..registry import Call, Shape
from .common import add_along, add_at, gradient

__all__: list[str] = []

Corner = tuple[Array, Array, Array, Array]
"""Of one of the four pixels around positions: its number in the channel, -1 outside; what it weighs, and how the weight
grows with the row and with the column."""


def _images(what: str, *shapes: Shape) -> None:
    if any(len(s) != 4 for s in shapes) or shapes[0][:2] != shapes[-1][:2]:
        listing = " and ".join(str(list(s)) for s in shapes)
        raise ValueError(f"{what} takes images [N, C, H, W] of equal batch and channels, found {listing}")


@gradient("ResizeBackward", (1,))
def resize_backward(c: Call, diff: Array, x: Array) -> Array:
    """Add every pixel's gradient to the pixels that it was made of, by their weights."""
    p = c.get(P.Resize)
    if p.format != P.Format.NCHW:
        raise ValueError(f"gradients of resized images are NCHW only, found {P.Format(p.format).name}")
    _images(c.opr.type, diff.shape, x.shape)
    for axis in (2, 3):
        at, weights = resize_taps(p.imode, x.shape[axis], diff.shape[axis])
        shape = [-1 if i == axis else 1 for i in range(4)]
        parts = (
            add_along(diff * weights[:, k].reshape(shape), at[:, k], x.shape[axis], axis)
            for k in range(at.shape[1])
        )
        diff = np.asarray(sum(parts))
    return diff


def _corners(rows: Array, cols: Array, size: Shape, mode: P.BorderMode) -> Iterator[Corner]:
    """Yield the four pixels around positions."""
    top, left = np.floor(rows), np.floor(cols)
    v, u = rows - top, cols - left
    one = np.float32(1)
    for dy, dx in product((0, 1), (0, 1)):
        y = border_index(to_integer(top + np.float32(dy)), size[0], mode)
        x = border_index(to_integer(left + np.float32(dx)), size[1], mode)
        b, a = (v if dy else one - v), (u if dx else one - u)
        at = np.where((y < 0) | (x < 0), -1, y * size[1] + x)
        yield at, a * b, (a if dy else -a), (b if dx else -b)


def _spread(diff: Array, rows: Array, cols: Array, size: Shape, mode: P.BorderMode) -> Array:
    """Add gradients [C, OH, OW] to the pixels [C, H, W] around positions [OH, OW]."""
    out = np.zeros((len(diff), size[0] * size[1]), np.float32)
    for at, weight, _, _ in _corners(rows, cols, size, mode):
        part = diff * np.where(at < 0, np.float32(0), weight)
        out += add_at(np.maximum(at, 0), part, size[0] * size[1])
    return out.reshape(len(diff), *size)


def _slopes(
    image: Array, diff: Array, rows: Array, cols: Array, mode: P.BorderMode, fill: float
) -> tuple[Array, Array]:
    """Sum, over the channels, gradients [C, OH, OW] times how the sample grows with its row and its column."""
    flat = image.reshape(len(image), -1)
    by_row, by_col = np.zeros(rows.shape, np.float32), np.zeros(rows.shape, np.float32)
    for at, _, down, right in _corners(rows, cols, image.shape[1:], mode):
        pixels = np.where(at < 0, np.float32(fill), flat[:, np.maximum(at, 0)])
        total = (pixels * diff).sum(0)
        by_row += down * total
        by_col += right * total
    return by_row, by_col


# Perspective


def _check_warp(c: Call, x: Shape, mat: Array, which: Array, diff: Shape) -> None:
    p = c.get(P.WarpPerspective)
    if p.format != P.Format.NCHW or p.imode != P.InterpolationMode.LINEAR:
        raise ValueError(
            f"gradients of warps are NCHW and LINEAR, found {P.Format(p.format).name} and {p.imode.name}"
        )
    _images(c.opr.type, (diff[0], *x[1:]), diff)
    if mat.shape != (diff[0], 3, 3) or which.shape != (diff[0],):
        raise ValueError(f"{diff[0]} results have matrices {list(mat.shape)} and indices {list(which.shape)}")
    if which.size and not 0 <= int(which.min()) <= int(which.max()) < x[0]:
        raise ValueError(f"mat_idx must lie in 0..{x[0] - 1}, found {which.min()}..{which.max()}")


def _warped(m: Array, out: Shape) -> tuple[Array, Array, Array, Array, Array]:
    """Return rows and columns where a matrix takes the output's pixels, those pixels, and the divisor."""
    h, w = np.meshgrid(*(np.arange(n, dtype=np.float32) for n in out), indexing="ij")
    below = m[2, 0] * w + m[2, 1] * h + m[2, 2]
    rows = (m[1, 0] * w + m[1, 1] * h + m[1, 2]) / below
    return rows, (m[0, 0] * w + m[0, 1] * h + m[0, 2]) / below, h, w, below


@gradient("WarpPerspectiveBackwardDataV2", lambda opr: (len(opr.inputs) - 1,))
def perspective_backward_data(c: Call, mat: Array, *rest: Array) -> Array:
    """Add every sample's gradient to the pixels around it."""
    *index, diff, x = rest
    which = index[0].astype(np.int64) if index else np.arange(len(mat))
    _check_warp(c, x.shape, mat, which, diff.shape)
    out = np.zeros(x.shape, np.float32)
    for m, n, part in zip(mat, which, diff, strict=True):
        rows, cols, *_ = _warped(m, diff.shape[2:])
        out[n] += _spread(part, rows, cols, x.shape[2:], c.get(P.WarpPerspective).bmode)
    return out


@gradient("WarpPerspectiveBackwardMatV2", (1,))
def perspective_backward_mat(c: Call, x: Array, mat: Array, *rest: Array) -> Array:
    """Give the gradient by the matrices that move the samples; what is not finite is left out."""
    *index, diff = rest
    which = index[0].astype(np.int64) if index else np.arange(len(mat))
    _check_warp(c, x.shape, mat, which, diff.shape)
    p = c.get(P.WarpPerspective)
    out = np.empty(mat.shape, np.float32)
    for i, (m, n, part) in enumerate(zip(mat, which, diff, strict=True)):
        rows, cols, h, w, below = _warped(m, diff.shape[2:])
        by_row, by_col = _slopes(x[n], part, rows, cols, p.bmode, p.border_val)
        down = -(by_col * cols + by_row * rows)
        for j, slope in enumerate((by_col, by_row, down)):
            for k, pixel in enumerate((w, h, np.float32(1))):
                terms = slope * pixel / below
                out[i, j, k] = terms[np.isfinite(terms)].sum()
    return out


# Remap


@gradient("RemapBackwardDataV1", (2,), of="RemapV1", by=(2, 0), results={1: 0})
def remap_backward_data(c: Call, where: Array, diff: Array, x: Array) -> Array:
    """Add every sample's gradient to the pixels around it, or to the nearest."""
    p = c.get(P.Remap)
    _check_remap(p)
    out = np.empty(x.shape, np.float32)
    for n, (at, part) in enumerate(zip(where, diff, strict=True)):
        rows, cols = at[..., 1], at[..., 0]
        if p.imode == P.InterpolationMode.NEAREST:
            rows, cols = np.rint(rows), np.rint(cols)
        out[n] = _spread(part, rows, cols, x.shape[2:], p.border_type)
    return out


@gradient("RemapBackwardMatV1", (1,), of="RemapV1", by=(0, 1), results={2: 0})
def remap_backward_mat(c: Call, x: Array, where: Array, diff: Array) -> Array:
    """Give the gradient by the positions, zero where samples are the nearest pixel."""
    p = c.get(P.Remap)
    _check_remap(p)
    out = np.zeros(where.shape, np.float32)
    if p.imode != P.InterpolationMode.NEAREST:
        for n, (image, at, part) in enumerate(zip(x, where, diff, strict=True)):
            out[n, ..., 1], out[n, ..., 0] = _slopes(
                image, part, at[..., 1], at[..., 0], p.border_type, p.scalar
            )
    return out


def _check_remap(p: P.Remap) -> None:
    if p.format != P.Format.NCHW:
        raise ValueError(f"gradients of remapped images are NCHW only, found {P.Format(p.format).name}")

"""Small integer convolutions for known shapes: a few calls on the whole arrays, to the bits of the general kernel.

Sums are exact in float32, so that the order of additions and with it the layout is free: rows of a padded image lie
one after the other, and every tap is a shift of the whole image. What the shifts carry over the edge lands in
columns that the final cast leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ...graph.dtypes import Array, DType
from .gemm import Requantize
from .layout import from_plain, to_plain
from .rules import Geometry, Plan

_LARGEST = 1 << 17
"""Elements of tap matrices that stay in the cache as a whole; larger convolutions are computed in blocks."""

Columns = Callable[[Array], Array]


def fits(plan: Plan) -> bool:
    """Return whether a convolution is small enough to be computed in one piece."""
    geo, batch = plan.geo, plan.x.plain[0]
    depth = geo.groups * geo.icg * geo.taps
    return 0 < batch * max(depth, geo.channels) * geo.out[0] * _wide(geo) <= _LARGEST


def whole_convolution(
    plan: Plan, dtype: DType, filters: Array, finish: Requantize | None, target: DType
) -> Callable[[Array], Array]:
    """Return a convolution with constant filters as a function of its data.

    Args:
        plan: of a convolution that `fits`.
        dtype: the data's.
        filters: plain float32 numbers (groups, out, in, KH, KW) whose sums float32 holds exactly.
        finish: what makes the output of the sums, without z; None if they are the output.
        target: the output's dtype.
    """
    geo, batch = plan.geo, plan.x.plain[0]
    matrix = filters.reshape(geo.groups, geo.ocg, geo.icg * geo.taps)
    columns, width = _columns(plan, dtype)
    if geo.groups == 1:
        matrix = matrix[0]

    def stacked(taps: Array) -> Array:
        return np.matmul(matrix, taps)

    # np.dot of two matrices has half the call overhead of matmul.
    product = stacked if _lead(plan) else matrix.dot
    rows = (batch, geo.channels, geo.out[0], width)
    sums = (*_lead(plan), geo.ocg, rows[2] * width)
    last, bias = None, None
    if finish is not None:
        last = finish.quantizer(sums)
        if finish.addend is not None:
            bias = np.ascontiguousarray(np.broadcast_to(_padded(finish.addend, width), rows).reshape(sums))
    kind, cut = target.np, width > geo.out[1]
    moved = plan.out.shape != plan.out.plain or plan.out.order != tuple(range(len(plan.out.order)))
    span = geo.out[1]

    def convolve(x: Array) -> Array:
        real = product(columns(x))
        if finish is not None and last is not None:
            finish.finish(real, bias, None, last)
        real = real.reshape(rows)
        if cut:
            real = real[..., :span]
        out = real.astype(kind, order="C") if kind.itemsize != 2 else real.astype(np.int32).astype(kind)
        return from_plain(out, plan.out) if moved else out

    return convolve


def _padded(bias: Array, width: int) -> Array:
    """Widen a bias of the output's shape by columns for what the cast leaves out."""
    if bias.shape[-1] in (1, width):
        return bias
    return np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, width - bias.shape[-1])])


def _wide(geo: Geometry) -> int:
    """Return the output's width with the columns that are left out in the end."""
    return geo.size[1] + 2 * geo.pad[1] if geo.stride == (1, 1) and not geo.pointwise else geo.out[1]


def _lead(plan: Plan) -> tuple[int, ...]:
    """Return batch and groups, each where there is more than one."""
    return tuple(n for n in (plan.x.plain[0], plan.geo.groups) if n != 1)


def _columns(plan: Plan, dtype: DType) -> tuple[Columns, int]:
    """Return a function for all taps' matrices, (in * taps, positions) after `_lead`, and the width of their rows."""
    geo = plan.geo
    zero = np.asarray(dtype.zero_point, np.float32) if dtype.zero_point else None
    width = _wide(geo)
    shape = (*_lead(plan), geo.icg * geo.taps, geo.out[0] * width)

    def numbers(x: Array, out: Array) -> None:
        out[...] = x
        if zero is not None:
            np.subtract(out, zero, out)

    if geo.pointwise:

        def pointwise(x: Array) -> Array:
            y = np.empty(plan.x.plain, np.float32)
            numbers(to_plain(x, plan.x), y)
            return y.reshape(shape)

        return pointwise, width
    return (_shifted if geo.stride == (1, 1) else _gathered)(plan, shape, numbers), width


def _shifted(plan: Plan, shape: tuple[int, ...], numbers: Callable[[Array, Array], None]) -> Columns:
    """Read taps as shifts of the whole padded image."""
    geo, (batch, channels) = plan.geo, plan.x.plain[:2]
    (ky, kx), (dy, dx), (top, left) = geo.kernel, geo.dilate, geo.pad
    height, width = geo.size[0] + 2 * top, _wide(geo)
    image = height * width
    # The last taps of the last row read beyond the image's end.
    count = batch * channels * image + (kx - 1) * dx
    taps = (batch * channels, ky, kx, geo.out[0] * width)
    strides = tuple(4 * n for n in (image, dy * width, dx, 1))
    padded = top or left
    plain = plan.x.plain

    def shifted(x: Array) -> Array:
        flat = np.zeros(count, np.float32) if padded else np.empty(count, np.float32)
        images = flat[: batch * channels * image].reshape(batch, channels, height, width)
        if padded:
            images = images[:, :, top : top + plain[2], left : left + plain[3]]
        else:
            flat[batch * channels * image :] = 0
        numbers(to_plain(x, plan.x), images)
        return np.ndarray(taps, np.float32, flat, 0, strides).reshape(shape)

    return shifted


def _gathered(plan: Plan, shape: tuple[int, ...], numbers: Callable[[Array, Array], None]) -> Columns:
    """Read taps element by element, those outside from a zero after the image."""
    geo, (batch, channels) = plan.geo, plan.x.plain[:2]
    size = channels * prod(geo.size)
    rows, cols = (
        np.arange(o)[None] * s - p + np.arange(k)[:, None] * d
        for o, s, p, k, d in zip(geo.out, geo.stride, geo.pad, geo.kernel, geo.dilate, strict=True)
    )
    inside = ((rows >= 0) & (rows < geo.size[0]))[:, None, :, None] & ((cols >= 0) & (cols < geo.size[1]))[
        :, None
    ]
    place = rows[:, None, :, None] * geo.size[1] + cols[:, None]
    every = np.arange(channels)[:, None, None, None, None] * prod(geo.size) + place
    index = np.where(inside, every, size).reshape(-1)
    if batch > 1:
        index = (np.arange(batch)[:, None] * (size + 1) + index).reshape(-1)
    index = np.ascontiguousarray(index.reshape(shape), np.intp)

    def gathered(x: Array) -> Array:
        flat = np.empty((batch, size + 1), np.float32)
        flat[:, size] = 0
        numbers(to_plain(x, plan.x).reshape(batch, size), flat[:, :size])
        return flat.take(index)

    return gathered

"""Resize and Upsample: one small matrix of weights for each axis, or MegEngine's own operator where it agrees."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from math import floor

import numpy as np

from ...build import emit as e
from ...build.emit import _same_size
from ...build.layers.resize import OPEN_MODES, axis_weights, resized, weighted
from ...graph.dtypes import Array
from ...tensors import Tensor, const
from ...tensors.access import dtype_of
from ...tensors.convert import TracedInt
from ..call import NodeCall, front, lower
from ..values import UnsupportedNodeError
from . import M, cast, const_like, is_open, of_length

__all__: list[str] = []

_LARGEST = 1 << 24
"""The largest size of a resized axis."""


class _Axis:
    """The resize of one axis.

    Attributes:
        size: the size of the axis.
        out: its size in the result.
        scale: by which positions are computed, out / size or as the file says.
        roi: the part of the axis that ``tf_crop_and_resize`` takes.
    """

    def __init__(self, size: int, out: int, scale: float, roi: tuple[float, float]) -> None:
        self.size = size
        self.out = out
        self.scale = scale
        self.roi = roi

    def positions(self, mode: str) -> Array:
        """Compute the input positions of the output's elements, in float32 as ONNX Runtime does, which decides ties."""
        i = np.arange(self.out, dtype=np.float32)
        n, m, s = np.float32(self.size), np.float32(self.out), np.float32(self.scale)
        half, one = np.float32(0.5), np.float32(1)
        if mode == "half_pixel" or (mode == "pytorch_half_pixel" and self.out > 1):
            return (i + half) / s - half
        if mode == "half_pixel_symmetric":
            offset = n / 2 * (one - m / (s * n))
            return (offset + (i.astype(np.float64) + 0.5) / s - 0.5).astype(np.float32)
        if mode == "pytorch_half_pixel" or (mode == "align_corners" and self.out == 1):
            return np.zeros(self.out, np.float32)
        if mode == "align_corners":
            return i * (n - one) / (m - one)
        if mode == "asymmetric":
            return i / s
        if mode == "tf_half_pixel_for_nn":
            return (i + half) / s
        if mode == "tf_crop_and_resize":
            start, end = map(np.float32, self.roi)
            if self.out > 1:
                return start * (n - one) + i * (end - start) * (n - one) / (m - one)
            return np.full(self.out, 0.5 * (start + end) * (n - one), np.float32)
        raise UnsupportedNodeError(f"its coordinate_transformation_mode {mode!r} is unknown")


def _nearest(at: Array, mode: str, shrinks: bool) -> Array:
    if mode == "simple":
        # Before version 11: up where the axis shrinks, else down.
        return np.ceil(at) if shrinks else np.floor(at)
    at = at.astype(np.float64)
    # As in ONNX Runtime, a tie is what is within a millionth of one half.
    if mode == "round_prefer_floor":
        return np.floor(at) + (at - np.floor(at) > 0.5 + 1e-6)
    if mode == "round_prefer_ceil":
        return np.floor(at) + (at - np.floor(at) >= 0.5 - 1e-6)
    if mode == "floor":
        return np.floor(at)
    if mode == "ceil":
        return np.ceil(at)
    raise UnsupportedNodeError(f"its nearest_mode {mode!r} is unknown")


def _stays(size: int, out: int) -> bool:
    """Return whether an axis keeps its size, whatever that is."""
    if isinstance(size, TracedInt) and isinstance(out, TracedInt):
        return size is out or _same_size(size, out)
    return not is_open(size, out) and int(size) == int(out)


def _scaled(size: int, scale: float) -> int | None:
    """Compute floor(size * scale) of an open size; None for a scale that is not a ratio of small numbers."""
    if scale.is_integer() and scale <= 1 << 12:
        return size * int(scale)
    from fractions import Fraction  # for start-up

    ratio = Fraction(scale).limit_denominator(64)
    if ratio.numerator > 1 << 12 or np.float32(float(ratio)) != np.float32(scale):
        return None
    return size * ratio.numerator // ratio.denominator


class _OpenAxis:
    """An axis of open size: its new size, and the scale if the file gives one."""

    def __init__(self, axis: int, out: int, scale: float | None) -> None:
        self.axis = axis
        self.out = out
        self.scale = scale


def _check_size(axis: int, out: int) -> None:
    """Refuse sizes that cannot be, and those for which positions alone would take gigabytes."""
    if out < 1:
        raise UnsupportedNodeError(f"axis {axis} gets the size {out}")
    if out > _LARGEST:
        raise UnsupportedNodeError(f"axis {axis} gets the size {out}, at most {_LARGEST}")


def _require_whole(axis: int, size: int, scale: float) -> None:
    """Refuse corners that are aligned by a scale that gives no whole size: ONNX and its runtimes differ there."""
    length = np.float32(size) * np.float32(scale)
    if length != floor(length):
        raise UnsupportedNodeError(
            f"its scale {scale:.6g} makes {length:.6g} elements of the {size} along axis {axis}; with "
            "align_corners, ONNX computes positions by this number, ONNX Runtime and PyTorch by the whole one below; "
            "export the model with sizes instead of scales"
        )


def _open_axes(
    c: NodeCall, x: Tensor, axes: list[int], coordinates: str, mode: str
) -> list[_OpenAxis] | None:
    """Resolve the resize of axes with open sizes; None if all are known or the mode needs known sizes."""
    if coordinates not in OPEN_MODES or c.flag("antialias") or c.flag("exclude_outside"):
        return None
    if mode != "nearest" and not dtype_of(x).is_float:
        return None
    sizes = _open_sizes(c, x, axes)
    if sizes is None:
        return None
    result = []
    for a, (out, scale) in zip(axes, sizes, strict=True):
        if out > _LARGEST:
            _check_size(a, int(out))
        if not _stays(x.shape[a], out) or (scale is not None and scale != 1.0):
            if coordinates == "align_corners" and scale is not None:
                _require_whole(a, int(x.shape[a]), scale)
                if scale != int(scale):
                    return None
            result.append(_OpenAxis(a, out, scale))
    return result if any(is_open(x.shape[f.axis], f.out) for f in result) else None


def _policy(c: NodeCall) -> str:
    return c.choice("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller")


def _open_sizes(c: NodeCall, x: Tensor, axes: list[int]) -> list[tuple[int, float | None]] | None:
    """Return the new size of every axis, and its scale if the file gives one; None if they cannot stay open."""
    if c.has(3) and c.value(3).numbers != (0,):
        outs = c.sizes(3, "sizes")
        stretched = _policy(c) == "stretch"
        return [(out, None) for out in outs] if stretched and len(outs) == len(axes) else None
    result: list[tuple[int, float | None]] = []
    for a, scale in zip(axes, _given_scales(c), strict=False):
        size = x.shape[a]
        out = _scaled(size, scale) if isinstance(size, TracedInt) else _product(size, scale)
        if out is None or 1 < scale < 1.5:
            # Small axes keep their size by such a scale, and are copied if all do.
            return None
        result.append((out, scale))
    return result if len(result) == len(axes) else None


def _product(size: int, scale: float) -> int:
    """Compute a scaled size, in float32 as ONNX Runtime does."""
    return floor(np.float32(size) * np.float32(scale))


def _given_scales(c: NodeCall) -> list[float]:
    if c.op == "Upsample" and c.opset < 9:
        return c.floats("scales") or [1.0, 1.0, c.real("height_scale", 1.0), c.real("width_scale", 1.0)]
    index = 1 if c.op == "Upsample" or c.opset < 11 else 2
    return [float(v) for v in c.constant(index, "scales").reshape(-1)]


def _by_open(c: NodeCall, x: Tensor, axes: list[_OpenAxis], coordinates: str, mode: str, rule: str) -> Tensor:
    """Resize axes with open sizes one after another, with MegEngine's operator where it is the same."""
    if (
        (x.ndim, [f.axis for f in axes], mode, dtype_of(x).name) == (4, [2, 3], "linear", "Float32")
        and coordinates == "half_pixel"
        and all(f.scale is None or f.scale == int(f.scale) for f in axes)
    ):
        from ...build.vision import interpolate  # for start-up

        return interpolate(x, size=[axes[0].out, axes[1].out], mode="bilinear", align_corners=False)
    y = x if mode == "nearest" else e.real(x)
    a = c.real("cubic_coeff_a", -0.75)
    for f in axes:
        rounding = rule
        if rule == "simple":
            rounding = "ceil" if f.scale is not None and f.scale < 1 else "floor"
        y = resized(y, f.axis, f.out, f.scale, coordinates=coordinates, mode=mode, rule=rounding, a=a)
    return cast(y, dtype_of(x))


def _output_sizes(c: NodeCall, shape: Sequence[int], axes: list[int]) -> tuple[list[int], list[float]]:
    """Return the output sizes and scales of the resized axes."""
    n = [int(shape[a]) for a in axes]
    if c.has(3) and c.value(3).numbers != (0,):
        sizes = [int(v) for v in c.sizes(3, "sizes")]
        policy = _policy(c)
        scales = [float(np.float32(w) / np.float32(k)) if k else 1.0 for w, k in zip(sizes, n, strict=True)]
        if policy != "stretch":
            same = min(scales) if policy == "not_larger" else max(scales)
            scales = [same] * len(scales)
            sizes = [floor(same * k + 0.5) for k in n]
        return sizes, scales
    scales = _given_scales(c)
    if len(scales) != len(n) or any(s <= 0 for s in scales):
        raise UnsupportedNodeError(f"the scales {scales} for {len(n)} axes")
    return [_product(k, s) for k, s in zip(n, scales, strict=True)], scales


@lower("Resize", "Upsample")
def _resize(c: NodeCall) -> Tensor:
    x = c.t(0)
    old = c.op == "Upsample" or c.opset < 11
    axes = c.ints("axes")
    axes = list(range(x.ndim)) if axes is None else [front(a, x.ndim) for a in axes]
    coordinates = "asymmetric" if old else c.text("coordinate_transformation_mode", "half_pixel")
    mode = c.text("mode", "nearest")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    rule = "simple" if old else c.text("nearest_mode", "round_prefer_floor")
    if mode not in ("nearest", "linear", "cubic"):
        raise UnsupportedNodeError(f"its mode {mode!r} is unknown")
    opened = _open_axes(c, x, axes, coordinates, mode)
    if opened is not None:
        return _by_open(c, x, opened, coordinates, mode, rule)
    for a in axes:
        x = of_length(x, a)
    outs, scales = _output_sizes(c, x.shape, axes)
    if outs == [int(x.shape[a]) for a in axes]:
        # ONNX Runtime copies what keeps its shape, whatever the scales and the region of interest.
        return x
    roi = [0.0] * len(axes) + [1.0] * len(axes)
    if coordinates == "tf_crop_and_resize":
        roi = [float(v) for v in c.constant(1, "roi").reshape(-1)]
    plan = []
    for i, (a, out, s) in enumerate(zip(axes, outs, scales, strict=True)):
        _check_size(a, out)
        # An axis that keeps its size is taken as it is, whatever the region of interest.
        if s != 1.0 and not (c.flag("antialias") and out == int(x.shape[a])):
            if coordinates == "align_corners" and not c.has(3):
                _require_whole(a, int(x.shape[a]), s)
            plan.append((a, _Axis(int(x.shape[a]), out, s, (roi[i], roi[len(axes) + i]))))
    if not plan:
        return x
    if mode == "nearest":
        return _by_nearest(c, x, plan, coordinates, rule)
    return _by_weights(c, x, plan, coordinates, mode)


def _by_nearest(c: NodeCall, x: Tensor, plan: list[tuple[int, _Axis]], coordinates: str, rule: str) -> Tensor:
    outside = []
    for a, axis in plan:
        at = axis.positions(coordinates)
        if coordinates == "tf_crop_and_resize":
            outside.append((a, (at < 0) | (at > axis.size - 1)))
        places = np.clip(_nearest(at, rule, axis.scale < 1), 0, axis.size - 1).astype(np.int32)
        x = e.gather(x, [(a, const(places))])
    return _extrapolated(c, x, outside)


def _by_weights(c: NodeCall, x: Tensor, plan: list[tuple[int, _Axis]], coordinates: str, mode: str) -> Tensor:
    antialias, exclude = c.flag("antialias"), c.flag("exclude_outside")
    a_cubic = c.real("cubic_coeff_a", -0.75)
    if _is_native(x, plan, coordinates, mode) and not antialias and not exclude:
        from ...build.vision import interpolate  # for start-up

        return interpolate(x, size=[plan[0][1].out, plan[1][1].out], mode="bilinear", align_corners=False)
    kind = dtype_of(x)
    # ONNX Runtime mixes bytes along the axes 1 and 2 in fixed point.
    last = kind.np.itemsize == 1 and x.ndim == 4 and [a for a, _ in plan] == [1, 2]
    if not kind.is_float and (mode == "cubic" or antialias or last):
        how = "with antialias " * antialias + "with channels last " * last
        raise UnsupportedNodeError(
            f"mode {mode!r} {how}of {kind.name} is rounded in another way by every runtime; cast to float before and "
            "back after"
        )
    y = e.real(x)
    outside = []
    if coordinates == "tf_crop_and_resize":
        for a, axis in plan:
            at = axis.positions(coordinates)
            outside.append((a, (at < 0) | (at > axis.size - 1)))
    if not kind.is_float:
        return cast(_extrapolated(c, _linear_integers(y, plan, coordinates), outside), kind)
    for a, axis in plan:
        at = axis.positions(coordinates).astype(np.float64)
        if coordinates == "tf_crop_and_resize":
            at = np.clip(at, 0, axis.size - 1)
        a_now = a_cubic if mode == "cubic" else None
        stretch = max(1.0 / axis.scale, 1.0) if antialias else 1.0
        y = weighted(y, a, axis_weights(at, axis.size, a_now, stretch, exclude=exclude))
    return cast(_extrapolated(c, y, outside), kind)


def _linear_integers(x: Tensor, plan: list[tuple[int, _Axis]], coordinates: str) -> Tensor:
    """Mix the neighbours of integers in the order and precision of ONNX Runtime, which cuts the fraction off.

    It mixes along two axes, or three of 3 and 5 dimensions, also those that keep their size.
    """
    resized = dict(plan)
    count = 3 if x.ndim in (3, 5) else min(x.ndim, 2)
    first = min(min(resized), x.ndim - count)
    neighbours = []
    for a in range(first, max(max(resized) + 1, first + count)):
        size = int(x.shape[a])
        axis = resized.get(a)
        at = np.arange(size, dtype=np.float32)
        if axis is not None:
            at = np.clip(axis.positions(coordinates), 0, size - 1)
        low = np.floor(at)
        high = np.minimum(low + 1, size - 1)
        alone = low == high
        shape = [-1 if i == a else 1 for i in range(x.ndim)]
        neighbours.append(
            [
                (a, places.astype(np.int32), np.where(alone, np.float32(0.5), share).reshape(shape))
                for places, share in ((low, high - at), (high, at - low))
            ]
        )
    total: Tensor | None = None
    for corner in itertools.product(*neighbours):
        part = x
        for a, places, _ in corner:
            part = e.gather(part, [(a, const(places))])
        share = functools.reduce(np.multiply, [share for _, _, share in reversed(corner)])
        part = e.elem(M.MUL, const(np.ascontiguousarray(share)), part)
        total = part if total is None else e.elem(M.ADD, total, part)
    assert total is not None
    return total


def _is_native(x: Tensor, plan: list[tuple[int, _Axis]], coordinates: str, mode: str) -> bool:
    """Return whether MegEngine's ResizeV2 computes the same."""
    return (
        x.ndim == 4
        and [a for a, _ in plan] == [2, 3]
        and mode == "linear"
        and dtype_of(x).name == "Float32"
        and coordinates in ("half_pixel", "pytorch_half_pixel")
        and all(p.out > 1 and abs(p.scale * p.size - p.out) < 1e-6 for _, p in plan)
    )


def _extrapolated(c: NodeCall, x: Tensor, outside: list[tuple[int, Array]]) -> Tensor:
    if not any(mask.any() for _, mask in outside):
        return x
    value = const_like(c.real("extrapolation_value"), x)
    for a, mask in outside:
        shape = [-1 if i == a else 1 for i in range(x.ndim)]
        x = e.where(const(mask.reshape(shape)), value, x)
    return x

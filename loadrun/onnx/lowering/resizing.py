"""Resize and Upsample: one small matrix of weights for each axis, or MegEngine's own operator where it agrees."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
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
        """Compute the input positions of the output's elements."""
        i = np.arange(self.out, dtype=np.float64)
        n, m, s = self.size, self.out, self.scale
        whole = n * s
        if mode == "half_pixel":
            return (i + 0.5) / s - 0.5
        if mode == "half_pixel_symmetric":
            adjustment = m / whole
            center = n / 2
            return center * (1 - adjustment) + (i + 0.5) / s - 0.5
        if mode == "pytorch_half_pixel":
            return (i + 0.5) / s - 0.5 if m > 1 else np.zeros(m)
        if mode == "align_corners":
            return i * (n - 1) / (whole - 1) if whole != 1 else np.zeros(m)
        if mode == "asymmetric":
            return i / s
        if mode == "tf_half_pixel_for_nn":
            return (i + 0.5) / s
        if mode == "tf_crop_and_resize":
            start, end = self.roi
            if m > 1:
                return start * (n - 1) + i * (end - start) * (n - 1) / (m - 1)
            return np.full(m, 0.5 * (start + end) * (n - 1))
        raise UnsupportedNodeError(f"its coordinate_transformation_mode {mode!r} is unknown")


def _nearest(at: Array, mode: str) -> Array:
    if mode == "round_prefer_floor":
        return np.ceil(at - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(at + 0.5)
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
    if scale == 1.0:
        return size
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


def _open_axes(c: NodeCall, x: Tensor, axes: list[int], coordinates: str) -> list[_OpenAxis] | None:
    """Resolve the resize of axes with open sizes; None if all are known or the mode needs known sizes."""
    if coordinates not in OPEN_MODES or c.number("antialias") or c.number("exclude_outside"):
        return None
    result = []
    if c.has(3) and c.value(3).numbers != (0,):
        outs = c.sizes(3, "sizes")
        if c.text("keep_aspect_ratio_policy", "stretch") != "stretch":
            return None
        scales: list[float | None] = [None] * len(outs)
    else:
        scales = list(_given_scales(c))
        if len(scales) != len(axes):
            return None
        outs = []
        for a, s in zip(axes, scales, strict=True):
            size = x.shape[a]
            out = _scaled(size, float(s or 0)) if isinstance(size, TracedInt) else floor(size * float(s or 0))
            if out is None:
                return None
            outs.append(out)
    for a, out, scale in zip(axes, outs, scales, strict=True):
        if out > _LARGEST:
            _check_size(a, int(out))
        if not _stays(x.shape[a], out) or (scale is not None and scale != 1.0):
            result.append(_OpenAxis(a, out, scale))
    return result if any(is_open(x.shape[f.axis], f.out) for f in result) else None


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
        y = resized(y, f.axis, f.out, f.scale, coordinates=coordinates, mode=mode, rule=rule, a=a)
    return _in_type(y, x)


def _in_type(y: Tensor, x: Tensor) -> Tensor:
    """Convert mixed elements back to their type: integers are rounded and saturate."""
    kind = dtype_of(x)
    if dtype_of(y) == kind or kind.is_float:
        return cast(y, kind)
    info = np.iinfo(kind.np)
    bounded = e.elem(M.MIN, const_like(info.max, y), e.elem(M.MAX, const_like(info.min, y), e.rint(y)))
    return cast(cast(bounded, "int32"), kind)


def _output_sizes(c: NodeCall, shape: Sequence[int], axes: list[int]) -> tuple[list[int], list[float]]:
    """Return the output sizes and scales of the resized axes."""
    n = [int(shape[a]) for a in axes]
    if c.has(3) and c.value(3).numbers != (0,):
        sizes = [int(v) for v in c.sizes(3, "sizes")]
        policy = c.text("keep_aspect_ratio_policy", "stretch")
        scales = [w / k for w, k in zip(sizes, n, strict=True)]
        if policy != "stretch":
            same = min(scales) if policy == "not_larger" else max(scales)
            scales = [same] * len(scales)
            sizes = [floor(same * k + 0.5) for k in n]
        return sizes, scales
    scales = _given_scales(c)
    if len(scales) != len(n) or any(s <= 0 for s in scales):
        raise UnsupportedNodeError(f"{len(scales)} scales for {len(n)} axes")
    return [floor(k * s) for k, s in zip(n, scales, strict=True)], scales


@lower("Resize", "Upsample")
def _resize(c: NodeCall) -> Tensor:
    x = c.t(0)
    old = c.op == "Upsample" or c.opset < 11
    axes = c.ints("axes")
    axes = list(range(x.ndim)) if axes is None else [front(a, x.ndim) for a in axes]
    coordinates = "asymmetric" if old else c.text("coordinate_transformation_mode", "half_pixel")
    mode = c.text("mode", "nearest")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    rule = "floor" if old else c.text("nearest_mode", "round_prefer_floor")
    if mode not in ("nearest", "linear", "cubic"):
        raise UnsupportedNodeError(f"its mode {mode!r} is unknown")
    opened = _open_axes(c, x, axes, coordinates)
    if opened is not None:
        return _by_open(c, x, opened, coordinates, mode, rule)
    for a in axes:
        x = of_length(x, a)
    outs, scales = _output_sizes(c, x.shape, axes)
    roi = [0.0] * len(axes) + [1.0] * len(axes)
    if coordinates == "tf_crop_and_resize":
        roi = [float(v) for v in c.constant(1, "roi").reshape(-1)]
    plan = []
    for i, (a, out, s) in enumerate(zip(axes, outs, scales, strict=True)):
        _check_size(a, out)
        plan.append((a, _Axis(int(x.shape[a]), out, s, (roi[i], roi[len(axes) + i]))))
    plan = [
        (a, p) for a, p in plan if p.size != p.out or p.scale != 1.0 or coordinates == "tf_crop_and_resize"
    ]
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
        places = np.clip(_nearest(at, rule), 0, axis.size - 1).astype(np.int32)
        x = e.gather(x, [(a, const(places))])
    return _extrapolated(c, x, outside)


def _by_weights(c: NodeCall, x: Tensor, plan: list[tuple[int, _Axis]], coordinates: str, mode: str) -> Tensor:
    antialias, exclude = bool(c.number("antialias")), bool(c.number("exclude_outside"))
    a_cubic = c.real("cubic_coeff_a", -0.75)
    if _is_native(x, plan, coordinates, mode) and not antialias and not exclude:
        from ...build.vision import interpolate  # for start-up

        return interpolate(x, size=[plan[0][1].out, plan[1][1].out], mode="bilinear", align_corners=False)
    y = e.real(x)
    outside = []
    for a, axis in plan:
        at = axis.positions(coordinates)
        if coordinates == "tf_crop_and_resize":
            outside.append((a, (at < 0) | (at > axis.size - 1)))
            at = np.clip(at, 0, axis.size - 1)
        a_now = a_cubic if mode == "cubic" else None
        stretch = max(1.0 / axis.scale, 1.0) if antialias else 1.0
        y = weighted(y, a, axis_weights(at, axis.size, a_now, stretch, exclude=exclude))
    return _in_type(_extrapolated(c, y, outside), x)


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

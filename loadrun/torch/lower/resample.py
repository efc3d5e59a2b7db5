"""Resampling: resizing, grids, affine maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import torch

from ...graph.dtypes import plain
from ...layers import emit as e
from ...layers import vision
from ...layers.shared import sampling
from ...layers.shared.resize import axis_weights, resized, shares_at, weighted
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size, computed
from ..values import as_array, as_tensor

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


def _positions(size: int, out: int, corners: bool, scale: float | None) -> np.ndarray[Any, Any]:
    """Compute the positions of the new elements among the old ones."""
    places = np.arange(out, dtype=np.float64)
    if corners:
        return places * ((size - 1) / (out - 1) if out > 1 else 0.0)
    ratio = 1 / scale if scale else size / out
    return (places + 0.5) * ratio - 0.5


def _nearest(x: Any, axis: int, old: Any, new: Any, exact: bool, scale: float | None) -> Any:
    """Copy the source of each new element, in torch's single precision; sizes may be symbolic."""
    known = type(old) is int and type(new) is int
    number, size, count = (
        np.float32(v) if known else as_array(v, "float32")
        for v in (np.arange(new) if known else e.arange(new), old, new)
    )
    ratio = np.float32(1 / scale) if scale else size / count
    place = np.floor((number + np.float32(0.5)) * ratio if exact else number * ratio)
    last = (old if known else as_array(old, "int32")) - 1
    return np.take(x, np.minimum(place.astype(np.int32), last), axis=axis)


def _factors(call: FxCall, rest: Sequence[Any], n: int) -> list[float | None]:
    """Return the explicit scale factors; torch uses them in place of the ratio of sizes."""
    factors = [v for v in rest if v is not None]
    if len(factors) == 1 and isinstance(factors[0], (list, tuple)):
        factors = list(factors[0])
    return [float(v) for v in factors] if len(factors) == n else [None] * n


def _resized(call: FxCall, x: Any, kind: str, corners: bool, scales: Sequence[float | None]) -> Any:
    n = len(call.shape_of(0)) - 2
    out = call.shape[2:]
    simple = n == 2 and not corners and kind == "linear" and not any(_off(call, scales))
    if simple and call.dtype == np.float32:
        return vision.interpolate(as_tensor(x), [int(n) for n in out], mode="bilinear", align_corners=False)
    sizes = call.static(call.shape_of(0)[2:], "resizing of this kind")
    wanted = call.static(out, "resizing of this kind")
    bytes_ = _weighs_bytes(call, kind)
    result = as_array(x, "float32" if bytes_ else call.dtype)
    axes = [*zip(range(2, 2 + n), sizes, wanted, scales, strict=True)]
    for axis, size, want, scale in reversed(axes) if bytes_ else axes:
        if kind.startswith("nearest"):
            result = _nearest(result, axis, size, want, "exact" in kind, scale)
            continue
        if size == want and (scale is None or scale == 1):
            continue
        cubic = "cubic" in kind
        smooth = "aa" in kind
        a = (-0.5 if smooth else -0.75) if cubic else None
        if smooth and bytes_:
            ratio = (size - 1) / (want - 1) if corners and want > 1 else 1 / scale if scale else size / want
            at = ratio * (np.arange(want) + 0.5) - 0.5
            result = _weighted_bytes(result, axis, axis_weights(at, size, a, max(ratio, 1.0), exclude=True))
        elif smooth:
            result = _smoothed(call, result, axis, size, want, a, corners, scale)
        elif bytes_:
            at = _positions(size, want, corners, scale)
            result = _weighted_bytes(result, axis, axis_weights(at, size, a))
        else:
            at = _positions(size, want, corners, scale)
            result = _tapped(result, axis, at if cubic else np.maximum(at, 0), a)
    return as_array(result, call.dtype)


def _tapped(x: Any, axis: int, at: np.ndarray[Any, Any], a: float | None) -> Any:
    """Weigh the elements around positions, those at the ends again and again, as torch does."""
    base = np.floor(at)
    taps = base[:, None] + (np.arange(2) if a is None else np.arange(-1, 3))
    return _picked(x, axis, taps, shares_at(np.abs(at[:, None] - taps), a))


def _picked(x: Any, axis: int, taps: Any, shares: Any, inside: Any = True) -> Any:
    """Sum the elements at places (new size, places) times shares; those outside times 0 would be NaN if infinite."""
    kind = "float64" if x.dtype == np.float64 else "float32"
    places = np.clip(taps, 0, x.shape[axis] - 1) if isinstance(taps, np.ndarray) else taps
    column = (*taps.shape, *[1] * (len(x.shape) - axis - 1))
    parts = as_array(np.take(x, as_array(places, "int32"), axis=axis), kind) * as_array(shares, kind).reshape(
        column
    )
    if not isinstance(inside, (bool, np.ndarray)) or not np.all(inside):
        parts = np.where(as_array(inside).reshape(column), parts, as_array(0, kind))
    return np.sum(parts, axis=axis + 1)


def _weighs_bytes(call: FxCall, kind: str) -> bool:
    """Tell whether bytes are weighed, not only copied."""
    return bool(call.dtype == np.uint8 and not kind.startswith("nearest"))


def _weighted_bytes(x: Any, axis: int, weights: np.ndarray[Any, Any]) -> Any:
    """Weigh bytes as torch does: by integers of 16 bits, rounded after each axis."""
    bits = 0
    while bits < 22 and 0.5 + weights.max() * 2 ** (bits + 1) < 2**15:
        bits += 1
    whole = np.trunc(weights * 2**bits + np.where(weights < 0, -0.5, 0.5))
    # Sums below 2**24 are exact in float32.
    kind = "float32" if np.abs(whole).sum(1).max() * 255 < 2**23 else "float64"
    total = as_array(weighted(as_tensor(as_array(x, kind)), axis, whole))
    rounded = np.floor((total + as_array(2.0 ** (bits - 1), kind)) * as_array(2.0**-bits, kind))
    return as_array(np.clip(rounded, as_array(0, kind), as_array(255, kind)), "float32")


def _off(call: FxCall, scales: Sequence[float | None]) -> list[bool]:
    """Tell for each axis whether a scale factor contradicts the sizes."""
    pairs = zip(call.shape_of(0)[2:], call.shape[2:], scales, strict=True)
    return [
        s is not None
        and (not isinstance(a, int) or not isinstance(b, int) or abs(a * s - b) > 1e-9)
        and not float(s).is_integer()
        for a, b, s in pairs
    ]


def _resize(kind: str, corners_given: bool) -> Any:
    def lowered(call: FxCall, x: Any, size: Any = None, *rest: Any, **_: Any) -> Any:
        corners = bool(rest[0]) if corners_given and rest else False
        n = len(call.shape_of(0)) - 2
        scales = _factors(call, rest[1:] if corners_given else rest, n)
        if not _weighs_bytes(call, kind) and any(
            not isinstance(v, int) for v in (*call.shape_of(0)[2:], *call.shape[2:])
        ):
            return _following(call, x, size, kind, corners, scales)
        return _resized(call, x, kind, corners, scales)

    return lowered


def _following(
    call: FxCall, x: Any, size: Any, kind: str, corners: bool, scales: Sequence[float | None]
) -> Any:
    """Resize an image of symbolic size."""
    whole = [s is not None and float(s).is_integer() for s in scales]
    if size is None and kind == "nearest" and all(whole):
        result = as_array(x)
        for axis, s in enumerate(scales, 2):
            result = np.repeat(result, int(s or 1), axis=axis)
        return result
    sizes = as_tensor(x).shape[2:]
    wanted = [as_size(n) for n in size] if size is not None else list(map(_scaled, sizes, scales))
    ratios_agree = all(w or s is None for w, s in zip(whole, scales, strict=True))
    # One element has no distance between corners to divide by.
    alone = corners and any(type(n) is int and n == 1 for n in wanted)
    if kind == "linear" and len(sizes) == 2 and ratios_agree and not alone and call.dtype == np.float32:
        return vision.interpolate(as_tensor(x), wanted, mode="bilinear", align_corners=corners)
    result = as_array(x, call.dtype)
    for axis, (old, new, scale) in enumerate(zip(sizes, wanted, scales, strict=True), 2):
        if kind.startswith("nearest"):
            result = _nearest(result, axis, old, new, "exact" in kind, scale)
        elif "aa" in kind:
            a = -0.5 if "cubic" in kind else None
            result = _smoothed(call, result, axis, old, new, a, corners, scale)
        else:
            factor = None if corners else scale
            y = resized(as_tensor(result), axis, new, factor, corners=corners, cubic=kind == "cubic")
            result = as_array(y)
    return result


def _smoothed(
    call: FxCall, x: Any, axis: int, old: Any, new: Any, a: float | None, corners: bool, scale: float | None
) -> Any:
    """Resize an axis, every new element from a window that grows with those it stands for, as torch places it.

    Args:
        call: the call.
        x: the elements.
        axis: the axis.
        old, new: its sizes, numbers or symbolic.
        a: the coefficient of the cubic kernel, None for the linear one.
        corners: whether the outermost elements stay where they are.
        scale: by which positions are computed, None for the ratio of the sizes.
    """
    real, reach = np.dtype(_real(call)).type, np.float32(1 if a is None else 2)
    known = type(old) is int and type(new) is int
    # One new element is the first of the old ones, if the corners stay.
    up, down = (
        ((old - 1) * _chosen(torch.sym_min, new - 1, 1), _chosen(torch.sym_max, new - 1, 1))
        if corners
        else (old, new)
    )
    width = ceil(reach / scale) if scale and not corners else (int(reach) * up + down - 1) // down
    steps = new, 2 * _chosen(torch.sym_max, width, int(reach)) + 1
    number, tap = (np.arange(n, dtype=real) if known else as_array(e.arange(n), real) for n in steps)
    size, count, up, down = (real(v) if known else as_array(v, real) for v in (old, new, up, down))
    ratio = real(1 / scale) if scale and not corners else up / down
    stretch = np.maximum(ratio, real(1))
    center, half = ratio * (number + real(0.5)), real(0.5)
    first = np.maximum(np.trunc(center - reach * stretch + half), real(0))[:, None]
    last = np.minimum(np.trunc(center + reach * stretch + half), size)[:, None]
    places = first + tap
    inside = places < last
    d = np.absolute(places - center[:, None] + half) / stretch
    if a is None:
        shares = np.maximum(1 - d, real(0))
    else:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        shares = np.where(d <= 1, near, np.where(d < 2, far, np.zeros_like(d)))
    # Torch leaves an axis of the same size alone.
    inside = inside & ((shares != 0) | (size != count))
    shares = np.where(inside, shares, np.zeros_like(shares))
    shares = shares / np.sum(shares, axis=1, keepdims=True)
    return _picked(x, axis, np.minimum(places, size - 1), shares, inside)


def _chosen(extreme: Callable[..., Any], a: Any, b: Any) -> Any:
    """Return the larger or smaller of two sizes, numbers or symbolic."""
    return computed(extreme, (a, b), {})


_LONGEST = 8192
"""The largest size at which a fraction is compared with a scale factor."""


def _scaled(size: Any, scale: float | None) -> Any:
    """Multiply a size by a scale factor, rounded down as torch does in double precision.

    Raises:
        UnsupportedCallError: no fraction of integers gives the same sizes.
    """
    if scale is None:
        return size
    part = Fraction(scale).limit_denominator(1 << 12)
    up, down = part.numerator, part.denominator
    if any(int(n * scale) != n * up // down for n in range(_LONGEST)):
        raise UnsupportedCallError(
            f"the scale factor {scale} of a dynamic size is not a simple fraction; give a size"
        )
    return size * up if down == 1 else size * up // down


for _names, _kind, _corners in (
    ("upsample_linear1d upsample_bilinear2d upsample_trilinear3d", "linear", True),
    ("upsample_bicubic2d", "cubic", True),
    ("_upsample_bilinear2d_aa", "aa", True),
    ("_upsample_bicubic2d_aa", "aa cubic", True),
    ("upsample_nearest1d upsample_nearest2d upsample_nearest3d", "nearest", False),
    ("_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d", "nearest exact", False),
):
    for _name in _names.split():
        aten(f"aten.{_name}.vec", f"aten.{_name}.default")(_resize(_kind, _corners))


def _real(call: FxCall) -> str:
    return "float64" if call.dtype == np.float64 else "float32"


@aten("aten.affine_grid_generator.default")
def affine_grid(call: FxCall, theta: Any, size: Any, align_corners: bool) -> Any:
    """Compute the grid of an affine map."""
    lengths = call.static(list(size)[2:], "the size of a grid")
    matrices = as_tensor(theta, _real(call))
    y = sampling.affine_grid(matrices, matrices.shape[0], lengths, align=align_corners)
    return e.cast(y, call.dtype)


@aten("aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(call: FxCall, x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    """Sample elements at the positions of a grid: linear, nearest or cubic."""
    n = len(call.shape_of(0)) - 2
    if n == 3 and mode == 2:
        raise UnsupportedCallError("cubic sampling of volumes")
    x, grid = as_tensor(x), as_tensor(grid)
    if call.fake.dtype is torch.bfloat16:
        # Torch rounds every step.
        x, grid = (e.cast(v, plain("BFloat16")) for v in (x, grid))
    y = sampling.grid_sampled(x, grid, _MODES[mode], _PADDINGS[padding], align=corners)
    return e.cast(y, call.dtype)

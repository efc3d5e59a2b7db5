"""Resampling: resizing, grids, affine maps."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import torch

from ...graph.dtypes import Array, plain
from ...layers import emit as e, vision
from ...layers.products import product
from ...layers.shared import sampling
from ...tensors import const
from ..call import FxCall, as_array, as_tensor
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size, computed

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


def _positions(old: Any, new: Any, corners: bool, scale: float | None, real: str) -> Any:
    """Compute the positions of the new elements among the old ones; sizes may be symbolic."""
    if type(old) is int and type(new) is int:
        number, size, count = np.arange(new, dtype=np.float64), old, new
    else:
        number, size, count = (as_array(v, real) for v in (e.arange(new), old, new))
    if corners:
        return number * ((size - 1) / np.maximum(count - 1, 1))
    return (number + 0.5) * (1 / scale if scale else size / count) - 0.5


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


def _factors(rest: Sequence[Any], n: int) -> list[float | None]:
    """Return the explicit scale factors; torch uses them in place of the ratio of sizes."""
    factors = [v for v in rest if v is not None]
    if len(factors) == 1 and isinstance(factors[0], (list, tuple)):
        factors = list(factors[0])
    return [float(v) for v in factors] if len(factors) == n else [None] * n


def _resize(kind: str, corners_given: bool) -> Any:
    def lowered(call: FxCall, x: Any, size: Any = None, *rest: Any, **_: Any) -> Any:
        corners = bool(rest[0]) if corners_given and rest else False
        scales = _factors(rest[1:] if corners_given else rest, len(call.shape_of(0)) - 2)
        bytes_ = call.dtype == np.uint8 and not kind.startswith("nearest")
        sizes: Any = call.shape_of(0)[2:]
        wanted: Any = call.shape[2:]
        if bytes_ or all(isinstance(n, int) for n in (*sizes, *wanted)):
            sizes, wanted = (call.static(v, "resizing of this kind") for v in (sizes, wanted))
            usual = not corners and not any(map(_off, sizes, wanted, scales))
        else:
            whole = [s is not None and s.is_integer() for s in scales]
            if size is None and kind == "nearest" and all(whole):
                result = as_array(x)
                for axis, s in enumerate(scales, 2):
                    result = np.repeat(result, int(s or 1), axis=axis)
                return result
            sizes = as_tensor(x).shape[2:]
            wanted = [as_size(n) for n in size] if size is not None else list(map(_scaled, sizes, scales))
            # One element has no distance between corners to divide by.
            alone = corners and any(type(n) is int and n == 1 for n in wanted)
            usual = not alone and all(w or s is None for w, s in zip(whole, scales, strict=True))
        if usual and kind == "linear" and len(sizes) == 2 and call.dtype == np.float32:
            return vision.interpolate(as_tensor(x), wanted, mode="bilinear", align_corners=corners)
        result = as_array(x, "float32" if bytes_ else call.dtype)
        axes = [*zip(range(2, 2 + len(sizes)), sizes, wanted, scales, strict=True)]
        for axis, old, new, scale in reversed(axes) if bytes_ else axes:
            result = _resized(call, result, axis, old, new, scale, kind, corners, bytes_)
        return as_array(result, call.dtype)

    return lowered


def _resized(
    call: FxCall,
    x: Any,
    axis: int,
    old: Any,
    new: Any,
    scale: float | None,
    kind: str,
    corners: bool,
    bytes_: bool,
) -> Any:
    """Resize one axis."""
    if kind.startswith("nearest"):
        return _nearest(x, axis, old, new, "exact" in kind, scale)
    if type(old) is type(new) is int and old == new and scale in (None, 1):
        return x
    smooth, cubic = "aa" in kind, "cubic" in kind
    a = (-0.5 if smooth else -0.75) if cubic else None
    if smooth and bytes_:
        ratio = (old - 1) / (new - 1) if corners and new > 1 else 1 / scale if scale else old / new
        at = ratio * (np.arange(new) + 0.5) - 0.5
        return _weighted_bytes(x, axis, _axis_weights(at, old, a, max(ratio, 1.0)))
    if smooth:
        return _smoothed(call, x, axis, old, new, a, corners, scale)
    at = _positions(old, new, corners, scale, _real(call))
    if bytes_:
        return _weighted_bytes(x, axis, _axis_weights(at, old, a))
    return _tapped(x, axis, old, at if cubic else np.maximum(at, 0), a)


def _tapped(x: Any, axis: int, old: Any, at: Any, a: float | None) -> Any:
    """Weigh the elements around positions, those at the ends again and again, as torch does."""
    taps = np.floor(at)[:, None] + (np.arange(2.0) if a is None else np.arange(-1.0, 3.0)).astype(at.dtype)
    shares = _shares(np.abs(at[:, None] - taps), a)
    last = (old if isinstance(at, np.ndarray) else as_array(old, at.dtype)) - 1
    return _picked(x, axis, np.maximum(np.minimum(taps, last), 0), shares)


def _picked(x: Any, axis: int, taps: Any, shares: Any, inside: Any = True) -> Any:
    """Sum the elements at places (new size, places) times shares; those outside times 0 would be NaN if infinite."""
    kind = "float64" if x.dtype == np.float64 else "float32"
    column = (*taps.shape, *[1] * (len(x.shape) - axis - 1))
    parts = as_array(np.take(x, as_array(taps, "int32"), axis=axis), kind) * as_array(shares, kind).reshape(
        column
    )
    if not isinstance(inside, (bool, np.ndarray)) or not np.all(inside):
        parts = np.where(as_array(inside).reshape(column), parts, as_array(0, kind))
    return np.sum(parts, axis=axis + 1)


def _weighted_bytes(x: Any, axis: int, weights: np.ndarray[Any, Any]) -> Any:
    """Weigh bytes as torch does: by integers of 16 bits, rounded after each axis."""
    bits = 0
    while bits < 22 and 0.5 + weights.max() * 2 ** (bits + 1) < 2**15:
        bits += 1
    whole = np.trunc(weights * 2**bits + np.where(weights < 0, -0.5, 0.5))
    # Sums below 2**24 are exact in float32.
    kind = "float32" if np.abs(whole).sum(1).max() * 255 < 2**23 else "float64"
    turned = const(np.ascontiguousarray(whole.T), plain(kind.capitalize()))
    total = as_array(product(as_tensor(np.moveaxis(as_array(x, kind), axis, -1)), turned))
    rounded = np.floor((total + as_array(2.0 ** (bits - 1), kind)) * as_array(2.0**-bits, kind))
    rounded = np.clip(rounded, as_array(0, kind), as_array(255, kind))
    return as_array(np.moveaxis(rounded, -1, axis), "float32")


def _off(size: int, want: int, scale: float | None) -> bool:
    """Tell whether a scale factor contradicts the sizes."""
    return scale is not None and abs(size * scale - want) > 1e-9 and not scale.is_integer()


def _axis_weights(at: Array, size: int, a: float | None, stretch: float = 0.0) -> Array:
    """Return the share (out, size) that every element of an axis has in every new one.

    Args:
        at: where among the elements the new ones lie.
        size: how many elements there are.
        a: the coefficient of the cubic kernel, None for the linear one.
        stretch: by how much the kernel is wider than the distance of the elements, against aliasing; then what lies
            beyond the ends is left out, which counts for the outermost elements else. 0 for no such kernel.
    """
    reach = (1 if a is None else 2) * (stretch or 1)
    count = ceil(2 * reach) + 2
    taps = np.floor(at[:, None] - reach).astype(np.int64) + np.arange(count)
    shares = _shares(np.abs(taps - at[:, None]) / (stretch or 1), a)
    if stretch:
        shares = np.where((taps >= 0) & (taps < size), shares, 0.0)
        shares /= shares.sum(1, keepdims=True)
    return sampling.matrix_of(np.clip(taps, 0, size - 1), shares, size)


def _shares(x: Any, a: float | None) -> Any:
    """Return the kernel at distances, which may be traced, the linear one without `a`."""
    if a is None:
        return np.maximum(1 - x, 0)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, np.zeros_like(x)))


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
    shares = _shares(d, a)
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

"""Resize and Upsample, as ONNX Runtime computes them; positions are rounded to float32 there, which decides ties."""

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import ceil, floor
from typing import Any, NamedTuple

from ...arrays.names import kernel, np
from ...graph.composite import Known
from ...graph.dtypes import Array
from ...ops.image.sampling import blend
from . import operator
from .common import axes_of, integers, one_of, refuse_unless

_LARGEST = 1 << 24
"""The largest size of a resized axis."""
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)


class _Axis(NamedTuple):
    """The resize of one axis.

    Attributes:
        axis: which one.
        size: its size.
        out: its new size.
        scale: by which positions are computed, out / size or as the file says; 1.0 where that keeps the size.
        roi: the part of the axis that ``tf_crop_and_resize`` takes.
    """

    axis: int
    size: int
    out: int
    scale: float
    roi: tuple[float, float]

    def positions(self, mode: str) -> Array:
        """Compute the input positions of the output's elements."""
        i = np.arange(self.out, dtype=np.float32)
        n, m, s = single(self.size), single(self.out), single(self.scale)
        half, one = np.float32(0.5), np.float32(1)
        if mode == "half_pixel" or (mode == "pytorch_half_pixel" and self.out > 1):
            return (i + half) / s - half
        if mode == "half_pixel_symmetric":
            offset = n / 2 * (one - m / (s * n))
            return (offset + (i.astype(np.float64) + 0.5) / s - 0.5).astype(np.float32)
        if mode == "pytorch_half_pixel" or (mode == "align_corners" and self.out == 1):
            return np.zeros(self.out, np.float32)
        if mode == "align_corners":
            # By whole sizes, where ONNX's own text computes by the scale.
            return i * (n - one) / (m - one)
        if mode == "asymmetric":
            return i / s
        if mode == "tf_half_pixel_for_nn":
            return (i + half) / s
        start, end = map(np.float32, self.roi)
        if self.out > 1:
            return start * (n - one) + i * (end - start) * (n - one) / (m - one)
        return np.full(self.out, 0.5 * (start + end) * (n - one), np.float32)

    def along(self, values: Array, rank: int) -> Array:
        """Return values for each place of the axis, so that they broadcast."""
        return values.reshape([-1 if i == self.axis else 1 for i in range(rank)])


@kernel
def single(number: float) -> Any:  # noqa: ANN401 - while it is traced, a size is
    """Return a number in float32."""
    return np.float32(number)


@kernel
def scaled(size: int, scale: float) -> int:
    """Return a size times a number, which ONNX Runtime rounds to float32 before it cuts the fraction off."""
    return floor(np.float32(size) * np.float32(scale))


def _sizes(
    n: Sequence[int], scales: Array | None, sizes: Array | None, policy: str
) -> tuple[list[int], list[float]]:
    """Return new sizes, and scales."""
    one_of("keep_aspect_ratio_policy", policy, "stretch", "not_larger", "not_smaller")
    if sizes is None or not sizes.size:
        by = [] if scales is None else [float(v) for v in scales.reshape(-1)]
        refuse_unless(len(by) == len(n) and min(by, default=1) > 0, f"the scales {by} for {len(n)} axes")
        return [scaled(k, s) for k, s in zip(n, by, strict=True)], by
    outs = integers(sizes)
    by = [single(w) / single(k) if k != w else 1.0 for w, k in zip(outs, n, strict=True)]
    if policy != "stretch":
        by = [min(by) if policy == "not_larger" else max(by)] * len(n)
        outs = [floor(by[0] * k + 0.5) for k in n]
    return outs, by


def _resized_shape(
    x: Array,
    roi: Known | None = None,
    scales: Known | None = None,
    sizes: Known | None = None,
    *,
    axes: Sequence[int] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
    **other: object,
) -> tuple[int, ...]:
    places = axes_of(axes, x.ndim)
    outs, _ = _sizes([x.shape[a] for a in places], scales, sizes, keep_aspect_ratio_policy)
    resized = dict(zip(places, outs, strict=True))
    return tuple(resized.get(i, n) for i, n in enumerate(x.shape))


@operator("Resize", since=11, shape=_resized_shape)
def resize(
    x: Array,
    roi: Known | None = None,
    scales: Known | None = None,
    sizes: Known | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    """Resize axes by nearest elements, or by sums of neighbours."""
    coordinates = one_of("coordinate_transformation_mode", coordinate_transformation_mode, *_COORDINATES)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    one_of("mode", mode, "nearest", "linear", "cubic")
    places = axes_of(axes, x.ndim)
    n = [x.shape[a] for a in places]
    outs, by = _sizes(n, scales, sizes, keep_aspect_ratio_policy)
    if outs == n:
        # ONNX Runtime copies what keeps its shape, whatever the scales and the region of interest.
        return x
    regions = [0.0] * len(n) + [1.0] * len(n) if roi is None or not roi.size else roi.reshape(-1).tolist()
    plan = []
    for i, (a, out, s) in enumerate(zip(places, outs, by, strict=True)):
        refuse_unless(1 <= out <= _LARGEST, f"axis {a} gets the size {out}, expected 1 to {_LARGEST}")
        # An axis that keeps its size is taken as it is, whatever the region of interest.
        if not (type(s) is float and s == 1) and not (antialias and out == n[i]):
            plan.append(_Axis(a, n[i], out, s, (regions[i], regions[len(n) + i])))
    if mode == "nearest":
        y = _nearest(x, plan, coordinates, nearest_mode)
    elif x.dtype.kind == "f":
        a_cubic = cubic_coeff_a if mode == "cubic" else None
        y = _weighted(x, plan, coordinates, a_cubic, bool(antialias), bool(exclude_outside))
    else:
        y = _linear_integers(x, plan, coordinates, mode + " with antialias" * bool(antialias))
    if coordinates == "tf_crop_and_resize":
        for p in plan:
            at = p.positions(coordinates)
            y = np.where(p.along((at < 0) | (at > p.size - 1), x.ndim), y.dtype.type(extrapolation_value), y)
    return y.astype(x.dtype)


def _nearest(x: Array, plan: Sequence[_Axis], coordinates: str, rule: str) -> Array:
    for p in plan:
        at = _rounded(p.positions(coordinates), rule, p.scale < 1)
        x = np.take(x, at.clip(0, p.size - 1).astype(np.int64), p.axis)
    return x


def _rounded(at: Array, rule: str, shrinks: bool) -> Array:
    known = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
    one_of("nearest_mode", rule, *known)
    if rule == "simple":
        # Before version 11: up where the axis shrinks, else down.
        rule = "ceil" if shrinks else "floor"
    if rule in ("floor", "ceil"):
        return np.floor(at) if rule == "floor" else np.ceil(at)
    at = at.astype(np.float64)
    low = np.floor(at)
    # A tie is what is within a millionth of one half.
    return low + (at - low > 0.5 + 1e-6 if rule == "round_prefer_floor" else at - low >= 0.5 - 1e-6)


def _weighted(
    x: Array, plan: Sequence[_Axis], coordinates: str, a: float | None, antialias: bool, exclude: bool
) -> Array:
    # The axis first that shrinks most, so that what lies between is small.
    for p in sorted(plan, key=lambda p: p.out / p.size):
        at = p.positions(coordinates).astype(np.float64)
        if coordinates == "tf_crop_and_resize":
            at = at.clip(0, p.size - 1)
        taps, shares = _taps(at, p.size, a, max(1 / p.scale, 1.0) if antialias else 1.0, exclude)
        x = blend(x, (taps, shares.astype(x.dtype)), p.axis)
    return x


def _taps(at: Array, size: int, a: float | None, stretch: float, exclude: bool) -> tuple[Array, Array]:
    """Return the elements (out, T) around positions, and their shares.

    Args:
        at: (out,) positions.
        size: how many elements there are.
        a: the coefficient of cubic shares; None for linear ones.
        stretch: by how much the shares are wider than usual.
        exclude: give those outside no share, instead of that of the outermost element.
    """
    reach = (1 if a is None else 2) * stretch
    # What is far outside is the outermost element, wherever it lies.
    center = at.clip(-2 * reach - 2, size + 2 * reach + 2)[:, None]
    count = ceil(2 * reach)
    taps = np.floor(center - reach).astype(np.int64) + 1 + np.arange(count)
    shares = _shares(np.abs(taps - center) / stretch, a)
    if exclude:
        shares = np.where((taps >= 0) & (taps < size), shares, 0.0)
    if stretch > 1 or exclude:
        total = shares.sum(1, keepdims=True)
        shares = shares / np.where(total == 0, 1, total)
    return taps.clip(0, size - 1), shares


def _shares(x: Array, a: float | None) -> Array:
    if a is None:
        return np.maximum(1 - x, 0)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _linear_integers(x: Array, plan: Sequence[_Axis], coordinates: str, how: str) -> Array:
    """Mix the neighbours of integers in the order and precision of ONNX Runtime, which cuts the fraction off.

    It mixes along two axes, or three of 3 and 5 dimensions, also those that keep their size.
    """
    # ONNX Runtime mixes bytes along the axes 1 and 2 in fixed point.
    last = x.dtype.itemsize == 1 and x.ndim == 4 and [p.axis for p in plan] == [1, 2]
    refuse_unless(
        how == "linear" and not last,
        f"mode {how}{' with channels last' * last} of {x.dtype} is rounded in another way by every runtime; cast to "
        "float before and back after",
    )
    resized = {p.axis: p for p in plan}
    count = 3 if x.ndim in (3, 5) else min(x.ndim, 2)
    first = min(min(resized), x.ndim - count)
    neighbours = []
    for a in range(first, max(max(resized) + 1, first + count)):
        p = resized.get(a, _Axis(a, x.shape[a], x.shape[a], 1.0, (0.0, 1.0)))
        at = p.positions(coordinates if a in resized else "asymmetric").clip(0, p.size - 1)
        low = np.floor(at)
        high = np.minimum(low + 1, p.size - 1)
        alone = low == high
        neighbours.append(
            [
                (a, places.astype(np.int64), p.along(np.where(alone, np.float32(0.5), share), x.ndim))
                for places, share in ((low, high - at), (high, at - low))
            ]
        )
    y: Array | None = None
    for corner in product(*neighbours):
        part = x.astype(np.float32)
        for a, places, _ in corner:
            part = np.take(part, places, a)
        part = reduce(np.multiply, [share for _, _, share in reversed(corner)]) * part
        y = part if y is None else y + part
    assert y is not None
    return y


# Older versions


def _old_shape(x: Array, scales: Known, *, mode: str = "nearest") -> tuple[int, ...]:
    return _resized_shape(x, None, scales)


@operator("Resize", since=10, shape=_old_shape)
@operator("Upsample", since=9, shape=_old_shape)
def resize_10(x: Array, scales: Known, *, mode: str = "nearest") -> Array:
    """Resize axes from their first element on."""
    return resize(
        x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="simple"
    )


def _scales(*values: float) -> Array:
    return np.array(values, np.float32)


@operator("Upsample", since=7)
def upsample_7(x: Array, *, scales: Sequence[float], mode: str = "nearest") -> Array:
    """Resize axes from their first element on."""
    return resize_10(x, _scales(*scales), mode=mode)


@operator("Upsample")
def upsample_1(x: Array, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Array:
    """Resize images from their first pixel on."""
    return resize_10(x, _scales(1, 1, height_scale, width_scale), mode=mode)

"""Correlation of two feature maps over a neighbourhood of displacements (FlowNet's layer)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, round_bfloat16
from ...graph.params import Correlation, FormatV0
from ..numeric.special import round_half
from ..registry import FLOATS, Call, Shape, ShapeCall, alike, kernel

_LIMIT = 1 << 15
_KERNEL = 1 << 10
"""Largest kernel; more is a damaged file, not a model."""


@dataclass(frozen=True)
class CorrelationPlan:
    """Sizes of a correlation: the output's, the kernel's radius, and how many displacements to each side."""

    height: int
    width: int
    radius: int
    grid: int

    @property
    def channels(self) -> int:
        """Displacements, each of which gives a channel."""
        return (2 * self.grid + 1) ** 2


def correlation_plan(p: Correlation, a: Shape, b: Shape) -> CorrelationPlan:
    """Compute the sizes for two feature maps.

    Raises:
        ValueError: shapes or parameters that do not fit.

    >>> correlation_plan(Correlation(max_displacement=2, pad_size=2), (1, 3, 8, 8), (1, 3, 8, 8)).channels
    25
    """
    if p.format != FormatV0.NCHW:
        raise ValueError(f"correlation takes format NCHW only, found {FormatV0(p.format).name}")
    if len(a) != 4 or a != b:
        raise ValueError(f"correlation takes two equal shapes [N, C, H, W], found {list(a)} and {list(b)}")
    if 0 in a:
        raise ValueError(f"correlation takes no empty data, found {list(a)}")
    if min(p.kernel_size, p.stride1, p.stride2) < 1:
        raise ValueError(f"kernel {p.kernel_size} and strides {p.stride1} and {p.stride2} must be at least 1")
    if p.kernel_size > _KERNEL or max(p.stride1, p.stride2, p.pad_size, p.max_displacement) > _LIMIT:
        raise ValueError(
            f"kernel {p.kernel_size}, strides {p.stride1} and {p.stride2}, padding {p.pad_size} or "
            f"displacement {p.max_displacement} is far out of range"
        )
    radius = (p.kernel_size - 1) // 2
    border = 2 * (p.max_displacement + radius)
    room = [n + 2 * p.pad_size - border for n in a[2:]]
    if min(room) < 1:
        raise ValueError(
            f"{a[2]}x{a[3]} with padding {p.pad_size} has no room for displacement {p.max_displacement} "
            f"and kernel {p.kernel_size}"
        )
    height, width = (math.ceil(np.float32(n) / np.float32(p.stride1)) for n in room)
    return CorrelationPlan(height, width, radius, p.max_displacement // p.stride2)


def _shape(s: ShapeCall) -> Sequence[Shape | None]:
    a = s.shape(0)
    plan = correlation_plan(s.get(Correlation), a, s.shape(1))
    return ((a[0], plan.channels, plan.height, plan.width),)


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    p = opr.get(Correlation)
    n, c, h, w = outputs[0]
    return 2 * n * c * h * w * inputs[0][1] * p.kernel_size**2


def _take(x: Array, at: Array, axis: int) -> Array:
    """Take rows or columns of [N, H, W, C], zero where the position is outside."""
    size = x.shape[axis]
    inside = (at >= 0) & (at < size)
    taken = x.take(np.clip(at, 0, size - 1), axis)
    if not inside.all():
        taken[(slice(None),) * axis + (~inside,)] = 0
    return taken


def _box(values: Array, out: int, stride: int, radius: int, where: Array, axis: int) -> Array:
    """Sum over 2 * radius + 1 neighbours; `where` tells which position each entry of `values` has."""
    centre = np.arange(out) * stride
    total = values.take(np.searchsorted(where, centre), axis)
    for k in range(1, 2 * radius + 1):
        total += values.take(np.searchsorted(where, centre + k), axis)
    return total


@kernel("CorrelationForward", dtype=alike(*FLOATS), shape=_shape, flops=_flops)
def correlation(c: Call, a: Array, b: Array) -> Array:
    """Average over channels and kernel of a * b, or of the absolute difference, for every displacement.

    Output [N, D * D, OH, OW] with D = 2 * (max_displacement // stride2) + 1, the vertical displacement
    outermost. Semantics of MegEngine's dnn naive Correlation; sums are float32.
    """
    p = c.get(Correlation)
    plan = correlation_plan(p, a.shape, b.shape)
    n, channels = a.shape[:2]
    # Positions of all kernel taps, each once; the first tap of output 0 is the origin.
    taps = np.arange(2 * plan.radius + 1)
    ys, xs = (np.unique(np.arange(size)[:, None] * p.stride1 + taps) for size in (plan.height, plan.width))
    origin = p.max_displacement - p.pad_size
    first, second = (np.ascontiguousarray(v.transpose(0, 2, 3, 1), np.float32) for v in (a, b))
    left = _take(_take(first, ys + origin, 1), xs + origin, 2)
    out = np.empty((n, plan.channels, plan.height, plan.width), np.float32)
    moves = np.arange(-plan.grid, plan.grid + 1) * p.stride2
    divisor = np.float32((2 * plan.radius + 1) ** 2 * channels)
    at = 0
    for dy in moves:
        rows = _take(second, ys + origin + dy, 1)
        for dx in moves:
            right = _take(rows, xs + origin + dx, 2)
            if p.is_multiply:
                points = np.einsum("nhwc,nhwc->nhw", left, right)
            else:
                points = np.abs(left - right).sum(axis=3)
            points = _box(points, plan.height, p.stride1, plan.radius, ys, 1)
            points = _box(points, plan.width, p.stride1, plan.radius, xs, 2)
            np.divide(points, divisor, out=out[:, at])
            at += 1
    if c.inputs[0].name == "Float16":
        return round_half(out)
    return round_bfloat16(out) if c.inputs[0].name == "BFloat16" else out

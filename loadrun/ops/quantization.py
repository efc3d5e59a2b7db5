"""FakeQuant, TQT and LSQ: quantize and dequantize float32 values in one step.

Semantics are those of MegEngine's naive kernels: true division, rounding half away from zero; LSQ clamps before it
rounds, the others after.
"""

from collections.abc import Sequence

import numpy as np

from ..graph.dtypes import Array
from ..graph.params import LSQ, TQT, FakeQuant
from .numeric.quant import round_away
from .registry import Call, Shape, ShapeCall, alike, kernel, per_output

_F = np.float32


def _shape(s: ShapeCall) -> Sequence[Shape | None]:
    x = s.shape(0)
    for other in s.shapes[1:]:
        if other is not None:
            _check(x, other)
    return (x,)


def _check(x: Shape, other: Shape) -> None:
    tail = x[len(x) - len(other) :]
    if len(other) > len(x) or any(n not in (1, m) for n, m in zip(other, tail, strict=True)):
        raise ValueError(f"a parameter of shape {list(other)} does not broadcast to the input's {list(x)}")


def _clamp(x: Array, low: int, high: int) -> None:
    """Clamp in place; NaN stays, as the comparisons of the C code leave it."""
    np.maximum(x, _F(low), out=x)
    np.minimum(x, _F(high), out=x)


@kernel("FakeQuant", dtype=alike("Float32"), shape=_shape, flops=per_output(5))
def fake_quant(c: Call, x: Array, scale: Array, zero_point: Array) -> Array:
    """Compute ``(clamp(round(x / scale) + zero_point, qmin, qmax) - zero_point) * scale``."""
    _check(x.shape, scale.shape)
    _check(x.shape, zero_point.shape)
    p = c.get(FakeQuant)
    q = np.asarray(x / scale)
    round_away(q, out=q)
    q += zero_point
    _clamp(q, p.qmin, p.qmax)
    q -= zero_point
    q *= scale
    return q


@kernel("TQT", dtype=alike("Float32"), shape=_shape, flops=per_output(5))
def tqt(c: Call, x: Array, scale: Array) -> Array:
    """Fake-quantize with step ``2 ** scale`` and zero point 0."""
    _check(x.shape, scale.shape)
    p = c.get(TQT)
    step = np.exp2(scale.astype(np.float64)).astype(np.float32)
    q = np.asarray(x / step)
    round_away(q, out=q)
    _clamp(q, p.qmin, p.qmax)
    q *= step
    return q


@kernel("LSQ", dtype=alike("Float32"), shape=_shape, flops=per_output(5))
def lsq(c: Call, x: Array, scale: Array, zero_point: Array, grad_scale: Array) -> Array:
    """Compute ``(round(clamp(x / scale + zero_point, qmin, qmax)) - zero_point) * scale``."""
    for other in (scale, zero_point, grad_scale):
        _check(x.shape, other.shape)
    p = c.get(LSQ)
    q = np.asarray(x / scale)
    q += zero_point
    _clamp(q, p.qmin, p.qmax)
    round_away(q, out=q)
    q -= zero_point
    q *= scale
    return q

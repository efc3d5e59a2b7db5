"""Quantized numbers with ONNX's integer semantics: halves round to even, sums saturate."""

from __future__ import annotations

from ...build import emit as e
from ...graph import params as P
from ...tensors import Tensor
from ...tensors.access import dtype_of, static_shape
from ..call import CONTRIB, NodeCall, front, lower
from ..values import BF16, DOUBLE, FLOAT, HALF, INT8, INT16, UINT8, UINT16, Value, graph_type
from . import M, cast, const_like, folded, limits
from .convolution import exact_convolution
from .linalg import exact_product
from .reductions import extreme
from .small_floats import is_small_float, rounded_for

__all__ = ["dequantized", "dynamic", "factor_of", "quantized", "requantized", "saturated", "single"]

_FLOAT8, _BITS4 = 17, (21, 22)
_WHOLE = 1.5 * 2.0**23
"""In its neighbourhood the numbers of float32 are whole: a sum with it rounds to even."""
_FLOATS = (FLOAT, HALF, DOUBLE, BF16)
_EQ = P.ElemwiseMultiTypeMode.EQ


def _spread(v: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Reshape a scale or zero point to broadcast with `x`."""
    if v.ndim == 0 or (v.ndim == 1 and static_shape(v) == (1,)):
        return e.reshape(v, ())
    if v.ndim == 1 and not (block and x.ndim == 1):
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        return folded(lambda t: e.reshape(t, shape), v)
    size = static_shape(x)[axis]
    each = block or -(-size // static_shape(v)[axis])

    def repeat(t: Tensor) -> Tensor:
        wide = e.add_axes(t, [axis + 1])
        shape = [*t.shape[: axis + 1], each, *t.shape[axis + 1 :]]
        whole = e.reshape(
            e.broadcast(wide, shape), [*t.shape[:axis], each * t.shape[axis], *t.shape[axis + 1 :]]
        )
        return e.subtensor(whole, [(axis, None, size, None, None)])

    return folded(repeat, v)


def _axis(c: NodeCall, x: Tensor) -> int:
    return front(c.number("axis", 1), x.ndim) if x.ndim > 1 else 0


def quantized(x: Tensor, scale: Tensor, zero: Tensor | None, to: int) -> Tensor:
    """Compute round(x / scale) + zero point, saturated; of a float32 `x`."""
    return saturated(e.elem(M.TRUE_DIV, x, scale), zero, to)


def saturated(x: Tensor, zero: Tensor | None, to: int) -> Tensor:
    """Round float32 numbers, halves to even, and add a zero point, within the range of an integer type."""
    low, high = limits(to)
    offset = const_like(0.0, x) if zero is None else cast(zero, "float32")

    def minus_offset(number: float) -> Tensor:
        return folded(lambda z: e.elem(M.SUB, const_like(number, z), z), offset)

    # MegEngine adds what is added to a sum before to one of its terms, which rounds otherwise: MAX stands between them.
    above = e.elem(M.ADD, e.elem(M.MAX, x, minus_offset(low)), const_like(_WHOLE, x))
    inside = e.elem(M.MIN, above, minus_offset(high + _WHOLE))
    return cast(e.elem(M.SUB, inside, minus_offset(_WHOLE)), graph_type(to))


def dequantized(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Compute (x - zero point) * scale in float32."""
    if dtype_of(x).is_float:
        return e.elem(M.MUL, x, cast(scale, "float32"))
    wide = cast(x, "int32")
    if zero is not None:
        wide = e.elem(M.SUB, wide, cast(zero, "int32"))
    return e.elem(M.MUL, cast(wide, "float32"), cast(scale, "float32"))


@lower("QuantizeLinear")
@lower("QuantizeLinear", domain=CONTRIB)
def _quantize(c: NodeCall) -> Value:
    x = c.t(0)
    kind = c.kind(2) if c.has(2) else c.number("output_dtype") or UINT8
    graph_type(kind)
    axis, block = _axis(c, x), c.number("block_size")
    scale = _spread(cast(c.t(1), "float32"), x, axis, block)
    zero = None if not c.has(2) else _spread(c.t(2), x, axis, block)
    precision = _precision(c, kind)
    quotient = _rounded(e.elem(M.TRUE_DIV, _rounded(x, precision), _rounded(scale, precision)), precision)
    if is_small_float(kind):
        return Value(kind, rounded_for(c, quotient, kind))
    return Value(kind, saturated(quotient, zero, kind))


def _precision(c: NodeCall, to: int) -> int:
    """Return the type in which an input is divided by its scale.

    That is the scale's; before opset 23, ONNX Runtime's kernels for float16 divide in float32.
    """
    if c.opset < 23 and c.kind(1) == HALF and to in (UINT8, INT8, UINT16, INT16, *_BITS4, _FLOAT8):
        return FLOAT
    return c.number("precision") or c.kind(1)


def _rounded(x: Tensor, kind: int) -> Tensor:
    """Return the numbers of a float type as float32."""
    return cast(x if kind == FLOAT else cast(x, graph_type(kind)), "float32")


@lower("DequantizeLinear")
@lower("DequantizeLinear", domain=CONTRIB)
def _dequantize(c: NodeCall) -> Value:
    x = c.t(0)
    kind = c.number("output_dtype") or c.kind(1)
    axis, block = _axis(c, x), c.number("block_size")
    scale = _spread(c.t(1), x, axis, block)
    zero = None if not c.has(2) else _spread(c.t(2), x, axis, block)
    result = dequantized(x, scale, zero)
    return Value(kind, cast(result, graph_type(kind)))


@lower("DynamicQuantizeLinear")
def _dynamic(c: NodeCall) -> tuple[Value, Value, Value]:
    y, scale, zero = dynamic(c.t(0))
    return Value(UINT8, y), Value(FLOAT, scale), Value(UINT8, zero)


def dynamic(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize to uint8 over the range of a tensor; return scale and zero point too."""
    axes = list(range(x.ndim))
    nothing = const_like(0.0, x)
    high = e.elem(M.MAX, nothing, extreme(x, True, axes))
    low = e.elem(M.MIN, nothing, extreme(x, False, axes))
    scale = e.elem(M.TRUE_DIV, e.elem(M.SUB, high, low), const_like(255.0, x))
    # Of nothing but zeros it is 1.
    scale = e.where(e.compare(_EQ, high, low), const_like(1.0, scale), scale)
    start = e.elem(M.NEGATE, e.elem(M.TRUE_DIV, low, scale))
    zero = saturated(start, None, UINT8)
    return quantized(x, scale, zero, UINT8), scale, zero


def requantized(total: Tensor, factor: Tensor, zero: Tensor | None, to: int) -> Tensor:
    """Multiply int32 sums by a float32 factor, round and saturate."""
    return saturated(e.elem(M.MUL, cast(total, "float32"), factor), zero, to)


def factor_of(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """Compute the factor that requantizes sums of quantized products: a * b / y."""

    def ratio(p: Tensor, q: Tensor, r: Tensor) -> Tensor:
        p, q, r = (cast(v, "float32") for v in (p, q, r))
        return e.elem(M.TRUE_DIV, e.elem(M.MUL, p, q), r)

    return folded(ratio, *(single(v) for v in (a, b, y)))


def single(v: Tensor) -> Tensor:
    """Drop the axes of a one-element scale."""
    return folded(lambda t: e.reshape(t, ()), v) if static_shape(v) == (1,) else v


@lower("QLinearMatMul")
def _qlinear_matmul(c: NodeCall) -> Value:
    total = exact_product(c.t(0), c.t(3), single(c.t(2)), single(c.t(5)))
    a, b, y = (single(c.t(i)) for i in (1, 4, 6))
    if a.ndim == 1:
        a = e.add_axes(a, [1])
    kind = c.kind(7)
    return Value(kind, requantized(total, factor_of(a, b, y), single(c.t(7)), kind))


@lower("QLinearConv")
def _qlinear_conv(c: NodeCall) -> Value:
    x, w = c.t(0), c.t(3)
    total = exact_convolution(c, x, w, single(c.t(2)), single(c.t(5)))
    shape = (1, -1, *[1] * (x.ndim - 2))
    if c.has(8):
        total = e.elem(M.ADD, total, folded(lambda v: e.reshape(v, shape), c.t(8)))
    scale = single(c.t(4))
    if scale.ndim:
        scale = folded(lambda v: e.reshape(v, shape), scale)
    kind = c.kind(7)
    return Value(kind, requantized(total, factor_of(c.t(1), scale, c.t(6)), single(c.t(7)), kind))

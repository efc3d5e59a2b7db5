"""Quantized numbers with ONNX's integer semantics: halves round to even, sums saturate."""

from __future__ import annotations

from collections.abc import Callable

from ... import params as P
from ...imperative import Tensor
from ...imperative import emit as e
from ...lowering.arithmetic import rint
from ..call import CONTRIB, Call, front, lower
from ..values import BF16, DOUBLE, FLOAT, HALF, UINT8, Refused, Value, graph_type
from .convolution import exact_convolution
from .linalg import exact_product
from .parts import M, cast, const_like, folded, limits
from .pooling import averaged, pooling_window
from .reductions import extreme, mean
from .shapes import joined

__all__ = ["dequantized", "quantized", "requantized"]

_FLOATS = (FLOAT, HALF, DOUBLE, BF16)
_EQ = P.ElemwiseMultiTypeMode.EQ


def _spread(v: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point in a shape that broadcasts with `x`."""
    if v.ndim == 0 or (v.ndim == 1 and v._tuple_shape == (1,)):
        return e.reshape(v, ())
    if v.ndim == 1:
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        return folded(lambda t: e.reshape(t, shape), v)
    size = x._tuple_shape[axis]
    each = block or -(-size // v._tuple_shape[axis])

    def repeat(t: Tensor) -> Tensor:
        wide = e.add_axes(t, [axis + 1])
        shape = [*t.shape[: axis + 1], each, *t.shape[axis + 1 :]]
        whole = e.reshape(
            e.broadcast(wide, shape), [*t.shape[:axis], each * t.shape[axis], *t.shape[axis + 1 :]]
        )
        return e.subtensor(whole, [(axis, None, size, None, None)])

    return folded(repeat, v)


def _axis(c: Call, x: Tensor) -> int:
    return front(c.int("axis", 1), x.ndim) if x.ndim > 1 else 0


def quantized(x: Tensor, scale: Tensor, zero: Tensor | None, to: int) -> Tensor:
    """round(x / scale) + zero point, saturated; of a float32 `x`."""
    whole = rint(e.elem(M.TRUE_DIV, x, scale))
    return saturated(whole, zero, to)


def saturated(whole: Tensor, zero: Tensor | None, to: int) -> Tensor:
    """Whole float32 numbers plus a zero point, within the range of an integer type."""
    if zero is not None:
        whole = e.elem(M.ADD, whole, cast(zero, "float32"))
    low, high = limits(to)
    bounded = e.elem(M.MIN, const_like(high, whole), e.elem(M.MAX, const_like(low, whole), whole))
    return cast(cast(bounded, "int32"), graph_type(to))


def dequantized(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """(x - zero point) * scale in float32."""
    wide = cast(x, "int32")
    if zero is not None:
        wide = e.elem(M.SUB, wide, cast(zero, "int32"))
    return e.elem(M.MUL, cast(wide, "float32"), cast(scale, "float32"))


@lower("QuantizeLinear")
@lower("QuantizeLinear", domain=CONTRIB)
def _quantize(c: Call) -> Value:
    x = c.t(0)
    kind = c.kind(2) if c.has(2) else c.int("output_dtype") or UINT8
    graph_type(kind)
    axis, block = _axis(c, x), c.int("block_size")
    scale = _spread(cast(c.t(1), "float32"), x, axis, block)
    zero = None if not c.has(2) else _spread(c.t(2), x, axis, block)
    return Value(kind, quantized(cast(x, "float32"), scale, zero, kind))


@lower("DequantizeLinear")
@lower("DequantizeLinear", domain=CONTRIB)
def _dequantize(c: Call) -> Value:
    x = c.t(0)
    kind = c.int("output_dtype") or c.kind(1)
    axis, block = _axis(c, x), c.int("block_size")
    scale = _spread(c.t(1), x, axis, block)
    zero = None if not c.has(2) else _spread(c.t(2), x, axis, block)
    found = dequantized(x, scale, zero)
    return Value(kind, cast(found, graph_type(kind)))


@lower("DynamicQuantizeLinear")
def _dynamic(c: Call) -> tuple[Value, Value, Value]:
    y, scale, zero = dynamic(c.t(0))
    return Value(UINT8, y), Value(FLOAT, scale), Value(UINT8, zero)


def dynamic(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """uint8 numbers over the range that a tensor has, with scale and zero point."""
    axes = list(range(x.ndim))
    nothing = const_like(0.0, x)
    high = e.elem(M.MAX, nothing, extreme(x, True, axes))
    low = e.elem(M.MIN, nothing, extreme(x, False, axes))
    scale = e.elem(M.TRUE_DIV, e.elem(M.SUB, high, low), const_like(255.0, x))
    flat = e.compare(_EQ, scale, nothing)
    safe = e.where(flat, const_like(1.0, scale), scale)
    start = e.elem(M.NEGATE, e.elem(M.TRUE_DIV, low, safe))
    zero = saturated(rint(start), None, UINT8)
    return quantized(x, safe, zero, UINT8), scale, zero


def requantized(total: Tensor, factor: Tensor, zero: Tensor | None, to: int) -> Tensor:
    """int32 sums times a float32 factor, rounded and saturated."""
    return saturated(rint(e.elem(M.MUL, cast(total, "float32"), factor)), zero, to)


def _factor(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    def ratio(p: Tensor, q: Tensor, r: Tensor) -> Tensor:
        p, q, r = (cast(v, "float32") for v in (p, q, r))
        return e.elem(M.TRUE_DIV, e.elem(M.MUL, p, q), r)

    return folded(ratio, *(_single(v) for v in (a, b, y)))


def _single(v: Tensor) -> Tensor:
    """A scale of one element without axes."""
    return folded(lambda t: e.reshape(t, ()), v) if v._tuple_shape == (1,) else v


@lower("QLinearMatMul")
def _qlinear_matmul(c: Call) -> Value:
    total = exact_product(c.t(0), c.t(3), _single(c.t(2)), _single(c.t(5)))
    a, b, y = (_single(c.t(i)) for i in (1, 4, 6))
    if a.ndim == 1:
        a = e.add_axes(a, [1])
    kind = c.kind(7)
    return Value(kind, requantized(total, _factor(a, b, y), _single(c.t(7)), kind))


@lower("QLinearConv")
def _qlinear_conv(c: Call) -> Value:
    x, w = c.t(0), c.t(3)
    total = exact_convolution(c, x, w, _single(c.t(2)), _single(c.t(5)))
    shape = (1, -1, *[1] * (x.ndim - 2))
    if c.has(8):
        total = e.elem(M.ADD, total, folded(lambda v: e.reshape(v, shape), c.t(8)))
    scale = _single(c.t(4))
    if scale.ndim:
        scale = folded(lambda v: e.reshape(v, shape), scale)
    kind = c.kind(7)
    return Value(kind, requantized(total, _factor(c.t(1), scale, c.t(6)), _single(c.t(7)), kind))


# com.microsoft


@lower("MatMulIntegerToFloat", domain=CONTRIB)
def _matmul_to_float(c: Call) -> Value:
    total = exact_product(c.t(0), c.t(1), _zero(c, 4), _zero(c, 5))
    found = e.elem(
        M.MUL, cast(total, "float32"), e.elem(M.MUL, _single(c.t(2)), _single(c.t(3)))
    )
    return Value(FLOAT, e.elem(M.ADD, found, c.t(6)) if c.has(6) else found)


def _zero(c: Call, i: int) -> Tensor | None:
    found = c.maybe(i)
    return None if found is None else _single(found)


@lower("DynamicQuantizeMatMul", domain=CONTRIB)
def _dynamic_matmul(c: Call) -> Tensor:
    y, scale, zero = dynamic(c.t(0))
    total = exact_product(y, c.t(1), zero, _zero(c, 3))
    found = e.elem(M.MUL, cast(total, "float32"), e.elem(M.MUL, scale, _single(c.t(2))))
    return e.elem(M.ADD, found, c.t(4)) if c.has(4) else found


def _through_float(c: Call, at: int, compute: Callable[[Tensor], Tensor]) -> Value:
    """A function of one quantized tensor, whose own scale and zero point follow it, and the result's from `at` on."""
    x = dequantized(c.t(0), _single(c.t(1)), _zero(c, 2))
    kind = c.kind(0)
    return Value(kind, quantized(compute(x), _single(c.t(at)), _zero(c, at + 1), kind))


@lower("QLinearSigmoid", domain=CONTRIB)
def _qlinear_sigmoid(c: Call) -> Value:
    return _through_float(c, 3, lambda x: e.elem(M.SIGMOID, x))


@lower("QLinearLeakyRelu", domain=CONTRIB)
def _qlinear_leaky(c: Call) -> Value:
    alpha = c.float("alpha", 0.01)
    return _through_float(c, 3, lambda x: e.elem(M.PRELU, x, const_like(alpha, x)))


@lower("QLinearSoftmax", domain=CONTRIB)
def _qlinear_softmax(c: Call) -> Value:
    from .reductions import softmax

    return _through_float(c, 3, lambda x: softmax(x, c.axis("axis", -1, x.ndim)))


@lower("QLinearGlobalAveragePool", domain=CONTRIB)
def _qlinear_global(c: Call) -> Value:
    if c.int("channels_last"):
        return _through_float(c, 3, lambda x: mean(x, list(range(1, x.ndim - 1))))
    return _through_float(c, 3, lambda x: mean(x, list(range(2, x.ndim))))


@lower("QLinearAveragePool", domain=CONTRIB)
def _qlinear_average(c: Call) -> Value:
    if c.int("channels_last"):
        raise Refused("its channels are last")

    def pool(x: Tensor) -> Tensor:
        window, beyond = pooling_window(c, x)
        return averaged(x, window, beyond, include=bool(c.int("count_include_pad")))

    return _through_float(c, 3, pool)


def _qlinear_pair(c: Call, mode: P.ElemwiseMode) -> Value:
    a = dequantized(c.t(0), _single(c.t(1)), _zero(c, 2))
    b = dequantized(c.t(3), _single(c.t(4)), _zero(c, 5))
    kind = c.kind(0)
    return Value(kind, quantized(e.elem(mode, a, b), _single(c.t(6)), _zero(c, 7), kind))


@lower("QLinearAdd", domain=CONTRIB)
def _qlinear_add(c: Call) -> Value:
    return _qlinear_pair(c, M.ADD)


@lower("QLinearMul", domain=CONTRIB)
def _qlinear_mul(c: Call) -> Value:
    return _qlinear_pair(c, M.MUL)


@lower("QLinearConcat", domain=CONTRIB)
def _qlinear_concat(c: Call) -> Value:
    kind = c.kind(2)
    parts = []
    for i in range(2, len(c.inputs), 3):
        parts.append(dequantized(c.t(i), _single(c.t(i + 1)), _zero(c, i + 2)))
    whole = joined(parts, front(c.int("axis"), parts[0].ndim))
    return Value(kind, quantized(whole, _single(c.t(0)), _zero(c, 1), kind))


@lower("MatMulNBits", domain=CONTRIB)
def _matmul_nbits(c: Call) -> Tensor:
    """A product with a weight of 4 or 8-bit numbers, each block of a row with its own scale."""
    from .linalg import matmul
    from .nbits import weight_of

    w = weight_of(c)
    x = c.t(0)
    found = matmul(x, cast(w, x._dtype))
    return e.elem(M.ADD, found, c.t(5)) if c.has(5) else found

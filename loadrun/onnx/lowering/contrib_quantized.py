"""com.microsoft's operators on quantized numbers, as ONNX Runtime's quantizer and optimizer write them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...arrays.reductions import element_count
from ...build import emit as e
from ...build.emit import kept, summed
from ...build.layers.activation import softmax
from ...build.layers.pooling import averaged, counted, summed_in_order
from ...build.layers.sizes import joined
from ...graph import params as P
from ...tensors import Tensor, const
from ...tensors.access import dtype_of
from ..call import CONTRIB, NodeCall, Result, find, front, lower
from ..values import FLOAT, INT32, UINT8, UnsupportedNodeError, Value
from . import M, cast, const_like, folded, transposed
from .convolution import from_last, to_last
from .linalg import exact_product, matmul, minus_zero
from .nbits import gathered_table, weight_of
from .pooling import pooling_window
from .quantization import dequantized, dynamic, factor_of, quantized, requantized, saturated, single
from .shapes import flat_to_2d
from .transformers import embedded, self_attended

__all__: list[str] = []

_LT = P.ElemwiseMultiTypeMode.LT
_MOST_IN_ORDER = 64
"""The elements of a window from which on its sum is one operator instead of a chain."""


@lower("MatMulIntegerToFloat", domain=CONTRIB)
def _matmul_to_float(c: NodeCall) -> Value:
    total = exact_product(c.t(0), c.t(1), _zero(c, 4), _zero(c, 5))
    result = e.elem(M.MUL, cast(total, "float32"), e.elem(M.MUL, single(c.t(2)), single(c.t(3))))
    return Value(FLOAT, e.elem(M.ADD, result, c.t(6)) if c.has(6) else result)


def _zero(c: NodeCall, i: int) -> Tensor | None:
    result = c.maybe(i)
    return None if result is None else single(result)


@lower("DynamicQuantizeMatMul", domain=CONTRIB)
def _dynamic_matmul(c: NodeCall) -> Tensor:
    y, scale, zero = dynamic(c.t(0))
    total = exact_product(y, c.t(1), zero, _zero(c, 3))
    result = e.elem(M.MUL, cast(total, "float32"), e.elem(M.MUL, scale, single(c.t(2))))
    return e.elem(M.ADD, result, c.t(4)) if c.has(4) else result


def _through_float(c: NodeCall, at: int, compute: Callable[[Tensor], Tensor]) -> Value:
    """Compute a function of one quantized tensor in float; the result's scale and zero point start at input `at`."""
    x = dequantized(c.t(0), single(c.t(1)), _zero(c, 2))
    kind = c.kind(0)
    return Value(kind, quantized(compute(x), single(c.t(at)), _zero(c, at + 1), kind))


@lower("QLinearSigmoid", domain=CONTRIB)
def _qlinear_sigmoid(c: NodeCall) -> Value:
    return _through_float(c, 3, lambda x: e.elem(M.SIGMOID, x))


@lower("QLinearLeakyRelu", domain=CONTRIB)
def _qlinear_leaky(c: NodeCall) -> Value:
    alpha = c.real("alpha", 0.01)
    return _through_float(c, 3, lambda x: e.elem(M.PRELU, x, const_like(alpha, x)))


@lower("QLinearSoftmax", domain=CONTRIB)
def _qlinear_softmax(c: NodeCall) -> Value:
    """Compute softmax in float; ONNX Runtime multiplies by the whole part of the inverse scale."""
    x, kind = dequantized(c.t(0), single(c.t(1)), _zero(c, 2)), c.kind(0)
    axis = c.axis("axis", -1, x.ndim)
    if c.number("opset", 13) >= 13:
        y = softmax(x, axis)
    else:
        y = e.reshape(softmax(flat_to_2d(x, axis), 1), x.shape)
    steps = folded(lambda v: e.elem(M.FLOOR, e.elem(M.TRUE_DIV, const_like(1.0, v), v)), single(c.t(3)))
    return Value(kind, saturated(e.elem(M.MUL, y, steps), _zero(c, 4), kind))


@lower("QLinearGlobalAveragePool", domain=CONTRIB)
def _qlinear_global(c: NodeCall) -> Value:
    x, kind = c.t(0), c.kind(0)
    axes = list(range(1, x.ndim - 1) if c.flag("channels_last") else range(2, x.ndim))
    total = kept(summed(cast(minus_zero(x, _zero(c, 2)), "int32"), axes), axes, True)
    # In this order ONNX Runtime computes the factor.
    below = e.elem(M.MUL, single(c.t(3)), e.like(element_count(x, axes), single(c.t(3))))
    factor = e.elem(M.TRUE_DIV, single(c.t(1)), below)
    return Value(kind, requantized(total, factor, _zero(c, 4), kind))


@lower("QLinearAveragePool", domain=CONTRIB)
def _qlinear_average(c: NodeCall) -> Value:
    last, kind = c.flag("channels_last"), c.kind(0)
    x = dequantized(c.t(0), single(c.t(1)), _zero(c, 2))
    x = from_last(x) if last else x
    window = pooling_window(c, x)
    size = math.prod(window.kernel)
    # What `ceil_mode` adds beyond the pads counts, too, unlike in AveragePool.
    divisor = size if c.flag("count_include_pad") else None
    if size <= _MOST_IN_ORDER:
        # Ties come out as in ONNX Runtime only if the float32 numbers are summed in its order.
        total = summed_in_order(x, window)
        count = counted(x, window, include=False) if divisor is None else e.number(divisor, total)
        y = e.elem(M.TRUE_DIV, total, count)
    else:
        y = averaged(x, window, include=False, divisor=divisor)
    y = e.elem(M.TRUE_DIV, to_last(y) if last else y, single(c.t(3)))
    if c.has(4):
        # Here, the zero point is added before the sum is rounded.
        y = e.elem(M.ADD, y, cast(single(c.t(4)), "float32"))
    return Value(kind, saturated(y, None, kind))


def _ratio(c: NodeCall, *over: int, under: int) -> Tensor:
    """Compute a product of scales over another one, in float32."""

    def ratio(bottom: Tensor, *tops: Tensor) -> Tensor:
        top = tops[0]
        for t in tops[1:]:
            top = e.elem(M.MUL, top, t)
        return e.elem(M.TRUE_DIV, top, bottom)

    return folded(ratio, single(c.t(under)), *(single(c.t(i)) for i in over))


def _float_zero(c: NodeCall, i: int) -> Tensor:
    """Return a zero point as float32, 0 if left out."""
    return cast(single(c.t(i)), "float32") if c.has(i) else const(np.float32(0))


@lower("QLinearAdd", domain=CONTRIB)
def _qlinear_add(c: NodeCall) -> Value:
    """Compute a * ra + b * rb with ratios of scales; zero points fold into one, as in ONNX Runtime's kernel."""
    one, other = _ratio(c, 1, under=6), _ratio(c, 4, under=6)

    def fixed(p: Tensor, q: Tensor, a: Tensor, b: Tensor, z: Tensor) -> Tensor:
        return e.elem(M.SUB, z, e.elem(M.ADD, e.elem(M.MUL, p, a), e.elem(M.MUL, q, b)))

    start = folded(fixed, one, other, _float_zero(c, 2), _float_zero(c, 5), _float_zero(c, 7))
    total = e.elem(M.ADD, start, e.elem(M.MUL, one, cast(c.t(0), "float32")))
    total = e.elem(M.ADD, total, e.elem(M.MUL, other, cast(c.t(3), "float32")))
    return Value(c.kind(0), saturated(total, None, c.kind(0)))


@lower("QLinearMul", domain=CONTRIB)
def _qlinear_mul(c: NodeCall) -> Value:
    a, b = (e.elem(M.SUB, cast(c.t(i), "float32"), _float_zero(c, z)) for i, z in ((0, 2), (3, 5)))
    result = e.elem(M.MUL, e.elem(M.MUL, a, b), _ratio(c, 1, 4, under=6))
    return Value(c.kind(0), saturated(e.elem(M.ADD, result, _float_zero(c, 7)), None, c.kind(0)))


@lower("QLinearConcat", domain=CONTRIB)
def _qlinear_concat(c: NodeCall) -> Value:
    kind = c.kind(2)
    parts = []
    for i in range(2, len(c.inputs), 3):
        parts.append(dequantized(c.t(i), single(c.t(i + 1)), _zero(c, i + 2)))
    whole = joined(parts, front(c.number("axis"), parts[0].ndim))
    return Value(kind, quantized(whole, single(c.t(0)), _zero(c, 1), kind))


@lower("MatMulNBits", domain=CONTRIB)
def _matmul_nbits(c: NodeCall) -> Tensor:
    """Multiply by a weight of 2, 4 or 8-bit numbers, each block of a row with its own scale, in float32."""
    if c.number("accuracy_level") == 4:
        c.importer.note("MatMulNBits is exact; with accuracy_level 4 ONNX Runtime rounds its input to 8 bits")
    x, w = c.t(0), weight_of(c)
    result = matmul(cast(x, "float32"), w)
    if c.has(5):
        result = e.elem(M.ADD, result, cast(c.t(5), "float32"))
    return cast(result, dtype_of(x))


@lower("GatherBlockQuantized", domain=CONTRIB)
def _gather_block(c: NodeCall) -> Tensor:
    """Gather rows of a table whose blocks have scales of their own."""
    table, axis = gathered_table(c)
    at = cast(c.t(1), "int32")
    n = table.shape[axis]
    at = e.elem(M.ADD, at, e.elem(M.MUL, cast(e.compare(_LT, at, const_like(0, at)), "int32"), e.like(n, at)))
    result = e.gather(table, [(axis, at)])
    return cast(result, dtype_of(c.t(2)))


@lower("QLinearConv", domain=CONTRIB)
def _qlinear_conv(c: NodeCall) -> Result:
    """Convolve as ONNX's own operator does, also with channels last."""
    run = find("", "QLinearConv")
    assert run is not None
    if not c.flag("channels_last"):
        return run.run(c)
    x = c.value(0)
    c.inputs[0] = Value(x.kind, from_last(x.tensor))
    result = run.run(c)
    assert isinstance(result, Value)
    return Value(result.kind, to_last(result.tensor))


@lower("QLinearWhere", domain=CONTRIB)
def _qlinear_where(c: NodeCall) -> Value:
    kind = c.kind(1)
    one = dequantized(c.t(1), single(c.t(2)), _zero(c, 3))
    other = dequantized(c.t(4), single(c.t(5)), _zero(c, 6))
    return Value(kind, quantized(e.where(c.t(0), one, other), single(c.t(7)), _zero(c, 8), kind))


@lower("QGemm", domain=CONTRIB)
def _qgemm(c: NodeCall) -> Value:
    """Compute (A - a0) @ (B - b0) + C in integers, times alpha and both scales; quantize to the result's, if any."""
    x, w = c.t(0), c.t(3)
    x = transposed(x, (1, 0)) if c.flag("transA") else x
    w = folded(lambda v: transposed(v, (1, 0)), w) if c.flag("transB") else w
    total = exact_product(x, w, _zero(c, 2), _zero(c, 5))
    if c.has(6):
        total = e.elem(M.ADD, total, cast(c.t(6), "int32"))
    one = const(np.float32(1))
    factor = factor_of(c.t(1), c.t(4), c.t(7) if c.has(7) else one)
    factor = folded(lambda v: e.elem(M.MUL, const_like(c.real("alpha", 1.0), v), v), factor)
    if not c.has(7):
        return Value(FLOAT, e.elem(M.MUL, cast(total, "float32"), factor))
    kind = c.kind(8) if c.has(8) else UINT8
    return Value(kind, requantized(total, factor, _zero(c, 8), kind))


@lower("QAttention", domain=CONTRIB)
def _qattention(c: NodeCall) -> tuple[Tensor | None, ...]:
    """Project in integers, then attend in float32."""
    total = exact_product(c.t(0), c.t(1), _zero(c, 6), _zero(c, 7))
    factor = e.elem(M.MUL, single(c.t(3)), single(c.t(4)))
    projected = e.elem(M.ADD, e.elem(M.MUL, cast(total, "float32"), factor), c.t(2))
    return self_attended(c, projected, dtype_of(c.t(3)), mask=5, past=8)


@lower("QEmbedLayerNormalization", domain=CONTRIB, like=8)
def _qembed(c: NodeCall) -> tuple[Tensor | Value | None, ...]:
    tables = [
        None if not c.has(2 + i) else dequantized(c.t(2 + i), single(c.t(8 + i)), _zero(c, 13 + i))
        for i in range(5)
    ]
    words, places, segments, gamma, beta = tables
    if words is None or places is None or gamma is None or beta is None:
        raise UnsupportedNodeError("a table or the scale of its normalization is missing")
    return embedded(c, (words, places, segments), (gamma, beta), positions=99)[:2]


@lower("MulInteger", domain=CONTRIB)
def _mul_integer(c: NodeCall) -> Value:
    a, b = (cast(c.t(i), "int32") for i in (0, 2))
    for k, i in enumerate((1, 3)):
        if c.has(i):
            less = e.elem(M.SUB, (a, b)[k], cast(single(c.t(i)), "int32"))
            a, b = (less, b) if k == 0 else (a, less)
    return Value(INT32, e.elem(M.MUL, a, b))


@lower("MatMulInteger16", domain=CONTRIB)
def _matmul_integer_16(c: NodeCall) -> Value:
    return Value(INT32, matmul(cast(c.t(0), "int32"), cast(c.t(1), "int32")))

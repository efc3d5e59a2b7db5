"""Several operators that are one of ONNX's together, as exporters write them.

A rule is tried before the translation of the last of the operators and looks back at those that its inputs come from;
what they wrote is left out of the model unless something else reads it.
"""

from collections.abc import Iterator

import numpy as np

from ...graph import Opr, Var, params as P
from ...graph.dtypes import Array, DType
from ...graph.params import ElemwiseMode as M
from ...ops.elemwise.table import AFTER_SUM, ROWS
from ...ops.shape import axis_of
from ..tensors import ElemType
from .elemwise_float import compose
from .integers import integer_weights
from .layers import operand
from .reduce import without_axes
from .shape import select
from .windows import CONVOLUTIONS, convolution_with_bias
from .writer import PRODUCTS, OnnxWriter, elem_of, joined

_REACH = 8
"""How many changes of shape in a row are looked at."""
_REAL = ("Float32", "Float64")
_TURN = {M.MAX: M.MIN, M.MIN: M.MAX}
_Multi = P.ElemwiseMultiTypeMode


def constant_sides(w: OnnxWriter, opr: Opr) -> Iterator[tuple[Var, Var, Array]]:
    """Yield an operand of an operator of two inputs and the other one, where that is constant, with its value."""
    for x, other in (opr.inputs, opr.inputs[::-1]):
        value = w.value(other)
        if value is not None and w.value(x) is None:
            yield x, other, value


# Clip


def _limit(w: OnnxWriter, opr: Opr) -> tuple[M, Var, float] | None:
    """Return MAX or MIN of an operator with a constant number: the mode, the operand, the number."""
    mode = opr.get(P.Elemwise).mode if opr.type == "Elemwise" else None
    if mode is M.RELU:
        return M.MAX, opr.inputs[0], 0.0
    if mode in (M.MAX, M.MIN):
        for x, _, value in constant_sides(w, opr):
            if value.size == 1 and value.ndim <= w.rank(x):
                return mode, x, float(value.reshape(-1)[0])
    return None


@joined("MAX", "MIN")
def _clip(w: OnnxWriter, opr: Opr) -> str | None:
    """Write ``min(max(x, low), high)`` as Clip."""
    outer = _limit(w, opr)
    inner = _limit(w, outer[1].owner) if outer is not None else None
    dtype = w.dtype(opr.outputs[0])
    if outer is None or inner is None or inner[0] is not _TURN[outer[0]]:
        return None
    if dtype.name != "Float32" and (dtype.name != "Float64" or w.opset < 11):
        return None
    low, high = sorted((inner[2], outer[2]))
    if (inner[2] if inner[0] is M.MAX else outer[2]) != low:
        return None
    return w.clip(w.name(inner[1]), low, high)


# Where


def _choice(w: OnnxWriter, var: Var) -> tuple[Var | Array, bool, Var] | None:
    """Return what a conditional move moves where: the mask, whether it is to be true, and the values."""
    opr = var.owner
    mode = opr.get(P.Elemwise).mode if opr.type == "Elemwise" else None
    if mode not in (M.COND_LT_MOV, M.COND_LEQ_MOV) or not all(w.dtype(v) == w.dtype(var) for v in opr.inputs):
        return None
    strict = mode is M.COND_LT_MOV
    a, b = (w.value(v) for v in opr.inputs[:2])
    if a is not None and b is not None:
        return (a < b if strict else a <= b), True, opr.inputs[2]
    zero, chosen = (a, opr.inputs[1]) if strict else (b, opr.inputs[0])
    mask = chosen.owner.inputs[0] if chosen.owner.type == "TypeCvtV2" else None
    if mask is None or w.dtype(mask).name != "Bool" or zero is None or zero.size != 1 or zero.any():
        return None
    return mask, strict, opr.inputs[2]


def _select(w: OnnxWriter, mask: Var | Array, yes: str, no: str, dtype: DType) -> str:
    return select(w, w.name(mask) if isinstance(mask, Var) else w.const(mask), yes, no, 0, dtype)


@joined("COND_LT_MOV", "COND_LEQ_MOV")
def _chosen(w: OnnxWriter, opr: Opr) -> str | None:
    """Write a conditional move whose condition is a mask as Where with zeros."""
    choice, dtype = _choice(w, opr.outputs[0]), w.dtype(opr.outputs[0])
    if choice is None:
        return None
    mask, wanted, x = choice
    zero = w.const(np.zeros((), dtype.np))
    return _select(w, mask, *((w.name(x), zero) if wanted else (zero, w.name(x))), dtype)


def _where(w: OnnxWriter, opr: Opr) -> str | None:
    dtype = w.dtype(opr.outputs[0])
    for one, other in (opr.inputs, opr.inputs[::-1]):
        first, second = _choice(w, one), _choice(w, other)
        if first is None:
            continue
        mask, wanted, x = first
        if second is not None and second[0] is mask and wanted and not second[1]:
            return _select(w, mask, w.name(x), w.name(second[2]), dtype)
        rest = w.value(other)
        if rest is None or isinstance(mask, Var) or rest.shape != mask.shape or rest[mask].any():
            continue
        elsewhere = rest[~mask]
        if elsewhere.size and (elsewhere == elsewhere[0]).all():
            return _select(w, mask, w.name(x), w.const(elsewhere[0]), dtype)
    return None


# Integers


def _of(var: Var, mode: M | P.ElemwiseMultiTypeMode) -> list[Var]:
    """Return the operands of the mode that computes a variable; none where another operator does."""
    opr = var.owner
    if opr.type == "Elemwise":
        return opr.inputs if opr.get(P.Elemwise).mode is mode else []
    return opr.inputs if opr.type == "ElemwiseMultiType" and opr.get(P.ElemwiseMultiType).mode is mode else []


def unchanged_operand(w: OnnxWriter, opr: Opr) -> str | None:
    """Return an operand of a sum or a product where the other one is a number that changes nothing."""
    neutral, out = ROWS[opr.get(P.Elemwise).mode].neutral, opr.outputs[0]
    for x, other, value in constant_sides(w, opr) if opr.type == "Elemwise" else ():
        number = value.size == 1 and value.item() == neutral and other.owner.type == "ImmutableTensor"
        if number and w.dtype(x) == w.dtype(out) and _same(w, x, out, 0):
            return w.name(x)
    return None


def _divided(var: Var) -> tuple[Var, Var, Var] | None:
    """Return dividend, divisor and remainder where a variable is 1 if a quotient is to be rounded up toward zero."""
    signs = _of(var.owner.inputs[0], M.AND) if var.owner.type == "TypeCvtV2" else []
    rest = _of(signs[0], _Multi.NEQ)[:1] if signs else []
    turned = _of(signs[1], M.XOR) if signs else []
    negative = [_of(v, _Multi.LT)[:1] for v in turned]
    operands = _of(rest[0], M.MOD) if rest else []
    return (*operands, rest[0]) if operands and negative == [operands[:1], rest] else None  # type: ignore[return-value]


def _toward_zero(w: OnnxWriter, kind: str, x: Var, y: Var, **attributes: int) -> str:
    elem = elem_of(w.dtype(x))
    if elem is w.whole:
        return w.op(kind, w.operand(x), w.operand(y), **attributes)
    wide = [w.cast(w.operand(v), ElemType.INT32) for v in (x, y)]
    return w.cast(w.op(kind, *wide, **attributes), elem)


def _quotient(w: OnnxWriter, opr: Opr) -> str | None:
    """Write a quotient rounded down, and up again where it is negative, as Div."""
    quotient, step = opr.inputs
    divided = _divided(step)
    if divided is None or _of(quotient, M.FLOOR_DIV) != [*divided[:2]]:
        return None
    return _toward_zero(w, "Div", *divided[:2])


@joined("SUB")
def _remainder(w: OnnxWriter, opr: Opr) -> str | None:
    """Write a remainder with the sign of the dividend as Mod."""
    rest, less = opr.inputs
    moved = _of(less, M.COND_LT_MOV)
    divided = _divided(moved[1]) if moved else None
    if divided is None or divided[1] is not moved[2] or divided[2] is not rest or w.opset < 10:
        return None
    return _toward_zero(w, "Mod", *divided[:2], fmod=1)


@joined(_Multi.FUSE_MUL_ADD3_INT16x32x32x32.name)
def _product(w: OnnxWriter, opr: Opr) -> str | None:
    """Write a product of int32 by halves of 16 bits as Mul."""
    low, y, rest = opr.inputs
    value = w.value(low)
    if _is_zero(w, rest) and value is not None:
        number = value.reshape(()) if value.size == 1 else value
        return w.op("Mul", w.name(y), w.const(number.astype(np.int32)))
    shifted = _of(rest, M.SHL)
    high = _of(shifted[0], _Multi.FUSE_MUL_ADD3_INT16x32x32x32) if shifted else []
    if not high or high[1] is not y or not _is_zero(w, high[2]) or low.owner.type != "TypeCvtV2":
        return None
    x = low.owner.inputs[0]
    above = _of(high[0].owner.inputs[0], M.SHR) if high[0].owner.type == "TypeCvtV2" else []
    difference = _of(above[0], M.SUB) if above else []
    return w.op("Mul", w.name(x), w.name(y)) if difference[:1] == [x] else None


def _is_zero(w: OnnxWriter, var: Var) -> bool:
    value = w.value(var)
    return value is not None and not value.any()


# Activations


@joined("PRELU")
def _prelu(w: OnnxWriter, opr: Opr) -> str | None:
    """Write LeakyRelu, or PRelu where the slopes broadcast to what they scale."""
    x, slope = opr.inputs
    dtype, value = w.dtype(opr.outputs[0]), w.value(slope)
    if not dtype.is_float or w.dtype(x) != dtype or w.dtype(slope) != dtype or dtype.name == "BFloat16":
        return None
    if value is not None and value.size == 1 and value.ndim <= w.rank(x):
        return w.op("LeakyRelu", w.name(x), alpha=value.item())
    return w.op("PRelu", w.name(x), w.name(slope)) if _same(w, opr.outputs[0], x, 0) else None


def _elu(w: OnnxWriter, opr: Opr) -> str | None:
    """Write Elu, Selu and Celu as MegEngine computes them."""
    up, down = (_scaled(w, v) for v in opr.inputs)
    x, inner = _of(up[0], M.RELU), _of(down[0], M.EXPM1)
    below, steepness = _scaled(w, inner[0]) if inner else (opr.inputs[0], 1.0)
    ends = _of(below, M.MIN)
    if not x or len(ends) != 2 or not _is_zero(w, ends[0]) or ends[1] is not x[0]:
        return None
    gamma, alpha = up[1], down[1] / up[1]
    if gamma == steepness == 1:
        return w.op("Elu", w.name(x[0]), alpha=alpha)
    if steepness == 1:
        return w.op("Selu", w.name(x[0]), alpha=alpha, gamma=gamma)
    celu = gamma == 1 and np.float32(1 / alpha) == np.float32(steepness) and w.opset >= 12
    return w.op("Celu", w.name(x[0]), alpha=alpha) if celu else None


def _scaled(w: OnnxWriter, var: Var) -> tuple[Var, float]:
    """Return what a constant number scales, and that; the variable and 1 where none does."""
    opr = var.owner
    for x, _, value in constant_sides(w, opr) if _of(var, M.MUL) else ():
        if value.size == 1 and value.any():
            return x, value.item()
    return var, 1.0


# Products


@joined("ADD", *(mode.name for mode in AFTER_SUM))
def _sum(w: OnnxWriter, opr: Opr) -> str | None:
    """Write a convolution or a product of matrices with its bias, and two conditional moves of one mask as Where."""
    if opr.type != "Elemwise" or any(w.dtype(v) != w.dtype(opr.outputs[0]) for v in opr.inputs):
        return None
    mode = opr.get(P.Elemwise).mode
    if mode is M.ADD and (same := unchanged_operand(w, opr)) is not None:
        return same
    kind = w.dtype(opr.outputs[0]).np.kind
    out = _biased(w, opr) if kind == "f" else _quotient(w, opr) if mode is M.ADD else None
    if out is None and mode is M.ADD and w.dtype(opr.outputs[0]).name == "Float32":
        out = _elu(w, opr)
    if mode is M.ADD:
        return out or _where(w, opr)
    return compose(w, AFTER_SUM[mode], out) if out else None


def _biased(w: OnnxWriter, opr: Opr) -> str | None:
    for x, bias, value in constant_sides(w, opr) if w.dtype(opr.outputs[0]).name in _REAL else ():
        written = _with_bias(w, x, bias, value) if w.alone(x) else None
        if written:
            return written
        # Under a residual: (x + z) + bias.
        inner = x.owner
        if w.alone(x) and inner.type == "Elemwise" and inner.get(P.Elemwise).mode is M.ADD:
            for one, other in (inner.inputs, inner.inputs[::-1]):
                written = _with_bias(w, one, bias, value) if w.alone(one) and w.value(other) is None else None
                if written and _same(w, one, x, 0):
                    return w.op("Add", written, w.name(other))
    return None


def _with_bias(w: OnnxWriter, x: Var, bias: Var, value: Array) -> str | None:
    """Write a convolution or a product again, with a bias."""
    opr = x.owner
    w.doc = w.described(opr)
    if opr.type in CONVOLUTIONS:
        return convolution_with_bias(w, opr, bias, value)
    if (
        opr.type != "MatrixMulV2"
        or opr.get(P.MatrixMul).format != P.MatrixMulFormat.DEFAULT
        or w.rank(x) != 2
    ):
        return None
    p, (a, b) = opr.get(P.MatrixMul), opr.inputs
    if value.size not in (1, w.shape(x)[1]) or value.shape[-1:] != (value.size,) or value.ndim > 2:
        return None
    vector = w.name(bias) if value.ndim == 1 else w.derived(bias, "bias", value.reshape(-1))
    turned = {k: 1 for k, on in (("transA", p.transposeA), ("transB", p.transposeB)) if on}
    weight, vector = integer_weights(w, a, w.name(b), vector, 0 if p.transposeB else 1)
    return w.op("Gemm", w.name(a), weight, vector, **turned)


def _same(w: OnnxWriter, x: Var, y: Var, less: int) -> bool:
    """Return whether two variables have the same sizes, but for some of the last axes, at all sizes of the inputs."""
    for known in w.known:
        first, second = known.shapes.get(x.id), known.shapes.get(y.id)
        if first is None or second is None or first[: len(first) - less] != second[: len(second) - less]:
            return False
    return True


def _matrices(w: OnnxWriter, var: Var, like: Var) -> Var | None:
    """Return what was reshaped into a stack of matrices: the same matrices in a stack of the shape that `like` has."""
    if var.owner.type != "ReshapeV1":
        return None
    x = var.owner.inputs[0]
    if w.rank(x) < 2 or not _same(w, x, like, 2) or not _same_matrices(w, x, var):
        return None
    return _compact(w, x)


def _compact(w: OnnxWriter, x: Var) -> Var:
    """Return the matrices that are repeated, which MatMul does by itself."""
    source = x.owner.inputs[0] if x.owner.type == "Broadcast" else x
    return source if w.rank(source) > 1 and _same_matrices(w, source, x) else x


def _stacks(w: OnnxWriter, product: Opr, first: Var, second: Var, out: Var) -> str | None:
    """Write MatMul of these operands, unless its result is less repeated."""
    for known in w.known:
        a, b, c = (known.shapes.get(v.id) for v in (first, second, out))
        if a is None or b is None or c is None or np.broadcast_shapes(a[:-2], b[:-2]) != c[:-2]:
            return None
    p = product.get(P.MatrixMul)
    return w.op("MatMul", operand(w, first, p.transposeA), operand(w, second, p.transposeB))


@joined("BatchedMatrixMulV2")
def _batched(w: OnnxWriter, opr: Opr) -> str | None:
    """Write a product of repeated stacks as MatMul of the stacks."""
    a, b = opr.inputs
    first, second = _compact(w, a), _compact(w, b)
    if (first is a and second is b) or w.dtype(a).name not in _REAL:
        return None
    return _stacks(w, opr, first, second, opr.outputs[0])


def _same_matrices(w: OnnxWriter, x: Var, y: Var) -> bool:
    shapes = [(k.shapes.get(x.id), k.shapes.get(y.id)) for k in w.known]
    return all(a is not None and b is not None and a[-2:] == b[-2:] for a, b in shapes)


def _stacked(w: OnnxWriter, opr: Opr) -> str | None:
    """Write a product of matrices whose rows or stacks were put together and are taken apart again as MatMul."""
    out, x = opr.outputs[0], opr.inputs[0]
    product = x.owner
    if product.type not in PRODUCTS or not w.alone(x):
        return None
    p = product.get(P.MatrixMul)
    if w.dtype(out).name not in _REAL or p.format != P.MatrixMulFormat.DEFAULT:
        return None
    a, b = product.inputs
    if product.type == "BatchedMatrixMulV2":
        first, second = _matrices(w, a, out), _matrices(w, b, out)
        if first is None or second is None or w.rank(out) < 3 or not _same_matrices(w, out, x):
            return None
        return _stacks(w, product, first, second, out)
    if a.owner.type != "ReshapeV1" or p.transposeA or w.rank(out) < 2 or opr.inputs[1].id in w.decided:
        return None
    rows, width, columns = a.owner.inputs[0], w.shape(a)[-1], w.shape(x)[-1]
    if w.rank(rows) > 1 and _same(w, rows, out, 1) and w.shape(rows)[-1] == width:
        data = w.name(rows)
    elif width is not None and w.value(opr.inputs[1]) is not None and w.shape(out)[-1] == columns:
        data = w.reshape(w.name(rows), [*w.split_dims(opr.inputs[1])[:-1], width])
    else:
        return None
    return w.op("MatMul", data, operand(w, b, p.transposeB))


# Layouts


def _sources(w: OnnxWriter, var: Var) -> Iterator[Var]:
    """Yield a variable and some of those before it that hold the same numbers in the same order."""
    for _ in range(_REACH):
        yield var
        opr = var.owner
        if opr.type == "Dimshuffle":
            sizes = w.shape(opr.inputs[0])
            moved = [a for a in opr.get(P.Dimshuffle).pattern if a >= 0 and sizes[a] != 1]
            if moved != sorted(moved):
                return
        elif opr.type == "ReshapeV1":
            if w.value(opr.inputs[1]) is None:
                return
        elif opr.type != "AxisAddRemove":
            return
        var = opr.inputs[0]


def _undoes(opr: Opr) -> bool:
    """Return whether an operator takes back what the one before it does to axes."""
    before = opr.inputs[0].owner
    turned = [P.AxisDesc(1 - d.method, d.axis) for d in reversed(opr.get(P.AxisAddRemove).desc)]
    return before.type == opr.type and turned == [*before.get(P.AxisAddRemove).desc]


@joined("Dimshuffle", "AxisAddRemove", "ReshapeV1")
def _unchanged(w: OnnxWriter, opr: Opr) -> str | None:
    """Leave out changes of shape that undo each other, and those around products of matrices."""
    first, *before = _sources(w, opr.outputs[0])
    same = [v for v in before if _same(w, v, first, 0)]
    if same:
        return w.name(same[-1])
    if opr.type == "AxisAddRemove":
        return w.name(opr.inputs[0].owner.inputs[0]) if _undoes(opr) else without_axes(w, opr)
    return _stacked(w, opr) if opr.type == "ReshapeV1" else None


@joined("Softmax")
def _softmax(w: OnnxWriter, opr: Opr) -> str | None:
    """Leave out the maximum that is subtracted first, as runtimes do so themselves."""
    gap = opr.inputs[0].owner
    rank, axis = w.rank(opr.inputs[0]), opr.get(P.Softmax).axis
    if gap.type != "Elemwise" or gap.get(P.Elemwise).mode is not M.SUB:
        return None
    x, peak = gap.inputs
    highest = [*_sources(w, peak)][-1].owner
    if highest.type != "ReduceV2" or highest.inputs != [x] or w.dtype(x).name != "Float32":
        return None
    p = highest.get(P.Reduce)
    along = axis_of(axis, rank)
    if p.mode != P.ReduceMode.MAX or axis_of(p.axis, rank) != along or w.shape(peak)[along] != 1:
        return None
    return w.softmax(w.name(x), along, rank) if w.rank(peak) == rank else None

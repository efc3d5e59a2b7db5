"""Elemwise, PowC and TypeCvtV2.

Inputs of several dtypes are converted to the common one, as MegEngine does. Small integers are computed in int32 and
truncated again: ONNX Runtime has no kernels for them, and wraparound is the same.
"""

from collections.abc import Callable

import numpy as np

from ...base.registry import Registry
from ...graph import Opr
from ...graph.dtypes import DType
from ...graph.params import Elemwise, ElemwiseMode as M, PowC
from ...ops.catalog import TypeParam
from ...ops.elemwise.table import ROWS, ModeTrait, modes
from ..tensors import ElemType
from .elemwise_float import SINGLE, compose
from .emitter import NodeEmitter, UnsupportedOprError
from .writer import OnnxWriter, elem_of, translation

_BOOL = {mode: row.onnx for mode, row in ROWS.items() if row.onnx and row.real is None}
_INTEGER: Registry[M, Callable[..., str]] = Registry("mode on integers")
_on_integers = _INTEGER.register
_UNSIGNED: Registry[M, Callable[..., str]] = Registry("mode on unsigned integers of 32 and 64 bits")
_on_unsigned = _UNSIGNED.register
_SELECTS, _CHAINS = modes(ModeTrait.SELECTS), modes(ModeTrait.ASSOCIATIVE)


def convert(w: OnnxWriter, x: str, source: DType, target: DType) -> str:
    """Convert a value to another data type, by MegEngine's rules (`loadrun.ops.typecvt`).

    Args:
        x: the value, stored as values of `source` are.
    """
    if source == target:
        return x
    if "Complex64" in (source.name, target.name):
        raise UnsupportedOprError("complex numbers: ONNX's operators do not take them")
    if target.is_quantized:
        if target.name == "QuantizedS32":
            return _to_s32(w, x, source, target)
        real = w.dequantize(x, source) if source.is_quantized else _as_float(w, x, source)
        return w.quantize(real, target, 3 if source.is_quantized else 2)
    if source.is_quantized:
        x, source = w.dequantize(x, source), DType("Float32")
    if source.name == target.name:
        return x
    if target.name == "BFloat16":
        return w.round_bfloat16(_as_float(w, x, source))
    if source.np == target.np:
        return x
    if source.is_float and target.np.kind in "iu" and target.np.itemsize < 4:
        # Out-of-range floats wrap through int32; ONNX leaves them undefined.
        x = w.cast(x, ElemType.INT32)
    return w.cast(x, elem_of(target))


_BY_REAL = ("QuantizedS16", "QuantizedS4", "Quantized4Asymm", "QuantizedS1")


def _to_s32(w: OnnxWriter, x: str, source: DType, target: DType) -> str:
    """Convert to QuantizedS32, scaling once as MegEngine does; too large values become its lowest number."""
    unit = np.float32(target.scale)
    with np.errstate(over="ignore", divide="ignore"):
        factor = np.float32(1) / unit
    if source.is_quantized and source.name not in _BY_REAL:
        value = w.centred(x, source, ElemType.FLOAT)
        factor = (
            np.float32(source.scale) * factor if source.is_asymmetric else np.float32(source.scale) / unit
        )
    else:
        value = w.dequantize(x, source) if source.is_quantized else _as_float(w, x, source)
    whole = w.round_away(w.op("Mul", value, w.const(factor)))
    limit = np.iinfo(np.int32)
    fits = w.cast(w.clip(whole, float(limit.min), 2147483520.0), ElemType.INT32)
    wraps = source.name == "Float32" or (source.is_quantized and source.name not in _BY_REAL)
    large = w.leq(w.f32(2.0**31), whole)
    return w.where(large, w.const(np.int32(limit.min if wraps else limit.max)), fits)


def _as_float(w: OnnxWriter, x: str, source: DType) -> str:
    return x if source.np == np.float32 else w.cast(x, ElemType.FLOAT)


@translation("TypeCvtV2")
def type_cvt(w: OnnxWriter, opr: Opr) -> str:
    """Cast; quantized types by QuantizeLinear and DequantizeLinear."""
    (x,) = opr.inputs
    source, target = w.dtype(x), opr.get(TypeParam).dtype
    if source.is_quantized and not target.is_quantized:
        return convert(w, w.dequantized(x), DType("Float32"), target)
    return convert(w, w.name(x), source, target)


@translation("Elemwise")
def elemwise(w: OnnxWriter, opr: Opr) -> str:
    """Emit one ONNX operator, or several."""
    mode = opr.get(Elemwise).mode
    dtype = w.dtype(opr.outputs[0])
    args = [convert(w, w.operand(v), w.dtype(v), dtype) for v in opr.inputs]
    if mode in _CHAINS and w.value(opr.inputs[0]) is not None:
        # Exporters write constants behind, and runtimes look for them there.
        args.reverse()
    if dtype.name == "Bool":
        return on_bool(w, mode, args)
    if dtype.is_float:
        return _float(w, mode, dtype, args)
    return whole_numbers(w, mode, dtype, args)


def _float(w: OnnxWriter, mode: M, dtype: DType, args: list[str]) -> str:
    if dtype.name == "Float16" and mode not in SINGLE and mode not in _SELECTS:
        wide = [w.cast(a, ElemType.FLOAT) for a in args]
        return w.cast(compose(w, mode, *wide), ElemType.FLOAT16)
    out = compose(w, mode, *args)
    return w.round_bfloat16(out) if dtype.name == "BFloat16" else out


def on_bool(w: OnnxWriter, mode: M, args: list[str]) -> str:
    """Apply a mode to truth values."""
    if mode in _BOOL:
        return w.op(_BOOL[mode], *args)
    a, b = args
    if mode is M.EQ:
        return w.op("Not", w.op("Xor", a, b))
    if mode is M.LT:
        return w.op("And", w.op("Not", a), b)
    if mode is M.LEQ:
        return w.op("Or", w.op("Not", a), b)
    raise UnsupportedOprError(f"{mode.name} of Bool")


# Integers


def whole_numbers(w: NodeEmitter, mode: M, dtype: DType, args: list[str]) -> str:
    """Apply a mode to integers: in int32, or in int64 where int32 does not suffice."""
    elem = elem_of(dtype)
    if mode not in _INTEGER:
        raise UnsupportedOprError(f"{mode.name} of {dtype.name}")
    narrow = elem is not w.whole
    unsigned = dtype.is_wide and dtype.np.kind == "u"
    if unsigned and mode in _UNSIGNED:
        return _UNSIGNED[mode](w, *args)
    wide = [w.cast(a, ElemType.INT32) for a in args] if narrow else args
    if mode is M.RMULH:
        a, b = (w.cast(v, ElemType.INT64) for v in wide)
        out = w.cast(_multiply_high(w, dtype, a, b), ElemType.INT32)
    elif mode is M.NEGATE and dtype.np.kind == "u":
        out = w.op("Sub", w.const(np.int32(0)), wide[0])
    elif mode is M.FLOOR_DIV and narrow:
        out = w.op("Div", *wide) if dtype.np.kind == "u" else _floor_div(w, *wide)
    else:
        out = _INTEGER[mode](w, *wide)
    return w.cast(out, elem) if narrow else out


def _bit_shift(direction: str) -> Callable[..., str]:
    def apply(w: NodeEmitter, x: str, y: str) -> str:
        count = w.op("Mod", y, w.const(w.whole.numpy.type(8 * w.whole.numpy.itemsize)))
        return w.op("BitShift", x, count, direction=direction)

    return apply


_on_unsigned(M.FLOOR_DIV)(lambda w, x, y: w.op("Div", x, y))
_on_unsigned(M.ABS, M.RELU)(lambda w, x: x)

_on_unsigned(M.SHL)(_bit_shift("LEFT"))
_on_unsigned(M.SHR)(_bit_shift("RIGHT"))


def _positive(w: NodeEmitter, x: str) -> str:
    return w.op("Less", _zero(w), x)


def _zero(w: NodeEmitter) -> str:
    return w.const(np.int32(0))


def _floor_div(w: NodeEmitter, x: str, y: str) -> str:
    """Divide and floor: ONNX's Div truncates toward zero, so the remainder is subtracted first."""
    w.need(10, "the floor division of integers")
    rest = w.op("Mod", x, y)
    return w.op("Div", w.op("Sub", x, rest), y)


@_on_integers(M.FLOOR_DIV)
def _floor_div_wide(w: NodeEmitter, x: str, y: str) -> str:
    """Divide and floor in int64: the difference of int32 values may not fit."""
    return w.cast(_floor_div(w, w.cast(x, ElemType.INT64), w.cast(y, ElemType.INT64)), ElemType.INT32)


def _compared(compare: Callable[[NodeEmitter, str, str], str]) -> Callable[..., str]:
    def apply(w: NodeEmitter, x: str, y: str) -> str:
        return w.cast(compare(w, x, y), ElemType.INT32)

    return apply


def _leq_ints(w: NodeEmitter, x: str, y: str) -> str:
    return w.op("Not", _less(w, y, x))


def _less(w: NodeEmitter, x: str, y: str) -> str:
    if w.opset < 9:
        # Less takes integers since opset 9.
        return w.op("Less", w.cast(x, ElemType.DOUBLE), w.cast(y, ElemType.DOUBLE))
    return w.op("Less", x, y)


def _shift_power(w: NodeEmitter, count: str) -> str:
    """Compute 2 to the power of a shift count, int64; counts are taken modulo the bits that are computed in."""
    w.need(11, "shifts of integers")
    bits, known = 8 * w.whole.numpy.itemsize, w.number(count)
    table = np.left_shift(np.ones(bits, np.int64), np.arange(bits))
    if known is not None:
        return w.const(table[int(known) % bits])
    k = w.op("Mod", w.cast(count, ElemType.INT64), w.const(np.int64(bits)))
    return w.op("Gather", w.const(table), k, axis=0)


@_on_integers(M.SHL)
def _shl(w: NodeEmitter, x: str, y: str) -> str:
    return w.cast(w.op("Mul", w.cast(x, ElemType.INT64), _shift_power(w, y)), ElemType.INT32)


@_on_integers(M.SHR)
def _shr(w: NodeEmitter, x: str, y: str) -> str:
    power, x = _shift_power(w, y), w.cast(x, ElemType.INT64)
    shifted, known = _floor_div(w, x, power), w.number(power)
    if w.whole is ElemType.INT64 and (known is None or known < 0):
        # 2^63 is no number of int64, whose sign alone such a shift leaves.
        sign = w.cast(w.op("Less", x, w.const(np.int64(0))), ElemType.INT64)
        none = w.op("Less", power, w.const(np.int64(0)))
        shifted = w.where(none, w.op("Neg", sign), shifted)
    return w.cast(shifted, ElemType.INT32)


@_on_integers(M.MAX)
def _max(w: NodeEmitter, x: str, y: str) -> str:
    return w.where(_less(w, x, y), y, x) if w.opset < 12 else w.op("Max", x, y)


@_on_integers(M.MIN)
def _min(w: NodeEmitter, x: str, y: str) -> str:
    return w.where(_less(w, y, x), y, x) if w.opset < 12 else w.op("Min", x, y)


for _mode in (M.ABS, M.NEGATE, M.SIGN, M.ADD, M.SUB, M.MUL, M.SQUARE, M.FUSE_MUL_ADD3, M.FUSE_MUL_ADD4):
    _on_integers(_mode)(lambda w, *args, mode=_mode: compose(w, mode, *args))


def _select(condition: Callable[[NodeEmitter, str, str], str]) -> Callable[..., str]:
    def apply(w: NodeEmitter, x: str, y: str, z: str) -> str:
        return w.where(condition(w, x, y), z, _zero(w))

    return apply


_on_integers(M.RELU)(lambda w, x: _max(w, x, _zero(w)))
_on_integers(M.RELU6)(lambda w, x: _min(w, _max(w, x, _zero(w)), w.const(np.int32(6))))
_on_integers(M.MOD)(lambda w, x, y: w.op("Mod", x, y))
_on_integers(M.SWITCH_GT0)(lambda w, x, y: w.where(_positive(w, x), y, _zero(w)))
_on_integers(M.LT)(_compared(_less))
_on_integers(M.LEQ)(_compared(_leq_ints))
_on_integers(M.EQ)(_compared(lambda w, x, y: w.equal(x, y, real=False)))
_on_integers(M.FUSE_ADD_RELU)(lambda w, x, y: _max(w, w.op("Add", x, y), _zero(w)))
_on_integers(M.PRELU)(lambda w, x, y: w.where(_positive(w, x), x, w.op("Mul", x, y)))
_on_integers(M.COND_LEQ_MOV)(_select(_leq_ints))
_on_integers(M.COND_LT_MOV)(_select(_less))
_on_integers(M.CLIP)(lambda w, x, y, z: w.where(_leq_ints(w, x, y), y, w.where(_leq_ints(w, x, z), x, z)))
_on_integers(M.RMULH)(lambda w, x, y: "")


def _multiply_high(w: NodeEmitter, dtype: DType, a: str, b: str) -> str:
    """Compute the rounded high half of the doubled product of int64 values of a narrower type; int64.

    The one product that overflows saturates.
    """
    info = np.iinfo(dtype.np)
    digits = info.bits - (info.min < 0)
    total = w.op("Add", w.op("Mul", a, b), w.const(np.int64(1 << (digits - 1))))
    high = _floor_div(w, total, w.const(np.int64(1 << digits)))
    low = w.const(np.int64(info.min))
    both = w.op("And", w.op("Equal", a, low), w.op("Equal", b, low))
    return w.where(both, w.const(np.int64(info.max)), high)


# Powers


@translation("PowC")
def pow_c(w: OnnxWriter, opr: Opr) -> str:
    """Raise to a constant: whole powers keep the sign of odd ones, others but roots are those of ``abs(x)``."""
    (x,) = opr.inputs
    dtype = w.dtype(x)
    out = _power(w, w.float(x), float(np.float32(opr.get(PowC).exp)))
    return w.stored(out, dtype)


def _power(w: OnnxWriter, x: str, exponent: float) -> str:
    whole = round(exponent) if np.isfinite(exponent) else 0
    near = abs(exponent - whole) < float(np.finfo(np.float32).eps)
    if near and whole == 1:
        return w.op("Identity", x)
    if near and -4 <= whole < 0:
        return _power(w, w.op("Div", w.f32(1), x), float(-whole))
    if near and 0 < whole <= 4:
        square = w.op("Mul", x, x)
        return square if whole == 2 else w.op("Mul", square, x if whole == 3 else square)
    if near and whole % 2:
        return w.op("Mul", w.op("Sign", x), w.op("Pow", w.op("Abs", x), w.f32(whole)))
    if abs(exponent - 0.5) < 1e-7:
        return w.op("Sqrt", x)
    if abs(exponent + 0.5) < 1e-7:
        return w.op("Sqrt", w.op("Div", w.f32(1), x))
    third = abs(abs(exponent) - 1 / 3) < 1e-7
    base = w.op("Div", w.f32(1), x) if third and exponent < 0 else x
    out = w.op("Pow", w.op("Abs", base), w.f32(abs(exponent) if third else exponent))
    return w.op("Mul", w.op("Sign", base), out) if third else out

"""QuantizeLinear and DequantizeLinear, which dumps hold as several operators."""

import numpy as np

from ...graph import Opr, Var, params as P
from ...graph.dtypes import Array, DType
from ...graph.params import ElemwiseMode as M
from ..tensors import ElemType
from .joined import constant_sides, unchanged_operand
from .shape import counting
from .writer import OnnxWriter, joined

_WHOLE = 1.5 * 2.0**23
_INTEGERS = ("Int8", "Uint8", "Int16", "Uint16")
_UNSIGNED = (DType("Uint8"), DType("Uint16"))


def _steps_before(w: OnnxWriter, var: Var, *modes: M) -> tuple[Var, list[Var]] | None:
    """Follow operators of two inputs back, the last one first; return where they begin, and the constant operands."""
    constants = []
    for mode in modes:
        opr = var.owner
        if opr.type != "Elemwise" or opr.get(P.Elemwise).mode is not mode:
            return None
        sides = [*constant_sides(w, opr)]
        if not sides or (mode in (M.SUB, M.TRUE_DIV) and sides[0][1] is not opr.inputs[1]):
            return None
        var, constant, _ = sides[0]
        constants.append(constant)
    return var, constants


def _by_axis(rank: int, *values: Array) -> tuple[int | None, list[Array]] | None:
    """Return numbers that broadcast, as QuantizeLinear takes them, and the axis along which they differ."""
    shapes = [(1,) * (rank - v.ndim) + v.shape for v in values]
    axes = {i for shape in shapes for i, n in enumerate(shape) if n != 1}
    if len(axes) > 1 or any(v.ndim > rank for v in values):
        return None
    size = max(v.size for v in values)
    flat = [np.broadcast_to(v.reshape(-1), size) if axes else v.reshape(()) for v in values]
    return (axes.pop() if axes else None), flat


@joined("TypeCvtV2")
def _quantized(w: OnnxWriter, opr: Opr) -> str | None:
    """Write division, rounding and saturation as QuantizeLinear, and what counts as Range."""
    dtype = w.dtype(opr.outputs[0])
    if dtype.name == "Int32" and (counted := counting(w, opr.inputs[0].owner)) is not None:
        return w.cast(counted, ElemType.INT32)
    if dtype.name not in _INTEGERS or w.dtype(opr.inputs[0]).name != "Float32":
        return None
    steps, low = opr.inputs[0], np.iinfo(dtype.np).min
    if (
        low
        and (shifted := _steps_before(w, steps, M.ADD))
        and (w.constant(shifted[1][0], "a limit") == low).all()
    ):
        steps = shifted[0]
    elif low:
        return None
    return _rounded(w, steps, dtype)


def _rounded(w: OnnxWriter, var: Var, dtype: DType) -> str | None:
    """Write division, rounding and saturation to steps from 0 as QuantizeLinear to a type."""
    steps = _steps_before(w, var, M.FUSE_ADD_RELU, M.FUSE_ADD_RELU, M.MIN, M.TRUE_DIV)
    if steps is None or w.opset < (21 if dtype.np.itemsize > 1 else 10):
        return None
    x, constants = steps
    shift, whole, top, scale = (w.constant(v, "a limit") for v in constants)
    low, high = np.iinfo(dtype.np).min, np.iinfo(dtype.np).max
    zero = shift.astype(np.float64) + _WHOLE + low
    if (whole != _WHOLE).any() or (top != high - zero).any() or (zero < low).any() or (zero > high).any():
        return None
    together = _by_axis(w.rank(x), scale, zero.astype(dtype.np))
    if together is None or (together[0] is not None and w.opset < 13):
        return None
    axis, (by, offset) = together
    attributes = {} if axis is None else {"axis": axis}
    return w.op("QuantizeLinear", w.name(x), w.const(by), w.const(offset), **attributes)


@joined("MUL")
def _dequantized(w: OnnxWriter, opr: Opr) -> str | None:
    """Write the difference from a zero point, times a scale, as DequantizeLinear."""
    if (same := unchanged_operand(w, opr)) is not None:
        return same
    scaled = _steps_before(w, opr.outputs[0], M.MUL)
    if scaled is None or w.dtype(opr.outputs[0]).name != "Float32":
        return None
    x, scale, zero = scaled[0], w.constant(scaled[1][0], "a scale"), np.zeros((), np.int32)
    # The difference is one of floats, or for wide integers one of int32 that is then converted.
    while w.dtype(x).name in ("Float32", "Int32"):
        if x.owner.type == "TypeCvtV2":
            x = x.owner.inputs[0]
        elif not zero.any() and (shifted := _steps_before(w, x, M.SUB)):
            x, zero = shifted[0], w.constant(shifted[1][0], "a zero point")
        else:
            break
    dtype, rounded = w.dtype(x), None
    if dtype.name == "Float32":
        # Steps that were quantized just before: their least one is 0.
        dtype, rounded = next(((d, r) for d in _UNSIGNED if (r := _rounded(w, x, d))), (dtype, None))
    together = _by_axis(w.rank(x), scale, zero)
    if together is None or dtype.name not in _INTEGERS or w.opset < (10 if together[0] is None else 13):
        return None
    low, high = np.iinfo(dtype.np).min, np.iinfo(dtype.np).max
    if (dtype.np.itemsize > 1 and w.opset < 21) or (zero != np.clip(np.rint(zero), low, high)).any():
        return None
    axis, (by, offset) = together
    if axis is None:
        w.scales[opr.outputs[0].id] = np.float32(by)
    attributes = {} if axis is None else {"axis": axis}
    return w.op(
        "DequantizeLinear", rounded or w.name(x), w.const(by), w.const(offset.astype(dtype.np)), **attributes
    )

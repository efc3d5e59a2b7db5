"""ElemwiseMultiType and AffineInt: quantized modes, comparisons to Bool, and fixed-point arithmetic."""

from collections.abc import Sequence

import numpy as np

from ...graph import Opr
from ...graph.dtypes import DType
from ...graph.params import Elemwise, ElemwiseMode, ElemwiseMultiType, ElemwiseMultiTypeMode as M
from ...ops.elemwise.modes import promote
from ...ops.elemwise.table import ModeTrait, modes
from ...ops.numeric.quant import dequantize
from ...ops.registry import Call, implementation
from ..tensors import ElemType
from .elemwise import convert, on_bool
from .elemwise_float import compose, stepwise_h_swish
from .emitter import smaller_scale
from .formulas import fixed_point, kernel_of, written
from .writer import OnnxWriter, elem_of, translation

_NOISE = 3
_BOOL = frozenset(M[mode.name] for mode in modes(ModeTrait.COMPARES))


@translation("ElemwiseMultiType")
def elemwise_multi_type(w: OnnxWriter, opr: Opr) -> str:
    """Emit DequantizeLinear, the mode on real numbers, QuantizeLinear; or a composition in integers."""
    mode = opr.get(ElemwiseMultiType).mode
    target = w.dtype(opr.outputs[0])
    if mode.name.startswith("Q"):
        args = [w.dequantized(v) for v in opr.inputs]
        dense = len({w.shape(v) for v in opr.inputs}) == 1
        noise = _noise(opr, [w.dtype(v) for v in opr.inputs], target, dense)
        if mode is M.QH_SWISH:
            return w.quantize(stepwise_h_swish(w, *args), target, noise)
        if mode is M.QFUSE_ADD_H_SWISH:
            return w.quantize(stepwise_h_swish(w, w.op("Add", *args)), target, noise)
        return w.quantize(compose(w, ElemwiseMode[mode.name[1:]], *args), target, noise)
    if mode in _BOOL:
        return _compare(w, opr, mode)
    if mode.name.startswith(("MUL_", "FUSE_MUL_ADD3_")) and mode is not M.FUSE_MUL_ADD3_IXxF32xF32xI8:
        elem = elem_of(target)
        x, k, *b = (w.cast(w.name(v), elem) if w.dtype(v) != target else w.name(v) for v in opr.inputs)
        out = w.op("Mul", x, k)
        return w.op("Add", out, b[0]) if b else out
    shifts = mode.name.startswith("ROUND_SHR") or mode is M.FUSE_MUL_ADD3_IXxF32xF32xI8
    return written(w, opr, kernel_of if shifts else fixed_point, stored=True)[0]


def _noise(opr: Opr, sources: Sequence[DType], target: DType, dense: bool) -> int:
    """Choose by how much QuantizeLinear's scale is smaller: so that all bytes give what MegEngine gives, if possible.

    A smaller scale also rounds up what is just below a half; of two bytes there are few enough to try all. Where none
    does for all, -1: the numbers are rounded as MegEngine does it, by more operators.
    """
    if len(sources) > 2 or any(not t.is_quantized or t.bits != 8 for t in (*sources, target)):
        return _NOISE
    every = np.arange(256, dtype=np.uint8)
    grid = [every] if len(sources) == 1 else [every[:, None], every]
    if dense:
        # MegEngine multiplies by the reciprocal of the scale where nothing broadcasts, else it divides.
        grid = [np.ascontiguousarray(x) for x in np.broadcast_arrays(*grid)]
    stored = [x.view(t.np) for x, t in zip(grid, sources, strict=True)]
    reals = [dequantize(x, t) for x, t in zip(stored, sources, strict=True)]
    float32 = DType("Float32")
    param = Elemwise(mode=ElemwiseMode[opr.get(ElemwiseMultiType).mode.name[1:]])
    mode = Opr("Elemwise", (param,), opr.inputs)
    with np.errstate(all="ignore"):
        want = implementation(opr.type).kernel(Call(opr, tuple(sources), (target,)), *stored)
        real = implementation("Elemwise").kernel(Call(mode, (float32,) * len(reals), (float32,)), *reals)
        for noise in range(_NOISE, -1, -1):
            by = real / smaller_scale(target, noise)
            if np.array_equal(np.clip(np.rint(by) + target.zero_point, *target.range), want):
                return noise
    return -1 if dense else _NOISE


def _compare(w: OnnxWriter, opr: Opr, mode: M) -> str:
    types = [w.dtype(v) for v in opr.inputs]
    if len(opr.inputs) == 1:
        x = w.float(opr.inputs[0])
        return w.op("IsNaN" if mode is M.ISNAN else "IsInf", x)
    if mode is M.NEQ and types[0].name != "Bool" and not types[0].is_quantized:
        zero = w.value(opr.inputs[1])
        if zero is not None and zero.size == 1 and zero.ndim <= w.rank(opr.inputs[0]) and not zero.any():
            return w.cast(w.name(opr.inputs[0]), ElemType.BOOL)
    common = promote(types)
    a, b = (convert(w, w.operand(v), t, common) for v, t in zip(opr.inputs, types, strict=True))
    if common.name == "Bool":
        return w.op("Xor", a, b) if mode is M.NEQ else on_bool(w, ElemwiseMode[mode.name], [a, b])
    through = ElemType.FLOAT if common.is_float else ElemType.INT32
    if elem_of(common) is not through:
        a, b = w.cast(a, through), w.cast(b, through)
    if mode is M.LT:
        return w.op("Less", a, b)
    if mode is M.LEQ:
        return w.leq(a, b)
    same = w.equal(a, b, common.is_float)
    return same if mode is M.EQ else w.op("Not", same)

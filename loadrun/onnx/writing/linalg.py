"""Matrix products."""

import numpy as np

from ...graph import Opr, Var
from ...graph.dtypes import DType
from ...graph.params import MatrixMul
from ...graph.params import MatrixMulFormat as Format
from ..encode import ElemType
from .formulas import packed_product, written
from .writer import OnnxWriter, elem_of, translation


@translation("MatrixMulV2", "BatchedMatrixMulV2")
def matrix_mul(w: OnnxWriter, opr: Opr) -> str:
    """Emit MatMul; for 8-bit integers MatMulInteger."""
    p = opr.get(MatrixMul)
    a, b = opr.inputs
    if p.format != Format.DEFAULT:
        return written(w, opr, packed_product, stored=True)[0]
    target = w.dtype(opr.outputs[0])
    return _product(
        w, operand(w, a, p.transposeA), operand(w, b, p.transposeB), w.dtype(a), w.dtype(b), target
    )


def operand(w: OnnxWriter, var: Var, turn: bool) -> str:
    """Return the matrices in a variable, turned if asked for."""
    rank = w.rank(var)
    if not turn:
        return w.name(var)
    value = w.value(var)
    if value is not None:
        return w.derived(var, "transposed", np.ascontiguousarray(value.swapaxes(-1, -2)))
    return w.transpose(w.name(var), [*range(rank - 2), rank - 1, rank - 2])


def _product(w: OnnxWriter, x: str, y: str, a: DType, b: DType, target: DType) -> str:
    if a.is_float:
        if a.name == "Float16":
            return w.op("MatMul", x, y)
        return w.stored(w.op("MatMul", x, y), target)
    if a.is_wide:
        return w.op("MatMul", x, y)
    if a.name == "Int16" or w.opset < 10:
        return w.cast(w.op("MatMul", *(_centred_ints(w, v, t) for v, t in ((x, a), (y, b)))), elem_of(target))
    x, first = unsigned(w, x, a)
    y, second = unsigned(w, y, b)
    out = w.op("MatMulInteger", x, y, first, second)
    return out if target.np == np.int32 else w.cast(out, elem_of(target))


def unsigned(w: OnnxWriter, x: str, dtype: DType) -> tuple[str, str]:
    """Convert stored 8-bit integers to uint8 with a zero point.

    ONNX Runtime's products of uint8 with int8 saturate on processors without the right instructions; those of
    uint8 with uint8 never do.
    """
    if dtype.np == np.uint8:
        return x, w.const(np.uint8(dtype.zero_point))
    stored = w.initializers[x].value if x in w.initializers else None
    if stored is not None:
        key = f"{x}:unsigned"
        if key not in w.initializers:
            w.const((stored.astype(np.int16) + 128).astype(np.uint8), key)
        return key, w.const(np.uint8(128))
    wide = w.op("Add", w.cast(x, ElemType.INT32), w.const(np.int32(128)))
    return w.cast(wide, ElemType.UINT8), w.const(np.uint8(128))


def _centred_ints(w: OnnxWriter, x: str, dtype: DType) -> str:
    """Convert stored integers to int32 without their zero point."""
    out = w.cast(x, ElemType.INT32)
    return w.op("Sub", out, w.const(np.int32(dtype.zero_point))) if dtype.zero_point else out

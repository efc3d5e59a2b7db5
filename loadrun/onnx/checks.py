"""Checks by the rule of ONNX's backend tests: |expect - get| <= atol + rtol * |expect|, shapes exactly."""

from __future__ import annotations

from .. import params as P
from ..imperative import Tensor, apply1, const
from ..imperative import emit as e
from .values import BF16

__all__ = ["ATOL", "RTOL", "check"]

RTOL, ATOL = 1e-3, 1e-7
_BRAIN_RTOL = 2.0**-6
_M, _T = P.ElemwiseMode, P.ElemwiseMultiTypeMode


def check(expect: Tensor, get: Tensor, kind: int, rtol: float = RTOL, atol: float = ATOL) -> Tensor:
    """An AssertEqual that passes where the largest difference is at most what the tolerance allows.

    Equal infinities agree, and so does NaN with NaN. Values of different shapes do not.

    Args:
        expect: the expected value.
        get: what the graph computes.
        kind: ONNX's type of it; bfloat16 is compared with two of its last places.
        rtol: how much may differ in proportion to the expected value.
        atol: how much may differ anyway.
    """
    a, b = expect._vector(), get._vector()
    if kind == BF16:
        rtol = max(rtol, _BRAIN_RTOL)
    whole = not a._dtype.is_float
    if whole:
        a, b = e.cast(a, "int32"), e.cast(b, "int32")
    same = e.compare(_T.EQ, a, b)
    difference = e.cast(e.elem(_M.ABS, e.elem(_M.SUB, a, b)), "float32")
    wide = e.cast(a, "float32")
    if not whole:
        missing = e.elem(_M.AND, e.is_nan(wide), e.is_nan(e.cast(b, "float32")))
        same = e.elem(_M.OR, same, missing)
    allowed = e.elem(
        _M.ADD, e.elem(_M.MUL, const(rtol, "float32"), e.elem(_M.ABS, wide)), const(atol, "float32")
    )
    ratio = e.where(same, const(0.0, "float32"), e.elem(_M.TRUE_DIV, difference, allowed))
    worst = apply1(
        "ReduceV2", P.Reduce(mode=P.ReduceMode.MAX), inputs=[ratio, const(1)._vector()], scalar=False
    )
    sizes = [apply1("GetVarShapeV1", P.OptionalAxisV1(), inputs=[v], scalar=False) for v in (a, b)]
    other = e.logical_not(e.compare(_T.EQ, *sizes))
    shaped = e.reduce(e.cast(other, "float32"), P.ReduceMode.MAX, [0])._vector()
    err = e.elem(_M.ADD, worst, e.elem(_M.MUL, shaped, const(1e30, "float32")))
    return apply1("AssertEqual", P.AssertEqual(maxerr=1.0, verbose=False), inputs=[a, b, err], scalar=False)

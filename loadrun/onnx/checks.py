"""Checks by the rule of ONNX's backend tests: |expect - get| <= atol + rtol * |expect|, shapes exactly."""

from __future__ import annotations

from ..build import emit as e
from ..graph import params as P
from ..tensors import Tensor, apply1, const
from ..tensors.access import as_vector, dtype_of
from .values import BF16

__all__ = ["ATOL", "BRAIN_RTOL", "RTOL", "check", "check_within"]

RTOL, ATOL = 1e-3, 1e-7
BRAIN_RTOL = 2.0**-6
_M, _T = P.ElemwiseMode, P.ElemwiseMultiTypeMode


def check(expect: Tensor, get: Tensor, kind: int, rtol: float = RTOL, atol: float = ATOL) -> Tensor:
    """Build an AssertEqual that passes if no difference exceeds the tolerance.

    Equal infinities agree, and so does NaN with NaN. Values of different shapes do not.

    Args:
        expect: the expected value.
        get: what the graph computes.
        kind: ONNX's type of it; bfloat16 is compared with two of its last places.
        rtol: how much may differ in proportion to the expected value.
        atol: how much may differ anyway.
    """
    # MegEngine's operator wants its three inputs of one dtype; what that rounds is far below the tolerance.
    a, b = (e.real(as_vector(v)) for v in (expect, get))
    if kind == BF16:
        rtol = max(rtol, BRAIN_RTOL)
    missing = e.elem(_M.AND, e.is_nan(a), e.is_nan(b))
    same = e.elem(_M.OR, e.compare(_T.EQ, a, b), missing)
    difference = e.elem(_M.ABS, e.elem(_M.SUB, a, b))
    allowed = e.elem(
        _M.ADD, e.elem(_M.MUL, const(rtol, dtype_of(a)), e.elem(_M.ABS, a)), const(atol, dtype_of(a))
    )
    ratio = e.where(same, const(0.0, dtype_of(a)), e.elem(_M.TRUE_DIV, difference, allowed))
    worst = apply1(
        "ReduceV2", P.Reduce(mode=P.ReduceMode.MAX), inputs=[ratio, as_vector(const(1))], scalar=False
    )
    sizes = [apply1("GetVarShapeV1", P.OptionalAxisV1(), inputs=[v], scalar=False) for v in (a, b)]
    other = e.logical_not(e.compare(_T.EQ, *sizes))
    shaped = as_vector(e.reduce(e.cast(other, dtype_of(a)), P.ReduceMode.MAX, [0]))
    err = e.elem(_M.ADD, worst, e.elem(_M.MUL, shaped, const(1e30, dtype_of(a))))
    param = P.AssertEqual(maxerr=1.0, verbose=False)
    return apply1("AssertEqual", param, inputs=[a, b, err], scalar=False)


def check_within(expect: Tensor, get: Tensor, maxerr: float) -> Tensor:
    """Build an AssertEqual with MegEngine's formula, for a model that was a dump with such a check.

    Args:
        expect: the expected value.
        get: what the graph computes.
        maxerr: its tolerance.
    """
    a, b = (e.real(as_vector(v)) for v in (expect, get))
    top = e.elem(_M.ABS, e.elem(_M.SUB, a, b))
    least = e.elem(_M.MIN, e.elem(_M.ABS, a), e.elem(_M.ABS, b))
    ratio = e.elem(_M.TRUE_DIV, top, e.elem(_M.MAX, least, const(1.0, dtype_of(a))))
    worst = P.Reduce(mode=P.ReduceMode.MAX)
    err = apply1("ReduceV2", worst, inputs=[ratio, as_vector(const(1))], scalar=False)
    param = P.AssertEqual(maxerr=maxerr, verbose=False)
    return apply1("AssertEqual", param, inputs=[a, b, err], scalar=False)

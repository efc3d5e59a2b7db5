"""Numbers: quotients of integers, which ONNX rounds toward zero and MegEngine down, and infinite ones."""

from typing import Any

import numpy as np

from ...graph import params as P
from ...layers import emit as e
from ...layers.emit import M
from ...tensors import Tensor
from ...tensors.access import dtype_of
from ..operators.common import refuse_where
from . import instead, operand

__all__: list[str] = []

_LT, _NEQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.NEQ


def _divided(x: Any, y: Any) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the operands, the remainder of MegEngine, and 1 where a quotient rounded down is not the one wanted.

    None instead of that for unsigned integers.
    """
    if isinstance(y, np.ndarray):
        refuse_where(y == 0, "whole numbers are divided by 0", ZeroDivisionError)
    n, d = operand(x), operand(y)
    if dtype_of(n).name == "Uint16":
        # Which MegEngine stores alone.
        n, d = e.whole(n), e.whole(d)
    rest = e.elem(M.MOD, n, d)
    if x.dtype.kind == "u":
        return n, d, rest, None
    zero = e.number(0, n)
    turned = e.elem(M.XOR, e.compare(_LT, n, zero), e.compare(_LT, rest, zero))
    return n, d, rest, e.cast(e.elem(M.AND, e.compare(_NEQ, rest, zero), turned), dtype_of(n))


@instead("Div")
def div(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return NotImplemented
    n, d, _, beyond = _divided(x, y)
    quotient = e.elem(M.FLOOR_DIV, n, d)
    return quotient if beyond is None else e.elem(M.ADD, quotient, beyond)


@instead("Mod", since=10)
def mod(x: Any, y: Any, *, fmod: int = 0) -> Any:
    if x.dtype.kind == "f":
        return NotImplemented
    n, d, rest, beyond = _divided(x, y)
    if beyond is None or not fmod:
        return rest
    return e.elem(M.SUB, rest, e.elem(M.COND_LT_MOV, e.number(0, n), beyond, d))

"""MegEngine's promotion of mixed operands to one dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import params as P
from ..dtypes import DType, plain
from .apply import apply1
from .convert import as_tensor

if TYPE_CHECKING:
    from .value import Tensor

__all__ = ["common_dtype", "elemwise", "promoted"]

_M = P.ElemwiseMode
_T = P.ElemwiseMultiTypeMode
_COMPARE = {
    _M.EQ: _T.EQ,
    _M.NEQ: _T.NEQ,
    _M.LT: _T.LT,
    _M.LEQ: _T.LEQ,
    _M.ISNAN: _T.ISNAN,
    _M.ISINF: _T.ISINF,
}
_FLOAT_ONLY = frozenset(
    (
        *(
            _M.TRUE_DIV,
            _M.EXP,
            _M.POW,
            _M.LOG,
            _M.EXPM1,
            _M.LOG1P,
            _M.ACOS,
            _M.ASIN,
            _M.ATAN2,
            _M.COS,
            _M.SIN,
        ),
        *(_M.LOG_SUM_EXP, _M.TAN, _M.ASINH, _M.ACOSH, _M.ATANH, _M.SINH, _M.COSH, _M.SOFTPLUS, _M.HSIGMOID),
        *(_M.LOGSIGMOID, _M.SQRT, _M.TANH),
    )
)


def _rank(dtype: DType) -> int:
    return 3 if dtype.is_float or dtype.is_quantized else 1 if dtype.name == "Bool" else 2


def common_dtype(values: Sequence[Any]) -> DType:
    """The dtype that tensors, arrays and Python numbers are promoted to together.

    Python numbers only count where their kind (bool < integer < float) is above that of all tensors.
    """
    from .value import Tensor

    strong: list[DType] = []
    weak: list[DType] = []
    for v in values:
        if isinstance(v, Tensor):
            strong.append(v._dtype)
        elif isinstance(v, bool):
            weak.append(plain("Bool"))
        elif isinstance(v, int):
            weak.append(plain("Int32"))
        elif isinstance(v, float) and not isinstance(v, np.generic):
            weak.append(plain("Float32"))
        else:
            strong.append(as_tensor(v)._dtype)
    for d in strong:
        if d.is_quantized:
            return d
    top = max(map(_rank, strong), default=0)
    chosen = weak if max(map(_rank, weak), default=0) > top else strong
    best = max(map(_rank, chosen))
    used = [d for d in chosen if _rank(d) == best]
    result = used[0]
    for d in used[1:]:
        result = _wider(result, d)
    return result


def _wider(a: DType, b: DType) -> DType:
    if a == b:
        return a
    from .dtypes import graph_dtype

    if "BFloat16" in (a.name, b.name):
        return plain("Float32")
    return graph_dtype(np.promote_types(a.np, b.np))


def promoted(values: Sequence[Any]) -> list[Tensor]:
    """The values as tensors of their common dtype; quantized ones stay as they are."""
    want = common_dtype(values)
    return [x if x._dtype.is_quantized else as_tensor(x, want) for x in (_typed(v, want) for v in values)]


def _typed(value: Any, want: DType) -> Tensor:
    from .value import Tensor

    return value if isinstance(value, Tensor) else as_tensor(value, None if want.is_quantized else want)


def elemwise(mode: P.ElemwiseMode, *values: Any) -> Tensor:
    """Apply an elementwise mode to tensors, arrays and numbers."""
    inputs = promoted(values)
    if mode in _COMPARE:
        param = P.ElemwiseMultiType(mode=_COMPARE[mode])
        return apply1("ElemwiseMultiType", param, inputs=inputs, output_dtype=plain("Bool"))
    if mode in _FLOAT_ONLY and not inputs[0]._dtype.is_float and not inputs[0]._dtype.is_quantized:
        inputs = [x.astype("float32") for x in inputs]
    return apply1("Elemwise", P.Elemwise(mode=mode), inputs=inputs)

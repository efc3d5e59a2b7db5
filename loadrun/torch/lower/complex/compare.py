"""Comparisons of complex numbers, and complex numbers as truth values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...call import FxCall
from ...complex import Complex, pair
from ...registry import aten
from ...values import ten
from .calls import on_real
from .formulas import added, finite, has_nan, modulus, negative, truth

__all__: list[str] = []


@aten("aten.eq.Tensor", "aten.eq.Scalar", "aten.ne.Tensor", "aten.ne.Scalar", complex=True)
def equal(call: FxCall, x: Any, y: Any) -> Any:
    """Tell where both parts are equal, or, for `ne`, where one is not."""
    dtype = call.common(0, 1)
    x, y = pair(x, dtype), pair(y, dtype)
    if ".ne." in str(call.node.target):
        return (x.real != y.real) | (x.imag != y.imag)
    return (x.real == y.real) & (x.imag == y.imag)


@aten("aten.equal.default", complex=True)
def all_equal(call: FxCall, x: Any, y: Any) -> Any:
    """Return whether all elements are equal."""
    return ten(False) if call.shape_of(0) != call.shape_of(1) else np.all(equal(call, x, y))


@aten("aten.isclose.default", complex=True)
def isclose(
    call: FxCall, x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Tell where two values are nearly equal."""
    x, y = pair(x), pair(y)
    near = modulus(added(x, negative(y))) <= atol + modulus(y) * rtol
    result = (near & finite(x) & finite(y)) | ((x.real == y.real) & (x.imag == y.imag))
    return result | (has_nan(x) & has_nan(y)) if equal_nan else result


@aten("aten.isnan.default", complex=True)
def isnan(call: FxCall, x: Any) -> Any:
    """Tell where either part is NaN."""
    return has_nan(pair(x))


@aten("aten.isfinite.default", complex=True)
def isfinite(call: FxCall, x: Any) -> Any:
    """Tell where both parts are finite."""
    return finite(pair(x))


@aten("aten.isinf.default", complex=True)
def isinf(call: FxCall, x: Any) -> Any:
    """Tell where either part is infinite."""
    x = pair(x)
    return np.isinf(x.real) | np.isinf(x.imag)


@aten(
    "aten.logical_and.default",
    "aten.logical_or.default",
    "aten.logical_xor.default",
    "aten.logical_not.default",
    "aten.any.default",
    "aten.any.dim",
    "aten.any.dims",
    "aten.all.default",
    "aten.all.dim",
    "aten.all.dims",
    "aten.count_nonzero.default",
    "aten.count_nonzero.dim_IntList",
    "aten.nonzero.default",
    "aten.argwhere.default",
    complex=True,
)
def logic(call: FxCall, *args: Any, **kwargs: Any) -> Any:
    """Convert numbers to truth values: nonzero is true."""
    return on_real(call, *(truth(a) if isinstance(a, Complex) else a for a in args), **kwargs)

"""Reductions of complex numbers that are not the same for both parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...call import FxCall, axes_of
from ...complex import Complex, pair
from ...registry import aten
from ..reduce import moments
from .calls import on_real
from .formulas import modulus, times

__all__: list[str] = []


@aten(
    "aten.linalg_vector_norm.default",
    "aten.norm.ScalarOpt_dim",
    "aten.norm.Scalar",
    "aten.norm.ScalarOpt_dim_dtype",
    complex=True,
)
def norm(call: FxCall, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute norms of the moduli."""
    return on_real(call, modulus(pair(x)), *args, **kwargs)


@aten("aten.prod.default", "aten.prod.dim_int", complex=True)
def prod(call: FxCall, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Compute the product of a fixed number of elements, in pairs."""
    x, shape = pair(x, call.dtype), call.shape_of(0)
    if not shape:
        return x
    both = [v for v in (x.real, x.imaginary) if v is not None]
    if dim is None:
        both, count = (
            [v.reshape((-1,)) for v in both],
            int(np.prod(call.static(shape, "the number of factors"))),
        )
        axis = 0
    else:
        axis = axes_of(dim, len(shape))[0]
        count = call.static(shape[axis : axis + 1], "the number of factors")[0]
    before = (slice(None),) * axis
    if not count:
        return Complex(np.ones_like(np.sum(both[0], axis=axis, keepdims=keepdim)))
    factors = [Complex(*(v[before + (slice(i, i + 1),)] for v in both)) for i in range(count)]
    while len(factors) > 1:
        factors = [
            times(factors[i], factors[i + 1]) if i + 1 < len(factors) else factors[i]
            for i in range(0, len(factors), 2)
        ]
    if keepdim:
        return factors[0]
    kept = (factors[0].real, factors[0].imaginary)
    return Complex(*(None if v is None else np.squeeze(v, axis=axis) for v in kept))


@aten("aten.cumprod.default", complex=True)
def cumprod(call: FxCall, x: Any, dim: int, dtype: Any = None) -> Any:
    """Compute running products of a fixed number of elements."""
    x, shape = pair(x, call.dtype), call.shape_of(0)
    if not shape:
        return x
    axis = axes_of(dim, len(shape))[0]
    count = call.static(shape[axis : axis + 1], "the number of factors")[0]
    before = (slice(None),) * axis
    products: list[Complex] = []
    for i in range(count):
        now = Complex(*(v[before + (slice(i, i + 1),)] for v in (x.real, x.imag)))
        products.append(times(products[-1], now) if products else now)
    if not products:
        return x
    return Complex(
        *(np.concatenate([getattr(v, part) for v in products], axis=axis) for part in ("real", "imag"))
    )


@aten(
    "aten.var.correction",
    "aten.std.correction",
    "aten.var_mean.correction",
    "aten.std_mean.correction",
    complex=True,
)
def variance(call: FxCall, x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    """Compute variance or standard deviation: the sum of both parts' variances, perhaps with the mean."""
    x = pair(x)
    (middle, first), (other, second) = (moments(call, v, dim, correction, keepdim) for v in (x.real, x.imag))
    name = str(call.node.target)
    result = np.sqrt(first + second) if ".std" in name else first + second
    return (result, Complex(middle, other)) if "_mean" in name else result

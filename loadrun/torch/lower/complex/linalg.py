"""Products, layers and inverses of complex matrices, made of real ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....build import emit as e
from ...call import FxCall
from ...complex import Complex, pair
from ...registry import UnsupportedCallError, aten
from ...values import arr, ten
from .calls import on_real, pairs
from .formulas import added, multilinear, times

__all__: list[str] = []


def _product(call: FxCall, a: Any, b: Any) -> Complex:
    """Multiply matrices."""
    return multilinear(pairs(call, a, b), lambda x, y: np.matmul(arr(x, call.dtype), arr(y, call.dtype)))


@aten(
    "aten.mm.default",
    "aten.bmm.default",
    "aten.matmul.default",
    "aten.mv.default",
    "aten.dot.default",
    complex=True,
)
def matmul(call: FxCall, a: Any, b: Any) -> Any:
    """Multiply matrices or stacks of them."""
    return _product(call, a, b)


@aten("aten.inner.default", "aten.vdot.default", complex=True)
def inner(call: FxCall, a: Any, b: Any) -> Any:
    """Compute the inner product; `vdot` takes the conjugate of the first factor."""
    a, b = pairs(call, a, b)
    return multilinear([a.conj if "vdot" in str(call.node.target) else a, b], np.inner)


@aten("aten.outer.default", "aten.ger.default", complex=True)
def outer(call: FxCall, a: Any, b: Any) -> Any:
    """Compute all products of two vectors."""
    a, b = pairs(call, a, b)
    return multilinear([a, b], lambda x, y: x[:, None] * y[None, :])


@aten("aten.einsum.default", complex=True)
def einsum(call: FxCall, equation: str, operands: Any, path: Any = None) -> Any:
    """Compute an Einstein summation."""
    equation = equation.replace(" ", "")
    return multilinear(pairs(call, *operands), lambda *xs: np.einsum(equation, *xs))


def _blended(call: FxCall, x: Any, product: Complex, beta: Any, alpha: Any) -> Complex:
    product = product if alpha == 1 else times(product, pair(alpha, call.dtype))
    if beta == 0:
        return product
    x = pair(x, call.dtype)
    return added(product, x if beta == 1 else times(x, pair(beta, call.dtype)))


@aten("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default", complex=True)
def addmm(call: FxCall, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Compute ``beta * x + alpha * a @ b``."""
    return _blended(call, x, _product(call, a, b), beta, alpha)


@aten("aten.addbmm.default", complex=True)
def addbmm(call: FxCall, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Add the sum of a stack of products."""
    y = _product(call, a, b)
    total = Complex(*(None if v is None else np.sum(v, axis=0) for v in (y.real, y.imaginary)))
    return _blended(call, x, total, beta, alpha)


@aten("aten.addr.default", complex=True)
def addr(call: FxCall, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Compute ``beta * x + alpha * outer(a, b)``."""
    return _blended(call, x, outer(call, a, b), beta, alpha)


@aten(
    "aten.linear.default",
    "aten.conv1d.default",
    "aten.conv1d.padding",
    "aten.conv2d.default",
    "aten.conv2d.padding",
    "aten.conv3d.default",
    "aten.conv3d.padding",
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    "aten.conv_transpose3d.input",
    "aten.convolution.default",
    complex=True,
)
def layer(call: FxCall, x: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Apply a layer with a weight and perhaps a bias."""
    factors = pairs(call, x, weight)
    y = multilinear(factors, lambda x, w: on_real(call, x, w, None, *args, **kwargs))
    if bias is None:
        return y
    axes = 1 if "linear" in str(call.node.target) else len(call.shape_of(1)) - 1
    column = [
        None if v is None else v.reshape((-1, *[1] * (axes - 1))) for v in _halves(pair(bias, call.dtype))
    ]
    return added(y, Complex(*column))


def _halves(x: Complex) -> tuple[Any, Any]:
    return x.real, x.imaginary


@aten("aten.linalg_cross.default", "aten.cross.default", complex=True)
def cross(call: FxCall, a: Any, b: Any, dim: Any = -1) -> Any:
    """Compute cross products of vectors of three elements."""
    return multilinear(pairs(call, a, b), lambda x, y: on_real(call, x, y, dim))


@aten(
    "aten.linalg_solve.default", "aten.linalg_solve_ex.default", "aten._linalg_solve_ex.default", complex=True
)
def solve(call: FxCall, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """Multiply right-hand sides by the inverse of matrices."""
    name = str(call.node.target)
    if "aten._linalg" in name and any(u.args[1:] != (0,) for u in call.node.users):
        raise UnsupportedCallError("the factored matrix of complex numbers; use the result of solve only")
    shapes = call.shape_of(0), call.shape_of(1)
    vector = len(shapes[1]) == 1 or (len(shapes[1]) == len(shapes[0]) - 1 and shapes[1] == shapes[0][:-1])
    a, b = _inverse(call, pair(a, call.dtype)), pair(b, call.dtype)
    if left and vector:
        b = Complex(*(None if v is None else v[..., None] for v in (b.real, b.imaginary)))
    y = multilinear([a, b] if left else [b, a], np.matmul)
    if left and vector:
        y = Complex(y.real[..., 0], y.imag[..., 0])
    if "_ex" not in name:
        return y
    info = e.full(ten(0), ten(a.real).shape[:-2])
    return (y, y, info, info) if "aten._linalg" in name else (y, info)


@aten("aten.inverse.default", "aten.linalg_inv.default", "aten.linalg_inv_ex.default", complex=True)
def inverse(call: FxCall, x: Any, check_errors: bool = False) -> Any:
    """Invert matrices: the left half of the inverse of real ones of twice the size."""
    result = _inverse(call, pair(x))
    if "_ex" not in str(call.node.target):
        return result
    return result, e.full(ten(0), ten(pair(x).real).shape[:-2])


def _inverse(call: FxCall, x: Complex) -> Complex:
    n = call.static(call.shape_of(0)[-1:], "the size of the matrices")[0]
    rows = [np.concatenate([x.real, -x.imag], axis=-1), np.concatenate([x.imag, x.real], axis=-1)]
    y = np.linalg.inv(np.concatenate(rows, axis=-2))
    return Complex(y[..., :n, :n], y[..., n:, :n])

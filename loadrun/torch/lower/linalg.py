"""Matrix products and linear algebra."""

from itertools import pairwise
from typing import Any

import numpy as np

from ...layers import emit as e, nn as F
from ..call import FxCall, as_array, as_tensor, is_number
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size
from .reduce import norm


def _product(call: FxCall, a: Any, b: Any) -> Any:
    if call.dtype.kind == "f":
        return np.matmul(as_array(a, call.dtype), as_array(b, call.dtype))
    a, b = as_array(a, call.dtype), as_array(b, call.dtype)
    if a.ndim == 1 or b.ndim == 1:
        return as_array(np.matmul(a, b), call.dtype)
    # Sums of products of integers are exact this way; MegEngine multiplies matrices as floats.
    return as_array(np.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2), call.dtype)


@aten(
    *("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default"),
    "aten._int_mm.default",
)
def matmul(call: FxCall, a: Any, b: Any) -> Any:
    """Multiply matrices or stacks of them."""
    return _product(call, a, b)


@aten("aten.linear.default")
def linear(call: FxCall, x: Any, weight: Any, bias: Any = None) -> Any:
    """Compute ``x @ weight.T + bias``."""
    shape = call.shape_of(0)
    x, weight = as_tensor(x, call.dtype), as_tensor(weight, call.dtype)
    if len(shape) == 1 or len(call.shape_of(1)) == 1:
        result: Any = np.matmul(as_array(x), as_array(weight).T)
        return result if bias is None else result + as_array(bias, call.dtype)
    return F.linear(x, weight, None if bias is None else as_tensor(bias, call.dtype))


def _blended(call: FxCall, x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    product = product if is_number(alpha, 1) else product * as_array(alpha, call.dtype)
    if is_number(beta, 0):
        return product
    x = as_array(x, call.dtype)
    return product + (x if is_number(beta, 1) else x * as_array(beta, call.dtype))


@aten("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def addmm(call: FxCall, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Compute ``beta * x + alpha * a @ b``."""
    result = _blended(call, x, _product(call, a, b), beta, alpha)
    return e.broadcast(as_tensor(result), as_tensor(result).shape)


@aten("aten.addbmm.default")
def addbmm(call: FxCall, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Add the sum of a stack of products."""
    return _blended(call, x, np.sum(as_array(_product(call, a, b)), axis=0), beta, alpha)


@aten("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
def grouped_mm(
    call: FxCall, a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Multiply groups of rows, each by a matrix of its own, as in mixtures of experts.

    Groups end where the offsets say. Two stacks of matrices are multiplied one by one; of two matrices the sums are cut
    into groups, of a stack and a matrix the columns of the matrix.
    """
    if bias is not None:
        raise UnsupportedCallError("a grouped product with a bias; add it afterwards")
    stacks = len(call.shape_of(0)) == 3, len(call.shape_of(1)) == 3
    a, b = as_array(a, call.dtype), as_array(b, call.dtype)
    if all(stacks):
        return np.matmul(a, b)
    count = call.static(call.shape_of(2), "the number of groups")[0]
    ends = [as_size(as_tensor(as_array(offs, "int32")[i])) for i in range(count)]
    groups = [slice(start, end) for start, end in pairwise([0, *ends])]
    if not any(stacks):
        return np.stack([np.matmul(a[:, group], b[group]) for group in groups])
    if stacks[0]:
        parts = [np.matmul(a[i], b[:, group]) for i, group in enumerate(groups)]
        axis, total, other = 1, b.shape[1], a.shape[1]
    else:
        parts = [np.matmul(a[group], b[i]) for i, group in enumerate(groups)]
        axis, total, other = 0, a.shape[0], b.shape[2]
    # Rows of no group are zero.
    rest = (other, total - ends[-1]) if axis else (total - ends[-1], other)
    return e.concat([as_tensor(v) for v in (*parts, e.full(as_tensor(0, call.dtype), rest))], axis)


@aten("aten.einsum.default")
def einsum(call: FxCall, equation: str, operands: Any, path: Any = None) -> Any:
    """Compute an Einstein summation."""
    return np.einsum(equation.replace(" ", ""), *(as_array(x, call.dtype) for x in operands))


@aten("aten.bilinear.default", "aten._trilinear.default")
def bilinear(call: FxCall, a: Any, b: Any, weight: Any, bias: Any = None, *_: Any) -> Any:
    """Compute ``a @ weight[k] @ b`` for every k."""
    if "_trilinear" in str(call.node.target):
        raise UnsupportedCallError("use torch.nn.functional.bilinear or einsum")
    a, b, weight = (as_array(v, call.dtype) for v in (a, b, weight))
    result = np.einsum("...i,kij,...j->...k", a, weight, b)
    return result if bias is None else result + as_array(bias, call.dtype)


aten("aten.inverse.default", "aten.linalg_inv.default")(lambda call, x: np.linalg.inv(as_array(x)))


@aten("aten.linalg_inv_ex.default")
def inverse_ex(call: FxCall, x: Any, check_errors: bool = False) -> Any:
    """Invert matrices, which must be regular."""
    return np.linalg.inv(as_array(x)), e.full(as_tensor(0), as_tensor(x).shape[:-2])


@aten("aten.linalg_solve.default")
def solve(call: FxCall, a: Any, b: Any, *, left: bool = True) -> Any:
    """Multiply right-hand sides by the inverse of matrices."""
    a, b = as_array(a, call.dtype), as_array(b, call.dtype)
    if not left:
        return np.matmul(b, np.linalg.inv(a))
    vector = len(call.shape_of(1)) == 1 or (
        len(call.shape_of(1)) == len(call.shape_of(0)) - 1 and call.shape_of(1) == call.shape_of(0)[:-1]
    )
    result = np.matmul(np.linalg.inv(a), b[..., None] if vector else b)
    return result[..., 0] if vector else result


@aten("aten._linalg_solve_ex.default", "aten.linalg_solve_ex.default")
def solve_ex(call: FxCall, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """Multiply right-hand sides by the inverse of matrices; `_linalg_solve_ex` returns the factored matrix too."""
    result = solve(call, a, b, left=left)
    if "aten._linalg" not in str(call.node.target):
        return result, e.full(as_tensor(0), as_tensor(a).shape[:-2])
    if not any(u.args[1:] != (0,) for u in call.node.users):
        zero = as_tensor(np.int32(0))
        return result, zero, zero, zero
    raise UnsupportedCallError("MegEngine has no factorizations, so the factored matrix is not given")


@aten("aten.det.default", "aten.linalg_det.default")
def det(call: FxCall, x: Any) -> Any:
    """Compute the determinant, 1 for a matrix without elements."""
    if call.shape_of(0)[-1] == 0:
        return e.full(as_tensor(1, call.dtype), as_tensor(x).shape[:-2])
    if call.static(call.shape_of(0)[-1:], "a determinant")[0] <= 16:
        return np.linalg.det(as_array(x))
    raise UnsupportedCallError("a matrix of more than 16 rows, which would have to be factored")


@aten("aten.linalg_cross.default", "aten.cross.default")
def cross(call: FxCall, a: Any, b: Any, dim: Any = -1) -> Any:
    """Compute cross products of vectors of three elements."""
    a, b = as_array(a, call.dtype), as_array(b, call.dtype)
    if dim is None:
        dim = next(i for i, n in enumerate(call.shape_of(0)) if n == 3)
    return np.cross(a, b, axis=dim)


@aten("aten.pdist.default", "aten._pdist_forward.default")
def pdist(call: FxCall, x: Any, p: float = 2.0) -> Any:
    """Compute the distances of all pairs of different rows."""
    rows = call.static(call.shape_of(0)[:1], "the number of rows")[0]
    one, two = np.triu_indices(rows, 1)
    x = as_array(x, call.dtype)
    return cdist(
        call,
        np.take(x, one.astype(np.int32), axis=0)[:, None],
        np.take(x, two.astype(np.int32), axis=0)[:, None],
        p,
    )[:, 0, 0]


@aten("aten.cdist.default", "aten._cdist_forward.default", "aten._euclidean_dist.default")
def cdist(call: FxCall, a: Any, b: Any, p: float = 2.0, *_: Any) -> Any:
    """Compute the distances of all pairs of rows."""
    far = np.absolute(as_array(a, call.dtype)[..., :, None, :] - as_array(b, call.dtype)[..., None, :, :])
    return norm(far, p, lambda f, v: f(v, axis=-1))

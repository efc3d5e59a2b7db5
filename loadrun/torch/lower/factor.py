"""Factorizations of matrices: step by step for a fixed number of rows, because MegEngine has the SVD alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...build import emit as e
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..values import arr, ten

__all__ = ["LARGEST", "first_zero", "lu_factored", "lu_signed_logarithm", "transposed", "triangular_inverse"]

LARGEST = 64
"""The most rows that are factored step by step."""


def _sizes(call: FxCall, place: int = 0) -> tuple[int, int]:
    """Return rows and columns of an argument, which must be fixed.

    Raises:
        UnsupportedCallError: they are symbolic, or there are too many.
    """
    rows, columns = call.static(call.shape_of(place)[-2:], "a factorization")
    if min(rows, columns) > LARGEST:
        raise UnsupportedCallError(
            f"factorizations are unrolled up to {LARGEST} rows, found {rows} by {columns}; compute it outside"
        )
    return rows, columns


def transposed(x: Any) -> Any:
    """Return matrices with rows and columns exchanged."""
    return np.swapaxes(x, -1, -2)


def _column(x: Any, j: int) -> Any:
    return x[..., :, j : j + 1]


def _row(x: Any, j: int) -> Any:
    return x[..., j : j + 1, :]


def _down(rows: int) -> Any:
    """Return the row indices as a column."""
    return np.arange(rows, dtype=np.int32)[:, None]


def _identity(call: FxCall, like: Any, rows: int, columns: int) -> Any:
    """Build identity matrices, as many as a stack has."""
    shape = (*ten(like).shape[:-2], rows, columns)
    return arr(e.broadcast(ten(np.eye(rows, columns), call.dtype), shape))


# Cholesky


def _cholesky(call: FxCall, x: Any, upper: bool) -> tuple[Any, Any]:
    """Compute the lower (or upper) factor, and the number of the first nonpositive pivot, 0 without one."""
    rows, _ = _sizes(call)
    x = arr(x, call.dtype)
    if not rows:
        return x, e.full(ten(0), ten(x).shape[:-2])
    rest = transposed(x) if upper else x
    columns, bad = [], []
    for j in range(rows):
        pivot = rest[..., :1, :1]
        column = _column(rest, 0) / np.sqrt(pivot)
        columns.append(np.concatenate([x[..., :j, :1] * 0, column], axis=-2) if j else column)
        bad.append(~(pivot[..., 0] > 0))
        below = column[..., 1:, :]
        rest = rest[..., 1:, 1:] - below * transposed(below)
    factor = np.tril(np.concatenate(columns, axis=-1))
    wrong = arr(np.concatenate(bad, axis=-1), "int32")
    info = np.where(np.max(wrong, axis=-1) > 0, arr(np.argmax(wrong, axis=-1), "int32") + 1, 0)
    return transposed(factor) if upper else factor, arr(info, "int32")


@aten("aten.cholesky.default", "aten.linalg_cholesky.default")
def cholesky(call: FxCall, x: Any, upper: bool = False) -> Any:
    """Compute the factor of a positive definite matrix; NaN where it is not."""
    return _cholesky(call, x, upper)[0]


@aten("aten.linalg_cholesky_ex.default")
def cholesky_ex(call: FxCall, x: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    """Compute the factor of a positive definite matrix, and where it is not positive definite."""
    return _cholesky(call, x, upper)


@aten("aten.cholesky_solve.default")
def cholesky_solve(call: FxCall, b: Any, factor: Any, upper: bool = False) -> Any:
    """Multiply right-hand sides by the inverse of a Cholesky factor's matrix."""
    z = triangular_inverse(arr(factor, call.dtype), call.shape_of(1)[-1], upper)
    z = transposed(z) if upper else z
    return np.matmul(transposed(z), np.matmul(z, arr(b, call.dtype)))


@aten("aten.cholesky_inverse.default")
def cholesky_inverse(call: FxCall, factor: Any, upper: bool = False) -> Any:
    """Compute the inverse of a Cholesky factor's matrix."""
    z = triangular_inverse(arr(factor, call.dtype), call.shape_of(0)[-1], upper)
    z = transposed(z) if upper else z
    return np.matmul(transposed(z), z)


def triangular_inverse(x: Any, size: Any, upper: bool, unit: bool = False) -> Any:
    """Invert a triangular matrix, whose diagonal is 1 if `unit`.

    A small one of a fixed size is substituted row by row, with operators that ONNX has as well.
    """
    if isinstance(size, int) and 0 < size <= _SUBSTITUTED:
        return _substituted(x, size, upper, unit)
    x = np.triu(x) if upper else np.tril(x)
    if unit:
        rows = e.arange(ten(x).shape[-1])
        x = np.where(arr(rows)[:, None] == arr(rows)[None, :], np.float32(1), x)
    return np.linalg.inv(x)


_SUBSTITUTED = 16


def _substituted(x: Any, size: int, upper: bool, unit: bool) -> Any:
    one = np.eye(size, dtype=np.float32)
    rows: list[Any] = []
    for i in reversed(range(size)) if upper else range(size):
        row = np.zeros_like(x[..., i : i + 1, :]) + arr(one[i : i + 1], x.dtype)
        if rows:
            known = np.concatenate(rows[::-1] if upper else rows, axis=-2)
            row = row - np.matmul(x[..., i : i + 1, i + 1 :] if upper else x[..., i : i + 1, :i], known)
        rows.append(row if unit else row / x[..., i : i + 1, i : i + 1])
    return np.concatenate(rows[::-1] if upper else rows, axis=-2)


@aten("aten.linalg_solve_triangular.default")
def solve_triangular(
    call: FxCall, a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """Multiply right-hand sides by the inverse of a triangle, from the left or the right."""
    inverse = triangular_inverse(arr(a, call.dtype), call.shape_of(0)[-1], upper, unitriangular)
    b = arr(b, call.dtype)
    return np.matmul(inverse, b) if left else np.matmul(b, inverse)


@aten("aten.triangular_solve.default")
def triangular_solve(
    call: FxCall, b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """Solve as `solve_triangular` does, in its older form, which returns the triangle too."""
    inverse = triangular_inverse(arr(a, call.dtype), call.shape_of(1)[-1], upper, unitriangular)
    x = np.matmul(transposed(inverse) if transpose else inverse, arr(b, call.dtype))
    shape = e.broadcast_shape([ten(x), ten(x)])
    return x, e.broadcast(ten(a, call.dtype), (*shape[:-2], *ten(a).shape[-2:]))


# LU


def lu_factored(call: FxCall, x: Any, pivot: bool = True) -> tuple[Any, Any, Any]:
    """Compute both triangles in one matrix as in LAPACK, the rows exchanged, counted from 1, and the order.

    Among equal largest elements of a column the first is the pivot.
    """
    rows, columns = _sizes(call)
    x = arr(x, call.dtype)
    down, across = _down(rows), np.arange(columns, dtype=np.int32)
    order = arr(e.broadcast(ten(down), (*ten(x).shape[:-2], rows, 1)))
    chosen = []
    for j in range(min(rows, columns)):
        place = np.full_like(order[..., :1, :], j)
        if pivot:
            size = np.absolute(_column(x, j)[..., j:, :])
            place = arr(np.argmax(size, axis=-2, keepdims=True), "int32") + j
            swap = np.where(down == j, place, np.where(down == place, np.int32(j), down))
            x = np.take_along_axis(x, swap, axis=-2)
            order = np.take_along_axis(order, swap, axis=-2)
        chosen.append(place[..., 0] + 1)
        divisor = x[..., j : j + 1, j : j + 1]
        divisor = np.where(divisor == 0, np.float32(1), divisor)
        factor = np.where(down > j, _column(x, j) / divisor, np.float32(0))
        step = x - factor * np.where(across > j, _row(x, j), np.float32(0))
        x = np.where((down > j) & (across == j), factor, step)
    if not chosen:
        return x, order[..., :0, 0], order[..., 0]
    return x, np.concatenate(chosen, axis=-1), order[..., 0]


def _triangles(call: FxCall, lu: Any, rows: int, columns: int) -> tuple[Any, Any]:
    k = min(rows, columns)
    lower = np.tril(lu[..., :, :k], -1) + _identity(call, lu, rows, k)
    return lower, np.triu(lu[..., :k, :])


def _permutation(call: FxCall, order: Any, rows: int) -> Any:
    """Build the matrix that puts permuted rows back."""
    return arr(order[..., None, :] == np.arange(rows, dtype=np.int32)[:, None], call.dtype)


def _order(pivots: Any, rows: int, count: int) -> Any:
    """Compute the order of rows after all exchanges."""
    down = np.arange(rows, dtype=np.int32)
    pivots = arr(pivots, "int32")
    order = arr(e.broadcast(ten(down), (*ten(pivots).shape[:-1], rows)))
    for j in range(count):
        place = pivots[..., j : j + 1] - 1
        swap = np.where(down == j, place, np.where(down == place, np.int32(j), down))
        order = np.take_along_axis(order, arr(swap, "int32"), axis=-1)
    return order


def first_zero(call: FxCall, lu: Any) -> Any:
    """Return the number of the first pivot that is 0, counted from 1; 0 without one."""
    zero = arr(np.diagonal(lu, 0, -2, -1) == 0, "int32")
    return arr(np.where(np.max(zero, axis=-1) > 0, arr(np.argmax(zero, axis=-1), "int32") + 1, 0), "int32")


@aten("aten.linalg_lu_factor_ex.default")
def lu_factor_ex(call: FxCall, x: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """Compute both triangles in one matrix, the exchanges of rows, and which pivot is 0."""
    lu, chosen, _ = lu_factored(call, x, pivot)
    info = first_zero(call, lu) if 0 not in call.shape_of(0)[-2:] else e.full(ten(0), ten(lu).shape[:-2])
    return lu, chosen, info


@aten("aten.linalg_lu.default")
def lu(call: FxCall, x: Any, *, pivot: bool = True) -> Any:
    """Compute a permutation, and the lower and the upper triangle."""
    rows, columns = _sizes(call)
    factors, _, order = lu_factored(call, x, pivot)
    lower, upper = _triangles(call, factors, rows, columns)
    permutation = _permutation(call, order, rows) if pivot else ten(np.zeros(0), call.dtype)
    return permutation, lower, upper


@aten("aten.lu_unpack.default")
def lu_unpack(
    call: FxCall, data: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """Unpack a permutation and the two triangles from one matrix that holds both."""
    rows, columns = _sizes(call)
    none = ten(np.zeros(0), call.dtype)
    order = _order(pivots, rows, min(rows, columns)) if unpack_pivots else None
    permutation = none if order is None else _permutation(call, order, rows)
    if not unpack_data:
        return permutation, none, none
    return permutation, *_triangles(call, arr(data, call.dtype), rows, columns)


@aten("aten.linalg_lu_solve.default")
def lu_solve(
    call: FxCall, data: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False
) -> Any:
    """Multiply right-hand sides by the inverse of a factored matrix."""
    rows, _ = _sizes(call)
    data = arr(data, call.dtype)
    lower = triangular_inverse(data, rows, False, True)
    upper = triangular_inverse(data, rows, True)
    turned = transposed(_permutation(call, _order(pivots, rows, rows), rows))
    inverse = np.matmul(upper, np.matmul(lower, turned))
    inverse = transposed(inverse) if adjoint else inverse
    b = arr(b, call.dtype)
    return np.matmul(inverse, b) if left else np.matmul(b, inverse)


def lu_signed_logarithm(lu: Any, chosen: Any) -> tuple[Any, Any]:
    """Compute sign, and logarithm of the magnitude, of the determinant of a factored matrix."""
    diagonal = np.diagonal(lu, 0, -2, -1)
    count = diagonal.shape[-1]
    swaps = np.sum(arr(chosen != arr(e.arange(count)) + 1, "int32"), axis=-1)
    sign = arr(1 - 2 * (swaps % 2), lu.dtype) * np.prod(np.sign(diagonal), axis=-1)
    return sign, np.sum(np.log(np.absolute(diagonal)), axis=-1)


@aten("aten._linalg_slogdet.default")
def slogdet(call: FxCall, x: Any) -> Any:
    """Compute sign of the determinant, logarithm of its magnitude, and the factored matrix."""
    lu, chosen, _ = lu_factored(call, x)
    if call.shape_of(0)[-1] == 0:
        one = e.full(ten(1, call.dtype), ten(lu).shape[:-2])
        return one, arr(one) - 1, lu, chosen
    sign, size = lu_signed_logarithm(lu, chosen)
    return sign, size, lu, chosen


@aten("aten.linalg_slogdet.default", "aten.slogdet.default")
def slogdet_alone(call: FxCall, x: Any) -> Any:
    """Compute sign of the determinant, and logarithm of its magnitude."""
    return slogdet(call, x)[:2]


@aten("aten.logdet.default")
def logdet(call: FxCall, x: Any) -> Any:
    """Compute the logarithm of the determinant; NaN for a negative one."""
    sign, size = slogdet(call, x)[:2]
    return np.where(arr(sign) < 0, np.float32(np.nan), size)


# QR


def _reflections(call: FxCall, x: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """Compute the upper triangle, and each reflection as a vector and a factor, by LAPACK's signs."""
    rows, columns = _sizes(call)
    x = arr(x, call.dtype)
    down = _down(rows)
    reflections = []
    for j in range(min(rows, columns)):
        column = _column(x, j)
        below = np.where(down > j, column, np.float32(0))
        head = x[..., j : j + 1, j : j + 1]
        rest = np.sum(below * below, axis=-2, keepdims=True)
        flat = rest == 0
        length = np.sqrt(head * head + rest)
        beta = np.where(flat, head, np.where(head < 0, length, -length))
        safe = np.where(beta == 0, np.float32(1), beta)
        factor = np.where(flat, np.float32(0), (beta - head) / safe)
        vector = below / np.where(flat, np.float32(1), head - beta) + (down == j).astype(np.float32)
        x = x - factor * vector * np.sum(vector * x, axis=-2, keepdims=True)
        reflections.append((vector, factor))
    return x, reflections


def _reflected(x: Any, reflections: list[tuple[Any, Any]], left: bool) -> Any:
    """Apply reflections to a matrix one after the other, from the left or from the right."""
    for vector, factor in reflections:
        if left:
            x = x - factor * vector * np.sum(vector * x, axis=-2, keepdims=True)
        else:
            x = x - factor * transposed(vector) * np.sum(x * transposed(vector), axis=-1, keepdims=True)
    return x


@aten("aten.linalg_qr.default", "aten.qr.default")
def qr(call: FxCall, x: Any, mode: Any = "reduced") -> Any:
    """Compute an orthogonal and an upper triangular matrix."""
    rows, columns = _sizes(call)
    if not isinstance(mode, str):
        mode = "reduced" if mode else "complete"
    upper, reflections = _reflections(call, x)
    k = rows if mode == "complete" else min(rows, columns)
    upper = np.triu(upper[..., :k, :])
    if mode == "r":
        return ten(np.zeros(0), call.dtype), upper
    return _reflected(_identity(call, arr(x), rows, k), reflections[::-1], True), upper


@aten("aten.geqrf.default")
def geqrf(call: FxCall, x: Any) -> Any:
    """Compute the upper triangle with the vectors of the reflections below it, and their factors."""
    rows, columns = _sizes(call)
    upper, reflections = _reflections(call, x)
    result = np.triu(upper)
    if not reflections:
        return result, arr(x, call.dtype)[..., :0, :].reshape((*ten(x).shape[:-2], 0))
    vectors = np.concatenate([v for v, _ in reflections], axis=-1)
    if columns > rows:
        vectors = np.concatenate([vectors, _identity(call, arr(x), rows, columns - rows) * 0], axis=-1)
    factors = np.concatenate([f[..., 0] for _, f in reflections], axis=-1)
    return result + np.tril(vectors, -1), factors


def _stored_reflections(call: FxCall, x: Any, factors: Any, rows: int) -> list[tuple[Any, Any]]:
    """Read the reflections from the results of `geqrf`."""
    count = call.static(call.shape_of(1)[-1:], "the number of reflections")[0]
    x, factors = arr(x, call.dtype), arr(factors, call.dtype)
    down = _down(rows)
    result = []
    for j in range(count):
        vector = np.where(down > j, _column(x, j), (down == j).astype(np.float32))
        result.append((vector, factors[..., None, j : j + 1]))
    return result


@aten("aten.linalg_householder_product.default", "aten.orgqr.default")
def householder_product(call: FxCall, x: Any, factors: Any) -> Any:
    """Compute the first columns of a product of reflections."""
    rows, columns = _sizes(call)
    reflections = _stored_reflections(call, x, factors, rows)
    return _reflected(_identity(call, arr(x), rows, columns), reflections[::-1], True)


@aten("aten.ormqr.default")
def ormqr(call: FxCall, x: Any, factors: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
    """Multiply a matrix by a product of reflections, from the left or from the right."""
    rows = call.static(call.shape_of(0)[-2:-1], "a factorization")[0]
    reflections = _stored_reflections(call, x, factors, rows)
    return _reflected(arr(other, call.dtype), reflections[::-1] if left != transpose else reflections, left)


# Singular values


def _nothing(call: FxCall) -> tuple[Any, ...] | None:
    """Return empty results if none of them has elements, else None."""
    fakes = call.fake if isinstance(call.fake, (tuple, list)) else (call.fake,)
    if any(all(n != 0 for n in f.shape) for f in fakes):
        return None
    return tuple(e.full(ten(0, call.dtype), call.static(f.shape, "a factorization")) for f in fakes)


@aten("aten._linalg_svd.default")
def svd(
    call: FxCall, x: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None
) -> Any:
    """Compute singular vectors and values; the signs of the vectors are MegEngine's."""
    if (empty := _nothing(call)) is not None:
        return empty
    x = arr(x, call.dtype)
    if not compute_uv:
        none = ten(np.zeros(0), call.dtype)
        return none, np.linalg.svd(x, compute_uv=False), none
    if full_matrices and str(call.shape_of(0)[-2]) != str(call.shape_of(0)[-1]):
        raise UnsupportedCallError(
            "all singular vectors of matrices that are not square; give full_matrices=False"
        )
    # MegEngine's CPU has no other form.
    return np.linalg.svd(x, False)


@aten("aten.linalg_svdvals.default")
def svdvals(call: FxCall, x: Any, *, driver: Any = None) -> Any:
    """Compute singular values."""
    if (empty := _nothing(call)) is not None:
        return empty[0]
    return np.linalg.svd(arr(x, call.dtype), compute_uv=False)


@aten("aten._linalg_eigh.default")
def eigh(call: FxCall, x: Any, half: str = "L", compute_v: bool = True) -> Any:
    """Compute eigenvalues of symmetric matrices in rising order, and eigenvectors, whose signs are MegEngine's.

    They are the singular values of the matrix with so much added to its diagonal that none is negative.
    """
    if (empty := _nothing(call)) is not None:
        return empty
    x = arr(x, call.dtype)
    triangle, strict = (np.tril(x), np.tril(x, -1)) if half.upper() == "L" else (np.triu(x), np.triu(x, 1))
    x = triangle + transposed(strict)
    rows = arr(e.arange(ten(x).shape[-1]))
    size = np.max(np.sum(np.absolute(x), axis=-1, keepdims=True), axis=-2, keepdims=True)
    shifted = x + np.where(rows[:, None] == rows[None, :], size, np.float32(0))
    if not compute_v:
        values = np.linalg.svd(shifted, compute_uv=False)
        return np.flip(values - size[..., 0], (-1,)), ten(np.zeros(0), call.dtype)
    vectors, values, _ = np.linalg.svd(shifted, False)
    return np.flip(values - size[..., 0], (-1,)), np.flip(vectors, (-1,))


@aten("aten.linalg_pinv.atol_rtol_tensor")
def pinv(call: FxCall, x: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """Compute the pseudo-inverse from the singular values that are not tiny."""
    rows, columns = call.shape_of(0)[-2:]
    x = arr(x, call.dtype)
    if 0 in (rows, columns):
        return transposed(x)
    if hermitian:
        x = np.tril(x) + transposed(np.tril(x, -1))
    u, s, vh = np.linalg.svd(x, False)
    size = np.max(s, axis=-1, keepdims=True)
    floor = np.float32(0) if atol is None else arr(atol, call.dtype)[..., None]
    if rtol is not None:
        share = arr(rtol, call.dtype)[..., None]
    else:
        longest = call.static([rows, columns], "a pseudo-inverse without rtol")
        default = arr(max(longest) * float(np.finfo(call.dtype).eps), call.dtype)
        share = default if atol is None else np.where(floor > 0, np.float32(0), default)
    keep = s > np.maximum(floor, share * size)
    inverse = np.where(keep, 1 / np.where(keep, s, np.float32(1)), np.float32(0))
    return np.matmul(transposed(vh) * inverse[..., None, :], transposed(u))


_TERMS = 18
_HALVINGS = 16


@aten("aten.linalg_matrix_exp.default", "aten.matrix_exp.default")
def matrix_exp(call: FxCall, x: Any) -> Any:
    """Compute the exponential: a series of the matrix halved until it is small, then squared as often."""
    rows = call.static(call.shape_of(0)[-1:], "the exponential of a matrix")[0]
    x = arr(x, call.dtype)
    if not rows:
        return x
    size = np.max(np.sum(np.absolute(x), axis=-1, keepdims=True), axis=-2, keepdims=True)
    # Beyond 2 ** 16 its exponential overflows or vanishes in float32 in nearly every case.
    halvings = np.clip(np.ceil(np.log2(np.maximum(size, np.float32(1e-30)))) - 1, 0, _HALVINGS)
    small = x / np.exp2(halvings)
    one = _identity(call, x, rows, rows)
    result = one
    for i in range(_TERMS, 0, -1):
        result = one + np.matmul(small, result) / np.float32(i)
    for i in range(_HALVINGS):
        result = np.where(halvings > i, np.matmul(result, result), result)
    return result

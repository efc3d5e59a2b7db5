"""Singular value decomposition whose singular vectors have MegEngine's signs.

Singular vectors are determined up to a common sign of each pair, and which sign comes out depends on the algorithm.
MegEngine's CPU kernel makes the matrix bidiagonal by Householder reflections and then diagonal by Givens rotations
(Golub and Kahan); so does this module for small matrices, in double precision. Larger ones go to LAPACK.
"""

from math import hypot, sqrt

import numpy as np

from ...graph.dtypes import Array

_LARGEST = 64
"""Matrices with a smaller side above this go to LAPACK, which is faster; their signs are LAPACK's."""
_EPS = 64 * 2.0**-24
_NONE = 1e-7
"""Norms below this are taken for zero."""


def decompose(x: Array, full_matrices: bool, compute_uv: bool) -> tuple[Array, ...]:
    """Return u, s and vt of every matrix in a float32 or float64 stack, or s alone, largest singular value first.

    Raises:
        ValueError: the input holds NaN or infinity.

    >>> u, s, vt = decompose(np.array([[3.0, 0.0], [0.0, -2.0]], "f4"), False, True)
    >>> s.tolist(), (u * s @ vt).round(5).tolist()
    ([3.0, 2.0], [[3.0, 0.0], [0.0, -2.0]])
    """
    if not np.isfinite(x).all():
        raise ValueError("SVD of a matrix that holds NaN or infinity")
    m, n = x.shape[-2:]
    if not compute_uv:
        return (np.linalg.svd(x, compute_uv=False),)
    if full_matrices or not x.size or min(m, n) > _LARGEST:
        return tuple(np.linalg.svd(x, full_matrices=full_matrices))
    k = min(m, n)
    flat = x.reshape(-1, m, n)
    u = np.empty((len(flat), m, k), x.dtype)
    s = np.empty((len(flat), k), x.dtype)
    vt = np.empty((len(flat), k, n), x.dtype)
    for i, matrix in enumerate(flat):
        u[i], s[i], vt[i] = _one(matrix.astype(np.float64))
    lead = x.shape[:-2]
    return u.reshape(*lead, m, k), s.reshape(*lead, k), vt.reshape(*lead, k, n)


def _one(x: Array) -> tuple[Array, Array, Array]:
    wide = x.shape[0] < x.shape[1]
    b = x.T.copy() if wide else x.copy()
    rows, k = b.shape
    u, v = np.eye(rows), np.eye(k)
    _bidiagonal(u, b, v)
    if not _diagonal(u, b, v):
        factors = np.linalg.svd(x, full_matrices=False)
        return factors[0], factors[1], factors[2]
    values = np.diagonal(b)
    order = np.lexsort((np.arange(k), np.abs(values)))[::-1]
    sign = np.where(values[order] < 0, -1.0, 1.0)
    left, right = u[:, order], v[order]
    if wide:
        return right.T * sign, np.abs(values[order]), left.T
    return left * sign, np.abs(values[order]), right


def _reflector(x: Array) -> Array:
    """Return the Householder vector that maps `x` onto its first axis, scaled to make ``I - h h'`` the reflection."""
    norm = float(x @ x)
    inverse = 1 / sqrt(norm) if norm > _NONE else norm
    alpha = sqrt(1 + abs(float(x[0])) * inverse)
    beta = inverse / alpha
    if inverse < _NONE:
        alpha = 0.0
    h = -beta * x if x[0] >= 0 else beta * x
    h[0] = -alpha
    return h


def _bidiagonal(u: Array, b: Array, v: Array) -> None:
    k = b.shape[1]
    for i in range(k):
        h = _reflector(b[i:, i])
        b[i:, i:] -= np.outer(h, h @ b[i:, i:])
        u[:, i:] -= np.outer(u[:, i:] @ h, h)
        if i < k - 1:
            h = _reflector(b[i, i + 1 :])
            b[i:, i + 1 :] -= np.outer(b[i:, i + 1 :] @ h, h)
            v[i + 1 :] -= np.outer(h, h @ v[i + 1 :])


def _rotate(x: Array, y: Array, a: float, b: float) -> None:
    """Rotate two rows (or columns) in place by the angle that takes ``(a, b)`` to ``(r, 0)``."""
    r = hypot(a, b)
    if r < _NONE:
        return
    c, s = a / r, b / r
    first = c * x + s * y
    y *= c
    y -= s * x
    x[...] = first


def _diagonal(u: Array, b: Array, v: Array) -> bool:
    """Run QR sweeps until the superdiagonal vanishes; False when that takes too long."""
    k = b.shape[1]
    first, sweeps = 0, 0
    while first < k - 1:
        limit = _EPS * max(0.0, float(np.diagonal(b).max()))
        while first < k - 1 and abs(b[first, first + 1]) <= limit:
            first += 1
        if first == k - 1:
            break
        sweeps += 1
        if sweeps > 60 * k:
            return False
        end = first + 2
        while end < k and abs(b[end - 1, end]) > limit:
            end += 1
        alpha, beta = _shift(b, first, end)
        for i in range(first, end - 1):
            _rotate(b[:, i], b[:, i + 1], alpha, beta)
            _rotate(v[i], v[i + 1], alpha, beta)
            alpha, beta = float(b[i, i]), float(b[i + 1, i])
            _rotate(b[i], b[i + 1], alpha, beta)
            _rotate(u[:, i], u[:, i + 1], alpha, beta)
            if i + 2 < k:
                alpha, beta = float(b[i, i + 1]), float(b[i, i + 2])
        keep = np.diagonal(b).copy(), np.diagonal(b, 1).copy()
        keep[1][np.abs(keep[1]) <= limit] = 0
        b[...] = 0
        np.fill_diagonal(b, keep[0])
        np.fill_diagonal(b[:, 1:], keep[1])
    return True


def _shift(b: Array, first: int, end: int) -> tuple[float, float]:
    """Return a sweep's first rotation, from the eigenvalue of the last 2 by 2 block that lies nearer to its corner."""
    p, q = float(b[first, first]), float(b[first, first + 1])
    if end - first == 2 and abs(p) < _NONE and abs(b[first + 1, first + 1]) < _NONE:
        return 0.0, 1.0
    above = float(b[end - 3, end - 2]) if end - first > 2 else 0.0
    d0, e, d1 = float(b[end - 2, end - 2]), float(b[end - 2, end - 1]), float(b[end - 1, end - 1])
    c00, c01, c11 = d0 * d0 + above * above, d0 * e, d1 * d1 + e * e
    middle, spread = (c00 + c11) / 2, hypot((c00 - c11) / 2, c01)
    low, high = middle - spread, middle + spread
    mu = high if abs(high - c11) < abs(low - c11) else low
    return p * p - mu, p * q

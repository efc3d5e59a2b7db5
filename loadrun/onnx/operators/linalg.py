"""Matrix products and operators built from them."""

from collections.abc import Sequence
from math import prod
from typing import Any

from ...arrays.names import kernel, np
from ...graph.composite import Flag
from ...graph.dtypes import Array
from . import operator
from .activations import activation_of
from .common import refuse_unless, taking
from .kernels import broadcast_shapes, int_matmul, matrix_product

__all__ = ["bounded_by", "integer_product", "matmul", "product_shape"]

CONTRIB = "com.microsoft"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def product_shape(x: Array, y: Array, *rest: Array | None) -> tuple[int, ...]:
    """Return the shape of ``x @ y``.

    Raises:
        ValueError: the shapes do not fit.
    """
    if not x.ndim or not y.ndim:
        raise ValueError("a factor is a scalar")
    if x.shape[-1] != y.shape[-2 if y.ndim > 1 else 0]:
        raise ValueError(f"shapes {list(x.shape)} and {list(y.shape)} do not fit together")
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return (*lead, *x.shape[-2:-1], *(y.shape[-1:] if y.ndim > 1 else ()))


@operator("MatMul", shape=product_shape)
@kernel
def matmul(x: Array, y: Array) -> Array:
    """Multiply matrices, or stacks of them, with numpy's broadcasting."""
    shape = product_shape(x, y)
    if y.ndim == 2 < x.ndim and x.dtype.kind == "f":
        # One long product is faster than many.
        return matrix_product(x.reshape(prod(x.shape[:-1]), x.shape[-1]), y).reshape(shape)
    return matrix_product(x, y) if x.ndim == y.ndim == 2 else np.matmul(x, y)


def _turned(x: Array, matrix: int, batch: int = 0) -> Array:
    """Swap the axes of matrices; before, move the first axis after the other ones of a stack."""
    if batch and x.ndim > 2:
        x = np.moveaxis(x, 0, -2)
    return x.swapaxes(-2, -1) if matrix and x.ndim > 1 else x


def _sides(
    x: Array,
    y: Array,
    *,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
    **others: object,
) -> tuple[Array, Array]:
    return _turned(x, transA, transBatchA), _turned(y, transB, transBatchB)


def _fused_shape(x: Array, y: Array, **turns: Any) -> tuple[int, ...]:
    return product_shape(*_sides(x, y, **turns))


_TURNS = {"transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0}


@operator("FusedMatMul", "TransposeMatMul", domain=CONTRIB, shape=_fused_shape)
@taking(**_TURNS)
def fused_matmul(x: Array, y: Array, *, alpha: float = 1.0, **turns: Any) -> Array:
    """Multiply matrices that may be transposed, and the product by a number."""
    result = matmul(*_sides(x, y, **turns))
    return result if alpha == 1.0 else result * alpha


@operator("FusedMatMulActivation", domain=CONTRIB, shape=_fused_shape)
@taking(alpha=1.0, **_TURNS)
def fused_matmul_activation(
    x: Array,
    y: Array,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    **turns: Any,
) -> Array:
    """Multiply matrices that may be transposed, then apply an activation."""
    return activation_of(activation, activation_alpha, activation_beta)(fused_matmul(x, y, **turns))


_GEMM = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}


def gemm_shape(
    a: Array, b: Array, c: Array | None = None, *, transA: Flag = 0, transB: Flag = 0, **others: object
) -> tuple[int, ...]:
    refuse_unless(a.ndim == b.ndim == 2, f"its factors have {a.ndim} and {b.ndim} axes, expected matrices")
    shape = product_shape(_turned(a, transA), _turned(b, transB))
    if c is not None:
        fits = bounded_by(c.shape, shape)
        refuse_unless(fits, f"a term of shape {list(c.shape)} does not broadcast to {list(shape)}")
    return shape


def bounded_by(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Return whether a shape broadcasts to a whole one and leaves it as it is."""
    tail = whole[len(whole) - len(shape) :]
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in zip(shape, tail, strict=True))


@operator("Gemm", since=7, shape=gemm_shape)
def gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: Flag = 0,
    transB: Flag = 0,
) -> Array:
    """Compute alpha * a @ b + beta * c."""
    gemm_shape(a, b, c, transA=transA, transB=transB)
    y = matmul(_turned(a, transA), _turned(b, transB))
    if alpha != 1.0:
        y = (y * alpha).astype(y.dtype, copy=False)
    if c is None or beta == 0.0:
        return y
    return y + (c if beta == 1.0 else (c * beta).astype(c.dtype, copy=False))


@operator("Gemm", shape=gemm_shape)
@taking(broadcast=0, **_GEMM)
def gemm_1(a: Array, b: Array, c: Array, **how: Any) -> Array:
    """Compute alpha * a @ b + beta * c."""
    how.pop("broadcast", None)
    return gemm(a, b, c, **how)


@operator("FusedGemm", domain=CONTRIB, shape=gemm_shape)
@taking(**_GEMM)
def fused_gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    **how: Any,
) -> Array:
    """Compute alpha * a @ b + beta * c, then an activation."""
    y = gemm(a, b, c, **how)
    return activation_of(activation, activation_alpha, activation_beta)(y) if activation else y


# Einstein summation


def _terms(equation: str, xs: Sequence[Array]) -> tuple[list[str], str]:
    """Return one letter per axis for every operand and the result, without an ellipsis."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(xs):
        raise ValueError(f"its equation {equation!r} names {len(terms)} operands, found {len(xs)}")
    free = [c for c in _LETTERS if c not in text]
    depths = [x.ndim - len(t) + 3 if "..." in t else 0 for t, x in zip(terms, xs, strict=True)]
    dots = "".join(free[: max(depths)])
    terms = [t.replace("...", dots[len(dots) - n :]) for t, n in zip(terms, depths, strict=True)]
    if any(len(t) != x.ndim for t, x in zip(terms, xs, strict=True)):
        raise ValueError(f"its equation {equation!r} does not name the axes of {[list(x.shape) for x in xs]}")
    result = right.replace("...", dots)
    if not arrow:
        letters = "".join(terms)
        result = dots + "".join(sorted(c for c in set(letters) - set(dots) if letters.count(c) == 1))
    if len(set(result)) < len(result) or not set(result) <= set("".join(terms)):
        raise ValueError(f"its equation {equation!r} has results that no operand has, or one twice")
    return terms, result


def _einsum_shape(*xs: Array, equation: str) -> tuple[int, ...]:
    terms, result = _terms(equation, xs)
    sizes = _sizes(terms, xs)
    return tuple(sizes[c] for c in result)


def _sizes(terms: Sequence[str], xs: Sequence[Array]) -> dict[str, int]:
    """Return the size of every letter's axis; one of 1 stretches."""
    sizes: dict[str, int] = {}
    for term, x in zip(terms, xs, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            have = sizes.setdefault(letter, n)
            if n != have != 1 != n:
                raise ValueError(f"axes of {have} and {n} elements have one letter in its equation")
            sizes[letter] = n if have == 1 else have
    return sizes


@operator("Einsum", since=12, shape=_einsum_shape)
def einsum(*xs: Array, equation: str) -> Array:
    """Sum products of elements as an equation names their axes."""
    terms, result = _terms(equation, xs)
    _sizes(terms, xs)
    if len(xs) == 2 and all(len(set(t)) == len(t) for t in terms):
        return _contracted(xs[0], xs[1], terms[0], terms[1], result)
    return np.einsum(f"{','.join(terms)}->{result}", *xs, optimize=len(xs) > 2)


def _contracted(x: Array, y: Array, left: str, right: str, result: str) -> Array:
    """Contract two operands by one product of stacks of matrices."""
    shared, both = set(left) & set(right), set(left + right)
    x, left = _without(x, left, both - set(right) - set(result))
    y, right = _without(y, right, both - set(left) - set(result) - shared)
    lead = [c for c in left if c in shared and c in result]
    inner = [c for c in left if c in shared and c not in result]
    rows, columns = ([c for c in t if c not in shared] for t in (left, right))
    sizes = _sizes((left, right), (x, y))

    def stacked(v: Array, term: str, *groups: list[str]) -> Array:
        axes = [c for group in groups for c in group]
        v = v.transpose([term.index(c) for c in axes])
        if any(n != sizes[c] for n, c in zip(v.shape, axes, strict=True)):
            v = np.broadcast_to(v, [sizes[c] for c in axes])
        return v.reshape([*(sizes[c] for c in groups[0]), *(prod(sizes[c] for c in g) for g in groups[1:])])

    y = matmul(stacked(x, left, lead, rows, inner), stacked(y, right, lead, inner, columns))
    order = [*lead, *rows, *columns]
    return y.reshape([sizes[c] for c in order]).transpose([order.index(c) for c in result])


def _without(x: Array, term: str, letters: set[str]) -> tuple[Array, str]:
    """Sum over the axes that nothing else needs."""
    gone = tuple(i for i, c in enumerate(term) if c in letters)
    if not gone:
        return x, term
    return x.sum(gone, dtype=x.dtype), "".join(c for c in term if c not in letters)


# Integers


@kernel
def integer_product(x: Array, y: Array, x_zero: Array | None = None, y_zero: Array | None = None) -> Array:
    """Multiply 8-bit matrices without their zero points, exact in int32; those per row of `x` are a vector."""
    if x_zero is not None and x_zero.ndim == 1 and x_zero.shape[0] != 1:
        x_zero = x_zero[:, None]
    shape = product_shape(x, y)
    a, b = less(x, x_zero), less(y, y_zero)
    a, b = a if x.ndim > 1 else a[None], b if y.ndim > 1 else b[:, None]
    if 0 in (*a.shape, *b.shape):
        return np.zeros(shape, np.int32)
    return int_matmul(a, b, np.int32).reshape(shape)


def less(x: Array, zero: Array | None) -> Array:
    """Subtract a zero point from 8-bit numbers: int16."""
    wide = x.astype(np.int16)
    return wide if zero is None else wide - zero.astype(np.int16)


@operator("MatMulInteger", since=10, out=("Int32",), shape=product_shape)
def matmul_integer(
    a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None
) -> Array:
    """Multiply 8-bit matrices without their zero points in int32."""
    return integer_product(a, b, a_zero_point, b_zero_point)


# Square matrices


def _square(x: Array) -> tuple[int, ...]:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"its input is {list(x.shape)}, expected square matrices")
    return x.shape


@operator("Det", since=11, shape=lambda x: _square(x)[:-2])
def det(x: Array) -> Array:
    """Compute determinants."""
    _square(x)
    return np.linalg.det(x)


@operator("Inverse", domain=CONTRIB, shape=_square)
def inverse(x: Array) -> Array:
    """Invert matrices."""
    _square(x)
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError as e:
        raise ValueError(f"a matrix to invert is singular, shape {list(x.shape)}") from e

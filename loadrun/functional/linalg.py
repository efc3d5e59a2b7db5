"""Products, inverses, norms and decompositions of MegEngine's functional package."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .. import params as P
from ..imperative import Tensor, apply, apply1, as_tensor, convert, elemwise
from ..imperative.promotion import operands

__all__ = ["cross", "dot", "matinv", "matmul", "norm", "normalize", "svd"]

_M = P.ElemwiseMode
_MODES = {"default": P.MatrixMulComputeMode.DEFAULT, "float32": P.MatrixMulComputeMode.FLOAT32}


def matmul(
    inp1: Any, inp2: Any, transpose_a: bool = False, transpose_b: bool = False, compute_mode: str = "default"
) -> Tensor:
    """The product of matrices, vectors, or stacks of matrices.

    Two vectors give their dot product; a vector counts as a row on the left and as a column on the right, and its
    axis is dropped from the result. Leading axes are those of stacks and broadcast.

    Args:
        inp1: a tensor or an array of at least one dimension.
        inp2: another one. Both are promoted to one dtype; int8 gives int32.
        transpose_a: whether the last two axes of `inp1` change places first.
        transpose_b: the same of `inp2`.
        compute_mode: "float32" adds up float16 products in float32, "default" as MegEngine's CPU kernel does.

    Raises:
        AssertionError: an operand is a scalar.
        EngineError: the inner sizes differ, or there is no product of this dtype.
        ValueError: the compute mode is neither of the two.

    >>> matmul(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0])).tolist()
    [21.0, 43.0]
    """
    mode = _MODES.get(compute_mode.lower())
    if mode is None:
        raise ValueError(f"compute_mode must be one of {', '.join(_MODES)}, found {compute_mode!r}")
    a, b = operands((inp1, inp2))
    na, nb = a.ndim, b.ndim
    if not na or not nb:
        raise AssertionError(
            "matmul takes tensors of at least one dimension, found a scalar; multiply instead"
        )
    if not (a._dtype.is_quantized and b._dtype.is_quantized):
        a, b = convert(a, b)
    if na == 1 and nb == 1:
        return dot(a, b)
    a = a.reshape(1, -1) if na == 1 else a
    b = b.reshape(-1, 1) if nb == 1 else b
    param = P.MatrixMul(transposeA=transpose_a, transposeB=transpose_b, compute_mode=mode)
    y = _plain(param, a, b) if nb <= 2 and (na <= 2 or not transpose_a) else _stacked(param, a, b)
    # The axis that a vector got for the product goes again.
    return _dropped(y, -2) if na == 1 else _dropped(y, -1) if nb == 1 else y


def _dropped(x: Tensor, axis: int) -> Tensor:
    from .tensor import squeeze

    return squeeze(x, axis)


def _plain(param: P.MatrixMul, a: Tensor, b: Tensor) -> Tensor:
    """A stack of matrices times one matrix, as one large product."""
    if a.ndim == 2:
        return apply1("MatrixMulV2", param, inputs=[a, b])
    *head, width = a.shape
    y = apply1("MatrixMulV2", param, inputs=[a.reshape(_product(head), width), b])
    return y.reshape(*head, y.shape[-1])


def _stacked(param: P.MatrixMul, a: Tensor, b: Tensor) -> Tensor:
    heads = a.shape[:-2], b.shape[:-2]
    head = _joined(*heads)
    a, b = (
        x if own == head else x._broadcast(*head, *x.shape[-2:]) for x, own in zip((a, b), heads, strict=True)
    )
    if len(head) == 1:
        return apply1("BatchedMatrixMulV2", param, inputs=[a, b])
    count = _product(head)
    y = apply1("BatchedMatrixMulV2", param, inputs=[x.reshape(count, *x.shape[-2:]) for x in (a, b)])
    return y.reshape(*head, *y.shape[-2:])


def _joined(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that stacks of these sizes broadcast to."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    shift = len(longer) - len(shorter)
    tail = (n if m == 1 or m == n else m for n, m in zip(longer[shift:], shorter, strict=True))
    return (*longer[:shift], *tail)


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for n in sizes:
        total = n * total
    return total


def dot(inp1: Any, inp2: Any) -> Tensor:
    """The scalar product of two vectors; a scalar counts as a vector that repeats it.

    Raises:
        AssertionError: an operand has more than one dimension.
        EngineError: the lengths or the dtypes differ.

    >>> dot(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).item()
    11.0
    """
    a, b = as_tensor(inp1), as_tensor(inp2)
    if a.ndim > 1 or b.ndim > 1:
        raise AssertionError(
            f"Input tensors for dot must be 1-dimensional or scalar, found {a.ndim} and {b.ndim} dimensions"
        )
    if a.ndim != b.ndim:
        a, b = (x if x.ndim else x._broadcast(y.shape[0]) for x, y in ((a, b), (b, a)))
    return apply1("Dot", P.Empty(), inputs=[a._vector(), b._vector()], scalar=True)


def matinv(inp: Any) -> Tensor:
    """The inverses of square matrices in the last two axes.

    Raises:
        EngineError: the matrices are not square, or one is singular.

    >>> matinv(Tensor([[1.0, 0.0], [1.0, 1.0]])).tolist()
    [[1.0, 0.0], [-1.0, 1.0]]
    """
    return apply1("MatrixInverse", P.Empty(), inputs=[as_tensor(inp)])


def svd(inp: Any, full_matrices: bool = False, compute_uv: bool = True) -> tuple[Tensor, ...]:
    """The singular value decomposition of matrices [..., M, N]: ``inp = U @ diag(S) @ Vh``.

    With K the lesser of M and N, U is [..., M, K], S [..., K] and Vh [..., K, N]; with `full_matrices` U and Vh are
    square. MegEngine's own CPU kernel knows neither `full_matrices` nor ``compute_uv=False``.

    Returns:
        U, S and Vh; S alone, in a tuple, without `compute_uv`.

    >>> u, s, vh = svd(Tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> s.tolist()
    [4.0, 3.0]
    """
    param = P.SVD(full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(apply("SVD", param, inputs=[as_tensor(inp)], n=3 if compute_uv else 1))


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """The cross product of vectors of three elements; one of two elements has 0 as its third.

    Args:
        a: vectors along `axisa`; all other axes broadcast.
        b: vectors along `axisb`.
        axisa: the axis of the vectors in `a`.
        axisb: the axis of the vectors in `b`.
        axisc: the axis of the vectors in the result.
        axis: one axis in place of these three.

    Raises:
        ValueError: a vector has neither two nor three elements.

    >>> cross(Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])).tolist()
    [-3.0, 6.0, -3.0]
    """
    from .tensor import stack

    if axis is not None:
        axisa = axisb = axisc = axis
    (a0, a1, a2), (b0, b1, b2) = _elements(as_tensor(a), axisa), _elements(as_tensor(b), axisb)
    return stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axisc)


def _elements(x: Tensor, axis: int) -> list[Tensor]:
    """The three elements of the vectors along an axis."""
    place = range(x.ndim)[axis]
    n = int(x.shape[place])
    if n not in (2, 3):
        raise ValueError(f"cross takes vectors of two or three elements, found {n} along axis {axis}")
    parts = [x[(slice(None),) * place + (i,)] for i in range(n)]
    return parts if n == 3 else [*parts, parts[0] - parts[0]]


def norm(inp: Any, ord: float | None = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The norm of vectors along an axis: ``sum(abs(x) ** ord) ** (1 / ord)``.

    Args:
        inp: a tensor or an array.
        ord: the order, 2 by default; 0 counts what is not zero; infinite orders give the greatest (least) absolute
            value of the whole input whatever the axis, as in MegEngine.
        axis: the axis; may be left out for a vector.
        keepdims: whether the axis stays with size 1.

    Raises:
        TypeError: no axis is given and the input is not a vector.

    >>> norm(Tensor([[3.0, 4.0], [6.0, 8.0]]), axis=1).tolist()
    [5.0, 10.0]
    """
    from .math import max, min, sum

    x = as_tensor(inp)
    if axis is None and x.ndim != 1:
        raise TypeError(f"axis is required unless input is a vector, found {x.ndim} dimensions")
    order = 2 if ord is None else ord
    if order == 0:
        return sum(elemwise(_M.NEQ, x, 0), axis, keepdims)
    size = elemwise(_M.ABS, x)
    if order == math.inf:
        return max(size)
    if order == -math.inf:
        return min(size)
    return elemwise(_M.POW, sum(elemwise(_M.POW, size, order), axis, keepdims), 1.0 / order)


def normalize(inp: Any, ord: float | None = None, axis: Any = None, eps: float = 1e-12) -> Tensor:
    """The input divided by its norm along an axis, or by `eps` where the norm is less.

    Arguments and errors are those of `norm`.

    >>> normalize(Tensor([[3.0, 4.0], [0.0, 8.0]]), axis=1).numpy().round(2).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]]
    """
    x = as_tensor(inp)
    return x / elemwise(_M.MAX, norm(x, ord, axis, keepdims=axis is not None), eps)

"""Products, inverses, norms and decompositions of MegEngine's functional package."""

import math

from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply, apply1, as_tensor, elemwise
from ..tensors.reducing import Axes, max, min, sum

_M = P.ElemwiseMode


def matinv(inp: TensorLike) -> Tensor:
    """Return the inverses of square matrices in the last two axes.

    Raises:
        EngineError: the matrices are not square, or one is singular.

    >>> matinv(Tensor([[1.0, 0.0], [1.0, 1.0]])).tolist()
    [[1.0, 0.0], [-1.0, 1.0]]
    """
    return apply1("MatrixInverse", P.Empty(), inputs=[as_tensor(inp)])


def svd(inp: TensorLike, full_matrices: bool = False, compute_uv: bool = True) -> tuple[Tensor, ...]:
    """Return the singular value decomposition of matrices [..., M, N]: ``inp = U @ diag(S) @ Vh``.

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


def norm(inp: TensorLike, ord: float | None = None, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the norm of vectors along an axis: ``sum(abs(x) ** ord) ** (1 / ord)``.

    Args:
        inp: a tensor or an array.
        ord: the order, 2 by default; 0 counts what is not zero; infinite orders give the largest (least) absolute
            value of the whole input whatever the axis, as in MegEngine.
        axis: the axis; may be left out for a vector.
        keepdims: whether the axis stays with size 1.

    Raises:
        TypeError: no axis is given and the input is not a vector.

    >>> norm(Tensor([[3.0, 4.0], [6.0, 8.0]]), axis=1).tolist()
    [5.0, 10.0]
    """
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


def normalize(inp: TensorLike, ord: float | None = None, axis: Axes = None, eps: float = 1e-12) -> Tensor:
    """Return the input divided by its norm along an axis, or by `eps` where the norm is less.

    Arguments and errors are those of `norm`.

    >>> normalize(Tensor([[3.0, 4.0], [0.0, 8.0]]), axis=1).numpy().round(2).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]]
    """
    x = as_tensor(inp)
    return x / elemwise(_M.MAX, norm(x, ord, axis, keepdims=axis is not None), eps)

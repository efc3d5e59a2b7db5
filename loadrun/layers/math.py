"""Reductions, searching and sorting of MegEngine's functional package.

Products and the like are in `loadrun.layers.math` and offered here too.
"""

import math

from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply, apply1, as_tensor, const, elemwise
from ..tensors.access import dtype_of
from ..tensors.convert import product_of
from ..tensors.reducing import (
    Axes,
    axes_from_last,
    axis_from_front,
    dot,
    matmul,
    max,
    mean,
    min,
    prod,
    sum,
    without_axis,
)
from ..tensors.shaping import broadcast_to, expand_dims, squeeze, swapaxes

__all__ = ["argmax", "argmin", "argsort", "dot", "isinf", "isnan", "matinv", "matmul", "max", "mean", "min"]
__all__ += ["norm", "normalize", "prod", "sign", "sort", "std", "sum", "svd", "topk", "var"]


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


def isnan(inp: TensorLike) -> Tensor:
    """Return whether each element is NaN; false for everything that is not a float.

    >>> isnan(Tensor([1.0, float("nan"), 0.0])).tolist()
    [False, True, False]
    """
    return _float_check(_M.ISNAN, inp)


def isinf(inp: TensorLike) -> Tensor:
    """Return whether each element is infinite; false for everything that is not a float.

    >>> isinf(Tensor([1.0, float("-inf"), 0.0])).tolist()
    [False, True, False]
    """
    return _float_check(_M.ISINF, inp)


def _float_check(mode: P.ElemwiseMode, inp: TensorLike) -> Tensor:
    x = as_tensor(inp)
    return elemwise(mode, x) if dtype_of(x).is_float else broadcast_to(const(False), x.shape)


def sign(x: TensorLike) -> Tensor:
    """Return -1, 0 or 1 for negative, zero and positive elements, in the dtype of `x`.

    >>> sign(Tensor([5, -3, 0])).tolist()
    [1, -1, 0]
    """
    return elemwise(_M.SIGN, x)


# Reductions


def var(inp: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the mean of the squared distances from the mean; arguments and errors as for `sum`.

    >>> var(Tensor([[1, 2], [3, 4]])).item()
    1.25
    """
    x = as_tensor(inp)
    away = x - mean(x, axis, keepdims=axis is not None)
    return mean(elemwise(_M.POW, away, 2), axis, keepdims)


def std(inp: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the square root of the variance; arguments and errors as for `sum`.

    >>> std(Tensor([[1, 5], [3, 9]]), axis=1).tolist()
    [2.0, 3.0]
    """
    return elemwise(_M.POW, var(inp, axis, keepdims), 0.5)


# Searching


_UNSEARCHED = {"Bool", "Uint16"}
"""Dtypes that MegEngine's Argmax and Argmin take, without writing a result."""


def _search(type: str, inp: TensorLike, axis: Axes, keepdims: bool) -> Tensor:
    x = as_tensor(inp)
    if axis is None:
        if keepdims:
            raise AssertionError("can not set axis=None and keepdims=True")
        return _search(type, x.reshape(-1), 0, False)
    if dtype_of(x).name in _UNSEARCHED:
        x = x.astype("int32")
    axes = axes_from_last(x.ndim, axis)
    for one in axes if isinstance(axes, list) else [axes]:
        x = apply1(type, P.Axis(axis=one), inputs=[x], scalar=False)
        x = x if keepdims else without_axis(x, one)
    return x


def argmin(inp: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the position (int32) of the smallest element along an axis, the first of equal ones.

    Args:
        inp: a tensor or an array.
        axis: an axis, several axes (searched one after the other from the last), or None for the flattened input.
        keepdims: whether the axis stays with size 1; not for the flattened input.

    Raises:
        AssertionError: an axis is named twice or does not exist, or `keepdims` without axes.

    >>> argmin(Tensor([[3, 1, 2], [4, 6, 5]]), axis=1).tolist()
    [1, 0]
    """
    return _search("Argmin", inp, axis, keepdims)


def argmax(inp: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the position (int32) of the largest element; see `argmin`.

    >>> argmax(Tensor([[3, 1, 2], [4, 6, 5]])).item()
    4
    """
    return _search("Argmax", inp, axis, keepdims)


# Sorting


def _argsort_param(descending: bool) -> P.Argsort:
    return P.Argsort(order=P.ArgsortOrder.DESCENDING if descending else P.ArgsortOrder.ASCENDING)


def argsort(inp: TensorLike, descending: bool = False) -> Tensor:
    """Return the positions (int32) that sort a vector or every row of a matrix.

    Raises:
        AssertionError: the input has more than two dimensions.

    >>> argsort(Tensor([3.0, 1.0, 2.0])).tolist(), argsort(Tensor([3.0, 1.0, 2.0]), descending=True).tolist()
    ([1, 2, 0], [0, 2, 1])
    """
    x = as_tensor(inp)
    if x.ndim > 2:
        raise AssertionError(f"Input should be 1d or 2d, found {x.ndim} dimensions; sort takes more")
    return sort(x, descending)[1]


def sort(inp: TensorLike, descending: bool = False, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Return the elements sorted along a dimension, and the positions (int32) that they had.

    Args:
        inp: a tensor or an array with at least one dimension.
        descending: whether the largest comes first.
        dim: the dimension.

    >>> values, at = sort(Tensor([[3, 1, 2], [4, 6, 5]]), descending=True)
    >>> values.tolist(), at.tolist()
    ([[3, 2, 1], [6, 5, 4]], [[0, 2, 1], [1, 2, 0]])
    """
    x = as_tensor(inp)
    last = axis_from_front(x.ndim, dim) == x.ndim - 1
    turned = x if last else swapaxes(x, dim, -1)
    shape = turned.shape
    if x.ndim == 1:
        values, at = apply("Argsort", _argsort_param(descending), inputs=[x.reshape(1, -1)], n=2)
        return values[0], at[0]
    rows = turned if x.ndim == 2 else turned.reshape(product_of(shape[:-1]), shape[-1])
    outputs = apply("Argsort", _argsort_param(descending), inputs=[rows], n=2)
    if x.ndim != 2:
        outputs = [t.reshape(shape) for t in outputs]
    values, at = outputs if last else [swapaxes(t, dim, -1) for t in outputs]
    return values, at


def topk(
    inp: TensorLike, k: int | Tensor, descending: bool = True, kth_only: bool = False, no_sort: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the `k` largest elements of a vector or of every row of a matrix, and their positions (int32).

    Args:
        inp: a tensor or an array of one or two dimensions.
        k: how many: a number or a scalar tensor.
        descending: whether the largest are wanted, largest first; otherwise the smallest, smallest first.
        kth_only: give only the last of them, without its axis.
        no_sort: whether their order does not matter.

    Raises:
        EngineError: the input has more dimensions, or `k` is 0.

    >>> values, at = topk(Tensor([2.0, 8.0, 5.0, 7.0]), 2)
    >>> values.tolist(), at.tolist()
    ([8.0, 7.0], [1, 3])
    """
    x = as_tensor(inp)
    modes = P.TopKMode
    mode = modes.KTH_ONLY if kth_only else modes.VALUE_IDX_NOSORT if no_sort else modes.VALUE_IDX_SORTED
    number = as_tensor(-k if descending else k, "int32")
    vector = x.ndim == 1
    rows = expand_dims(x, 0) if vector else x
    if not kth_only:
        values, at = apply("TopK", P.TopK(mode=mode), inputs=[rows, number], n=2, scalar=False)
        return (without_axis(values, 0), without_axis(at, 0)) if vector else (values, at)
    kth = apply1("TopK", P.TopK(mode=mode), inputs=[rows, number], scalar=False)
    if vector:
        return squeeze(kth, 0), argmax((kth == x).astype("int8"))
    return kth, argmax((expand_dims(kth, 1) == x).astype("int8"), 1)


def _check_non_finite(inps: Tensor | list[Tensor], scale: float = 1.0) -> Tensor:
    """Multiply tensors in place by `scale`; 1 where one of them held an infinity or NaN before, else 0 (int32 [1])."""
    tensors = [inps] if isinstance(inps, Tensor) else inps
    # MegEngine's CPU operator ignores its scale in a graph.
    checked = apply("CheckNonFinite", P.CheckNonFinite(), inputs=tensors, n=len(tensors) + 1, scalar=False)
    for x, y in zip(tensors, checked[:-1], strict=True):
        x.set_value(elemwise(_M.MUL, y, scale))
    return checked[-1]

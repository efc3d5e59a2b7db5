"""Products of matrices and vectors: what the operators of tensors and `loadrun.megengine.functional` share."""

from typing import Any

from ..graph import params as P
from .applying import apply1
from .convert import as_tensor, product_of, shape_tensor
from .naming import titled, untitled
from .promotion import convert, operands
from .shaping import broadcast_to, expand_dims, squeeze
from .value import Tensor

_MODES = {"default": P.MatrixMulComputeMode.DEFAULT, "float32": P.MatrixMulComputeMode.FLOAT32}


def matmul(
    inp1: Any, inp2: Any, transpose_a: bool = False, transpose_b: bool = False, compute_mode: str = "default"
) -> Tensor:
    """Return the product of matrices, vectors, or stacks of matrices.

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

    >>> from loadrun import Tensor
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
    a = expand_dims(a, 0) if na == 1 else a
    b = expand_dims(b, 1) if nb == 1 else b
    param = P.MatrixMul(transposeA=transpose_a, transposeB=transpose_b, compute_mode=mode)
    y = (
        _one_product(param, a, b)
        if nb <= 2 and (na <= 2 or not transpose_a)
        else _batched_product(param, a, b)
    )
    # Remove the axis that a vector got for the product.
    return squeeze(y, -2) if na == 1 else squeeze(y, -1) if nb == 1 else y


def _one_product(param: P.MatrixMul, a: Tensor, b: Tensor) -> Tensor:
    """Return a stack of matrices times one matrix, as one large product."""
    if a.ndim == 2:
        return apply1("MatrixMulV2", param, inputs=[a, b])
    *head, width = a.shape
    with untitled():
        folded = shape_tensor((product_of(head), width))
    with titled("MatrixMul"):
        a = apply1("ReshapeV1", P.OptionalAxisV1(), inputs=[a, folded], scalar=False)
    y = apply1("MatrixMulV2", param, inputs=[a, b])
    with untitled():
        return y.reshape(*head, y.shape[-1])


def _batched_product(param: P.MatrixMul, a: Tensor, b: Tensor) -> Tensor:
    heads = a.shape[:-2], b.shape[:-2]
    head = broadcast_sizes(*heads)
    a, b = (x if known == head else _spread(x, head) for x, known in zip((a, b), heads, strict=True))
    if len(head) == 1:
        return apply1("BatchedMatrixMulV2", param, inputs=[a, b])
    with untitled():
        count = product_of(head)
        a, b = (x.reshape(count, *x.shape[-2:]) for x in (a, b))
    y = apply1("BatchedMatrixMulV2", param, inputs=[a, b])
    with untitled():
        return y.reshape(*head, *y.shape[-2:])


def _spread(x: Tensor, head: tuple[int, ...]) -> Tensor:
    with untitled():
        shape = shape_tensor((*head, *x.shape[-2:]))
    with titled("BatchedMatrixMul"):
        return broadcast_to(x, shape)


def broadcast_sizes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes that stacks of these sizes broadcast to."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    shift = len(longer) - len(shorter)
    tail = (n if m == 1 or m == n else m for n, m in zip(longer[shift:], shorter, strict=True))
    return (*longer[:shift], *tail)


def dot(inp1: Any, inp2: Any) -> Tensor:
    """Return the scalar product of two vectors; a scalar counts as a vector that repeats it.

    Raises:
        AssertionError: an operand has more than one dimension.
        EngineError: the lengths or the dtypes differ.

    >>> from loadrun import Tensor
    >>> dot(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).item()
    11.0
    """
    a, b = as_tensor(inp1), as_tensor(inp2)
    if a.ndim > 1 or b.ndim > 1:
        raise AssertionError(
            f"Input tensors for dot must be 1-dimensional or scalar, found {a.ndim} and {b.ndim} dimensions"
        )
    if a.ndim != b.ndim:
        a, b = (x if x.ndim else broadcast_to(x, y.shape[0]) for x, y in ((a, b), (b, a)))
    return apply1("Dot", P.Empty(), inputs=[a._vector(), b._vector()], scalar=True)

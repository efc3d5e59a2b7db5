"""Products of matrices by numpy's rules: float16 is summed in float32, integers are exact and wrap at 32 bits."""

from collections.abc import Callable

from ..graph import params as P
from ..graph.dtypes import plain
from ..tensors.access import dtype_of
from ..tensors.applying import apply1
from ..tensors.value import Tensor
from . import emit as e
from .emit import M, elem, number


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of matrices, or stacks of one shape, of one dtype, in which it is."""
    kind = dtype_of(a).name
    if kind in ("Float32", "Float16") or dtype_of(a).is_wide:
        return _operator(a, b)
    if kind == "Bool":
        result = _operator(e.cast(a, "int8"), e.cast(b, "int8"))
        return e.cast(result, "bool")
    return e.cast(whole_product(a, b), dtype_of(a))


def _operator(a: Tensor, b: Tensor) -> Tensor:
    wide = P.MatrixMulComputeMode
    # numpy sums float16 in float32.
    param = P.MatrixMul(compute_mode=wide.FLOAT32 if dtype_of(a).name == "Float16" else wide.DEFAULT)
    name = "MatrixMulV2" if len(e.sizes(a)) == 2 else "BatchedMatrixMulV2"
    out = plain("Int32") if dtype_of(a).name == "Int8" else None
    return apply1(name, param, inputs=[a, b], output_dtype=out, scalar=False)


def _digits(x: Tensor) -> list[Tensor]:
    """Return bytes of integers, each signed, from the lowest."""
    count = {"Int8": 1, "Uint8": 2, "Int16": 2, "Uint16": 3}.get(dtype_of(x).name, 4)
    if count == 1:
        return [x]
    rest = e.cast(x, "int32")
    result = []
    for i in range(count):
        low = e.cast(rest, "int8")
        result.append(low)
        if i < count - 1:
            rest = e.folded(_above, rest, low)
    return result


def _above(x: Tensor, low: Tensor) -> Tensor:
    """Return what is left of integers above their lowest byte."""
    return elem(M.SHR, elem(M.SUB, x, e.cast(low, "int32")), number(8, x))


def by_bytes(multiplied: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Multiply integers exactly, wrapping at 32 bits, by products of their bytes.

    Args:
        multiplied: gives the sums of products of int8 tensors as int32.
        a: integers.
        b: integers, of the same dtype or another.
    """
    total: Tensor | None = None
    for i, x in enumerate(_digits(a)):
        for j, y in enumerate(_digits(b)):
            if i + j > 3:
                continue
            part = multiplied(x, y)
            if i + j:
                part = elem(M.SHL, part, number(8 * (i + j), part))
            total = part if total is None else elem(M.ADD, total, part)
    assert total is not None
    return total


def whole_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices of integers, or stacks of one shape, exactly in int32."""
    return by_bytes(_operator, a, b)


def product(a: Tensor, b: Tensor, multiplied: Callable[[Tensor, Tensor], Tensor] = multiply) -> Tensor:
    """Compute ``a @ b`` of tensors with at least one axis each, by products of matrices or stacks of one shape."""
    if not e.sizes(a) or not e.sizes(b):
        raise ValueError("matmul: input operand does not have enough dimensions, needs at least 1")
    vectors = (len(e.sizes(a)) == 1, len(e.sizes(b)) == 1)
    if vectors[0]:
        a = e.add_axes(a, [0])
    if vectors[1]:
        b = e.add_axes(b, [1])
    if e.sizes(a)[-1] != e.sizes(b)[-2]:
        raise ValueError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0 (size {e.sizes(b)[-2]} is different "
            f"from {e.sizes(a)[-1]})"
        )
    result = _stacks(a, b, multiplied)
    ndim = len(e.sizes(result))
    gone = [ndim - 2] * vectors[0] + [ndim - 1] * vectors[1]
    return e.drop_axes(result, gone)


def _stacks(a: Tensor, b: Tensor, multiplied: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    if len(e.sizes(b)) == 2:
        if len(e.sizes(a)) == 2:
            return multiplied(a, b)
        flat = multiplied(e.reshape(a, (-1, a.shape[-1])), b)
        return e.reshape(flat, (*a.shape[:-1], b.shape[-1]))
    lead = e.broadcast_shape([a.shape[:-2], b.shape[:-2]])
    stacks = []
    for x in (a, b):
        x = e.broadcast(x, (*lead, *x.shape[-2:]))
        stacks.append(x if len(lead) == 1 else e.reshape(x, (-1, *x.shape[-2:])))
    result = multiplied(stacks[0], stacks[1])
    return result if len(lead) == 1 else e.reshape(result, (*lead, *result.shape[-2:]))

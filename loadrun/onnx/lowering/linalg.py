"""Matrix products and operators built from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...build import emit as e
from ...build.exact_products import multiply, product, whole_product
from ...graph import params as P
from ...tensors import Tensor
from ...tensors.access import dtype_of, static_shape
from ..call import CONTRIB, NodeCall, lower
from ..values import INT32, UnsupportedNodeError, Value
from . import M, cast, const_like, folded, transposed
from .functions import activation

__all__ = ["exact_product", "gemm", "matmul", "minus_zero"]


def matmul(x: Tensor, y: Tensor, multiplied: Callable[[Tensor, Tensor], Tensor] = multiply) -> Tensor:
    """Compute ``x @ y`` with numpy's broadcasting; float16 is summed in float32, integers are exact in 32 bits."""
    if not x.ndim or not y.ndim:
        raise UnsupportedNodeError("a factor is a scalar")
    inner, other = static_shape(x)[-1], static_shape(y)[-2 if y.ndim > 1 else 0]
    if inner != other:
        raise UnsupportedNodeError(
            f"shapes {list(static_shape(x))} and {list(static_shape(y))} do not fit together"
        )
    if 0 in static_shape(x) or 0 in static_shape(y):
        return _empty(x, y)
    return product(x, y, multiplied)


def _empty(x: Tensor, y: Tensor) -> Tensor:
    lead = e.broadcast_shape([x.shape[:-2], y.shape[:-2]])
    rows = (x.shape[-2],) if x.ndim > 1 else ()
    columns = (y.shape[-1],) if y.ndim > 1 else ()
    return e.full(const_like(0, x), (*lead, *rows, *columns))


@lower("MatMul")
def _matmul(c: NodeCall) -> Tensor:
    return matmul(c.t(0), c.t(1))


@lower("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=CONTRIB)
def _fused_matmul(c: NodeCall) -> Tensor:
    x, y = c.t(0), c.t(1)
    sides: list[Tensor] = []
    for t, name in ((x, "A"), (y, "B")):
        if c.flag(f"transBatch{name}") and t.ndim > 2:
            # The first axis moves after the other batch axes.
            t = transposed(t, [*range(1, t.ndim - 1), 0, t.ndim - 1])
        sides.append(_matrices_transposed(t) if c.flag(f"trans{name}") and t.ndim > 1 else t)
    result = matmul(sides[0], sides[1])
    alpha = c.real("alpha", 1.0)
    result = result if alpha == 1.0 else e.elem(M.MUL, const_like(alpha, result), result)
    name = c.text("activation")
    return result if not name else activation(name, result, *_numbers(c))


def _numbers(c: NodeCall) -> list[float]:
    """Return the parameters of an activation that are present."""
    return [c.real(n) for n in ("activation_alpha", "activation_beta") if n in c.attributes]


def _matrices_transposed(x: Tensor) -> Tensor:
    axes = list(range(x.ndim))
    return transposed(x, [*axes[:-2], axes[-1], axes[-2]])


def gemm(
    x: Tensor,
    y: Tensor,
    bias: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    turn_x: bool = False,
    turn_y: bool = False,
) -> Tensor:
    """Compute alpha * x @ y + beta * bias; numbers of 16 bits are scaled before they are rounded."""
    if dtype_of(x).name == "Float16" and (alpha, beta) != (1.0, 1.0):
        added = None if bias is None else e.real(bias)
        wide = gemm(e.real(x), e.real(y), added, alpha=alpha, beta=beta, turn_x=turn_x, turn_y=turn_y)
        return cast(wide, dtype_of(x))
    if dtype_of(x).is_float and 0 not in (*static_shape(x), *static_shape(y)):
        mode = P.MatrixMulComputeMode
        param = P.MatrixMul(
            transposeA=turn_x,
            transposeB=turn_y,
            compute_mode=mode.FLOAT32 if dtype_of(x).name == "Float16" else mode.DEFAULT,
        )
        from ...tensors import apply1  # for start-up

        result = apply1("MatrixMulV2", param, inputs=[x, y], scalar=False)
    else:
        result = matmul(_matrices_transposed(x) if turn_x else x, _matrices_transposed(y) if turn_y else y)
    if alpha != 1.0:
        result = _scaled(result, alpha)
    if bias is None or beta == 0.0:
        return result
    return e.elem(M.ADD, result, bias if beta == 1.0 else _scaled(bias, beta))


def _scaled(x: Tensor, factor: float) -> Tensor:
    if dtype_of(x).is_float:
        return folded(lambda v: e.elem(M.MUL, const_like(factor, v), v), x)
    return cast(e.elem(M.MUL, const_like(factor, e.real(x)), e.real(x)), dtype_of(x))


@lower("Gemm")
def _gemm(c: NodeCall) -> Tensor:
    bias = c.maybe(2)
    if bias is not None and c.opset < 7 and not c.flag("broadcast"):
        e.broadcast_shape([bias])
    return gemm(
        c.t(0),
        c.t(1),
        bias,
        alpha=c.real("alpha", 1.0),
        beta=c.real("beta", 1.0),
        turn_x=c.flag("transA"),
        turn_y=c.flag("transB"),
    )


@lower("FusedGemm", domain=CONTRIB)
def _fused_gemm(c: NodeCall) -> Tensor:
    result = _gemm(c)
    name = c.text("activation")
    alpha, beta = (c.real(a) if a in c.attributes else None for a in ("activation_alpha", "activation_beta"))
    return activation(name, result, alpha, beta) if name else result


@lower("Einsum")
def _einsum(c: NodeCall) -> Tensor:
    xs = [c.t(i) for i in range(len(c.inputs))]
    if any(0 in static_shape(x) for x in xs):
        raise UnsupportedNodeError("an operand is empty")
    from ...build.contraction import contracted  # for start-up

    return contracted(c.text("equation"), xs)


# Integers with zero points


def minus_zero(x: Tensor, zero: Tensor | None) -> Tensor:
    """Return quantized values relative to their zero point, as int8 where all fit, else as int16."""
    start, limits = np.zeros(1) if zero is None else e.known(zero), np.iinfo(dtype_of(x).np)
    fit = start is not None and limits.max - 127 <= int(start.min()) and int(start.max()) <= limits.min + 128
    if zero is None:
        return cast(x, "int8" if fit else "int16")

    def relative(v: Tensor, z: Tensor) -> Tensor:
        rest = e.elem(M.SUB, cast(v, "int16"), cast(z, "int16"))
        return cast(rest, "int8") if fit else rest

    return folded(relative, x, zero)


def exact_product(x: Tensor, y: Tensor, x_zero: Tensor | None, y_zero: Tensor | None) -> Tensor:
    """Multiply 8-bit matrices without their zero points in int32; zero points per row or column broadcast.

    Sums stay below 2**24 where at most 258 products are added up, and are then exact in float32; longer ones are sums
    of int8 products.
    """
    if x_zero is not None and x_zero.ndim == 1 and static_shape(x_zero)[0] != 1:
        x_zero = e.add_axes(x_zero, [1])
    a, b = minus_zero(x, x_zero), minus_zero(y, y_zero)
    inner = static_shape(x)[-1]
    if inner * 255 * 255 < 1 << 24:
        return e.whole(matmul(e.real(a), e.real(b)))
    return cast(matmul(a, b, whole_product), "int32")


@lower("MatMulInteger")
def _matmul_integer(c: NodeCall) -> Value:
    return Value(INT32, exact_product(c.t(0), c.t(1), c.maybe(2), c.maybe(3)))


@lower("Det")
def _det(c: NodeCall) -> Tensor:
    """Eliminate with the largest pivot of each column, unrolled over the size."""
    x = c.t(0)
    n = static_shape(x)[-1]
    if n != static_shape(x)[-2] or n > 16:
        raise UnsupportedNodeError(
            f"matrices of {static_shape(x)[-2]} x {n}; square ones of up to 16 can be unrolled"
        )
    lead = x.shape[:-2]
    rows = e.reshape(e.real(x), (-1, n, n))
    total: Tensor | None = None
    for k in range(n):
        rows, pivot = _eliminated(rows, n - k)
        total = pivot if total is None else e.elem(M.MUL, total, pivot)
    assert total is not None
    return e.reshape(cast(total, dtype_of(x)), lead)


def _eliminated(rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Eliminate one row and column; return the rest and the signed pivot: (B, n-1, n-1) and (B,)."""
    from ...tensors import apply1  # for start-up

    column = e.subtensor(rows, [(2, None, None, None, 0)])
    at = e.drop_axes(apply1("Argmax", P.Axis(axis=1), inputs=[e.elem(M.ABS, column)], scalar=False), [1])
    batch = e.arange(rows.shape[0])
    best = e.gather(rows, [(0, batch), (1, at)])
    pivot = e.subtensor(best, [(1, None, None, None, 0)])
    if n == 1:
        return rows, pivot
    one, zero = const_like(1.0, pivot), const_like(0.0, pivot)
    moved = e.compare(P.ElemwiseMultiTypeMode.LT, const_like(0, at), at)
    signed = e.where(moved, e.elem(M.NEGATE, pivot), pivot)
    # Swap the first row with the pivot row, which is then left out.
    first = e.subtensor(rows, [(1, None, None, None, 0)])
    place = e.reshape(e.arange(n), (1, -1, 1))
    chosen = e.compare(P.ElemwiseMultiTypeMode.EQ, place, e.reshape(at, (-1, 1, 1)))
    swapped = e.where(chosen, e.add_axes(first, [1]), rows)
    rest = e.subtensor(swapped, [(1, 1, None, None, None)])
    nothing = e.compare(P.ElemwiseMultiTypeMode.EQ, pivot, zero)
    safe = e.where(nothing, one, pivot)
    head = e.subtensor(rest, [(2, None, 1, None, None)])
    factor = e.elem(M.TRUE_DIV, head, e.reshape(safe, (-1, 1, 1)))
    step = e.elem(M.SUB, rest, e.elem(M.MUL, factor, e.add_axes(best, [1])))
    return e.subtensor(step, [(2, 1, None, None, None)]), signed


@lower("Inverse", domain=CONTRIB)
def _inverse(c: NodeCall) -> Tensor:
    from ...tensors import apply1  # for start-up

    x = c.t(0)
    return cast(apply1("MatrixInverse", P.Empty(), inputs=[e.real(x)], scalar=False), dtype_of(x))

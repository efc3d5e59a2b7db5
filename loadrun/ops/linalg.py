"""Matrix products in all dtypes and formats, Dot, MatrixInverse, SVD and Cross.

Semantics are those of MegEngine's dnn kernels: float16 with compute mode DEFAULT rounds after every addition
(its CPU kernels accumulate in float16), FLOAT32 rounds once; integer products are exact and wrap in the result's
dtype; quantized inputs are multiplied without their zero points and give the product of both scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ..base.registry import late
from ..graph import Opr
from ..graph.dtypes import Array, DType, plain
from ..graph.params import SVD, Cross, MatrixMul, MatrixMulComputeMode, MatrixMulFormat as Format
from .numeric.parallel import matmul
from .numeric.special import in_rows, int_matmul, largest, rounded, stored
from .registry import Bound, Call, Shape, ShapeCall, kernel, per_input

with late(__name__):
    from .numeric import svd as svd_kernel

_PACK = {Format.MK4: 4, Format.MK8: 8, Format.MK4_DOT: 4}


def _product_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    a, b = inputs
    if a.name != b.name:
        raise ValueError(f"a matrix product takes inputs of one dtype, found {a} and {b}")
    scale = float(np.float32(a.scale) * np.float32(b.scale))
    batched = opr.type != "MatrixMulV2"
    allowed: tuple[DType, ...]
    if a.is_float or a.is_wide:
        allowed = (a,)
    elif a.name == "Int8":
        allowed = (plain("Int32"), plain("Int16"))
    elif a.name == "Int16" and not batched:
        allowed = (plain("Int32"),)
    elif a.name in ("QuantizedS8", "Quantized8Asymm", "Quantized4Asymm"):
        allowed = (DType("QuantizedS32", scale),)
    elif a.name == "QuantizedS4" and not batched:
        allowed = (DType("QuantizedS16", scale),)
    else:
        raise ValueError(f"a matrix product does not take {a}")
    want = opr.output_dtype
    if want is None:
        return (allowed[0],)
    if not any(_alike(want, t) for t in allowed):
        raise ValueError(f"a matrix product of {a} and {b} gives {allowed[0]}, not {want}")
    return (want,)


def _alike(a: DType, b: DType) -> bool:
    return a.name == b.name and abs(a.scale - b.scale) <= 1e-6 * max(1.0, abs(b.scale))


def _sizes(p: MatrixMul, a: Shape, b: Shape) -> tuple[Shape, int]:
    """Return the shape of the result and the inner dimension of a plain or packed 2-d product."""
    if p.format == Format.N32K4_DOT:
        if p.transposeA or p.transposeB:
            raise ValueError("format N32K4_DOT cannot be transposed")
        if len(a) != 2 or a[0] != 1 or a[1] % 4 or len(b) != 4 or b[1:] != (a[1] // 4, 32, 4):
            raise ValueError(
                f"format N32K4_DOT takes A [1, K] and B [N/32, K/4, 32, 4], found {list(a)}, {list(b)}"
            )
        return (1, b[0] * 32), a[1]
    pack = _PACK.get(p.format, 1)
    if pack == 1:
        if len(a) != 2 or len(b) != 2:
            raise ValueError(f"a matrix product takes 2-dimensional inputs, found {list(a)} and {list(b)}")
    elif len(a) != 4 or len(b) != 3 or a[2:] != (pack, pack) or b[2] != pack:
        raise ValueError(
            f"format {p.format.name} takes A [M/{pack}, K/{pack}, {pack}, {pack}] and B [K/{pack}, N, {pack}], "
            f"found {list(a)} and {list(b)}"
        )
    m, ka = a[1::-1] if p.transposeA else a[:2]
    kb, n = b[1::-1] if p.transposeB else b[:2]
    if ka != kb:
        raise ValueError(f"inner dimensions {ka} and {kb} differ")
    return ((m, n) if pack == 1 else (m, n, pack)), ka * pack


def _matmul_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_sizes(s.get(MatrixMul), s.shape(0), s.shape(1))[0],)


def _batched_sizes(p: MatrixMul, a: Shape, b: Shape) -> tuple[Shape, int]:
    if p.format != Format.DEFAULT:
        raise ValueError(f"a batched matrix product has no format {p.format.name}")
    if len(a) != 3 or len(b) != 3 or a[0] != b[0]:
        raise ValueError(
            f"a batched matrix product takes 3-d inputs of one batch, found {list(a)} and {list(b)}"
        )
    m, ka = a[:0:-1] if p.transposeA else a[1:]
    kb, n = b[:0:-1] if p.transposeB else b[1:]
    if ka != kb:
        raise ValueError(f"inner dimensions {ka} and {kb} differ")
    return (a[0], m, n), ka


def _batched_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_batched_sizes(s.get(MatrixMul), s.shape(0), s.shape(1))[0],)


def _matmul_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    p = opr.get(MatrixMul)
    sizes = _sizes if opr.type == "MatrixMulV2" else _batched_sizes
    return 2 * prod(outputs[0]) * sizes(p, inputs[0], inputs[1])[1]


def _bind_product(c: Call, s: ShapeCall) -> Bound | None:
    """Bind a plain float32 product for known shapes."""
    p = c.get(MatrixMul)
    batched = c.opr.type != "MatrixMulV2"
    shape, inner = (_batched_sizes if batched else _sizes)(p, s.shape(0), s.shape(1))
    plain_ = p.format == Format.DEFAULT and p.compute_mode == MatrixMulComputeMode.DEFAULT
    if not plain_ or not inner or 0 in shape:
        return None
    turn_a, turn_b = p.transposeA, p.transposeB
    if c.inputs[0].name in _BYTES and c.inputs[0].name == c.inputs[1].name and c.const[1]:
        return _bind_bytes(c, turn_a, turn_b, batched)
    if c.inputs[0].name != "Float32":
        return None

    def bound(out: Array | None, a: Array, b: Array) -> Array:
        a = a if a.flags.aligned else _prepared(c, 0, a)
        b = b if b.flags.aligned else _prepared(c, 1, b)
        a, b = a.swapaxes(-2, -1) if turn_a else a, b.swapaxes(-2, -1) if turn_b else b
        return matmul(a, b)

    return bound


_BYTES = ("Int8", "QuantizedS8", "Quantized8Asymm")


def _bind_bytes(c: Call, turn_a: bool, turn_b: bool, batched: bool) -> Bound:
    """Bind a product with a constant matrix of bytes, in float32 where that is exact for all data."""
    zero, kind = c.inputs[0].zero_point, c.outputs[0].np
    offset = np.asarray(zero, np.float32) if zero else None
    cache: list[Array | None] = []

    def bound(out: Array | None, a: Array, b: Array) -> Array:
        if not cache:
            plain = _prepared(c, 1, b)
            plain = plain.swapaxes(-2, -1) if turn_b else plain
            sums = np.abs(plain).sum(axis=-2, dtype=np.float64).max()
            cache.append(np.ascontiguousarray(plain, np.float32) if sums * 255 < 2**24 else None)
        other = cache[0]
        if other is None or kind.itemsize != 4:
            return batched_matrix_mul(c, a, b) if batched else matrix_mul(c, a, b)
        real = a.astype(np.float32)
        if offset is not None:
            np.subtract(real, offset, real)
        real = real.swapaxes(-2, -1) if turn_a else real
        return matmul(real, other).astype(kind)

    return bound


@kernel("MatrixMulV2", dtype=_product_dtype, shape=_matmul_shape, flops=_matmul_flops, bind=_bind_product)
def matrix_mul(c: Call, a: Array, b: Array) -> Array:
    """Multiply two matrices, each transposed on demand, plain or in a packed format."""
    p = c.get(MatrixMul)
    shape, inner = _sizes(p, a.shape, b.shape)
    a, b = _prepared(c, 0, a), _prepared(c, 1, b)
    if p.format != Format.DEFAULT:
        a, b = unpacked(p, a, b)
    else:
        a, b = a.T if p.transposeA else a, b.T if p.transposeB else b
    pack = shape[2] if len(shape) == 3 else 1
    if inner and a.size and b.size:
        out = _multiply(c, p, a, b)
    else:
        out = np.zeros((shape[0] * pack, shape[1]), c.outputs[0].np)
    if len(shape) == 3:
        out = np.ascontiguousarray(out.reshape(shape[0], pack, shape[1]).transpose(0, 2, 1))
    return out


@kernel(
    "BatchedMatrixMulV2", dtype=_product_dtype, shape=_batched_shape, flops=_matmul_flops, bind=_bind_product
)
def batched_matrix_mul(c: Call, a: Array, b: Array) -> Array:
    """Multiply matrices [B, M, K] and [B, K, N], each transposed on demand."""
    p = c.get(MatrixMul)
    shape, inner = _batched_sizes(p, a.shape, b.shape)
    if not inner or 0 in shape:
        return np.zeros(shape, c.outputs[0].np)
    a, b = _prepared(c, 0, a), _prepared(c, 1, b)
    a = a.swapaxes(1, 2) if p.transposeA else a
    b = b.swapaxes(1, 2) if p.transposeB else b
    return _multiply(c, p, a, b)


def _prepared(c: Call, i: int, x: Array) -> Array:
    """Prepare an input for BLAS: aligned, float16 as float32, without its zero point; kept if constant."""
    const = i < len(c.const) and c.const[i]
    key = ("operand", i)
    if const and key in c.memo:
        kept: Array = c.memo[key]
        return kept
    dtype = c.inputs[i]
    if dtype.name == "Float16":
        y = x.astype(np.float32)
    elif dtype.zero_point:
        y = x.astype(np.int16) - np.int16(dtype.zero_point)
    elif dtype.is_asymmetric:
        y = x.astype(np.int16)
    else:
        y = x if x.flags.aligned else x.copy()
    if const:
        if y.dtype.kind != "f":
            c.memo[("bound", i)] = largest(y)
            y = y.astype(np.float32)
        c.memo[key] = y
    return y


def _multiply(c: Call, p: MatrixMul, a: Array, b: Array) -> Array:
    dtype = c.inputs[0]
    if dtype.is_float:
        if dtype.name == "Float32":
            return matmul(a, b)
        if p.compute_mode == MatrixMulComputeMode.FLOAT32:
            return stored(matmul(a, b), dtype)
        return stored(_narrow(a, b, dtype), dtype)
    bounds = tuple(
        c.memo[("bound", i)] if ("bound", i) in c.memo else largest(x) for i, x in enumerate((a, b))
    )
    return int_matmul(a, b, c.outputs[0].np, (bounds[0], bounds[1]))


def _narrow(a: Array, b: Array, dtype: DType) -> Array:
    """Multiply float32 arrays, rounding sums to a narrower type after every addition."""
    out = np.empty((*a.shape[:-1], b.shape[-1]), np.float32)
    stacks = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), out.reshape(-1, *out.shape[-2:])
    for x, y, z in zip(*stacks, strict=True):

        def rows(s: slice, x: Array = x, y: Array = y, z: Array = z) -> None:
            total = np.zeros_like(z[s])
            for k in range(x.shape[1]):
                total = rounded(total + x[s, k : k + 1] * y[k], dtype)
            z[s] = total

        in_rows(rows, *z.shape)
    return out


def unpacked(p: MatrixMul, a: Array, b: Array) -> tuple[Array, Array]:
    """Unpack matrices to [M, K] and [K, N]."""
    if p.format == Format.N32K4_DOT:
        n, k = b.shape[:2]
        return a, b.transpose(1, 3, 0, 2).reshape(k * 4, n * 32)
    if p.transposeA:
        a = a.swapaxes(0, 1)
    if p.transposeB:
        b = b.swapaxes(0, 1)
    m, k, pack = a.shape[:3]
    # The inner block holds [k, m] in MK4 and MK8, [m, k] in MK4_DOT.
    a = a.transpose(0, 2, 1, 3) if p.format == Format.MK4_DOT else a.transpose(0, 3, 1, 2)
    return a.reshape(m * pack, k * pack), b.transpose(0, 2, 1).reshape(k * pack, b.shape[1])


def _plain_pair(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    a, b = inputs
    if a != b or a.is_quantized or a.name in ("Bool", "Uint16", "Byte", "Complex64"):
        raise ValueError(f"{opr.type} takes two inputs of one plain dtype, found {a} and {b}")
    return (a,)


@kernel(
    "Dot",
    dtype=_plain_pair,
    shape=lambda s: ((1,),),
    flops=lambda opr, inputs, outputs: 2 * max(prod(s) for s in inputs),
)
def dot(c: Call, a: Array, b: Array) -> Array:
    """Compute the inner product of two vectors; one of a single element stands for a vector of that value."""
    if a.ndim != 1 or b.ndim != 1 or (a.size != b.size and 1 not in (a.size, b.size)):
        raise ValueError(f"Dot takes two vectors of one length, found {list(a.shape)} and {list(b.shape)}")
    dtype = c.inputs[0]
    if dtype.name in ("Float16", "BFloat16"):
        products = a.astype(np.float32) * b.astype(np.float32)
        total = np.zeros(1, np.float32)
        for i in range(products.size):
            total = rounded(total + products[i : i + 1], dtype)
        return stored(total, dtype)
    return np.add.reduce(a * b, keepdims=True, dtype=a.dtype)


def _float_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    names = ("Float32", "Float16") if opr.type == "MatrixInverse" else ("Float32",)
    if inputs[0].name not in (*names, "Float64"):
        raise ValueError(f"{opr.type} takes {' or '.join(names)}, found {inputs[0]}")
    return (inputs[0],) * len(opr.outputs)


def _square(shape: Shape) -> Shape:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"MatrixInverse takes square matrices, found {list(shape)}")
    return shape


def _inverse_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return 2 * prod(inputs[0]) * inputs[0][-1]


@kernel("MatrixInverse", dtype=_float_dtype, shape=lambda s: (_square(s.shape(0)),), flops=_inverse_flops)
def matrix_inverse(c: Call, x: Array) -> Array:
    """Invert every matrix of a stack; a singular one is an error, as in MegEngine."""
    _square(x.shape)
    if c.outputs[0].name == "Float16":
        return _half_inverse(x)
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError as e:
        raise ValueError(f"a matrix to invert is singular, shape {list(x.shape)}") from e


def _half_inverse(x: Array) -> Array:
    """Invert by Gauss-Jordan elimination, rounding to float16 at every step as MegEngine's kernel does."""
    dtype = plain("Float16")
    n = x.shape[-1]
    rows = np.zeros((prod(x.shape[:-2]), n, 2 * n), np.float32)
    rows[:, :, :n] = x.reshape(-1, n, n)
    rows[:, np.arange(n), n + np.arange(n)] = 1
    every = np.arange(len(rows))
    for i in range(n):
        pivot = i + np.abs(rows[:, i:, i]).argmax(axis=1)
        if not (np.abs(rows[every, pivot, i]) >= 1e-7).all():
            raise ValueError(f"a matrix to invert is singular, shape {list(x.shape)}")
        top = rows[every, pivot]
        rows[every, pivot] = rows[:, i]
        factor = rounded(-rows[:, :, i] / top[:, i, None], dtype)
        rows = rounded(rows + top[:, None] * factor[:, :, None], dtype)
        rows[:, i] = rounded(top * rounded(1 / top[:, i, None], dtype), dtype)
    return rows[:, :, n:].astype(np.float16).reshape(x.shape)


def _svd_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape = s.shape(0)
    if len(shape) < 2:
        raise ValueError(f"SVD takes matrices, found shape {list(shape)}")
    p = s.get(SVD)
    *lead, m, n = shape
    k = min(m, n)
    values = (*lead, k)
    if not p.compute_uv:
        return (values,)
    rows, columns = (m, n) if p.full_matrices else (k, k)
    return ((*lead, m, rows), values, (*lead, columns, n))


def _svd_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return 4 * prod(inputs[0]) * min(inputs[0][-2:])


@kernel("SVD", dtype=_float_dtype, shape=_svd_shape, flops=_svd_flops)
def svd(c: Call, x: Array) -> tuple[Array, ...]:
    """Decompose every matrix of a stack into singular values: u, s and vt with ``x = u @ diag(s) @ vt``."""
    if x.ndim < 2:
        raise ValueError(f"SVD takes matrices, found shape {list(x.shape)}")
    p = c.get(SVD)

    return svd_kernel.decompose(x, p.full_matrices, p.compute_uv)


def _cross_axes(p: Cross, a: Shape, b: Shape) -> tuple[int, int, int]:
    axes = []
    for axis, shape in ((p.axisa, a), (p.axisb, b), (p.axisc, a)):
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"Cross has axis {axis}, its input {len(shape)} dimensions")
        axes.append(axis % len(shape))
    ia, ib, ic = axes
    if a[ia] != 3 or b[ib] != 3:
        raise ValueError(f"Cross takes vectors of 3 elements, found {list(a)} and {list(b)}")
    if a[:ia] + a[ia + 1 :] != b[:ib] + b[ib + 1 :]:
        raise ValueError(f"shapes {list(a)} and {list(b)} differ beside the vectors' axes")
    return ia, ib, ic


def _cross_shape(s: ShapeCall) -> Sequence[Shape | None]:
    a = s.shape(0)
    ia, _, ic = _cross_axes(s.get(Cross), a, s.shape(1))
    rest = [*a[:ia], *a[ia + 1 :]]
    return ((*rest[:ic], 3, *rest[ic:]),)


@kernel("Cross", dtype=_plain_pair, shape=_cross_shape, flops=per_input(3))
def cross(c: Call, a: Array, b: Array) -> Array:
    """Compute the cross products of vectors of three elements along given axes."""
    ia, ib, ic = _cross_axes(c.get(Cross), a.shape, b.shape)
    dtype = c.outputs[0]
    x, y = np.moveaxis(a, ia, 0), np.moveaxis(b, ib, 0)
    if dtype.name == "Float16":
        x, y = x.astype(np.float32), y.astype(np.float32)
    parts = [x[i] * y[j] - x[j] * y[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    out = np.stack(parts, ic)
    return stored(out, dtype) if dtype.is_float else out

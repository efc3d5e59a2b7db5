"""Functions that make tensors: ranges, constants, diagonals, grids, complex numbers."""

from typing import TypeAlias, cast

import numpy as np

from ..base.errors import EngineError
from ..graph import params as P
from ..graph.dtypes import Array
from ..tensors import (
    ShapeLike,
    Tensor,
    TensorLike,
    TracedNumber,
    apply1,
    as_tensor,
    const,
    elemwise,
    shape_tensor,
)
from ..tensors.access import as_vector, dtype_of, snapshot, static_shape
from ..tensors.complex_pairs import as_pair, of_pair
from ..tensors.dtypes import COMPLEX, DTypeLike, graph_dtype
from ..tensors.naming import titled
from ..tensors.shaping import broadcast_to
from ..tensors.switches import check_device
from .elemwise import cos, sin

Number: TypeAlias = float | np.generic | Array | Tensor
"""A number, or a scalar array or tensor."""
_M = P.ElemwiseMode


def arange(
    start: Number = 0,
    stop: Number | None = None,
    step: Number = 1,
    *,
    dtype: DTypeLike = "float32",
    device: str | None = None,
) -> Tensor:
    """Return numbers from `start` up to `stop`, which is left out, `step` apart; computed in float32 as MegEngine does.

    Args:
        start: the first number; the end, if `stop` is not given.
        stop: the end.
        step: the distance, possibly negative.
        dtype: of the result.
        device: a name that MegEngine knows; the CPU computes.

    >>> arange(5).tolist(), arange(9, 2, -3, dtype="int32").tolist()
    ([0.0, 1.0, 2.0, 3.0, 4.0], [9, 6, 3])
    """
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, (Tensor, TracedNumber)) for v in (start, stop, step)):
        first, last, distance = (as_tensor(v, "float32") for v in (start, stop, step))
        num = elemwise(_M.CEIL, (last - first) / distance)
        return linspace(first, first + distance * (num - 1), num, dtype=dtype, device=device)
    a, b, d = (np.float32(v) for v in (start, stop, step))
    with np.errstate(all="ignore"):
        quotient = np.ceil((b - a) / d)
        if not np.isfinite(quotient):
            raise ValueError(f"the range from {start} to {stop} by steps of {step} has no length")
        count = max(int(quotient), 0)
        return linspace(float(a), float(a + d * np.float32(count - 1)), count, dtype=dtype, device=device)


def linspace(
    start: TensorLike,
    stop: TensorLike,
    num: TensorLike,
    *,
    dtype: DTypeLike = "float32",
    device: str | None = None,
) -> Tensor:
    """Return `num` evenly spaced numbers from `start` to `stop`, both included; computed in double precision.

    Args:
        start: the first number or a scalar tensor.
        stop: the last one.
        num: how many, a number or a scalar tensor.
        dtype: of the result.
        device: a name that MegEngine knows; the CPU computes.

    Raises:
        EngineError: a bound is a uint16 tensor, or the number is one or a boolean one.

    >>> linspace(2, 3, 5).tolist()
    [2.0, 2.25, 2.5, 2.75, 3.0]
    """
    inputs = [as_tensor(v) for v in (start, stop, num)]
    for x, part in zip(inputs, ("start", "stop", "number"), strict=True):
        if dtype_of(x).name == "Uint16" or (dtype_of(x).name == "Bool" and part == "number"):
            raise EngineError(
                f"Linspace does not take {dtype_of(x)} as its {part}; convert it to int32 or float32"
            )
    check_device(device)
    return apply1("Linspace", P.Linspace(endpoint=True), inputs=inputs, scalar=False).astype(dtype)


def eye(
    N: ShapeLike, M: int | Tensor | None = None, *, dtype: DTypeLike = "float32", device: str | None = None
) -> Tensor:
    """Return a matrix with ones on its diagonal and zeros elsewhere.

    Args:
        N: the number of rows; or, without `M`, a pair, or a tensor of one or two sizes.
        M: the number of columns, by default as many as rows.
        dtype: of the result.
        device: a name that MegEngine knows; the CPU computes.

    >>> eye(2, 3, dtype="int32").tolist()
    [[1, 0, 0], [0, 1, 0]]
    """
    shape = shape_tensor(N if M is None else (cast("int | Tensor", N), M))
    want = graph_dtype(dtype)
    # MegEngine's kernel gives zeros for uint16.
    kind = P.DTypeEnum["Int32" if want.name == "Uint16" else want.name]
    check_device(device)
    return apply1("Eye", P.Eye(k=0, dtype=kind), inputs=[shape], scalar=False).astype(want)


def diag(inp: TensorLike, k: int = 0) -> Tensor:
    """Return the diagonal `k` of a matrix, or the square matrix that has a vector as its diagonal `k`.

    Args:
        inp: a matrix or a vector.
        k: 0 for the main diagonal, above it positive, below it negative.

    Raises:
        EngineError: neither a matrix nor a vector, or the diagonal is outside the matrix.

    >>> diag(Tensor([[1, 2], [3, 4]])).tolist(), diag(Tensor([1, 2]), 1).tolist()
    ([1, 4], [[0, 1, 0], [0, 0, 2], [0, 0, 0]])
    """
    return apply1("Diag", P.Diag(k=k), inputs=[as_tensor(inp)], scalar=False)


def full(
    shape: ShapeLike, value: TensorLike, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """Return a tensor of one value.

    Args:
        shape: one size, several, or a tensor of sizes; ``()`` for a scalar.
        value: a number.
        dtype: of the result; by default that of the value, int32 for integers.
        device: a name that MegEngine knows; the CPU computes.

    >>> full((2, 3), 6).tolist()
    [[6, 6, 6], [6, 6, 6]]
    """
    return _broadcast_filling(shape, as_tensor(value, dtype), "Broadcast", device)


def _broadcast_filling(shape: ShapeLike, filling: Tensor, name: str, device: str | None = None) -> Tensor:
    check_device(device)
    if isinstance(shape, Tensor):
        shape = as_vector(shape)
    if not isinstance(shape, (int, np.integer)) and not len(shape):
        return snapshot(filling)
    sizes = shape_tensor(shape)
    with titled(name, None if name == "Broadcast" else filling):
        return apply1("Broadcast", P.Empty(), inputs=[filling, sizes], scalar=False)


def ones(shape: ShapeLike, *, dtype: DTypeLike = "float32", device: str | None = None) -> Tensor:
    """Return a tensor of ones; the arguments are those of `full`.

    >>> ones((2, 2)).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _broadcast_filling(shape, as_tensor(1, dtype), "Fill", device)


def zeros(shape: ShapeLike, *, dtype: DTypeLike = "float32", device: str | None = None) -> Tensor:
    """Return a tensor of zeros; the arguments are those of `full`.

    >>> zeros(3, dtype="int32").tolist()
    [0, 0, 0]
    """
    return _broadcast_filling(shape, as_tensor(0, dtype), "Fill", device)


def full_like(inp: TensorLike, value: TensorLike) -> Tensor:
    """Return a tensor of one value with the shape and dtype of another; fractions are cut off for integers.

    >>> full_like(Tensor([[1, 2], [3, 4]]), 2.7).tolist()
    [[2, 2], [2, 2]]
    """
    x = as_tensor(inp)
    return _broadcast_filling(x.shape, const(value, x.dtype), "FillLike")


def ones_like(inp: TensorLike) -> Tensor:
    """Return ones with the shape and dtype of a tensor.

    >>> ones_like(Tensor([1.5, 2.5])).tolist()
    [1.0, 1.0]
    """
    return full_like(inp, 1)


def zeros_like(inp: TensorLike) -> Tensor:
    """Return zeros with the shape and dtype of a tensor.

    >>> zeros_like(Tensor([[1], [2]])).tolist()
    [[0], [0]]
    """
    return full_like(inp, 0)


def meshgrid(*inputs: TensorLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Make coordinate grids of vectors: output i has the values of input i along its axis and repeats them along
    others.

    Args:
        inputs: vectors.
        indexing: ``ij`` gives the shape ``(n0, n1, n2, ...)``, ``xy`` the shape ``(n1, n0, n2, ...)``.

    Raises:
        ValueError: another `indexing`, or an input that is not a vector.

    >>> [g.tolist() for g in meshgrid(Tensor([1, 2, 3]), Tensor([4, 5]))]
    [[[1, 2, 3], [1, 2, 3]], [[4, 4, 4], [5, 5, 5]]]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing must be 'xy' or 'ij', found {indexing!r}")
    vectors = [as_tensor(v) for v in inputs]
    for v in vectors:
        if v.ndim > 1:
            raise ValueError(f"the grid's inputs must be vectors, found shape {list(v.shape)}")
    order = [*range(len(vectors))]
    if indexing == "xy":
        order[:2] = order[:2][::-1]
    target = shape_tensor([vectors[i].shape[0] if vectors[i].ndim else 1 for i in order])
    grids = []
    for i, v in enumerate(vectors):
        lone = [1] * len(vectors)
        lone[order.index(i)] = -1
        param = P.OptionalAxisV1(axis=order.index(i))
        column = apply1("ReshapeV1", param, inputs=[v, shape_tensor(lone)], scalar=False)
        grids.append(apply1("Broadcast", P.Empty(), inputs=[column, target], scalar=False))
    return tuple(grids)


def _parts(*values: TensorLike) -> list[Tensor]:
    """Return float32 tensors of the shape to which tensors broadcast."""
    parts = [as_tensor(v, None if isinstance(v, Tensor) else "float32").astype("float32") for v in values]
    shape = np.broadcast_shapes(*(static_shape(x) for x in parts))
    like = next((x for x in parts if static_shape(x) == shape), None)
    target = shape if like is None else like.shape
    return [x if static_shape(x) == shape else broadcast_to(x, target) for x in parts]


def complex(real: TensorLike, imag: TensorLike) -> Tensor:
    """Return complex numbers (complex64) of their real and imaginary parts.

    They can be added, subtracted, multiplied and negated among themselves, reshaped and indexed. A traced function
    records their parts; it can neither take nor return them.

    >>> z = complex(Tensor([1.0, 2.0]), Tensor([3.0, 4.0]))
    >>> z.tolist(), (z * z).tolist()
    ([(1+3j), (2+4j)], [(-8+6j), (-12+16j)])
    """
    return of_pair(*_parts(real, imag))


def polar(abs: TensorLike, angle: TensorLike) -> Tensor:
    """Return complex numbers (complex64) of their absolute values and angles, as `complex` does.

    >>> polar(Tensor([2.0]), Tensor([0.0])).tolist()
    [(2+0j)]
    """
    return complex(elemwise(_M.MUL, abs, cos(angle)), elemwise(_M.MUL, abs, sin(angle)))


def real(complex: TensorLike) -> Tensor:
    """Return the real parts of complex numbers; of real ones the numbers themselves.

    >>> real(Tensor([1 + 2j])).tolist()
    [1.0]
    """
    z = as_tensor(complex)
    return as_pair(z)[0] if dtype_of(z) == COMPLEX else z


def imag(complex: TensorLike) -> Tensor:
    """Return the imaginary parts of complex numbers; of real ones zeros.

    >>> imag(Tensor([1 + 2j])).tolist()
    [2.0]
    """
    z = as_tensor(complex)
    return as_pair(z)[1] if dtype_of(z) == COMPLEX else zeros_like(z)

"""The building blocks from which numpy's functions are lowered: each applies one or two of MegEngine's operators.

Everything takes and gives plain tensors of the graph; dtypes have been made equal by the caller. Sizes are taken
from ``x.shape``, so that they stay symbolic, and lists of axes from numbers known now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, SupportsInt

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array as NDArray, DType, plain
from ..ops.registry import BudgetError, affordable, pay
from ..tensors import access
from ..tensors.applying import apply, apply1, elemwise_param, type_cvt
from ..tensors.convert import const, shape_tensor
from ..tensors.dtypes import graph_dtype
from ..tensors.switches import active, suspended
from ..tensors.symbolic import TracedInt, TracedNumber, largest, least, place_of
from ..tensors.value import Tensor

M = P.ElemwiseMode
INT_MAX = 2**31 - 1
_BOOL, _INT = plain("Bool"), plain("Int32")
Index = tuple[int, Any, Any, Any, Any]
"""One indexed axis: axis, begin, end, step, index; None if absent."""


def is_bool(x: Tensor) -> bool:
    """Return whether a tensor holds booleans."""
    return access.dtype_of(x).name == "Bool"


def is_float(x: Tensor) -> bool:
    """Return whether a tensor holds floating-point numbers."""
    return access.dtype_of(x).is_float


def known(x: Tensor) -> NDArray | None:
    """Return the value of a tensor that is a constant of the graph, else None."""
    return access.value_of(x) if access.is_constant(x) else None


def fluid(x: Tensor) -> bool:
    """Return whether the data may decide how large a tensor is."""
    session = access.session_of(x)
    return session is not None and session.fluid(x)


def folded(func: Callable[..., Tensor], *xs: Tensor) -> Tensor:
    """Return what a function gives for tensors; a constant where all are constants and the budget allows for it."""
    if any(access.session_of(x) is not None for x in xs):
        return func(*xs)
    try:
        with suspended():
            result = func(*xs)
    except BudgetError:
        if active() is None:
            raise
        return func(*xs)
    access.mark_constant(result)
    return result


def sizes(x: Tensor) -> tuple[int, ...]:
    """Return the shape as it is now, in plain numbers."""
    return access.static_shape(x)


def elem(mode: P.ElemwiseMode, *xs: Tensor) -> Tensor:
    """Return an elementwise mode of tensors of one dtype, which broadcast."""
    return apply1("Elemwise", elemwise_param(mode), inputs=xs)


def compare(mode: P.ElemwiseMultiTypeMode, *xs: Tensor) -> Tensor:
    """Return a comparison of tensors of one dtype, as booleans."""
    return apply1("ElemwiseMultiType", P.ElemwiseMultiType(mode=mode), inputs=xs, output_dtype=_BOOL)


def cast(x: Tensor, dtype: object) -> Tensor:
    """Return the values in another dtype of the graph; unchanged where they have it."""
    want = dtype if isinstance(dtype, DType) else graph_dtype(dtype)
    if want == access.dtype_of(x):
        return x
    value = known(x)
    if (
        value is not None
        and not (access.dtype_of(x).is_float and not want.is_float)
        and want.name != "BFloat16"
    ):
        with np.errstate(all="ignore"):
            return access.from_stored(value.astype(want.np), want, access.is_scalar(x), const=True)
    return type_cvt(x, want)


def as_float(x: Tensor) -> Tensor:
    """Return the values in the float dtype that they are computed in: float64 where they have 64 bits, else float32."""
    return cast(x, plain("Float64" if access.dtype_of(x).is_wide else "Float32"))


def whole(x: Tensor) -> Tensor:
    """Return the values as integers of at least 32 bits: int32, or the wider type that they have."""
    return x if access.dtype_of(x).is_wide and not is_float(x) else cast(x, _INT)


def number(value: float, x: Tensor) -> Tensor:
    """Return a constant scalar of the dtype of `x`; one tensor for equal numbers, so that a trace has it once."""
    # Equality ignores the sign of zero and fails for NaN.
    return (
        _scalar_constant(value, np.signbit(value), access.dtype_of(x))
        if value == value
        else const(value, access.dtype_of(x))
    )


@lru_cache(maxsize=1024)
def _scalar_constant(value: float, negative: bool, dtype: DType) -> Tensor:
    return const(np.asarray(value), dtype)


def like(value: object, x: Tensor) -> Tensor:
    """Return a constant array, or a size, in the dtype of `x`."""
    if isinstance(value, TracedNumber) and (result := access.recorded(value)) is not None:
        return cast(result, access.dtype_of(x))
    return const(np.asarray(value), access.dtype_of(x))


def logical_not(x: Tensor) -> Tensor:
    """Return the negation of a boolean tensor."""
    return elem(M.NOT, x)


def where(mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Choose `x` where the mask is true, else `y`: two conditional moves, put together; shapes broadcast."""
    if is_bool(x):
        return elem(M.OR, elem(M.AND, mask, x), elem(M.AND, logical_not(mask), y))
    if access.dtype_of(x).name == "Uint16":
        return cast(where(mask, cast(x, _INT), cast(y, _INT)), access.dtype_of(x))
    chosen, zero = cast(mask, access.dtype_of(x)), number(0, x)

    def moved(x: Tensor) -> Tensor:
        return elem(M.COND_LT_MOV, zero, chosen, x)

    def stayed(y: Tensor) -> Tensor:
        return elem(M.COND_LEQ_MOV, chosen, zero, y)

    if _is_zero(x) or _is_zero(y):
        if _is_zero(x) and _is_zero(y):
            return elem(M.MUL, chosen, x)
        result, zeros, other = (moved(x), y, x) if _is_zero(y) else (stayed(y), x, y)
        rank = max(len(sizes(mask)), len(sizes(other)))
        return result if len(sizes(zeros)) <= rank else elem(M.SUB, result, zeros)
    return elem(M.ADD, moved(x), stayed(y))


def _is_zero(x: Tensor) -> bool:
    """Return whether it is the constant that a conditional move gives elsewhere."""
    value = known(x)
    return value is not None and value.size == 1 and not value.any()


def is_nan(x: Tensor) -> Tensor:
    """Tell where a float tensor is not a number."""
    return compare(P.ElemwiseMultiTypeMode.ISNAN, x)


def rint(x: Tensor) -> Tensor:
    """Return the nearest integer; halves go to the even one, where MegEngine's own ROUND goes away from zero."""
    if not is_float(x):
        return x
    half = number(0.5, x)
    even = elem(M.MUL, elem(M.ROUND, elem(M.MUL, x, half)), number(2, x))
    tie = compare(P.ElemwiseMultiTypeMode.EQ, elem(M.SUB, x, elem(M.FLOOR, x)), half)
    return where(tie, even, elem(M.ROUND, x))


# Shapes


def broadcast_shape(xs: Iterable[Tensor | Sequence[int]]) -> tuple[int, ...]:
    """Return the shape to which tensors (or shapes) broadcast, with symbolic sizes.

    Raises:
        ValueError: they do not broadcast, worded as numpy does.
    """
    shapes = [x.shape if isinstance(x, Tensor) else tuple(x) for x in xs]
    ndim = max(map(len, shapes), default=0)
    out: list[int] = [1] * ndim
    for shape in shapes:
        for axis, n in enumerate(shape, ndim - len(shape)):
            other = out[axis]
            if int(n) != int(other) and 1 not in (int(n), int(other)):
                text = " ".join(str(tuple(map(int, s))) for s in shapes)
                raise ValueError(f"operands could not be broadcast together with shapes {text}")
            out[axis] = _wider(other, n)
    return tuple(out)


def _wider(a: int, b: int) -> int:
    """Return the size to which two sizes broadcast, symbolic where it can be."""
    n = int(b) if int(a) == 1 else int(a)
    if n == 0:
        return a if int(a) == 0 else b
    if not isinstance(a, TracedInt) or not isinstance(b, TracedInt):
        # A symbolic size of 1 may be the other's at another batch size.
        chosen = b if int(a) == 1 else a
        other = a if int(a) == 1 else b
        return other if int(chosen) == 1 and isinstance(other, TracedInt) else chosen
    if _same_size(a, b):
        return a
    # A size of 0 wins over 1.
    return largest(a, b) * least(a * b, 1)


def _same_size(a: TracedInt, b: TracedInt) -> bool:
    one, other = place_of(a), place_of(b)
    if one is None or other is None:
        return a is b
    return access.variable_of(one[0]) is access.variable_of(other[0]) and one[1] == other[1]


def _own_shape(x: Tensor, shape: Sequence[int]) -> bool:
    """Return whether a shape is the tensor's own, also at other sizes."""
    known = x.shape
    return len(known) == len(shape) and all(
        _same_size(n, m)
        if isinstance(n, TracedInt) and isinstance(m, TracedInt)
        else not isinstance(m, TracedInt) and int(n) == int(m)
        for n, m in zip(known, shape, strict=True)
    )


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the values in another shape; one entry may be -1, which then follows from the others."""
    if not shape:
        return x if access.is_scalar(x) else access.as_scalar(reshape(x, (1,)))
    x = access.as_vector(x)
    now = access.static_shape(x)
    # A vector of a fixed size refuses open ones, by which conditions on sizes are kept.
    refuses = isinstance(shape[0], TracedInt) and not isinstance(x.shape[0], TracedInt)
    if (len(now) == len(shape) == 1 and not refuses) or _own_shape(x, shape):
        return x
    missing = [i for i, n in enumerate(shape) if not isinstance(n, TracedInt) and int(n) == -1]
    param = P.OptionalAxisV1(axis=missing[0] if missing else 7)
    target = [1 if i in missing else n for i, n in enumerate(shape)]
    return apply1("ReshapeV1", param, inputs=[x, shape_tensor(target)], scalar=False)


def flat(x: Tensor) -> Tensor:
    """Return the values as a vector."""
    return access.as_vector(x) if sizes(x) == () or len(sizes(x)) == 1 else reshape(x, (-1,))


def broadcast(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the values repeated up to a shape.

    Raises:
        ValueError: that is not possible, worded as numpy does.
    """
    now, want = sizes(x), tuple(map(int, shape))
    if now == want and _own_shape(x, shape):
        return x
    if len(now) > len(want) or any(n not in (1, m) for n, m in zip(now[::-1], want[::-1], strict=False)):
        raise ValueError(f"could not broadcast input array from shape {now} into shape {want}")
    return apply1("Broadcast", P.Empty(), inputs=[access.as_vector(x), shape_tensor(shape)], scalar=False)


def permute(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the axes in another order; the tensor itself where that is the same one."""
    if list(axes) == list(range(len(axes))):
        return x
    return apply1("Dimshuffle", P.Dimshuffle(pattern=tuple(axes), ndim=len(axes)), inputs=[x])


def add_axes(x: Tensor, axes: Iterable[int]) -> Tensor:
    """Return new axes of size 1 at these places of the result."""
    places = sorted(axes)
    if access.is_scalar(x) and places:
        x, places = access.as_vector(x), places[1:]
    if not places:
        return x
    desc = tuple(P.AxisDesc(0, a) for a in places)
    return apply1("AxisAddRemove", P.AxisAddRemove(desc=desc), inputs=[x], scalar=False)


def drop_axes(x: Tensor, axes: Iterable[int]) -> Tensor:
    """Drop these axes, which have size 1."""
    places = sorted(axes, reverse=True)
    if not places:
        return x
    scalar = len(places) == len(sizes(x))
    if scalar:
        places = places[:-1]
    if places:
        desc = tuple(P.AxisDesc(1, a) for a in places)
        x = apply1("AxisAddRemove", P.AxisAddRemove(desc=desc), inputs=[x], scalar=False)
    return access.as_scalar(x) if scalar else x


def concat(xs: Sequence[Tensor], axis: int) -> Tensor:
    """Return tensors of one dtype joined along an axis."""
    return xs[0] if len(xs) == 1 else apply1("Concat", P.Axis(axis=axis), inputs=xs, scalar=False)


def arange(n: int, dtype: object = "int32") -> Tensor:
    """Return the numbers from 0 to n-1; made in the graph where the size is symbolic."""
    if not isinstance(n, TracedInt) or access.recorded(n) is None:
        pay(12 * int(n))
        return const(np.arange(int(n)), dtype)
    last = cast(like(n - 1, const(0)), "float32")
    count = shape_tensor((n,))
    param = P.Linspace(endpoint=True)
    return cast(apply1("Linspace", param, inputs=[const(np.float32(0)), last, count], scalar=False), dtype)


def full(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a tensor of one value; a constant where all sizes are numbers."""
    result = known(value)
    if result is not None and not any(isinstance(n, TracedInt) for n in shape) and result.size == 1:
        fixed = tuple(map(int, shape))
        if affordable(prod(fixed) * result.itemsize):
            return const(np.full(fixed, result.reshape(())), access.dtype_of(value))
    return broadcast(value, shape) if shape else reshape(value, ())


# Reductions


def reduce(
    x: Tensor,
    mode: P.ReduceMode,
    axes: Sequence[int],
    kind: P.ReduceDataType = P.ReduceDataType.DEFAULT,
    *,
    keepdims: object = False,
) -> Tensor:
    """Reduce axes: all axes at once, as one vector; so are neighbours whose sizes are known."""
    if not axes:
        return x
    x = access.as_vector(x)
    joined, places, gone = _neighbours_joined(x.shape, axes)
    x = reshape(x, joined) if len(joined) < x.ndim else x
    for axis in places:
        x = apply1("ReduceV2", P.Reduce(mode=mode, axis=axis, data_type=kind), inputs=[x], scalar=False)
    return add_axes(x, gone) if keepdims else drop_axes(x, places)


def _neighbours_joined(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Return a shape in which axes that are reduced side by side are one, the axes to reduce there, and those gone."""
    if len(axes) == len(shape):
        return [-1], [0], list(range(1, len(shape)))
    joined: list[int] = []
    places: list[int] = []
    gone: list[int] = []
    for i, n in enumerate(shape):
        if (
            i in axes
            and i - 1 in axes
            and not isinstance(n, TracedInt)
            and not isinstance(joined[-1], TracedInt)
        ):
            joined[-1] *= n
            gone.append(i)
            continue
        if i in axes:
            places.append(len(joined))
        joined.append(n)
    return joined, places, gone


def summed(x: Tensor, axes: Sequence[int], keepdims: object = False) -> Tensor:
    """Return the sum over axes in the tensor's own dtype; float16 is summed in float32, as numpy does."""
    return reduce(x, P.ReduceMode.SUM, axes, half_sums(x), keepdims=keepdims)


def mean(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the mean over axes, which stay; of float16 summed in float32."""
    return cast(reduce(as_float(x), P.ReduceMode.MEAN, axes, keepdims=True), access.dtype_of(x))


def half_sums(x: Tensor) -> P.ReduceDataType:
    """Return what a reduction computes in: float32 for float16, else the tensor's own dtype."""
    return (
        P.ReduceDataType.FLOAT_O16xC32 if access.dtype_of(x).name == "Float16" else P.ReduceDataType.DEFAULT
    )


def kept(x: Tensor, axes: Sequence[int], keepdims: object) -> Tensor:
    """Return a reduced tensor with the reduced axes back, where they are to be kept."""
    return add_axes(x, axes) if keepdims else x


# Indexing


def _scalar_index(value: Tensor | SupportsInt) -> Tensor:
    if isinstance(value, Tensor):
        return access.as_vector(whole(value))
    if isinstance(value, TracedInt) and (result := access.recorded(value)) is not None:
        return access.as_vector(result)
    return const(np.asarray([int(value)], np.int32))


def _items(index: Sequence[Index]) -> tuple[P.IndexDescMaskDump, list[Tensor]]:
    items, inputs = [], []
    for axis, *parts in index:
        items.append(P.IndexItem(axis, *(p is not None for p in parts)))
        inputs += [_scalar_index(p) for p in parts if p is not None]
    return P.IndexDescMaskDump(items=tuple(items)), inputs


def subtensor(x: Tensor, index: Sequence[Index]) -> Tensor:
    """Read slices and single indices, one entry per axis; axes of single ones are dropped."""
    if not index:
        return x
    param, inputs = _items(index)
    gone = sum(i[4] is not None for i in index)
    return apply1("Subtensor", param, inputs=[x, *inputs], scalar=gone == len(sizes(x)))


def set_subtensor(x: Tensor, value: Tensor, index: Sequence[Index]) -> Tensor:
    """Return `x` with what `subtensor` reads replaced; the value has exactly that shape."""
    param, inputs = _items(index)
    return apply1("SetSubtensor", param, inputs=[x, access.as_vector(value), *inputs], scalar=False)


def gather(x: Tensor, index: Sequence[tuple[int, Tensor]]) -> Tensor:
    """Index as numpy does by int32 tensors on some axes, which broadcast together."""
    param = P.IndexDescMaskDump(items=tuple(P.IndexItem(a, idx=True) for a, _ in index))
    ids = [whole(i) for _, i in index]
    result = apply1(
        "IndexingMultiAxisVec", param, inputs=[x, *(access.as_vector(i) for i in ids)], scalar=False
    )
    if all(access.is_scalar(i) for i in ids):
        axes = [a for a, _ in index]
        together = axes == list(range(axes[0], axes[0] + len(axes)))
        return drop_axes(result, [axes[0] if together else 0])
    return result


def scatter(x: Tensor, value: Tensor, index: Sequence[tuple[int, Tensor]], add: bool = False) -> Tensor:
    """Return `x` with what `gather` reads replaced, or added to; the value has exactly that shape."""
    param = P.IndexDescMaskDump(items=tuple(P.IndexItem(a, idx=True) for a, _ in index))
    name = "IndexingIncrMultiAxisVec" if add else "IndexingSetMultiAxisVec"
    ids = [access.as_vector(whole(i)) for _, i in index]
    return apply1(name, param, inputs=[x, access.as_vector(value), *ids], scalar=False)


def cond_take(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the elements where a boolean mask of the same shape is true, and their places in the vector of all."""
    param = P.CondTake(mode=P.CondTakeMode.EQ, val=1.0)
    values, places = apply(
        "CondTake", param, inputs=[access.as_vector(x), access.as_vector(mask)], n=2, scalar=False
    )
    return values, places

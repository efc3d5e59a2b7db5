"""com.microsoft's operators that are ONNX's own in an older form, or a few operators each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...build import emit as e
from ...build.layers.activation import gelu, softmax
from ...build.layers.norm import group_norm
from ...graph import params as P
from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, static_shape
from ..call import CONTRIB, NodeCall, Result, find, front, lower
from ..values import UnsupportedNodeError, Value
from . import M, cast, const_like
from .convolution import from_last, to_last
from .indexing import uniques
from .linalg import matmul
from .shapes import flat_to_2d

__all__: list[str] = []

_EQ, _LT = P.ElemwiseMultiTypeMode.EQ, P.ElemwiseMultiTypeMode.LT


def _as(name: str, opset: int) -> Callable[[NodeCall], Result]:
    """Apply ONNX's own operator in the version of an opset."""

    def run(c: NodeCall) -> Result:
        own = find("", name)
        assert own is not None
        c.op, c.opset = name, opset
        return own.run(c)

    return run


for _name, _opset in (("GridSample", 16), ("Pad", 11), ("GatherND", 13), ("Trilu", 14)):
    lower(_name, domain=CONTRIB)(_as(_name, _opset))


@lower("Range", domain=CONTRIB)
def _range(c: NodeCall) -> Result:
    """Return the numbers from a start to a limit; the step is 1 if left out."""
    if not c.has(2):
        kind = c.kind(0)
        c.inputs[2:] = [Value(kind, array=np.array(1, np.float32 if kind == 1 else np.int64))]
    c.inputs = [_scalar(c.value(i)) for i in range(3)]
    return _as("Range", 11)(c)


def _scalar(value: Value) -> Value:
    constant = value.constant()
    if constant is not None:
        return Value(value.kind, array=constant.reshape(()))
    return Value(value.kind, e.reshape(value.tensor, ()))


@lower("ExpandDims", domain=CONTRIB)
def _expand_dims(c: NodeCall) -> Tensor:
    (axis,) = c.integers(1, "axis")
    return e.add_axes(c.t(0), [front(axis, c.t(0).ndim + 1)])


@lower("Unique", domain=CONTRIB)
def _unique(c: NodeCall) -> tuple[Tensor | Value, ...]:
    """Return distinct elements in order of first occurrence, the index of each element among them, and counts."""
    rows = e.flat(c.t(0))
    result, _, inverse, counts = uniques(rows, e.reshape(rows, (-1, 1)), [0], by_value=False)
    return result, inverse, counts


@lower("UnfoldTensor", domain=CONTRIB)
def _unfold(c: NodeCall) -> Tensor:
    """Return slices of a size at every step along an axis, each along a new last axis."""
    x = c.t(0)
    axis, size, step = c.axis("dim", -1, x.ndim), c.number("size"), c.number("step", 1)
    n = static_shape(x)[axis]
    if size < 1 or step < 1 or size > n:
        raise UnsupportedNodeError(f"slices of {size} at steps of {step} along {n} elements")
    pay(12 * ((n - size) // step + 1) * size)
    places = np.arange((n - size) // step + 1)[:, None] * step + np.arange(size)
    result = e.gather(x, [(axis, const(places.astype(np.int32)))])
    return e.permute(result, [*range(axis + 1), *range(axis + 2, result.ndim), axis + 1])


@lower("CDist", domain=CONTRIB)
def _distances(c: NodeCall) -> Tensor:
    """Compute the distances of all rows of one matrix from all of another."""
    metric = c.choice("metric", "sqeuclidean", "euclidean")
    apart = e.elem(M.SUB, e.add_axes(c.t(0), [1]), e.add_axes(c.t(1), [0]))
    total = e.reduce(e.elem(M.SQUARE, apart), P.ReduceMode.SUM, [2])
    return e.elem(M.SQRT, total) if metric == "euclidean" else total


@lower("NGramRepeatBlock", domain=CONTRIB, like=1)
def _no_repeats(c: NodeCall) -> Tensor:
    """-inf for tokens that would end a run of tokens that was there before."""
    ids, scores = e.whole(c.t(0)), c.t(1)
    n, length = c.number("ngram_size"), static_shape(c.t(0))[1]
    runs = length - n + 1
    if n < 1:
        raise UnsupportedNodeError(f"runs of {n} tokens")
    if runs < 1:
        return scores
    same: Tensor | None = None
    for k in range(n - 1):
        early = e.subtensor(ids, [(1, k, k + runs, None, None)])
        last = e.subtensor(ids, [(1, runs + k, runs + k + 1, None, None)])
        agree = cast(e.compare(_EQ, early, last), "float32")
        same = agree if same is None else e.elem(M.MUL, same, agree)
    ended = e.subtensor(ids, [(1, n - 1, None, None, None)])
    if same is None:
        same = e.full(const(np.float32(1)), ended.shape)
    rows = e.broadcast(e.add_axes(e.arange(ids.shape[0]), [1]), ended.shape)
    nothing = e.full(const(np.float32(0)), scores.shape)
    result = e.scatter(nothing, same, [(0, rows), (1, ended)], add=True)
    return e.where(e.compare(_LT, const(np.float32(0)), result), const_like(-np.inf, scores), scores)


# Images


@lower("CropAndResize", domain=CONTRIB)
def _crop(c: NodeCall) -> Tensor:
    """Crop boxes and resize them to one size, corners aligned; fill outside with a value."""
    x, boxes = cast(c.t(0), "float32"), cast(c.t(1), "float32")
    which = e.whole(c.t(2))
    height, width = c.integers(3, "size of the crops")
    mode = c.choice("mode", "bilinear", "nearest")
    places = [_places(boxes, i, n, x.shape[2 + i]) for i, n in enumerate((height, width))]
    insides: list[Tensor] = []
    cells: list[list[tuple[Tensor, Tensor | None]]] = []
    for i, at in enumerate(places):
        last = e.like(x.shape[2 + i] - 1, at)
        clamped = e.elem(M.MIN, last, e.elem(M.MAX, const_like(0.0, at), at))
        axis = [2] if i == 0 else [1]
        insides.append(e.add_axes(e.compare(_EQ, clamped, at), axis))
        if mode == "nearest":
            cells.append([(e.add_axes(e.elem(M.ROUND, clamped), axis), None)])
            continue
        low = e.elem(M.FLOOR, clamped)
        high = e.elem(M.MIN, last, e.elem(M.ADD, low, const_like(1.0, low)))
        t = e.elem(M.SUB, clamped, low)
        shares = e.elem(M.SUB, const_like(1.0, t), t), t
        cells.append(
            [(e.add_axes(v, axis), e.add_axes(w, axis)) for v, w in zip((low, high), shares, strict=True)]
        )
    total: Tensor | None = None
    of = e.reshape(which, (-1, 1, 1))
    for row, up in cells[0]:
        for column, across in cells[1]:
            cell = e.gather(x, [(0, of), (2, e.whole(row)), (3, e.whole(column))])
            if up is not None and across is not None:
                cell = e.elem(M.MUL, cell, e.add_axes(e.elem(M.MUL, up, across), [3]))
            total = cell if total is None else e.elem(M.ADD, total, cell)
    assert total is not None
    inside = e.add_axes(e.elem(M.AND, insides[0], insides[1]), [3])
    outside = const_like(c.real("extrapolation_value"), total)
    return cast(e.permute(e.where(inside, total, outside), (0, 3, 1, 2)), dtype_of(c.t(0)))


def _places(boxes: Tensor, i: int, n: int, size: int) -> Tensor:
    """Return positions (K, n) along one axis; a single one is in the middle of its box."""
    start, end = (e.subtensor(boxes, [(1, k, k + 1, None, None)]) for k in (i, i + 2))
    last = e.like(size - 1, start)
    if n == 1:
        middle = e.elem(M.MUL, e.elem(M.ADD, start, end), const_like(0.5, start))
        return e.elem(M.MUL, middle, last)
    length = e.elem(M.MUL, e.elem(M.SUB, end, start), last)
    step = e.elem(M.TRUE_DIV, length, const_like(float(n - 1), length))
    pay(4 * n)
    moved = e.elem(M.MUL, step, const(np.arange(n, dtype=np.float32)[None]))
    return e.elem(M.ADD, e.elem(M.MUL, start, last), moved)


@lower("GroupNorm", "SkipGroupNorm", domain=CONTRIB)
def _group_norm(c: NodeCall) -> tuple[Tensor, ...]:
    """Normalize groups of channels, scale and shift each channel; maybe add tensors before, SiLU after."""
    last = c.flag("channels_last", 1)
    whole = c.t(0)
    if c.op == "SkipGroupNorm":
        added = c.t(3)
        if added.ndim == 2:
            added = e.add_axes(added, [1, 2] if last else [2, 3])
        whole = e.elem(M.ADD, whole, added)
        if c.has(4):
            whole = e.elem(M.ADD, whole, c.t(4) if last else e.reshape(c.t(4), (-1, 1, 1)))
    x = cast(from_last(whole) if last else whole, "float32")
    groups = c.number("groups")
    if groups < 1 or static_shape(x)[1] % groups:
        raise UnsupportedNodeError(f"{static_shape(x)[1]} channels in {groups} groups")
    y = group_norm(x, groups, c.t(1), c.t(2), c.real("epsilon", 1e-5))
    if c.flag("activation"):
        y = e.elem(M.SILU, y)
    y = cast(to_last(y) if last else y, dtype_of(c.t(0)))
    return (y, whole) if c.op == "SkipGroupNorm" else (y,)


# Fusions by optimizers


@lower("BiasAdd", domain=CONTRIB)
def _bias_add(c: NodeCall) -> Tensor:
    return e.elem(M.ADD, e.elem(M.ADD, c.t(0), c.t(1)), c.t(2))


@lower("BiasSplitGelu", domain=CONTRIB)
def _bias_split_gelu(c: NodeCall) -> Tensor:
    """Multiply the first half of the features by the Gelu of the second."""
    x = e.elem(M.ADD, c.t(0), c.t(1))
    axis, half = x.ndim - 1, static_shape(x)[-1] // 2
    one, two = (e.subtensor(x, [(axis, *ends, None, None)]) for ends in ((None, half), (half, None)))
    return e.elem(M.MUL, one, gelu(two))


@lower("BiasSoftmax", domain=CONTRIB)
def _bias_softmax(c: NodeCall) -> Tensor:
    """Compute softmax over an axis and those after it, of the sum with a bias that broadcasts."""
    x = e.elem(M.ADD, c.t(0), c.t(1))
    if static_shape(x) != static_shape(c.t(0)):
        raise UnsupportedNodeError(f"a bias of shape {list(static_shape(c.t(1)))}")
    return e.reshape(softmax(flat_to_2d(x, c.axis("axis", 1, x.ndim)), 1), x.shape)


@lower("GemmFastGelu", domain=CONTRIB)
def _gemm_gelu(c: NodeCall) -> Tensor:
    y = matmul(c.t(0), c.t(1))
    return gelu(e.elem(M.ADD, y, c.t(2)) if c.has(2) else y, tanh=True)


@lower("BiasDropout", domain=CONTRIB)
def _bias_dropout(c: NodeCall) -> Tensor:
    """Return the input unchanged: dropping belongs to training."""
    if (c.has(4) and c.constant(4, "training mode").any()) or (len(c.wanted) > 1 and c.wanted[1]):
        raise UnsupportedNodeError("values dropped at random, or their mask")
    y = e.elem(M.ADD, c.t(0), c.t(1))
    return e.elem(M.ADD, y, c.t(2)) if c.has(2) else y


@lower("ComplexMul", "ComplexMulConj", domain=CONTRIB)
def _complex_product(c: NodeCall) -> Tensor:
    """Multiply complex numbers, whose two parts are the last axis, or by the second one's conjugate."""
    (a, b), (p, q) = (
        [e.subtensor(t, [(t.ndim - 1, k, k + 1, None, None)]) for k in (0, 1)] for t in (c.t(0), c.t(1))
    )
    if c.op == "ComplexMulConj":
        q = e.elem(M.NEGATE, q)
    real = e.elem(M.SUB, e.elem(M.MUL, a, p), e.elem(M.MUL, b, q))
    imaginary = e.elem(M.ADD, e.elem(M.MUL, a, q), e.elem(M.MUL, b, p))
    return e.concat([real, imaginary], real.ndim - 1)


@lower("IsAllFinite", domain=CONTRIB)
def _all_finite(c: NodeCall) -> Tensor:
    """Return whether no tensor holds NaN or infinity, or only one of the two if asked."""
    worst: Tensor | None = None
    for i in range(len(c.inputs)):
        x = e.flat(cast(c.t(i), "float32"))
        nan = cast(e.is_nan(x), "float32")
        inf = cast(e.compare(_LT, const_like(3.4028235e38, x), e.elem(M.ABS, x)), "float32")
        flags = nan if c.flag("isnan_only") else inf if c.flag("isinf_only") else e.elem(M.ADD, nan, inf)
        most = e.reduce(flags, P.ReduceMode.MAX, [0])
        worst = most if worst is None else e.elem(M.MAX, worst, most)
    if worst is None:
        raise UnsupportedNodeError("it has no inputs")
    return e.compare(_EQ, worst, const_like(0.0, worst))

"""Reductions, running sums, and operators that order elements or pick some by their values."""

import math

import numpy as np

from ...graph import Opr, Var, params as P
from ...graph.dtypes import DType
from ...graph.params import AxisAddRemove, Cumsum, Reduce, ReduceDataType as Kind, ReduceMode as Mode
from ...ops.reduce import target_axes
from ...ops.shape import axis_of, c_cast
from ..tensors import ElemType
from .emitter import Dim, UnsupportedOprError
from .writer import OnnxWriter, elem_of, translation

_KINDS = {
    Mode.SUM: "ReduceSum",
    Mode.SUM_SQR: "ReduceSumSquare",
    Mode.PRODUCT: "ReduceProd",
    Mode.MIN: "ReduceMin",
    Mode.MAX: "ReduceMax",
    Mode.MEAN: "ReduceMean",
}


def _axes(w: OnnxWriter, opr: Opr) -> tuple[list[int], int]:
    """Return the axes that are reduced, and the rank of the result."""
    p, rank = opr.get(Reduce), w.rank(opr.inputs[0])
    if -7 <= p.axis < 7:
        return [axis_of(p.axis, rank)], rank
    candidates: set[tuple[int, ...]] = set()
    ranks: set[int] = set()
    for known in w.known:
        shape, target = known.shapes.get(opr.inputs[0].id), known.values.get(opr.inputs[1].id)
        if target is None:
            raise UnsupportedOprError("the shape to reduce to is known only when the model runs")
        want = tuple(int(n) for n in target.reshape(-1))
        ranks.add(len(want))
        if want == (1,):
            candidates.add(tuple(range(rank)))
        elif shape is None:
            raise UnsupportedOprError("what is reduced is known only when the model runs")
        else:
            candidates.add(target_axes(shape, want))
    if len(ranks) > 1:
        raise UnsupportedOprError("the rank of the shape to reduce to changes")
    # An axis of size 1 counts as reduced or not, which makes no difference to its value.
    most = max(len(a) for a in candidates)
    return next(sorted(a) for a in candidates if len(a) == most), ranks.pop()


_JOINED = (Mode.SUM, Mode.MEAN, Mode.MAX, Mode.MIN)


def _whole(w: OnnxWriter, opr: Opr) -> tuple[Var, list[int], int]:
    """Return what a reduction and those before it reduce, the axes, and the rank of the result."""
    x, (axes, rank) = opr.inputs[0], _axes(w, opr)
    p, joins = opr.get(Reduce), w.dtype(x) in (DType("Float32"), DType("Float64"))
    while joins and len(opr.inputs) == 1 and p.mode in _JOINED and x.owner.type == "ReduceV2" and w.alone(x):
        inner = x.owner
        if inner.get(Reduce).replace(axis=p.axis) != p or len(inner.inputs) > 1:
            break
        axes = sorted({*axes, *_axes(w, inner)[0]})
        x = inner.inputs[0]
    return x, axes, rank


def without_axes(w: OnnxWriter, opr: Opr) -> str | None:
    """Write a reduction, and the removal of its axes or the return of those that were joined for it, as one."""
    (source,), desc = opr.inputs, opr.get(AxisAddRemove).desc
    inner = source.owner
    if inner.type != "ReduceV2" or not w.alone(source) or len({method for method, _ in desc}) > 1:
        return None
    x, axes, rank = _whole(w, inner)
    if w.dtype(x).name not in ("Float32", "Float64") or w.dtype(x) != w.dtype(source) or rank != w.rank(x):
        return None
    mode = inner.get(Reduce).mode
    if mode == Mode.MEAN and _may_be_empty(w, x):
        return None
    before, wide = _before_joining(w, x, axes)
    added = [axis for method, axis in desc if method == 0]
    if added:
        fits = before is not x and added == [a for a in wide if a - 1 in wide]
        return w.reduce(_KINDS[mode], w.name(before), wide, keepdims=1) if fits else None
    left = list(range(rank))
    for _, axis in desc:
        del left[axis_of(axis, len(left))]
    if not left or left != [a for a in range(rank) if a not in axes]:
        return None
    return w.reduce(_KINDS[mode], w.name(before), wide, keepdims=0)


def _before_joining(w: OnnxWriter, x: Var, axes: list[int]) -> tuple[Var, list[int]]:
    """Return what a Reshape joined neighbouring axes of to reduce them at once, and those axes; else what is given."""
    if x.owner.type != "ReshapeV1":
        return x, axes
    source = x.owner.inputs[0]
    shapes = {(k.shapes.get(source.id, ()), k.shapes.get(x.id, ())) for k in w.known}
    (old, new), wide, at = shapes.pop(), list[int](), 0
    for i, n in enumerate(new):
        start, at = at, at + 1
        while at < len(old) and math.prod(old[start:at]) != n:
            at += 1
        wide += range(start, at) if i in axes else []
        if math.prod(old[start:at]) != n or (i not in axes and at > start + 1):
            return x, axes
    return (source, wide) if new and at == len(old) and not shapes else (x, axes)


def _may_be_empty(w: OnnxWriter, x: Var) -> bool:
    return not all(math.prod(k.shapes.get(x.id) or (0,)) for k in w.known)


@translation("ReduceV2")
def reduce(w: OnnxWriter, opr: Opr) -> str:
    """Emit ReduceSum and its relatives; the axes of a target shape follow from the sizes."""
    p = opr.get(Reduce)
    x, axes, rank = _whole(w, opr)
    source, target = w.dtype(x), w.dtype(opr.outputs[0])
    value = w.name(x)
    if axes:
        value = _reduced(w, opr, x, source, target, axes)
    else:
        value = w.op("Mul", value, value) if p.mode == Mode.SUM_SQR else value
        value = value if elem_of(source) == elem_of(target) else w.cast(value, elem_of(target))
    old = w.rank(x)
    return w.squeeze(value, range(old - rank)) if rank < old else value


def _reduced(w: OnnxWriter, opr: Opr, var: Var, source: DType, target: DType, axes: list[int]) -> str:
    p, x = opr.get(Reduce), w.name(var)
    if source.is_quantized:
        return _quantized(w, p, x, source, target, axes)
    if source.is_float:
        if source.np != np.float32:
            x = w.cast(x, ElemType.FLOAT)
        if p.mode == Mode.MEAN and _may_be_empty(w, var):
            return w.stored(_quotient(w, x, axes), target)
        return w.stored(w.reduce(_KINDS[p.mode], x, axes), target)
    if p.data_type != Kind.DEFAULT:
        return w.stored(w.reduce(_KINDS[p.mode], w.cast(x, ElemType.FLOAT), axes), target)
    return _integer(w, p, x, source, axes, w.fixed(var, axes) if p.mode == Mode.MEAN else ())


def _quotient(w: OnnxWriter, x: str, axes: list[int]) -> str:
    """Divide the sum by the number of what may be nothing: its mean is NaN, which ONNX does not define."""
    sizes = w.op("Gather", w.op("Shape", x), w.const(np.array(axes, np.int64)))
    count = w.cast(w.reduce("ReduceProd", sizes, [0], keepdims=0), ElemType.FLOAT)
    return w.op("Div", w.reduce("ReduceSum", x, axes), count)


def _integer(w: OnnxWriter, p: Reduce, x: str, dtype: DType, axes: list[int], sizes: tuple[int, ...]) -> str:
    elem = elem_of(dtype)
    narrow = elem is not ElemType.INT32
    wide = w.cast(x, ElemType.INT32) if narrow else x
    if p.mode in (Mode.PRODUCT, Mode.SUM_SQR):
        # Runtimes compute these in floats; in int64 the low bits, which are those of the wrapped result, are right.
        out = w.reduce(_KINDS[p.mode], w.cast(wide, ElemType.INT64), axes)
        return w.cast(w.cast(out, ElemType.INT32), elem)
    if p.mode == Mode.MEAN and len(axes) > 1:
        raise UnsupportedOprError("the mean of integers over several axes, which MegEngine truncates at each")
    out = w.reduce("ReduceSum" if p.mode == Mode.MEAN else _KINDS[p.mode], wide, axes)
    if p.mode == Mode.MEAN:
        total = w.cast(w.cast(out, elem), ElemType.INT32) if narrow else out
        out = w.op("Div", total, w.const(np.int32(sizes[0])))
    return w.cast(out, elem) if narrow else out


def _quantized(w: OnnxWriter, p: Reduce, x: str, source: DType, target: DType, axes: list[int]) -> str:
    if p.mode in (Mode.MIN, Mode.MAX) and source == target:
        return w.cast(w.reduce(_KINDS[p.mode], w.cast(x, ElemType.INT32), axes), elem_of(source))
    if p.mode == Mode.SUM and target.name == "QuantizedS32":
        return w.reduce("ReduceSum", w.centred(x, source, ElemType.INT32), axes)
    if p.mode not in (Mode.SUM, Mode.MEAN):
        raise UnsupportedOprError(f"Reduce {p.mode.name} of {source.name}")
    if p.mode == Mode.MEAN and len(axes) > 1:
        w.notes.setdefault("ReduceV2: quantized means over several axes are rounded once", "")
    return w.stored(w.reduce(_KINDS[p.mode], w.dequantize(x, source), axes), target)


@translation("CumsumV1")
def cumsum(w: OnnxWriter, opr: Opr) -> str:
    """Emit CumSum."""
    p, (x,) = opr.get(Cumsum), opr.inputs
    dtype = w.dtype(x)
    elem = elem_of(dtype)
    axis = w.const(np.int64(axis_of(p.axis, w.rank(x))))
    wide = ElemType.FLOAT if dtype.is_float else ElemType.INT32
    value = w.name(x) if elem is wide else w.cast(w.name(x), wide)
    out = w.op("CumSum", value, axis, exclusive=int(p.exclusive), reverse=int(p.reverse))
    if dtype.is_float:
        return w.stored(out, dtype)
    return out if elem is wide else w.cast(out, elem)


_FULL = (ElemType.FLOAT, ElemType.DOUBLE, ElemType.INT32, ElemType.INT64)


def _orderable(w: OnnxWriter, var: Var) -> tuple[str, ElemType]:
    """Cast a value to a type that runtimes can order; return it with its original type."""
    elem = elem_of(w.dtype(var))
    if elem in _FULL:
        return w.name(var), elem
    return w.cast(w.name(var), ElemType.FLOAT if elem is ElemType.FLOAT16 else ElemType.INT32), elem


def _back(w: OnnxWriter, x: str, elem: ElemType) -> str:
    return x if elem in _FULL else w.cast(x, elem)


@translation("Argmax", "Argmin")
def argmax(w: OnnxWriter, opr: Opr) -> str:
    """Emit ArgMax and ArgMin: the first of equal elements."""
    (x,) = opr.inputs
    value, _ = _orderable(w, x)
    kind = "ArgMax" if opr.type == "Argmax" else "ArgMin"
    return w.cast(w.op(kind, value, axis=opr.get(P.Axis).axis, keepdims=1), ElemType.INT32)


@translation("Argsort")
def argsort(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit TopK of all elements; descending ones in MegEngine's order of equal elements, from the back."""
    (x,) = opr.inputs
    return list(_sorted(w, x, w.dim(x, 1), opr.get(P.Argsort).order == P.ArgsortOrder.ASCENDING))


def _sorted(w: OnnxWriter, x: Var, k: Dim, ascending: bool) -> tuple[str, str]:
    """Sort rows of a matrix; return them and the int32 positions."""
    value, elem = _orderable(w, x)
    if ascending:
        values, at = w.topk(value, k, 1, largest=0)
        return _back(w, values, elem), w.cast(at, ElemType.INT32)
    # Equal elements come from the back: the rows are turned, so that TopK meets the last one first.
    w.need(10, "turning rows")
    turned = w.slice(value, [-1], [-(2**63) + 1], [1], [-1])
    values, at = w.topk(turned, k, 1)
    last = w.arith("Sub", w.dim(x, 1), 1)
    size = w.const(np.int64(last)) if isinstance(last, int) else last
    return _back(w, values, elem), w.cast(w.op("Sub", size, at), ElemType.INT32)


@translation("TopK")
def topk(w: OnnxWriter, opr: Opr) -> str | list[str]:
    """Emit TopK; KTH_ONLY takes the last one."""
    x, k = opr.inputs
    mode = opr.get(P.TopK).mode
    number = w.numbers(k, "k")[0]
    n = w.dim(x, 1)
    sizes = [s[1] for s in (k.shapes.get(x.id) for k in w.known) if s is not None]
    take: Dim
    if isinstance(n, int):
        take = min(abs(number), n)
    elif mode == P.TopKMode.KTH_ONLY or all(abs(number) <= s for s in sizes):
        take = abs(number)
    else:
        w.need(12, "the smaller of two sizes")
        take = w.op("Min", n, w.ints(abs(number)))
    values, at = _sorted(w, x, take, number > 0)
    if mode == P.TopKMode.KTH_ONLY:
        return w.squeeze(w.slice(values, [-1], [2**63 - 1], [1]), [1])
    if mode == P.TopKMode.VALUE_IDX_NOSORT:
        w.note(opr, "elements are sorted, where MegEngine leaves them in no particular order")
    return [values, at]


@translation("CondTake")
def cond_take(w: OnnxWriter, opr: Opr) -> list[str]:
    """Compress of the flat input, and NonZero of the condition."""
    p = opr.get(P.CondTake)
    x, mask = opr.inputs
    condition = _condition(w, mask, p)
    flat = condition if w.rank(mask) == 1 else w.reshape(condition, [-1])
    values = w.op("Compress", w.reshape(w.name(x), [-1]), flat, axis=0)
    at = w.squeeze(w.op("NonZero", flat), [0])
    return [values, w.cast(at, ElemType.INT32)]


def _condition(w: OnnxWriter, mask: Var, p: P.CondTake) -> str:
    """Compare a mask with the number in the parameters, as Bool."""
    dtype, mode = w.dtype(mask), P.CondTakeMode
    equal, whole = p.mode in (mode.EQ, mode.NEQ), dtype.np.kind in "iub"
    if dtype.name == "Bool" and equal:
        wanted = bool(c_cast(p.val, dtype.np)) is (p.mode == mode.EQ)
        return w.name(mask) if wanted else w.op("Not", w.name(mask))
    if whole:
        number, value = w.const(np.int32(c_cast(p.val, dtype.np))), w.name(mask)
        value = w.cast(value, ElemType.INT32) if dtype.np != np.int32 else value
    else:
        number, value = w.f32(p.val), w.float(mask)
    if equal:
        near = None if whole else w.op("Less", w.op("Abs", w.op("Sub", number, value)), w.f32(p.eps))
        same = near or w.equal(value, number, real=False)
        return same if p.mode == mode.EQ else w.op("Not", same)
    pair = (number, value) if p.mode in (mode.GT, mode.GEQ) else (value, number)
    return w.op("Less", *pair) if p.mode in (mode.LT, mode.GT) else w.leq(*pair)


@translation("NonZero")
def non_zero(w: OnnxWriter, opr: Opr) -> str:
    """Emit NonZero."""
    (x,) = opr.inputs
    condition = _condition(w, x, P.CondTake(mode=P.CondTakeMode.NEQ))
    return w.cast(w.op("NonZero", condition), ElemType.INT32)


@translation("NMSKeepMGB")
def nms_keep(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit NonMaxSuppression with scores that fall along the boxes; short rows end with the last kept index."""
    p = opr.get(P.NMSKeep)
    (boxes,) = opr.inputs
    batch = w.fixed(boxes, [0])[0]
    n = w.dim(boxes, 1)
    limit = int(p.max_output)
    if n == 0:
        raise UnsupportedOprError("no boxes")
    falling = w.op("Neg", w.cast(w.range(n), ElemType.FLOAT))
    scores = w.unsqueeze(falling, [0, 1])
    most = w.const(np.array([limit], np.int64)) if limit else w.vector([n])
    indices, counts = [], []
    for i in range(batch):
        one = w.slice(w.name(boxes), [i], [i + 1], [0])
        selected = w.op("NonMaxSuppression", one, scores, most, w.const(np.array([p.iou_thresh], np.float32)))
        kept = w.squeeze(w.slice(selected, [2], [3], [1]), [1])
        count = w.op("Shape", kept)
        counts.append(w.cast(count, ElemType.INT32))
        if limit:
            last = w.op("Sub", count, w.ints(1))
            at = w.op("Min", w.const(np.arange(limit, dtype=np.int64)), last)
            indices.append(w.cast(w.unsqueeze(w.op("Gather", kept, at, axis=0), [0]), ElemType.INT32))
    w.note(opr, "boxes with NaN or corners in another order are judged by ONNX's rules")
    rows = w.op("Concat", *indices, axis=0) if indices else w.const(np.zeros((batch, 0), np.int32))
    return [rows, w.op("Concat", *counts, axis=0)]

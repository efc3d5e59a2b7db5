"""Operators that order elements or pick some of them by their values."""

import numpy as np

from ...graph import Opr, Var
from ...graph import params as P
from ...ops.shape import c_cast
from ..tensors import ElemType
from .emitter import Dim, UnsupportedOprError
from .writer import OnnxWriter, elem_of, translation

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

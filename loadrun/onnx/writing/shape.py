"""Operators that reshape, join and split tensors, and create new ones."""

import functools
import operator
from collections.abc import Callable

import numpy as np

from ...base.registry import Registry
from ...graph import Opr, Var, params as P
from ...graph.dtypes import DType
from ...ops.elemwise.table import ROWS
from ...ops.shape import NO_AXIS, axis_of, c_cast
from ..tensors import ElemType
from .elemwise import convert
from .emitter import Dim
from .io import required
from .writer import OnnxWriter, elem_of, translation


def stack(w: OnnxWriter, dims: list[Dim]) -> str:
    """Return sizes as the int32 vector that MegEngine's graphs compute with."""
    sizes = w.vector(dims)
    vector = w.cast(sizes, ElemType.INT32)
    w.wide[vector] = sizes
    return vector


def common_shape(w: OnnxWriter, variables: list[Var]) -> list[Dim]:
    """Return the shape to which variables broadcast together."""
    operands = [v for v in variables if w.shape(v) != (1,)] or variables[:1]
    rank = max(w.rank(v) for v in operands)
    out: list[Dim] = []
    for axis in range(-rank, 0):
        size: Dim = 1
        for v in operands:
            if w.rank(v) + axis < 0:
                continue
            n = w.dim(v, axis)
            if n == 1:
                continue
            if size == 1 or isinstance(n, int):
                size = n
        out.append(size)
    return out


def sizes_told(w: OnnxWriter, opr: Opr) -> list[Dim]:
    """Return what GetVarShapeV1 tells: a shape, or one size."""
    axis, dims = opr.get(P.OptionalAxisV1).axis, common_shape(w, list(opr.inputs))
    return dims if axis == NO_AXIS else [dims[axis_of(axis, len(dims))]]


@translation("GetVarShapeV1")
def get_var_shape(w: OnnxWriter, opr: Opr) -> str:
    """Emit Shape, or one entry of it; for several inputs the shape that they broadcast to."""
    return stack(w, sizes_told(w, opr))


@translation("ReshapeV1")
def reshape(w: OnnxWriter, opr: Opr) -> str:
    """Reshape, with -1 at the axis that follows from the others."""
    if w.required.pop(opr.id, None) is not None:
        return required(w, opr, reshape)
    x, target = opr.inputs
    axis = opr.get(P.OptionalAxisV1).axis
    if target.id in w.decided:
        # Runtimes take the one unknown among sizes that are joined for what the others leave.
        return w.op("Reshape", w.name(x), w.int64(target))
    dims = w.split_dims(target)
    if axis != NO_AXIS:
        dims[axis_of(axis, len(dims))] = -1
    if 0 in dims and -1 in dims:
        dims = [n if n is not None else -1 for n in w.shape(opr.outputs[0])]
    return w.reshape(w.name(x), dims)


@translation("Broadcast")
def broadcast(w: OnnxWriter, opr: Opr) -> str:
    """Expand."""
    x, target = opr.inputs
    return w.expand(w.name(x), w.vector(w.split_dims(target)))


@translation("Dimshuffle")
def dimshuffle(w: OnnxWriter, opr: Opr) -> str:
    """Transpose, then Squeeze of lost axes and Unsqueeze of new ones."""
    (x,) = opr.inputs
    pattern = opr.get(P.Dimshuffle).pattern
    ndim = w.rank(x)
    used = [a for a in pattern if a >= 0]
    lost = [a for a in range(ndim) if a not in used]
    out = w.transpose(w.name(x), used + lost)
    out = w.squeeze(out, range(len(used), ndim))
    return w.unsqueeze(out, [i for i, a in enumerate(pattern) if a < 0])


@translation("AxisAddRemove")
def axis_add_remove(w: OnnxWriter, opr: Opr) -> str:
    """Emit Squeeze, then Unsqueeze; the only axis of ``[1]`` stays."""
    (x,) = opr.inputs
    old = list(range(w.rank(x)))
    axes: list[int | None] = [*old]
    for method, axis in opr.get(P.AxisAddRemove).desc:
        if method == 0:
            axes.insert(axis_of(axis, len(axes) + 1), None)
        elif len(axes) > 1:
            del axes[axis_of(axis, len(axes))]
    lost = [a for a in old if a not in axes]
    if (
        len(axes) == len(old)
        and [w.shape(x)[a] for a in lost] == [1] * len(lost)
        and w.shape(x) == w.shape(opr.outputs[0])
    ):
        return w.name(x)
    return w.unsqueeze(w.squeeze(w.name(x), lost), [i for i, a in enumerate(axes) if a is None])


@translation("Concat")
def concat(w: OnnxWriter, opr: Opr) -> str:
    """Emit Concat."""
    dtype = w.dtype(opr.outputs[0])
    rank = w.rank(opr.inputs[0])
    parts = [
        w.name(v) if dtype.is_quantized else convert(w, w.name(v), w.dtype(v), dtype) for v in opr.inputs
    ]
    return w.op("Concat", *parts, axis=axis_of(opr.get(P.Axis).axis, rank))


@translation("Split")
def split(w: OnnxWriter, opr: Opr) -> list[str]:
    """Split."""
    x, *sizes = opr.inputs
    axis = axis_of(opr.get(P.Axis).axis, w.rank(x))
    return w.split(w.name(x), [w.split_dims(n)[0] for n in sizes], axis)


# Making tensors


@translation("Alloc")
def alloc(w: OnnxWriter, opr: Opr) -> str:
    """Emit zeros, where MegEngine leaves memory as it is."""
    dtype = w.dtype(opr.outputs[0])
    return w.expand(w.const(np.zeros((), elem_of(dtype).numpy)), w.vector(w.split_dims(opr.inputs[0])))


def counting(w: OnnxWriter, opr: Opr) -> str | None:
    """Return the numbers from 0 to a symbolic size as int64 where these are what is spaced evenly, else None."""
    if opr.type != "Linspace" or not opr.get(P.Linspace).endpoint or opr.inputs[1].owner.type != "TypeCvtV2":
        return None
    start, last = w.value(opr.inputs[0]), w.vectors.get(opr.inputs[1].owner.inputs[0].id)
    n = w.split_dims(opr.inputs[2])[0]
    from_zero = start is not None and not start.any() and isinstance(n, str)
    return w.range(n) if from_zero and last == [w.arith("Sub", n, 1)] else None


@translation("Linspace")
def linspace(w: OnnxWriter, opr: Opr) -> str:
    """Emit a Range, scaled and shifted in float64."""
    start, stop, num = opr.inputs
    n = w.split_dims(num)[0]
    if (counted := counting(w, opr)) is not None:
        return w.stored(w.cast(counted, ElemType.FLOAT), w.dtype(opr.outputs[0]))
    low, high = (w.cast(w.float(v), ElemType.DOUBLE) for v in (start, stop))
    parts = w.arith("Sub", n, 1) if opr.get(P.Linspace).endpoint else n
    if isinstance(parts, int):
        divisor = w.const(np.float64(max(parts, 1)))
    else:
        w.need(12, "the largest of integers")
        divisor = w.cast(w.op("Max", parts, w.ints(1)), ElemType.DOUBLE)
    step = w.op("Div", w.op("Sub", high, low), divisor)
    counted = w.cast(w.range(n), ElemType.DOUBLE)
    out = w.cast(w.op("Add", w.op("Mul", counted, step), low), ElemType.FLOAT)
    return w.stored(out, w.dtype(opr.outputs[0]))


@translation("Eye")
def eye(w: OnnxWriter, opr: Opr) -> str:
    """Emit EyeLike."""
    p = opr.get(P.Eye)
    dims = w.split_dims(opr.inputs[0])
    if len(dims) == 1:
        dims = [dims[0], dims[0]]
    dtype = w.dtype(opr.outputs[0])
    return convert(w, _eye_mask(w, dims, p.k), DType("Bool"), dtype)


def _eye_mask(w: OnnxWriter, dims: list[Dim], k: int) -> str:
    """Build a Bool matrix that is true on diagonal `k`."""
    rows, columns = (w.unsqueeze(w.range(d), [axis]) for d, axis in zip(dims, (1, 0), strict=True))
    return w.op("Equal", w.op("Add", rows, w.const(np.int64(k))), columns)


@translation("Diag")
def diag(w: OnnxWriter, opr: Opr) -> str:
    """Spread a vector along a diagonal by Where, or pick the elements of a matrix by their indices."""
    (x,) = opr.inputs
    k, dtype = opr.get(P.Diag).k, w.dtype(x)
    first, second = max(-k, 0), max(k, 0)
    if w.rank(x) == 1:
        zero = np.zeros((), elem_of(dtype).numpy)
        size = w.arith("Add", w.dim(x, 0), abs(k))
        # Row i of the result holds element i - first at column i + k.
        column = w.unsqueeze(w.pad(w.name(x), [first, second], value=w.const(zero)), [1])
        return select(w, _eye_mask(w, [size, size], k), column, w.const(zero), 0, dtype)
    n: Dim | None = w.shape(opr.outputs[0])[0]
    if n is None:
        w.need(12, "the diagonal of a matrix whose size changes")
        rest = [w.vector([w.arith("Sub", w.dim(x, i), o)]) for i, o in enumerate((first, second))]
        n = w.op("Min", *rest)
    counted = w.range(n)
    at = [w.op("Add", counted, w.const(np.int64(o))) for o in (first, second)]
    index = w.op("Concat", *(w.unsqueeze(i, [1]) for i in at), axis=1)
    return w.op("GatherND", w.name(x), index)


_PAD = {P.PaddingMode.CONSTANT: "constant", P.PaddingMode.REFLECT: "reflect", P.PaddingMode.REPLICATE: "edge"}


@translation("Padding")
def padding(w: OnnxWriter, opr: Opr) -> str:
    """Pad."""
    (x,) = opr.inputs
    p, rank, dtype = opr.get(P.Padding), w.rank(x), w.dtype(x)
    values = dict(p.pairs())
    pads = [values[f"{side}_offset_dim{i}"] for side in ("front", "back") for i in range(rank)]
    mode = _PAD[p.padding_mode]
    if mode == "constant":
        fill = c_cast(p.padding_val, dtype.np)
        wide = np.dtype(np.int32) if dtype.np.itemsize == 2 and dtype.np.kind in "iu" else dtype.np
        value = w.const(np.asarray(fill, dtype.np).astype(wide))
        out = w.pad(
            w.cast(w.name(x), ElemType.of(wide)) if wide != dtype.np else w.name(x), pads, mode, value
        )
        return w.cast(out, elem_of(dtype)) if wide != dtype.np else out
    elem = elem_of(dtype)
    if elem.name in ("FLOAT", "INT32", "INT64", "FLOAT16", "INT8", "UINT8"):
        return w.pad(w.name(x), pads, mode)
    return w.cast(w.pad(w.cast(w.name(x), ElemType.INT32), pads, mode), elem)


@translation("MaskedFill")
def masked_fill(w: OnnxWriter, opr: Opr) -> str:
    """Emit Where; the mask's shape is a prefix of the input's."""
    x, mask = opr.inputs
    dtype = w.dtype(x)
    fill = np.asarray(c_cast(opr.get(P.Fill).value, dtype.np), dtype.np)
    return select(w, w.name(mask), w.const(fill), w.name(x), w.rank(x) - w.rank(mask), dtype)


def select(w: OnnxWriter, mask: str, a: str, b: str, trailing: int, dtype: DType) -> str:
    """Emit Where for a mask with `trailing` fewer axes than the values, in a type that ONNX Runtime can select."""
    if trailing > 0:
        shape = w.op("Concat", w.op("Shape", mask), w.ints(*(1,) * trailing), axis=0)
        mask = w.op("Reshape", mask, shape)
    elem = elem_of(dtype)
    if dtype.is_float or elem in (ElemType.INT32, ElemType.UINT8):
        return w.where(mask, a, b)
    return w.cast(w.where(mask, w.cast(a, ElemType.INT32), w.cast(b, ElemType.INT32)), elem)


@translation("Where")
def where(w: OnnxWriter, opr: Opr) -> str:
    """Emit Where."""
    mask, x, y = opr.inputs
    dtype = w.dtype(opr.outputs[0])
    return select(w, w.name(mask), w.name(x), w.name(y), 0, dtype)


# Vectors of sizes, number by number: the shape arithmetic of a graph of MegEngine's operators.
#
# There is a function for every operator that shape arithmetic is made of; it gives the numbers of the result
# one by one, or None if it is no such arithmetic.

_RULES: Registry[str, Callable[[OnnxWriter, Opr], list[Dim] | None]] = Registry("rule of sizes")
size_rule = _RULES.register


def followed_sizes(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    """Return the numbers in a vector of sizes one by one, where they are symbolic; None for other values.

    Runtimes and importers follow such arithmetic best when it does not go through vectors.
    """
    rule = _RULES.get(opr.type)
    if rule is None or len(opr.outputs) != 1 or w.dtype(opr.outputs[0]).name not in ("Int32", "Int64"):
        return None
    return rule(w, opr)


def _known(w: OnnxWriter, var: Var) -> list[Dim] | None:
    """Return the numbers of a vector that is constant or symbolic."""
    value = w.value(var)
    if value is not None and value.ndim == 1 and value.dtype.kind in "iu":
        return [int(v) for v in value]
    return w.vectors.get(var.id)


def _never_negative(w: OnnxWriter, var: Var) -> bool:
    """Return whether a value is at least 0 at all sizes that were tried."""
    values = [k.values.get(var.id) for k in w.known]
    return all(v is not None and (v >= 0).all() for v in values)


size_rule("GetVarShapeV1")(sizes_told)


@size_rule("Concat")
def _concat(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    parts = [_known(w, v) for v in opr.inputs]
    known = [p for p in parts if p is not None]
    return [n for part in known for n in part] if len(known) == len(parts) else None


@size_rule("Subtensor")
def _subtensor(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    whole = _known(w, opr.inputs[0])
    items = opr.get(P.IndexDescMaskDump).items
    if whole is None or len(items) != 1:
        return None
    numbers = [w.value(v) for v in opr.inputs[1:]]
    constants = [int(v.reshape(-1)[0]) for v in numbers if v is not None]
    if len(constants) != len(numbers):
        return None
    item, rest = items[0], iter(constants)
    begin, end, step, index = (
        next(rest) if on else None for on in (item.begin, item.end, item.step, item.idx)
    )
    return [whole[index]] if index is not None else whole[slice(begin, end, step)]


@size_rule("IndexingMultiAxisVec")
def _gathered(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    whole, items = _known(w, opr.inputs[0]), opr.get(P.IndexDescMaskDump).items
    at = w.value(opr.inputs[1]) if len(opr.inputs) == 2 and len(items) == 1 and items[0].idx else None
    return None if whole is None or at is None or at.ndim != 1 else [whole[int(i)] for i in at]


@size_rule("ReduceV2")
def _product(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    whole = _known(w, opr.inputs[0])
    if whole is None or w.shape(opr.outputs[0]) != (1,):
        return None
    mode = opr.get(P.Reduce).mode
    if mode == P.ReduceMode.PRODUCT:
        return [w.product(whole)]
    start: Dim = 0
    adding = functools.partial(w.arith, "Add")
    return [functools.reduce(adding, whole, start)] if mode == P.ReduceMode.SUM else None


_ARITHMETIC = {
    mode: row.onnx or "Div" for mode, row in ROWS.items() if row.neutral is not None and row.whole is not None
}
"""The modes that are sums, differences, products and quotients of integers."""


_MOVES = {P.ElemwiseMode.COND_LT_MOV: operator.lt, P.ElemwiseMode.COND_LEQ_MOV: operator.le}


@size_rule("Elemwise")
def _elemwise(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    mode = opr.get(P.Elemwise).mode
    kind = _ARITHMETIC.get(mode)
    parts = [p for p in (_known(w, v) for v in opr.inputs) if p is not None]
    length = max(map(len, parts), default=0)
    if len(parts) != len(opr.inputs) or any(len(p) not in (1, length) for p in parts):
        return None
    rows = [p * length if len(p) == 1 else p for p in parts]
    if mode in _MOVES:
        pairs = [p for p in zip(*rows[:2], strict=True) if all(isinstance(n, int) for n in p)]
        chosen = [_MOVES[mode](a, b) for a, b in pairs]
        return (
            [n if on else 0 for on, n in zip(chosen, rows[2], strict=False)] if len(pairs) == length else None
        )
    if kind is None or len(rows) != 2:
        return None
    if kind == "Div" and not all(_never_negative(w, v) for v in opr.inputs):
        return None
    return [w.arith(kind, a, b) for a, b in zip(*rows, strict=True)]


@size_rule("ReshapeV1", "AxisAddRemove", "Identity", "Copy")
def _same(w: OnnxWriter, opr: Opr) -> list[Dim] | None:
    """Return the sizes of the input: the operator leaves one number, or a vector, as it is.

    A reshape to a length that follows from sizes is a check of them, which has to stay.
    """
    sizes = _known(w, opr.inputs[0])
    if any(w.value(v) is None for v in opr.inputs[1:]):
        return None
    if sizes is None or w.rank(opr.outputs[0]) != 1 or w.shape(opr.outputs[0]) != (len(sizes),):
        return None
    return sizes

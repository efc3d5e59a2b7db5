"""Rare operators, written as what their formulas are recorded as: functions of arrays, called on traced ones.

A formula takes the operator's call and its inputs, floats and what quantized numbers stand for as float32. Most are
those by which the operators are computed in float64 (`loadrun.ops.formulas`), or kernels that are one expression.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from ...arrays.names import np
from ...base.errors import LoadRunError
from ...base.registry import late
from ...graph import Graph, Opr, StoredTensor, Var, params as P
from ...graph.composite import Composite, Definition, NodeTypes
from ...graph.dtypes import DType, plain
from ...layers import emit as e
from ...layers.shared.windows import WindowGeometry, convolved
from ...ops.conv.layout import Packing, input_packing
from ...ops.elemwise.multi import round_shr
from ...ops.formulas import FORMULAS
from ...ops.formulas.layers import attended, lstm_cell
from ...ops.infer import follow, infer_dtypes, infer_shapes
from ...ops.linalg import unpacked
from ...ops.registry import Call, Shape, implementation
from ...ops.relayout import moved
from ...ops.shape import axis_of
from ...tensors import Tensor, apply
from ...tensors.access import from_stored
from ..lasting import tensor_of
from .elemwise import convert
from .emitter import UnsupportedOprError
from .writer import OnnxWriter, translation

with late(__name__):
    from .. import traced
    from ..operators import activations
    from ..traced import recording, windows

Formula = Callable[..., Any]


def formula(*names: str, stored: bool = False, typed: bool = False) -> Callable[[Formula], Formula]:
    """Register a formula as the translation of operators.

    Args:
        names: the operators.
        stored: whether it takes and gives numbers of all types as they are stored.
        typed: whether it takes and gives values of the operator's own types.
    """

    def register(function: Formula) -> Formula:
        @functools.wraps(function)
        def write(w: OnnxWriter, opr: Opr) -> list[str]:
            return written(w, opr, function, stored, typed=typed)

        translation(*names)(write)
        return function

    return register


def written(
    w: OnnxWriter,
    opr: Opr,
    function: Formula,
    stored: bool = False,
    types: Sequence[DType] = (),
    *,
    typed: bool = False,
) -> list[str]:
    """Write what a formula computes for an operator, at all sizes that the writer knows.

    Args:
        function, stored, typed: see `formula`.
        types: the types of what it gives; those of the outputs by default.

    Raises:
        UnsupportedOprError: it needs a value or a size that data decide.
    """

    def seen(var: Var) -> DType:
        dtype = w.dtype(var)
        if typed:
            return dtype
        if stored:
            return plain(dtype.np.name.capitalize())
        return plain("Float32") if dtype.is_quantized or (dtype.is_float and not dtype.is_wide) else dtype

    dtypes = tuple(map(seen, opr.inputs)), tuple(types) or tuple(map(seen, opr.outputs))
    own = [tuple(map(w.dtype, vs)) for vs in (opr.inputs, opr.outputs)]
    call = Call(opr, *(own if stored or typed else dtypes))
    graph, sources = Graph(exact=True), {f"input{i}": v for i, v in enumerate(opr.inputs)}
    inputs = []
    for (name, var), dtype in zip(sources.items(), dtypes[0], strict=True):
        value = w.value(var)
        if value is not None and (stored or w.dtype(var) == dtype):
            inputs += graph.add("SharedDeviceTensor", tensors=[tensor_of(value, dtype, var.name or "")])
        else:
            tensor = StoredTensor(dtype, w.example(var), name)
            inputs += graph.add("Host2DeviceCopy", P.Host2DeviceCopy(), names=[name], tensors=[tensor])
    definition = Definition("megengine", opr.type, lambda *arrays: function(call, *arrays))
    node_types = NodeTypes(*dtypes, w.opset, (True,) * len(dtypes[1]))
    graph.outputs = graph.add(
        "Composite", Composite(definition, {}, node_types), inputs=inputs, n_outputs=len(dtypes[1])
    )
    for i, var in enumerate(graph.outputs):
        var.name = f"output{i}"
    sizes = [{n: k.shapes.get(v.id, w.example(v)) for n, v in sources.items()} for k in w.known]
    # Sizes that data decide are others, too.
    decided = {n for n, v in sources.items() if any(v.id not in k.shapes for k in w.known)}
    sizes += [{n: tuple(m + (n in decided) for m in s) for n, s in sizes[0].items()}] if decided else []
    open_sizes = [one for one in sizes[1:] if one != sizes[0]]
    try:
        inner = recording.recorded(graph, sizes[0], elsewhere=open_sizes)
    except LoadRunError as e:
        raise UnsupportedOprError(str(e).partition(": ")[2] or str(e)) from e
    return _placed(w, opr, inner, sources, sizes[0], stored or typed)


def _placed(
    w: OnnxWriter, opr: Opr, inner: Graph, sources: dict[str, Var], sizes: Mapping[str, Shape], stored: bool
) -> list[str]:
    """Write the operators of a graph in the place of one."""
    oprs = inner.needed()
    infer_dtypes(oprs)
    of_weights = any(v.owner.type != "ImmutableTensor" and v.owner.tensors for v in opr.inputs)
    for o in oprs:
        o.id = next(w.ids)
        for var in o.outputs:
            var.id = next(w.ids)
            w.readers[var.id] = [r for r in oprs if var in r.inputs]
        if o.type == "Host2DeviceCopy":
            (var,) = o.outputs
            source = sources[var.name or ""]
            w.names[var.id] = (
                w.name(source)
                if stored
                else w.float(source)
                if w.dtype(source) != var.dtype
                else w.name(source)
            )
            for known in w.known:
                known.shapes.update({var.id: known.shapes[source.id]} if source.id in known.shapes else {})
            continue
        if o.tensors and of_weights and o.tensors[0].shape != (1,):
            o.type = "SharedDeviceTensor"
        for known in w.known:
            follow(o, known, {})
        w.decide(o)
    w.observed |= infer_shapes(inner, oprs, sizes).shapes
    w.ends.update(v.id for v in inner.outputs)
    outer, w.formula = w.formula, True
    for o in oprs:
        if not o.tensors and any(w.value(v) is None for v in o.outputs):
            w.translate(o)
    w.formula = outer
    names = [w.name(v) for v in inner.outputs]
    return names if stored else [w.stored(n, w.dtype(v)) for n, v in zip(names, opr.outputs, strict=True)]


def kernel_of(c: Call, *arrays: Any) -> Any:
    """Compute the operator as it is computed here."""
    return implementation(c.opr.type).kernel(c, *arrays)


def _of_family(c: Call, *arrays: Any) -> Any:
    """Compute the operator's formula in float64."""
    return FORMULAS[c.opr.type](c, *arrays)


formula("Rotate", "Flip", "CvtColor", "GaussianBlur", "DctChannelSelectV1")(kernel_of)
formula("AffineInt", stored=True)(kernel_of)
formula("Dot", "Cross", "RNNCellForward", "GroupNorm")(_of_family)
formula("LocalV2", "GroupLocalV2", "LocalShareForwardV1", "RegionRestrictedConvolution")(_of_family)


@formula("LSTMCellForward")
def lstm(c: Call, *arrays: Any) -> Any:
    """Step an LSTM cell."""
    return lstm_cell(c, *arrays, sigmoid=activations.sigmoid)


@formula("MultiHeadAttn")
def attention(c: Call, *arrays: Any) -> Any:
    """Attend to keys and values; what the gradient needs is nothing."""
    made = attended(c, *arrays, softmax=activations.softmax)
    if made is None:
        raise ValueError("dropout in training, or a user-defined mask that is not an input")
    return *made, np.zeros(0, np.uint8), np.zeros(0, np.float32)


@translation("RelayoutFormatV1")
def relayout(w: OnnxWriter, opr: Opr) -> str:
    """Move channels into packs or out of them, then quantize otherwise."""
    source, target = w.dtype(opr.inputs[0]), w.dtype(opr.outputs[0])
    if source.name == "Uint8" and target.name == "QuantizedS8":
        source = DType("Quantized8Asymm", 1.0, 128)
    (x,) = written(w, opr, moved, stored=True, types=[plain(w.dtype(opr.inputs[0]).np.name.capitalize())])
    return convert(w, x, source, target)


@formula("GeneralNorm")
def general_norm(c: Call, x: Any, *affine: Any) -> Any:
    """Normalize by mean and variance; as in MegEngine, the variance is a difference of two means in float64."""
    p = c.get(P.GeneralNorm)
    axes = tuple(range(p.axis_start, p.axis_end))
    mean = x.astype(np.float64).mean(axes, keepdims=True).astype(np.float32)
    squares = (x * x).astype(np.float64).mean(axes, keepdims=True)
    variance = np.abs(squares - (mean * mean).astype(np.float64))
    root = np.sqrt(variance + np.float64(np.float32(p.eps))).astype(np.float32)
    y = (x - mean) / root
    if p.affine:
        weight, bias = (v.reshape(*v.shape, *(1,) * (x.ndim - p.axis_end)) for v in affine)
        y = y * weight + bias
    gone = axes[1:] if len(axes) == x.ndim else axes
    return y, mean.squeeze(gone), (np.float32(1) / root).squeeze(gone)


def fixed_point(c: Call, x: Any, b: Any, multiplier: Any, shift: Any, low: Any, high: Any) -> Any:
    """Add, take the high half of a product, shift and clamp."""
    high_half: Any = traced.traced(
        e.elem(P.ElemwiseMode.RMULH, traced.operand(x + b), traced.operand(multiplier))
    )
    return np.maximum(np.minimum(round_shr(high_half, shift, c.outputs[0].np), high), low)


def packed_product(c: Call, a: Any, b: Any) -> Any:
    """Unpack matrices, multiply them, and pack the product again."""
    p, pack = c.get(P.MatrixMul), a.shape[2] if a.ndim == 4 else 1
    factors = [traced.operand(v) for v in unpacked(p, a, b)]
    plain_product = P.MatrixMul(compute_mode=p.compute_mode)
    (y,) = apply("MatrixMulV2", plain_product, inputs=factors, n=1, output_dtype=c.opr.output_dtype)
    return y if pack == 1 else traced.traced(y).reshape(-1, pack, y.shape[1]).transpose(0, 2, 1)


# Fake quantization


@formula("FakeQuant", "LSQ")
def fake_quant(c: Call, x: Any, scale: Any, zero: Any, *_: Any) -> Any:
    """Compute ``(clamp(round(x / scale) + zero) - zero) * scale``; LSQ clamps before it rounds."""
    q = x / scale
    q = _rounded(_clamped(c, q + zero)) if c.opr.type == "LSQ" else _clamped(c, _rounded(q) + zero)
    return (q - zero) * scale


@formula("TQT")
def tqt(c: Call, x: Any, scale: Any) -> Any:
    """Fake-quantize with step ``2 ** scale``."""
    step = np.exp2(scale)
    return _clamped(c, _rounded(x / step)) * step


def _clamped(c: Call, x: Any) -> Any:
    p: Any = c.opr.params[0]
    return np.clip(x, np.float32(p.qmin), np.float32(p.qmax))


def _rounded(x: Any) -> Any:
    """Round halves away from zero."""
    return traced.traced(e.elem(P.ElemwiseMode.ROUND, traced.operand(x)))


# Conditions


@formula("CondExecPred")
def branches(c: Call, *arrays: Any) -> Any:
    """Compare the predicate with the keys, or tell between which two it is, the lower one included."""
    p, (*keys, value) = c.get(P.CondExecPred), arrays
    near = [value == k if value.dtype.kind in "iu" else np.abs(value - k) < np.float32(p.eps) for k in keys]
    if p.mode == P.CondExecPredMode.PIECEWISE:
        below = [(value < k) & ~same for k, same in zip(keys, near, strict=True)]
        near = [below[0], *(~a & b for a, b in pairwise(below)), ~below[-1]]
    elif p.mode == P.CondExecPredMode.CASE_FALLBACK:
        near.append(~functools.reduce(np.logical_or, near))
    return tuple(flag.astype(np.int32) for flag in near)


@formula("CondExecPredLogical")
def joined_branches(c: Call, *flags: Any) -> Any:
    """Join predicates by OR, AND or XOR, or negate one."""
    name = c.get(P.CondExecPredLogical).mode.name
    kinds = {"OR": np.logical_or, "NOR": np.logical_or, "AND": np.logical_and, "NAND": np.logical_and}
    joined = functools.reduce(kinds.get(name, np.logical_xor), [f != 0 for f in flags])
    return (~joined if name.startswith(("NOR", "NAND", "XN")) else joined).astype(np.int32)


# Windows as data


@formula("Images2Neibs", stored=True)
def images2neibs(c: Call, x: Any) -> Any:
    """Gather windows [N, C, OH, OW, KH, KW], with packs of channels [N, OH, C, OW, KH, KW, 4]."""
    p = c.get(P.Images2Neibs)
    packed = x.ndim == 5
    rows, cols = (1, 3) if packed else (2, 3)
    pads = [(0, 0)] * x.ndim
    pads[rows], pads[cols] = (p.pad_h, p.pad_h), (p.pad_w, p.pad_w)
    x = np.pad(x, pads)
    x = x.take(_places(x.shape[cols], p.window_w, p.stride_w, p.dilate_w), cols)
    x = x.take(_places(x.shape[rows], p.window_h, p.stride_h, p.dilate_h), rows)
    # [N, KH, OH, C, KW, OW, 4] or [N, C, KH, OH, KW, OW]
    return x.transpose((0, 2, 3, 5, 1, 4, 6) if packed else (0, 1, 3, 5, 2, 4))


@formula("MaskPropagate", stored=True)
def mask_propagate(c: Call, x: Any) -> Any:
    """Tell for every window whether any element is nonzero."""
    p = c.get(P.MaskPropagate)
    some = np.pad((x != 0).astype(np.int32), ((p.pad_h, p.pad_h), (p.pad_w, p.pad_w)))
    for axis, how in (
        (1, (p.kernel_w, p.stride_w, p.dilate_w)),
        (0, (p.kernel_h, p.stride_h, p.dilate_h)),
    ):
        some = some.take(_places(some.shape[axis], *how), axis).max(axis)
    return some


@formula("SlidingWindowTranspose")
def put_back(c: Call, x: Any) -> Any:
    """Add windows [N, C, OH, OW, KH, KW] up where they were taken from."""
    p, (n, channels, *out) = c.get(P.SlidingWindowTranspose), x.shape[:4]
    cells = x.transpose(0, 1, 4, 5, 2, 3).copy().reshape(n, channels * p.window_h * p.window_w, prod(out))
    return windows.col2im(
        cells,
        np.array((p.out_h, p.out_w)),
        np.array((p.window_h, p.window_w)),
        dilations=(p.dilate_h, p.dilate_w),
        pads=(p.pad_h, p.pad_w) * 2,
        strides=(p.stride_h, p.stride_w),
    )


@formula("MaskConvolutionV2")
def mask_convolution(c: Call, x: Any, f: Any, mask: Any) -> Any:
    """Convolve, with zeros where the mask is 0."""
    p, (icg, *kernel) = c.get(P.Convolution), f.shape[-3:]
    groups, filters = f.shape[0] if f.ndim == 5 else 1, f.reshape(-1, icg, *kernel)
    filters = filters[..., ::-1, ::-1] if p.mode == P.ConvMode.CONVOLUTION else filters
    pads = [(p.pad_h, p.pad_h), (p.pad_w, p.pad_w)]
    window = WindowGeometry(kernel, (p.stride_h, p.stride_w), (p.dilate_h, p.dilate_w), pads)
    y = convolved(traced.operand(x), traced.operand(filters), window, groups)
    return np.where(mask != 0, y, np.float32(0))


def _places(size: Any, window: int, stride: int, dilate: int) -> Any:
    """Return the places [window, out] of windows along an axis that is padded."""
    out = (size - ((window - 1) * dilate + 1)) // stride + 1
    return np.arange(window)[:, None] * dilate + np.arange(out) * stride


# Indices


def coordinates(c: Call, x: Any, *others: Any, mesh: bool = False, rows: bool = False) -> Any:
    """Return the coordinates of the elements that an operator of indices selects, along a last axis.

    Args:
        mesh: whether each index has an axis of its own, as slices do; else indices broadcast together.
        rows: whether only the axes that are indexed count.
    """
    given = iter(others["Set" in c.opr.type or "Incr" in c.opr.type :])
    rank, parts, vectors = x.ndim, dict[int, Any](), list[int]()
    for item in c.opr.get(P.IndexDescMaskDump).items:
        flags = (item.begin, item.end, item.step, item.idx)
        begin, end, step, index = (next(given) if on else None for on in flags)
        axis = axis_of(item.axis, rank)
        parts[axis] = slice(*map(_bound, (begin, end, step))) if index is None else index
        vectors = sorted([*vectors, axis]) if index is not None else vectors
    axes = vectors if rows else [*range(rank)]
    for axis in axes:
        if axis not in vectors:
            parts[axis] = np.arange(x.shape[axis], dtype=np.int32)[parts.get(axis, slice(None))]
    width = max((parts[a].ndim for a in vectors), default=0)
    together = vectors == [*range(vectors[0], vectors[0] + len(vectors))] if vectors else True
    at = vectors[0] if together and vectors else 0
    rest = [a for a in axes if a not in vectors]
    total = len(axes) if mesh else len(rest) + width
    placed = []
    for axis in axes:
        part = parts[axis].astype(np.int32)
        if mesh:
            begin = axis
            if c.opr.type.startswith("Batched") and axis in vectors:
                part, begin = part.reshape(part.shape[0], *(1,) * (axis - 1), part.shape[1]), 0
        elif axis in vectors:
            begin = at + width - part.ndim
        else:
            begin = rest.index(axis) + (width if rest.index(axis) >= at else 0)
        placed.append(part.reshape(*(1,) * begin, *part.shape, *(1,) * (total - begin - part.ndim)))
    return np.stack(np.broadcast_arrays(*placed), -1)


def _bound(value: Any) -> Any:
    """Return a bound of a slice as indexing takes it."""
    return None if value is None else value.reshape(()) if isinstance(value, Tensor) else int(value.item())


# Layouts


def in_plain_layout(
    c: Call, *arrays: Any, packings: Sequence[Packing], out: Packing, filters: int = -1, **how: Any
) -> Any:
    """Compute an operator of another layout by the one on plain images.

    Args:
        packings: the layouts of the inputs; those that follow have the last one.
        out: that of the result.
        filters: which input is a filter.
        how: the fields of the operator's parameters that differ.
    """
    images = []
    for i, x in enumerate(arrays):
        packing = packings[min(i, len(packings) - 1)]
        if x.ndim == len(packing.order):
            x = x.transpose(packing.order).copy()
            if i == filters:
                x = x.reshape(packing.plain)
            elif x.ndim > len(packing.plain):
                x = x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])
        images.append(x)
    y = _applied(c, c.opr.type, (c.opr.params[0].replace(**how), *c.opr.params[1:]), images)
    order = out.order
    if len(order) > len(out.plain):
        pack = out.shape[order[2]]
        y = y.reshape(y.shape[0], y.shape[1] // pack, pack, *y.shape[2:])
    return y.transpose([order.index(a) for a in range(len(order))])


def in_other_layout(w: OnnxWriter, opr: Opr, layout: P.Format) -> str:
    """Write an operator on images of another layout, whose result has it too, by the one on plain images."""
    packing = input_packing(layout, w.example(opr.inputs[0]))
    function = functools.partial(in_plain_layout, packings=[packing], out=packing, format=P.Format.NCHW)
    return written(w, opr, function, typed=True)[0]


def _applied(c: Call, kind: str, params: Sequence[P.Record], arrays: Sequence[Any]) -> Any:
    """Apply an operator to values of the types of the inputs; halves came as float32."""
    dtypes = [plain("Float32") if d.name in ("Float16", "BFloat16") else d for d in c.inputs]
    inputs = [
        v if isinstance(v, Tensor) else from_stored(np.ascontiguousarray(v), d, const=True)
        for v, d in zip(arrays, dtypes, strict=True)
    ]
    (y,) = apply(kind, *params, inputs=inputs, n=1, output_dtype=c.opr.output_dtype)
    return traced.traced(y)


@formula("BatchConvBiasForwardV1", typed=True)
def batch_conv_bias(c: Call, x: Any, f: Any, *rest: Any) -> Any:
    """Convolve every sample with its own filter."""
    fields = {k: v for k, v in c.opr.params[0].pairs() if k in dict(P.ConvBias().pairs())}
    parts = []
    for i in range(operator.index(x.shape[0])):
        addends = [v if v.shape[0] == 1 else v[i : i + 1] for v in rest]
        one = [x[i : i + 1], f[i], *addends]
        parts.append(_applied(c, "ConvBiasForwardV4", (P.ConvBias(**fields), *c.opr.params[1:]), one))
    return e.concat(parts, 0)

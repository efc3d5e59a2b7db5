"""Pooling as MaxPool and AveragePool."""

import numpy as np

from ...graph import Opr
from ...graph.params import AdaptivePooling, Format, Pooling, PoolingMode
from ...ops.pooling import pool_windows
from ..tensors import ElemType
from .emitter import UnsupportedOprError
from .formulas import in_other_layout
from .writer import OnnxWriter, elem_of, translation


@translation("PoolingV1")
def pooling(w: OnnxWriter, opr: Opr) -> str:
    """Emit MaxPool or AveragePool."""
    p = opr.get(Pooling)
    if Format(p.format) != Format.NCHW:
        return in_other_layout(w, opr, Format(p.format))
    attributes = {
        "kernel_shape": [p.window_h, p.window_w],
        "strides": [p.stride_h, p.stride_w],
        "pads": [p.pad_h, p.pad_w, p.pad_h, p.pad_w],
    }
    for known in w.known:
        shape = known.shapes.get(opr.inputs[0].id)
        if shape is None:
            raise UnsupportedOprError("pooling of data of unknown size")
        if any(one.empty for one in pool_windows(p, shape)[1]):
            raise UnsupportedOprError("a window that lies wholly in the padding")
    return _pool(w, opr, p.mode, attributes)


@translation("AdaptivePoolingV1")
def adaptive_pooling(w: OnnxWriter, opr: Opr) -> str:
    """Emit MaxPool or AveragePool with windows that follow from the sizes, which must be fixed; or a global one."""
    p = opr.get(AdaptivePooling)
    if Format(p.format) != Format.NCHW:
        return in_other_layout(w, opr, Format(p.format))
    x, want = opr.inputs
    sizes = w.split_dims(want)
    axes, windows = pool_windows(p, w.example(x), np.array(_example(w, want)))
    changing = any(w.shape(x)[a] is None for a in axes)
    if changing and all(n == 1 for n in sizes):
        if not w.dtype(x).is_float:
            raise UnsupportedOprError("adaptive pooling of quantized data whose size changes")
        return w.op("GlobalMaxPool" if p.mode == PoolingMode.MAX else "GlobalAveragePool", w.name(x))
    if changing or any(isinstance(n, str) for n in sizes):
        raise UnsupportedOprError("adaptive pooling needs fixed sizes: its windows follow from them")
    attributes = {
        "kernel_shape": [one.window for one in windows],
        "strides": [one.stride for one in windows],
        "pads": [0, 0, 0, 0],
    }
    return _pool(w, opr, p.mode, attributes)


def _example(w: OnnxWriter, want: object) -> list[int]:
    sizes = w.known[0].values.get(want.id)  # type: ignore[attr-defined]
    if sizes is None:
        raise UnsupportedOprError("the output size of adaptive pooling is known only when the model runs")
    return [int(n) for n in sizes.reshape(-1)]


def _pool(w: OnnxWriter, opr: Opr, mode: PoolingMode, attributes: dict[str, list[int]]) -> str:
    x = opr.inputs[0]
    dtype = w.dtype(x)
    if mode == PoolingMode.MAX:
        small = dtype.name in ("Int8", "Uint8", "QuantizedS8", "Quantized8Asymm") and w.opset >= 12
        if small or dtype.np.kind == "f":
            return w.op("MaxPool", w.name(x), **attributes)
        out = w.op("MaxPool", w.cast(w.name(x), ElemType.FLOAT), **attributes)
        return w.cast(out, ElemType.of(dtype.np))
    include = int(mode == PoolingMode.AVERAGE)
    if not dtype.is_quantized:
        data = w.float(x)
        out = w.op("AveragePool", data, count_include_pad=include, **attributes)
        if dtype.name == "Int8":
            # The plain average truncates, the other rounds.
            return w.cast(w.cast(out if include else w.round_away(out), ElemType.INT32), ElemType.INT8)
        return w.stored(out, dtype)
    # Averages of integers are often halves: round them before the scale blurs them.
    whole = w.centred(w.name(x), dtype, ElemType.FLOAT)
    out = w.round_away(w.op("AveragePool", whole, count_include_pad=include, **attributes))
    if dtype.zero_point:
        out = w.op("Add", out, w.f32(dtype.zero_point))
    return w.cast(out, elem_of(dtype))

"""Pooling over regions of interest, and non-maximum suppression."""

from __future__ import annotations

import numpy as np

from ...graph import Opr
from ...graph.params import (
    BorderMode,
    DeformablePSROIPooling,
    NMSKeep,
    ROIAlign,
    ROIAlignMode,
    ROIPooling,
    ROIPoolingMode,
)
from ..encode import ElemType
from .emitter import UnsupportedOprError
from .sampling import Pixels
from .writer import OnnxWriter, translation

__all__: list[str] = []


def _columns(w: OnnxWriter, x: str, count: int) -> list[str]:
    """Split a matrix [M, count] into column vectors [M]."""
    return [w.squeeze(part, [1]) for part in w.split(x, [1] * count, 1)]


@translation("ROIAlignV1")
def roi_align(w: OnnxWriter, opr: Opr) -> list[str]:
    """Gather bilinear samples on a grid in every bin and reduce them to mean or maximum."""
    p = opr.get(ROIAlign)
    x, rois = opr.inputs
    count = int(p.sample_height * p.sample_width)
    if not count:
        raise UnsupportedOprError("bins without samples")
    image, left, top, right, bottom = _columns(w, w.name(rois), 5)
    pixels = Pixels(w, w.name(x), w.dims(x), BorderMode.CONSTANT)
    base = w.unsqueeze(pixels.base(w.cast(image, ElemType.INT64)), [1, 2, 3, 4])
    y = _centres(w, p, top, bottom, int(p.pooled_height), int(p.sample_height))
    v = _centres(w, p, left, right, int(p.pooled_width), int(p.sample_width))
    # [M, PH, 1, SH, 1] and [M, 1, PW, 1, SW]
    taken = pixels.bilinear(base, w.unsqueeze(y, [2, 4]), w.unsqueeze(v, [1, 3]))
    if p.mode == ROIAlignMode.AVERAGE:
        pooled = w.op("Mul", w.reduce("ReduceSum", taken, [3, 4], 0), w.f32(1 / count))
        index = w.op("Mul", w.cast(pooled, ElemType.INT32), w.const(np.int32(0)))
        return [w.transpose(pooled, [0, 3, 1, 2]), w.transpose(index, [0, 3, 1, 2])]
    flat = w.transpose(taken, [0, 5, 1, 2, 3, 4])
    m, channels = w.dim(rois, 0), w.dim(x, 1)
    flat = w.reshape(flat, [m, channels, int(p.pooled_height), int(p.pooled_width), count])
    best = w.op("ArgMax", flat, axis=4, keepdims=0)
    return [w.reduce("ReduceMax", flat, [4], 0), w.cast(best, ElemType.INT32)]


def _centres(w: OnnxWriter, p: ROIAlign, start: str, end: str, pooled: int, samples: int) -> str:
    """Sample positions [M, pooled, samples] along one axis."""
    scale, offset = w.f32(p.spatial_scale), w.f32(p.offset)
    first, last = (w.op("Sub", w.op("Mul", v, scale), offset) for v in (start, end))
    bins = w.op("Div", w.op("Relu", w.op("Sub", last, first)), w.f32(pooled))
    rate = np.float32(1) / np.float32(samples)
    at = np.arange(pooled, dtype=np.float32)[:, None] + rate * (
        np.arange(samples, dtype=np.float32) + np.float32(0.5)
    )
    moved = w.op("Mul", w.unsqueeze(bins, [1, 2]), w.const(at.astype(np.float32)))
    return w.op("Add", w.unsqueeze(first, [1, 2]), moved)


@translation("ROIPooling")
def roi_pooling(w: OnnxWriter, opr: Opr) -> list[str]:
    """Compute the maximum or mean of the pixels of every bin, selected by comparing positions."""
    p = opr.get(ROIPooling)
    x, rois, size = opr.inputs
    rows, columns = (int(n) for n in w.numbers(size, "the output size"))
    height, width = w.fixed(x, [2, 3])
    image, left, top, right, bottom = _columns(w, w.name(rois), 5)
    corners = [
        w.cast(w.round_away(w.op("Mul", v, w.f32(p.scale))), ElemType.INT64)
        for v in (left, top, right, bottom)
    ]
    in_row = _members(w, corners[1], corners[3], rows, height)
    in_column = _members(w, corners[0], corners[2], columns, width)
    taken = w.op("Gather", w.name(x), w.cast(image, ElemType.INT64), axis=0)
    if p.mode == ROIPoolingMode.AVERAGE:
        a, b = w.cast(in_row, ElemType.FLOAT), w.cast(in_column, ElemType.FLOAT)
        total = w.op(
            "MatMul",
            w.op("MatMul", w.unsqueeze(a, [1]), taken),
            w.transpose(w.unsqueeze(b, [1]), [0, 1, 3, 2]),
        )
        counts = [w.reduce("ReduceSum", v, [2]) for v in (a, b)]
        each = w.op("MatMul", counts[0], w.transpose(counts[1], [0, 2, 1]))
        mean = w.op("Div", total, w.unsqueeze(w.op("Max", each, w.f32(1)), [1]))
        return [mean, w.op("Mul", w.cast(mean, ElemType.INT32), w.const(np.int32(0)))]
    # [M, 1, PH, PW, H * W] tells which pixels a bin has.
    both = w.op("And", w.unsqueeze(in_row, [2, 4]), w.unsqueeze(in_column, [1, 3]))
    m = w.dim(rois, 0)
    both = w.unsqueeze(w.reshape(both, [m, rows, columns, height * width]), [1])
    flat = w.reshape(taken, [m, w.dim(x, 1), 1, 1, height * width])
    masked = w.where(both, flat, w.f32(-np.inf))
    value = w.reduce("ReduceMax", masked, [4], 0)
    filled = w.op("Less", w.f32(-np.inf), value)
    place = w.cast(w.op("ArgMax", masked, axis=4, keepdims=0), ElemType.INT32)
    return [w.where(filled, value, w.f32(0)), w.where(filled, place, w.const(np.int32(-1)))]


def _members(w: OnnxWriter, start: str, end: str, pooled: int, size: int) -> str:
    """Return whether a bin has a pixel along one axis, Bool [M, pooled, size]."""
    one = w.const(np.int64(1))
    length = w.cast(w.op("Max", w.op("Add", w.op("Sub", end, start), one), one), ElemType.FLOAT)
    width = w.unsqueeze(w.op("Div", length, w.f32(pooled)), [1])
    at = np.arange(pooled + 1, dtype=np.float32)
    base = w.unsqueeze(start, [1])
    low = w.op("Add", w.cast(w.op("Floor", w.op("Mul", w.const(at[:-1]), width)), ElemType.INT64), base)
    high = w.op("Add", w.cast(w.op("Ceil", w.op("Mul", w.const(at[1:]), width)), ElemType.INT64), base)
    pixels = w.const(np.arange(size, dtype=np.int64))
    begun = w.op("Not", w.op("Less", pixels, w.unsqueeze(low, [2])))
    return w.op("And", begun, w.op("Less", pixels, w.unsqueeze(high, [2])))


@translation("DeformablePSROIPoolingForward")
def deformable_roi_pooling(w: OnnxWriter, opr: Opr) -> list[str]:
    """Average bilinear samples in bins that are moved, by Gather."""
    p = opr.get(DeformablePSROIPooling)
    x, rois = opr.inputs[:2]
    rows, columns, samples = int(p.pooled_h), int(p.pooled_w), int(p.sample_per_part)
    height, width = w.dims(x)[2:]
    image, *edges = _columns(w, w.name(rois), 5)
    left, top, right, bottom = (w.round_away(v) for v in edges)
    start, length = {}, {}
    for axis, low, high in (("x", left, right), ("y", top, bottom)):
        start[axis] = w.op("Sub", w.op("Mul", low, w.f32(p.spatial_scale)), w.f32(0.5))
        end = w.op("Sub", w.op("Mul", w.op("Add", high, w.f32(1)), w.f32(p.spatial_scale)), w.f32(0.5))
        length[axis] = w.op("Max", w.op("Sub", end, start[axis]), w.f32(0.1))
    positions = {}
    for axis, n, other in (("x", columns, 1), ("y", rows, 2)):
        step = w.unsqueeze(w.op("Div", length[axis], w.f32(n)), [1])
        begin = w.op(
            "Add", w.op("Mul", w.const(np.arange(n, dtype=np.float32)), step), w.unsqueeze(start[axis], [1])
        )
        begin = w.unsqueeze(begin, [other])
        if not p.no_trans:
            begin = w.op(
                "Add", begin, w.op("Mul", _shift(w, opr, p, axis), w.unsqueeze(length[axis], [1, 2]))
            )
        each = w.op("Div", w.unsqueeze(step, [2]), w.f32(samples))
        inner = w.op("Mul", w.const(np.arange(samples, dtype=np.float32)), each)
        # [M, PH or 1, PW or 1, samples]
        positions[axis] = w.op("Add", w.unsqueeze(begin, [3]), w.unsqueeze(inner, [1]))
    y, v = w.unsqueeze(positions["y"], [4]), w.unsqueeze(positions["x"], [3])
    inside = w.op("And", _within(w, y, height), _within(w, v, width))
    pixels = Pixels(w, w.name(x), w.dims(x), BorderMode.REPLICATE)
    base = w.unsqueeze(pixels.base(w.cast(image, ElemType.INT64)), [1, 2, 3, 4])
    clamped = [_clamped(w, at, n) for at, n in ((y, height), (v, width))]
    taken = w.where(w.unsqueeze(inside, [5]), pixels.bilinear(base, *clamped), w.f32(0))
    count = w.reduce("ReduceSum", w.cast(inside, ElemType.FLOAT), [3, 4], 0)
    total = w.reduce("ReduceSum", taken, [3, 4], 0)
    mean = w.op("Div", total, w.unsqueeze(w.op("Max", count, w.f32(1)), [3]))
    out = w.transpose(mean, [0, 3, 1, 2])
    return [out, w.op("Add", w.unsqueeze(count, [1]), w.op("Mul", out, w.f32(0)))]


def _shift(w: OnnxWriter, opr: Opr, p: DeformablePSROIPooling, axis: str) -> str:
    """Compute the shift of bins along an axis, [M, PH, PW], in units of the region's size."""
    trans = opr.inputs[2]
    part = int(p.part_size)
    if w.fixed(trans)[1:] != (2, part, part):
        raise UnsupportedOprError("displacements whose size is not that of the parts")
    value = w.slice(w.name(trans), [0 if axis == "x" else 1], [1 if axis == "x" else 2], [1])
    for at, n in ((2, int(p.pooled_h)), (3, int(p.pooled_w))):
        index = np.floor(np.arange(n, dtype=np.float32) / np.float32(n) * np.float32(part)).astype(np.int64)
        value = w.op("Gather", value, w.const(index), axis=at)
    return w.op("Mul", w.squeeze(value, [1]), w.f32(p.trans_std))


def _within(w: OnnxWriter, position: str, size: object) -> str:
    limit = w.op("Sub", _float_size(w, size), w.f32(0.5))
    low = w.op("Not", w.op("Less", position, w.f32(-0.5)))
    return w.op("And", low, w.op("Not", w.op("Less", limit, position)))


def _clamped(w: OnnxWriter, position: str, size: object) -> str:
    last = w.op("Sub", _float_size(w, size), w.f32(1))
    return w.op("Min", w.op("Max", position, w.f32(0)), last)


def _float_size(w: OnnxWriter, size: object) -> str:
    return w.f32(size) if isinstance(size, int) else w.cast(str(size), ElemType.FLOAT)


@translation("NMSKeepMGB")
def nms_keep(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit NonMaxSuppression with scores that fall along the boxes; short rows end with the last kept index."""
    p = opr.get(NMSKeep)
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

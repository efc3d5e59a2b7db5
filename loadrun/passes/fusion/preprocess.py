"""Preparing 8-bit images in one operator: conversion, padding to four channels and packing become one
RelayoutFormat, or part of the warp before them (MegEngine's FuseNCHW4Int8Preprocess and
FuseWarpPerspectiveDimshuffle)."""

from __future__ import annotations

import numpy as np

from ...base.errors import EngineError
from ...graph import Graph, Opr, Var
from ...graph import params as P
from ...graph.dtypes import DType
from ...ops.catalog import TypeParam
from ...ops.elemwise.table import ROWS
from ..arithmetic.terms import mode_of
from ..layouts.reformat import shape_of
from ..rewriter import Rewriter, each

_F32 = DType("Float32")
_BYTES = ("Uint8", "Quantized8Asymm")
_SHIFTS = frozenset(mode for mode, row in ROWS.items() if row.neutral == 0)


def fuse_packing(graph: Graph) -> Graph:
    """Replace ``pack(concat(quantize(x - 128), zeros))`` by one RelayoutFormat that does all of it.

    The image is uint8 with 128 for zero, or Quantized8Asymm; the result is QuantizedS8 in packs of four channels, or
    NHWC with four channels. Results may differ by one quantum where a value is between two.
    """

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        result = opr.outputs[0].dtype
        if result is None or result.name != "QuantizedS8":
            return None
        shuffle, source = opr, None
        if opr.type == "TypeCvtV2":
            shuffle = opr.inputs[0].owner
            if shuffle.type != "Dimshuffle" or not r.single(opr.inputs[0]):
                return None
        padded = _packed(r, shuffle)
        if padded is None:
            return None
        source = _shifted(r, padded) if opr.type == "TypeCvtV2" else _quantized(r, padded)
        if source is None:
            return None
        mode = P.RelayoutFormat(mode=P.RelayoutMode.NCHW_NCHW4)
        try:
            (packed,) = r.add("RelayoutFormatV1", mode, inputs=[r.var(source)], output_dtype=result)
        except EngineError:
            return None
        if len(shuffle.get(P.Dimshuffle).pattern) == 4:
            target = shape_of(r, packed, (0, 2, 3, 4))
            (packed,) = r.add("ReshapeV1", P.OptionalAxisV1(), inputs=[packed, target])
        return packed

    return each(graph, visit, "Dimshuffle", "TypeCvtV2")


def _packed(r: Rewriter, shuffle: Opr) -> Var | None:
    """Return what is padded to four channels by zeros and packed by a Dimshuffle of the old graph."""
    padded = _before_packing(r, shuffle)
    if padded is None:
        return None
    join = padded.owner
    if join.type != "Concat" or join.get(P.Axis).axis != 1 or len(join.inputs) != 2:
        return None
    data, padding = join.inputs
    channels, total = r.old_shape(data), r.old_shape(padded)
    if _filling(r, padding) != 0 or channels is None or total is None:
        return None
    return data if total[1] == -(-channels[1] // 4) * 4 else None


def _before_packing(r: Rewriter, shuffle: Opr) -> Var | None:
    """Return the images of whole packs that a Dimshuffle, after a Reshape if there are several packs, moves last."""
    var = shuffle.inputs[0]
    shape, pattern = r.old_shape(var), shuffle.get(P.Dimshuffle).pattern
    if shape is None or not r.single(var):
        return None
    if pattern == (0, 2, 3, 1):
        return var if len(shape) == 4 and shape[1] == 4 else None
    if pattern != (0, 1, 3, 4, 2) or len(shape) != 5 or shape[2] != 4 or var.owner.type != "ReshapeV1":
        return None
    var = var.owner.inputs[0]
    plain = r.old_shape(var)
    fits = plain is not None and len(plain) == 4 and plain[1] == 4 * shape[1]
    return var if fits and r.single(var) else None


def _filling(r: Rewriter, old: Var) -> float | None:
    """Return the one real number that a constant, or a constant that is broadcast, holds everywhere."""
    number = _uniform(r, old)
    return _uniform(r, old.owner.inputs[0]) if number is None and old.owner.type == "Broadcast" else number


def _uniform(r: Rewriter, old: Var) -> float | None:
    """Return the real number that all elements of a constant stand for."""
    dtype = old.dtype
    if dtype is None or not dtype.is_quantized:
        return r.scalar(r.var(old))
    value = r.value(r.var(old))
    if value is None or not value.size or (value != value.reshape(-1)[0]).any():
        return None
    return (float(value.reshape(-1)[0]) - dtype.zero_point) * dtype.scale


def _quantized(r: Rewriter, old: Var) -> Var | None:
    """Return the image before a conversion to QuantizedS8."""
    opr = old.owner
    if opr.type != "TypeCvtV2" or not r.single(old):
        return None
    source = opr.inputs[0]
    if source.dtype is not None and source.dtype.name == "Quantized8Asymm":
        return source
    return _shifted(r, source)


def _shifted(r: Rewriter, old: Var) -> Var | None:
    """Return the uint8 image from which 128 is subtracted as float32."""
    opr = old.owner
    if mode_of(opr) not in _SHIFTS or not r.single(old):
        return None
    least = -128.0 if mode_of(opr) == P.ElemwiseMode.ADD else 128.0
    pairs = [opr.inputs] if mode_of(opr) == P.ElemwiseMode.SUB else [opr.inputs, opr.inputs[::-1]]
    for image, number in pairs:
        value = r.value(r.var(number))
        cast = image.owner
        if value is None or value.size != 1 or value.dtype != np.float32 or value.reshape(-1)[0] != least:
            continue
        if cast.type == "TypeCvtV2" and r.single(image) and cast.get(TypeParam).dtype == _F32:
            source = cast.inputs[0]
            return source if source.dtype is not None and source.dtype.name == "Uint8" else None
    return None


def fuse_warp(graph: Graph) -> Graph:
    """Let a WarpPerspective of 8-bit images give the type and layout that it is converted to.

    The result is rounded once, not to a byte before, so that it may differ by half a step of a byte.
    """

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        packs = opr.type == "RelayoutFormatV1"
        result = opr.outputs[0].dtype
        if packs and opr.get(P.RelayoutFormat).mode != P.RelayoutMode.NCHW_NCHW4:
            return None
        if result is None or result.name != ("QuantizedS8" if packs else "Float32"):
            return None
        inner, turned = opr.inputs[0], False
        if inner.owner.type == "Dimshuffle" and inner.owner.get(P.Dimshuffle).pattern == (0, 3, 1, 2):
            if not r.single(inner):
                return None
            inner, turned = inner.owner.inputs[0], True
        return _warp(r, inner, result, turned=turned, packs=packs)

    return each(graph, visit, "RelayoutFormatV1", "TypeCvtV2")


def _warp(r: Rewriter, old: Var, result: DType, *, turned: bool, packs: bool) -> Var | None:
    warp = old.owner
    if warp.type != "WarpPerspectiveV2" or not r.single(old) or r.frozen(warp):
        return None
    p, source, shape = warp.get(P.WarpPerspective), warp.inputs[0], r.old_shape(old)
    if source.dtype is None or source.dtype.name not in _BYTES or shape is None:
        return None
    if p.format != (P.Format.NHWC if turned else P.Format.NCHW) or (packs and shape[3 if turned else 1] >= 4):
        return None
    if packs:
        form = P.Format.NHWC_NCHW4_IC_SMALL if turned else P.Format.NCHW_NCHW4_IC_SMALL
    else:
        form = P.Format.NHWC_NCHW if turned else P.Format.NCHW
    operands = [r.var(v) for v in warp.inputs]
    try:
        return r.add(
            "WarpPerspectiveV2", p.replace(format=form), inputs=operands, output_dtype=result, like=warp
        )[0]
    except EngineError:
        return None

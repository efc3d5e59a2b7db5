"""Resizing images and volumes."""

import numpy as np

from ...graph import Opr
from ...graph.dtypes import DType
from ...graph.params import Format, InterpolationMode, Resize, Resize3D
from ...ops.conv.layout import input_packing
from ..encode import ElemType
from .emitter import Dim
from .formulas import kernel_of, written
from .layout import plain_dims, to_packed, to_plain
from .writer import OnnxWriter, elem_of, translation

_MODE = {
    InterpolationMode.NEAREST: "nearest",
    InterpolationMode.LINEAR: "linear",
    InterpolationMode.CUBIC: "cubic",
}


def store(w: OnnxWriter, x: str, dtype: DType) -> str:
    """Convert float32 results to the stored type of image operators: integers round halves away from zero."""
    if dtype.is_float:
        return w.stored(x, dtype)
    whole = w.round_away(x)
    if dtype.np == np.int8:
        return w.cast(w.cast(whole, ElemType.INT32), ElemType.INT8)
    low, high = dtype.range if dtype.is_quantized else (0, 255)
    return w.cast(w.clip(whole, float(low), float(high)), elem_of(dtype))


@translation("ResizeV2")
def resize(w: OnnxWriter, opr: Opr) -> str:
    """Resize; what OpenCV computes otherwise (area, Lanczos) by weighing pixels along both axes."""
    p, x = opr.get(Resize), opr.inputs[0]
    shape = w.example(x)
    packing = input_packing(p.format, shape)
    dtype, mode = w.dtype(x), p.imode
    if p.format == Format.NHWC:
        like_cv = shape[3] in (1, 3) and dtype.name in ("Float32", "Uint8")
        if not like_cv and mode != InterpolationMode.NEAREST:
            mode = InterpolationMode.LINEAR
        if like_cv and mode != InterpolationMode.NEAREST:
            fixed = None not in (*w.shape(x)[1:3], *w.shape(opr.outputs[0])[1:3])
            if mode not in _MODE or (mode == InterpolationMode.CUBIC and fixed):
                return written(w, opr, kernel_of, stored=True)[0]
            if dtype.name == "Uint8":
                w.note(
                    opr,
                    "8-bit images are blended in floats, OpenCV does so in 11-bit fixed point: one step may differ",
                )
    data = to_plain(w, w.name(x) if dtype.np == np.float32 else w.cast(w.name(x), ElemType.FLOAT), x, packing)
    n, c, _, _ = plain_dims(w, w.dims(x), packing)
    rows, columns = _target_dims(w, opr)
    out = _resize(w, data, [n, c, rows, columns], mode)
    if (
        p.format == Format.NHWC
        and dtype.name == "Uint8"
        and mode == InterpolationMode.LINEAR
        and shape[3] in (1, 3)
    ):
        out = w.op("Floor", w.op("Add", out, w.f32(1e-4)))
    out = store(w, out, dtype) if dtype.np != np.float32 or dtype.name == "BFloat16" else out
    return to_packed(w, out, [n, c, rows, columns], packing)


def _target_dims(w: OnnxWriter, opr: Opr) -> list[Dim]:
    return w.split_dims(opr.inputs[1])


def _resize(w: OnnxWriter, x: str, dims: list[Dim], mode: InterpolationMode) -> str:
    sizes = w.vector(dims)
    attributes: dict[str, object] = {"mode": _MODE[mode]}
    if mode == InterpolationMode.NEAREST:
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        attributes["coordinate_transformation_mode"] = "half_pixel"
    if mode == InterpolationMode.CUBIC:
        attributes["cubic_coeff_a"] = -0.75
    nothing = "" if w.opset >= 13 else w.const(np.zeros(0, np.float32))
    scales = "" if w.opset >= 13 else w.const(np.zeros(0, np.float32))
    return w.op("Resize", x, nothing, scales, sizes, **attributes)  # type: ignore[arg-type]


@translation("Resize3D")
def resize_3d(w: OnnxWriter, opr: Opr) -> str:
    """Resize of volumes."""
    p, (x, target) = opr.get(Resize3D), opr.inputs
    dims = [*w.dims(x)[:2], *w.split_dims(target)]
    mode = "align_corners" if p.align_corners else "half_pixel"
    nothing = "" if w.opset >= 13 else w.const(np.zeros(0, np.float32))
    out = w.op(
        "Resize",
        w.float(x),
        nothing,
        nothing,
        w.vector(dims),
        mode="linear",
        coordinate_transformation_mode=mode,
    )
    return w.stored(out, w.dtype(x))

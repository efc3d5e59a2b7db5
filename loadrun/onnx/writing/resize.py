"""Resizing images and volumes."""

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, DType
from ...graph.params import Format, InterpolationMode, Resize, Resize3D
from ...ops.conv.layout import input_packing
from ...ops.image.resize_cv import resize_cv
from ..encode import ElemType
from .emitter import Dim, UnsupportedOprError
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
    """Resize; what OpenCV computes otherwise (area, Lanczos) as products with the matrices of both axes."""
    p, x = opr.get(Resize), opr.inputs[0]
    shape = w.example(x)
    packing = input_packing(p.format, shape)
    dtype, mode = w.dtype(x), p.imode
    if p.format == Format.NHWC:
        like_cv = shape[3] in (1, 3) and dtype.name in ("Float32", "Uint8")
        if not like_cv and mode != InterpolationMode.NEAREST:
            mode = InterpolationMode.LINEAR
        if like_cv and mode != InterpolationMode.NEAREST:
            if dtype.name == "Uint8":
                w.note(
                    opr,
                    "8-bit images are blended in floats, OpenCV does so in 11-bit fixed point: one step may differ",
                )
            fixed = None not in (*w.shape(x)[1:3], *w.shape(opr.outputs[0])[1:3])
            if mode not in _MODE or (mode == InterpolationMode.CUBIC and fixed):
                return _by_matrices(w, opr, mode)
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


def _matrix(size: int, out: int, mode: InterpolationMode, larger: bool) -> Array:
    """Build the matrix [out, size] of an OpenCV resize along one axis from the images of unit vectors.

    Args:
        larger: whether any axis grows, which changes how areas are weighted along the other.
    """
    image = np.eye(size, dtype=np.float32).reshape(size, size, 1, 1)
    resized: Array = resize_cv(image, out, 2 if larger else 1, mode)[:, :, 0, 0]
    return np.ascontiguousarray(resized.T)


def _by_matrices(w: OnnxWriter, opr: Opr, mode: InterpolationMode) -> str:
    x, _ = opr.inputs
    rows, columns = w.fixed(x, [1, 2])
    to = _target_dims(w, opr)
    if any(isinstance(n, str) for n in to):
        raise UnsupportedOprError(f"{mode.name} interpolation to a size that changes")
    larger = int(to[0]) > rows or int(to[1]) > columns
    first, second = (_matrix(s, int(t), mode, larger) for s, t in zip((rows, columns), to, strict=True))
    planes = w.transpose(w.float(x), [0, 3, 1, 2])
    out = w.op("MatMul", w.op("MatMul", w.const(first), planes), w.const(np.ascontiguousarray(second.T)))
    out = w.transpose(out, [0, 2, 3, 1])
    if w.dtype(x).name == "Uint8" and mode == InterpolationMode.AREA:
        # OpenCV's way is cut off, not rounded; what is whole but for float32's last bit stays whole.
        out = w.op("Floor", w.op("Add", out, w.f32(1e-4)))
    return store(w, out, w.dtype(x))


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

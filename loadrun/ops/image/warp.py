"""Perspective and affine warps and remapping (MegEngine dnn warp_perspective, warp_affine, remap)."""

from collections.abc import Sequence
from math import prod

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, DType
from ...graph.params import BorderMode, Format, InterpolationMode, Remap, WarpAffine, WarpPerspective
from ..registry import Call, Shape, ShapeCall, kernel
from .planes import as_planes, from_planes, output_size, planes_shape
from .sampling import border_index, store, to_integer
from .warp_kernels import affine_positions, bilinear_grid, bilinear_points, perspective_positions, remap_fixed

_FLOATS = ("Float32", "Float16", "BFloat16")
_BYTES = ("Int8", "Uint8", "QuantizedS8", "Quantized8Asymm")
_NIBBLES = ("QuantizedS4", "Quantized4Asymm")
_DTYPES = {
    Format.NCHW: (*_FLOATS, *_BYTES, *_NIBBLES),
    Format.NHWC: (*_FLOATS, *_BYTES, *_NIBBLES),
    Format.NCHW4: ("QuantizedS8",),
    Format.NCHW64: _NIBBLES,
    Format.NHWCD4: (*_FLOATS, "QuantizedS8", "Quantized8Asymm"),
    Format.NHWC_NCHW: ("Uint8", "Quantized8Asymm"),
    Format.NHWC_NCHW4_IC_SMALL: ("Uint8", "Quantized8Asymm"),
    Format.NCHW_NCHW4_IC_SMALL: ("Uint8", "Quantized8Asymm"),
}
_LAYOUTS = {
    Format.NHWC_NCHW: (Format.NHWC, Format.NCHW),
    Format.NHWC_NCHW4_IC_SMALL: (Format.NHWC, Format.NCHW4),
    Format.NCHW_NCHW4_IC_SMALL: (Format.NCHW, Format.NCHW4),
}
"""Layouts of input and output where they differ."""
_BORDERS = (
    BorderMode.REPLICATE,
    BorderMode.REFLECT,
    BorderMode.REFLECT_101,
    BorderMode.WRAP,
    BorderMode.CONSTANT,
)


def _out_shape(shape: Shape, source: Format, dest: Format, batch: int, oh: int, ow: int) -> Shape:
    """Return the shape of the output of an image operator that changes batch, height and width."""
    _, g, _, _, k = planes_shape(shape, source)
    if source != dest:
        if dest == Format.NCHW4 and g * k > 4:
            raise ValueError(f"at most 4 channels fit into one NCHW4 group, found {g * k}")
        return (batch, 1, oh, ow, 4) if dest == Format.NCHW4 else (batch, g * k, oh, ow)
    if dest == Format.NHWC:
        return (batch, oh, ow, k)
    if dest == Format.NHWCD4:
        return (batch, oh, g, ow, k)
    return (batch, g, oh, ow) if dest == Format.NCHW else (batch, g, oh, ow, k)


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    record = next(p for p in opr.params if isinstance(p, WarpPerspective | WarpAffine | Remap))
    most = {InterpolationMode.NEAREST: 0, InterpolationMode.CUBIC: 16, InterpolationMode.LANCZOS4: 64}
    return 2 * most.get(record.imode, 4) * prod(outputs[0])


def _check_border(mode: BorderMode) -> None:
    if mode not in _BORDERS:
        raise ValueError(f"border mode {mode.name} is not supported")


# --- WarpPerspective ----------------------------------------------------------------------------------


def _split(ndims: Sequence[int]) -> tuple[int, bool]:
    """Return how many inputs are images, and whether there is a mat_idx."""
    if len(ndims) < 3:
        raise ValueError(f"a perspective warp has at least 3 inputs, found {len(ndims)}")
    with_index = len(ndims) > 3 and ndims[-2] != 3
    return len(ndims) - (3 if with_index else 2), with_index


def _perspective_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    p = opr.get(WarpPerspective)
    src, out = inputs[0], opr.output_dtype or inputs[0]
    allowed = _DTYPES.get(p.format)
    if allowed is None:
        raise ValueError(f"images in the {p.format.name} layout cannot be warped")
    if src.name not in allowed:
        raise ValueError(f"{p.format.name} images to warp are {', '.join(allowed)}, not {src.name}")
    if p.format in _LAYOUTS or out != src:
        scale = src.scale if src.is_quantized else 1.0
        plain = out.name == "Float32" or (
            out.name == "QuantizedS8" and np.float32(out.scale) == np.float32(scale)
        )
        if src.name not in ("Uint8", "Quantized8Asymm") or not plain:
            raise ValueError(
                f"a {p.format.name} warp turns Uint8 or Quantized8Asymm into Float32 or QuantizedS8 of the "
                f"same scale, not {src} into {out}"
            )
    return (out,)


def _perspective_check(p: WarpPerspective, src: Shape, mat: Shape, index: Shape | None, images: int) -> Shape:
    """Check the shapes; returns the output's shape for 1x1 pixels."""
    source, dest = _LAYOUTS.get(p.format, (p.format, p.format))
    _check_border(p.bmode)
    if len(mat) != 3 or mat[1:] != (3, 3):
        raise ValueError(f"the matrices have shape [n, 3, 3], found {list(mat)}")
    if index is not None and index != (mat[0],):
        raise ValueError(f"mat_idx has one entry for each of {mat[0]} matrices, found shape {list(index)}")
    if images > 1 and src[:1] != (1,):
        raise ValueError(f"several images have batch size 1 each, found shape {list(src)}")
    total = images if images > 1 else src[0]
    if index is None and total != mat[0]:
        raise ValueError(f"{mat[0]} matrices for {total} images, without mat_idx")
    if p.imode != InterpolationMode.LINEAR and (
        p.format != Format.NHWC or images > 1 or p.imode == InterpolationMode.AREA
    ):
        raise ValueError(f"{p.format.name} images are warped by LINEAR, not {p.imode.name}")
    return _out_shape(src, source, dest, mat[0], 1, 1)


def _perspective_shape(s: ShapeCall) -> Sequence[Shape | None]:
    p = s.get(WarpPerspective)
    shapes = [s.shape(i) for i in range(len(s.shapes))]
    images, with_index = _split([len(x) for x in shapes])
    index = shapes[images + 1] if with_index else None
    _perspective_check(p, shapes[0], shapes[images], index, images)
    source, dest = _LAYOUTS.get(p.format, (p.format, p.format))
    oh, ow = output_size(s.ints(len(shapes) - 1))
    return (_out_shape(shapes[0], source, dest, shapes[images][0], oh, ow),)


@kernel("WarpPerspectiveV2", dtype=_perspective_dtype, shape=_perspective_shape, flops=_flops)
def warp_perspective(c: Call, *args: Array) -> Array:
    """Sample images through 3x3 matrices that map output pixels to input positions.

    ``column = (m00 * w + m01 * h + m02) / (m20 * w + m21 * h + m22)``, row alike.

    Args:
        args: the image, or several of batch size 1; matrices (n, 3, 3); optionally int32 mat_idx (n), the
            image for each matrix; int32 (height, width).

    NHWC images of 1 to 3 channels in float32 or uint8 are sampled at positions rounded to 1/32 pixel as
    in OpenCV. An output dtype or layout other than the input's (optimized preprocessing) subtracts
    the zero point (128 for plain uint8 to int8) and, for float, multiplies by the scale.

    Raises:
        ValueError: shapes that do not fit, a mat_idx outside the batch, a mode that the layout does not know.
    """
    p = c.get(WarpPerspective)
    images, with_index = _split([a.ndim for a in args])
    srcs, mat = args[:images], args[images].astype(np.float32, copy=False)
    for a in srcs:
        if a.shape != srcs[0].shape:
            raise ValueError(f"the images have shapes {list(srcs[0].shape)} and {list(a.shape)}")
    if not c.inputs[images].is_float:
        raise ValueError(f"the matrices are Float32 or of the image's float type, not {c.inputs[images]}")
    index = args[images + 1] if with_index else None
    _perspective_check(p, srcs[0].shape, mat.shape, None if index is None else index.shape, images)
    oh, ow = output_size(args[-1])
    source, dest = _LAYOUTS.get(p.format, (p.format, p.format))
    planes = as_planes(srcs[0] if images == 1 else np.concatenate(srcs), source)
    which = np.arange(len(mat)) if index is None else index.astype(np.int64)
    if len(which) and not (which.min() >= 0 and which.max() < len(planes)):
        raise ValueError(f"mat_idx must lie in 0..{len(planes) - 1}, found {which.min()}..{which.max()}")
    _check_pixels(planes.shape)
    src, out = c.inputs[0], c.outputs[0]
    result = np.empty((len(mat), planes.shape[1], oh, ow, planes.shape[4]), out.np)
    fixed = p.format == Format.NHWC and images == 1 and _is_fixed(planes, src, out, p.imode)
    # Without channels nothing is sampled, whatever the size says.
    for i, (m, n) in enumerate(zip(mat, which, strict=True) if result.size else ()):
        x = planes[n]
        if fixed:
            at = perspective_positions(m.reshape(-1), oh, ow, p.imode)
            result[i, 0] = remap_fixed(x[0], *at, p.imode, p.bmode, p.border_val)
            continue
        sampled = _perspective_linear(x, m.reshape(-1), oh, ow, p)
        result[i] = store(_convert(sampled, src, out), out)
    if source == dest:
        return from_planes(result, dest)
    return _relayout(result, dest)


def _is_fixed(planes: Array, src: DType, out: DType, mode: InterpolationMode) -> bool:
    if src == out and planes.shape[4] in (1, 2, 3) and src.name in ("Float32", "Uint8"):
        return True
    if mode != InterpolationMode.LINEAR:
        raise ValueError(f"{mode.name} takes NHWC images of 1 to 3 channels in Float32 or Uint8")
    return False


def _check_pixels(planes: Shape) -> None:
    if 0 in planes[2:4] and planes[0]:
        raise ValueError(f"cannot sample images of {planes[2]}x{planes[3]} pixels")


def _perspective_linear(x: Array, m: Array, oh: int, ow: int, p: WarpPerspective) -> Array:
    h, w = np.arange(oh, dtype=np.float32), np.arange(ow, dtype=np.float32)
    if p.format == Format.NCHW and not m[[1, 3, 6, 7]].any():
        rows = h * (m[4] / m[8]) + m[5] / m[8]
        cols = w * (m[0] / m[8]) + m[2] / m[8]
        return bilinear_grid(x, rows, cols, p.bmode, p.border_val)
    h = h[:, None]
    below = m[6] * w + m[7] * h + m[8]
    cols = (m[0] * w + m[1] * h + m[2]) / below
    rows = (m[3] * w + m[4] * h + m[5]) / below
    return bilinear_points(x, rows, cols, p.bmode, p.border_val)


def _convert(x: Array, src: DType, out: DType) -> Array:
    if src == out:
        return x
    zero = src.zero_point if src.is_quantized else 128 if out.name == "QuantizedS8" else 0
    x = x - np.float32(zero)
    return x * np.float32(src.scale) if src.is_quantized and out.is_float else x


def _relayout(x: Array, dest: Format) -> Array:
    """Convert (n, groups, H, W, packed) to NCHW, or to one NCHW4 group filled up with zeros."""
    n, g, h, w, k = x.shape
    x = x.transpose(0, 1, 4, 2, 3).reshape(n, g * k, h, w)
    if dest == Format.NCHW:
        return x
    out = np.zeros((n, 1, h, w, 4), x.dtype)
    out[:, 0, :, :, : g * k] = x.transpose(0, 2, 3, 1)
    return out


# --- WarpAffine ---------------------------------------------------------------------------------------


def _affine_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in ("Float32", "Float16", *_BYTES):
        raise ValueError(f"images to warp are Float32, Float16, {', '.join(_BYTES)}")
    if not inputs[1].is_float:
        raise ValueError(f"the matrices are Float32 or of the image's float type, not {inputs[1]}")
    return (inputs[0],)


def _affine_check(p: WarpAffine, src: Shape, mat: Shape) -> None:
    _check_border(p.border_mode)
    if p.format not in (Format.NCHW, Format.NHWC, Format.NHWCD4):
        raise ValueError(f"images in the {p.format.name} layout cannot be warped")
    if len(mat) != 3 or mat != (src[0], 2, 3):
        raise ValueError(f"the matrices have shape [{src[0]}, 2, 3], found {list(mat)}")
    linear = p.imode == InterpolationMode.LINEAR
    if p.imode == InterpolationMode.AREA or not (linear or p.format == Format.NHWC):
        raise ValueError(f"{p.format.name} images are warped by LINEAR, not {p.imode.name}")


def _affine_shape(s: ShapeCall) -> Sequence[Shape | None]:
    p, shape = s.get(WarpAffine), s.shape(0)
    _affine_check(p, shape, s.shape(1))
    oh, ow = output_size(s.ints(2))
    return (_out_shape(shape, p.format, p.format, shape[0], oh, ow),)


@kernel("WarpAffineV2", dtype=_affine_dtype, shape=_affine_shape, flops=_flops)
def warp_affine(c: Call, x: Array, mat: Array, out_shape: Array) -> Array:
    """Sample images through 2x3 matrices that map output pixels to input positions.

    Args:
        x: image in the layout of ``WarpAffine.format``.
        mat: (n, 2, 3), one for each image.
        out_shape: int32 (height, width).

    NHWC images of 1 to 3 channels in float32 or uint8 are sampled at positions rounded to 1/32 pixel as
    in OpenCV, all others at float positions.

    Raises:
        ValueError: shapes that do not fit, or a mode that the layout does not know.
    """
    p = c.get(WarpAffine)
    planes = as_planes(x, p.format)
    _affine_check(p, x.shape, mat.shape)
    _check_pixels(planes.shape)
    oh, ow = output_size(out_shape)
    src = c.inputs[0]
    mat = mat.astype(np.float32, copy=False).reshape(-1, 6)
    result = np.empty((len(mat), planes.shape[1], oh, ow, planes.shape[4]), x.dtype)
    fixed = p.format == Format.NHWC and _is_fixed(planes, src, src, p.imode)
    for i, m in enumerate(mat if result.size else ()):
        if fixed:
            at = affine_positions(m, oh, ow, p.imode)
            result[i, 0] = remap_fixed(planes[i, 0], *at, p.imode, p.border_mode, p.border_val)
            continue
        h, w = np.arange(oh, dtype=np.float32)[:, None], np.arange(ow, dtype=np.float32)
        cols, rows = m[0] * w + m[1] * h + m[2], m[3] * w + m[4] * h + m[5]
        result[i] = store(bilinear_points(planes[i], rows, cols, p.border_mode, p.border_val), src)
    return from_planes(result, p.format)


# --- Remap --------------------------------------------------------------------------------------------


def _remap_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in (*_FLOATS, *_BYTES):
        raise ValueError(f"images to remap are {', '.join((*_FLOATS, *_BYTES))}")
    if inputs[1].name != "Float32":
        raise ValueError(f"the map is Float32, not {inputs[1].name}")
    return (inputs[0],)


def _remap_check(p: Remap, src: Shape, where: Shape) -> None:
    _check_border(p.border_type)
    if p.format not in (Format.NCHW, Format.NHWC, Format.NHWCD4):
        raise ValueError(f"images in the {p.format.name} layout cannot be remapped")
    if p.imode not in (InterpolationMode.NEAREST, InterpolationMode.LINEAR):
        raise ValueError(f"images are remapped by NEAREST or LINEAR, not {p.imode.name}")
    if len(where) != 4 or where[0] != src[0] or where[3] != 2:
        raise ValueError(f"the map has shape [{src[0]}, height, width, 2], found {list(where)}")


def _remap_shape(s: ShapeCall) -> Sequence[Shape | None]:
    p, shape, where = s.get(Remap), s.shape(0), s.shape(1)
    _remap_check(p, shape, where)
    return (_out_shape(shape, p.format, p.format, *where[:3]),)


@kernel("RemapV1", dtype=_remap_dtype, shape=_remap_shape, flops=_flops)
def remap(c: Call, x: Array, where: Array) -> Array:
    """Sample images at given positions.

    Args:
        x: image in the layout of ``Remap.format``.
        where: float32 (n, height, width, 2), column and row for every output pixel.

    NEAREST rounds positions to the nearest integer, halves to even.

    Raises:
        ValueError: shapes that do not fit, or an unknown mode.
    """
    p = c.get(Remap)
    planes = as_planes(x, p.format)
    _remap_check(p, x.shape, where.shape)
    _check_pixels(planes.shape)
    n, g, ih, iw, k = planes.shape
    oh, ow = where.shape[1:3]
    src = c.inputs[0]
    border = store(np.array([p.scalar], np.float32), src)[0]
    result = np.empty((n, g, oh, ow, k), x.dtype)
    for i in range(n):
        cols, rows = where[i, ..., 0], where[i, ..., 1]
        if p.imode == InterpolationMode.LINEAR:
            sampled = bilinear_points(planes[i], rows, cols, p.border_type, float(border), finite=False)
            result[i] = store(sampled, src)
            continue
        r = border_index(to_integer(np.rint(rows)).reshape(-1), ih, p.border_type)
        q = border_index(to_integer(np.rint(cols)).reshape(-1), iw, p.border_type)
        taken = planes[i].reshape(g, ih * iw, k).take(np.maximum(r, 0) * iw + np.maximum(q, 0), 1)
        taken[:, np.flatnonzero((r < 0) | (q < 0))] = border
        result[i] = taken.reshape(g, oh, ow, k)
    return from_planes(result, p.format)

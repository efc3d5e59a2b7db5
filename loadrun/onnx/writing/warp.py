"""Warps and remapping: positions are computed in the graph, pixels taken from there (`sampling.Pixels`)."""

from __future__ import annotations

import numpy as np

from ...graph import Opr, Var
from ...graph.dtypes import DType
from ...graph.params import BorderMode, Format, InterpolationMode, Remap, WarpAffine, WarpPerspective
from ...ops.conv.layout import Packing, input_packing, output_packing
from ...ops.image.sampling import store as store_array
from ...ops.image.warp_fixed import weight_tables
from ..encode import ElemType
from .emitter import Dim, UnsupportedOprError
from .layout import plain_dims, to_packed, to_plain
from .resize import store
from .sampling import Pixels
from .writer import OnnxWriter, translation

__all__: list[str] = []

_LAYOUTS = {
    Format.NHWC_NCHW: (Format.NHWC, Format.NCHW),
    Format.NHWC_NCHW4_IC_SMALL: (Format.NHWC, Format.NCHW4),
    Format.NCHW_NCHW4_IC_SMALL: (Format.NCHW, Format.NCHW4),
}


class _Image:
    """An image operand in its layout, as a plain float32 image."""

    def __init__(self, w: OnnxWriter, var: Var, fmt: Format) -> None:
        self.packing: Packing = input_packing(fmt, w.example(var))
        self.dtype = w.dtype(var)
        self.dims = plain_dims(w, w.dims(var), self.packing)
        self.plain = to_plain(w, w.name(var), var, self.packing)
        self.value = self.plain if self.dtype.np == np.float32 else w.cast(self.plain, ElemType.FLOAT)


def _output(w: OnnxWriter, x: str, image: _Image, fmt: Format, batch: Dim, rows: Dim, columns: Dim) -> str:
    """Convert a plain result to a layout."""
    dims = [batch, image.dims[1], rows, columns]
    channels = image.dims[1]
    if fmt == Format.NCHW4 and image.packing.order != (0, 1, 4, 2, 3):
        if not isinstance(channels, int):
            raise UnsupportedOprError("a number of channels that changes")
        x = w.pad(x, [0] * 5 + [4 - channels, 0, 0], value=w.const(np.zeros((), np.int8)))
        dims[1] = channels = 4
    shape = (1, channels if isinstance(channels, int) else 1, 1, 1)
    return to_packed(w, x, dims, output_packing(fmt, shape))


def _grid(w: OnnxWriter, rows: Dim, columns: Dim, elem: ElemType) -> tuple[str, str]:
    """Return row and column numbers of the output's pixels, [OH, 1] and [OW]."""
    h = w.unsqueeze(w.cast(w.range(rows), elem), [1])
    return h, w.cast(w.range(columns), elem)


def _entries(w: OnnxWriter, matrices: str, count: int, elem: ElemType) -> list[str]:
    """Return entries of matrices [n, r, c] as values [n, 1, 1]."""
    flat = w.reshape(matrices, [-1, count])
    flat = w.cast(flat, elem) if elem is not ElemType.FLOAT else flat
    return [w.reshape(w.slice(flat, [i], [i + 1], [1]), [-1, 1, 1]) for i in range(count)]


def _linear(w: OnnxWriter, a: str, b: str, c: str, x: str, y: str) -> str:
    """Compute ``a x + b y + c``."""
    return w.op("Add", w.op("Add", w.op("Mul", a, x), w.op("Mul", b, y)), c)


@translation("WarpPerspectiveV2")
def warp_perspective(w: OnnxWriter, opr: Opr) -> str:
    """Compute positions from the matrices, then gather pixels."""
    p = opr.get(WarpPerspective)
    ranks = [w.rank(v) for v in opr.inputs]
    with_index = len(ranks) > 3 and ranks[-2] != 3
    images = len(ranks) - (3 if with_index else 2)
    source, dest = _LAYOUTS.get(p.format, (p.format, p.format))
    image = _batched_images(w, opr, images, source)
    matrix = opr.inputs[images]
    rows, columns = w.split_dims(opr.inputs[-1])
    n = w.dim(matrix, 0)
    which = w.int64(opr.inputs[images + 1]) if with_index else w.range(n)
    which = w.reshape(which, [-1, 1, 1])
    target = w.dtype(opr.outputs[0])
    fixed = p.format == Format.NHWC and images == 1 and _is_fixed(w, image, target)
    if fixed:
        at = _fixed_perspective(w, w.float(matrix), rows, columns, p.imode)
        out = _fixed(w, image, which, at, p.imode, p.bmode, p.border_val)
        return _output(w, out, image, dest, n, rows, columns)
    if p.imode != InterpolationMode.LINEAR:
        raise UnsupportedOprError(f"{p.imode.name} interpolation of {p.format.name} images")
    h, v = _grid(w, rows, columns, ElemType.FLOAT)
    m = _entries(w, w.float(matrix), 9, ElemType.FLOAT)
    below = _linear(w, m[6], m[7], m[8], v, h)
    x = w.op("Div", _linear(w, m[0], m[1], m[2], v, h), below)
    y = w.op("Div", _linear(w, m[3], m[4], m[5], v, h), below)
    out = _sampled(w, image, which, y, x, p.bmode, p.border_val, True)
    return _output(w, store(w, _convert(w, out, image.dtype, target), target), image, dest, n, rows, columns)


def _batched_images(w: OnnxWriter, opr: Opr, images: int, fmt: Format) -> _Image:
    first = _Image(w, opr.inputs[0], fmt)
    if images > 1:
        rest = [_Image(w, v, fmt).value for v in opr.inputs[1:images]]
        first.value = w.op("Concat", first.value, *rest, axis=0)
        first.dims = [images, *first.dims[1:]]
    return first


def _convert(w: OnnxWriter, x: str, source: DType, target: DType) -> str:
    if source == target:
        return x
    zero = source.zero_point if source.is_quantized else 128 if target.name == "QuantizedS8" else 0
    if zero:
        x = w.op("Sub", x, w.f32(zero))
    return w.op("Mul", x, w.f32(source.scale)) if source.is_quantized and target.is_float else x


def _sampled(
    w: OnnxWriter, image: _Image, which: str, y: str, x: str, border: BorderMode, value: float, finite: bool
) -> str:
    """Sample a plain image [n, C, OH, OW] at float positions."""
    pixels = Pixels(w, image.value, image.dims, border, w.f32(value))
    out = pixels.bilinear(pixels.base(which), y, x)
    if border == BorderMode.CONSTANT and finite:
        bad = w.op("Or", w.op("IsNaN", out), w.op("IsInf", out))
        out = w.where(bad, w.f32(value), out)
    return pixels.image(out)


def _is_fixed(w: OnnxWriter, image: _Image, target: DType) -> bool:
    return image.dtype == target and image.dims[1] in (1, 2, 3) and image.dtype.name in ("Float32", "Uint8")


# Positions in 1/32 pixel, as OpenCV has them


def _double(w: OnnxWriter, value: float) -> str:
    return w.const(np.float64(value))


def _rounded(w: OnnxWriter, x: str) -> str:
    """Round float64 numbers to int64, halves to even, within int32."""
    limit = np.iinfo(np.int32)
    clamped = w.op("Min", w.op("Max", x, _double(w, limit.min)), _double(w, limit.max))
    return w.cast(w.op("Round", clamped), ElemType.INT64)


def _fixed_perspective(
    w: OnnxWriter, matrix: str, rows: Dim, columns: Dim, mode: InterpolationMode
) -> tuple[str, ...]:
    """Return columns and rows of pixels, and their fractions in 1/32 pixel."""
    t = _entries(w, matrix, 9, ElemType.DOUBLE)
    h, v = _grid(w, rows, columns, ElemType.DOUBLE)
    near = mode == InterpolationMode.NEAREST
    below = w.op("Add", w.op("Mul", t[6], v), w.op("Add", w.op("Mul", t[7], h), t[8]))
    zero = w.op("Equal", below, _double(w, 0))
    scale = w.where(zero, _double(w, 0), w.op("Div", _double(w, 1 if near else 32), below))

    def to_int(a: str, b: str, c: str) -> str:
        above = w.op("Add", w.op("Add", w.op("Mul", b, h), c), w.op("Mul", a, v))
        return _rounded(w, w.op("Mul", above, scale))

    return _fixed_point_parts(w, to_int(*t[0:3]), to_int(*t[3:6]), near)


def _fixed_affine(
    w: OnnxWriter, matrix: str, rows: Dim, columns: Dim, mode: InterpolationMode
) -> tuple[str, ...]:
    t = _entries(w, matrix, 6, ElemType.DOUBLE)
    h, v = _grid(w, rows, columns, ElemType.DOUBLE)
    near = mode == InterpolationMode.NEAREST
    half, shift = (512, 1024) if near else (16, 32)
    one = _double(w, 1024)

    def position(a: str, b: str, c: str) -> str:
        along = _rounded(w, w.op("Mul", w.op("Add", w.op("Mul", b, h), c), one))
        across = _rounded(w, w.op("Mul", w.op("Mul", a, v), one))
        total = w.op("Add", w.op("Add", along, w.const(np.int64(half))), across)
        rest = w.op("Mod", total, w.const(np.int64(shift)))
        return w.op("Div", w.op("Sub", total, rest), w.const(np.int64(shift)))

    return _fixed_point_parts(w, position(*t[0:3]), position(*t[3:6]), near)


def _fixed_point_parts(w: OnnxWriter, x: str, y: str, near: bool) -> tuple[str, ...]:
    low, high = w.const(np.int64(-(2**15))), w.const(np.int64(2**15 - 1))

    def short(v: str) -> str:
        return w.op("Max", w.op("Min", v, high), low)

    if near:
        return short(x), short(y), "", ""
    size = w.const(np.int64(32))
    parts = [w.op("Mod", v, size) for v in (x, y)]
    whole = [short(w.op("Div", w.op("Sub", v, r), size)) for v, r in zip((x, y), parts, strict=True)]
    return (*whole, *parts)


def _fixed(
    w: OnnxWriter,
    image: _Image,
    which: str,
    at: tuple[str, ...],
    mode: InterpolationMode,
    border: BorderMode,
    value: float,
) -> str:
    """Sample at fixed-point positions; a plain image of the input's dtype."""
    columns, rows, column_parts, row_parts = at
    whole = image.dtype.name == "Uint8"
    fill = float(np.asarray(np.float32(value)).astype(np.int64).astype(np.uint8)) if whole else value
    elem = ElemType.INT32 if whole else ElemType.FLOAT
    data = w.cast(image.plain, ElemType.INT32) if whole else image.plain
    pixels = Pixels(w, data, image.dims, border, w.const(elem.numpy.type(fill)), elem)
    base = pixels.base(which)
    if mode == InterpolationMode.NEAREST:
        taken = pixels.image(pixels.at(base, rows, columns))
        return w.cast(taken, ElemType.UINT8) if whole else taken
    table = weight_tables(mode, whole)
    k = table.shape[-1]
    part = w.op("Add", w.op("Mul", row_parts, w.const(np.int64(32))), column_parts)
    weights = w.op("Gather", w.const(table.reshape(1024, k * k).astype(elem.numpy)), part, axis=0)
    total = ""
    for i in range(k):
        for j in range(k):
            y, x = (w.op("Add", v, w.const(np.int64(o - k // 2 + 1))) for v, o in ((rows, i), (columns, j)))
            weight = w.slice(weights, [i * k + j], [i * k + j + 1], [-1])
            tap = w.op("Mul", pixels.at(base, y, x), weight)
            total = w.op("Add", total, tap) if total else tap
    if whole:
        total = w.op("Add", total, w.const(np.int32(1 << 14)))
        size = w.const(np.int32(1 << 15))
        total = w.op("Div", w.op("Sub", total, w.op("Mod", total, size)), size)
        total = w.op("Max", w.op("Min", total, w.const(np.int32(255))), w.const(np.int32(0)))
        total = w.cast(total, ElemType.UINT8)
    return pixels.image(total)


@translation("WarpAffineV2")
def warp_affine(w: OnnxWriter, opr: Opr) -> str:
    """Compute positions from the matrices, then gather pixels."""
    p = opr.get(WarpAffine)
    x, matrix, size = opr.inputs
    image = _Image(w, x, p.format)
    rows, columns = w.split_dims(size)
    n = image.dims[0]
    which = w.reshape(w.range(n), [-1, 1, 1])
    if p.format == Format.NHWC and _is_fixed(w, image, image.dtype):
        at = _fixed_affine(w, w.float(matrix), rows, columns, p.imode)
        out = _fixed(w, image, which, at, p.imode, p.border_mode, p.border_val)
        return _output(w, out, image, p.format, n, rows, columns)
    if p.imode != InterpolationMode.LINEAR:
        raise UnsupportedOprError(f"{p.imode.name} interpolation of {p.format.name} images")
    h, v = _grid(w, rows, columns, ElemType.FLOAT)
    m = _entries(w, w.float(matrix), 6, ElemType.FLOAT)
    out = _sampled(
        w,
        image,
        which,
        _linear(w, m[3], m[4], m[5], v, h),
        _linear(w, m[0], m[1], m[2], v, h),
        p.border_mode,
        p.border_val,
        True,
    )
    return _output(w, store(w, out, image.dtype), image, p.format, n, rows, columns)


@translation("RemapV1")
def remap(w: OnnxWriter, opr: Opr) -> str:
    """Gather pixels at given positions."""
    p = opr.get(Remap)
    x, where = opr.inputs
    image = _Image(w, x, p.format)
    n, rows, columns, _ = w.dims(where)
    halves = w.split(w.name(where), [1, 1], 3)
    across, down = (w.squeeze(v, [3]) for v in halves)
    which = w.reshape(w.range(n), [-1, 1, 1])
    border = float(store_array(np.array([p.scalar], np.float32), image.dtype)[0])
    if p.imode == InterpolationMode.NEAREST:
        pixels = Pixels(w, image.value, image.dims, p.border_type, w.f32(border))
        w.need(11, "rounding halves to even")
        y, v = (w.cast(w.clip(w.op("Round", a), -(2.0**30), 2.0**30), ElemType.INT64) for a in (down, across))
        out = pixels.image(pixels.at(pixels.base(which), y, v))
    elif p.imode == InterpolationMode.LINEAR:
        out = _sampled(w, image, which, down, across, p.border_type, border, False)
    else:
        raise UnsupportedOprError(f"{p.imode.name} interpolation")
    return _output(w, store(w, out, image.dtype), image, p.format, n, rows, columns)

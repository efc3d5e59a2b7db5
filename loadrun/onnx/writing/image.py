"""Image filters: rotation, flips, colours, blurring, the block cosine transform."""

from __future__ import annotations

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.dtypes import Array, DType
from ...graph.params import CvtColorMode as M
from ...ops.image.filters import blur_kernels, dct_basis
from ...ops.image.sampling import border_index
from ..encode import ElemType
from .emitter import UnsupportedOprError
from .resize import store
from .writer import OnnxWriter, translation

_LAST = -(2**63) + 1


def _mirrored(w: OnnxWriter, x: str, axes: list[int]) -> str:
    return w.slice(x, [-1] * len(axes), [_LAST] * len(axes), axes, [-1] * len(axes)) if axes else x


@translation("Rotate")
def rotate(w: OnnxWriter, opr: Opr) -> str:
    """Transpose, then Slice backwards."""
    turned = w.transpose(w.name(opr.inputs[0]), [0, 2, 1, 3])
    return _mirrored(w, turned, [2] if opr.get(P.Rotate).clockwise else [1])


@translation("Flip")
def flip(w: OnnxWriter, opr: Opr) -> str:
    """Slice backwards."""
    p = opr.get(P.Flip)
    axes = [axis for axis, on in ((1, p.vertical), (2, p.horizontal)) if on]
    return _mirrored(w, w.name(opr.inputs[0]), axes)


# Colours: every mode is a matrix on channels, in 14-bit fixed point for bytes

_PICK = {M.RGBA2RGB: (0, 1, 2), M.RGBA2BGR: (2, 1, 0), M.RGB2BGR: (2, 1, 0), M.BGR2RGB: (2, 1, 0)}
_GRAY = {M.RGB2GRAY: (0, 1, 2), M.RGBA2GRAY: (0, 1, 2), M.BGR2GRAY: (2, 1, 0)}


@translation("CvtColor")
def cvt_color(w: OnnxWriter, opr: Opr) -> str:
    """Gather of channels, or sums with weights; bytes in integers, as MegEngine has them."""
    mode, (x,) = opr.get(P.CvtColor).mode, opr.inputs
    value = w.name(x)
    whole = w.dtype(x).np == np.uint8
    if mode in _PICK:
        return w.op("Gather", value, w.ints(*_PICK[mode]), axis=3)
    if mode == M.GRAY2RGB:
        return w.op("Concat", value, value, value, axis=3)
    if mode not in (*_GRAY, M.RGB2YUV, M.YUV2RGB):
        return _planes(w, opr, mode)
    parts = w.split(value, [1] * w.fixed(x, [3])[0], 3)
    if whole:
        parts = [w.cast(v, ElemType.INT32) for v in parts]
    if mode in _GRAY:
        r, g, b = (parts[i] for i in _GRAY[mode])
        if whole:
            return w.cast(_shifted(w, _sum(w, (r, 4899), (g, 9617), (b, 1868)), 14), ElemType.UINT8)
        return _weighted(w, (r, 0.299), (g, 0.587), (b, 0.114))
    outs = (_to_yuv if mode == M.RGB2YUV else _from_yuv)(w, parts, whole)
    return _joined_channels(w, outs, whole)


def _i(w: OnnxWriter, value: int) -> str:
    return w.const(np.int32(value))


def _sum(w: OnnxWriter, *terms: tuple[str, int], plus: int = 0) -> str:
    """Add int32 values times integers."""
    total = _i(w, plus) if plus else ""
    for value, factor in terms:
        part = value if factor == 1 else w.op("Mul", value, _i(w, factor))
        total = w.op("Add", total, part) if total else part
    return total


def _weighted(w: OnnxWriter, *terms: tuple[str, float]) -> str:
    total = ""
    for value, factor in terms:
        part = w.op("Mul", value, w.f32(factor)) if factor != 1 else value
        total = w.op("Add", total, part) if total else part
    return total


def _floored(w: OnnxWriter, x: str, bits: int) -> str:
    """Compute ``x >> bits``."""
    size = _i(w, 1 << bits)
    return w.op("Div", w.op("Sub", x, w.op("Mod", x, size)), size)


def _shifted(w: OnnxWriter, x: str, bits: int) -> str:
    """Compute ``x / 2^bits``, halves up."""
    return _floored(w, w.op("Add", x, _i(w, 1 << (bits - 1))), bits)


def _joined_channels(w: OnnxWriter, parts: list[str], whole: bool) -> str:
    out = w.op("Concat", *parts, axis=3)
    if not whole:
        return out
    w.need(12, "clamping integers")
    return w.cast(w.op("Max", w.op("Min", out, _i(w, 255)), _i(w, 0)), ElemType.UINT8)


def _to_yuv(w: OnnxWriter, parts: list[str], whole: bool) -> list[str]:
    b, g, r = parts
    if not whole:
        y = _weighted(w, (b, 0.114), (g, 0.587), (r, 0.299))
        outs = [y]
        for c, k in ((b, 0.492), (r, 0.877)):
            outs.append(w.op("Add", w.op("Mul", w.op("Sub", c, y), w.f32(k)), w.f32(0.5)))
        return outs
    y = _shifted(w, _sum(w, (b, 1868), (g, 9617), (r, 4899)), 14)
    rest = [_sum(w, (w.op("Sub", c, y), k), plus=128 << 14) for c, k in ((b, 8061), (r, 14369))]
    return [y, *(_shifted(w, v, 14) for v in rest)]


def _from_yuv(w: OnnxWriter, parts: list[str], whole: bool) -> list[str]:
    y = parts[0]
    if not whole:
        u, v = (w.op("Sub", c, w.f32(0.5)) for c in parts[1:])
        green = _weighted(w, (y, 1), (v, -0.581), (u, -0.395))
        return [_weighted(w, (y, 1), (u, 2.032)), green, _weighted(w, (y, 1), (v, 1.14))]
    u, v = (w.op("Sub", c, _i(w, 128)) for c in parts[1:])
    green = w.op("Add", y, _shifted(w, _sum(w, (v, -9519), (u, -6472)), 14))
    blue, red = (w.op("Add", y, _shifted(w, _sum(w, (c, k)), 14)) for c, k in ((u, 33292), (v, 18678)))
    return [blue, green, red]


def _planes(w: OnnxWriter, opr: Opr, mode: M) -> str:
    """Convert planar YUV: the planes are cut out of the image and the colour planes doubled."""
    (x,) = opr.inputs
    rows, width = w.fixed(x, [1, 2])
    height, n = rows // 3 * 2, w.dim(x, 0)
    value = w.cast(w.name(x), ElemType.INT32)
    y = w.slice(value, [0], [height], [1])
    if "GRAY" in mode.name:
        return w.cast(y, ElemType.UINT8)
    chroma = w.slice(value, [height], [rows], [1])
    if mode.name.endswith(("YV12", "YU12")):
        halves = w.split(w.reshape(chroma, [n, 2, height // 2, width // 2]), [1, 1], 1)
        first, second = (w.squeeze(v, [1]) for v in halves)
    else:
        halves = w.split(w.reshape(chroma, [n, height // 2, width // 2, 2]), [1, 1], 3)
        first, second = (w.squeeze(v, [3]) for v in halves)
    u, v = (first, second) if mode.name.endswith(("NV12", "YU12")) else (second, first)

    def wide(plane: str) -> str:
        for axis, size in ((1, height), (2, width)):
            plane = w.op("Gather", plane, w.const(np.arange(size, dtype=np.int64) // 2), axis=axis)
        return w.unsqueeze(plane, [3])

    if mode.name.startswith("BT601"):
        y1 = w.op("Sub", _floored(w, w.op("Mul", y, _i(w, 0x0101 * 18997)), 16), _i(w, 1160))
        terms = [_sum(w, (v, 102), plus=-102 * 128), _sum(w, (u, -25), (v, -52), plus=77 * 128)]
        terms.append(_sum(w, (u, 128), plus=-128 * 128))
        r, g, b = (_floored(w, w.op("Add", y1, wide(t)), 6) for t in terms)
    else:
        u, v = (w.op("Sub", c, _i(w, 128)) for c in (u, v))
        r = w.op("Add", y, wide(_floored(w, _sum(w, (v, 359)), 8)))
        g = w.op("Sub", y, wide(_floored(w, _sum(w, (u, 88), (v, 183)), 8)))
        b = w.op("Add", y, wide(_floored(w, _sum(w, (u, 454)), 8)))
    return _joined_channels(w, [b, g, r] if "BGR" in mode.name else [r, g, b], True)


# Blurring


@translation("GaussianBlur")
def gaussian_blur(w: OnnxWriter, opr: Opr) -> str:
    """Gather pixels at the border, then sum along each axis; bytes with 8-bit weights."""
    p, (x,) = opr.get(P.GaussianBlur), opr.inputs
    if p.border_mode == P.BorderMode.ISOLATED:
        raise UnsupportedOprError("border mode ISOLATED")
    whole = w.dtype(x).np == np.uint8
    if whole:
        w.note(
            opr,
            "exact halves of 8-bit images round up; in MegEngine that depends on their position in the row",
        )
    value = w.cast(w.name(x), ElemType.INT32) if whole else w.name(x)
    for weights, axis in zip(blur_kernels(p), (2, 1), strict=True):
        used = (weights * np.float32(256)).astype(np.int32) if whole else weights
        value = _filtered(w, opr, value, used, axis, p.border_mode)
    if not whole:
        return value
    real = w.op("Mul", w.cast(value, ElemType.FLOAT), w.f32(2.0**-16))
    w.need(11, "rounding halves to even")
    return w.cast(w.op("Round", real), ElemType.UINT8)


def _filtered(w: OnnxWriter, opr: Opr, x: str, weights: Array, axis: int, border: P.BorderMode) -> str:
    size, half = w.fixed(opr.inputs[0], [axis])[0], len(weights) // 2
    zero = border in (P.BorderMode.CONSTANT, P.BorderMode.TRANSPARENT)
    if zero:
        pads = [0] * 8
        pads[axis] = pads[4 + axis] = half
        wide = w.pad(x, pads, value=w.const(np.zeros((), weights.dtype)))
    else:
        index = border_index(np.arange(-half, size + half), size, border)
        wide = w.op("Gather", x, w.const(index.astype(np.int64)), axis=axis)
    total = ""
    for k, weight in enumerate(weights):
        part = w.op("Mul", w.slice(wide, [k], [k + size], [axis]), w.const(weight))
        total = w.op("Add", total, part) if total else part
    return total


# The cosine transform


@translation("DctChannelSelectV1")
def dct_channel_select(w: OnnxWriter, opr: Opr) -> str:
    """Multiply every block by the cosine basis from both sides; gather the coefficients."""
    p = opr.get(P.DctChannelSelect)
    x, *mask = opr.inputs
    n, channels, height, width = w.fixed(x)
    b = int(p.dct_block_size)
    oh, ow = height // b, width // b
    value = w.cast(w.name(x), ElemType.FLOAT)
    blocks = w.transpose(w.reshape(value, [n, channels, oh, b, ow, b]), [0, 1, 2, 4, 3, 5])
    basis = dct_basis(b)
    full = w.op("MatMul", w.op("MatMul", w.const(basis), blocks), w.const(np.ascontiguousarray(basis.T)))
    out = w.reshape(w.transpose(full, [0, 1, 4, 5, 2, 3]), [n, channels * b * b, oh, ow])
    count = channels * b * b
    if len(mask) == 2 and w.shape(mask[0]) != (0,):
        offset = np.asarray(w.numbers(mask[0], "the offsets of the mask"))
        kept = np.asarray(w.numbers(mask[1], "the values of the mask"))
        kept = np.repeat(np.arange(channels) * b * b, np.diff(offset)) + kept
        out, count = w.op("Gather", out, w.const(kept.astype(np.int64)), axis=1), len(kept)
    target: DType = w.dtype(opr.outputs[0])
    if p.format == P.Format.NCHW:
        return out
    scaled = w.clip(w.op("Div", out, w.f32(target.scale)), -128, 127)
    packed = w.transpose(w.reshape(scaled, [n, count // 4, 4, oh, ow]), [0, 1, 3, 4, 2])
    return store(w, packed, target)

"""Windows as data: unfold and fold of images, and masks that follow a convolution."""

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.dtypes import Array, DType, round_bfloat16
from ..numeric.special import round_half
from ..numeric.taps import Taps
from ..registry import Call, Shape, ShapeCall, kernel
from .rules import output_size

_PLAIN = frozenset({"Float32", "Float16", "BFloat16", "Int32", "Int16", "Int8", "Uint8"})
_INTEGERS = frozenset({"Int32", "Int16", "Int8"})


def _propagate(p: P.MaskPropagate, shape: Shape) -> tuple[Taps, Taps]:
    if len(shape) != 2:
        raise ValueError(f"a mask has 2 axes, found shape {list(shape)}")
    oh = output_size(shape[0], p.kernel_h, p.pad_h, p.stride_h, p.dilate_h)
    ow = output_size(shape[1], p.kernel_w, p.pad_w, p.stride_w, p.dilate_w)
    return (
        Taps(shape[0], oh, p.kernel_h, p.stride_h, p.pad_h, p.dilate_h),
        Taps(shape[1], ow, p.kernel_w, p.stride_w, p.pad_w, p.dilate_w),
    )


def _propagate_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in _INTEGERS:
        raise ValueError(f"a mask is Int8, Int16 or Int32, found {inputs[0].name}")
    return (inputs[0],)


def _propagate_shape(s: ShapeCall) -> Sequence[Shape | None]:
    rows, cols = _propagate(s.get(P.MaskPropagate), s.shape(0))
    return ((rows.out, cols.out),)


@kernel("MaskPropagate", dtype=_propagate_dtype, shape=_propagate_shape)
def mask_propagate(c: Call, x: Array) -> Array:
    """Return 1 where a window holds any nonzero element of the mask, else 0 (MegEngine dnn naive MaskPropagate)."""
    rows, cols = _propagate(c.get(P.MaskPropagate), x.shape)
    some = x != 0
    tall = np.zeros((rows.out, cols.size), bool)
    for _, to, at in rows:
        tall[to] |= some[at]
    out = np.zeros((rows.out, cols.out), bool)
    for _, to, at in cols:
        out[:, to] |= tall[:, at]
    return out.astype(x.dtype)


def _window_taps(p: P.Images2Neibs | P.SlidingWindowTranspose, height: int, width: int) -> tuple[Taps, Taps]:
    """Find where the taps of windows meet images of a size, along both axes."""
    oh = output_size(height, p.window_h, p.pad_h, p.stride_h, p.dilate_h)
    ow = output_size(width, p.window_w, p.pad_w, p.stride_w, p.dilate_w)
    return (
        Taps(height, oh, p.window_h, p.stride_h, p.pad_h, p.dilate_h),
        Taps(width, ow, p.window_w, p.stride_w, p.pad_w, p.dilate_w),
    )


def _plain_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in _PLAIN and not inputs[0].is_wide:
        raise ValueError(f"{opr.type} takes plain float or integer data, found {inputs[0].name}")
    return (inputs[0],)


def neibs_shape(p: P.Images2Neibs, shape: Shape) -> Shape:
    """Return the shape of all windows of images."""
    if len(shape) not in (4, 5):
        raise ValueError(f"Images2Neibs takes [N, C, H, W] or [N, H, C/4, W, 4], found {list(shape)}")
    five = len(shape) == 5
    rows, cols = _window_taps(p, shape[1 if five else 2], shape[3])
    n, c = shape[0], shape[2 if five else 1]
    window = (p.window_h, p.window_w)
    return (n, rows.out, c, cols.out, *window, 4) if five else (n, c, rows.out, cols.out, *window)


def _neibs_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (neibs_shape(s.get(P.Images2Neibs), s.shape(0)),)


@kernel("Images2Neibs", dtype=_plain_dtype, shape=_neibs_shape)
def images2neibs(c: Call, x: Array) -> Array:
    """Return all windows of [N, C, H, W] as [N, C, OH, OW, KH, KW], zero outside (MegEngine dnn naive).

    Data of five axes, [N, H, C/4, W, 4], gives [N, OH, C/4, OW, KH, KW, 4].
    """
    p = c.get(P.Images2Neibs)
    out = np.zeros(neibs_shape(p, x.shape), x.dtype)
    if x.ndim == 5 and x.shape[4] != 4:
        raise ValueError(f"the last of five axes must be 4, found {list(x.shape)}")
    if not out.size:
        return out
    five = x.ndim == 5
    rows, cols = _window_taps(p, x.shape[1 if five else 2], x.shape[3])
    for (ky, ty, fy), (kx, tx, fx) in product(rows, list(cols)):
        if five:
            out[:, ty, :, tx, ky, kx] = x[:, fy, :, fx]
        else:
            out[:, :, ty, tx, ky, kx] = x[:, :, fy, fx]
    return out


def _transpose_shape_of(p: P.SlidingWindowTranspose, shape: Shape) -> tuple[Shape, Taps, Taps]:
    if len(shape) != 6:
        raise ValueError(f"SlidingWindowTranspose takes [N, C, OH, OW, KH, KW], found {list(shape)}")
    rows, cols = _window_taps(p, p.out_h, p.out_w)
    want = (rows.out, cols.out, p.window_h, p.window_w)
    if shape[2:] != want:
        raise ValueError(
            f"windows of {p.window_h}x{p.window_w} over {p.out_h}x{p.out_w} make [N, C, "
            f"{', '.join(map(str, want))}], found {list(shape)}"
        )
    return (shape[0], shape[1], p.out_h, p.out_w), rows, cols


def _transpose_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_transpose_shape_of(s.get(P.SlidingWindowTranspose), s.shape(0))[0],)


def _transpose_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return prod(inputs[0])


@kernel("SlidingWindowTranspose", dtype=_plain_dtype, shape=_transpose_shape, flops=_transpose_flops)
def sliding_window_transpose(c: Call, x: Array) -> Array:
    """Put windows [N, C, OH, OW, KH, KW] back onto an image, adding where they overlap.

    Semantics of MegEngine's dnn naive kernel, with its order of additions; integers wrap, half-width floats
    are rounded after every addition.
    """
    shape, rows, cols = _transpose_shape_of(c.get(P.SlidingWindowTranspose), x.shape)
    out = np.zeros(shape, x.dtype)
    if not x.size:
        return out
    cut = {"Float16": round_half, "BFloat16": round_bfloat16}.get(c.inputs[0].name)
    # Earlier windows see a pixel through their later taps.
    for ky, ty, fy in reversed(list(rows)):
        for kx, tx, fx in reversed(list(cols)):
            view, part = out[:, :, fy, fx], x[:, :, ty, tx, ky, kx]
            if cut is None:
                view += part
            else:
                view[...] = cut(np.add(view, part, dtype=np.float32))
    return out

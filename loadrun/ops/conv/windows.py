"""Windows as data: unfold and fold of images, and masks that follow a convolution."""

from collections.abc import Sequence

import numpy as np

from ...graph import Opr, params as P
from ...graph.dtypes import Array, DType, round_bfloat16
from ..numeric.special import round_half
from ..numeric.taps import axis_taps, taps_of
from ..registry import Call, Shape, ShapeCall, kernel, per_input
from .rules import Geometry, geometry

_PLAIN = frozenset({"Float32", "Float16", "BFloat16", "Int32", "Int16", "Int8", "Uint8"})
_INTEGERS = frozenset({"Int32", "Int16", "Int8"})


def _windows(
    p: P.MaskPropagate | P.Images2Neibs | P.SlidingWindowTranspose, height: int, width: int
) -> Geometry:
    """Return how windows lie on an image of one channel."""
    kernel = (p.kernel_h, p.kernel_w) if isinstance(p, P.MaskPropagate) else (p.window_h, p.window_w)
    sides = (p.pad_h, p.pad_w), (p.stride_h, p.stride_w), (p.dilate_h, p.dilate_w)
    return geometry((1, 1, height, width), 1, 1, 1, kernel, *sides)


def _propagate(p: P.MaskPropagate, shape: Shape) -> Geometry:
    if len(shape) != 2:
        raise ValueError(f"a mask has 2 axes, found shape {list(shape)}")
    return _windows(p, *shape)


def _propagate_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in _INTEGERS:
        raise ValueError(f"a mask is Int8, Int16 or Int32, found {inputs[0].name}")
    return (inputs[0],)


def _propagate_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_propagate(s.get(P.MaskPropagate), s.shape(0)).out,)


@kernel("MaskPropagate", dtype=_propagate_dtype, shape=_propagate_shape)
def mask_propagate(c: Call, x: Array) -> Array:
    """Return 1 where a window holds any nonzero element of the mask, else 0 (MegEngine dnn naive MaskPropagate)."""
    geo = _propagate(c.get(P.MaskPropagate), x.shape)
    rows, cols = axis_taps(geo)
    some, tall = x != 0, np.zeros((geo.out[0], geo.size[1]), bool)
    for _, to, at in rows:
        tall[to] |= some[at]
    out = np.zeros(geo.out, bool)
    for _, to, at in cols:
        out[:, to] |= tall[:, at]
    return out.astype(x.dtype)


def _plain_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in _PLAIN and not inputs[0].is_wide:
        raise ValueError(f"{opr.type} takes plain float or integer data, found {inputs[0].name}")
    return (inputs[0],)


def neibs_shape(p: P.Images2Neibs, shape: Shape) -> Shape:
    """Return the shape of all windows of images."""
    if len(shape) not in (4, 5):
        raise ValueError(f"Images2Neibs takes [N, C, H, W] or [N, H, C/4, W, 4], found {list(shape)}")
    five = len(shape) == 5
    geo = _windows(p, shape[1 if five else 2], shape[3])
    (n, c), (oh, ow) = (shape[0], shape[2 if five else 1]), geo.out
    return (n, oh, c, ow, *geo.kernel, 4) if five else (n, c, oh, ow, *geo.kernel)


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
    # Positions last.
    images, seen = (
        (x.transpose(0, 2, 4, 1, 3), out.transpose(4, 5, 0, 2, 6, 1, 3))
        if x.ndim == 5
        else (x, out.transpose(4, 5, 0, 1, 2, 3))
    )
    for number, to, at in taps_of(_windows(p, *images.shape[-2:])):
        seen[divmod(number, p.window_w)][to] = images[at]
    return out


def _transpose_of(p: P.SlidingWindowTranspose, shape: Shape) -> tuple[Shape, Geometry]:
    """Return the shape of images, and how the windows lie on them."""
    if len(shape) != 6:
        raise ValueError(f"SlidingWindowTranspose takes [N, C, OH, OW, KH, KW], found {list(shape)}")
    geo = _windows(p, p.out_h, p.out_w)
    want = (*geo.out, *geo.kernel)
    if shape[2:] != want:
        raise ValueError(
            f"windows of {p.window_h}x{p.window_w} over {p.out_h}x{p.out_w} make [N, C, "
            f"{', '.join(map(str, want))}], found {list(shape)}"
        )
    return (shape[0], shape[1], p.out_h, p.out_w), geo


def _transpose_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_transpose_of(s.get(P.SlidingWindowTranspose), s.shape(0))[0],)


@kernel("SlidingWindowTranspose", dtype=_plain_dtype, shape=_transpose_shape, flops=per_input(1))
def sliding_window_transpose(c: Call, x: Array) -> Array:
    """Put windows [N, C, OH, OW, KH, KW] back onto an image, adding where they overlap.

    Semantics of MegEngine's dnn naive kernel, with its order of additions; integers wrap, half-width floats
    are rounded after every addition.
    """
    shape, geo = _transpose_of(c.get(P.SlidingWindowTranspose), x.shape)
    out = np.zeros(shape, x.dtype)
    if not x.size:
        return out
    cut = {"Float16": round_half, "BFloat16": round_bfloat16}.get(c.inputs[0].name)
    # Earlier windows see a pixel through their later taps.
    for number, to, at in reversed(list(taps_of(geo))):
        ky, kx = divmod(number, geo.kernel[1])
        view, part = out[at], x[..., ky, kx][to]
        if cut is None:
            view += part
        else:
            view[...] = cut(np.add(view, part, dtype=np.float32))
    return out

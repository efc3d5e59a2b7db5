"""Bilinear sampling of one image at float positions, as MegEngine's naive and fallback warps do it."""

import numpy as np

from ...graph.dtypes import Array
from ...graph.params import BorderMode
from .sampling import blend, border_index, to_integer


def _neighbours(
    position: Array, size: int, mode: BorderMode, *, whole: bool = False
) -> tuple[Array, Array, Array]:
    """Return both pixels around every position, and how far it is from the first, or from its number if `whole`.

    The two differ where the position is beyond int32.
    """
    low = np.floor(position)
    number = to_integer(low)
    first = border_index(number, size, mode)
    second = border_index(to_integer(low + np.float32(1)), size, mode)
    return first, second, position - (number.astype(np.float32) if whole else low)


def bilinear_grid(x: Array, rows: Array, cols: Array, mode: BorderMode, border: float) -> Array:
    """Sample at the crossings of rows and columns, columns first.

    Args:
        x: (groups, H, W, packed channels).
        rows: float32 positions on the H axis.
        cols: float32 positions on the W axis.
        mode: what is outside the image.
        border: the value there in CONSTANT mode, which also replaces results that are not finite.

    Returns:
        float32 (groups, rows, cols, packed channels).
    """
    one = np.float32(1)
    fill = np.float32(border) if mode == BorderMode.CONSTANT else None
    r0, r1, rf = _neighbours(rows, x.shape[1], mode)
    c0, c1, cf = _neighbours(cols, x.shape[2], mode)
    used, where = np.unique(np.maximum(np.concatenate((r0, r1)), 0), return_inverse=True)
    where = np.where(np.concatenate((r0, r1)) < 0, -1, where.reshape(-1))
    if len(used) < x.shape[1]:
        x = x.take(used, 1)
    else:
        where = np.concatenate((r0, r1))
    col_axis = np.stack((c0, c1), -1), np.stack((one - cf, cf), -1)
    row_axis = where.reshape(2, -1).T, np.stack((one - rf, rf), -1)
    out = blend(blend(x, col_axis, 2, fill), row_axis, 1, fill)
    return out if fill is None else _finite(out, fill)


def bilinear_points(
    x: Array, rows: Array, cols: Array, mode: BorderMode, border: float, *, finite: bool = True
) -> Array:
    """Sample at points.

    Args:
        x: (groups, H, W, packed channels).
        rows: float32 (oh, ow), position on the H axis.
        cols: float32 (oh, ow), position on the W axis.
        mode: what is outside the image.
        border: the value there in CONSTANT mode.
        finite: whether the border value replaces results that are not finite in CONSTANT mode, and positions beyond
            int32 are as far from their pixels as others, as in warps; in Remap, neither is so.

    Returns:
        float32 (groups, oh, ow, packed channels).
    """
    g, h, w, k = x.shape
    one = np.float32(1)
    r0, r1, v = _neighbours(rows.reshape(-1), h, mode, whole=not finite)
    c0, c1, u = _neighbours(cols.reshape(-1), w, mode, whole=not finite)
    fill = np.float32(border) if mode == BorderMode.CONSTANT else None
    flat = x.reshape(g, h * w, k)
    out: Array | None = None
    for r, c, a, b in (
        (r0, c0, one - u, one - v),
        (r0, c1, u, one - v),
        (r1, c0, one - u, v),
        (r1, c1, u, v),
    ):
        part = flat.take(np.maximum(r, 0) * w + np.maximum(c, 0), 1).astype(np.float32, copy=False)
        if fill is not None:
            part[:, np.flatnonzero((r < 0) | (c < 0))] = fill
        if x.dtype != np.float32:
            # The order of the products decides how exact halves are rounded.
            part *= a[:, None]
            part *= b[:, None]
        else:
            part *= (a * b)[:, None]
        out = part if out is None else np.add(out, part, out=out)
    assert out is not None
    out = out.reshape(g, *rows.shape, k)
    return out if fill is None or not finite else _finite(out, fill)


def _finite(x: Array, border: np.float32) -> Array:
    good = np.isfinite(x)
    return x if good.all() else np.where(good, x, border)

"""Images read at positions that are computed: pooled regions, warps and maps of positions."""

from typing import Any

from ...arrays.names import np
from ...graph import params as P
from ...ops.formulas.images import bilinear, inside, region_samples, warped_points
from ...ops.registry import Call
from .formulas import formula


def _sampled(
    x: Any,
    image: Any,
    rows: Any,
    cols: Any,
    mode: P.BorderMode = P.BorderMode.CONSTANT,
    fill: float = 0.0,
) -> Any:
    """Sample images [N, C, H, W] at positions [R, ...], each in the image whose number is in [R]: [R, C, ...]."""
    n, channels, height, width = x.shape
    flat = x.transpose(1, 0, 2, 3).reshape(channels, n * height * width)
    first = (image.astype(np.int64) * (height * width)).reshape(-1, *(1,) * (rows.ndim - 1))

    def pixels(y: Any, at: Any) -> Any:
        row = inside(y.astype(np.int64), height, mode)
        taken = flat[:, first + row * width + inside(at.astype(np.int64), width, mode)]
        if mode != P.BorderMode.CONSTANT:
            return taken
        known = (y >= 0) & (y <= height - 1) & (at >= 0) & (at <= width - 1)
        return np.where(known, taken, np.float32(fill))

    return np.moveaxis(bilinear(pixels, rows, cols), 0, 1)


def _check(c: Call, layout: P.Format, mode: P.InterpolationMode) -> None:
    """Refuse images that MegEngine samples in integers or at rounded positions."""
    if layout != P.Format.NCHW or mode != P.InterpolationMode.LINEAR or not c.inputs[0].is_float:
        raise ValueError("only bilinear sampling of images of floats in NCHW is written")


@formula("ROIAlignV1")
def roi_align(c: Call, x: Any, rois: Any) -> Any:
    """Take the mean or the largest of bilinear samples in every bin, and the number of the largest."""
    p = c.get(P.ROIAlign)
    _check(c, p.format, P.InterpolationMode.LINEAR)
    if not p.sample_height * p.sample_width:
        raise ValueError("bins have no samples")
    ys, xs = region_samples(p, rois)
    taken = _sampled(x, rois[:, 0], ys[:, :, None, :, None], xs[:, None, :, None, :])
    bins = taken.reshape(*taken.shape[:4], p.sample_height * p.sample_width)
    if p.mode == P.ROIAlignMode.MAX:
        return bins.max(-1), bins.argmax(-1).astype(np.int32)
    return bins.mean(-1), np.zeros(bins.shape[:-1], np.int32)


@formula("WarpPerspectiveV2")
def warp_perspective(c: Call, *args: Any) -> Any:
    """Sample where 3x3 matrices take the output's pixels."""
    p = c.get(P.WarpPerspective)
    _check(c, p.format, p.imode)
    indexed = len(args) > 3 and args[-2].ndim != 3
    *images, mat = args[: -2 if indexed else -1]
    which = args[-2] if indexed else np.arange(mat.shape[0])
    points = warped_points(args[-1]).astype(np.float32)
    x, y, z = np.moveaxis(np.einsum("nij,jhw->nihw", mat, points), 1, 0)
    whole = np.concatenate(images) if len(images) > 1 else images[0]
    return _sampled(whole, which, y / z, x / z, p.bmode, p.border_val)


@formula("WarpAffineV2")
def warp_affine(c: Call, x: Any, mat: Any, out_shape: Any) -> Any:
    """Sample where 2x3 matrices take the output's pixels."""
    p = c.get(P.WarpAffine)
    _check(c, p.format, p.imode)
    at = np.einsum("nij,jhw->nihw", mat, warped_points(out_shape).astype(np.float32))
    return _sampled(x, np.arange(mat.shape[0]), at[:, 1], at[:, 0], p.border_mode, p.border_val)


@formula("RemapV1")
def remap(c: Call, x: Any, where: Any) -> Any:
    """Sample at positions (column, row), bilinearly or at the nearest pixel."""
    p = c.get(P.Remap)
    _check(c, p.format, P.InterpolationMode.LINEAR)
    where = np.rint(where) if p.imode == P.InterpolationMode.NEAREST else where
    return _sampled(x, np.arange(where.shape[0]), where[..., 1], where[..., 0], p.border_type, p.scalar)

"""Mirroring, turning and resizing of images, as MegEngine's ``functional.vision`` has them after 1.13.0."""

from collections.abc import Iterable, Sequence

import numpy as np

from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply1, as_tensor, shape_tensor
from ..tensors.shaping import broadcast_to
from .geometry import member, require
from .warping import warp_affine


def flip(inp: TensorLike, vertical: bool = True, horizontal: bool = True) -> Tensor:
    """Mirror images.

    Args:
        inp: (N, H, W, C) with 1 or 3 channels.
        vertical: whether to swap top and bottom.
        horizontal: whether to swap the sides.

    >>> flip(np.arange(4, dtype="f").reshape(1, 2, 2, 1)).numpy().ravel().tolist()
    [3.0, 2.0, 1.0, 0.0]
    """
    return apply1(
        "Flip", P.Flip(vertical=bool(vertical), horizontal=bool(horizontal)), inputs=[as_tensor(inp)]
    )


def rot90(inp: TensorLike, clockwise: bool = True) -> Tensor:
    """Return images turned by 90 degrees.

    Args:
        inp: (N, H, W, C) with 1 or 3 channels.
        clockwise: which way.

    Returns:
        (N, W, H, C).

    >>> rot90(np.arange(4, dtype="f").reshape(1, 2, 2, 1)).numpy().ravel().tolist()
    [2.0, 0.0, 3.0, 1.0]
    """
    return apply1("Rotate", P.Rotate(clockwise=bool(clockwise)), inputs=[as_tensor(inp)])


def rotate(
    inp: TensorLike, angle: float = 0.0, format: str = "NCHW", interp_mode: str = "bilinear"
) -> Tensor:
    """Return images turned around their centre by any angle, 0 outside.

    Args:
        inp: (N, C, H, W) or (N, H, W, C).
        angle: in degrees, counterclockwise in the output.
        format: "NCHW" or "NHWC".
        interp_mode: "bilinear" for NCHW, "area" for NHWC.

    Raises:
        AssertionError: the format does not have the mode.
        RuntimeError: there is no such format; "area" is not what the CPU kernel has.

    >>> rotate(np.arange(9, dtype="f").reshape(1, 1, 3, 3), 90).numpy().round(3).ravel().tolist()
    [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0]
    """
    inp = as_tensor(inp)
    layout = member(P.Format, format, "format")
    planes = layout == P.Format.NCHW
    want = "bilinear" if planes else "area"
    require(interp_mode == want, f"format {layout.name} takes interp_mode {want!r}, found {interp_mode!r}")
    height, width = inp.shape[2:4] if planes else inp.shape[1:3]
    turn = angle / 180.0 * np.pi
    c, s = float(np.cos(turn)), float(np.sin(turn))
    x, y = (width - 1) / 2, (height - 1) / 2
    mat = np.array([[[c, -s, (1 - c) * x + s * y], [s, c, -s * x + (1 - c) * y]]], np.float32)
    mode = "linear" if planes else interp_mode
    mats = broadcast_to(as_tensor(mat), (inp.shape[0], 2, 3))
    return warp_affine(inp, mats, (height, width), "constant", format=layout.name, interp_mode=mode)


def resize(
    inp: TensorLike,
    size: Sequence[int] | Tensor,
    format: str = "NCHW",
    imode: str = "bilinear",
    max_size: int | None = None,
) -> Tensor:
    """Return images of another size, half-pixel centres.

    Args:
        inp: (N, C, H, W) or (N, H, W, C).
        size: (OH, OW), numbers or an int32 tensor.
        format: "NCHW" or "NHWC".
        imode: "bilinear", "nearest" or "bicubic".
        max_size: the largest size of an edge.

    >>> resize(np.arange(16, dtype="f").reshape(1, 1, 4, 4), (2, 2)).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    if max_size is not None:
        edges: Iterable[int] = size.tolist() if isinstance(size, Tensor) else size
        size = [max_size if n > max_size else n for n in edges]
    kind = imode[2:] if imode in ("bilinear", "bicubic") else imode
    param = P.Resize(
        imode=member(P.InterpolationMode, kind, "imode"), format=member(P.Format, format, "format")
    )
    return apply1("ResizeV2", param, inputs=[as_tensor(inp), shape_tensor(size)])

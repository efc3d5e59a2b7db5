"""Pictures that feed an input: decoded by OpenCV and brought to its layout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import numpy as np

from ..base.errors import InputError
from ..base.extras import install
from ..graph.dtypes import Array
from .image_sizes import MAX_PIXELS, check_image, image_kind

__all__ = ["decoded", "image_array", "loss"]

_BATCHED, _CHW = 4, 3
_BYTE = 8
_DEPTH, _COLOURS = 24, 25
"""Where a PNG says how many bits its numbers have, and what they are; 4 in that is an alpha channel."""
_ANIMATED = 2
"""The flag of an extended WebP file that has several frames."""


def loss(raw: bytes) -> str:
    """Say what decoding a picture to 8 bits and three colours loses; empty for nothing.

    Args:
        raw: a file that was decoded; what is no PNG, TIFF or PNM leaves out nothing that is known.
    """
    bits, alpha = _depth(raw)
    lost = []
    if bits > _BYTE:
        lost.append(f"its {bits} bits become 8")
    if alpha:
        lost.append("its alpha channel is dropped")
    if image_kind(raw) == "WebP" and raw[12:16] == b"VP8X" and raw[20:21] and raw[20] & _ANIMATED:
        lost.append("its frames after the first are dropped")
    return " and ".join(lost)


def _depth(raw: bytes) -> tuple[int, bool]:
    """Return a picture's bits per number, 0 if unknown, and whether it has an alpha channel."""
    kind = image_kind(raw)
    if kind == "PNG" and len(raw) > _COLOURS:
        return raw[_DEPTH], bool(raw[_COLOURS] & 4)
    if kind not in ("TIFF", "PNM"):
        return 0, False
    cv2 = _opencv("the file", kind)
    pixels = _decoded(cv2, raw, cv2.IMREAD_UNCHANGED)
    return (0, False) if pixels is None else (_BYTE * pixels.itemsize, pixels.shape[2:] == (4,))


def _opencv(path: str, kind: str) -> ModuleType:
    """Import OpenCV, any package of it.

    Raises:
        InputError: there is none that works.
    """
    # OpenCV reads its own limit (2**30 pixels, 3 GB) once, when it is imported.
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MAX_PIXELS))
    try:
        return import_module("cv2")  # an optional package
    except ImportError:
        raise InputError(
            f"{path} is a {kind} image, which needs OpenCV: {install('images')}; any installed cv2 "
            "works as well, and so do data as .npy"
        ) from None


def decoded(raw: bytes, kind: str, path: str) -> Array:
    """Decode a picture to uint8 [H, W, 3] in BGR order.

    Args:
        raw: the file.
        kind: what it begins as, see `image_kind`.
        path: its name, for messages.

    Raises:
        InputError: it is damaged, too large, or there is no OpenCV.
    """
    try:
        check_image(raw)
    except ValueError as e:
        raise InputError(f"{path} is a {kind} image that is damaged or cut off: {e}") from None
    cv2 = _opencv(path, kind)
    try:
        pixels = _decoded(cv2, raw, cv2.IMREAD_COLOR)
    except cv2.error as e:
        raise InputError(f"{path} is a {kind} image that OpenCV refuses: {_cv_reason(e)}") from None
    if pixels is None:
        other = _decoded(cv2, raw, cv2.IMREAD_UNCHANGED)
        if other is not None:
            raise InputError(
                f"{path} is a {kind} image of {other.dtype} numbers, which have no 8 bits; save them as .npy"
            )
        raise InputError(f"{path} is a {kind} image that is damaged or cut off")
    return pixels


def _decoded(cv2: ModuleType, raw: bytes, mode: int) -> Array | None:
    with _quiet(cv2):
        pixels: Array | None = cv2.imdecode(np.frombuffer(raw, np.uint8), mode)
    return pixels


@contextmanager
def _quiet(cv2: ModuleType) -> Iterator[None]:
    """Silence OpenCV's log: it would write to standard error by itself, with bytes of the file."""
    known = getattr(getattr(cv2, "utils", None), "logging", None)
    before = known.getLogLevel() if known is not None else 0
    if known is not None:
        known.setLogLevel(known.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        if known is not None:
            known.setLogLevel(before)


def _cv_reason(e: Exception) -> str:
    return str(e).strip().splitlines()[-1][:200] if str(e).strip() else "no reason given"


def image_array(pixels: Array, shape: tuple[int, ...] | None, *, resize: bool) -> Array:
    """Convert an image to the layout that an input's shape asks for.

    Axis 1 of length 1 or 3 means [N, C, H, W], else axis 3 means [N, H, W, C]; shapes of three axes are the same
    without N. One channel means gray, three mean BGR. Source: the behaviour of MegEngine's ``trace.dump``.

    Args:
        pixels: uint8 [H, W, 3] in BGR order.
        shape: the input's shape; None stands for [1, 3, H, W] of the image itself.
        resize: scale (linearly) to the input's height and width.

    Raises:
        InputError: the shape is none of these.

    >>> image_array(np.zeros((4, 5, 3), np.uint8), (2, 3, 8, 8), resize=False).shape
    (1, 3, 4, 5)
    """
    axes = pixels.transpose(2, 0, 1)[None].shape if shape is None else shape
    full = (1, *axes) if len(axes) == _CHW else axes
    if len(full) != _BATCHED or (full[1] not in (1, 3) and full[3] not in (1, 3)):
        raise InputError(
            f"an image does not fit the shape {list(axes)}: expected [N,C,H,W], [N,H,W,C], [C,H,W] or [H,W,C] "
            "with 1 or 3 channels"
        )
    last = full[1] not in (1, 3)
    channels, height, width = (full[3], full[1], full[2]) if last else full[1:]
    if resize:
        if not 0 < height * width <= MAX_PIXELS:
            raise InputError(f"an image cannot be resized to {height} x {width}")
        pixels = _resized(pixels, height, width)
    if channels == 1:
        pixels = _gray(pixels)[:, :, None]
    array = pixels if last else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(array if len(axes) == _CHW else array[None])


def _resized(pixels: Array, height: int, width: int) -> Array:
    cv2 = import_module("cv2")  # an optional package, which decoded the picture
    try:
        return np.asarray(cv2.resize(pixels, (width, height)))
    except cv2.error as e:
        raise InputError(f"OpenCV cannot resize to {height} x {width}: {_cv_reason(e)}") from None


def _gray(pixels: Array) -> Array:
    """Weigh blue, green and red in 15 bits, as OpenCV does."""
    weighted = pixels.astype(np.int32) @ np.array([3735, 19235, 9798], np.int32)
    return ((weighted + (1 << 14)) >> 15).astype(np.uint8)

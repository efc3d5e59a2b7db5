"""Pictures that feed an input: decoded by OpenCV, or by Pillow where there is no OpenCV, and brought to its layout."""

from __future__ import annotations

import os
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from types import ModuleType

import numpy as np

from ..base.errors import InputError
from ..base.extras import install
from ..graph.dtypes import Array
from .image_sizes import MAX_PIXELS, check_image, image_kind, tiff_fields

__all__ = ["decoded", "image_array", "loss"]

_BATCHED, _CHW = 4, 3
_BYTE = 8
_PNG = b"\x89PNG\r\n\x1a\n"
_DEPTH, _COLOURS = 24, 25
"""Where a PNG says how many bits its numbers have, and what they are; 4 in that is an alpha channel."""
_TIFF_BITS, _TIFF_CHANNELS, _TIFF_COLOURS = 258, 277, 262
"""Tags under which a TIFF says the same."""


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
    return " and ".join(lost)


def _depth(raw: bytes) -> tuple[int, bool]:
    """Return a picture's bits per number, 0 if unknown, and whether it has an alpha channel."""
    if raw.startswith(_PNG) and len(raw) > _COLOURS:
        return raw[_DEPTH], bool(raw[_COLOURS] & 4)
    if image_kind(raw) == "TIFF":
        try:
            tags = tiff_fields(raw, (_TIFF_BITS, _TIFF_CHANNELS, _TIFF_COLOURS), listed=_TIFF_BITS)
        except struct.error:
            return 0, False
        # One more than gray (0 and 1) or RGB (2) has; 4 channels of others are inks.
        return tags[_TIFF_BITS], tags[_TIFF_CHANNELS] == {0: 2, 1: 2, 2: 4}.get(tags[_TIFF_COLOURS])
    head = re.match(rb"P[2356](?:(?:\s|#[^\n]*\n)+\d{1,9}){2}(?:\s|#[^\n]*\n)+(\d{1,9})", raw[:4096])
    return (int(head[1]).bit_length() if head else 0), False


_PILLOW_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")
"""Pillow's names of pictures that it turns into 8 bits and three colours as OpenCV does."""
_PILLOW_FORMATS = {k: k.upper() for k in ("PNG", "JPEG", "BMP", "GIF", "WebP", "TIFF")} | {"PNM": "PPM"}
"""Its names of the kinds that it reads as OpenCV does; of others some start programs."""
_PILLOW_WIDE = ("I", "I;16", "I;16B")
"""And of gray ones of 16 bits, of which OpenCV keeps the high ones."""


def _opencv() -> ModuleType | None:
    """Import OpenCV, any package of it; None where there is none that works."""
    try:
        return import_module("cv2")  # an optional package
    except ImportError:
        return None


def decoded(raw: bytes, kind: str, path: str) -> Array:
    """Decode a picture to uint8 [H, W, 3] in BGR order.

    Args:
        raw: the file.
        kind: what it begins as, see `image_kind`.
        path: its name, for messages.

    Raises:
        InputError: it is damaged, too large, or nothing that is installed reads it.
    """
    try:
        check_image(raw)
    except ValueError as e:
        raise InputError(f"{path} is a {kind} image that is damaged or cut off: {e}") from None
    # OpenCV reads its own limit (2**30 pixels, 3 GB) once, when it is imported.
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MAX_PIXELS))
    cv2 = _opencv()
    if cv2 is None:
        return _by_pillow(raw, kind, path)
    with _quiet(cv2):
        try:
            pixels: Array | None = cv2.imdecode(np.frombuffer(raw, np.uint8), cv2.IMREAD_COLOR)
        except cv2.error as e:
            raise InputError(f"{path} is a {kind} image that OpenCV refuses: {_cv_reason(e)}") from None
    if pixels is None:
        raise InputError(f"{path} is a {kind} image that is damaged or cut off")
    return pixels


def _by_pillow(raw: bytes, kind: str, path: str) -> Array:
    """Decode a picture to what OpenCV makes of it: turned as its EXIF says, without alpha, BGR."""
    try:
        Image, ImageOps = import_module("PIL.Image"), import_module("PIL.ImageOps")  # an optional package
    except ImportError:
        raise InputError(
            f"{path} is a {kind} image, which takes OpenCV or Pillow: {install('images')} (Pillow; any installed cv2 "
            "serves as well), or give the data as .npy"
        ) from None
    if kind not in _PILLOW_FORMATS:
        raise InputError(
            f"{path} is a {kind} image, which takes OpenCV: pip install opencv-python-headless, or convert it to PNG"
        )
    try:
        with warnings.catch_warnings():
            # Pillow's own limit, which lies below the one that was checked, and what it says of damaged metadata.
            warnings.simplefilter("ignore")
            image = ImageOps.exif_transpose(Image.open(BytesIO(raw), formats=[_PILLOW_FORMATS[kind]]))
        mode = image.mode
        # Of what Pillow rounds or shows another way, nothing is read in silence.
        apart = (kind != "PNG" and _depth(raw)[0] > _BYTE) or (kind == "GIF" and "transparency" in image.info)
        if mode in _PILLOW_WIDE:
            gray = (np.asarray(image).astype(np.int64) >> _BYTE).astype(np.uint8)
            return np.repeat(gray[:, :, None], 3, axis=2)
        if mode in _PILLOW_MODES and not apart:
            return np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, ::-1])
    except MemoryError:
        raise
    except Exception as e:  # of Pillow's plug-ins, which raise whatever their parsers meet
        raise InputError(f"{path} is a {kind} image that is damaged or cut off: {str(e)[:200]}") from None
    raise InputError(
        f"{path} is a {kind} image that Pillow does not read as OpenCV does (its mode is {mode}); expected gray "
        "or RGB of 8 bits without transparency: convert it, or install opencv-python-headless"
    )


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
    cv2 = _opencv()
    if cv2 is None:
        from ..ops.image.resize_cv import resize_picture  # for start-up: most runs resize nothing

        return resize_picture(pixels, height, width)
    try:
        return np.asarray(cv2.resize(pixels, (width, height)))
    except cv2.error as e:
        raise InputError(f"OpenCV cannot resize to {height} x {width}: {_cv_reason(e)}") from None


def _gray(pixels: Array) -> Array:
    """Weigh blue, green and red in 15 bits, as OpenCV does."""
    weighted = pixels.astype(np.int32) @ np.array([3735, 19235, 9798], np.int32)
    return ((weighted + (1 << 14)) >> 15).astype(np.uint8)

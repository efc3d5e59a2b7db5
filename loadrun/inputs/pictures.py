"""Pictures that feed an input: decoded by OpenCV and brought to its layout."""

import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import numpy as np

from ..base.errors import InputError
from ..base.extras import install
from ..graph.dtypes import Array

# The kind of an image, and the size that a PNG or JPEG claims: a few bytes cannot make a decoder take gigabytes.
#
# OpenCV has a limit of pixels, which is set before it is imported. Where a program imported it before, only these two
# formats, in which some bytes can claim any size, are checked.

MAX_PIXELS = 2**27
"""Maximum pixels of an image: 400 MB when decoded."""
_SMALL = 2**24
"""Pixels that even the smallest file may claim."""
_PIXELS_A_BYTE = 512
"""Pixels per byte beyond which a file is a decompression bomb; an empty white photograph has 350."""
_MOST_SCANS = 200
"""Maximum scans of a progressive JPEG; encoders use about ten."""
_KINDS = (
    (rb"\x89PNG\r\n\x1a\n", "PNG"),
    (rb"\xff\xd8\xff", "JPEG"),
    (rb"BM", "BMP"),
    (rb"GIF8[79]a", "GIF"),
    (rb"RIFF....WEBP", "WebP"),
    (rb"P[1-7fF]\s", "PNM"),
    (rb"II[*+]\0|MM\0[*+]", "TIFF"),
    (rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51", "JPEG 2000"),
    (rb"#\?RGBE|#\?RADIANCE", "Radiance"),
    (rb"\x59\xa6\x6a\x95", "Sun raster"),
)


def image_kind(raw: bytes) -> str | None:
    """Return the kind of image that some bytes begin as, or None.

    >>> image_kind(b"GIF89a....")
    'GIF'
    """
    return next((name for magic, name in _KINDS if re.match(magic, raw[:16], re.DOTALL)), None)


def check_image(raw: bytes) -> None:
    """Check that what the header of a PNG or JPEG claims is plausible for the bytes that follow.

    Raises:
        ValueError: it is damaged, or would take much more memory than the file does.
    """
    sizes = {"PNG": _png, "JPEG": _jpeg}
    kind = image_kind(raw)
    if kind not in sizes:
        return
    try:
        width, height = sizes[kind](raw)
    except struct.error:
        raise ValueError("it ends within its header") from None
    if width * height > min(MAX_PIXELS, _SMALL + _PIXELS_A_BYTE * len(raw)):
        raise ValueError(f"{width} x {height} pixels in {len(raw)} bytes are too many")


def _png(raw: bytes) -> tuple[int, int]:
    """Check that chunks are within the file, and read its size."""
    at = 8
    width, height = struct.unpack_from(">II", raw, 16)
    if raw[12:16] != b"IHDR":
        raise ValueError("it does not begin with its header")
    while at + 12 <= len(raw) and raw[at + 4 : at + 8] != b"IEND":
        (length,) = struct.unpack_from(">I", raw, at)
        if length > len(raw) - at - 12:
            raise ValueError(f"a chunk claims {length} bytes, the file has {len(raw) - at - 12} more")
        at += 12 + length
    return width, height


def _jpeg(raw: bytes) -> tuple[int, int]:
    """Read the frame's size from the first start-of-frame segment."""
    if raw.count(b"\xff\xda") > _MOST_SCANS:
        raise ValueError(f"it comes in more than {_MOST_SCANS} scans")
    at = 2
    while at + 9 <= len(raw):
        if raw[at] != 0xFF:
            raise ValueError("a segment does not begin where the one before it ends")
        marker = raw[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", raw, at + 5)
            return width, height
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2
        elif marker in (0xD9, 0xDA):
            break
        else:
            at += 2 + int(struct.unpack_from(">H", raw, at + 2)[0])
    raise ValueError("it has no frame")


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
        other = _decoded(cv2, raw, cv2.IMREAD_UNCHANGED) if kind == "TIFF" else None
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

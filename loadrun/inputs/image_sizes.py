"""The kind of an image, and the size that a PNG or JPEG claims: a few bytes cannot make a decoder take gigabytes.

OpenCV has a limit of pixels, which is set before it is imported. Where a program imported it before, only these two
formats, in which some bytes can claim any size, are checked.
"""

import re
import struct

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

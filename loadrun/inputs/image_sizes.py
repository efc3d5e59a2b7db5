"""The size of an image as its header says, so that a few bytes cannot make a decoder take gigabytes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable

__all__ = ["MAX_PIXELS", "check_image", "image_kind", "tiff_fields"]

MAX_PIXELS = 2**27
"""Maximum pixels of an image: 400 MB when decoded."""
_SMALL = 2**24
"""Pixels that even the smallest file may claim."""
_PIXELS_A_BYTE = 512
"""Pixels per byte beyond which a file is a decompression bomb; an empty white photograph has 350."""
_DEFLATE = 1032
"""Maximum expansion factor of deflate."""
_MOST_SCANS = 200
"""Maximum scans of a progressive JPEG; encoders use about ten."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}

Size = tuple[int, int]


def _png(raw: bytes) -> Size:
    """Check that chunks are within the file and that the packed data can hold the rows."""
    at, packed = 8, 0
    width, height, depth, color = struct.unpack_from(">IIBB", raw, 16)
    if raw[12:16] != b"IHDR":
        raise ValueError("it does not begin with its header")
    while at + 12 <= len(raw):
        (length,) = struct.unpack_from(">I", raw, at)
        kind = raw[at + 4 : at + 8]
        if length > len(raw) - at - 12:
            raise ValueError(f"a chunk claims {length} bytes, the file has {len(raw) - at - 12} more")
        packed += length if kind in (b"IDAT", b"fdAT") else 0
        at += 12 + length
        if kind == b"IEND":
            break
    rows = height * (1 + (width * depth * _CHANNELS.get(color, 4) + 7) // 8)
    if rows > _DEFLATE * packed + 1024:
        raise ValueError(f"{packed} bytes of data cannot hold {width} x {height} pixels")
    return width, height


def _jpeg(raw: bytes) -> Size:
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


def _bmp(raw: bytes) -> Size:
    if struct.unpack_from("<I", raw, 14)[0] == 12:
        width, height = struct.unpack_from("<HH", raw, 18)
    else:
        width, height = struct.unpack_from("<ii", raw, 18)
    return abs(width), abs(height)


def _gif(raw: bytes) -> Size:
    width, height = struct.unpack_from("<HH", raw, 6)
    return width, height


def _webp(raw: bytes) -> Size:
    kind = raw[12:16]
    if kind == b"VP8X":
        wide, high = raw[24:27], raw[27:30]
        return 1 + int.from_bytes(wide, "little"), 1 + int.from_bytes(high, "little")
    if kind == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", raw, 26)
    return width & 0x3FFF, height & 0x3FFF


def _pnm(raw: bytes) -> Size:
    head = re.match(rb"P[1-6fF]((?:\s|#[^\n]*\n)+)(\d{1,9})(?:\s|#[^\n]*\n)+(\d{1,9})", raw[:4096])
    pam = re.search(rb"\nWIDTH (\d{1,9})\s", raw[:4096]), re.search(rb"\nHEIGHT (\d{1,9})\s", raw[:4096])
    if head:
        return int(head[2]), int(head[3])
    if raw[:2] == b"P7" and pam[0] and pam[1]:
        return int(pam[0][1]), int(pam[1][1])
    raise ValueError("its header gives no size")


def tiff_fields(raw: bytes, tags: Iterable[int], listed: int = 0) -> dict[int, int]:
    """Read the numbers in the first directory of a TIFF, 0 for those that it leaves out.

    Args:
        raw: the file.
        tags: which ones.
        listed: one that may be a list, of which the first number counts.
    """
    order = "<" if raw[:2] == b"II" else ">"
    big = struct.unpack_from(order + "H", raw, 2)[0] == 43
    at = int(struct.unpack_from(order + ("Q" if big else "I"), raw, 8 if big else 4)[0])
    (count,) = struct.unpack_from(order + ("Q" if big else "H"), raw, at)
    at, step = at + (8 if big else 2), 20 if big else 12
    values = dict.fromkeys(tags, 0)
    for i in range(min(int(count), 4096)):
        tag, kind = struct.unpack_from(order + "HH", raw, at + i * step)
        if tag in values:
            form = {1: "B", 3: "H", 16: "Q"}.get(kind, "I")
            place = at + i * step + (12 if big else 8)
            (number,) = struct.unpack_from(order + ("Q" if big else "I"), raw, at + i * step + 4)
            if tag == listed and number * struct.calcsize(form) > (8 if big else 4):
                (place,) = struct.unpack_from(order + ("Q" if big else "I"), raw, place)
            (values[tag],) = struct.unpack_from(order + form, raw, place)
    return values


def _tiff(raw: bytes) -> Size:
    """Return the larger of image and tile, from the first directory."""
    tags = tiff_fields(raw, (256, 257, 322, 323))
    return max(tags[256], tags[322]), max(tags[257], tags[323])


def _jpeg2000(raw: bytes) -> Size:
    at = raw.find(b"\xff\x4f\xff\x51")
    if at < 0:
        raise ValueError("it has no codestream")
    right, bottom, left, top = struct.unpack_from(">IIII", raw, at + 8)
    return max(0, right - left), max(0, bottom - top)


def _radiance(raw: bytes) -> Size:
    match = re.search(rb"\n[-+][XY] (\d{1,9}) [-+][XY] (\d{1,9})\n", raw[:65536])
    if match is None:
        raise ValueError("its header gives no size")
    return int(match[2]), int(match[1])


def _sun(raw: bytes) -> Size:
    width, height = struct.unpack_from(">II", raw, 4)
    return width, height


_KINDS: tuple[tuple[bytes, str, Callable[[bytes], Size]], ...] = (
    (rb"\x89PNG\r\n\x1a\n", "PNG", _png),
    (rb"\xff\xd8\xff", "JPEG", _jpeg),
    (rb"BM", "BMP", _bmp),
    (rb"GIF8[79]a", "GIF", _gif),
    (rb"RIFF....WEBP", "WebP", _webp),
    (rb"P[1-7fF]\s", "PNM", _pnm),
    (rb"II[*+]\0|MM\0[*+]", "TIFF", _tiff),
    (rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51", "JPEG 2000", _jpeg2000),
    (rb"#\?RGBE|#\?RADIANCE", "Radiance", _radiance),
    (rb"\x59\xa6\x6a\x95", "Sun raster", _sun),
)


def image_kind(raw: bytes) -> str | None:
    """Return the kind of image that some bytes begin as, or None.

    >>> image_kind(b"GIF89a....")
    'GIF'
    """
    return next((name for magic, name, _ in _KINDS if re.match(magic, raw[:16], re.DOTALL)), None)


def check_image(raw: bytes) -> None:
    """Check that what an image's header claims is plausible for the bytes that follow.

    Raises:
        ValueError: it is damaged, or would take much more memory than the file does.
    """
    for magic, _, size in _KINDS:
        if re.match(magic, raw[:16], re.DOTALL):
            try:
                width, height = size(raw)
            except (struct.error, OverflowError):
                raise ValueError("it ends within its header") from None
            if width * height > min(MAX_PIXELS, _SMALL + _PIXELS_A_BYTE * len(raw)):
                raise ValueError(f"{width} x {height} pixels in {len(raw)} bytes are too many")

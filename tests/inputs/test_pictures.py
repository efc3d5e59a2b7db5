"""Pictures: what OpenCV makes of them, in an input's layout, and bombs that are refused before it takes memory."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pytest

from loadrun.base.errors import InputError
from loadrun.inputs.pictures import decoded, image_array, loss

PICTURE = np.random.PCG64(5).random_raw(24 * 32 * 3).astype("u1").reshape(24, 32, 3)
PNG = cv2.imencode(".png", PICTURE)[1].tobytes()
EXIF = b"MM\0*\0\0\0\x08" + b"\0\x01" + b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0" + bytes(4)
"""Orientation 6: the left side is at the bottom."""


def test_decoded_as_written() -> None:
    np.testing.assert_array_equal(decoded(PNG, "PNG", "a.png"), PICTURE)
    alpha = cv2.imencode(".png", np.dstack([PICTURE, PICTURE[:, :, 0]]))[1].tobytes()
    np.testing.assert_array_equal(decoded(alpha, "PNG", "a.png"), PICTURE)
    wide = cv2.imencode(".png", PICTURE.astype("u2") * 257)[1].tobytes()
    np.testing.assert_array_equal(decoded(wide, "PNG", "a.png"), PICTURE)


def test_turned_by_exif() -> None:
    jpeg = cv2.imencode(".jpg", np.zeros((24, 32, 3), "u1"))[1].tobytes()
    turned = jpeg[:2] + b"\xff\xe1" + (len(EXIF) + 8).to_bytes(2, "big") + b"Exif\0\0" + EXIF + jpeg[2:]
    assert decoded(jpeg, "JPEG", "a.jpg").shape == (24, 32, 3)
    assert decoded(turned, "JPEG", "a.jpg").shape == (32, 24, 3)


def test_webp_with_exif_is_read() -> None:
    """As it is stored by OpenCV 4.11, turned by 5.0."""
    plain = cv2.imencode(".webp", PICTURE, [cv2.IMWRITE_WEBP_QUALITY, 101])[1].tobytes()
    sides = (31).to_bytes(3, "little") + (23).to_bytes(3, "little")
    head = b"WEBPVP8X" + struct.pack("<I", 10) + b"\x08\0\0\0" + sides
    body = head + plain[12:] + b"EXIF" + struct.pack("<I", len(EXIF)) + EXIF
    found = decoded(b"RIFF" + struct.pack("<I", len(body)) + body, "WebP", "a.webp")
    assert any(np.array_equal(found, want) for want in (PICTURE, np.rot90(PICTURE, -1)))


def test_resized_linearly() -> None:
    column = np.repeat(np.uint8([[0], [10], [20]])[:, :, None], 3, 2)
    array = image_array(column, (1, 3, 5, 1), resize=True)
    assert array[0, 0, :, 0].tolist() == [0, 4, 10, 16, 20]


def test_gray() -> None:
    gray = image_array(PICTURE, (1, 24, 32, 1), resize=False)
    np.testing.assert_array_equal(gray[0, :, :, 0], cv2.cvtColor(PICTURE, cv2.COLOR_BGR2GRAY))


def test_damage_is_told() -> None:
    with pytest.raises(InputError, match=r"a\.png is a PNG image that is damaged or cut off"):
        decoded(PNG[: len(PNG) // 2], "PNG", "a.png")


def test_a_picture_of_floats_is_named() -> None:
    raw = cv2.imencode(".tiff", np.zeros((2, 3, 3), np.float32))[1].tobytes()
    with pytest.raises(InputError, match=r"a\.tiff is a TIFF image of float32 numbers"):
        decoded(raw, "TIFF", "a.tiff")


def test_frames_that_are_dropped_are_told() -> None:
    # The header of an extended WebP file; flag 2 is that of an animation.
    head = b"RIFF\x40\0\0\0WEBPVP8X\x0a\0\0\0"
    assert loss(head + b"\x02" + bytes(9)) == "its frames after the first are dropped"
    assert loss(head + bytes(10)) == ""


def test_without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(InputError, match=r"needs OpenCV: pip install '/path/to/loadrun\[images\]'"):
        decoded(PNG, "PNG", "a.png")


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def sized_png(width: int, height: int) -> bytes:
    """A PNG of black pixels, a bit each."""
    rows = zlib.compress(bytes(height * (1 + width // 8)), 9)
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return PNG[:8] + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


BOMBS = {
    "PNG": sized_png(16384, 16384),
    "JPEG": b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03" + bytes(28),
    "PNM": b"P6\n20000 20000\n255\n" + bytes(30),
    "BMP": b"BM" + bytes(8) + struct.pack("<IIiiHHI", 54, 40, 20000, 20000, 1, 24, 0) + bytes(20),
    "GIF": b"GIF89a"
    + struct.pack("<HH", 20000, 20000)
    + b"\x80\0\0"
    + bytes(6)
    + b",\0\0\0\0\1\0\1\0\0\2\2D\1\0;",
}
CODE = """
import resource, sys
{first}
from loadrun.base.errors import InputError
from loadrun.inputs.pictures import decoded
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.RLIM_INFINITY))
try:
    decoded(sys.stdin.buffer.read(), "{kind}", "a")
except InputError as e:
    print(e)
"""


@pytest.mark.parametrize(
    ("kind", "first"), [*((k, "") for k in BOMBS), ("PNG", "import cv2"), ("JPEG", "import cv2")]
)
def test_bombs_are_refused(kind: str, first: str) -> None:
    """268 million pixels and more: by OpenCV's limit, and where OpenCV was imported before, by their headers."""
    argv = [sys.executable, "-c", CODE.format(first=first, kind=kind)]
    done = subprocess.run(argv, input=BOMBS[kind], capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().startswith(f"a is a {kind} image that ")
    if kind in ("PNG", "JPEG"):
        assert b"pixels" in done.stdout

"""Write tests/data/opencv_pictures.npz: what OpenCV decodes and resizes, for reading pictures without it.

python scripts/opencv_pictures.py     where OpenCV is installed; 4.11 and 5.0 write the same
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "opencv_pictures.npz"
SIZES = ((24, 32), (12, 16), (7, 11), (50, 41), (1, 1), (24, 9), (48, 64), (31, 32))
"""Heights and widths: of the picture itself, its half, and others."""


def pixels(height: int, width: int) -> np.ndarray:
    """Numbers that are the same everywhere."""
    return np.random.PCG64(5).random_raw(height * width * 3).astype("u1").reshape(height, width, 3)


def turned(jpeg: bytes) -> bytes:
    """A JPEG whose EXIF says that its left side is at the bottom (orientation 6)."""
    tags = b"MM\0*\0\0\0\x08" + b"\0\x01" + b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0" + bytes(4)
    exif = b"Exif\0\0" + tags
    return jpeg[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + jpeg[2:]


def main() -> None:
    """Write the file."""
    picture = pixels(24, 32)
    smooth = cv2.resize(pixels(4, 5), (32, 24))
    wide = picture.astype("u2") * 257 + np.arange(32, dtype="u2")[:, None]
    alpha = np.dstack([picture, picture[:, :, 0]])
    jpeg = cv2.imencode(".jpg", smooth)[1].tobytes()
    files = {
        "png": cv2.imencode(".png", picture)[1].tobytes(),
        "alpha": cv2.imencode(".png", alpha)[1].tobytes(),
        "wide": cv2.imencode(".png", wide)[1].tobytes(),
        "gray16": cv2.imencode(".png", wide[:, :, 0])[1].tobytes(),
        "jpeg": jpeg,
        "turned": turned(jpeg),
        "bmp": cv2.imencode(".bmp", picture)[1].tobytes(),
        "ppm": cv2.imencode(".ppm", picture)[1].tobytes(),
        "tiff": cv2.imencode(".tiff", picture)[1].tobytes(),
    }
    arrays = {"gray": cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)}
    for height, width in SIZES:
        arrays[f"resized {height} {width}"] = cv2.resize(picture, (width, height))
    for name, raw in files.items():
        arrays[f"file {name}"] = np.frombuffer(raw, "u1")
        arrays[f"decoded {name}"] = cv2.imdecode(np.frombuffer(raw, "u1"), cv2.IMREAD_COLOR)
    np.savez_compressed(OUT, picture=picture, **arrays)


if __name__ == "__main__":
    main()

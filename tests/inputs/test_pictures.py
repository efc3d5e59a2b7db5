"""Pictures without OpenCV: Pillow decodes them, numpy resizes them, to the bytes that OpenCV gave."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from loadrun.base.errors import InputError
from loadrun.inputs.pictures import decoded, image_array
from loadrun.ops.image.resize_cv import resize_picture

with np.load(Path(__file__).parent.parent / "data" / "opencv_pictures.npz") as archive:
    OPENCV = dict(archive)
SIZES = [tuple(map(int, n.split()[1:])) for n in OPENCV if n.startswith("resized")]
FILES = [n.removeprefix("file ") for n in OPENCV if n.startswith("file ")]


@pytest.fixture
def without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_resized(height: int, width: int, without_opencv: None) -> None:
    want = OPENCV[f"resized {height} {width}"]
    np.testing.assert_array_equal(resize_picture(OPENCV["picture"], height, width), want)
    array = image_array(OPENCV["picture"], (1, 3, height, width), resize=True)
    np.testing.assert_array_equal(array[0].transpose(1, 2, 0), want)


def test_resized_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadrun.ops.image.resize_cv._CHUNK", 100)
    np.testing.assert_array_equal(resize_picture(OPENCV["picture"], 50, 41), OPENCV["resized 50 41"])


def test_resizing_takes_memory_by_the_result(without_opencv: None) -> None:
    """Rows that no result row needs are not widened: 2^20 x 2^14 numbers would be 16 GB."""
    narrow = np.arange(2**20, dtype=np.uint32).astype("u1").reshape(-1, 1, 1)
    assert resize_picture(narrow, 1, 2**14).shape == (1, 2**14, 1)


def test_as_opencv_that_is_installed() -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    draw = np.random.default_rng(3)
    for height, width, new_height, new_width in draw.integers(1, 60, (100, 4)).tolist():
        picture = draw.integers(0, 256, (height, width, 3)).astype("u1")
        want = cv2.resize(picture, (new_width, new_height))
        np.testing.assert_array_equal(resize_picture(picture, new_height, new_width), want)


def test_gray(without_opencv: None) -> None:
    gray = image_array(OPENCV["picture"], (1, 24, 32, 1), resize=False)
    np.testing.assert_array_equal(gray[0, :, :, 0], OPENCV["gray"])


@pytest.mark.parametrize("name", FILES)
def test_decoded_by_pillow(name: str, without_opencv: None) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    raw = OPENCV[f"file {name}"].tobytes()
    kind = {"alpha": "PNG", "wide": "PNG", "gray16": "PNG", "turned": "JPEG", "ppm": "PNM"}.get(
        name, name.upper()
    )
    np.testing.assert_array_equal(decoded(raw, kind, f"a.{name}"), OPENCV[f"decoded {name}"])


def test_what_pillow_reads_otherwise_is_refused(without_opencv: None) -> None:
    """Colours of 16 bits in .ppm, which Pillow rounds and OpenCV cuts."""
    pytest.importorskip("PIL", reason="Pillow is not installed")
    raw = b"P6\n1 1\n65535\n" + bytes(6)
    with pytest.raises(InputError, match=r"PNM image that Pillow does not read as OpenCV does .*mode is RGB"):
        decoded(raw, "PNM", "a.ppm")


def test_damage_is_told(without_opencv: None) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    raw = bytearray(OPENCV["file png"].tobytes())
    raw[len(raw) // 2 : len(raw) // 2 + 40] = bytes(40)
    with pytest.raises(InputError, match=r"a\.png is a PNG image that is damaged or cut off"):
        decoded(bytes(raw), "PNG", "a.png")


def test_without_either(without_opencv: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(InputError, match=r"takes OpenCV or Pillow: pip install '/path/to/loadrun\[images\]'"):
        decoded(OPENCV["file png"].tobytes(), "PNG", "a.png")

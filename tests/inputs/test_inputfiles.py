"""Files that specifications name: formats, hostile files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tracemalloc
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from loadrun.base.errors import InputError
from loadrun.inputs.files import members, read_json, read_npy
from loadrun.inputs.loading import load_cases
from tests.support.input_models import model

BGR = np.random.PCG64(3).random_raw(60).astype("u1").reshape(4, 5, 3)


def load(path: Path | str, shape: tuple[int, ...] = (2, 2), dtype: str = "Float32") -> np.ndarray:
    return next(load_cases(f"a:'{path}'", model(a=(dtype, shape))))["a"]


@pytest.mark.parametrize(
    "dtype", ["f2", "<f4", ">f4", "f8", "i1", "<i2", ">i4", "i8", "u1", "u2", ">u4", "u8", "?"]
)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy(dtype: str, order: str, version: tuple[int, int], tmp_path: Path) -> None:
    want = np.asarray(np.array([[0, 1, 2], [3, 4, 100]]), dtype, order=order)  # type: ignore[call-overload]
    with open(tmp_path / "a.npy", "wb") as f:
        np.lib.format.write_array(f, want, version=version)
    np.testing.assert_array_equal(load(tmp_path / "a.npy", (2, 3)), want.astype("f4"))


def test_a_wrong_name_suggests_the_nearest(tmp_path: Path) -> None:
    np.save(tmp_path / "photos.npy", np.zeros((2, 2), np.float32))
    with pytest.raises(InputError, match=r"No such file or directory; did you mean .*photos\.npy\?"):
        load(tmp_path / "photo.npy")


def test_scalars_have_one_axis(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.float64(3))
    assert load(tmp_path / "a.npy", (1,)).tolist() == [3]


def npy(header: str, data: bytes = b"", magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    return magic + len(header).to_bytes(2, "little") + header.encode("latin1") + data


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(HEADER, b"x" * 15), "takes 16 bytes; it has 15"),
        (npy(HEADER.replace("(2, 2)", "(1000000, 1000000)")), "takes 4000000000000 bytes; it has 0"),
        (npy(HEADER.replace("(2, 2)", "(-2, -2)"), b"x" * 16), "ValueError in its header"),
        (npy(HEADER.replace("(2, 2)", "(True, 2)"), b"x" * 16), "ValueError in its header"),
        (npy(HEADER.replace("(2, 2)", "[2, 2]"), b"x" * 16), "ValueError in its header"),
        (npy(HEADER.replace("'<f4'", "open('x','w')")), "ValueError in its header"),
        (npy("(" * 20000), "in its header"),
        (npy(HEADER[:20]), "in its header"),
        (npy("[]"), "TypeError in its header"),
        (npy(HEADER.replace("<f4", "|O"), b"x" * 16), "never unpickles"),
        (npy(HEADER.replace("<f4", "|S4"), b"x" * 16), r"holds '\|S4'; expected plain numbers"),
        (npy(HEADER.replace("<f4", "<f3"), b"x" * 64), "expected plain numbers"),
        (npy(HEADER.replace("'<f4'", "[('a', '<f4')]"), b"x" * 16), "expected plain numbers"),
        (npy(HEADER.replace("<f4", "<m8"), b"x" * 32), "expected plain numbers"),
        (b"\x93NUMPY", "is not a .npy array"),
        (b"\x93NUMPY\x09\x00" + b"x" * 99, "is not a .npy array"),
        (npy("", b"", b"\x93NUMPY\x02\x00") + b"\xff\xff\xff", "is not a .npy array"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "ends within its header"),
    ],
)
def test_bad_npy(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load(path)
    assert not (tmp_path / "x").exists()


@given(st.binary(max_size=200))
def test_any_npy_fails_clearly(content: bytes) -> None:
    data = b"\x93NUMPY" + content
    with contextlib.suppress(InputError):
        assert read_npy(io.BytesIO(data), len(data), "a.npy").nbytes <= len(data)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Marker:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    np.save(tmp_path / "o.npy", np.array([Marker()], object), allow_pickle=True)
    np.savez(tmp_path / "o.npz", a=np.array([Marker()], object))
    (tmp_path / "p.npy").write_bytes(np.array([Marker()], object).dumps())
    for name in ("o.npy", "o.npz", "p.npy"):
        with pytest.raises(InputError, match=r"never unpickles; convert it once .*numpy\.save"):
            load(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_a_picture_whose_first_byte_is_wrong_is_no_pickle(tmp_path: Path) -> None:
    path = tmp_path / "a.webp"
    path.write_bytes(b"\x80IFF\x08\0\0\0WEBPVP8 ")
    with pytest.raises(InputError, match="is neither an image nor"):
        load(path)


def test_npz_members_are_read_alone(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.ones((2, 2)), o=np.array([None], object))
    assert load(tmp_path / "a.npz").tolist() == [[1, 1], [1, 1]]
    assert sorted(members(str(tmp_path / "a.npz"))) == ["a", "o"]


def test_zip_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of zeros pack to 64 kB; what the member says of itself is looked at before it is unpacked."""
    monkeypatch.setattr("loadrun.inputs.files._SMALL_NPZ", 2**20)
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.zeros(2**26, "u1"))
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(InputError, match=r"takes \d+ bytes and would unpack to 67108992"):
        load(path, (1,))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_the_directory_of_an_npz_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of many testcases are members of one archive; each is read alone."""
    path = tmp_path / "a.npz"
    np.savez(path, **{f"a{i}": np.full(2, i) for i in range(9)})
    read = 0
    directory = zipfile.ZipFile._RealGetContents  # type: ignore[attr-defined]

    def counted(archive: zipfile.ZipFile) -> None:
        nonlocal read
        read += 1
        directory(archive)

    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", counted)
    arrays = members(str(path))
    assert [arrays[f"a{i}"]().tolist() for i in range(9)] == [[i, i] for i in range(9)]
    assert read == 1
    np.savez(path, b=np.zeros(1))
    with pytest.raises(InputError, match="a8 cannot be unpacked"):
        arrays["a8"]()


def test_npz_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a.npy", npy(HEADER.replace("(2, 2)", "(9999, 9999)"), b"x" * 16))
    with pytest.raises(InputError, match="takes 399920004 bytes; it has 16"):
        load(path)
    good = path.read_bytes()
    path.write_bytes(good.replace(b"xxxxxxxx", b"xxxxyxxx", 1))
    with pytest.raises(InputError):
        load(path)
    path.write_bytes(good[:-30])
    with pytest.raises(InputError, match=r"is not an \.npz archive"):
        load(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(place=st.integers(0, 300), value=st.integers(0, 255))
def test_damaged_npz_fail_clearly(place: int, value: int, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=np.arange(4.0).reshape(2, 2))
    raw = bytearray(buffer.getvalue())
    raw[place % len(raw)] = value
    path = tmp_path / "a.npz"
    path.write_bytes(raw)
    with contextlib.suppress(InputError):
        # The archive has a checksum of what it holds.
        assert load(path).tolist() == [[0, 1], [2, 3]]


def test_json(tmp_path: Path) -> None:
    """load_and_run rounds halves away from zero for whole-number types and keeps the rest as it is."""
    path = tmp_path / "a.json"
    raw = {"shape": [2, 3], "type": "int8", "raw": [0.5, 1.5, -0.5, -1.4, 127.4, -128]}
    path.write_text(json.dumps({"a": raw, "b": {"shape": [1], "type": "float", "raw": [0.1]}}))
    found = read_json(str(path))
    assert found["a"].dtype == np.int8
    assert found["a"].tolist() == [[1, 2, -1], [-1, 127, -128]]
    assert found["b"].tolist() == [np.float32(0.1)]
    assert next(load_cases(f"x:'{path}'!b", model(x=("Float32", (1,)))))["x"].tolist() == [np.float32(0.1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "expected .*JSONDecodeError"),
        ("[1]", "expected"),
        ('{"a": [1]}', "expected"),
        ('{"a": {"shape": [2], "type": "float32", "raw": [1]}}', "takes a raw list of 2 numbers"),
        ('{"a": {"shape": [99999999999], "type": "float32", "raw": [1]}}', "takes a raw list of"),
        ('{"a": {"shape": [-1], "type": "float32", "raw": [1]}}', "list of whole numbers"),
        ('{"a": {"shape": [1], "type": "float64", "raw": [1]}}', "with a type of float32, float, int32"),
        ('{"a": {"shape": [1], "type": "uint8", "raw": [256]}}', "numbers that uint8 does not"),
        ('{"a": {"shape": [1], "type": "int8", "raw": [NaN]}}', "numbers that int8 does not"),
        ('{"a": {"shape": [1], "type": "int8", "raw": ["x"]}}', "expected"),
        ("[" * 100_000, "expected .*Error"),
        ('{"a": {"shape": [1], "type": "float32", "raw": [[1]]}}', "something else than numbers"),
        ('{"a": {"shape": [1], "type": "float32", "raw": [1' + "0" * 400 + "]}}", "no array has"),
    ],
)
def test_bad_json(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load(path)


# Images.


@pytest.mark.parametrize("ending", ["png", "bmp", "ppm"])
def test_images_in_all_layouts(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"i.{ending}"
    cv2.imwrite(str(path), BGR)
    np.testing.assert_array_equal(load(path, (1, 3, 4, 5))[0], BGR.transpose(2, 0, 1).astype("f4"))
    np.testing.assert_array_equal(load(path, (1, 4, 5, 3), "Uint8")[0], BGR)
    np.testing.assert_array_equal(load(path, (3, 4, 5), "Uint8"), BGR.transpose(2, 0, 1))
    np.testing.assert_array_equal(load(path, (4, 5, 3), "Uint8"), BGR)
    for shape in ((1, 1, 4, 5), (1, 4, 5, 1), (1, 4, 5), (4, 5, 1)):
        gray = load(path, shape, "Uint8")
        assert gray.shape == shape
        np.testing.assert_allclose(gray.reshape(4, 5).astype(int), BGR @ [0.114, 0.587, 0.299], atol=1)
    with pytest.raises(InputError, match=r"\[N,C,H,W\], \[N,H,W,C\], \[C,H,W\] or \[H,W,C\] with 1 or 3"):
        load(path, (1, 5, 6, 7))


def test_colour_and_gray_netpbm(tmp_path: Path) -> None:
    """Bytes written by hand: .ppm holds RGB, the input gets BGR as from every other image; a comment is skipped."""
    (tmp_path / "i.ppm").write_bytes(b"P6\n# by hand\n2 1\n255\n" + bytes([1, 2, 3, 40, 50, 60]))
    (tmp_path / "i.pgm").write_bytes(b"P5\n2 1\n255\n" + bytes([9, 200]))
    assert load(tmp_path / "i.ppm", (1, 3, 1, 2), "Uint8").tolist() == [[[[3, 60]], [[2, 50]], [[1, 40]]]]
    assert load(tmp_path / "i.pgm", (1, 1, 1, 2), "Uint8").tolist() == [[[[9, 200]]]]


def test_what_is_no_image(tmp_path: Path) -> None:
    for name, content in {"e.png": b"", "t.png": b"hello"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="neither an image"):
            load(tmp_path / name, (1, 3, 4, 5))


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found a folder|ermission"):
        load(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        load(tmp_path / "none.png")
    with pytest.raises(InputError, match="null"):
        load("a\0b")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no named pipes")
def test_devices_are_not_read() -> None:
    with pytest.raises(InputError, match="must be a regular file, not a device"):
        load("/dev/zero")


def test_pixels_of_huge_images_are_not_unpacked(tmp_path: Path) -> None:
    """A .ppm header of 60000 x 60000 pixels: OpenCV's own limit holds, or its lower one that is set here."""
    (tmp_path / "i.ppm").write_bytes(b"P6\n60000 60000\n255\n" + bytes(30))
    with pytest.raises(InputError, match=r"i\.ppm is a PNM image that OpenCV refuses"):
        load(tmp_path / "i.ppm", (1, 3, 4, 5))


@pytest.mark.parametrize(
    ("suffix", "dtype", "channels", "said"),
    [
        *(
            (suffix, *case)
            for suffix in ("png", "tiff")
            for case in (
                ("u2", 3, "its 16 bits become 8"),
                ("u2", 1, "its 16 bits become 8"),
                ("u1", 4, "its alpha channel is dropped"),
                ("u2", 4, "its 16 bits become 8 and its alpha channel is dropped"),
                ("u1", 3, ""),
                ("u1", 1, ""),
            )
        ),
        ("ppm", "u2", 3, "its 16 bits become 8"),
        ("pgm", "u2", 1, "its 16 bits become 8"),
        ("ppm", "u1", 3, ""),
        ("bmp", "u1", 3, ""),
    ],
)
def test_what_a_picture_loses_is_said(
    suffix: str, dtype: str, channels: int, said: str, tmp_path: Path
) -> None:
    picture = (np.arange(8 * 8 * channels, dtype=np.uint32) % 251).reshape(8, 8, channels).astype(dtype)
    cv2.imwrite(str(tmp_path / f"a.{suffix}"), picture)
    warned: list[str] = []
    inputs = model(data=("Uint8", (1, 3, 8, 8)))
    list(load_cases(f"data:{tmp_path}/a.{suffix}", inputs, warn=warned.append))
    assert warned == ([f"input 'data': information in the image a.{suffix} is lost: {said}"] if said else [])


@pytest.mark.parametrize(
    ("dtype", "values", "said"),
    [
        ("Uint8", [1, 256, 300], "2 numbers are outside of 0..255 of Uint8 and wrap: 256 becomes 0"),
        ("Uint8", [-1.0, -0.5, 255.5], "1 numbers are outside of 0..255 of Uint8 and wrap: -1.0 becomes 255"),
        ("Int8", [127, -128, 128], "1 numbers are outside of -128..127 of Int8 and wrap: 128 becomes -128"),
        (
            "Int32",
            [2**31, 0, 0],
            "of -2147483648..2147483647 of Int32 and wrap: 2147483648 becomes -2147483648",
        ),
        ("Quantized4Asymm", [15, 16, 0], "outside of 0..15 of Quantized4Asymm.* and wrap: 16 becomes 0"),
        ("QuantizedS4", [-8, 7, 8], "outside of -8..7 of QuantizedS4.* and wrap: 8 becomes -8"),
        ("Uint8", [0, 255, 254.9], ""),
        ("Int8", [-128.9, 127.9, 0], ""),
        ("Bool", [0, 300, -1], ""),
    ],
)
def test_integers_that_wrap_are_told(dtype: str, values: list[float], said: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array(values))
    warned: list[str] = []
    list(load_cases(f"data:{tmp_path}/a.npy", model(data=(dtype, (3,))), warn=warned.append))
    assert len(warned) == bool(said)
    assert not said or re.search(said, warned[0])


def test_what_intb_does_not_hold_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([3, -1, 2]))
    with pytest.raises(InputError, match="intb2 holds the odd numbers between -3 and 3, found 2"):
        list(load_cases(f"data:{tmp_path}/a.npy", model(data=("IntB2", (3,)))))


def test_complex_values_keep_both_parts_or_are_refused(tmp_path: Path) -> None:
    want = np.array([[1 + 2j, 0], [-1j, 3]], "c8")
    np.save(tmp_path / "a.npy", want)
    np.save(tmp_path / "real.npy", want.real.astype("c16"))
    np.testing.assert_array_equal(load(tmp_path / "a.npy", dtype="Complex64"), want)
    np.testing.assert_array_equal(load(tmp_path / "real.npy"), want.real)
    with pytest.raises(InputError, match="holds complex numbers, which Float32 cannot hold"):
        load(tmp_path / "a.npy")

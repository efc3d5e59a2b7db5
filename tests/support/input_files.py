"""The files that the recorded input specifications name; the same bytes of data for MegEngine and for the tests."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np


def numbers(count: int) -> np.ndarray:
    """Whole numbers 0..255 without a pattern."""
    return np.random.PCG64(7).random_raw(count) >> np.uint64(56)


def make_files(folder: Path) -> None:
    pixels = numbers(240).astype("u1").reshape(8, 10, 3)
    cv2.imwrite(str(folder / "big.png"), pixels)
    cv2.imwrite(str(folder / "img.png"), pixels[:4, :5])
    cv2.imwrite(str(folder / "img.ppm"), pixels[:4, :5])
    cv2.imwrite(str(folder / "gray.png"), pixels[:4, :5, 0])
    cv2.imwrite(str(folder / "gray.pgm"), pixels[:4, :5, 0])
    (folder / "img.dat").write_bytes((folder / "img.png").read_bytes())
    a = ((numbers(120).astype("f4") + 3) / 29).reshape(2, 3, 4, 5)
    arrays = {
        "a": a[:1],
        "a_f64": a[:1].astype("f8"),
        "a_u8": a[:1].astype("u1"),
        "a_big_endian": a[:1].astype(">f4"),
        "a_fortran": np.asfortranarray(a[:1]),
        "a2": a,
        "a_badc": a[:1, :2],
        "rank3": a[0],
        "zerodim": np.array(3.0, "f4"),
        "nan": np.full((1, 3, 4, 5), np.nan, "f4"),
        "empty": np.zeros((0, 3, 4, 5), "f4"),
        "bool": a[:1] > 4,
        "i64": a[:1].astype("i8"),
        "negative": a[:1] - 4,
        "large": a[:1] * 50,
        "m": a[0, 0, :2, :3],
        "v": a[0, 0, 0, :4],
        "we:ird": a[:1],
        "sp ace": a[:1],
        "semi;colon": a[:1],
        "it's": a[:1],
        "wow!": a[:1],
        "[1]": a[:1],
        "a,b=(c)": a[:1],
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "object.npy", np.array([{"a": 1}], object), allow_pickle=True)
    (folder / "noext").write_bytes((folder / "a.npy").read_bytes())
    (folder / "pick.pkl").write_bytes(a[:1].dumps())
    np.savez(folder / "arr.npz", data=a[:1])
    (folder / "text.txt").write_text("hello\n")
    (folder / "dir").mkdir()
    lists = {
        "list.txt": "#rand(0,1)\na.npy\n",
        "empty.txt": "",
        "nested.txt": "@list.txt\n",
        "crlf.txt": "#rand(0,1)\r\na.npy\r\n",
        "comment.txt": "# a comment\na.npy\n",
        "blank.txt": "\na.npy\n   \n\nimg.png\n",
        "lead.txt": " a.npy\n",
        "trail.txt": "a.npy  \n",
        "odd;name:x.txt": "a.npy\n",
        "no_end.txt": "a.npy\nimg.png",
        "faulty.txt": "a.npy\n#rand(0)\n",
    }
    for name, text in lists.items():
        (folder / name).write_bytes(text.encode())

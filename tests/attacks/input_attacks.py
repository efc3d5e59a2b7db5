"""Inputs that lie about their size, unfold, or take time without end: ``python -m tests.attacks.input_attacks FOLDER``.

Each is given to the command line in this process, whose address space may grow by as much as the attack allows. A
line of JSON per attack tells how it ended, in what processor time.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import struct
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MB = 1 << 20


@dataclass(frozen=True)
class Attack:
    """Arguments behind the model's name, how it must end, and the memory and time that it may take.

    Attributes:
        make: writes files to a folder and returns the arguments.
    """

    make: Callable[[Path], list[str]]
    text: str
    code: int = 2
    memory: int = 64 * MB
    seconds: float = 3.0


ATTACKS: dict[str, Attack] = {}


def attack(
    text: str, *, code: int = 2, memory: int = 64 * MB, seconds: float = 3.0
) -> Callable[[Callable[[Path], list[str]]], Callable[[Path], list[str]]]:
    """Register an attack."""

    def register(make: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
        ATTACKS[make.__name__] = Attack(make, text, code, memory, seconds)
        return make

    return register


def written(folder: Path, name: str, data: bytes) -> list[str]:
    """A file of the folder as the model's input."""
    (folder / name).write_bytes(data)
    return ["--input", f"x:{folder / name}"]


def chunk(kind: bytes, data: bytes, length: int | None = None) -> bytes:
    """A chunk of a PNG."""
    size = len(data) if length is None else length
    return struct.pack(">I", size) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes, depth: int = 8, color: int = 2) -> bytes:
    """A PNG of these chunks."""
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunks) + chunk(b"IEND", b"")


@attack("is a PNG image that is damaged or cut off: a chunk claims 2147483647 bytes")
def i01_png_with_a_huge_chunk(folder: Path) -> list[str]:
    """90 bytes that made OpenCV take 2.1 GB."""
    return written(folder, "a.png", png(4, 4, chunk(b"eXIf", b"", 2**31 - 1)))


@attack("16384 x 16384 pixels")
def i02_png_of_huge_sides(folder: Path) -> list[str]:
    """32 kB of packed zeros that announce 2 GB of pixels."""
    packed = zlib.compress(bytes(32 * MB), 9)
    return written(folder, "a.png", png(16384, 16384, chunk(b"IDAT", packed), depth=16, color=6))


@attack("65535 x 65535 pixels in 40 bytes are too many")
def i03_jpeg_of_huge_sides(folder: Path) -> list[str]:
    """A frame header and nothing behind it."""
    return written(folder, "a.jpg", b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03" + bytes(28))


@attack("it comes in more than 200 scans")
def i04_jpeg_of_many_scans(folder: Path) -> list[str]:
    """Each scan of a progressive image goes over all of it."""
    frame = b"\xff\xd8\xff\xc2\0\x11\x08\x10\0\x10\0\x03" + bytes(9)
    return written(folder, "a.jpg", frame + b"\xff\xda\0\x08\x01\0\0\0\0\0" * 100_000)


@attack("is a BMP image that")
def i05_bitmap_of_huge_sides(folder: Path) -> list[str]:
    """The header of a BMP."""
    return written(folder, "a.bmp", b"BM" + bytes(12) + struct.pack("<Iii", 40, 10**6, -(10**6)) + bytes(30))


@attack("is a TIFF image that")
def i06_tiff_of_huge_tiles(folder: Path) -> list[str]:
    """A small image in one tile of a million pixels squared."""
    tags = [(256, 4), (257, 4), (322, 10**6), (323, 10**6)]
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return written(folder, "a.tif", b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + body + bytes(4))


@attack("and would unpack to 2147483648")
def i07_archive_that_unfolds(folder: Path) -> list[str]:
    """An .npz whose directory announces 2 GiB."""
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x.npy", bytes(MB))
    data = (folder / "a.npz").read_bytes()
    return written(folder, "a.npz", data.replace(struct.pack("<I", MB), struct.pack("<I", 2**31)))


@attack("is packed by method 14")
def i08_archive_of_lzma(folder: Path) -> list[str]:
    """LZMA's dictionary may be 4 GB, whatever the member holds."""
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_LZMA) as z:
        z.writestr("x.npy", bytes(1000))
    return ["--input", f"x:{folder / 'a.npz'}"]


@attack("not compared", code=3, memory=100 * MB)
def i09_long_json(folder: Path) -> list[str]:
    """4 MB of numbers, no attack: a list of floats would take 64 MB, with its text and its arrays 130."""
    text = json.dumps({"x": {"shape": [700_000], "type": "float32", "raw": [0.25] * 700_000}})
    return written(folder, "a.json", text.encode())


@attack("list of whole numbers", memory=150 * MB)
def i10_json_of_empty_lists(folder: Path) -> list[str]:
    """Three bytes that become an object of 64, a million times."""
    text = '{"x": {"shape": [' + "[]," * MB + '[]], "type": "float32", "raw": [1]}}'
    return written(folder, "a.json", text.encode())


@attack("too large results", memory=1100 * MB, seconds=15)
def i11_values_that_pile_up(folder: Path) -> list[str]:
    """60 arrays of 512 MB."""
    items = ", ".join(["np.ones(2**26)"] * 60)
    return ["--input", "x:[1,2]", "--input-transform", f"np.stack([{items}])"]


@attack("takes too many operations", memory=600 * MB)
def i12_slow_product(folder: Path) -> list[str]:
    """No library multiplies matrices of whole numbers: this one took 100 seconds."""
    ones = "np.ones((4096, 4096), 'int64')"
    return ["--input", "x:[1,2]", "--input-transform", f"{ones} @ {ones}"]


@attack("takes too many operations", memory=600 * MB, seconds=10)
def i13_long_sum(folder: Path) -> list[str]:
    """Each term is allowed, the sum of them is work for minutes."""
    return ["--input", "x:[1,2]", "--input-transform", " + ".join(["np.sin(np.ones(2**22)).sum()"] * 30)]


@attack("this needs more memory than is available")
def i14_random_numbers_without_end(folder: Path) -> list[str]:
    """8 GB of random numbers where there are 64 MB."""
    return ["--input", "x:#rand(0,1,1000000000)"]


@attack("which is more than 8589934592 bytes")
def i15_empty_array_of_all_numbers(folder: Path) -> list[str]:
    """No elements, along an axis that numpy has no shape for."""
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775807)}"
    return written(folder, "a.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head)


@attack("is not a .npy array", seconds=1)
def i16_array_without_a_header(folder: Path) -> list[str]:
    """Ten bytes."""
    return written(folder, "a.npy", b"\x93NUMPY\x01\0\0\0")


@attack("say which input this is for", seconds=1)
def i17_long_specification(folder: Path) -> list[str]:
    """20,000 characters: each of 5,000 parts looked for the same bracket and what stands behind it."""
    return ["--input", "[;" * 5_000 + "]" + "." * 10_000 + ".a"]


@attack("list files that include one another expand to more", seconds=10)
def i18_lists_of_lists(folder: Path) -> list[str]:
    """36 kB in four files that stand for 10**10 testcases."""
    for i in range(3):
        (folder / f"{i}.txt").write_text(f"@{i + 1}.txt\n" * 1000)
    (folder / "3.txt").write_text("x:#ones\n" * 1000)
    return ["--input", f"@{folder / '0.txt'}"]


@attack("must be a regular file, not a pipe", seconds=1)
def i19_pipe_as_data(folder: Path) -> list[str]:
    """Nobody writes to it, so reading it would wait for ever."""
    os.mkfifo(folder / "fifo.npy")
    return ["--input", f"x:{folder / 'fifo.npy'}"]


@attack("must be a regular file, not a device", seconds=1)
def i20_device_as_data(folder: Path) -> list[str]:
    """It has no end."""
    return ["--input", "x:/dev/zero"]


@attack("this line is longer than 1048576 bytes", seconds=1)
def i21_device_as_list(folder: Path) -> list[str]:
    """A line without an end."""
    return ["--input", "@/dev/zero"]


@attack("cannot be unpacked")
def i22_archive_with_a_damaged_member(folder: Path) -> list[str]:
    """Deflated data that are none."""
    np.savez_compressed(folder / "a.npz", x=np.arange(1000))
    data = bytearray((folder / "a.npz").read_bytes())
    data[60:90] = b"\xff" * 30
    return written(folder, "a.npz", bytes(data))


def status(key: str) -> int:
    """A line of /proc/self/status in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(f"{key}:"))


def main() -> None:
    """Run all attacks."""
    from loadrun.cli import main as loadrun
    from loadrun.dump import save
    from loadrun.graph import Graph, StoredTensor
    from loadrun.graph.dtypes import DType
    from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy

    folder = Path(sys.argv[1])
    graph = Graph()
    (x,) = graph.add(
        "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(DType("Float32"), None, "x")]
    )
    graph.outputs = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.RELU), inputs=[x], names=["y"])
    model = str(folder / "m.mge")
    save(graph, model)
    # What is imported and kept by the first runs is not counted.
    (folder / "p.ppm").write_bytes(b"P6\n4 4\n255\n" + bytes(48))
    for spec in ("x:#ones(1,3,4,4)", f"x:{folder}/p.ppm"):
        with contextlib.redirect_stdout(io.StringIO()):
            loadrun([model, "--input", spec, "--input-transform", "data * 1"])
    for name, a in ATTACKS.items():
        place = folder / name
        place.mkdir()
        argv = [model, *a.make(place)]
        out = io.StringIO()
        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + a.memory, resource.RLIM_INFINITY))
        start = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = loadrun(argv)
        seconds = time.process_time() - start
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(json.dumps({"name": name, "code": code, "seconds": seconds, "text": out.getvalue()[:4000]}))


if __name__ == "__main__":
    main()

"""Files that input specifications name: .npy, .npz, JSON and images. Nothing here unpickles or runs anything.

Sizes that a file claims are checked against the file before memory is taken for them.
"""

from __future__ import annotations

import ast
import io
import json
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from ..base.errors import InputError
from ..base.extras import install
from ..base.files import opened
from ..graph.dtypes import Array
from .generation import MAX_BYTES
from .image_sizes import MAX_PIXELS, check_image, image_kind, tiff_fields
from .json_arrays import json_arrays

__all__ = ["image_array", "image_loss", "members", "read_array", "read_json", "read_npy"]

_DTYPE = re.compile(r"[<>|=]?([?]|b1|f[248]|f1[26]|c(8|16|24|32)|[iu][1248])")
"""Long double numbers as well, of which MegEngine keeps what float64 holds."""
_MAX_HEADER = 2**16
_PART = 2**22
_SMALL_NPZ = 2**28
"""Bytes that the members of any .npz may take together."""
_UNPACKED = 64
"""Above that, bytes that they may take for each byte of the file; a file of zeros alone comes to more."""
_BATCHED, _CHW = 4, 3
_BYTE = 8


def read_array(path: str, open_image: Callable[[Array], Array]) -> Array:
    """Read a .npy file or an image, told apart by the first bytes, as in MegEngine, whatever the file's name.

    Args:
        path: the file.
        open_image: brings a decoded image, uint8 [H, W, 3] in BGR order, to the wanted layout.

    Raises:
        InputError: it cannot be read, or is neither.
    """
    with _opened(path) as f:
        if f.read(6) == b"\x93NUMPY":
            f.seek(0)
            return read_npy(f, os.fstat(f.fileno()).st_size, path)
        f.seek(0)
        raw = f.read()
    kind = image_kind(raw)
    if kind is not None:
        return open_image(_decoded(raw, kind, path))
    if raw[:1] == b"\x80" or path.lower().endswith((".pkl", ".pickle")):
        raise InputError(_pickled(path))
    raise InputError(f"{path} is neither an image that OpenCV reads nor .npy, .npz or .json")


def _opened(path: str) -> BinaryIO:
    try:
        return opened(path, "input data")
    except (OSError, ValueError) as e:
        reason = (e.strerror or str(e)) if isinstance(e, OSError) else str(e)
        raise InputError(f"cannot read {path}: {reason}") from None


def _pickled(path: str) -> str:
    return (
        f"{path} holds pickled Python objects, which loadrun never unpickles; convert it once where it was created: "
        "numpy.save('data.npy', numpy.asarray(array, 'float32'))"
    )


def read_npy(f: BinaryIO, size: int, path: str) -> Array:
    """Read an array in numpy's .npy format, of any byte order.

    Args:
        f: at the start of the array.
        size: bytes that the array's file holds.
        path: name for messages.

    Returns:
        numbers, complex ones included, or booleans in the machine's byte order; a 0-d array has shape (1,).

    Raises:
        InputError: the header is malformed, the data are fewer than it says, or they are not numbers.
    """
    head = f.read(12)
    wide = len(head) == 12 and head[6] > 1
    if len(head) < 10 or head[:6] != b"\x93NUMPY" or head[6] not in (1, 2, 3) or (head[6] > 1 and not wide):
        raise InputError(f"{path} is not a .npy array")
    length = struct.unpack_from("<I" if wide else "<H", head, 8)[0]
    start = 12 if wide else 10
    if length > _MAX_HEADER:
        raise InputError(f"{path} is not a .npy array: its header takes {length} bytes")
    text = head[start:] + f.read(max(0, length - (len(head) - start)))
    if len(text) < length:
        raise InputError(f"{path} is not a .npy array: it ends within its header")
    descr, fortran, shape = _header(text[:length], path)
    if isinstance(descr, str) and re.fullmatch(r"[<>|=]?O\d*", descr):
        raise InputError(_pickled(path))
    match = _DTYPE.fullmatch(descr) if isinstance(descr, str) else None
    if match is None:
        raise InputError(f"{path} holds {descr!r:.80}; expected plain numbers or booleans")
    try:
        dtype = np.dtype(str(descr))
    except TypeError:
        raise InputError(f"{path} holds {descr!r}, which numpy does not have on this machine") from None
    count = math.prod(shape)
    take = count * dtype.itemsize
    if take > min(size - start - length, MAX_BYTES):
        raise InputError(
            f"{path} should hold {dtype} {list(shape)}, which takes {take} bytes; it has {size - start - length}"
        )
    if math.prod(max(n, 1) for n in shape) * dtype.itemsize > MAX_BYTES:
        raise InputError(
            f"{path} should hold {dtype} {list(shape)[:8]}, which is more than {MAX_BYTES} bytes"
        )
    flat = _bytes(f, text[length:], take, path)
    if dtype.kind == "b":
        values: Array = flat != 0
    else:
        with np.errstate(all="ignore"):
            values = flat.view(dtype).astype(dtype.newbyteorder("="), copy=False)
            if dtype.kind == "c":
                values = values.astype(np.complex128) if values.dtype.itemsize > 16 else values
            elif values.dtype.itemsize > 8:
                values = values.astype(np.float64)
    array = values.reshape(shape[::-1]).T if fortran else values.reshape(shape)
    return array.reshape(1) if array.ndim == 0 else array


def _bytes(f: BinaryIO, begun: bytes, take: int, path: str) -> Array:
    """Read the data of an array to where they stay."""
    flat = np.empty(take, np.uint8)
    at = min(len(begun), take)
    flat[:at] = np.frombuffer(begun[:at], np.uint8)
    while at < take:
        part = f.read(min(take - at, _PART))
        if not part:
            raise InputError(f"{path} ends after {at} of {take} bytes of data")
        flat[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return flat


def _header(text: bytes, path: str) -> tuple[Any, bool, tuple[int, ...]]:
    try:
        header = ast.literal_eval(text.decode("latin1").strip())
        shape = header["shape"]
        if (
            set(header) != {"descr", "fortran_order", "shape"}
            or not isinstance(shape, tuple)
            or len(shape) > 32
        ):
            raise ValueError("unknown fields")
        if any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"shape {shape}")
        return header["descr"], bool(header["fortran_order"]), shape
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError) as e:
        raise InputError(f"{path} is not a .npy array: {type(e).__name__} in its header") from None


def members(path: str) -> dict[str, Callable[[], Array]]:
    """Return the arrays of an .npz or .json file by name, each read when it is called for.

    Raises:
        InputError: the file cannot be read or is malformed.
    """
    if path.lower().endswith(".json"):
        arrays = read_json(path)
        return {name: lambda a=array: a for name, array in arrays.items()}  # type: ignore[misc]
    with _opened(path) as f:
        whole = os.fstat(f.fileno()).st_size
        try:
            with zipfile.ZipFile(f) as z:
                entries = {i.filename: i for i in z.infolist()}
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, OverflowError) as e:
            raise InputError(f"{path} is not an .npz archive: {e}") from None
    claimed, limit = sum(i.file_size for i in entries.values()), max(_SMALL_NPZ, _UNPACKED * whole)
    if claimed > limit:
        raise InputError(
            f"{path} takes {whole} bytes and would unpack to {claimed}; save it with numpy.savez, without compression"
        )

    def reader(entry: zipfile.ZipInfo) -> Callable[[], Array]:
        return lambda: _member(path, entry)

    return {name.removesuffix(".npy"): reader(entry) for name, entry in entries.items()}


def _member(path: str, entry: zipfile.ZipInfo) -> Array:
    shown = f"{path}!{entry.filename.removesuffix('.npy')}"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(
            f"{shown} is packed by method {entry.compress_type}; numpy writes stored and deflated ones"
        )
    try:
        with _opened(path) as f, zipfile.ZipFile(f) as z, z.open(entry) as packed:
            return read_npy(io.BufferedReader(packed), entry.file_size, shown)  # type: ignore[type-var]
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError, struct.error) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"{shown} cannot be unpacked: {e}") from None


def read_json(path: str) -> dict[str, Array]:
    """Read load_and_run's form: ``{"name": {"shape": [...], "type": "float32", "raw": [...]}}``.

    Whole-number types are rounded to nearest, halves away from zero, as load_and_run does.

    Raises:
        InputError: the file has another form, a raw list of the wrong length, or numbers beyond the type.
    """
    with _opened(path) as f:
        raw = f.read()
    try:
        return json_arrays(raw.decode(json.detect_encoding(raw)))
    except InputError as e:
        raise InputError(f"{path}: {e}") from None
    except ValueError as e:
        raise InputError(f"{path} is not JSON: {e}") from None


_PNG = b"\x89PNG\r\n\x1a\n"
_DEPTH, _COLOURS = 24, 25
"""Where a PNG says how many bits its numbers have, and what they are; 4 in that is an alpha channel."""
_TIFF_BITS, _TIFF_CHANNELS, _TIFF_COLOURS = 258, 277, 262
"""Tags under which a TIFF says the same."""


def image_loss(path: str) -> str:
    """Say what decoding a picture to 8 bits and three colours loses; empty for nothing.

    Args:
        path: a file that was decoded; what is no PNG, TIFF or PNM leaves out nothing that is known.
    """
    with _opened(path) as f:
        raw = f.read()
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


def _cv2(why: str) -> ModuleType:
    """Import OpenCV, which images alone need.

    Raises:
        InputError: it is not installed.
    """
    try:
        import cv2  # an optional dependency
    except ImportError:
        raise InputError(
            f"{why}, which OpenCV reads: {install('images')} (any installed cv2 "
            "serves, so keep an opencv-python that is there), or give the data as .npy"
        ) from None
    return cv2


def _decoded(raw: bytes, kind: str, path: str) -> Array:
    """Decode pixels to uint8 [H, W, 3] in BGR order."""
    try:
        check_image(raw)
    except ValueError as e:
        raise InputError(f"{path} is a {kind} image that is damaged or cut off: {e}") from None
    # OpenCV reads its own limit (2**30 pixels, 3 GB) once, when it is imported.
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MAX_PIXELS))
    cv2 = _cv2(f"{path} is a {kind} image")
    with _quiet(cv2):
        try:
            pixels: Array | None = cv2.imdecode(np.frombuffer(raw, np.uint8), cv2.IMREAD_COLOR)
        except cv2.error as e:
            raise InputError(f"{path} is a {kind} image that OpenCV refuses: {_cv_reason(e)}") from None
    if pixels is None:
        raise InputError(f"{path} is a {kind} image that is damaged or cut off")
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
    cv2 = _cv2("an image is to be fed")
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
        try:
            pixels = cv2.resize(pixels, (width, height))
        except cv2.error as e:
            raise InputError(f"OpenCV cannot resize to {height} x {width}: {_cv_reason(e)}") from None
    if channels == 1:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)[:, :, None]
    array = pixels if last else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(array if len(axes) == _CHW else array[None])

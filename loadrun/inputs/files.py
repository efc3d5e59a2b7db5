"""Files named in input specifications: .npy, .npz, JSON and images. Nothing here unpickles or runs code.

Sizes that a file claims are checked against the file before memory is taken for them.
"""

import ast
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Callable
from copy import copy
from typing import Any, BinaryIO

import numpy as np

from ..base.archives import DAMAGE
from ..base.errors import InputError, reason
from ..base.files import opened
from ..graph.dtypes import Array
from .generation import MAX_BYTES
from .pictures import decoded, image_kind, loss

_TYPES = {"float32": "f4", "float": "f4", "int32": "i4", "int": "i4", "int8": "i1", "uint8": "u1"}
_FORM = 'expected {"name": {"shape": [...], "type": "float32", "raw": [...]}} with a type of ' + ", ".join(
    _TYPES
)


def _array(name: str, fields: object) -> Array:
    shape, kind, raw = (
        (fields.get(k) for k in ("shape", "type", "raw")) if isinstance(fields, dict) else (None,) * 3
    )
    if shape is None or kind is None or raw is None:
        raise InputError(f"{_FORM}: {name!r:.80} lacks one of the three")
    if not isinstance(shape, list) or len(shape) > 32 or any(type(n) is not int or n < 0 for n in shape):
        raise InputError(f"{name!r:.80}: the shape must be a list of whole numbers, found {shape!r:.80}")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InputError(f"{_FORM}: the type of {name!r:.80} is {kind!r:.40}")
    if not isinstance(raw, list) or not all(isinstance(n, (int, float)) for n in raw):
        raise InputError(f"{_FORM}: the raw list of {name!r:.80} holds something else than numbers")
    if len(raw) != math.prod(shape):
        raise InputError(
            f"{name!r:.80}: shape {shape} takes a raw list of {math.prod(shape)} numbers, found {len(raw)}"
        )
    try:
        values = np.array(raw, np.float64).reshape(shape)
    except (ValueError, OverflowError):
        raise InputError(f"{name!r:.80}: no array has the shape {shape}, or holds the numbers") from None
    array = _typed(values, np.dtype(_TYPES[kind]), name)
    return array.reshape(1) if array.ndim == 0 else array


def _typed(values: Array, dtype: np.dtype[Any], name: str) -> Array:
    if dtype.kind in "iu":
        values = np.trunc(values + np.copysign(0.5, values))
        limits = np.iinfo(dtype)
        if not ((values >= limits.min) & (values <= limits.max)).all():
            raise InputError(f"{name!r:.80}: the raw list holds numbers that {dtype} does not")
    with np.errstate(over="ignore"):
        return values.astype(dtype)


_DTYPE = re.compile(r"[<>|=]?([?]|b1|f[248]|f1[26]|c(8|16|24|32)|[iu][1248])")
"""Includes long double, which MegEngine converts to float64."""
_MAX_HEADER = 2**16
_PART = 2**22
_SMALL_NPZ = 2**28
"""Maximum bytes of all members of any .npz."""
_UNPACKED = 64
"""Above that, maximum bytes per byte of the file; a file of nothing but zeros would exceed it."""


def read_array(path: str, open_image: Callable[[Array], Array]) -> Array:
    """Read a .npy file or an image, distinguished by the first bytes, as in MegEngine, whatever the file's name.

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
        return open_image(decoded(raw, kind, path))
    # A pickle's first byte, and the number of its protocol.
    if re.match(rb"\x80[\x02-\x05]", raw) or path.lower().endswith((".pkl", ".pickle")):
        raise InputError(_pickled(path))
    raise InputError(f"{path} is neither an image nor .npy, .npz or .json")


def _opened(path: str) -> BinaryIO:
    try:
        return opened(path, "input data")
    except (OSError, ValueError) as e:
        raise InputError(f"cannot read {path}: {reason(e)}") from None


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
    head = f.read(8)
    width = 4 if head[6:7] > b"\x01" else 2
    written = f.read(width)
    if head[:6] != b"\x93NUMPY" or head[6:7] not in (b"\x01", b"\x02", b"\x03") or len(written) < width:
        raise InputError(f"{path} is not a .npy array")
    length = int.from_bytes(written, "little")
    if length > _MAX_HEADER:
        raise InputError(f"{path} is not a .npy array: its header takes {length} bytes")
    text = f.read(length)
    if len(text) < length:
        raise InputError(f"{path} is not a .npy array: it ends within its header")
    left = size - 8 - width - length
    descr, fortran, shape = _header(text, path)
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
    if take > min(left, MAX_BYTES):
        raise InputError(f"{path} should hold {dtype} {list(shape)}, which takes {take} bytes; it has {left}")
    if math.prod(max(n, 1) for n in shape) * dtype.itemsize > MAX_BYTES:
        raise InputError(
            f"{path} should hold {dtype} {list(shape)[:8]}, which is more than {MAX_BYTES} bytes"
        )
    flat = _bytes(f, take, path)
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


def _bytes(f: BinaryIO, take: int, path: str) -> Array:
    """Read the data of an array into its final memory."""
    flat = np.empty(take, np.uint8)
    at = 0
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
        except DAMAGE as e:
            raise InputError(f"{path} is not an .npz archive: {e}") from None
    claimed, limit = sum(i.file_size for i in entries.values()), max(_SMALL_NPZ, _UNPACKED * whole)
    if claimed > limit:
        raise InputError(
            f"{path} takes {whole} bytes and would unpack to {claimed}; save it with numpy.savez, without compression"
        )

    def reader(entry: zipfile.ZipInfo) -> Callable[[], Array]:
        return lambda: _member(path, z, entry)

    return {name.removesuffix(".npy"): reader(entry) for name, entry in entries.items()}


def _member(path: str, directory: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    """Read a member of an archive whose directory was read before; it may name as many as there are testcases."""
    shown = f"{path}!{entry.filename.removesuffix('.npy')}"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(
            f"{shown} is packed by method {entry.compress_type}; numpy writes stored and deflated ones"
        )
    archive = copy(directory)
    try:
        with _opened(path) as archive.fp, archive.open(entry) as packed:
            return read_npy(io.BufferedReader(packed), entry.file_size, shown)  # type: ignore[type-var]
    except DAMAGE as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"{shown} cannot be unpacked: {e}") from None
    finally:
        archive.fp = None


def read_json(path: str) -> dict[str, Array]:
    """Read load_and_run's form: ``{"name": {"shape": [...], "type": "float32", "raw": [...]}}``.

    Integer types are rounded to nearest, halves away from zero, as load_and_run does.

    Raises:
        InputError: the file has another form, a raw list of the wrong length, or numbers beyond the type.
    """
    with _opened(path) as f:
        raw = f.read()
    try:
        arrays = json.loads(raw)
        if not isinstance(arrays, dict):
            raise InputError(f"{_FORM}: found a {type(arrays).__name__}")
        return {name: _array(name, fields) for name, fields in arrays.items()}
    except InputError as e:
        raise InputError(f"{path}: {e}") from None
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: {_FORM}: {type(e).__name__}: {str(e)[:100]}") from None


def image_loss(path: str) -> str:
    """Describe what decoding an image to 8 bits and three colours loses; empty for nothing.

    Args:
        path: a file that was decoded.
    """
    with _opened(path) as f:
        return loss(f.read())

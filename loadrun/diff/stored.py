"""Values of variables from elsewhere: folders of load_and_run, .npz files, folders of .npy files.

load_and_run's ``--bin_io_dump DIR`` writes one file for every variable and ``--bin_out_dump DIR`` one for every output:

| bytes | content |
| --- | --- |
| 0 | u32, the length of the text; u32, the number of the dtype; u32, the number of sizes that follow, 7 |
| 12 | 7 times u32: the shape, filled up with zeros |
| 40 | the text: how MegEngine prints the variable, its name behind ``name:`` |
| | the values |
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from math import prod
from pathlib import Path
from struct import unpack_from

import numpy as np

from ..dtypes import Array
from ..errors import FormatError, InputError
from ..graph import Var
from ..inputs.files import members, read_array

__all__ = ["StoredValues", "read_values"]

_DTYPES = {0: "<f4", 1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 8: "<f2", 11: "?"}
"""numpy's dtypes by MegEngine's numbers of those that have no scale."""
_NAME = re.compile(r"name:(.*?), slot:|name=([^,}]*)")
_ID = re.compile(r"var=\{id:(\d+)")


class StoredValues:
    """Arrays by variable name.

    Args:
        arrays: name and array of each, in the order in which they were computed where that is known.
    """

    def __init__(self, arrays: Sequence[tuple[str, Array]]) -> None:
        self._arrays = list(arrays)
        self._names: dict[str, Array] = {}
        for name, array in arrays:
            self._names.setdefault(name, array)

    def __len__(self) -> int:
        return len(self._arrays)

    def names(self) -> list[str]:
        """The names, once each."""
        return list(self._names)

    def of(self, var: Var) -> Array | None:
        """The value that has a variable's name."""
        return self._names.get(var.name or "")


def read_values(path: str | os.PathLike[str]) -> StoredValues:
    """Read stored values.

    Args:
        path: a folder of load_and_run's ``--bin_io_dump`` or ``--bin_out_dump``, a folder of .npy files that are called
            like variables, or an .npz file.

    Raises:
        InputError: the folder holds nothing of the kind.
        FormatError: a file is damaged.
    """
    place = Path(path)
    if place.is_dir():
        arrays = [p for p in sorted(place.iterdir()) if p.is_file()]
        if any(p.suffix == ".npy" for p in arrays):
            return StoredValues([(p.stem, _array(p)) for p in arrays if p.suffix == ".npy"])
        if not arrays:
            raise InputError(f"{place}: the folder is empty; expected files of --bin_io_dump or .npy files")
        return StoredValues([read_binary_dump(p) for p in sorted(arrays, key=_number)])
    return StoredValues([(name, read()) for name, read in members(str(place)).items()])


def _array(path: Path) -> Array:
    return read_array(str(path), lambda pixels: pixels)


def _number(path: Path) -> tuple[int, str]:
    """Files of --bin_io_dump are numbered in hexadecimal."""
    return (int(path.name, 16), path.name) if re.fullmatch("[0-9a-f]+", path.name) else (1 << 62, path.name)


def read_binary_dump(path: Path) -> tuple[str, Array]:
    """Name and value of one file that load_and_run wrote.

    Raises:
        FormatError: the file is not of that kind, or shorter than its shape says.
    """
    data = path.read_bytes()
    if len(data) < 40:
        raise FormatError(f"{path}: {len(data)} bytes are too few for a file of --bin_io_dump")
    length, kind, ndim = unpack_from("<III", data)
    if ndim > 7 or 40 + length > len(data) or kind not in _DTYPES:
        raise FormatError(f"{path}: not a file of --bin_io_dump (text of {length} bytes, dtype {kind})")
    sizes = unpack_from("<7I", data, 12)
    shape = tuple(n for n in sizes if n)
    dtype = np.dtype(_DTYPES[kind])
    count = prod(shape)
    if 40 + length + count * dtype.itemsize > len(data):
        raise FormatError(f"{path}: {list(shape)} {dtype} need more bytes than the file has")
    text = data[40 : 40 + length].decode("utf-8", "replace")
    found = _NAME.search(text)
    name = next((g for g in found.groups() if g), "") if found else ""
    return name, np.frombuffer(data, dtype, count, 40 + length).reshape(shape)

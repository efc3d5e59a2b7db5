"""Weights outside of a dump: graph and testcases stand in a small file, which names the weights by digest.

Such a file begins with the 8 bytes of `WEIGHTS_MAGIC`, the length of a table as u64, and the table; a dump with its
testcases follows, in which each tensor that lies outside is a single zero. MegEngine refuses it, having no weights
outside. The table is a JSON object: ``files``, with the name, the size and the SHA-256 of each, and ``tensors``, with
the number of each tensor among the stored ones, its file, its offset there and its shape.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from struct import pack, unpack_from
from typing import Any

import numpy as np

from ..base.errors import FormatError, InputError
from ..base.files import mapped_at, mapped_file
from ..base.registry import late
from ..base.schema import integer, items, record, text
from ..base.writing import replacing
from ..compare.record import WEIGHTS_MAGIC
from ..graph import Graph, Opr, StoredTensor
from ..graph.dtypes import encode, nbytes
from ..testcase import Bundle

with late(__name__):
    import hashlib
    import json

_SMALLEST = 4096
"""Bytes of a tensor from which on it lies outside."""
_ALIGNED = 64
_PIECE = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WHERE = "the table of external weights"
_WHOLE = integer(0, 1 << 62)
_TABLE = record(
    {
        "files": items(record({"name": text, "bytes": _WHOLE, "sha256": text})),
        "tensors": items(
            record({"number": _WHOLE, "file": _WHOLE, "offset": _WHOLE, "shape": items(_WHOLE)})
        ),
    }
)
_digests: dict[tuple[str, int, int], str] = {}


def _stored(graph: Graph) -> Iterator[tuple[Opr, int]]:
    """Yield the stored tensors of a graph: operator and number in it, in the order of a file."""
    for opr in graph.oprs:
        if opr.type != "Host2DeviceCopy":
            yield from ((opr, i) for i, t in enumerate(opr.tensors) if t.data is not None)


def _digest(path: str) -> str:
    """Return the SHA-256 of a file; once, unless it is written to."""
    status = os.stat(path)
    key = os.path.abspath(path), status.st_size, status.st_mtime_ns
    if key not in _digests:
        digest = hashlib.sha256()
        with open(path, "rb") as f:
            while piece := f.read(_PIECE):
                digest.update(piece)
        _digests[key] = digest.hexdigest()
    return _digests[key]


class WeightsBeside:
    """Takes the weights out of a graph while its dump is written.

    A file in the dump's folder, or in one of those named, that the weights are mapped from serves as it is, such as the
    external data of an ONNX model. Other weights are written into one file, ``<sha256>.weights``, unless it is there.

    Args:
        graph: the graph; it is whole again when the context ends.
        target: the file that will hold the dump.
        folders: further folders of weights.
    """

    def __init__(self, graph: Graph, target: str | os.PathLike[str], folders: Sequence[str] = ()) -> None:
        self._target = os.path.abspath(target)
        self._folders = [os.path.dirname(self._target), *map(os.path.abspath, folders)]
        self._large = [
            (number, opr, i)
            for number, (opr, i) in enumerate(_stored(graph))
            if (data := opr.tensors[i].data) is not None and data.size >= _SMALLEST
        ]
        self._kept: list[tuple[Opr, int, StoredTensor]] = []
        self.table: dict[str, list[dict[str, object]]] = {"files": [], "tensors": []}

    def __enter__(self) -> WeightsBeside:
        """Write the weights that no file holds yet, and leave single zeros in the graph."""
        numbers: dict[str, int] = {}
        places = [self._place(opr.tensors[i]) for _, opr, i in self._large]
        unplaced = [
            opr.tensors[i] for (_, opr, i), place in zip(self._large, places, strict=True) if place is None
        ]
        path, offsets = self._written(unplaced) if unplaced else ("", iter(()))
        for (number, opr, i), place in zip(self._large, places, strict=True):
            tensor = opr.tensors[i]
            file, offset = (path, next(offsets)) if place is None else place
            if file not in numbers:
                numbers[file] = len(numbers)
                entry = {
                    "name": os.path.basename(file),
                    "bytes": os.path.getsize(file),
                    "sha256": _digest(file),
                }
                self.table["files"].append(entry)
            shape = list(tensor.shape or ())
            place_in = {"number": number, "file": numbers[file], "offset": offset, "shape": shape}
            self.table["tensors"].append(place_in)
        for _, opr, i in self._large:
            tensor = opr.tensors[i]
            zero = encode(np.zeros(1, tensor.dtype.np), tensor.dtype)
            self._kept.append((opr, i, tensor))
            opr.tensors[i] = replace(tensor, shape=(1,), data=zero)
        return self

    def __exit__(self, *_: object) -> None:
        """Put the weights back."""
        for opr, i, tensor in self._kept:
            opr.tensors[i] = tensor

    def head(self) -> bytes:
        """Return what the file begins with."""
        table = json.dumps(self.table, separators=(",", ":")).encode()
        return WEIGHTS_MAGIC + pack("<Q", len(table)) + table

    def _place(self, tensor: StoredTensor) -> tuple[str, int] | None:
        """Return the file that a tensor is mapped from, and its offset there, if that file can serve."""
        place = None if tensor.data is None else mapped_at(tensor.data)
        if place is None or os.path.dirname(place[0]) not in self._folders or place[0] == self._target:
            return None
        return place

    def _written(self, tensors: Sequence[StoredTensor]) -> tuple[str, Iterator[int]]:
        """Write tensors into a file that is named by its digest; return its path and their offsets."""
        digest, offsets, at = hashlib.sha256(), [], 0
        for piece in _aligned(tensors):
            digest.update(piece)
        for t in tensors:
            offsets.append(at)
            assert t.data is not None
            at += -(-t.data.size // _ALIGNED) * _ALIGNED
        path = os.path.join(self._folders[0], f"{digest.hexdigest()}.weights")
        if not (os.path.isfile(path) and os.path.getsize(path) == at and _digest(path) == digest.hexdigest()):
            with replacing(path) as f:
                for piece in _aligned(tensors):
                    f.write(piece)
        return path, iter(offsets)


def _aligned(tensors: Sequence[StoredTensor]) -> Iterator[memoryview | bytes]:
    for t in tensors:
        assert t.data is not None
        yield np.ascontiguousarray(t.data).data
        yield bytes(-t.data.size % _ALIGNED)


class ExternalWeights:
    """The weights that a file names.

    Args:
        data: the file, which begins with `WEIGHTS_MAGIC`.
        path: its name.
        folders: folders of weights, looked into before the file's own.

    Raises:
        FormatError: the table is damaged.
    """

    def __init__(self, data: memoryview, path: str, folders: Sequence[str | os.PathLike[str]]) -> None:
        length = unpack_from("<Q", data, 8)[0] if len(data) >= 16 else len(data)
        if length > len(data) - 16:
            raise FormatError(f"{_WHERE} is cut off", offset=8, path=path)
        try:
            table: Any = json.loads(bytes(data[16 : 16 + length]))
        except (ValueError, RecursionError):
            table = None
        self.start = 16 + length
        self._path = path
        try:
            self._table = _TABLE(table, _WHERE)
            for file in self._table["files"]:
                if file["name"] != os.path.basename(file["name"]) or not _DIGEST.fullmatch(file["sha256"]):
                    raise FormatError(f"{_WHERE}: {file['name']!r} is not a plain name with a SHA-256")
        except FormatError as e:
            e.path = path
            raise
        self._folders = [*(os.fspath(f) for f in folders), os.path.dirname(path) or "."]

    def fill(self, bundle: Bundle, *, copy: bool = False) -> None:
        """Put the weights into the graph that was read, as views of the files that hold them.

        Args:
            bundle: the dump behind the table.
            copy: read them into memory.

        Raises:
            InputError: a file is missing, or none of that name has the right content.
            FormatError: the table does not fit the graph or the files.
        """
        files = [self._open(f, bundle, copy=copy) for f in self._table["files"]]
        stored = list(_stored(bundle.graph))
        for place in self._table["tensors"]:
            if place["number"] >= len(stored) or place["file"] >= len(files):
                raise FormatError(f"{_WHERE}: there is no tensor {place['number']}", path=self._path)
            opr, i = stored[place["number"]]
            tensor, shape = opr.tensors[i], tuple(place["shape"])
            data, offset, size = files[place["file"]], place["offset"], nbytes(shape, tensor.dtype)
            if tensor.shape != (1,) or offset + size > len(data):
                raise FormatError(f"{_WHERE}: tensor {place['number']} does not fit", path=self._path)
            outside = np.frombuffer(data[offset : offset + size], np.uint8)
            opr.tensors[i] = replace(tensor, shape=shape, data=outside)

    def _open(self, file: dict[str, Any], bundle: Bundle, *, copy: bool) -> memoryview:
        """Map a file of weights: the first in the folders that has its digest, whatever its name."""
        names = f"{file['sha256']}.weights", file["name"]
        others = []
        for path in _candidates(self._folders, names, file["bytes"]):
            if os.path.getsize(path) == file["bytes"] and _digest(path) == file["sha256"]:
                data, watch = mapped_file(path, "the weights of a model", copy)
                bundle.facts.watches += () if watch is None else (watch,)
                return data
            if os.path.basename(path) in names:
                others.append(path)
        where = ", ".join(
            f if os.path.isdir(f) else f"{f} (no such folder)" for f in dict.fromkeys(self._folders)
        )
        if others:
            raise InputError(
                f"{self._path}: the weights differ: {others[0]} does not have the SHA-256 {file['sha256']} of the "
                "packed ones; name the folder of the right weights with --weights DIR"
            )
        raise InputError(
            f"{self._path}: the weights {file['name']} ({file['bytes']} bytes, SHA-256 {file['sha256']}) are not in "
            f"{where}; name their folder with --weights DIR"
        )


def _candidates(folders: Sequence[str], names: Sequence[str], size: int) -> Iterator[str]:
    """Yield files of these names in folders, then those of other names that have the size."""
    for folder in folders:
        yield from filter(os.path.isfile, (os.path.join(folder, name) for name in names))
    for folder in filter(os.path.isdir, dict.fromkeys(folders)):
        with os.scandir(folder) as entries:
            alike = [
                e.path for e in entries if e.is_file() and e.stat().st_size == size and e.name not in names
            ]
        yield from sorted(alike)

"""Checkpoints that MegEngine loads, written as pickles of protocol 4 by hand.

Python's pickler would name ``numpy._core`` under numpy 2, which the numpy of MegEngine's time does not have, and
loadrun's own classes, which only loadrun has.
"""

import io
import os
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any, BinaryIO, Protocol, runtime_checkable

import numpy as np

from ...base.errors import UsageError
from ...base.logger import get_logger
from ...base.writing import replacing
from ...graph.dtypes import Array, round_bfloat16
from ...tensors import Tensor
from ...tensors.access import qparams_of
from ...tensors.device import DEFAULT
from ...tensors.qparams import QParams, QuantMode
from ...tensors.quantized_dtypes import QuantDtypeMeta

_log = get_logger(__name__)
_TENSOR_CLASSES = {"Tensor": "Tensor", "Parameter": "Parameter"}


def save_checkpoint(state: object, target: str | os.PathLike[str] | BinaryIO) -> None:
    """Write a state dict that ``megengine.load`` and `load_checkpoint` read.

    A path is written under a temporary name and renamed, so that no half a file is ever seen.

    Args:
        state: a module (its ``state_dict()`` is written, which a message says), or
            dicts, lists and tuples of arrays, tensors, numbers,
            strings, bytes and None. Tensors come back as MegEngine tensors, arrays as arrays; quantized dtypes
            keep scale and zero point.
        target: path or open binary file.

    Raises:
        UsageError: a value of another type, an array of Python objects, or a container within itself.

    >>> import io, pickle, numpy as np
    >>> f = io.BytesIO()
    >>> save_checkpoint({"w": np.arange(3, dtype="float16")}, f)
    >>> pickle.loads(f.getvalue())["w"]
    array([0., 1., 2.], dtype=float16)
    """
    if callable(dump := getattr(state, "state_dict", None)):
        kind = type(state).__name__
        state = entries = dump()
        _log.info(
            "wrote the state dict of the %s, %d tensors, and no code: load_state_dict(file) puts it into a new one",
            kind,
            len(entries),
        )
    if isinstance(target, (str, os.PathLike)):
        with replacing(target) as f:
            _Emitter(f).file(state)
    else:
        _Emitter(target).file(state)


def pickled(value: object, name_of: Callable[[type], tuple[str, str] | None]) -> bytes:
    """Return what `save_checkpoint` writes.

    Args:
        value: what is to be written.
        name_of: gives module and name under which a reader finds a class, None for a class that may not be in it.

    Raises:
        UsageError: as `save_checkpoint`.
    """
    file = io.BytesIO()
    _Emitter(file, name_of).file(value)
    return file.getvalue()


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    mark = dict(dtype.metadata or {}).get("mgb_dtype") or {}
    return mark.get("name") == "BFloat16"


@runtime_checkable
class _HasNumpy(Protocol):
    """A tensor, MegEngine's or loadrun's."""

    def numpy(self) -> Array: ...


class _Emitter:
    """Writes one object; names, dtypes and arrays are remembered, so that they are written once."""

    def __init__(
        self, f: IO[bytes], name_of: Callable[[type], tuple[str, str] | None] = lambda kind: None
    ) -> None:
        self.f = f
        self.name_of = name_of
        self.memo: dict[Any, int] = {}
        self.alive: list[Any] = []
        self.open: set[int] = set()

    def file(self, value: object) -> None:
        """Write the whole pickle."""
        self.f.write(b"\x80\x04")
        self.value(value)
        self.f.write(b".")

    def remember(self, key: object) -> None:
        """Let the value just written be found again."""
        self.memo[key] = len(self.memo)
        self.f.write(b"\x94")

    def known(self, key: object) -> bool:
        """Refer to a value that was written before, if it was."""
        index = self.memo.get(key)
        if index is not None:
            self.f.write(b"j" + struct.pack("<I", index))
        return index is not None

    def value(self, value: object) -> None:
        """Any value."""
        if value is None:
            self.f.write(b"N")
        elif isinstance(value, (bool, np.bool_)):
            self.f.write(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.integer(int(value))
        elif type(value) is float:
            self.f.write(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, (bytes, bytearray)):
            self.blob(bytes(value))
        elif isinstance(value, np.ndarray):
            self.array(value)
        elif isinstance(value, np.generic):
            self.scalar(value)
        elif isinstance(value, (dict, list, tuple)):
            self.container(value)
        elif isinstance(value, type) and (name := self.name_of(value)):
            self.name(*name)
        elif isinstance(value, _HasNumpy) and type(value).__name__ in _TENSOR_CLASSES:
            self.tensor(value)
        else:
            raise UsageError(f"a checkpoint cannot hold a value of type {type(value).__name__}")

    def integer(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self.f.write(b"J" + struct.pack("<i", value))
            return
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(raw) > 255:
            raise UsageError(f"a whole number of {len(raw)} bytes is too long for a checkpoint")
        self.f.write(b"\x8a" + struct.pack("<B", len(raw)) + raw)

    def text(self, value: str) -> None:
        if self.known(("text", value)):
            return
        raw = value.encode("utf-8", "surrogatepass")
        self.f.write(b"X" + struct.pack("<I", len(raw)) + raw)
        self.remember(("text", value))

    def blob(self, value: bytes | memoryview) -> None:
        size = len(value)
        self.f.write(b"B" + struct.pack("<I", size) if size < 2**32 else b"\x8e" + struct.pack("<Q", size))
        self.f.write(value)

    def name(self, module: str, name: str) -> None:
        if not self.known(("name", module, name)):
            self.f.write(f"c{module}\n{name}\n".encode())
            self.remember(("name", module, name))

    def container(self, value: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> None:
        if id(value) in self.open:
            raise UsageError("a checkpoint cannot hold a container that contains itself")
        self.open.add(id(value))
        if isinstance(value, dict):
            if isinstance(value, OrderedDict):
                self.name("collections", "OrderedDict")
                self.f.write(b")R(")
            else:
                self.f.write(b"}(")
            for k, v in value.items():
                self.value(k)
                self.value(v)
            self.f.write(b"u")
        else:
            self.f.write(b"](" if isinstance(value, list) else b"(")
            for v in value:
                self.value(v)
            self.f.write(b"e" if isinstance(value, list) else b"t")
        self.open.discard(id(value))

    def dtype(self, dtype: np.dtype[Any]) -> None:
        metadata = dict(dtype.metadata or {})
        mark = metadata.get("mgb_dtype")
        key = ("dtype", dtype.str, repr(mark))
        if self.known(key):
            return
        if dtype.kind not in "biufc":
            raise UsageError(f"a checkpoint cannot hold arrays of {dtype}")
        self.name("numpy", "dtype")
        if _is_bfloat16(dtype):
            self.f.write(b"(")
            self.name("megengine.core._imperative_rt", "pybfloat16")
            self.f.write(b"\x89\x88tR")
            self.value((3, "<", None, None, None, 2, 2, 112))
            self.f.write(b"b")
            self.remember(key)
            return
        self.value((dtype.str[1:], False, True))
        self.f.write(b"R")
        order = {"=": "<", "|": "|"}.get(dtype.byteorder, dtype.byteorder)
        state = (4 if mark else 3, order, None, None, None, -1, -1, 0)
        self.value((*state, {"mgb_dtype": dict(mark)}) if mark else state)
        self.f.write(b"b")
        self.remember(key)

    def array(self, value: Array) -> None:
        if self.known(("array", id(value))):
            return
        self.alive.append(value)  # an id means nothing once its object is gone
        self.name("numpy.core.multiarray", "_reconstruct")
        self.f.write(b"(")
        self.name("numpy", "ndarray")
        self.value((0,))
        self.blob(b"b")
        self.f.write(b"tR(")
        self.integer(1)
        self.value(tuple(int(n) for n in value.shape))
        self.dtype(value.dtype)
        self.f.write(b"\x89")
        flat = np.ascontiguousarray(value).reshape(-1)
        if _is_bfloat16(value.dtype):
            flat = (round_bfloat16(flat).view(np.uint32) >> 16).astype("<u2")
        self.blob(flat.view(np.uint8).data if value.size else b"")
        self.f.write(b"tb")
        self.remember(("array", id(value)))

    def qparams(self, value: QParams) -> None:
        """Parameters of quantization, as an object with slots is written."""
        self.name("megengine.quantization.utils", type(value).__name__)
        self.f.write(b")\x81N}(")
        for name in value._names():
            self.text(name)
            self.quantizing(getattr(value, name))
        self.f.write(b"u\x86b")

    def quantizing(self, value: object) -> None:
        if isinstance(value, QuantMode):
            self.name("megengine.quantization.utils", "QuantMode")
            self.integer(value.value)
            self.f.write(b"\x85R")
        elif isinstance(value, QuantDtypeMeta):
            self.name("megengine.core.tensor.dtype", "QuantDtypeMeta")
            self.container(tuple(value))
            self.f.write(b"\x81")
        else:
            self.value(value)

    def scalar(self, value: np.generic) -> None:
        self.name("numpy.core.multiarray", "scalar")
        self.f.write(b"(")
        self.dtype(value.dtype)
        self.blob(value.tobytes())
        self.f.write(b"tR")

    def tensor(self, value: _HasNumpy) -> None:
        if self.known(("tensor", id(value))):
            return
        self.alive.append(value)
        array = value.numpy()
        self.name("megengine.tensor", _TENSOR_CLASSES[type(value).__name__])
        self.f.write(b"(")
        self.array(array)
        self.dtype(array.dtype)
        qparams = qparams_of(value) if isinstance(value, Tensor) else None
        self.text(str(value.device if isinstance(value, Tensor) else DEFAULT))
        self.f.write(b"t\x81}")
        if qparams is not None:
            self.f.write(b"(")
            self.text("qparams")
            self.qparams(qparams)
            self.f.write(b"u")
        self.f.write(b"b")
        self.remember(("tensor", id(value)))

"""Checkpoints that MegEngine loads, written as pickles of protocol 4.

Python's own pickler would name ``numpy._core`` under numpy 2, which the numpy of MegEngine's time does not have, and
loadrun's own classes, which only loadrun has.
"""

import io
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any, BinaryIO, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ...base.errors import UsageError
from ...base.logger import get_logger
from ...base.writing import replacing
from ...graph.dtypes import Array, round_bfloat16
from ...tensors import Tensor
from ...tensors.access import qparams_of
from ...tensors.quantized_dtypes import QParams, QuantDtypeMeta, QuantMode
from ...tensors.switches import DEFAULT

_log = get_logger(__name__)


class _Name(NamedTuple):
    """A name that a pickle refers to; it is not looked up here."""

    module: str
    name: str

    def __call__(self) -> None:
        """Do nothing: what rebuilds an object must look as if it could be called."""


_TENSOR_CLASSES = {n: _Name("megengine.tensor", n) for n in ("Tensor", "Parameter")}
_DTYPE, _NDARRAY = _Name("numpy", "dtype"), _Name("numpy", "ndarray")
_RECONSTRUCT, _SCALAR = (_Name("numpy.core.multiarray", n) for n in ("_reconstruct", "scalar"))
_BFLOAT16 = _Name("megengine.core._imperative_rt", "pybfloat16")
_ORDERED = _Name("collections", "OrderedDict")
_MODE = _Name("megengine.quantization.utils", "QuantMode")
_META = _Name("megengine.core.tensor.dtype", "QuantDtypeMeta")
_PLAIN: tuple[type[Any], ...] = (int, str, bytes, dict, list, tuple)


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
            _Pickler(f).file(state)
    else:
        _Pickler(target).file(state)


def pickled(value: object, name_of: Callable[[type], tuple[str, str] | None]) -> bytes:
    """Return what `save_checkpoint` writes.

    Args:
        value: what is to be written.
        name_of: gives module and name under which a reader finds a class, None for a class that may not be in it.

    Raises:
        UsageError: as `save_checkpoint`.
    """
    file = io.BytesIO()
    _Pickler(file, name_of).file(value)
    return file.getvalue()


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    mark = dict(dtype.metadata or {}).get("mgb_dtype") or {}
    return mark.get("name") == "BFloat16"


@runtime_checkable
class _HasNumpy(Protocol):
    """A tensor, MegEngine's or loadrun's."""

    def numpy(self) -> Array: ...


_PythonPickler: Any = pickle._Pickler


class _Pickler(_PythonPickler):  # type: ignore[misc]
    """Writes one object; in Python, as the pickler in C looks names up."""

    def __init__(
        self, f: IO[bytes], name_of: Callable[[type], tuple[str, str] | None] = lambda kind: None
    ) -> None:
        super().__init__(f, 4)
        self.name_of = name_of
        self.names: dict[tuple[str, str], _Name] = {}
        self.dtypes: dict[tuple[str, str], np.dtype[Any]] = {}
        self.open: set[int] = set()

    def file(self, value: object) -> None:
        """Write the whole pickle, without frames."""
        self.write(pickle.PROTO + b"\x04")
        self.save(value)
        self.write(pickle.STOP)

    def save(self, value: Any, save_persistent_id: bool = True) -> None:  # noqa: ANN401 - any value
        """Write a value, or refer to it where it was written before."""
        if isinstance(value, np.dtype):
            mark = dict(value.metadata or {}).get("mgb_dtype")
            value = self.dtypes.setdefault((value.str, repr(mark)), value)
        elif isinstance(value, _Name):
            value = self.names.setdefault(value, value)
        if id(value) in self.open:
            raise UsageError("a checkpoint cannot hold a container that contains itself")
        if (known := self.memo.get(id(value))) is not None:
            self.write(self.get(known[0]))
        elif isinstance(value, memoryview):
            self._contents(value)
        elif isinstance(value, QuantDtypeMeta):
            self._object(value, _META, tuple(value))
        elif isinstance(value, QParams):
            slots = {n: getattr(value, n) for n in value._names()}
            self._object(value, _Name(_MODE.module, type(value).__name__), (), (None, slots))
        elif type(value).__name__ in _TENSOR_CLASSES and isinstance(value, _HasNumpy):
            self._tensor(value)
        elif isinstance(value, (dict, list, tuple)) and not isinstance(value, _Name):
            self._container(value)
        else:
            super().save(_as_plain(value))

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - as above
        """Return how a value is rebuilt, NotImplemented for what pickles have opcodes for."""
        if isinstance(value, _Name):
            return value.name
        if isinstance(value, type) and (name := self.name_of(value)):
            return name[1]
        if isinstance(value, int) and value.bit_length() >= 8 * 255:
            size = value.bit_length() // 8 + 1
            raise UsageError(f"a whole number of {size} bytes is too long for a checkpoint")
        if isinstance(value, OrderedDict):
            return _ORDERED, (), None, None, iter(value.items())
        if value is None or isinstance(value, (bool, *_PLAIN)) or type(value) is float:
            return NotImplemented
        if isinstance(value, np.dtype):
            return _dtype(value)
        if isinstance(value, np.ndarray):
            state = (1, value.shape, value.dtype, False, _bytes_of(value))
            return _RECONSTRUCT, (_NDARRAY, (0,), b"b"), state
        if isinstance(value, np.generic):
            return _SCALAR, (value.dtype, value.tobytes())
        if isinstance(value, QuantMode):
            return _MODE, (value.value,)
        raise UsageError(f"a checkpoint cannot hold a value of type {type(value).__name__}")

    def save_global(self, value: Any, name: str | None = None) -> None:  # noqa: ANN401 - as above
        """Write a name."""
        module, name = value if isinstance(value, _Name) else self.name_of(value) or ("", "")
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(value)

    def _contents(self, value: memoryview) -> None:
        """Write the bytes of an array, which are not copied."""
        size = len(value)
        large = size >= 2**32
        self.write(
            (pickle.BINBYTES8 if large else pickle.BINBYTES) + size.to_bytes(8 if large else 4, "little")
        )
        self.write(value)

    def _object(self, value: object, name: _Name, args: tuple[Any, ...], state: object = None) -> None:
        """Write an object as its class, what that is made with, and attributes."""
        self.save(name)
        self.save(args)
        self.write(pickle.NEWOBJ)
        self.memoize(value)
        if state is not None:
            self.save(state)
            self.write(pickle.BUILD)

    def _tensor(self, value: _HasNumpy) -> None:
        array = value.numpy()
        qparams = qparams_of(value) if isinstance(value, Tensor) else None
        device = str(value.device if isinstance(value, Tensor) else DEFAULT)
        state = {} if qparams is None else {"qparams": qparams}
        self._object(value, _TENSOR_CLASSES[type(value).__name__], (array, array.dtype, device), state)

    def _container(self, value: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> None:
        self.open.add(id(value))
        super().save(value if isinstance(value, OrderedDict) else _as_plain(value))
        self.open.discard(id(value))


def _as_plain(value: Any) -> Any:  # noqa: ANN401 - as above
    """Return what is written of a value of a subclass: one of the class itself."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, (_Name, np.generic, QuantMode)):
        return value
    kind = next((k for k in _PLAIN if isinstance(value, k)), None)
    return value if kind is None or type(value) is kind else kind(value)


def _dtype(dtype: np.dtype[Any]) -> tuple[Any, ...]:
    mark = dict(dtype.metadata or {}).get("mgb_dtype")
    if dtype.kind not in "biufc":
        raise UsageError(f"a checkpoint cannot hold arrays of {dtype}")
    if _is_bfloat16(dtype):
        return _DTYPE, (_BFLOAT16, False, True), (3, "<", None, None, None, 2, 2, 112)
    order = "<" if dtype.byteorder == "=" else dtype.byteorder
    state = (4 if mark else 3, order, None, None, None, -1, -1, 0)
    return _DTYPE, (dtype.str[1:], False, True), (*state, {"mgb_dtype": dict(mark)}) if mark else state


def _bytes_of(value: Array) -> memoryview:
    _dtype(value.dtype)
    flat = np.ascontiguousarray(value).reshape(-1)
    if _is_bfloat16(value.dtype):
        flat = (round_bfloat16(flat).view(np.uint32) >> 16).astype("<u2")
    return memoryview(flat.view(np.uint8).data if value.size else b"")

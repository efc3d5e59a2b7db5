"""What a checkpoint's pickle holds as inert records, and the arrays and dtypes that these stand for.

A name is a `Global`, two strings; an array, a tensor or any other object is a `StoredObject`. Only containers and
bytes are made as the pickle asks for them: what does so is listed in `_CALLS`.
"""

import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ...base.errors import FormatError
from ...graph.dtypes import Array, DType
from ...graph.params import DTypeEnum

_MOST_AXES = 32
_LARGEST_KEY = 2**60
PER_ITEM = 64
"""Bytes that an entry of a container counts as."""
ADVICE = (
    "a checkpoint may hold numpy arrays, MegEngine tensors and plain containers; convert it once where it was created: "
    "megengine.save(module.state_dict(), 'weights.pkl')"
)
_DTYPE = re.compile(r"b1|[iu][1248]|f[248]|c8|c16")
BFLOAT16 = np.dtype(np.float32, metadata={"mgb_dtype": {"name": "BFloat16"}})
"""How bfloat16 is held: float32 numbers with MegEngine's name of the type."""
_BFLOAT16 = ("megengine.core._imperative_rt", "pybfloat16")
_TYPES = {
    np.dtype(t).name: np.dtype(t).str[1:]
    for t in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
} | {"bool_": "b1", "bool": "b1"}
TENSORS = {
    ("megengine.tensor", "Tensor"): "Tensor",
    ("megengine.tensor", "Parameter"): "Parameter",
    ("megengine.tensor", "tensor"): "Tensor",
    ("megengine.core.tensor", "Tensor"): "Tensor",
    ("megengine.core.tensor.raw_tensor", "RawTensor"): "Tensor",
    ("megengine.core.tensor_nn", "Parameter"): "Parameter",
    ("megengine.core.tensor_nn", "Buffer"): "Tensor",
    ("megengine.tensor_nn", "Parameter"): "Parameter",
    ("megengine.tensor_nn", "Buffer"): "Tensor",
}
"""Names of MegEngine's tensor classes in its releases."""
DTYPE = ("numpy", "dtype")
_RECONSTRUCT, _SCALAR = (("numpy.core.multiarray", n) for n in ("_reconstruct", "scalar"))
_FROMBUFFER = ("numpy.core.numeric", "_frombuffer")
ARRAYS = {_RECONSTRUCT: (3,), _SCALAR: (2,), _FROMBUFFER: (4,)}
"""What numpy writes arrays as, and how many arguments it gives."""
_FACTORIES = {k.__name__: k for k in (dict, list, set, int, float, str)}


@dataclass(frozen=True, eq=False)
class Global:
    """A name that the file refers to; it is never looked up.

    Attributes:
        at: byte offset at which the file names it.
    """

    module: str
    name: str
    at: int | None

    @property
    def key(self) -> tuple[str, str]:
        """The name under its newest home: numpy 2 and Python 3 moved some modules."""
        module = re.sub(r"^numpy\._core\b", "numpy.core", self.module)
        return {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module), self.name

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"[:200]


@dataclass(eq=False)
class StoredObject:
    """What a function would give or an object of a class would be: what it is made of, nothing that runs."""

    cls: Global
    args: tuple[Any, ...]
    state: Any = None


class Reader:
    """The file that is being read: where, and what it may still cost.

    Attributes:
        at: the place of what is being read, None when all has been.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at: int | None = 0
        self.budget = 4 * len(data) + (1 << 20)

    def fail(self, message: str) -> NoReturn:
        """Refuse the file."""
        raise FormatError(message, offset=self.at)

    def refuse(self, name: Global, what: str) -> NoReturn:
        """Refuse a name that the file wants to use."""
        raise FormatError(f"refuses to {what} {name}: {ADVICE}", offset=name.at)

    def spend(self, size: int) -> None:
        """Pay for `size` bytes that are copied."""
        self.budget -= size
        if self.budget < 0:
            self.fail("the pickle expands to more than four times its size")


def check_key(value: object) -> None:
    """Refuse a key with a costly or forgeable hash."""
    if type(value) is int and -_LARGEST_KEY < value < _LARGEST_KEY:
        return
    if value is not None and type(value) not in (str, bool):
        raise FormatError("a key is neither a string nor a small whole number")


def kind_of(value: object) -> str:
    """Name what a value is, for messages."""
    return f"the name {value}" if isinstance(value, Global) else f"of type {type(value).__name__}"


# ---- what a file may call, and make objects of


def _encode(reader: Reader, text: object, encoding: object) -> bytes:
    """Rebuild bytes as protocols below 3 write them."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        reader.fail("_codecs.encode may turn a latin1 string to bytes only")
    reader.spend(len(text))
    return text.encode("latin1")


def _ordered(reader: Reader, pairs: Collection[tuple[object, object]] = ()) -> OrderedDict[Any, Any]:
    reader.spend(PER_ITEM * len(pairs))
    for key, _ in pairs:
        check_key(key)
    return OrderedDict(pairs)


def _defaultdict(reader: Reader, factory: object = None) -> defaultdict[Any, Any]:
    if factory is None:
        return defaultdict(None)
    if not isinstance(factory, Global):
        reader.fail(f"the factory of a defaultdict is {kind_of(factory)}")
    module, name = factory.key
    if module != "builtins" or name not in _FACTORIES:
        reader.refuse(factory, "use as a factory")
    return defaultdict(_FACTORIES[name])


def _set(reader: Reader, items: Collection[object] = ()) -> set[Any]:
    reader.spend(PER_ITEM * len(items))
    for key in items:
        check_key(key)
    return set(items)


def _bytes(reader: Reader, data: object = b"", encoding: object = None) -> bytes:
    if encoding is not None:
        return _encode(reader, data, encoding)
    if not isinstance(data, (bytes, memoryview)):
        reader.fail("bytes and bytearray may be made of bytes only")
    reader.spend(len(data))
    return bytes(data)


def _reconstructor(reader: Reader, cls: object, base: object, state: object) -> StoredObject:
    """Make an instance of a class as protocols 0 and 1 do."""
    if not isinstance(cls, Global) or state is not None:
        reader.fail("copyreg._reconstructor may make instances of plain classes only")
    return made(reader, cls, ())


_CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): _ordered,
    ("collections", "defaultdict"): _defaultdict,
    ("builtins", "set"): _set,
    ("builtins", "frozenset"): lambda reader, *args: frozenset(_set(reader, *args)),
    ("builtins", "bytes"): _bytes,
    ("builtins", "bytearray"): _bytes,
    ("builtins", "complex"): lambda reader, real, imag: complex(real, imag),
    ("copyreg", "_reconstructor"): _reconstructor,
}
"""What is done at once; arguments that a function does not take are damage."""
_RECORDED = ARRAYS | {DTYPE: (1, 2, 3)}
"""What is recorded, and how many arguments it takes."""


def called(reader: Reader, function: Global, args: tuple[Any, ...]) -> object:
    """Return what a REDUCE gives: what one of the listed calls makes, or the record of another that is known."""
    if function.key in _CALLS:
        return _CALLS[function.key](reader, *args)
    if function.key in _RECORDED:
        if len(args) not in _RECORDED[function.key]:
            reader.fail(f"{function} is called with {len(args)} arguments")
    elif function.key not in TENSORS and function.module.partition(".")[0] != "megengine":
        reader.refuse(function, "call")
    return StoredObject(function, args)


def made(reader: Reader, cls: Global, args: tuple[Any, ...]) -> StoredObject:
    """Return the record of the object that a NEWOBJ makes."""
    if cls.key in _CALLS or cls.key in ARRAYS or cls.key[0] in ("builtins", "numpy"):
        reader.refuse(cls, "make an object of")
    return StoredObject(cls, args)


# ---- arrays and dtypes


def array_of(reader: Reader, stored: StoredObject) -> Array | np.generic:
    """Return an array or a number as numpy writes it."""
    key, args, state = stored.cls.key, stored.args, stored.state
    if key != _RECONSTRUCT and state is not None:
        reader.fail("an array gets its contents twice")
    if key == _SCALAR:
        dtype, raw = args
        return _array(reader, (), dtype, raw, False)[()]
    if key == _FROMBUFFER:
        raw, dtype, shape, order = args
        return _array(reader, shape, dtype, raw, order == "F")
    if not isinstance(args[0], Global) or args[0].key != ("numpy", "ndarray"):
        reader.fail(f"_reconstruct may make a numpy.ndarray only, here it is {kind_of(args[0])}")
    if args[1] != (0,):
        reader.fail("_reconstruct starts from an array of shape (0,), but the file has another shape")
    if state is None:
        reader.fail("an array has no contents")
    if not isinstance(state, tuple) or len(state) not in (4, 5):
        reader.fail("the state of an array is not a tuple of version, shape, dtype, order and contents")
    shape, dtype, fortran, raw = state[-4:]
    return _array(reader, shape, dtype, raw, fortran)


def _array(reader: Reader, shape: object, dtype: object, raw: object, fortran: object) -> Array:
    """Return contents of `raw` as an array of their own; every size is checked before memory is taken."""
    if not isinstance(dtype, StoredObject) or dtype.cls.key != DTYPE:
        reader.fail(f"the dtype of an array is {kind_of(dtype)}")
    if not isinstance(shape, tuple) or len(shape) > _MOST_AXES:
        reader.fail(f"the shape of an array is not a tuple of at most {_MOST_AXES} numbers")
    count, span = 1, 1
    for n in shape:
        if type(n) is not int or n < 0:
            reader.fail("the shape of an array is not a tuple of whole numbers from 0 on")
        count *= n
        span *= max(n, 1)
    if isinstance(raw, list):
        reader.fail("an array of Python objects is refused; convert it to numbers where it was created")
    if not isinstance(raw, (bytes, memoryview)):
        reader.fail(f"the contents of an array are {kind_of(raw)}, expected bytes")
    kind = dtype_of(reader, dtype)
    stored = np.dtype("<u2") if kind is BFLOAT16 else kind
    if span * stored.itemsize >= 2**62 or count * stored.itemsize != len(raw):
        reader.fail(
            f"an array of {stored} {str(list(shape))[:80]} takes {count * stored.itemsize} bytes, found {len(raw)}"
        )
    reader.spend(len(raw) * (2 if kind is BFLOAT16 else 1))
    value = np.frombuffer(raw, stored, count) if count else np.empty(0, stored)
    if kind is BFLOAT16:
        value = (value.astype(np.uint32) << 16).view(np.float32)
    native = kind.newbyteorder("=")
    return value.astype(native).view(native).reshape(shape, order="F" if fortran else "C")


def dtype_of(reader: Reader, stored: StoredObject) -> np.dtype[Any]:
    """Return a dtype, with the ``mgb_dtype`` metadata of quantized ones."""
    code, state = stored.args[0], stored.state
    if isinstance(code, Global) and code.key != _BFLOAT16:
        code = _TYPES.get(code.name) if code.key[0] == "numpy" else str(code)
    is_bfloat16 = isinstance(code, Global)
    if not is_bfloat16 and (not isinstance(code, str) or not _DTYPE.fullmatch(code)):
        shown = repr(code[:40]) if isinstance(code, str) else kind_of(code)
        reader.fail(f"dtype {shown} is refused; expected plain numbers or booleans")
    order, mark = "<", None
    if state is not None:
        if not isinstance(state, tuple) or not 5 <= len(state) <= 9:
            reader.fail("the state of a dtype is not as numpy writes it")
        order, mark = state[1], state[8] if len(state) == 9 else None
        if order not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            reader.fail("only dtypes of plain numbers are read, none with fields or sub-arrays")
    if is_bfloat16 and mark is None:
        return BFLOAT16
    dtype = np.dtype("u2" if is_bfloat16 else code).newbyteorder(">" if order == ">" else "<")
    return dtype if mark is None else np.dtype(dtype, metadata=_quantized(reader, dtype, mark))


def _quantized(reader: Reader, dtype: np.dtype[Any], metadata: object) -> dict[str, Any]:
    """MegEngine's mark of a quantized dtype, again and of plain values."""
    mark = metadata.get("mgb_dtype") if isinstance(metadata, dict) and len(metadata) == 1 else None
    if not isinstance(mark, dict):
        reader.fail("a dtype holds metadata that MegEngine does not write")
    name, scale, zero = mark.get("name"), mark.get("scale"), mark.get("zero_point")
    plain = isinstance(name, str) and _is_stored_as(name, dtype, zero)
    if not plain or type(scale) is not float or type(zero) not in (int, type(None)):
        reader.fail("a quantized dtype is not as MegEngine writes it: name, scale and zero_point")
    return {"mgb_dtype": {"name": name, "scale": scale} | ({} if zero is None else {"zero_point": zero})}


def _is_stored_as(name: str, stored: np.dtype[Any], zero: object) -> bool:
    """Return whether MegEngine has such a quantized dtype, with a zero point or without, in such numbers."""
    if not name.startswith("Quantized") or name not in DTypeEnum.__members__:
        return False
    dtype = DType(name)
    return dtype.np == stored.newbyteorder("=") and dtype.is_asymmetric == (zero is not None)

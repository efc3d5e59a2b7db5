"""The contents of a checkpoint's pickle as inert records, and the few calls that may rebuild arrays from it.

Nothing here imports a name that a file gives: a name is a `Global`, two strings. The names that mean something
are listed in `CALLS`, `TENSORS` and `_FACTORIES`; calling any other is refused, except that objects of unknown
classes become `StoredObject`, which holds their attributes and runs nothing.
"""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from ...base.errors import FormatError
from ...graph.dtypes import Array, DType
from ...graph.params import DTypeEnum

_MOST_AXES = 32
_PER_ITEM = 64
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
_FACTORIES: dict[str, Callable[[], Any]] = {
    "dict": dict,
    "list": list,
    "set": set,
    "int": int,
    "float": float,
    "str": str,
}


class Global(type):
    """A name that the file refers to; it is never looked up. It is a class, as the unpickler wants for objects.

    Attributes:
        at: byte offset at which the file names it.
    """

    machine: Machine
    module: str
    name: str
    at: int

    def __call__(cls, *args: Any) -> Any:  # noqa: ANN401 - what the call gives
        """Do what a REDUCE asks for."""
        return call(cls.machine, cls, args)

    def __setstate__(cls, state: object) -> None:
        """Refuse a BUILD of the name itself."""
        build(cls.machine, cls, state)

    @property
    def key(cls) -> tuple[str, str]:
        """The name under its newest home: numpy 2 and Python 3 moved some modules."""
        module = cls.module
        if module.startswith("numpy._core"):
            module = re.sub(r"^numpy\._core\b", "numpy.core", module)
        return {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module), cls.name

    def __str__(cls) -> str:
        return f"{cls.module}.{cls.name}"[:200]


def named(machine: Machine, module: str, name: str, at: int) -> Global:
    """Return the record of a name; a NEWOBJ of it makes what `make` gives."""

    def new(cls: Global, *args: Any, **keywords: Any) -> object:
        return make(machine, cls, (*args, keywords) if keywords else args)

    record = Global("Stored", (), {"__new__": new})
    record.machine, record.module, record.name, record.at = machine, module, name, at
    return record


class _Record:
    """Something that a BUILD gives attributes or contents."""

    machine: Machine

    def __setstate__(self, state: object) -> None:
        """Take what a BUILD gives."""
        build(self.machine, self, state)


_R = TypeVar("_R", bound=_Record)


def _of(machine: Machine, record: _R) -> _R:
    """Tell a record which reader it belongs to."""
    record.machine = machine
    return record


class _Ordered(OrderedDict[Any, Any], _Record):
    """An OrderedDict, whose BUILD is refused."""


class _Default(defaultdict[Any, Any], _Record):
    """A defaultdict, whose BUILD is refused."""


@dataclass(eq=False)
class DTypeDraft(_Record):
    """A numpy dtype that is being rebuilt: its code first, byte order and MegEngine's metadata later."""

    code: str
    bfloat16: bool = False
    big: bool = False
    metadata: dict[str, Any] | None = None

    @property
    def np(self) -> np.dtype[Any]:
        """The dtype, with the ``mgb_dtype`` metadata of quantized ones."""
        plain = np.dtype(self.code).newbyteorder(">" if self.big else "<")
        return plain if self.metadata is None else np.dtype(plain, metadata=self.metadata)


@dataclass(eq=False)
class ArrayDraft(_Record):
    """An array that is being rebuilt; `value` is None until its contents came."""

    value: Array | None = None


@dataclass(eq=False)
class PickledTensor(_Record):
    """A MegEngine tensor.

    Attributes:
        kind: ``Tensor`` or ``Parameter``.
        value: the array.
        state: what its ``__setstate__`` would get, unused here (parameters of quantization).
    """

    kind: str
    value: Any = None
    state: Any = None


@dataclass(eq=False)
class StoredObject(_Record):
    """An instance of a class that is not known here: its arguments and attributes, nothing that runs."""

    cls: Global
    args: Any = ()
    state: Any = None


class Machine(Protocol):
    """The pickle machine as the objects that it makes see it."""

    def error(self, message: str) -> FormatError:
        """Make the error for the opcode that is being read."""

    def fail(self, message: str) -> NoReturn:
        """Refuse the file at the opcode that is being read."""

    def refusal(self, name: Global, what: str) -> FormatError:
        """Return what to raise for a name that the file wants to use."""

    def spend(self, size: int) -> None:
        """Pay for `size` bytes that are copied."""

    def key(self, value: object) -> object:
        """Check a value that is to be a key."""


def raw_bytes(machine: Machine, value: object) -> memoryview:
    """Return bytes that an array may take its contents from.

    Raises:
        FormatError: they are none; a list means an array of Python objects.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value)
    if isinstance(value, list):
        machine.fail("an array of Python objects is refused; convert it to numbers where it was created")
    raise machine.error(f"the contents of an array are {_kind_of(value)}, expected bytes")


def _kind_of(value: object) -> str:
    return f"the name {value}" if isinstance(value, Global) else f"of type {type(value).__name__}"


def _array(machine: Machine, shape: object, dtype: object, raw: object, fortran: object) -> Array:
    """Return contents of `raw` as an array of their own; every size is checked before memory is taken."""
    if not isinstance(dtype, DTypeDraft):
        machine.fail(f"the dtype of an array is {_kind_of(dtype)}")
    if not isinstance(shape, tuple) or len(shape) > _MOST_AXES:
        machine.fail(f"the shape of an array is not a tuple of at most {_MOST_AXES} numbers")
    count, span = 1, 1
    for n in shape:
        if type(n) is not int or n < 0:
            machine.fail("the shape of an array is not a tuple of whole numbers from 0 on")
        count *= n
        span *= max(n, 1)
    data = raw_bytes(machine, raw)
    kind = dtype.np
    if span * kind.itemsize >= 2**62 or count * kind.itemsize != data.nbytes:
        machine.fail(
            f"an array of {kind} {str(list(shape))[:80]} takes {count * kind.itemsize} bytes, found {data.nbytes}"
        )
    order: Any = "F" if fortran else "C"
    machine.spend(data.nbytes * (2 if dtype.bfloat16 else 1))
    if dtype.bfloat16:
        wide = np.frombuffer(data, np.dtype("<u2"), count).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape, order=order).view(BFLOAT16)
    plain = np.dtype(dtype.code)
    value = (
        np.frombuffer(data, plain.newbyteorder(">" if dtype.big else "<"), count)
        if count
        else np.empty(0, plain)
    )
    value = value.astype(plain).reshape(shape, order=order)
    return value if dtype.metadata is None else value.view(np.dtype(plain, metadata=dtype.metadata))


# ---- the calls that a file may make


def _reconstruct(machine: Machine, cls: object, shape: object, kind: object) -> ArrayDraft:
    if not isinstance(cls, Global) or cls.key != ("numpy", "ndarray"):
        machine.fail(f"_reconstruct may make a numpy.ndarray only, here it is {_kind_of(cls)}")
    if shape != (0,):
        machine.fail("_reconstruct starts from an array of shape (0,), but the file has another shape")
    return _of(machine, ArrayDraft())


def _dtype(machine: Machine, code: object, align: object = False, copy: object = False) -> DTypeDraft:
    if isinstance(code, Global):
        if code.key == _BFLOAT16:
            return _of(machine, DTypeDraft("u2", bfloat16=True))
        code = _TYPES.get(code.name) if code.key[0] == "numpy" else str(code)
    if not isinstance(code, str) or not _DTYPE.fullmatch(code):
        shown = repr(code[:40]) if isinstance(code, str) else _kind_of(code)
        machine.fail(f"dtype {shown} is refused; expected plain numbers or booleans")
    return _of(machine, DTypeDraft(code))


def _scalar(machine: Machine, dtype: object, raw: object) -> object:
    return _array(machine, (), dtype, raw, False)[()]


def _frombuffer(machine: Machine, raw: object, dtype: object, shape: object, order: object) -> ArrayDraft:
    return _of(machine, ArrayDraft(_array(machine, shape, dtype, raw, order == "F")))


def _encode(machine: Machine, text: object, encoding: object) -> bytes:
    """Rebuild bytes as protocols below 3 write them."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        machine.fail("_codecs.encode may turn a latin1 string to bytes only")
    machine.spend(len(text))
    return text.encode("latin1")


def _ordered(machine: Machine, pairs: Collection[tuple[object, object]] = ()) -> OrderedDict[Any, Any]:
    machine.spend(_PER_ITEM * len(pairs))
    return _of(machine, _Ordered((machine.key(key), value) for key, value in pairs))


def _defaultdict(machine: Machine, factory: object = None) -> defaultdict[Any, Any]:
    if factory is None:
        return _of(machine, _Default(None))
    if not isinstance(factory, Global):
        machine.fail(f"the factory of a defaultdict is {_kind_of(factory)}")
    module, name = factory.key
    if module != "builtins" or name not in _FACTORIES:
        raise machine.refusal(factory, "use as a factory")
    return _of(machine, _Default(_FACTORIES[name]))


def _set(machine: Machine, items: Collection[object] = ()) -> set[Any]:
    machine.spend(_PER_ITEM * len(items))
    return {machine.key(e) for e in items}


def _bytes(machine: Machine, data: object = b"", encoding: object = None) -> bytes:
    if encoding is not None:
        return _encode(machine, data, encoding)
    if not isinstance(data, (bytes, bytearray)):
        machine.fail("bytes and bytearray may be made of bytes only")
    machine.spend(len(data))
    return bytes(data)


def _reconstructor(
    machine: Machine, cls: object, base: object, state: object
) -> PickledTensor | StoredObject:
    """Make an instance of a class as protocols 0 and 1 do."""
    if not isinstance(cls, Global) or state is not None:
        machine.fail("copyreg._reconstructor may make instances of plain classes only")
    return make(machine, cls, ())


CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): _ordered,
    ("collections", "defaultdict"): _defaultdict,
    ("builtins", "set"): _set,
    ("builtins", "frozenset"): lambda machine, *args: frozenset(_set(machine, *args)),
    ("builtins", "bytes"): _bytes,
    ("builtins", "bytearray"): _bytes,
    ("builtins", "complex"): lambda machine, real, imag: complex(real, imag),
    ("copyreg", "_reconstructor"): _reconstructor,
}
"""All that a file may call; arguments that a function does not take are damage."""


def call(machine: Machine, function: Global, args: tuple[Any, ...]) -> object:
    """Return what a REDUCE gives: one of the listed calls, or an inert record of one of MegEngine's (an enum, say)."""
    known = CALLS.get(function.key)
    if known is not None:
        return known(machine, *args)
    if function.key in TENSORS:
        return make(machine, function, args)
    if function.module == "megengine" or function.module.startswith("megengine."):
        return _of(machine, StoredObject(function, args))
    raise machine.refusal(function, "call")


def make(machine: Machine, cls: Global, args: tuple[Any, ...]) -> PickledTensor | StoredObject:
    """Return what NEWOBJ gives: a tensor, or the inert record of an object of any other class."""
    kind = TENSORS.get(cls.key)
    if kind is not None:
        return _of(machine, PickledTensor(kind, args[0] if args else None))
    if cls.key in CALLS or cls.key[0] in ("builtins", "numpy"):
        raise machine.refusal(cls, "make an object of")
    return _of(machine, StoredObject(cls, args))


# ---- attributes and contents that come after the object


def build(machine: Machine, target: object, state: object) -> None:
    """Apply a BUILD to the record it is meant for."""
    if isinstance(target, ArrayDraft):
        _build_array(machine, target, state)
    elif isinstance(target, DTypeDraft):
        _build_dtype(machine, target, state)
    elif isinstance(target, PickledTensor):
        _build_tensor(machine, target, state)
    elif isinstance(target, StoredObject):
        if target.state is not None:
            machine.fail(f"an object of {target.cls} gets its attributes twice")
        target.state = state
    else:
        machine.fail(
            f"attributes are given to something {_kind_of(target)}; containers and numbers take none"
        )


def _build_array(machine: Machine, target: ArrayDraft, state: object) -> None:
    if target.value is not None:
        machine.fail("an array gets its contents twice")
    if not isinstance(state, tuple) or len(state) not in (4, 5):
        machine.fail("the state of an array is not a tuple of version, shape, dtype, order and contents")
    target.value = _array(machine, state[-4], state[-3], state[-1], state[-2])


def _build_dtype(machine: Machine, target: DTypeDraft, state: object) -> None:
    if not isinstance(state, tuple) or not 5 <= len(state) <= 9:
        machine.fail("the state of a dtype is not as numpy writes it")
    if state[1] not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
        machine.fail("only dtypes of plain numbers are read, none with fields or sub-arrays")
    target.big = state[1] == ">"
    if len(state) == 9 and state[8] is not None:
        target.metadata = _quantized(machine, target, state[8])


def _quantized(machine: Machine, dtype: DTypeDraft, metadata: object) -> dict[str, Any]:
    """MegEngine's mark of a quantized dtype, again and of plain values."""
    mark = metadata.get("mgb_dtype") if isinstance(metadata, dict) and len(metadata) == 1 else None
    if not isinstance(mark, dict):
        machine.fail("a dtype holds metadata that MegEngine does not write")
    name, scale, zero = mark.get("name"), mark.get("scale"), mark.get("zero_point")
    plain = isinstance(name, str) and _is_stored_as(name, dtype.code, zero)
    if not plain or type(scale) is not float or type(zero) not in (int, type(None)) or dtype.bfloat16:
        machine.fail("a quantized dtype is not as MegEngine writes it: name, scale and zero_point")
    return {"mgb_dtype": {"name": name, "scale": scale} | ({} if zero is None else {"zero_point": zero})}


def _is_stored_as(name: str, code: str, zero: object) -> bool:
    """Return whether MegEngine has such a quantized dtype, with a zero point or without, in numbers of that code."""
    if not name.startswith("Quantized") or name not in DTypeEnum.__members__:
        return False
    dtype = DType(name)
    return dtype.np == np.dtype(code) and dtype.is_asymmetric == (zero is not None)


def _build_tensor(machine: Machine, target: PickledTensor, state: object) -> None:
    if not isinstance(state, dict):
        machine.fail(f"the state of a tensor is {_kind_of(state)}, expected a dict")
    if "data" in state:  # as releases up to 1.1 wrote it
        target.value = state["data"]
    target.state = state

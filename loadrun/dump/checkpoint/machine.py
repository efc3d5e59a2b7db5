"""Pickles read by Python's own unpickler, the one written in Python, with what makes or calls something replaced.

A name stands for a `Global`, calls and objects for `StoredObject`, and no opcode looks a name up. What the unpickler
would bear and the reader would not is refused as it is read: opcodes without end, keys with a costly or forgeable
hash, long numbers, places of the memo that no file needs.
"""

import io
import pickle
from typing import Any, NoReturn

from ...base.errors import FormatError
from .stored import ADVICE, Global, Reader, StoredObject, called, check_key, kind_of, made

_MOST_STEPS = 1_000_000
"""Opcodes that a pickle may have; a tensor takes about thirty."""
_LONGEST_LINE, _LONGEST_NAME = 1000, 1000
_REFUSED = {
    "STRING BINSTRING SHORT_BINSTRING": "the pickle was written by Python 2, whose strings are ambiguous; "
    "write it again with Python 3",
    "INST OBJ": "objects of Python 2's classes are refused",
    "PERSID BINPERSID": f"persistent ids are refused (PyTorch files have them); {ADVICE}, or pickle a dict of arrays",
    "EXT1 EXT2 EXT4": "extension codes of copyreg are refused: they can stand for any name",
    "NEXT_BUFFER READONLY_BUFFER": "buffers outside the pickle are refused",
    "LONG4": "an integer takes more than 255 bytes",
}
_REASONS = {getattr(pickle, name)[0]: why for names, why in _REFUSED.items() for name in names.split()}
_KEYS = {
    pickle.SETITEM[0]: slice(-2, -1),
    pickle.SETITEMS[0]: slice(None, None, 2),
    pickle.DICT[0]: slice(None, None, 2),
    pickle.ADDITEMS[0]: slice(None),
    pickle.FROZENSET[0]: slice(None),
}
"""Where on the stack the keys are that an opcode takes."""
_DAMAGE = (
    pickle.UnpicklingError,
    *(EOFError, AttributeError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError),
)
_PythonUnpickler: Any = pickle._Unpickler


class PickleMachine(Reader, _PythonUnpickler):  # type: ignore[misc]
    """One pickle being read.

    Args:
        data: the bytes of the file.
    """

    def __init__(self, data: bytes) -> None:
        Reader.__init__(self, data)
        self.file = _File(data)
        _PythonUnpickler.__init__(self, self.file)
        self.memo = _Memo(data)
        self.steps = 0

    def run(self) -> object:
        """Return the object of the pickle, made of inert records.

        Raises:
            FormatError: it is malformed, refers to something that is refused, or bytes follow it.
        """
        try:
            value = self.load()
        except FormatError as e:
            e.offset = self.at if e.offset is None else e.offset
            raise
        except IndexError:
            self.fail("the stack is empty where the pickle takes a value")
        except _DAMAGE as e:
            self.fail(f"the pickle is damaged: {str(e)[:200] or type(e).__name__}")
        if self.stack or self.metastack:
            self.fail("the pickle leaves values on the stack after its result")
        if more := len(self.data) - self.file.tell():
            self.fail(f"{more} bytes follow the pickle")
        self.at = None
        return value

    @property
    def dispatch(self) -> Any:  # noqa: ANN401 - as the base class has it
        """Where `load` looks each opcode up."""
        return self

    def __getitem__(self, code: int) -> Any:  # noqa: ANN401 - as above
        self.at = self.file.tell() - 1
        self.steps += 1
        if self.steps > _MOST_STEPS:
            self.fail(f"the pickle takes more than {_MOST_STEPS} steps")
        if code not in _PythonUnpickler.dispatch:
            self.fail(f"0x{code:02x} is not an opcode of a pickle")
        if code in _REASONS:
            self.fail(_REASONS[code])
        for key in self.stack[_KEYS[code]] if code in _KEYS else ():
            check_key(key)
        return getattr(type(self), _PythonUnpickler.dispatch[code].__name__)

    def find_class(self, module: str, name: str) -> Global:
        """Return the record of a name."""
        if max(len(module), len(name)) > _LONGEST_NAME:
            self.fail("a name is not a pair of short strings")
        return Global(module, name, self.at)

    def load_reduce(self) -> None:
        """Call a function."""
        self.append(called(self, *self._call()))

    def load_newobj(self) -> None:
        """Make an object."""
        self.append(made(self, *self._call()))

    def load_newobj_ex(self) -> None:
        """Make an object with named arguments, which are kept beside the others."""
        if keywords := self.stack.pop():
            self.stack[-1] = self.stack[-1], keywords
        self.load_newobj()

    def _call(self) -> tuple[Global, tuple[Any, ...]]:
        """Take a name and its arguments."""
        args, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Global):
            raise TypeError(f"'{type(function).__name__}' object is not callable")
        if not isinstance(args, tuple):
            raise TypeError(f"arguments of type {type(args).__name__}, expected a tuple")
        return function, args

    def load_build(self) -> None:
        """Give an object its attributes, or an array its contents."""
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, StoredObject):
            self.fail(
                f"attributes are given to something {kind_of(target)}; containers and numbers take none"
            )
        if target.state is not None:
            self.fail(f"an object of {target.cls} gets its attributes or contents twice")
        target.state = state

    def load_frame(self) -> None:
        """Ignore a frame, which is read like the rest."""
        size = int.from_bytes(self.file.read(8), "little")
        if size > len(self.data):
            self.fail(f"a frame of {size} bytes is claimed, but the file has {len(self.data)}")

    def load_unicode(self) -> None:
        """Push a line, of any length."""
        self.append(str(io.BytesIO.readline(self.file)[:-1], "raw-unicode-escape"))

    def load_binbytes(self) -> None:
        """Push bytes."""
        self.append(self.file.view(4))

    def load_binbytes8(self) -> None:
        """Push bytes, or a bytearray."""
        self.append(self.file.view(8))

    load_bytearray8 = load_binbytes8


class _File(io.BytesIO):
    """The bytes of a pickle, whose reads beyond the end and whose long lines are errors."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = memoryview(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return that many bytes."""
        part = super().read(size)
        if len(part) < (size or 0):
            self.short(size or 0, len(part))
        return part

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return a line; a number in a long one takes time by the square of its length."""
        line = super().readline(_LONGEST_LINE + 1)
        if not line.endswith(b"\n"):
            raise FormatError(f"a line has no end within {_LONGEST_LINE} bytes")
        return line

    def view(self, width: int) -> memoryview:
        """Return the bytes that follow their own number of that many bytes, not copied."""
        size = int.from_bytes(self.read(width), "little")
        start = self.tell()
        part = self.data[start : start + size]
        if len(part) < size:
            self.short(size, len(part))
        self.seek(start + size)
        return part

    def short(self, size: int, found: int) -> NoReturn:
        """Refuse the file, which ends too early."""
        if not found:
            raise FormatError("the pickle ends before its STOP")
        raise FormatError(f"the pickle expected {size} bytes here, but only {found} remain")


class _Memo(dict[int, Any]):
    """The values that the pickle put away, by indices that are no larger than the file."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.places = len(data)

    def __setitem__(self, index: int, value: object) -> None:
        if index > self.places:
            raise FormatError(f"the memo has no place {index}")
        super().__setitem__(index, value)

    def __missing__(self, index: int) -> NoReturn:
        raise FormatError(f"the memo has no entry {index}")

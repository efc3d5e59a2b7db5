"""Pickles read by `pickle.Unpickler`, in which every name stands for an inert record.

Two passes. The first walks the opcodes without executing them and refuses what would cost more than the file pays for:
lengths and memo indices beyond the file, huge numbers, keys with a costly or forgeable hash, deep tuples. The second is
Python's own unpickler, whose `find_class` gives a `Global` for every name: what it may be called for is listed in
`stored.py`. What calls copy is paid from a budget of four times the file.
"""

import io
import pickle
import pickletools
from collections.abc import Iterator
from typing import Any, NoReturn

from ...base.errors import FormatError
from .stored import Global, named

MOST_STEPS = 1_000_000
"""Opcodes that a pickle may have; a tensor takes about thirty."""
_LONGEST_NUMBER, _LONGEST_LINE_NUMBER, _LONGEST_NAME = 255, 1000, 1000
_LARGEST_KEY = 2**60
_SPARE_PLACES = 1000
"""How far an index of the memo may be beyond the number of opcodes; the unpickler's memo is a table."""
_MOST_LEVELS = 100
_MARK, _KEY, _OTHER = -1, 0, 1
"""What the first pass knows of a value: a mark, a string or other safe key, or a number of levels of tuples."""
_ADVICE = (
    "a checkpoint may hold numpy arrays, MegEngine tensors and plain containers; convert it once where it was created: "
    "megengine.save(module.state_dict(), 'weights.pkl')"
)
_OLD = "the pickle was written by Python 2, whose strings are ambiguous; write it again with Python 3"
_OPCODES = {op.code.encode("latin-1"): op for op in pickletools.opcodes}
_REFUSED = {
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _OLD),
    **dict.fromkeys(("INST", "OBJ"), "objects of Python 2's classes are refused"),
    **dict.fromkeys(
        ("PERSID", "BINPERSID"),
        f"persistent ids are refused (PyTorch files have them); {_ADVICE}, or numpy.savez of the arrays",
    ),
    **dict.fromkeys(
        ("EXT1", "EXT2", "EXT4"), "extension codes of copyreg are refused: they can stand for any name"
    ),
    **dict.fromkeys(("NEXT_BUFFER", "READONLY_BUFFER"), "buffers outside the pickle are refused"),
}
_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), ("GET", "BINGET", "LONG_BINGET")
_KEYS = {"SETITEM": 2, "SETITEMS": 2, "DICT": 2, "ADDITEMS": 1, "FROZENSET": 1}
"""Opcodes that take keys: each value, or each second one."""
_DAMAGE = (
    pickle.UnpicklingError,
    *(EOFError, AttributeError, TypeError, ValueError, LookupError, OverflowError, RecursionError),
)


class PickleMachine:
    """One pickle being read.

    Args:
        data: the bytes of the file.
        most_steps: opcodes after which the file is refused.
    """

    def __init__(self, data: bytes | memoryview, most_steps: int = MOST_STEPS) -> None:
        self.data = bytes(data)
        self.at: int | None = 0
        self.most_steps = most_steps
        self.budget = 4 * len(self.data) + (1 << 20)
        self.visits = 4 * most_steps

    def run(self) -> object:
        """Return the object of the pickle, made of inert records.

        Raises:
            FormatError: it is malformed, refers to something that is refused, or bytes follow it.
        """
        places = iter(self._names())
        self.at = None
        try:
            return _Unpickler(self, places).load()
        except FormatError:
            raise
        except _DAMAGE as e:
            raise FormatError(f"the pickle is damaged: {str(e)[:200] or type(e).__name__}") from None

    # ---- for the calls

    def error(self, message: str) -> FormatError:
        """Make the error for what is being read."""
        return FormatError(message, offset=self.at)

    def fail(self, message: str) -> NoReturn:
        """Refuse the file."""
        raise self.error(message)

    def refusal(self, name: Global, what: str) -> FormatError:
        """Return what to raise for a name that the file wants to use."""
        return FormatError(f"refuses to {what} {name}: {_ADVICE}", offset=name.at)

    def spend(self, size: int) -> None:
        """Pay for `size` bytes that are copied."""
        self.budget -= size
        if self.budget < 0:
            self.fail("the pickle expands to more than four times its size")

    def visit(self, count: int) -> None:
        """Count `count` values that are looked at once more, which shared ones can be without end."""
        self.visits -= count
        if self.visits < 0:
            self.fail("the pickle shares its objects too often; max_steps raises the limit")

    def key(self, value: object) -> object:
        """Check a value that is to be a key: anything with a costly or forgeable hash is refused."""
        if type(value) is str or value is None or type(value) is bool:
            return value
        if type(value) is int and -_LARGEST_KEY < value < _LARGEST_KEY:
            return value
        raise self.error(
            f"a key is of type {type(value).__name__}; expected a string or a small whole number"
        )

    # ---- the first pass

    def _names(self) -> list[int]:
        """Check all opcodes; return where names are, in the order in which the unpickler asks for them."""
        places: list[int] = []
        stack: list[int] = []
        memo: dict[int, int] = {}
        for steps, (op, argument, at) in enumerate(self._opcodes()):
            if steps >= self.most_steps:
                self.fail(f"the pickle takes more than {self.most_steps} steps; max_steps raises the limit")
            self._check_argument(op.name, argument)
            if op.name in ("GLOBAL", "STACK_GLOBAL"):
                places.append(at)
            if op.name in _PUTS:
                index = len(memo) if argument is None else int(argument)
                if not 0 <= index <= steps + _SPARE_PLACES or not stack:
                    self.fail(f"the memo has no place {index}")
                memo[index] = stack[-1]
            elif op.name in _GETS:
                if argument not in memo:
                    self.fail(f"the memo has no entry {argument}")
                stack.append(memo[argument])
            else:
                self._step(op, argument, stack)
        if stack:
            self.fail("the pickle leaves values on the stack after its result")
        return places

    def _opcodes(self) -> Iterator[tuple[pickletools.OpcodeInfo, Any, int]]:
        """Return every opcode with its argument and its place, up to the end of the file."""
        file = _Lines(self.data)
        while True:
            self.at = at = file.tell()
            code = file.read(1)
            if not code:
                self.fail("the pickle ends before its STOP")
            op = _OPCODES.get(code)
            if op is None:
                self.fail(f"0x{code[0]:02x} is not an opcode of a pickle")
            if op.name in _REFUSED:
                self.fail(_REFUSED[op.name])
            try:
                # Of names, pickletools would interpret escapes, of which Python warns.
                argument = (file.readline() + file.readline()) if op.name == "GLOBAL" else _argument(op, file)
            except ValueError as e:
                self.fail(f"the pickle is malformed: {str(e)[:200]}")
            yield op, argument, at
            if op.name == "STOP":
                break
        self.at = file.tell()
        if self.at != len(self.data):
            self.fail(f"{len(self.data) - self.at} bytes follow the pickle")

    def _check_argument(self, name: str, argument: Any) -> None:  # noqa: ANN401 - whatever the opcode has
        if name == "PROTO" and argument > pickle.HIGHEST_PROTOCOL:
            self.fail(f"pickle protocol {argument} is unknown")
        if name == "FRAME" and argument > len(self.data):
            self.fail(f"a frame of {argument} bytes is claimed, but the file has {len(self.data)}")
        if type(argument) is int and argument.bit_length() > 8 * _LONGEST_NUMBER:
            size = argument.bit_length() // 8 + 1
            self.fail(f"an integer takes {size} bytes, at most {_LONGEST_NUMBER} are allowed")
        if name == "GLOBAL" and len(argument) > 2 * _LONGEST_NAME:
            self.fail("a name is not a pair of short strings")

    def _step(self, op: pickletools.OpcodeInfo, argument: Any, stack: list[int]) -> None:  # noqa: ANN401 - as above
        """Apply an opcode to what is known of the values on the stack."""
        before = op.stack_before
        if pickletools.markobject in before or (op.name == "POP" and stack[-1:] == [_MARK]):
            if _MARK not in stack:
                self.fail("there is no mark where the pickle needs one")
            start = len(stack) - 1 - stack[::-1].index(_MARK)
            taken = stack[start + 1 :]
            more = before.index(pickletools.markobject) if pickletools.markobject in before else 0
            del stack[start:]
        else:
            taken, more = stack[len(stack) - len(before) :] if before else [], 0
            if len(taken) < len(before) or _MARK in taken:
                self.fail("the stack is empty where the pickle takes a value")
            del stack[len(stack) - len(before) :]
        if more > len(stack) or _MARK in stack[len(stack) - more :]:
            self.fail("the stack is empty where the pickle takes a value")
        del stack[len(stack) - more :]
        if op.name in _KEYS and any((taken[1:] if op.name == "SETITEM" else taken)[:: _KEYS[op.name]]):
            self.fail("a key is neither a string nor a small whole number")
        after = [self._known(op, kind, argument, taken) for kind in op.stack_after]
        if any(level > _MOST_LEVELS for level in after):
            self.fail(f"the pickle nests deeper than {_MOST_LEVELS} levels")
        stack.extend(after)

    def _known(
        self,
        op: pickletools.OpcodeInfo,
        kind: pickletools.StackObject,
        argument: Any,  # noqa: ANN401 - as above
        taken: list[int],
    ) -> int:
        """Return what is known of a value that an opcode puts on the stack."""
        if kind is pickletools.markobject:
            return _MARK
        if op.name == "DUP":
            return taken[0]
        if kind is pickletools.pytuple:
            return 1 + max(taken, default=0)
        if kind in (pickletools.pyunicode, pickletools.pynone, pickletools.pybool):
            return _KEY
        is_small = type(argument) in (int, bool) and -_LARGEST_KEY < argument < _LARGEST_KEY
        return _KEY if is_small and op.name not in _PUTS else _OTHER


def _argument(op: pickletools.OpcodeInfo, file: io.BytesIO) -> Any:  # noqa: ANN401 - whatever the opcode has
    return None if op.arg is None else op.arg.reader(file)


class _Lines(io.BytesIO):
    """A file whose lines that hold decimal numbers are short: a long one takes time by the square of its length."""

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return a line."""
        start = self.tell()
        line = super().readline(size)
        if len(line) > _LONGEST_LINE_NUMBER and self.getbuffer()[start - 1] in b"ILF":
            raise ValueError(f"a line has no end within {_LONGEST_LINE_NUMBER} bytes")
        return line


class _Unpickler(pickle.Unpickler):
    """The second pass; no name is ever looked up."""

    def __init__(self, machine: PickleMachine, places: Iterator[int]) -> None:
        super().__init__(io.BytesIO(machine.data))
        self._machine, self._places = machine, places

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a name of the file
        """Return the record of a name."""
        at = next(self._places)
        if max(len(module), len(name)) > _LONGEST_NAME:
            raise FormatError("a name is not a pair of short strings", offset=at)
        return named(self._machine, module, name, at)

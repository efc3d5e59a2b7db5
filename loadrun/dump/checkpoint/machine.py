"""A reader of pickles that runs nothing: the opcodes of protocols 0 to 5 over inert records.

Memory is bounded by the file: every length is checked against what the file still holds, each opcode makes at most
one small object and their number is capped, and all that is copied (strings to bytes, bytes to arrays) is paid
from a budget of four times the file, so that sharing one string a million times does not unfold.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from struct import Struct
from typing import Any, NoReturn

from ...base.errors import FormatError
from .stored import Global, build, call, make

__all__ = ["MOST_STEPS", "PickleMachine"]

MOST_STEPS = 1_000_000
"""Opcodes that a pickle may have; a tensor takes about thirty."""
_U8, _U16, _U32, _U64 = Struct("<B"), Struct("<H"), Struct("<I"), Struct("<Q")
_I32, _F64 = Struct("<i"), Struct(">d")
_LONGEST_NUMBER = 255
_LONGEST_LINE_NUMBER = 1000
_LONGEST_NAME = 1000
_LARGEST_KEY = 2**60
_ADVICE = (
    "a checkpoint may hold numpy arrays, MegEngine tensors and plain containers; convert it once where it was created: "
    "megengine.save(module.state_dict(), 'weights.pkl')"
)


class PickleMachine:
    """One pickle being read.

    Args:
        data: the bytes of the file.
        most_steps: opcodes after which the file is refused.
    """

    def __init__(self, data: bytes | memoryview, most_steps: int = MOST_STEPS) -> None:
        self.data = memoryview(data)
        self.size = len(self.data)
        self.at = 0
        self.next = 0
        self.most_steps = most_steps
        self.budget = 4 * self.size + (1 << 20)
        self.visits = 4 * most_steps
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> object:
        """Return the object of the pickle, made of inert records.

        Raises:
            FormatError: it is malformed, refers to something that is refused, or bytes follow it.
        """
        data, size, left = self.data, self.size, self.most_steps
        while True:
            self.at = at = self.next
            if at >= size:
                self.fail("the pickle ends before its STOP")
            code = data[at]
            self.next = at + 1
            if code == _STOP:
                break
            known = _KNOWN[code]
            if known is None:
                self.fail(_REFUSED.get(code, f"0x{code:02x} is not an opcode of a pickle"))
            known(self)
            left -= 1
            if left < 0:
                self.fail(f"the pickle takes more than {self.most_steps} steps; max_steps raises the limit")
        value = self.pop()
        if self.stack or self.marks:
            self.fail("the pickle leaves values on the stack after its result")
        if self.next != size:
            self.at = self.next
            self.fail(f"{size - self.next} bytes follow the pickle")
        return value

    # ---- for the calls

    def error(self, message: str) -> FormatError:
        """Make the error for the opcode that is being read."""
        return FormatError(message, offset=self.at)

    def fail(self, message: str) -> NoReturn:
        """Refuse the file at the opcode that is being read."""
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

    # ---- bytes

    def take(self, size: int) -> memoryview:
        """Return the next bytes."""
        start = self.next
        if size > self.size - start:
            self.fail(f"{size} bytes are claimed, but {self.size - start} follow")
        self.next = start + size
        return self.data[start : self.next]

    def number(self, form: Struct) -> int:
        """Return the next number in a format."""
        start, self.next = self.next, self.next + form.size
        if self.next > self.size:
            self.fail(f"{form.size} bytes are claimed, but {self.size - start} follow")
        return form.unpack_from(self.data, start)[0]

    def line(self, longest: int | None = None) -> bytes:
        """Return the bytes up to a line feed, without it, at most `longest` of them."""
        start, piece = self.next, 128
        while start < len(self.data) and (longest is None or start - self.next <= longest):
            length = bytes(self.data[start : start + piece]).find(b"\n")
            if length >= 0:
                line = bytes(self.data[self.next : start + length])
                self.next = start + length + 1
                return line
            start, piece = start + piece, 2 * piece
        raise self.error("a line has no end" + ("" if longest is None else f" within {longest} bytes"))

    def text(self, size: int) -> str:
        """Return the next bytes as UTF-8."""
        raw = self.take(size)
        try:
            return str(raw, "utf-8", "surrogatepass")
        except UnicodeDecodeError as e:
            self.fail(f"a string is not UTF-8: {e.reason}")

    # ---- stack

    def push(self, value: object) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def pop(self) -> object:
        """Take the topmost value, which must be above the last mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            self.fail("the stack is empty where the pickle takes a value")
        return self.stack.pop()

    def top(self) -> object:
        """Return the topmost value."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            self.fail("the stack is empty where the pickle needs a value")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        """Take all values above the last mark."""
        if not self.marks:
            self.fail("there is no mark where the pickle needs one")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def recall(self, index: int) -> None:
        """Push what was remembered."""
        if index not in self.memo:
            self.fail(f"the memo has no entry {index}")
        self.push(self.memo[index])

    def integer(self, text: bytes) -> int:
        """Return a number of protocol 0."""
        try:
            return int(text)
        except ValueError:
            self.fail(f"{text[:40]!r} is not a whole number")


# ---- opcodes

_OPCODES: dict[int, Callable[[PickleMachine], None]] = {}
_STOP = ord(".")
_OLD = "the pickle was written by Python 2, whose strings are ambiguous; write it again with Python 3"
_REFUSED = {
    **dict.fromkeys(b"STU", _OLD),
    **dict.fromkeys(b"io", "objects of Python 2's classes are refused"),
    **dict.fromkeys(
        b"PQ",
        f"persistent ids are refused (PyTorch files have them); {_ADVICE}, or numpy.savez of the arrays",
    ),
    **dict.fromkeys(b"\x82\x83\x84", "extension codes of copyreg are refused: they can stand for any name"),
    **dict.fromkeys(b"\x97\x98", "buffers outside the pickle are refused"),
}


def _op(code: bytes) -> Callable[[Callable[[PickleMachine], None]], Callable[[PickleMachine], None]]:
    def register(function: Callable[[PickleMachine], None]) -> Callable[[PickleMachine], None]:
        _OPCODES[code[0]] = function
        return function

    return register


def _push_all() -> None:
    """Return the opcodes that push one value."""
    values: dict[bytes, Callable[[PickleMachine], Any]] = {
        b"N": lambda m: None,
        b"\x88": lambda m: True,
        b"\x89": lambda m: False,
        b"J": lambda m: m.number(_I32),
        b"K": lambda m: m.number(_U8),
        b"M": lambda m: m.number(_U16),
        b"G": lambda m: m.number(_F64),
        b"X": lambda m: m.text(m.number(_U32)),
        b"\x8c": lambda m: m.text(m.number(_U8)),
        b"\x8d": lambda m: m.text(m.number(_U64)),
        b"B": lambda m: m.take(m.number(_U32)),
        b"C": lambda m: m.take(m.number(_U8)),
        b"\x8e": lambda m: m.take(m.number(_U64)),
        b"\x96": lambda m: m.take(m.number(_U64)),
        b"\x8a": lambda m: int.from_bytes(m.take(m.number(_U8)), "little", signed=True),
        b"}": lambda m: {},
        b"]": lambda m: [],
        b")": lambda m: (),
        b"\x8f": lambda m: set(),
        b"t": lambda m: tuple(m.since_mark()),
        b"l": lambda m: m.since_mark(),
        b"\x91": lambda m: frozenset(m.key(e) for e in m.since_mark()),
        b"2": lambda m: m.top(),
        b"\x85": lambda m: (m.pop(),),
        b"\x86": lambda m: (m.pop(), m.pop())[::-1],
        b"\x87": lambda m: (m.pop(), m.pop(), m.pop())[::-1],
    }
    for code, value in values.items():
        _OPCODES[code[0]] = lambda m, value=value: m.stack.append(value(m))  # type: ignore[misc]


_push_all()


@_op(b"\x80")
def _proto(m: PickleMachine) -> None:
    version = m.number(_U8)
    if version > 5:
        m.fail(f"pickle protocol {version} is unknown; the newest is 5")


@_op(b"\x95")
def _frame(m: PickleMachine) -> None:
    size = m.number(_U64)
    if size > len(m.data) - m.next:
        m.fail(f"a frame of {size} bytes is claimed, but {len(m.data) - m.next} follow")


@_op(b"I")
def _int(m: PickleMachine) -> None:
    text = m.line(_LONGEST_LINE_NUMBER)
    m.push(text == b"01" if text in (b"00", b"01") else m.integer(text))


@_op(b"L")
def _long(m: PickleMachine) -> None:
    m.push(m.integer(m.line(_LONGEST_LINE_NUMBER).removesuffix(b"L")))


@_op(b"\x8b")
def _long4(m: PickleMachine) -> None:
    size = m.number(_I32)
    if not 0 <= size <= _LONGEST_NUMBER:
        m.fail(f"an integer takes {size} bytes, at most {_LONGEST_NUMBER} are allowed")
    m.push(int.from_bytes(m.take(size), "little", signed=True))


@_op(b"F")
def _float(m: PickleMachine) -> None:
    text = m.line(_LONGEST_LINE_NUMBER)
    try:
        m.push(float(text))
    except ValueError:
        m.fail(f"{text[:40]!r} is not a number")


@_op(b"V")
def _unicode(m: PickleMachine) -> None:
    text = m.line()
    try:
        m.push(str(text, "raw-unicode-escape"))
    except UnicodeDecodeError as e:
        m.fail(f"a string is malformed: {e.reason}")


@_op(b"(")
def _mark(m: PickleMachine) -> None:
    m.marks.append(len(m.stack))


@_op(b"0")
def _pop(m: PickleMachine) -> None:
    if m.marks and len(m.stack) == m.marks[-1]:
        m.marks.pop()  # as pickle reads a POP that follows a MARK
    else:
        m.pop()


@_op(b"1")
def _pop_mark(m: PickleMachine) -> None:
    m.since_mark()


@_op(b"c")
def _global(m: PickleMachine) -> None:
    module, name = m.line(_LONGEST_NAME), m.line(_LONGEST_NAME)
    try:
        m.push(Global(module.decode(), name.decode(), m.at))
    except UnicodeDecodeError:
        m.fail("a name is not UTF-8")


@_op(b"\x93")
def _stack_global(m: PickleMachine) -> None:
    name, module = m.pop(), m.pop()
    if type(name) is not str or type(module) is not str or max(len(name), len(module)) > _LONGEST_NAME:
        m.fail("a name is not a pair of short strings")
    m.push(Global(module, name, m.at))


@_op(b"R")
def _reduce(m: PickleMachine) -> None:
    args = m.pop()
    m.push(call(m, m.pop(), args))


@_op(b"\x81")
def _newobj(m: PickleMachine) -> None:
    args = m.pop()
    m.push(make(m, m.pop(), args))


@_op(b"\x92")
def _newobj_ex(m: PickleMachine) -> None:
    named, args = m.pop(), m.pop()
    m.push(make(m, m.pop(), (*args, named) if isinstance(args, tuple) and named else args))


@_op(b"b")
def _build(m: PickleMachine) -> None:
    state = m.pop()
    build(m, m.top(), state)


def _append(m: PickleMachine, values: list[Any]) -> None:
    target = m.top()
    if not isinstance(target, list):
        m.fail(f"items are appended to something of type {type(target).__name__}, expected a list")
    target.extend(values)


@_op(b"a")
def _append_one(m: PickleMachine) -> None:
    _append(m, [m.pop()])


@_op(b"e")
def _append_all(m: PickleMachine) -> None:
    _append(m, m.since_mark())


def _set_items(m: PickleMachine, values: list[Any], target: object) -> None:
    if not isinstance(target, (dict, OrderedDict)):
        m.fail(f"items are set on something of type {type(target).__name__}, expected a dict")
    if len(values) % 2:
        m.fail("a dict gets a key without a value")
    for i in range(0, len(values), 2):
        target[m.key(values[i])] = values[i + 1]


@_op(b"s")
def _set_one(m: PickleMachine) -> None:
    value, key = m.pop(), m.pop()
    _set_items(m, [key, value], m.top())


@_op(b"u")
def _set_all(m: PickleMachine) -> None:
    values = m.since_mark()
    _set_items(m, values, m.top())


@_op(b"d")
def _dict(m: PickleMachine) -> None:
    items: dict[Any, Any] = {}
    _set_items(m, m.since_mark(), items)
    m.push(items)


@_op(b"\x90")
def _add_all(m: PickleMachine) -> None:
    values, target = m.since_mark(), m.top()
    if not isinstance(target, set):
        m.fail(f"elements are added to something of type {type(target).__name__}, expected a set")
    target.update(m.key(e) for e in values)


@_op(b"\x94")
def _memoize(m: PickleMachine) -> None:
    m.memo[len(m.memo)] = m.top()


@_op(b"p")
def _put(m: PickleMachine) -> None:
    m.memo[m.integer(m.line(20))] = m.top()


@_op(b"q")
def _binput(m: PickleMachine) -> None:
    m.memo[m.number(_U8)] = m.top()


@_op(b"r")
def _long_binput(m: PickleMachine) -> None:
    m.memo[m.number(_U32)] = m.top()


@_op(b"g")
def _get(m: PickleMachine) -> None:
    m.recall(m.integer(m.line(20)))


@_op(b"h")
def _binget(m: PickleMachine) -> None:
    m.recall(m.number(_U8))


@_op(b"j")
def _long_binget(m: PickleMachine) -> None:
    m.recall(m.number(_U32))


_KNOWN = [_OPCODES.get(code) for code in range(256)]

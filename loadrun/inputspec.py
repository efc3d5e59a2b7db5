"""The input DSL: text such as ``data:cat.jpg;mask:#rand(0,1,1,...)`` parsed to frozen values, and back.

A specification is a list of parts separated by ``;``. A part is ``name:source``; the name may be left out when
the model has a single input. Sources are

==================== =====================================================================================
``cat.jpg``          a file: image, .npy, .npz, .json, .ppm or .pgm; ``file.npz!key`` picks one array
``#rand(lo,hi)``     uniform numbers; ``#randn(mean,std)``, ``#randint(lo,hi)``, ``#zeros``, ``#ones`` and
                     ``#full(v)`` likewise; more arguments give the shape, a last ``...`` stands for the rest of
                     the input's own shape; ``seed=7`` as the last argument fixes the stream
``{1,3,224,224}``    uniform numbers in [0, 1) of that shape
``[[1,2],[3,4]]``    the values themselves
``@list.txt``        a file with one specification a line (the whole specification, not a part)
==================== =====================================================================================

Blanks around names, separators and numbers do not matter. Names and paths may stand in single or double
quotes; outside quotes ``::`` is a literal colon, and ``C:\\x`` is a path. Parsing touches no file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from .errors import SpecError

__all__ = ["Fill", "InputSpec", "ListFile", "Part", "PathSource", "Source", "Values", "parse"]

FILLS = {"rand": (2, 2), "randn": (0, 2), "randint": (2, 2), "zeros": (0, 0), "ones": (0, 0), "full": (1, 1)}
"""Generators with the least and the greatest number of leading numeric arguments."""
_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PLAIN = re.compile(r"[^\s;:'\"{}\[\]#@!][^;:'\"!]*")


@dataclass(frozen=True)
class PathSource:
    """A file, and for .npz the member to take."""

    path: str
    member: str | None = None

    def __str__(self) -> str:
        text = _quote(self.path)
        return text if self.member is None else f"{text}!{_quote(self.member)}"


@dataclass(frozen=True)
class Fill:
    """Generated data.

    Attributes:
        kind: a key of `FILLS`.
        args: its numbers, such as low and high.
        shape: the given axes, None for the input's own shape.
        rest: whether ``...`` follows: the input's own further axes.
        seed: seed of its own stream, None for the run's.
        braces: whether it was written as ``{shape}``.
    """

    kind: str
    args: tuple[float, ...] = ()
    shape: tuple[int, ...] | None = None
    rest: bool = False
    seed: int | None = None
    braces: bool = False

    def __str__(self) -> str:
        if self.braces:
            return "{" + ",".join(map(str, self.shape or ())) + "}"
        parts = [_number(a) for a in self.args] + [str(n) for n in self.shape or ()]
        parts += ["..."] * self.rest
        parts += [f"seed={self.seed}"] * (self.seed is not None)
        return f"#{self.kind}({','.join(parts)})" if parts else f"#{self.kind}"


@dataclass(frozen=True)
class Values:
    """Values written out, as JSON text of nested lists."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ListFile:
    """A file with a specification a line."""

    path: str

    def __str__(self) -> str:
        return f"@{_quote(self.path)}"


Source = PathSource | Fill | Values


@dataclass(frozen=True)
class Part:
    """One input's data; the name is None where it was left out."""

    name: str | None
    source: Source

    def __str__(self) -> str:
        return str(self.source) if self.name is None else f"{_quote(self.name)}:{self.source}"


@dataclass(frozen=True)
class InputSpec:
    """A parsed specification: its parts, or the list file that it stands for.

    >>> spec = parse("data : cat.jpg ; mask:#rand(0, 1e2, 1, ...)")
    >>> str(spec)
    'data:cat.jpg;mask:#rand(0,100,1,...)'
    >>> parse(str(spec)) == spec
    True
    """

    parts: tuple[Part, ...] = ()
    listed: ListFile | None = None

    def __str__(self) -> str:
        return str(self.listed) if self.listed else ";".join(map(str, self.parts))


def parse(text: str) -> InputSpec:
    """Parse a specification.

    Raises:
        SpecError: the text does not follow the grammar; the message shows it with a caret under the fault.

    >>> parse("#rand(0,255,1,3,...)").parts[0].source
    Fill(kind='rand', args=(0.0, 255.0), shape=(1, 3), rest=True, seed=None, braces=False)
    """
    scanner = _Scanner(text)
    if scanner.peek() == "@":
        scanner.pos += 1
        scanner.blanks()
        path = scanner.word("a list file after @")
        scanner.end()
        return InputSpec(listed=ListFile(path))
    parts: list[Part] = []
    while True:
        parts.append(scanner.part())
        if not scanner.take(";") or scanner.peek() == "":
            break
    scanner.end()
    names = [p.name for p in parts if p.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise scanner.error(f"the input {name!r} is given twice", text.rfind(name))
    return InputSpec(tuple(parts))


class _Scanner:
    """A cursor over the text; every method skips blanks first."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def error(self, message: str, at: int | None = None) -> SpecError:
        at = self.pos if at is None else at
        return SpecError(f"{message}\n  {self.text}\n  {' ' * at}^")

    def blanks(self) -> None:
        while self.pos < len(self.text) and self.text[self.pos].isspace():
            self.pos += 1

    def peek(self) -> str:
        self.blanks()
        return self.text[self.pos : self.pos + 1]

    def take(self, char: str) -> bool:
        if self.peek() != char:
            return False
        self.pos += 1
        return True

    def expect(self, char: str, what: str) -> None:
        if not self.take(char):
            found = repr(self.peek()) if self.peek() else "the end"
            raise self.error(f"expected {char!r} {what}, found {found}")

    def end(self) -> None:
        if self.peek():
            raise self.error(f"expected ';' or the end, found {self.peek()!r}")

    def part(self) -> Part:
        first = self.peek()
        if first in ("#", "{", "["):
            return Part(None, self.source())
        if first == "@":
            raise self.error("a list file (@) must be the whole specification")
        if first in ("", ";"):
            raise self.error("expected name:source, found nothing")
        word = self.word("a name or a file", path=True)
        if self.peek() != ":":
            return Part(None, self.member(word))
        self.pos += 1
        return Part(word, self.source())

    def source(self) -> Source:
        first = self.peek()
        if first == "#":
            return self.fill()
        if first == "{":
            return self.braces()
        if first == "[":
            return self.values()
        if first == "@":
            raise self.error("a list file (@) must be the whole specification")
        return self.member(self.word("a file, #rand(...), {shape} or [values]", colons=True))

    def member(self, path: str) -> PathSource:
        return PathSource(path, self.word("an array's name after !")) if self.take("!") else PathSource(path)

    def word(self, what: str, *, path: bool = False, colons: bool = False) -> str:
        """A quoted or plain name or path."""
        first = self.peek()
        if first in ("'", '"'):
            end = self.text.find(first, self.pos + 1)
            if end < 0:
                raise self.error("this quote is never closed")
            found = self.text[self.pos + 1 : end]
            self.pos = end + 1
            return found
        start, out = self.pos, ""
        if (path or colons) and re.match(r"[A-Za-z]:\\", self.text[start:]):
            out, self.pos = self.text[start : start + 2], start + 2
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if self.text.startswith("::", self.pos):
                out, self.pos = out + ":", self.pos + 2
            elif char in ";!" or (char == ":" and not colons):
                break
            else:
                out, self.pos = out + char, self.pos + 1
        out = out.strip()
        if not out:
            self.pos = start
            raise self.error(
                f"expected {what}, found {first!r}" if first else f"expected {what}, found nothing"
            )
        return out

    def fill(self) -> Fill:
        at = self.pos
        found = re.compile(r"#\s*([A-Za-z]*)").match(self.text, self.pos)
        kind = found.group(1) if found else ""
        if kind not in FILLS:
            raise self.error(f"unknown generator #{kind}; known are {', '.join('#' + k for k in FILLS)}")
        self.pos = found.end() if found else self.pos
        args, rest, seed = self.arguments() if self.take("(") else ([], False, None)
        least, most = FILLS[kind]
        count = least if kind != "randn" else min(len(args), most)
        if len(args) < least or (kind == "randn" and count == 1):
            raise self.error(f"#{kind} takes {most} numbers before the shape, found {len(args)}", at)
        shape = [self.axis(text, where) for text, where in args[count:]]
        numbers = tuple(float(text.replace("_", "")) for text, _ in args[:count])
        return Fill(kind, numbers, tuple(shape) if shape or rest else None, rest, seed)

    def axis(self, text: str, at: int) -> int:
        try:
            value = int(text)
        except ValueError:
            raise self.error(f"an axis must be a whole number, found {text}", at) from None
        if value < 0:
            raise self.error(f"an axis must not be negative, found {value}", at)
        return value

    def arguments(self) -> tuple[list[tuple[str, int]], bool, int | None]:
        """What stands in parentheses: numbers with their places, whether ``...`` follows, and the seed."""
        args: list[tuple[str, int]] = []
        rest, seed = False, None
        while self.peek() != ")" or args:
            self.blanks()
            at = self.pos
            if self.text.startswith("...", at):
                self.pos, rest = at + 3, True
            elif found := re.compile(r"seed\s*=\s*(\d+)").match(self.text, at):
                self.pos, seed = found.end(), int(found.group(1))
            elif rest or seed is not None:
                raise self.error("nothing but seed=N may follow ..." if rest else "seed=N must come last")
            elif found := _NUMBER.match(self.text, at):
                args.append((found.group(), at))
                self.pos = found.end()
            else:
                shown = repr(self.peek()) if self.peek() else "the end"
                raise self.error(f"expected a number, found {shown}")
            if not self.take(","):
                break
        self.expect(")", "after the arguments")
        return args, rest, seed

    def braces(self) -> Fill:
        self.pos += 1
        shape = []
        while True:
            self.blanks()
            found = re.compile(r"\d+").match(self.text, self.pos)
            if found is None:
                raise self.error("expected a whole number in {shape}")
            shape.append(int(found.group()))
            self.pos = found.end()
            if not self.take(","):
                break
        self.expect("}", "after the shape")
        return Fill("rand", (0.0, 1.0), tuple(shape), braces=True)

    def values(self) -> Values:
        start, depth = self.pos, 0
        while self.pos < len(self.text):
            depth += {"[": 1, "]": -1}.get(self.text[self.pos], 0)
            self.pos += 1
            if not depth:
                break
        text = self.text[start : self.pos]
        if depth:
            raise self.error("this bracket is never closed", start)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise self.error("expected nested lists of numbers such as [[1,2],[3,4]]", start) from None
        if not _numeric(data):
            raise self.error("expected numbers (true and false included) in the lists", start)
        return Values(json.dumps(data, separators=(",", ":")))


def _numeric(data: object) -> bool:
    if isinstance(data, list):
        return all(map(_numeric, data))
    return isinstance(data, (int, float))


def _quote(text: str) -> str:
    if _PLAIN.fullmatch(text) and text == text.strip():
        return text
    mark = '"' if '"' not in text else "'"
    return f"{mark}{text}{mark}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)

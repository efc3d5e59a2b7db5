"""The input DSL: text such as ``data:cat.jpg;mask:#rand(0,1,1,...)`` parsed to frozen values, and back.

A specification is a list of parts separated by ``;``. A part is ``name:source``; the name may be left out when
the model has a single input. Sources are

==================== =====================================================================================
``cat.jpg``          a file: image, .npy, .npz or .json; ``file.npz!key`` picks one array of it
``#rand(lo,hi)``     uniform numbers; ``#randn(mean,std)``, ``#randint(lo,hi)`` (hi excluded), ``#zeros``,
                     ``#ones`` and ``#full(v)`` likewise; more arguments give the shape, a last ``...`` stands
                     for the rest of the input's own shape; ``seed=7`` as the last argument fixes the stream
``{1,3,224,224}``    uniform numbers in [0, 1) of that shape
``[[1,2],[3,4]]``    the values themselves
``@list.txt``        a file with one specification a line (the whole specification, not a part)
==================== =====================================================================================

Blanks around names, separators and numbers do not matter. Names and paths may be in single or double quotes,
in which a doubled quote stands for itself; outside quotes ``::`` is a literal colon, and ``C:\\x`` is a path.
Parsing touches no file. What stands here beyond MegEngine's ``trace.dump(input_data=...)`` is an error there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .base.errors import SpecError
from .base.pointing import point

if TYPE_CHECKING:
    import numpy as np

FILLS = {"rand": (2, 2), "randn": (0, 2), "randint": (2, 2), "zeros": (0, 0), "ones": (0, 0), "full": (1, 1)}
"""Generators with the smallest and the largest number of leading numeric arguments."""
MAX_SEED = 2**64 - 1
_ARCHIVES = (".npz", ".json")
_MAX_AXES = 32
_NUMBER = re.compile(r"[+-]?([0-9][0-9_]*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DOTS = re.compile(r"\.\.\.|…")  # Documents print three dots as one character.
_SEED = re.compile(r"seed\s*=\s*([0-9]+)")
_KIND = re.compile(r"#([A-Za-z]*)")
_WHOLE = re.compile(r"[0-9]+")
_DRIVE = re.compile(r"[A-Za-z]:\\")
_PLAIN = re.compile(r"[^\s;:'\"{}\[\]#@!\\][^;:'\"!]*")
_STILL_A_PATH = re.compile(r"[^;:]*\.[A-Za-z]\w*\s*(;|\Z)")


@dataclass(frozen=True)
class PathSource:
    """A file, and for .npz and .json the member to take."""

    path: str
    member: str | None = None

    def __post_init__(self) -> None:
        if self.member is not None and not self.is_archive:
            raise SpecError(f"only .npz and .json files have members, not {self.path!r}")

    @property
    def is_archive(self) -> bool:
        """Whether it holds arrays by name."""
        return self.path.lower().endswith(_ARCHIVES)

    def __str__(self) -> str:
        text = _quote(self.path)
        return text if self.member is None else f"{text}!{_quote(self.member)}"


@dataclass(frozen=True)
class Generated:
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
        parts = [_number_text(a) for a in self.args] + [str(n) for n in self.shape or ()]
        parts += ["..."] * self.rest
        parts += [f"seed={self.seed}"] * (self.seed is not None)
        return f"#{self.kind}({','.join(parts)})" if parts else f"#{self.kind}"


@dataclass(frozen=True)
class Values:
    """Values written out, as JSON text of nested lists of equal lengths."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ListFile:
    """A file with a specification a line."""

    path: str

    def __str__(self) -> str:
        plain = self.path == self.path.strip() and self.path[:1] not in ("'", '"')
        return f"@{self.path if plain else _quote(self.path)}"


@dataclass(frozen=True, eq=False)
class ArraySource:
    """An array of the caller, which no text stands for."""

    array: np.ndarray[Any, Any]

    def __str__(self) -> str:
        return f"<{self.array.dtype} {list(self.array.shape)}>"


Source = PathSource | Generated | Values | ArraySource
InputData = str | Mapping[str, object] | object
"""One item of ``input_data``: a text, or arrays: one, or several by input name."""


@dataclass(frozen=True)
class InputPart:
    """One input's data; the name is None if it was left out.

    Attributes:
        at: where the part starts in the text, for error messages.
        source_at: where its source starts.
    """

    name: str | None
    source: Source
    at: int = field(default=0, compare=False, repr=False)
    source_at: int = field(default=0, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.source) if self.name is None else f"{_quote(self.name)}:{self.source}"


@dataclass(frozen=True)
class InputSpec:
    """A parsed specification: its parts, or the list file that it stands for.

    Attributes:
        text: what it was parsed from, for error messages.

    >>> spec = parse("data : cat.jpg ; mask:#rand(0, 1e2, 1, ...)")
    >>> str(spec)
    'data:cat.jpg;mask:#rand(0,100,1,...)'
    >>> parse(str(spec)) == spec
    True
    """

    parts: tuple[InputPart, ...] = ()
    listed: ListFile | None = None
    text: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.listed) if self.listed else ";".join(map(str, self.parts))


def parse(text: str) -> InputSpec:
    """Parse a specification.

    Raises:
        SpecError: the text does not follow the grammar; the message shows it with a caret under the fault.

    >>> parse("#rand(0,255,1,3,...)").parts[0].source
    Generated(kind='rand', args=(0.0, 255.0), shape=(1, 3), rest=True, seed=None, braces=False)
    >>> parse("data:#rand(0)")
    Traceback (most recent call last):
    loadrun.base.errors.SpecError: #rand takes 2 numbers before the shape, found 1
      data:#rand(0)
           ^
    """
    if not isinstance(text, str):
        raise SpecError(
            f"a specification must be a string such as 'data:cat.jpg', found {type(text).__name__}"
        )
    scanner = _SpecScanner(text)
    if scanner.take("@"):
        return InputSpec(listed=ListFile(scanner.list_file()), text=text)
    parts: list[InputPart] = []
    while True:
        parts.append(scanner.part())
        if not scanner.take(";") or not scanner.peek():
            break
    scanner.end()
    seen: set[str] = set()
    for part in parts:
        if part.name is not None and part.name in seen:
            raise scanner.error(f"the input {part.name!r} is given twice", part.at)
        seen.add(part.name or "")
    return InputSpec(tuple(parts), text=text)


class _SpecScanner:
    """A cursor over the text; every method skips blanks first."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.closing: dict[str, tuple[int, bool]] = {}

    def error(self, message: str, at: int | None = None) -> SpecError:
        return SpecError(point(message, self.text, self.pos if at is None else at))

    def peek(self) -> str:
        while self.pos < len(self.text) and self.text[self.pos].isspace():
            self.pos += 1
        return self.text[self.pos : self.pos + 1]

    def current(self) -> str:
        char = self.peek()
        return repr(char) if char else "the end"

    def take(self, char: str) -> bool:
        if self.peek() != char:
            return False
        self.pos += 1
        return True

    def expect(self, char: str, what: str) -> None:
        if not self.take(char):
            raise self.error(f"expected {char!r} {what}, found {self.current()}")

    def end(self) -> None:
        if self.peek():
            raise self.error(f"expected ';' or the end, found {self.current()}")

    def list_file(self) -> str:
        """Read what follows @: all of it, since MegEngine takes the rest of the text for the path."""
        if self.peek() in ("'", '"'):
            path = self.quoted()
            if self.peek():
                raise self.error(f"expected the end after a list file, found {self.current()}")
            return path
        path = self.text[self.pos :].strip()
        if not path:
            raise self.error("expected a list file after @")
        return path

    def part(self) -> InputPart:
        first = self.peek()
        at = self.pos
        if first in ("", ";"):
            raise self.error(f"expected name:source, found {self.current()}")
        if first in ("#", "@") or (first in ("{", "[") and not self.still_a_path()):
            return InputPart(None, self.source(), at, at)
        word = self.word("a name or a file")
        if not self.take(":"):
            return InputPart(None, self.member(word), at, at)
        self.peek()
        source_at = self.pos
        return InputPart(word, self.source(), at, source_at)

    def source(self) -> Source:
        first = self.peek()
        if first == "#":
            return self.fill()
        if first in ("{", "[") and not self.still_a_path():
            return self.braces() if first == "{" else self.values()
        if first == "@":
            raise self.error(
                "a list file (@) must be the whole specification; a file of that name needs quotes"
            )
        return self.member(self.word("a file, #rand(...), {shape} or [values]", colons=True))

    def still_a_path(self) -> bool:
        """Return whether a bracket starts a file's name, as in ``[1].npy``, which MegEngine accepts."""
        mark = "}" if self.text[self.pos] == "{" else "]"
        at, path = self.closing.get(mark, (-1, False))
        if at < self.pos:
            # Kept, since thousands of parts may stand before the same bracket.
            at = self.text.find(mark, self.pos)
            path = at >= 0 and _STILL_A_PATH.match(self.text, at + 1) is not None
            self.closing[mark] = (at if at >= 0 else len(self.text), path)
        return path

    def member(self, path: str) -> PathSource:
        if not self.take("!"):
            return PathSource(path)
        if not path.lower().endswith(_ARCHIVES):
            raise self.error("only .npz and .json files have members", self.pos - 1)
        return PathSource(path, self.word("an array's name after !", colons=True))

    def quoted(self) -> str:
        mark, start = self.text[self.pos], self.pos
        match = re.compile(f"{mark}((?:[^{mark}]|{mark}{mark})*){mark}").match(self.text, start)
        if match is None:
            raise self.error("this quote is never closed", start)
        self.pos = match.end()
        if match.end() == start + 2:
            raise self.error("these quotes are empty", start)
        return match.group(1).replace(mark * 2, mark)

    def word(self, what: str, *, colons: bool = False) -> str:
        """Read a quoted or plain name or path; `colons`: a single colon belongs to it."""
        first = self.peek()
        if first in ("'", '"'):
            return self.quoted()
        start = self.pos
        out: list[str] = []
        if _DRIVE.match(self.text, start):
            out.append(self.text[start : start + 2])
            self.pos += 2
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if self.text.startswith("::", self.pos):
                out.append(":")
                self.pos += 2
            elif char == ";" or (char == ":" and not colons) or (char == "!" and _is_archive(out)):
                break
            else:
                out.append(char)
                self.pos += 1
        word = "".join(out).strip()
        if not word:
            self.pos = start
            raise self.error(f"expected {what}, found {self.current()}")
        return word

    def fill(self) -> Generated:
        at = self.pos
        match = _KIND.match(self.text, at)
        kind = match.group(1) if match else ""
        if match is None or kind not in FILLS:
            hint = f"; did you mean #{kind.lower()}?" if kind.lower() in FILLS else ""
            known = ", ".join("#" + k for k in FILLS)
            raise self.error(f"unknown generator #{kind}{hint or f'; expected one of {known}'}")
        self.pos = match.end()
        args, rest, seed = self.arguments() if self.take("(") else ([], False, None)
        least, most = FILLS[kind]
        count = least if kind != "randn" else min(len(args), most)
        if len(args) < least or (kind == "randn" and count == 1):
            numbers = "1 number" if most == 1 else f"{most} numbers"
            raise self.error(f"#{kind} takes {numbers} before the shape, found {len(args)}", at)
        params = tuple(self.number(text, where, whole=kind == "randint") for text, where in args[:count])
        if kind == "rand" and not math.isfinite(params[1] - params[0]):
            raise self.error("this range is wider than float64 can hold", at)
        if kind == "randint" and not 0 < params[1] - params[0] <= 2**32:
            raise self.error(
                "#randint takes a lower and a greater upper bound (excluded), at most 2**32 apart", at
            )
        shape = tuple(self.axis(text, where) for text, where in args[count:])
        if len(shape) > _MAX_AXES:
            raise self.error(f"{len(shape)} axes are more than any input has", args[count][1])
        return Generated(kind, params, shape if shape or rest else None, rest, seed)

    def number(self, text: str, at: int, *, whole: bool) -> float:
        try:
            value = float(text)
        except ValueError:
            raise self.error(f"{text[:40]} is not a number", at) from None
        if not math.isfinite(value):
            raise self.error(f"{text[:40]} is larger than float64 can hold", at)
        if whole and (value != int(value) or abs(value) > 2**53):
            raise self.error(f"#randint takes whole numbers up to 2**53, found {text[:40]}", at)
        return value

    def axis(self, text: str, at: int) -> int:
        try:
            value = int(text)
        except ValueError:
            raise self.error(f"an axis must be a whole number, found {text[:40]}", at) from None
        if not 0 <= value < 2**31:
            problem = "not be negative" if value < 0 else "be less than 2**31"
            raise self.error(f"an axis must {problem}, found {text[:40]}", at)
        return value

    def arguments(self) -> tuple[list[tuple[str, int]], bool, int | None]:
        """Read what is in parentheses: numbers with their places, whether ``...`` follows, and the seed."""
        args: list[tuple[str, int]] = []
        rest, seed = False, None
        while self.peek() != ")" or args:
            at = self.pos
            if seed is not None or (rest and not _SEED.match(self.text, at)):
                raise self.error(
                    "seed=N must come last" if seed is not None else "nothing but seed=N may follow ..."
                )
            if dots := _DOTS.match(self.text, at):
                self.pos, rest = dots.end(), True
            elif match := _SEED.match(self.text, at):
                self.pos, seed = match.end(), self.seed(match.group(1), match.start(1))
            elif match := _NUMBER.match(self.text, at):
                args.append((match.group(), at))
                self.pos = match.end()
            else:
                raise self.error(f"expected a number, found {self.current()}")
            if not self.take(","):
                break
        self.expect(")", "after the arguments")
        return args, rest, seed

    def seed(self, digits: str, at: int) -> int:
        value = int(digits) if len(digits) <= 20 else MAX_SEED + 1
        if value > MAX_SEED:
            raise self.error("a seed must be less than 2**64", at)
        return value

    def braces(self) -> Generated:
        self.pos += 1
        shape = []
        while True:
            self.peek()
            match = _WHOLE.match(self.text, self.pos)
            if match is None:
                raise self.error(f"expected a whole number in {{shape}}, found {self.current()}")
            shape.append(self.axis(match.group(), self.pos))
            self.pos = match.end()
            if len(shape) > _MAX_AXES:
                raise self.error("these are more axes than any input has")
            if not self.take(","):
                break
        self.expect("}", "after the shape")
        return Generated("rand", (0.0, 1.0), tuple(shape), braces=True)

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
            _axes(data)
            return Values(json.dumps(data, separators=(",", ":")))
        except json.JSONDecodeError as e:
            wanted = "expected nested lists of numbers such as [[1,2],[3,4]]"
            raise self.error(wanted, start + e.pos) from None
        except RecursionError:
            raise self.error("these lists are nested too deeply", start) from None
        except ValueError as e:
            raise self.error(str(e), start) from None


def _is_archive(chars: list[str]) -> bool:
    return "".join(chars[-8:]).strip().lower().endswith(_ARCHIVES)


def _axes(data: object) -> tuple[int, ...]:
    """Return the shape of nested lists of numbers."""
    if not isinstance(data, list):
        if isinstance(data, (int, float)):
            return ()
        raise ValueError("expected numbers (true and false included) in the lists")
    inner = {_axes(item) for item in data}
    if len(inner) > 1:
        raise ValueError("the lists have different lengths")
    axes = (len(data), *(inner.pop() if inner else ()))
    if len(axes) > _MAX_AXES:
        raise ValueError("these lists are nested too deeply")
    return axes


def _quote(text: str) -> str:
    if _PLAIN.fullmatch(text) and text == text.strip():
        return text
    mark = '"' if "'" in text and '"' not in text else "'"
    return f"{mark}{text.replace(mark, mark * 2)}{mark}"


def _number_text(value: float) -> str:
    whole = value == int(value) and abs(value) < 1e15 and (value or math.copysign(1, value) > 0)
    return str(int(value)) if whole else repr(value)

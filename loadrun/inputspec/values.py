"""What a specification stands for: frozen values, each of which gives its text back."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from ..errors import SpecError

__all__ = [
    "ARCHIVES",
    "FILLS",
    "MAX_SEED",
    "Generated",
    "InputPart",
    "InputSpec",
    "ListFile",
    "PathSource",
    "Source",
    "Values",
]

ARCHIVES = (".npz", ".json")
"""Files of several arrays, of which a member can be picked."""
FILLS = {"rand": (2, 2), "randn": (0, 2), "randint": (2, 2), "zeros": (0, 0), "ones": (0, 0), "full": (1, 1)}
"""Generators with the smallest and the largest number of leading numeric arguments."""
MAX_SEED = 2**64 - 1
_PLAIN = re.compile(r"[^\s;:'\"{}\[\]#@!\\][^;:'\"!]*")


@dataclass(frozen=True)
class PathSource:
    """A file, and for .npz and .json the member to take."""

    path: str
    member: str | None = None

    def __post_init__(self) -> None:
        if self.member is not None and not self.path.lower().endswith(ARCHIVES):
            raise SpecError(f"only .npz and .json files have members to pick, not {self.path!r}")

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


Source = PathSource | Generated | Values


@dataclass(frozen=True)
class InputPart:
    """One input's data; the name is None where it was left out.

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

    >>> from loadrun.inputspec import parse
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


def _quote(text: str) -> str:
    if _PLAIN.fullmatch(text) and text == text.strip():
        return text
    mark = '"' if "'" in text and '"' not in text else "'"
    return f"{mark}{text.replace(mark, mark * 2)}{mark}"


def _number_text(value: float) -> str:
    whole = value == int(value) and abs(value) < 1e15 and (value or math.copysign(1, value) > 0)
    return str(int(value)) if whole else repr(value)

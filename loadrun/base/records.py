"""Dataclasses that are quick to define.

`dataclasses` compiles up to six methods for every class, which took a fifth of the time that the command line needs to
start. Here all classes share their methods but `__init__`.
"""

from __future__ import annotations

import dataclasses
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False, kw_only=False):
        """Make a class a dataclass, as `dataclasses.dataclass` does, whose functions take it as one of theirs.

        >>> @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1) == Point(x=1, y=0), dataclasses.replace(Point(1), y=2)
        (True, Point(x=1, y=2))
        """
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, slots=slots, kw_only=kw_only)
        own = vars(cls)
        cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
        methods = {"__init__": _init(cls, frozen), "__repr__": _repr}
        if frozen:
            methods |= {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
        if eq:
            methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
        for name, method in methods.items():
            if own.get(name) is None:
                setattr(cls, name, method)
        return cls


class _Factory:
    """The default of a field whose value is fresh anew for each object, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


def _init(cls: type, frozen: bool) -> Any:  # noqa: ANN401 - a function of any parameters
    """Compile the ``__init__`` of a class, whose parameters are its fields."""
    names: dict[str, object] = {"_set": object.__setattr__, "_FACTORY": _Factory()}
    parameters: dict[bool, list[str]] = {False: ["self"], True: ["*"]}
    lines = []
    fields = dataclasses.fields(cls)
    for f in fields:
        value, default = f.name, ""
        if f.default is not dataclasses.MISSING:
            default = f"_default_{f.name}"
            names[default] = f.default
            value = value if f.init else default
        elif f.default_factory is not dataclasses.MISSING:
            default = "_FACTORY"
            names[f"_make_{f.name}"] = f.default_factory
            fresh = f"_make_{f.name}()"
            value = f"{fresh} if {f.name} is _FACTORY else {f.name}" if f.init else fresh
        elif not f.init:
            continue
        if f.init:
            parameters[bool(f.kw_only)].append(f"{f.name}={default}" if default else f.name)
        lines.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    if not parameters[True][1:]:
        parameters[True].clear()
    source = f"def __init__({', '.join(parameters[False] + parameters[True])}):\n "
    exec(source + "\n ".join(lines or ["pass"]), names)
    init: Any = names["__init__"]
    init.__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _compared(value: Any) -> tuple[object, ...]:  # noqa: ANN401 - any dataclass
    return tuple([getattr(value, f.name) for f in dataclasses.fields(value) if f.compare])


def _eq(self: object, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _compared(self) == _compared(other)


def _hash(self: object) -> int:
    return hash(_compared(self))


@recursive_repr()
def _repr(self: Any) -> str:  # noqa: ANN401 - any dataclass
    told = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(told)})"


def _refuse_change(self: object, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change the field {name!r} of a {type(self).__name__}")

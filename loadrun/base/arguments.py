"""Arguments of public calls, held against their annotations before anything is done with them."""

from __future__ import annotations

import builtins
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from math import isnan
from numbers import Integral, Real
from typing import Any, TypeVar

from .errors import UsageError, UsageTypeError, clean
from .files import nameable

__all__ = ["misfits", "require_seed", "typed"]

_PACKAGE = __name__.partition(".")[0]
F = TypeVar("F", bound=Callable[..., Any])
_NAMES: dict[object, tuple[str, str]] = {
    bool: ("True or False", "truth values"),
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    bytes: ("bytes", "bytes"),
    Any: ("anything", "values"),
    type: ("a class", "classes"),
    type(None): ("None", "None"),
    os.PathLike: ("a path", "paths"),
    Callable: ("a function", "functions"),
    typing.BinaryIO: ("a binary file", "binary files"),
    typing.TextIO: ("a text file", "text files"),
}
"""What messages call one of a type, and several."""
_ABSTRACT: dict[object, Any] = {int: Integral, float: Real, bytes: (bytes, bytearray, memoryview)}


def typed(function: F) -> F:
    """Make a function, or the class of a record, refuse arguments that are not what its annotations say.

    Numbers and truth values may be numpy's, and any collection but a text stands for a sequence or tuple. Left to the
    function are arrays, what others than Python's own containers hold, and what is annotated with names that are not
    there when it runs.

    >>> @typed
    ... def scaled(name: str, by: float | None = None, only: Iterable[str] = ()) -> None: ...
    >>> scaled("x", 2, ["y"])
    >>> scaled("x", "2")
    Traceback (most recent call last):
        ...
    loadrun.base.errors.UsageTypeError: by of scaled() must be a number or None, found the text '2'
    >>> scaled("x", only="y")
    Traceback (most recent call last):
        ...
    loadrun.base.errors.UsageTypeError: only of scaled() must be a collection of texts, found the text 'y'
    """
    if isinstance(function, type):
        function.__init__ = _guarded(function.__init__, function)  # type: ignore[misc]
        return function
    return typing.cast(F, _guarded(function))


def _guarded(function: Callable[..., Any], owner: type | None = None) -> Callable[..., Any]:
    # Records of options are made by calls that take these as keywords: their names alone say where they are.
    of = "" if owner is not None else f" of {function.__qualname__.removesuffix('.__init__')}()"

    @cache
    def known() -> tuple[inspect.Signature, dict[str, object], set[str]]:
        signature = inspect.signature(function)
        where = vars(sys.modules[function.__module__]) if owner is None else {}
        hints = {p.name: _hint(p.annotation, where) for p in signature.parameters.values()}
        hints |= {} if owner is None else _hints(owner)
        return signature, hints, {name for name, hint in hints.items() if "PathLike" in str(hint)}

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - a function of any parameters
        __tracebackhide__ = True
        signature, hints, paths = known()
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            # Python itself says which argument is missing or unknown.
            return function(*args, **kwargs)
        for key, value in arguments.items():
            kind = signature.parameters[key].kind
            many = kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            for one in (value.values() if isinstance(value, dict) else value) if many else (value,):
                hint = hints.get(key, Any)
                # NaN is a number of data, never of a record: every comparison with it is false.
                if not _fits(one, hint) or (owner is not None and isinstance(one, float) and isnan(one)):
                    raise UsageTypeError(_misfit(one, hint, key, of))
                if key not in paths:
                    continue
                for text in one if isinstance(one, (list, tuple)) else (one,):
                    if isinstance(text, str):
                        nameable(text)
        return function(*args, **kwargs)

    return call


def require_seed(seed: object) -> None:
    """Refuse what is no seed of random numbers.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(seed, Integral) or not 0 <= int(seed) < 2**64:
        raise UsageError(f"a seed must be a whole number from 0 to 2**64 - 1, found {seed!r}")


def misfits(record: object, what: str) -> Iterable[str]:
    """Say which attributes of a dataclass are not what their annotations say.

    >>> from loadrun.graph import Graph
    >>> list(misfits(Graph(outputs=[None]), "the graph"))
    ['outputs[0] of the graph must be a Var, found None']
    """
    for name, hint in _hints(type(record)).items():  # type: ignore[arg-type]
        value = getattr(record, name)
        if not _fits(value, hint):
            yield _misfit(value, hint, name, f" of {what}")


@cache
def _hints(owner: type) -> dict[str, object]:
    """Return the annotations of a dataclass's fields, each evaluated where it stands."""
    hints: dict[str, object] = {}
    for cls in reversed(owner.__mro__):
        if is_dataclass(cls):
            own, where = inspect.get_annotations(cls), vars(sys.modules[cls.__module__])
            hints |= {f.name: _hint(own[f.name], where) for f in fields(cls) if f.name in own}
    return hints


class _Names(dict[str, Any]):
    """The names of a module, of Python and of the package; any other may be anything."""

    def __missing__(self, name: str) -> object:
        # Modules import names for annotations alone only where type checkers read them.
        return getattr(builtins, name, None) or getattr(sys.modules[_PACKAGE], name, Any)


def _hint(annotation: object, where: Mapping[str, Any]) -> object:
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        holder = types.SimpleNamespace(__annotations__={"hint": annotation})
        return typing.get_type_hints(holder, {}, _Names(where))["hint"]
    except (AttributeError, NameError, TypeError):
        # A name that is not there has parameters or attributes.
        return Any


def _fits(value: object, hint: object) -> bool:
    """Return whether a value is what an annotation says, as far as that is known."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, h) for h in inner)
    if origin is typing.Literal:
        return value in inner
    plain: Any = type(None) if hint is None else origin or hint
    if plain is Callable:
        return callable(value)
    if plain in (typing.BinaryIO, typing.TextIO):
        return hasattr(value, "read") or hasattr(value, "write")
    if plain is bool:
        return type(value).__name__ in ("bool", "bool_") or (isinstance(value, int) and value in (0, 1))
    if plain is type and inner:
        return isinstance(value, type) and (not isinstance(inner[0], type) or issubclass(value, inner[0]))
    if plain in (Any, object) or not isinstance(plain, type) or plain.__module__ == "numpy":
        return True
    if getattr(plain, "_is_protocol", False):
        return callable(value) or "__call__" not in vars(plain)
    if inner and issubclass(plain, Iterable):
        return _holds(value, plain, inner)
    return isinstance(value, _ABSTRACT.get(plain, plain))


def _holds(value: object, kind: type, inner: tuple[object, ...]) -> bool:
    """Return whether a value is a container of one kind, and what it holds is as it should be."""
    if issubclass(kind, Mapping):
        return isinstance(value, Mapping) and (
            not isinstance(value, dict)
            or all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
        )
    if (
        isinstance(value, (str, bytes, Mapping))
        or getattr(value, "ndim", 1) == 0
        or not (hasattr(value, "__iter__") or hasattr(value, "__getitem__"))
    ):
        return False
    if kind is tuple and inner[-1] is not ...:
        return isinstance(value, Collection) and len(value) == len(inner) and all(map(_fits, value, inner))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(_fits(v, inner[0]) for v in value)
    # Others may give what they hold only once, or read it from a file each time.
    return kind is Iterable or hasattr(value, "__len__")


def _misfit(value: object, hint: object, place: str, of: str) -> str:
    """Say what was expected and found where: at the first part that does not fit, if the whole is of a fitting kind."""
    for h in typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,):
        inner = typing.get_args(h)
        if not inner or not isinstance(value, (list, tuple, set, frozenset, Mapping)):
            continue
        named = isinstance(value, Mapping)
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in parts if _fits({} if named else (), h) else ():
            if not _fits(part, inner[named]):
                return _misfit(part, inner[named], f"{place}[{key!r}]", of)
    return f"{place}{of} must be {_called(hint, 0)}, found {_shown(value)}"


def _shown(value: object) -> str:
    if value is None or isinstance(value, str):
        return "None" if value is None else f"the text {clean(repr(value))}"
    plain = isinstance(value, (bool, int, float, list, tuple, dict, set))
    return f"{type(value).__name__} {clean(repr(value), 100)}" if plain else f"a {type(value).__name__}"


def _called(hint: object, several: int) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_called(h, several) for h in inner))
    plain: Any = type(None) if hint is None else origin or hint
    if plain is type and inner:
        return f"{_NAMES[type][several]} of {_called(inner[0], 1)}"
    if plain in _NAMES:
        return _NAMES[plain][several]
    if isinstance(plain, type) and inner and issubclass(plain, Mapping):
        return ("a mapping", "mappings")[several] + f" of {_called(inner[0], 1)} to {_called(inner[1], 1)}"
    if isinstance(plain, type) and inner and issubclass(plain, Iterable) and plain.__module__ != "numpy":
        parts = dict.fromkeys(_called(h, 1) for h in inner if h is not ...)
        return ("a collection", "collections")[several] + f" of {' or '.join(parts)}"
    name = getattr(plain, "__name__", "anything")
    return f"{name} objects" if several else f"a{'n' * (name[:1] in 'AEIOU')} {name}"

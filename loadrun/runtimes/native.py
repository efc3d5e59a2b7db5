"""Shared by engines of runtimes: values in the types that a file declares, and options behind the colon of a name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.about import About
from ..base.errors import InputError, UsageError
from ..base.extras import install
from ..engines import NATIVE, TRANSLATED
from ..graph.dtypes import Array
from ..testcase import FileValue, SourceFile


class NotTaken(Exception):
    """A runtime does not take a model; the message is its own."""


def missing(package: str, why: Exception) -> UsageError:
    """Make the error for a runtime that is not installed."""
    said = "" if isinstance(why, ModuleNotFoundError) else f" ({why})"
    return UsageError(f"the engine {package} needs the package {package}: {install(package)}{said}")


class Ports(NamedTuple):
    """The inputs of a file as a runtime names them.

    Attributes:
        names: those that it wants.
        optional: those that the file has a value for.
        dtypes: how numpy holds them, by name; text, sequences and maps have none.
        shapes: the declared sizes by name, of which open ones are no integers.
    """

    names: Sequence[str]
    optional: Sequence[str]
    dtypes: Mapping[str, np.dtype[Any]]
    shapes: Mapping[str, Sequence[object]]


def fitted(source: SourceFile, ports: Ports, feeds: Mapping[str, FileValue]) -> dict[str, Any]:
    """Values by input name in the types that a file declares.

    Inputs that no output depends on are not in the graph that was made of the file: they get zeros.

    Raises:
        InputError: an input is missing or unknown, or a value does not fit its type.
    """
    if not source.constants and _as_declared(source, ports, feeds):
        return dict(feeds)
    inputs: dict[str, Any] = {}
    for name in ports.names:
        if name in source.constants:
            inputs[name] = _as_type(name, source.constants[name], ports, source)
        elif name in feeds:
            inputs[name] = _as_type(name, feeds[name], ports, source)
        else:
            inputs[name] = _zeros(name, source, ports, feeds)
    for name in source.constants.keys() & set(ports.optional):
        inputs[name] = _as_type(name, source.constants[name], ports, source)
    if len(inputs) < len(feeds) or any(n not in inputs for n in feeds):
        for name in feeds:
            if name in inputs:
                continue
            if name not in ports.optional:
                raise InputError(
                    f"the model has no input {name!r}; its inputs are {', '.join(ports.names) or 'none'}"
                )
            inputs[name] = _as_type(name, feeds[name], ports, source)
    return inputs


def refused(engine: str, source: SourceFile, why: Exception) -> str:
    """Report that a runtime does not take a file, with the other way where there is one."""
    other = f"; {engine}:{TRANSLATED} runs loadrun's graph instead" if source.graph.outputs else ""
    return f"{engine} rejects the file: {why}{other}"


def native_about(runtime: Any, source: SourceFile, arithmetic: str = "") -> About:  # noqa: ANN401 - see `Runtime`
    """Describe a runtime that runs a file as it is."""
    told = runtime.name, runtime.version, arithmetic, runtime.provider
    return About(*told, operators=source.nodes, way=NATIVE, options=runtime.options.text)


def _as_declared(source: SourceFile, ports: Ports, feeds: Mapping[str, FileValue]) -> bool:
    """Return whether values are all that a file wants, in its types; this takes as long as small models run."""
    if len(feeds) != len(ports.names):
        return False
    for name in ports.names:
        value = feeds.get(name)
        if type(value) is not np.ndarray or value.dtype != ports.dtypes.get(name):
            return False
        if value.ndim == 1 and name in source.scalars:
            return False
    return True


def _as_type(name: str, value: FileValue, ports: Ports, source: SourceFile) -> FileValue:
    want = ports.dtypes.get(name)
    if want is None:
        return value
    array = np.asarray(value)
    if array.dtype != want:
        array = _cast(name, array, want)
    if name in source.scalars and array.ndim == 1 and array.size == 1:
        array = array.reshape(())
    return array


def _cast(name: str, array: Array, want: np.dtype[Any]) -> Array:
    """Another type of numbers: any real number as a float, else only the same number."""
    if array.dtype.kind in "fiub" and want.kind in "fiub":
        with np.errstate(all="ignore"):
            converted = array.astype(want)
        if want.kind == "f" or bool((converted == array).all()):
            return converted
    raise InputError(
        f"input {name!r} takes {want}; the given {array.dtype} array holds values that do not fit"
    )


def _zeros(name: str, source: SourceFile, ports: Ports, feeds: Mapping[str, FileValue]) -> Array:
    shape = [n for n in ports.shapes.get(name, ("",)) if isinstance(n, int)]
    read = {id(o) for o in source.graph.needed()} if source.graph.outputs else None
    needed = any(v.name == name and (read is None or id(v.owner) in read) for v in source.graph.inputs)
    if needed or name not in ports.dtypes or len(shape) != len(ports.shapes[name]):
        raise InputError(f"the input {name!r} is missing; found {', '.join(feeds) or 'none'}")
    return np.zeros(shape, ports.dtypes[name])


class EngineOptions(NamedTuple):
    """The options of an engine.

    Attributes:
        words: those without a value, such as providers, but for ``translated``.
        values: the others by key.
    """

    words: tuple[str, ...]
    values: dict[str, str]

    @classmethod
    def of(cls, argument: str) -> EngineOptions:
        """Divide the argument of an engine.

        Raises:
            UsageError: a key comes twice.

        >>> EngineOptions.of("CUDA:opt=basic:translated")
        EngineOptions(words=('CUDA',), values={'opt': 'basic'})
        """
        words, values = [], {}
        for part in filter(None, argument.split(":")):
            key, equals, value = part.partition("=")
            if not equals:
                words.append(part)
            elif key in values:
                raise UsageError(f"the engine's option {key!r} is given twice")
            else:
                values[key] = value
        return cls(tuple(w for w in words if w != TRANSLATED), values)

    @property
    def text(self) -> tuple[str, ...]:
        """The values as they were written."""
        return tuple(f"{k}={v}" for k, v in self.values.items())


def number(key: str, value: str, least: int = 0) -> int:
    """Parse the integer of an option.

    Raises:
        UsageError: it is none, or less than the smallest.
    """
    if not (value.isascii() and value.isdigit() and int(value) >= least):
        raise UsageError(
            f"the engine's option {key}= takes a whole number of at least {least}, found {value!r}"
        )
    return int(value)


def choice(key: str, value: str, known: Collection[str]) -> str:
    """Check the word of an option.

    Raises:
        UsageError: it is none of those that are known.
    """
    if value not in known:
        raise UsageError(f"the engine's option {key}= takes {', '.join(known)}, found {value!r}")
    return value

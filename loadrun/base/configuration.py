"""Configuration of a project: what `pyproject.toml` or `loadrun.toml` says of its models, to commands and pytest.

[tool.loadrun]                      # in loadrun.toml without "tool.loadrun."
engines = ["onnxruntime"]
timeout = 60

[[tool.loadrun.files]]
match = ["legacy/*.mge", "net.onnx"]
check = ["rtol=1e-3", "ids: exact"]
xfail = "rounds differently since the new kernels"
expires = 2027-03-01
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from . import schema
from .errors import FormatError, UsageError, clean
from .files import contents

_OWN, _SHARED = "loadrun.toml", "pyproject.toml"
_TEXTS = schema.items(schema.text)


def _date(value: object, where: str) -> date:
    if type(value) is not date:
        raise FormatError(f"{where}: expected a date such as 2027-03-01 without quotes, found {value!r}")
    return value


def _reason(value: object, where: str) -> str:
    reason = schema.text(value, where)
    if not reason.strip():
        raise FormatError(f"{where}: expected the reason, found an empty text")
    return reason


_RULE: dict[str, Callable[[object, str], Any]] = {
    "engines": _TEXTS,
    "check": _TEXTS,
    "timeout": schema.number(1e-3),
    "xfail_strict": schema.truth,
}
_FILE = schema.exactly({"match": _TEXTS}, {**_RULE, "skip": _reason, "xfail": _reason, "expires": _date})
_ALL = schema.exactly({}, {**_RULE, "files": schema.items(_FILE)})


@dataclass(frozen=True)
class FileRule:
    """What is configured for a file.

    Attributes:
        engines: names of the engines that run it; empty for those of the command.
        check: policies, as ``--check`` takes them.
        timeout: seconds that it may take.
        skip: why it is not run, None if it is.
        xfail: why a check of it is expected to fail, None if it is expected to pass.
        xfail_strict: whether it fails if it passes nevertheless.
        notes: what there is to say: entries that expired.
    """

    engines: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    timeout: float | None = None
    skip: str | None = None
    xfail: str | None = None
    xfail_strict: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Configuration:
    """The rules of a project.

    Attributes:
        path: the file that they stand in.
        data: what is there, checked.
        today: the day by which entries expire.
    """

    path: str
    data: Mapping[str, Any]
    today: date

    def without_engines(self) -> Configuration:
        """Return the same rules without engines, which the caller names."""
        files = [{k: v for k, v in e.items() if k != "engines"} for e in self.data.get("files", ())]
        rest = {k: v for k, v in self.data.items() if k != "engines"}
        return replace(self, data={**rest, "files": files})

    @property
    def root(self) -> str:
        """The folder that patterns begin in."""
        return os.path.dirname(os.path.abspath(self.path))

    def unmatched(self, files: Iterable[str | os.PathLike[str]]) -> list[str]:
        """Return a sentence for every pattern that matches neither one of some files nor any other one on disk."""
        patterns = dict.fromkeys(p for entry in self.data.get("files", ()) for p in entry["match"])
        names = [self._name(f) for f in files]
        left = [p for p in patterns if not any(matches(name, p) for name in names)]
        return [f"match {clean(repr(p), 200)} matches no file" for p in unmatched(self.root, left)]

    def _name(self, file: str | os.PathLike[str]) -> str:
        return os.path.relpath(os.path.abspath(file), self.root).replace(os.sep, "/")

    def of(self, file: str | os.PathLike[str]) -> FileRule:
        """Return what is configured for a file; if several entries match, the last value counts.

        >>> data = {"files": [{"match": ["old/*.mge"], "skip": "no GPU"}]}
        >>> found = Configuration("p/loadrun.toml", data, date.today())
        >>> found.of("p/old/a.mge").skip, found.of("p/new/a.mge").skip
        ('no GPU', None)
        """
        rule, name = FileRule(), self._name(file)
        for entry in (self.data, *self.data.get("files", ())):
            if not any(matches(name, p) for p in entry.get("match", ["*"])):
                continue
            values = {k: entry[k] for k in (*_RULE, "skip", "xfail") if k in entry}
            given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
            expires = entry.get("expires")
            if expires is not None and expires < self.today:
                reason = given.pop("xfail", "")
                reason = given.pop("skip", reason)
                said = f"its entry in {os.path.basename(self.path)} expired on {expires}: {reason}"
                given["notes"] = (*rule.notes, said)
            rule = replace(rule, **given)
        return rule


def find_configuration(start: str | os.PathLike[str] = ".") -> Configuration | None:
    """Read the nearest configuration, of this folder or of one above it; None if there is none.

    Raises:
        FormatError: it is wrong.
        UsageError: this Python cannot read TOML.
    """
    folder, below = os.path.realpath(start), ""
    while folder != below:
        for name in (_OWN, _SHARED):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and (
                name == _OWN or b"[tool.loadrun" in contents(path, "a configuration")
            ):
                return read_configuration(path)
        folder, below = os.path.dirname(folder), folder
    return None


def read_configuration(path: str | os.PathLike[str]) -> Configuration:
    """Read a configuration: a `pyproject.toml`, or any other file as a `loadrun.toml`.

    Raises:
        FormatError: it is no TOML, or an entry is unknown or of a wrong type.
        UsageError: this Python cannot read TOML.
    """
    name = os.fspath(path)
    loads = _toml(name)
    text = contents(path, "a configuration")
    try:
        data: Any = loads(text.decode())
        where = "the file"
        if os.path.basename(name) == _SHARED:
            tool = data.get("tool", {})
            data, where = tool.get("loadrun", {}) if isinstance(tool, dict) else tool, "tool.loadrun"
        _ALL(data, where)
    except FormatError as e:
        raise FormatError(e.message, path=name) from None
    except ValueError as e:
        raise FormatError(f"invalid TOML: {e}", path=name) from None
    return Configuration(name, data, date.today())


def _toml(name: str) -> Callable[[str], Any]:
    """Return the TOML parser: Python's own from 3.11 on, otherwise the package tomli."""
    for module in ("tomllib", "tomli"):
        if find_spec(module) is not None:
            loads: Callable[[str], Any] = import_module(module).loads
            return loads
    raise UsageError(
        f"{name} cannot be read: Python before 3.11 needs the package tomli for that (pip install tomli), or "
        "--config none leaves it out"
    )


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern is for a file or test: for its whole name, or its end from a folder or file on.

    >>> name = "models/net/m077.mge::1::logits"
    >>> [matches(name, p) for p in ("m077.mge", "m0*.mge::1::*", "net/*::logits", "77.mge", "*")]
    [True, True, True, False, True]
    """
    path, colons, rest = name.partition("::")
    names = path.split("/")
    ends = ["/".join(names[i:]) for i in range(len(names))]
    return bool(pattern) and any(
        fnmatchcase(end + colons + rest, p) for end in ends for p in (pattern, f"{pattern}::*")
    )


def unmatched(root: str, patterns: Iterable[str]) -> list[str]:
    """Return the patterns that `matches` none of the files below a folder."""

    def is_seen(pattern: str) -> bool:  # without looking into all folders
        return any(map(os.path.isfile, glob.iglob(os.path.join(glob.escape(root), pattern))))

    left = [p for p in patterns if not is_seen(p)]
    for place, folders, names in os.walk(root, followlinks=True):
        if not left:
            break
        folders[:] = [n for n in folders if not _leads_back(os.path.join(place, n))]
        lead = os.path.relpath(place, root).replace(os.sep, "/")
        files = [n if lead == "." else f"{lead}/{n}" for n in names]
        left = [p for p in left if not any(matches(name, p) for name in files)]
    return left


def _leads_back(folder: str) -> bool:
    """Return whether a link leads to a folder that it is in."""
    return os.path.islink(folder) and os.path.abspath(folder).startswith(os.path.realpath(folder) + os.sep)

"""Reading reports that were written: as one JSON text or as lines, complete or not."""

import json
import os
from typing import Any

from ..base import schema
from ..base.errors import FormatError
from ..base.files import contents

_LARGEST = 1 << 30
_ERROR = schema.either(schema.number(finite=False))
_TEXT = schema.either(schema.text)
_OUTPUT = schema.record(
    {"name": schema.text, "verdict": schema.text, "max_error": _ERROR},
    {"maxerr": _ERROR, "policy": _TEXT},
)
_CASE = schema.record(
    {
        "testcase": schema.either(schema.integer(0, 2**32)),
        "verdict": schema.text,
        "seconds": schema.number(0.0),
        "outputs": schema.items(_OUTPUT),
    },
    {
        "engine": schema.text,
        "data_digest": _TEXT,
        "input_digest": schema.text,
        "inputs": schema.either(schema.mapping(schema.anything)),
    },
)
_ENGINE = schema.record(
    {},
    {
        "name": schema.text,
        **dict.fromkeys(("engine", "provider", "arithmetic", "way"), _TEXT),
        "options": schema.items(schema.text),
    },
)
_FILE = schema.record(
    {"file": schema.text, "testcases": schema.items(_CASE)},
    {
        "model_digest": _TEXT,
        "verdict": _TEXT,
        "load_seconds": schema.number(0.0),
        "engine": schema.either(_ENGINE),
        "engines": schema.items(_ENGINE),
    },
)
_REPORT = schema.record(
    {"files": schema.items(_FILE)}, {**dict.fromkeys(("started", "loadrun"), schema.text), "cut": _TEXT}
)
"""What of a report is looked at."""


def load_report(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a report from a file; see `read_report`.

    Raises:
        FormatError: it is none, or larger than any report.
        OSError: the file cannot be read.
    """
    if os.stat(path).st_size > _LARGEST:
        raise FormatError(f"{os.fspath(path)} is larger than any report ({_LARGEST} bytes)")
    return read_report(contents(path, "a report"), os.fspath(path))


def run_report(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a report of `loadrun --json` from a file, and check what of it is looked at; see `load_report`."""
    return checked_report(load_report(path), os.fspath(path))


def checked_report(data: object, path: str | None = None) -> dict[str, Any]:
    """Check what of a report of `loadrun --json` is looked at.

    Raises:
        FormatError: it is none.
    """
    try:
        return _REPORT(data, "the report")
    except FormatError as e:
        raise FormatError(f"this is not a report of `loadrun --json`: {e.message}", path=path) from None


def read_report(data: bytes, name: str) -> dict[str, Any]:
    """Read a report as data, JSON lines put together as if they had been written as one.

    Args:
        data: what the file holds.
        name: the file, for messages.

    Returns:
        the report; one of a run that did not come to its end has no ``exit_code`` but a sentence about that as ``cut``,
        and of its last file what there is.

    Raises:
        FormatError: it is no JSON, or no report.

    >>> lines = b'{"type": "start", "version": 2}\\n{"type": "file", "file": "a.mge"}\\n{"type": "resu'
    >>> read_report(lines, "r.jsonl")["files"]
    [{'file': 'a.mge', 'testcases': []}]
    """
    first = data[: data.find(b"\n") + 1]
    try:
        begin = json.loads(first) if first.strip() else None
    except (ValueError, RecursionError):
        begin = None
    if isinstance(begin, dict) and begin.get("type") == "start":
        return _together(data, begin)
    try:
        report = json.loads(data)
    except (ValueError, RecursionError):
        raise FormatError(f"{name} is not JSON text") from None
    if not isinstance(report, dict):
        raise FormatError(
            f"{name} holds a JSON {type(report).__name__}, expected the object that `loadrun --json` writes"
        )
    return report


def _together(data: bytes, begin: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = {**begin, "files": []}
    report.pop("type")
    for line in data.splitlines()[1:]:
        try:
            entry = json.loads(line)
            kind = entry.pop("type")
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            # The last line of a run that was killed may be cut short.
            break
        if kind == "file":
            report["files"].append({**entry, "testcases": []})
        elif kind == "result" and report["files"]:
            report["files"][-1]["testcases"].append(entry)
        elif kind == "file_end" and report["files"]:
            report["files"][-1].update(entry)
        elif kind in ("end", "interrupted"):
            report.update(entry)
    if "exit_code" not in report:
        report["cut"] = f"the run is incomplete: {report.get('message', 'its last line is missing')}"
    return report

"""The record of a file about its outputs.

MegEngine reads a graph and as many testcases as the header says and reads nothing after them. There are the
8 bytes of `MAGIC`, the length of the rest as u64, and one JSON object per line: the first about the file, then one for
every testcase in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import unpack_from
from typing import Any

from ..base.errors import FormatError, LoadRunError
from ..base.schema import number
from .policy import Policy, parse

__all__ = ["HEAD", "MAGIC", "header", "lines", "packed_policies", "record_at", "record_damage"]

MAGIC = b"loadrun\x01"
HEAD = 16
_LONGEST = 1 << 24


def record_at(data: memoryview) -> memoryview | None:
    """Return the record that some bytes begin with, whole, or None."""
    if len(data) < HEAD or bytes(data[:8]) != MAGIC:
        return None
    (length,) = unpack_from("<Q", data, 8)
    return data[: HEAD + length] if length <= len(data) - HEAD else None


def record_damage(data: memoryview) -> str | None:
    """Say what is wrong with bytes that begin like a record but that `record_at` refuses; None for other bytes."""
    head = bytes(data[:8])
    if not head or not MAGIC.startswith(head):
        return None
    if len(data) < HEAD:
        return f"the record after the testcases is cut off within its first {HEAD} bytes"
    (length,) = unpack_from("<Q", data, 8)
    if length <= len(data) - HEAD:
        return None
    return f"the record after the testcases claims {length} bytes, the file ends after {len(data) - HEAD}"


def lines(record: memoryview) -> Iterator[dict[str, Any]]:
    """Yield the objects of a record, one after another.

    Raises:
        FormatError: a line is not a JSON object.
    """
    import json  # for start-up

    at = HEAD
    while at < len(record):
        # Search in a window, so that only the line is copied.
        window = 1 << 12
        while (end := bytes(record[at : at + window]).find(b"\n")) < 0:
            if at + window >= len(record) or window > _LONGEST:
                raise FormatError("the record after the testcases is damaged: a line has no end")
            window *= 4
        try:
            line = json.loads(bytes(record[at : at + end]))
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            raise FormatError("the record after the testcases is damaged: a line is not a JSON object")
        yield line
        at += end + 1


def header(record: memoryview) -> dict[str, Any]:
    """Return the first object of a record, about the file."""
    for line in lines(record):
        return line
    raise FormatError("the record after the testcases is empty")


def packed_policies(record: object) -> tuple[dict[str, Policy], dict[str, float]]:
    """Return what a record says of the outputs: their policies, and the tolerances of checks that were loosened.

    A record that is damaged or says nothing of the kind gives none; `verify` is what looks at records.
    """
    policies: dict[str, Policy] = {}
    loosened: dict[str, float] = {}
    try:
        about = header(record) if isinstance(record, memoryview) else record
        entries = about.get("policy") if isinstance(about, Mapping) else None
        for name, said in entries.items() if isinstance(entries, Mapping) else ():
            if isinstance(said, Mapping) and isinstance(said.get("check"), str):
                policies[str(name)] = parse(str(said["check"]))
            before = said.get("loosened") if isinstance(said, Mapping) else None
            if isinstance(before, (int, float)):
                loosened[str(name)] = number(finite=False)(before, "loosened")
    except LoadRunError:
        return {}, {}
    return policies, loosened

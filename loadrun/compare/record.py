"""What loadrun adds to a dump: how it begins, and the record behind the testcases with its policies."""

from collections.abc import Iterator, Mapping
from struct import unpack_from
from typing import Any

from ..base import schema
from ..base.errors import FormatError, UsageError
from ..base.registry import late
from .policy import Policy, parse

with late(__name__):
    import json

MAGIC = b"loadrun\x01"
PROMISE_MAGIC = b"loadrun\x04"
"""What the end of a model begins with that a record must follow, whose digest comes next."""
PROMISE = 32
HEAD = 16
RECORD = 2
"""The version of records; the model in front of those of version 1 promises nothing."""
_LONGEST = 1 << 24
_WHERE = "the record after the testcases"
_POLICY = schema.exactly(
    {},
    {
        "maxerr": schema.number(finite=False),
        "verbose": schema.truth,
        "reason": schema.text,
        "check": schema.text,
        "loosened": schema.number(finite=False),
    },
)
ABOUT = schema.exactly(
    {"record": schema.integer(1, RECORD)},
    {
        "provenance": schema.mapping(schema.anything),
        "policy": schema.mapping(_POLICY),
        "model": schema.text,
        "inputs": schema.items(schema.text),
        "fixed_shapes": schema.mapping(schema.items(schema.either(schema.integer(0, 1 << 62)))),
        "dump": schema.integer(0, 1 << 31),
        "narrowed": schema.exactly({"asked": schema.truth, "dtypes": schema.mapping(schema.text)}),
        "integers": schema.items(schema.text),
        "accepted": schema.items(schema.mapping(schema.anything)),
        "not_proven": schema.items(schema.text),
    },
)
_TESTCASE = schema.exactly(
    {},
    {
        "digests": schema.mapping(schema.text),
        "provenance": schema.mapping(schema.anything),
    },
)


def record_at(data: memoryview) -> memoryview | None:
    """Return the record that some bytes begin with, whole, or None."""
    if len(data) < HEAD or bytes(data[:8]) != MAGIC:
        return None
    (length,) = unpack_from("<Q", data, 8)
    return data[: HEAD + length] if length <= len(data) - HEAD else None


def record_damage(data: memoryview) -> str | None:
    """Describe what is wrong with bytes that start like a record but are rejected by `record_at`; None for others."""
    head = bytes(data[:8])
    if not head or not MAGIC.startswith(head):
        return None
    if len(data) < HEAD:
        return f"{_WHERE} is cut off within its first {HEAD} bytes"
    (length,) = unpack_from("<Q", data, 8)
    if length <= len(data) - HEAD:
        return None
    return f"{_WHERE} claims {length} bytes, but the file ends after {len(data) - HEAD}"


def lines(record: memoryview) -> Iterator[dict[str, Any]]:
    """Yield the objects of a record, one after another.

    Raises:
        FormatError: a line is not a JSON object, or one with other members than loadrun writes.
    """
    at = HEAD
    number = 0
    while at < len(record):
        # Search in a window, so that only the line is copied.
        window = 1 << 12
        while (end := bytes(record[at : at + window]).find(b"\n")) < 0:
            if at + window >= len(record) or window > _LONGEST:
                raise FormatError(f"{_WHERE} is damaged: a line has no end")
            window *= 4
        try:
            line = json.loads(bytes(record[at : at + end]))
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            raise FormatError(f"{_WHERE} is damaged: a line is not a JSON object")
        yield _TESTCASE(line, f"{_WHERE}: testcase {number - 1}") if number else ABOUT(line, _WHERE)
        at += end + 1
        number += 1


def header(record: memoryview | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the first object of a record, about the file; one that is to be written is that object alone."""
    if not isinstance(record, memoryview):
        return record or {}
    for line in lines(record):
        return line
    raise FormatError(f"{_WHERE} is empty")


def packed_policies(
    record: memoryview | Mapping[str, Any] | None,
) -> tuple[dict[str, Policy], dict[str, float]]:
    """Return the policies of outputs in a record, and the original tolerances of loosened checks.

    Raises:
        FormatError: the record is damaged.
    """
    policies: dict[str, Policy] = {}
    loosened: dict[str, float] = {}
    for name, said in header(record).get("policy", {}).items():
        if "check" in said:
            try:
                policies[name] = parse(said["check"])
            except UsageError as e:
                raise FormatError(f"{_WHERE}: policy of {name!r}: {e}") from None
        if "loosened" in said:
            loosened[name] = float(said["loosened"])
    return policies, loosened

"""Packed files compared with the digests that they carry."""

from collections.abc import Iterator
from typing import Any

from ...base.errors import LoadRunError
from ...compare.record import lines
from ...dump.record import graph_digest, tensor_digest
from ...testcase import EXPECT, Bundle


def mismatches(bundle: Bundle, start: int = 0, stop: int | None = None) -> Iterator[str]:
    """Compare a file with the digests that it carries.

    A file without a record, which is every file that loadrun did not pack, has nothing to compare.

    Args:
        bundle: the file, as it was read.
        start, stop: the testcases that are compared, None for all from `start` on; the model is compared with the
            first.

    Yields:
        sentences, one for each difference.

    Raises:
        FormatError: the record is damaged.
    """
    if not isinstance(bundle.record, memoryview):
        return
    records = lines(bundle.record)
    about = next(records, {})
    total = len(bundle.testcases)
    if start == 0:
        if bundle.facts.trailing:
            yield f"{bundle.facts.trailing} bytes after the end belong to no part of the file"
        if about.get("model") != graph_digest(bundle.graph):
            yield "the model is not the one that was packed"
    count = 0
    for i, line in enumerate(records):
        count += 1
        if start <= i < (total if stop is None else stop):
            yield from (f"testcase {i}: {what}" for what in _changes(bundle, i, line))
    if start == 0 and count != total:
        yield f"{count} testcases were packed, the file has {total}"


def _changes(bundle: Bundle, number: int, line: dict[str, Any]) -> Iterator[str]:
    """Yield what differs in a testcase."""
    digests = line.get("digests", {})
    try:
        case = bundle.testcases[number]
    except LoadRunError as e:
        yield str(e)
        return
    for name in sorted({*digests, *case.arrays}):
        if name not in digests or name not in case.arrays:
            yield f"{_kind(name)} is {'missing' if name in digests else 'not recorded'}"
        elif digests[name] != tensor_digest(case.arrays[name], case.dtypes.get(name)):
            yield f"{_kind(name)} has changed"


def _kind(name: str) -> str:
    if name.endswith(EXPECT):
        return f"the expected value of {name[: -len(EXPECT)]!r}"
    return f"the input {name!r}"

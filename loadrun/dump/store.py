"""Writing files: a dump or a container with its testcases, whole or not at all, one testcase in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from struct import pack
from typing import Any, BinaryIO

from ..errors import FormatError, UsageError
from ..files import replacing
from ..graph import Graph
from ..testcase import Bundle, Testcase
from .container import MAGIC
from .options import DumpOptions, DumpResult, summary, update_strip_info
from .record import RecordWriter, moved
from .writer import dump_and_hash, dump_bytes, testcase_graph

__all__ = ["save"]

_MOST_TESTCASES = 2**32 - 1


def save(
    source: Graph | Bundle,
    target: str | os.PathLike[str] | BinaryIO,
    options: DumpOptions | None = None,
    *,
    format: str | None = None,
    testcases: Iterable[Testcase] | None = None,
) -> DumpResult:
    """Write a graph, or a bundle with its testcases, as a .mge file.

    The file appears under its name only when it is complete: it is written beside it, flushed and renamed,
    so that an interrupted write leaves the old file as it was (also when that is the mapped source).

    Args:
        source: what to write.
        target: the file, or an open binary file, which is written to from where it stands.
        options: how to write, see `DumpOptions`.
        format: "FBS_V2" or "FBS" (v1), default that of the options, then the graph's own.
        testcases: what to write instead of the bundle's testcases; each is asked for when it is written, so that
            their number does not matter to memory.

    Returns:
        the counts that MegEngine's ``trace.dump`` returns.

    Raises:
        FormatError: the graph cannot be expressed in the format, or is larger than it allows; a testcase lacks an
            input.
        UsageError: options that contradict one another or the target.
    """
    options = options or DumpOptions()
    if format is not None:
        if format not in ("FBS_V2", "FBS"):
            raise FormatError(f"format {format!r} is unknown; known are 'FBS_V2' and 'FBS'")
        options = DumpOptions(**{**vars(options), "dump_format": format})
    bundle = source if isinstance(source, Bundle) else Bundle(source)
    graph = options.apply(bundle.graph)
    with _opened(target, options.append) as file:
        content_hash, count = _write(file, bundle, graph, options.format_of(bundle.graph), testcases)
        if options.strip_info_file is not None:
            update_strip_info(graph, options.strip_info_file, content_hash, append=options.append_json)
    return summary(graph, file.total, content_hash, count)


class _Counted:
    """A file to write to that counts the bytes."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.total = 0
        self.tell: Callable[[], int] = file.tell

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.total += len(data)

    def seekable(self) -> bool:
        return bool(getattr(self.file, "seekable", lambda: False)())

    def patch(self, at: int, data: bytes) -> None:
        end = self.file.tell()
        self.file.seek(at)
        self.file.write(data)
        self.file.seek(end)


def _write(
    file: _Counted, bundle: Bundle, graph: Graph, kind: str, testcases: Iterable[Testcase] | None
) -> tuple[int, int]:
    """Write container, testcases and record; return the graph's hash and the number of testcases."""
    cases: Iterable[Testcase] = bundle.testcases if testcases is None else testcases
    known = len(cases) if isinstance(cases, Sized) else None
    container = bundle.is_container or testcases is not None or bool(known)
    head = file.tell() + len(MAGIC) if known is None else 0
    if container:
        if known is None and not file.seekable():
            raise UsageError(
                "the number of testcases must be known to write to a file that cannot be rewound"
            )
        file.write(MAGIC + pack("<I", known or 0))
    data, content_hash = dump_and_hash(graph, format=kind)
    file.write(data)
    del data
    record = RecordWriter(bundle.record, graph) if isinstance(bundle.record, Mapping) else None
    count = 0
    try:
        names = [v.name or "" for v in graph.inputs]
        for case in cases:
            made = testcase_graph(case, names)
            file.write(dump_bytes(made, format=kind))
            # Operators and variables hold one another; freed at once, thousands of them do not wait for a collection.
            for opr in made.oprs:
                opr.outputs.clear()
            if record is not None:
                record.add(case)
            count += 1
        if count > _MOST_TESTCASES:
            raise FormatError(f"a file holds at most {_MOST_TESTCASES} testcases")
        if container and known is None:
            file.patch(head, pack("<I", count))
        elif known is not None and count != known:
            raise FormatError(f"{known} testcases were announced, {count} came")
        if record is not None:
            for part in record.parts():
                file.write(part)
        elif bundle.record is not None and testcases is None:
            assert isinstance(bundle.record, memoryview)
            kept = (
                bytes(bundle.record) if graph is bundle.graph else moved(bundle.record, bundle.graph, graph)
            )
            file.write(kept)
    finally:
        if record is not None:
            record.close()
    return content_hash, count


@contextmanager
def _opened(target: str | os.PathLike[str] | BinaryIO, append: bool) -> Iterator[_Counted]:
    if not isinstance(target, (str, os.PathLike)):
        if append:
            raise UsageError(
                "append needs the name of a file; an open one is written to from where it stands"
            )
        yield _Counted(target)
        return
    with replacing(target, append=append) as f:
        yield _Counted(f)

"""Writing files: a dump or a container with its testcases, whole or not at all, one testcase in memory at a time.

A dump is put behind those that a file holds, and loadrun's records after the last of them all: readers that go by
lengths, from one dump to the next, meet nothing else in between.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from struct import pack
from typing import IO, BinaryIO

from ..base.errors import FormatError, InputError, LoadRunError, UsageError, UsageTypeError
from ..base.proving import LARGE, alone, level, sharing_time
from ..base.registry import late, resolve
from ..base.writing import replacing, temporary
from ..compare.record import PROMISE, record_at
from ..graph import Graph, StoredTensor
from ..graph.dtypes import Array
from ..passes.narrowing import narrowed
from ..testcase import Bundle, Testcase
from .container import MAGIC, load_all, mapped, promises, stored_tensors
from .narrowing import Narrowing, check_read_back, not_proven
from .options import DumpOptions, DumpResult, summary, update_strip_info
from .record import RecordWriter, digest_of, graph_digest, moved, numbered, promise
from .repeated import RepeatedWriter
from .writer import content_hash, dump_bytes, dump_pieces, tensors_graph, testcase_tensors

with late(__name__):
    from concurrent import futures


class ExistingFile:
    """The contents of a file to which a dump is appended.

    Attributes:
        dumps: the bytes of its dumps, which promise these records.
        records: the bytes of their records, each with the number of its dump.
        damaged: whether something else is in it.
    """

    def __init__(self, path: str) -> None:
        self.dumps: list[bytes | memoryview] = []
        self.records: list[bytes] = []
        self.damaged = False
        data, _, _ = mapped(path)
        at = 0
        for i, bundle in enumerate(load_all(path)):
            self.damaged |= bool(bundle.defects)
            dump: bytes | memoryview = data[at : at + bundle.facts.size]
            at += bundle.facts.size
            while (record := record_at(data[at:])) is not None:
                at += len(record)
            if isinstance(bundle.record, memoryview):
                self.records.append(numbered(bundle.record, i))
                dump = _promising(dump, bundle, self.records[-1])
            self.dumps.append(dump)

    @classmethod
    def of(cls, target: object) -> ExistingFile | None:
        """Read what a file holds; None if there is none, or where something but dumps and records is in it."""
        if not isinstance(target, (str, os.PathLike)) or not os.path.isfile(target):
            return None
        try:
            file = cls(os.fspath(target))
        except LoadRunError:
            return None
        return file if file.records and not file.damaged else None


def _promising(dump: bytes | memoryview, bundle: Bundle, record: bytes) -> bytes | memoryview:
    """Return a dump that promises another record; as it is where it promises none, as older ones do."""
    if bundle.facts.model is None or not promises(bundle.facts.model):
        return dump
    end = len(bundle.facts.model) + (len(MAGIC) + 4 if bundle.facts.is_container else 0)
    return b"".join((dump[: end - PROMISE], promise(digest_of([record])), dump[end:]))


_MOST_TESTCASES = 2**32 - 1
_LARGE = 2**24
"""Bytes of weights from which on a thread of its own hashes them."""


@sharing_time()
def save(
    source: Graph | Bundle,
    target: str | os.PathLike[str] | BinaryIO,
    options: DumpOptions | None = None,
    *,
    format: str | None = None,
    testcases: Iterable[Testcase] | None = None,
    inspect: Callable[[str], None] | None = None,
    made_of: Graph | None = None,
) -> DumpResult:
    """Write a graph, or a bundle with its testcases, as a .mge file.

    The file appears under its name only when it is complete: it is written beside it, flushed and renamed,
    so that an interrupted write leaves the old file as it was (also when that is the mapped source).

    Args:
        source: what to write.
        target: the file, or an open binary file, which is written to from where it stands.
        options: how to write, see `DumpOptions`.
        format: "FBS_V2" or "FBS" (v1), default that of the options, then the graph's own.
        testcases: what to write instead of the bundle's testcases; each is requested when it is written, so that
            their number does not matter to memory.
        inspect: called with the name of the complete file before it takes the target's place, or is written to an open
            file; what it raises leaves the target as it was.
        made_of: the graph before passes, with which the written one must agree (`loadrun.proof`); by default that of
            the source.

    Returns:
        the counts that MegEngine's ``trace.dump`` returns.

    Raises:
        FormatError: the graph cannot be expressed in the format, or is larger than it allows; a testcase lacks an
            input.
        ProofError: the graph that is written computes other numbers than the one that it was made of.
        UsageError: options that contradict one another or the target.
        UsageTypeError: something else than a graph or bundle, or no file to write to.

    >>> import io, loadrun
    >>> file = io.BytesIO()
    >>> save(loadrun.load("fixtures/nets/mlp.mge"), file, format="FBS").outputs
    ['out']
    >>> len(loadrun.loads(file.getvalue()).testcases)
    3
    """
    _check_types(source, target)
    options = options or DumpOptions()
    if format is not None:
        if format not in ("FBS_V2", "FBS"):
            raise FormatError(f"format {format!r} is unknown; expected 'FBS_V2' or 'FBS'")
        options = DumpOptions(**{**vars(options), "dump_format": format})
    bundle = source.lasting() if isinstance(source, Bundle) else Bundle(source)
    whole = bundle.graph
    narrowing = Narrowing.of(whole, options.narrow, bundle.scalars)
    extra: dict[str, object] = {}
    if narrowing is not None:
        converted = narrowing.cases(bundle.testcases if testcases is None else testcases)
        bundle = replace(bundle, graph=narrowing.written)
        if testcases is None:
            bundle.testcases = converted  # type: ignore[assignment]
        else:
            testcases = converted
        extra = narrowing.record
    graph, kind = options.apply(bundle.graph), options.format_of(bundle.graph)
    before = ExistingFile.of(target) if options.append else None
    first, testcases = _first(bundle, testcases)
    left = not_proven(_source(made_of or whole, options), graph, kind, first)
    read_back = level() != "none" and graph.stored_bytes > LARGE
    if read_back and not isinstance(target, (str, os.PathLike)):
        read_back, left = False, (*left, "its weights are too large to be read back")
    about = _about(bundle, graph, before, extra, left, kept=testcases is None)
    recorded = about is not None or (bundle.record is not None and testcases is None)
    # The digest of a record, which is known at the end, stands in front of it.
    beside = inspect is not None or (recorded and not _is_seekable(target))
    with _opened(target, options.append and before is None, beside=beside) as file:
        for dump in before.dumps if before is not None else ():
            file.file.write(dump)
        end = promise() if recorded else b""
        plan = _Dump(file, bundle, graph, kind, end)
        number, count = _write(plan, testcases, before, about, left)
        if read_back:
            file.file.flush()
            check_read_back(graph, load_all(file.file.name)[-1].graph)
        if inspect is not None and os.path.isfile(file.file.name):
            file.file.flush()
            inspect(file.file.name)
        if options.strip_info_file is not None:
            update_strip_info(graph, options.strip_info_file, number, append=options.append_json)
    return summary(graph, file.total, number, count)


def _check_types(source: object, target: object) -> None:
    if not isinstance(source, (Graph, Bundle)):
        raise UsageTypeError(
            f"save writes a Graph or a Bundle, found {type(source).__name__}; save_checkpoint writes state dicts"
        )
    if not isinstance(target, (str, os.PathLike)) and not callable(getattr(target, "write", None)):
        raise UsageTypeError(
            f"save writes to a path or to a file opened in binary mode, found {type(target).__name__}"
        )


def _source(made_of: Graph, options: DumpOptions) -> Graph:
    """Return what the written graph must agree with: where other values were asked for, the narrowed form."""
    return narrowed(made_of)[0] if options.narrow and made_of.exact else made_of


def _first(
    bundle: Bundle, testcases: Iterable[Testcase] | None
) -> tuple[Mapping[str, Array] | None, Iterable[Testcase] | None]:
    """Return the inputs of the first testcase, and the testcases with it."""
    if testcases is None or isinstance(testcases, Sequence):
        cases = bundle.testcases if testcases is None else testcases
        first = cases[0] if len(cases) else None
    else:
        rest = iter(testcases)
        first = next(rest, None)
        testcases = rest if first is None else chain([first], rest)
    return first.inputs if isinstance(first, Testcase) else None, testcases


class _Counted:
    """A file to write to that counts the bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.total = 0
        self.tell: Callable[[], int] = file.tell

    def write(self, data: bytes | memoryview) -> None:
        self.file.write(data)
        self.total += len(data)

    def written(self, data: bytes) -> bytes:
        """Write some bytes, and give them back."""
        self.write(data)
        return data

    def patch(self, at: int, data: bytes) -> None:
        end = self.file.tell()
        self.file.seek(at)
        self.file.write(data)
        self.file.seek(end)


@dataclass(frozen=True, eq=False)
class _Dump:
    """What is written, and where to."""

    file: _Counted
    bundle: Bundle
    graph: Graph
    kind: str
    end: bytes

    def write_graph(self, head: bytes, digest: Callable[[], str]) -> int:
        """Write the graph behind what its container begins with; return its hash."""
        pieces = dump_pieces(self.graph, format=self.kind, digest=digest, end=self.end)
        # What the format cannot store is told before anything is written.
        first = next(pieces)
        for piece in chain((head, first), pieces):
            self.file.write(piece)
        return content_hash(self.graph, digest) if self.kind == "FBS" else 0


def _write(
    dump: _Dump,
    testcases: Iterable[Testcase] | None,
    before: ExistingFile | None,
    about: Mapping[str, object] | None,
    left: Sequence[str],
) -> tuple[int, int]:
    """Write container, testcases and records; return the graph's hash and the number of testcases."""
    file, bundle, graph, kind = dump.file, dump.bundle, dump.graph, dump.kind
    cases: Iterable[Testcase] = bundle.testcases if testcases is None else testcases
    announced = len(cases) if isinstance(cases, Sized) else None
    container = bundle.facts.is_container or testcases is not None or bool(announced)
    if container and announced is None and not _is_seekable(file.file):
        raise UsageError("the number of testcases must be known to write to a file that cannot be rewound")
    head = MAGIC + pack("<I", announced or 0) if container else b""
    start = file.tell() if announced is None else 0
    with _digest(graph, needed=about is not None or kind == "FBS") as digest:
        number = dump.write_graph(head, digest)
    count_at = start + len(MAGIC)
    promised_at = file.tell() if dump.end else 0
    with _record(about, digest) as record:
        count = _write_testcases(file, cases, graph, kind, record)
        if container and announced is None:
            file.patch(count_at, pack("<I", count))
        elif count != announced:
            raise FormatError(f"{announced} testcases were announced, but {count} were written")
        for old_record in before.records if before is not None else ():
            file.file.write(old_record)
        if dump.end:
            parts = record.parts() if record is not None else [_kept_record(bundle, graph, before, left)]
            end = promise(digest_of(map(file.written, parts)))
            file.patch(promised_at - len(end), end)
    return number, count


def _is_seekable(target: object) -> bool:
    """Return whether one can go back in what is written to, as in every file that is named."""
    return isinstance(target, (str, os.PathLike)) or bool(getattr(target, "seekable", lambda: False)())


@contextmanager
def _digest(graph: Graph, *, needed: bool) -> Iterator[Callable[[], str]]:
    """Return what gives a graph's digest; where it is needed, large weights are hashed while the block runs."""
    size = graph.stored_bytes if needed else 0
    if size < _LARGE:
        yield cache(partial(graph_digest, graph))
        return

    with futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(graph_digest, graph).result


def _about(
    bundle: Bundle,
    graph: Graph,
    before: ExistingFile | None,
    extra: Mapping[str, object],
    left: Sequence[str],
    *,
    kept: bool,
) -> Mapping[str, object] | None:
    """Return what a new record says of the file, None if there is nothing to say or the bundle has one that is kept."""
    number = {} if before is None else {"dump": len(before.dumps)}
    facts = {**_facts(graph), **extra}
    if graph.integers:
        facts["integers"] = graph.integers
    about = bundle.record
    known = about.get("not_proven") if isinstance(about, Mapping) else None
    if left and not (isinstance(about, memoryview) and kept):
        facts["not_proven"] = [*dict.fromkeys((*(known if isinstance(known, list) else ()), *left))]
    if facts and not isinstance(about, Mapping) and not (kept and about is not None):
        about = {"record": 1}
    return {**about, **number, **facts} if isinstance(about, Mapping) else None


@contextmanager
def _record(about: Mapping[str, object] | None, digest: Callable[[], str]) -> Iterator[RecordWriter | None]:
    """Return what writes a new record, None if there is to be none."""
    record = RecordWriter(about, digest()) if about is not None else None
    try:
        yield record
    finally:
        if record is not None:
            record.close()


def _facts(graph: Graph) -> dict[str, object]:
    """Return what the record says of the inputs: their order, where it is not by name, and fixed sizes."""
    names = [v.name or "" for v in Bundle(graph).inputs]
    by_name = [v.name or "" for v in graph.inputs if v.name in set(names)]
    fixed = {n: graph.fixed_shapes[n] for n in names if n in graph.fixed_shapes}
    return ({} if names == by_name else {"inputs": names}) | ({"fixed_shapes": fixed} if fixed else {})


def _kept_record(bundle: Bundle, graph: Graph, before: ExistingFile | None, left: Sequence[str]) -> bytes:
    assert isinstance(bundle.record, memoryview)
    kept = moved(bundle.record, bundle.graph, graph, left)
    return kept if before is None else numbered(memoryview(kept), len(before.dumps))


def _write_testcases(
    file: _Counted,
    cases: Iterable[Testcase],
    graph: Graph,
    kind: str,
    record: RecordWriter | None,
) -> int:
    """Write testcases one by one, and tell the record of each; return how many there were."""
    names = [v.name or "" for v in graph.inputs]
    count = 0
    writer = RepeatedWriter(partial(_built, kind), stored_tensors)
    for case in cases:
        if not isinstance(case, Testcase):
            raise UsageTypeError(f"testcase {count} must be a Testcase, found {type(case).__name__}")
        for name, why in case.faults.items():
            raise InputError(
                f"testcase {count} fails whatever {name!r} is, and would no longer do so in this file: {why}; "
                "repair the testcase, or let `loadrun accept` replace the value"
            )
        file.write(writer.write(testcase_tensors(case, names)))
        if record is not None:
            record.add(case)
        count += 1
    if count > _MOST_TESTCASES:
        raise FormatError(f"a file holds at most {_MOST_TESTCASES} testcases")
    return count


def _built(kind: str, tensors: Sequence[StoredTensor]) -> bytes:
    """Return the bytes of one testcase."""
    graph = tensors_graph(tensors)
    data = dump_bytes(graph, format=kind)
    # Operators and variables hold one another; freed at once, thousands of them do not wait for a collection.
    for opr in graph.oprs:
        opr.outputs.clear()
    return data


@contextmanager
def _opened(target: str | os.PathLike[str] | BinaryIO, append: bool, *, beside: bool) -> Iterator[_Counted]:
    """Open what to write to: a file that takes the target's place, or an open file from where it stands.

    Args:
        target, append: see `save`; MegEngine's ``append`` says nothing of open files, either.
        beside: whether an open file gets everything at the end.
    """
    if isinstance(target, (str, os.PathLike)):
        with replacing(target, append=append) as f:
            yield _Counted(f)
    elif beside:
        with temporary() as f:
            yield _Counted(f)
            f.seek(0)
            while piece := f.read(1 << 20):
                target.write(piece)
    else:
        yield _Counted(target)


def save_as(bundle: Bundle, target: str | os.PathLike[str]) -> None:
    """Write a bundle that fails in the format that the ending names: an ONNX model with its data sets, or a dump.

    Raises:
        LoadRunError: it cannot be written so.
    """
    with alone():
        if os.fspath(target).lower().endswith(".onnx"):
            resolve("loadrun.onnx.exporting:export")(bundle, f=target)
        else:
            save(bundle, target)

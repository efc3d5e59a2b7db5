"""The file as a whole: testcase container, plain dumps, appended dumps; mapping a file into memory."""

import gc
import os
from array import array
from collections.abc import Mapping, Sequence
from struct import unpack_from
from types import ModuleType
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np

from ..base.errors import FormatError, UsageError
from ..base.files import FileWatch, mapped_file, one_file
from ..base.registry import late, resolve
from ..compare.record import (
    PROMISE,
    PROMISE_MAGIC,
    header,
    packed_policies,
    record_at,
    record_damage,
)
from ..graph import Graph, StoredTensor
from ..testcase import Bundle, FileFacts, LazyTestcases, Testcase

with late(__name__):
    from . import history, record as dump_record, repeated, v1, v2

MAGIC = b"mgbtest0"
_KNOWN_MGE_VERSION, _KNOWN_MODEL_VERSION = 101304, 2

_PIECE = 1 << 20
"""Bytes compared at once."""
_ZIP = b"PK\x03\x04"


@runtime_checkable
class SerializableModel(Protocol):
    """A message of protobuf, such as a ModelProto of the package onnx."""

    def SerializeToString(self) -> bytes:
        """Return its bytes."""


_FOREIGN = (
    (_ZIP, "a zip archive (.npz, .pt and .zip files begin so)"),
    *((bytes((0x80, n)), "a Python pickle; loadrun.megengine.load reads checkpoints") for n in (2, 3, 4, 5)),
    (b"\x93NUMPY", "a .npy array; give it as --input NAME:FILE"),
    (b"\x89PNG", "a PNG image; give it as --input NAME:FILE"),
    (b"\xff\xd8\xff", "a JPEG image; give it as --input NAME:FILE"),
    (b"\x1f\x8b", "gzip data; unpack it first"),
    (b"\x89HDF", "an HDF5 file"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the real file with `git lfs pull`"),
)


def load(
    source: str | os.PathLike[str] | BinaryIO | bytes | SerializableModel,
    *,
    copy: bool = False,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    test_data: str | os.PathLike[str] | None = None,
    native: bool = False,
) -> Bundle:
    """Read the first dump of a .mge file, or an ONNX model.

    The file is mapped, not read: weights stay views of it until they are used. A file system that cannot map is
    read into memory instead. Loading runs no code. A dump leads to no other file; an ONNX model may
    hold its weights in files inside its folder, and folders ``NAME.test_data_set_N`` beside it, or else
    ``test_data_set_N``, are its testcases.

    Whoever cuts a mapped file short while it is read kills the process. A change is noticed before each run and each
    testcase, but not within them: where others write to the file, take a copy.

    Args:
        source: the path of a regular file, an open binary file (read to its end), the bytes themselves, or a ModelProto
            of the package onnx.
        copy: read the file, and those with its weights, into memory now, so that what happens to them later does not
            matter.
        input_shapes: shapes of an ONNX model's inputs by name, where the file leaves sizes open and no data tell them;
            a graph is made for each set of sizes that is fed (`Bundle.for_data`).
        constants: values of an ONNX model's inputs that are to be constants, such as axes and sizes.
        test_data: a folder of an ONNX model's test data, instead of the folders beside it; or a .mge file that was
            packed from it, whose testcases engines replay that run the model's own file.
        native: read an ONNX model for an engine that runs the file as it is: where nodes cannot be expressed, the
            bundle has the inputs, the testcases and the reason (`Bundle.refusal`).

    Raises:
        FormatError: the bytes are neither a MegEngine dump nor an ONNX model; the message names the offset and the
            broken rule. Testcases are read on demand and raise it then.
        UnsupportedError: an ONNX model holds nodes that cannot be expressed; the text lists all of them.
        UsageError: one of the last three arguments is given for a dump, or names what the model lacks.
        OSError: the file cannot be opened or read.

    >>> import loadrun
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> [v.name for v in bundle.inputs], [*bundle.outputs], len(bundle.testcases)
    (['data'], ['out'], 3)
    """
    read: dict[str, Any] = {"input_shapes": input_shapes, "constants": constants, "test_data": test_data}
    return load_all(source, copy=copy, native=native, **read)[0]


def loads(data: bytes) -> Bundle:
    """Read the first dump in some bytes.

    >>> import loadrun
    >>> from pathlib import Path
    >>> len(loadrun.loads(Path("fixtures/nets/mlp.mge").read_bytes()).testcases)
    3
    """
    return load_all(data)[0]


def load_all(
    source: str | os.PathLike[str] | BinaryIO | bytes | SerializableModel,
    *,
    copy: bool = False,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    test_data: str | os.PathLike[str] | None = None,
    native: bool = False,
    like: Bundle | None = None,
) -> list[Bundle]:
    """Read all dumps of a file: `trace.dump(append=True)` writes them one behind the other; see `load`.

    Args:
        like: a bundle that was loaded before: a dump of the same model, byte for byte, shares its graph.

    >>> import loadrun
    >>> len(loadrun.load_all("fixtures/nets/mlp.mge"))
    1
    """
    data, path, watch = mapped(source, copy)
    if _is_onnx(data, path):
        read: dict[str, Any] = {"input_shapes": input_shapes, "constants": constants, "test_data": test_data}
        bundle = _load_onnx(data, path, native=native, copy=copy, **read)
        if watch is not None:
            bundle.facts.watches += (watch,)
        return [bundle]
    if path.lower().endswith(".pt2") and bytes(data[:4]) == _ZIP:
        program: Bundle = resolve("loadrun.torch.program:load_program")(data, path, native=native)
        program.facts.watches = () if watch is None else (watch,)
        return [program]
    if input_shapes or constants or test_data is not None:
        raise UsageError(f"{path}: input shapes, constants and test data apply to ONNX models only")
    return _load_all(data, path, watch, like)


def load_dump(name: str | os.PathLike[str], number: int | None = None, **read: Any) -> Bundle:
    """Load one dump of a file.

    Args:
        name: the file, or a pattern or folder that stands for one.
        number: which dump, from 1; None for the only one.
        read: options of `loadrun.load` for an ONNX model: input_shapes, constants, test_data.

    Raises:
        UsageError: the file holds several and none is chosen, or it holds fewer.
    """
    path = one_file(os.fspath(name))
    dumps = load_all(path, **read)
    if number is None and len(dumps) > 1:
        raise UsageError(f"{path} holds {len(dumps)} dumps; choose one with --dump N, counted from 1")
    if number is not None and not 1 <= number <= len(dumps):
        raise UsageError(f"{path} holds dumps 1 to {len(dumps)}, found --dump {number}")
    return dumps[(number or 1) - 1]


def _is_onnx(data: memoryview, path: str) -> bool:
    """Return whether a file is an ONNX model: by its content, or by its name where that is nothing known."""
    head = bytes(data[:32])
    if _kind(data) is not None or any(head.startswith(magic) for magic, _ in _FOREIGN):
        return False
    if path.lower().endswith(".onnx") and len(data) > 0:
        return True
    # Only what neither MegEngine nor any other known kind of file begins with comes here.
    return bool(resolve("loadrun.onnx.messages:looks_like")(data))


def _load_onnx(*args: object, **options: Any) -> Bundle:
    """Read an ONNX model; see `loadrun.onnx.loading.load_model`."""
    load_model = resolve("loadrun.onnx.loading:load_model")
    try:
        bundle: Bundle = load_model(*args, **options)
    except FormatError as e:
        if "ONNX" in e.message:
            raise
        raise FormatError(
            f"it looks like an ONNX model, but {e.message}", offset=e.offset, path=e.path
        ) from e
    return bundle


def _load_all(data: memoryview, path: str, watch: FileWatch | None, like: Bundle | None) -> list[Bundle]:
    try:
        bundles = [_read_version(data, 0, path, like)]
        end, surplus = bundles[0].facts.size, 0
        while end < len(data):
            if taken := _take_record(data[end:], bundles):
                end += taken
                continue
            if _kind(data[end:]) is None:
                break
            try:
                behind = _read_version(data, end, path)
            except FormatError as e:
                # MegEngine ignores whatever follows a graph, so a broken tail is no error.
                bundles[0].facts.tail.append(f"the data after the last dump cannot be read: {e.message}")
                break
            end += behind.facts.size
            if _is_testcase_of(bundles[-1], behind.graph):
                surplus += 1
            else:
                bundles.append(behind)
        if surplus:
            said = (
                f"the header claims {len(bundles[0].testcases)} testcase(s), {surplus} more are not replayed"
            )
            bundles[0].facts.tail.append(said)
            bundles[0].facts.missed.append(said)
        bundles[0].facts.trailing = len(data) - end
        if bundles[0].facts.trailing:
            said = f"{bundles[0].facts.trailing} bytes at the end belong to no dump and are ignored"
            bundles[0].facts.tail.append(said)
        for bundle in bundles:
            damage = record_damage(data[end:]) if bundle is bundles[-1] else None
            if damage is not None or bundle.record is not None or promises(bundle.facts.model):
                dump_record.require_promised(bundle, damage)
            shared = like.facts.watches if like is not None and bundle.graph is like.graph else ()
            bundle.facts.watches = shared if watch is None else (watch, *shared)
            if isinstance(bundle.testcases, LazyTestcases):
                bundle.testcases.before = bundle.require_unchanged
    except FormatError as e:
        e.path = path
        raise
    return bundles


def _take_record(data: memoryview, bundles: list[Bundle]) -> int:
    """Give a dump the record that some bytes begin with; return how many bytes it takes, 0 if there is none."""
    record = record_at(data)
    if record is None or (owner := _owner(record, bundles)) is None:
        return 0
    owner.record = record
    # A policy that cannot be read is told by whatever reads the file.
    packed_policies(record)

    dump_record.take_facts(record, owner.graph)
    owner.facts.warnings += dump_record.narrowings(record)
    owner.facts.warnings += [f"not proven: {text}" for text in header(record).get("not_proven", ())]
    return len(record)


def _owner(record: memoryview, bundles: list[Bundle]) -> Bundle | None:
    """Find the dump that a record is about: the one it names, else the last so far; None if that has one."""
    number = header(record).get("dump", len(bundles) - 1)
    bundle = bundles[number if number < len(bundles) else -1]
    return bundle if bundle.record is None else None


def promises(model: memoryview | None) -> bool:
    """Return whether a model ends with the promise of a record."""
    return model is not None and bytes(model[-PROMISE:]).startswith(PROMISE_MAGIC)


def _is_testcase_of(bundle: Bundle, graph: Graph) -> bool:
    """Return whether a graph is one more testcase of what precedes it: stored tensors alone, one per input."""
    if (
        not bundle.facts.is_container
        or bundle.record is not None
        or len(graph.outputs) != len(bundle.graph.inputs)
    ):
        return False
    return bool(graph.outputs) and all(o.tensors and o.type != "Host2DeviceCopy" for o in graph.oprs)


def mapped(
    source: str | os.PathLike[str] | BinaryIO | bytes | SerializableModel, copy: bool = False
) -> tuple[memoryview, str, FileWatch | None]:
    """Map the bytes of a source where possible; return them, its name, and what tells whether they changed."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(source).cast("B").toreadonly(), "<bytes>", None
    if isinstance(source, SerializableModel):
        return memoryview(source.SerializeToString()), "<bytes>", None
    if not isinstance(source, (str, os.PathLike)):
        content = source.read() if hasattr(source, "read") else None
        if not isinstance(content, (bytes, bytearray, memoryview)):
            kind = (
                "a file opened as text"
                if isinstance(content, str)
                else f"an object of type {type(source).__name__}"
            )
            raise UsageError(
                f"a model is given as a path, as bytes or as a file opened in binary mode; found {kind}"
            )
        return memoryview(content).toreadonly(), str(getattr(source, "name", "<stream>")), None
    path = os.fspath(source)
    data, watch = mapped_file(path, "a .mge file", copy)
    return data, path, watch


def _kind(data: memoryview) -> str | None:
    head = bytes(data[:12])
    if head[:8] == MAGIC:
        return "container"
    if head[:4] == b"MGBC" and not any(head[4:8]):
        return "v1"
    if head[8:12] == b"mgv2":
        return "v2"
    return "v1" if head[:4] == b"MGBS" else None


def _read_version(data: memoryview, base: int, path: str, like: Bundle | None = None) -> Bundle:
    here = data[base:]
    if len(here) == 0:
        raise FormatError("the file is empty")
    if _kind(here) != "container":
        model = here[: _size(here, base)]
        facts = FileFacts(len(model), model=model)
        return _finish(Bundle(_graph(model, base, like), path=path, facts=facts))
    if len(here) < 12:
        raise FormatError(f"a testcase file takes at least 12 bytes, found {len(here)}", offset=base)
    (count,) = unpack_from("<I", here, 8)
    pos = 12
    model = here[pos : pos + _size(here[pos:], base + pos)]
    graph = _graph(model, base + pos, like)
    pos += len(model)
    # Eight bytes a testcase are all that a file of many keeps in memory.
    edges = array("Q", [pos])
    for i in range(count):
        if pos >= len(here):
            raise FormatError(
                f"the header claims {count} testcases, but the file ends after {i}", offset=base + pos
            )
        pos += _size(here[pos:], base + pos)
        edges.append(pos)
    bundle = _finish(Bundle(graph, path=path, facts=FileFacts(pos, is_container=True, model=model)))
    names = [v.name or "" for v in graph.inputs]

    reader = repeated.Reader()

    def read(i: int) -> Testcase:
        def parse(data: memoryview) -> list[StoredTensor]:
            return _tensors(data, base + edges[i], i, names, path)

        tensors = reader.read(here[edges[i] : edges[i + 1]], parse)
        pairs = list(zip(names, tensors, strict=True))
        return Testcase({n: t.value() for n, t in pairs}, {n: t.dtype for n, t in pairs})

    bundle.testcases = LazyTestcases(read, range(count))
    return bundle


def _finish(bundle: Bundle) -> Bundle:
    """Name what has no name and collect what MegEngine only warns of."""
    graph = bundle.graph
    for opr in graph.oprs:
        if opr.type == "Host2DeviceCopy" and not opr.outputs[0].name:
            opr.outputs[0].name = f"h2d[{opr.outputs[0].id}]"
    seen: set[str | None] = set()
    for var in graph.inputs:
        if var.name in seen:
            raise FormatError(
                f"two graph inputs share the name {var.name!r}, so a testcase cannot tell them apart"
            )
        seen.add(var.name)
    header = graph.header
    if header.mge_version > _KNOWN_MGE_VERSION:
        bundle.warnings.append(
            f"written by MegEngine {history.release(header.mge_version)}, newer than any known release"
        )
    if header.format == "FBS_V2" and header.model_version > _KNOWN_MODEL_VERSION:
        bundle.warnings.append(f"model version {header.model_version} is newer than {_KNOWN_MODEL_VERSION}")
    return bundle


def _graph(data: memoryview, base: int, like: Bundle | None = None) -> Graph:
    if like is not None and _shares(like, data):
        like.graph.input_order, like.graph.fixed_shapes, like.graph.integers = (), {}, ()
        return like.graph
    reader = _reader(data, base)
    # Reading makes many objects and no garbage, so a collection in between only costs time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        graph: Graph = reader.read(data, base)
        return graph
    finally:
        if collecting:
            gc.enable()


def _shares(like: Bundle, data: memoryview) -> bool:
    """Return whether the bytes of a dump are those of another's model, whose file is still as it was."""
    if (
        like.facts.model is None
        or len(like.facts.model) != len(data)
        or any(w.changed() for w in like.facts.watches)
    ):
        return False
    # Which record follows is not the model's.
    end = len(data) - (PROMISE if promises(data) and promises(like.facts.model) else 0)
    a, b = np.frombuffer(like.facts.model[:end], np.uint8), np.frombuffer(data[:end], np.uint8)
    return all(np.array_equal(a[i : i + _PIECE], b[i : i + _PIECE]) for i in range(0, end, _PIECE))


def stored_tensors(data: memoryview) -> list[StoredTensor]:
    """List the tensors that a graph of constants holds, as views of its bytes."""
    return [v.owner.tensors[v.index] for v in _graph(data, 0).outputs]


def _size(data: memoryview, base: int) -> int:
    return int(_reader(data, base).size(data, base))


def _reader(data: memoryview, base: int) -> ModuleType:
    """Import the reader of the version; a replay needs one of them, or none."""
    if _require_kind(data, base) == "v2":
        return v2

    return v1


def _require_kind(data: memoryview, base: int) -> str:
    kind = _kind(data)
    if kind in ("v1", "v2"):
        return str(kind)
    head = bytes(data[:16])
    if head[4:8] == b"ORTM":
        raise FormatError(
            "expected a MegEngine dump, found ONNX Runtime's own format (.ort); give the .onnx file it was made of",
            offset=0,
        )
    for magic, what in _FOREIGN:
        if base == 0 and head.startswith(magic[:16]):
            raise FormatError(f"expected a MegEngine dump, found {what}", offset=0)
    raise FormatError(
        f"expected a MegEngine dump (mgbtest0, MGBC, MGBS, or mgv2 at byte 8), found {head!r}", offset=base
    )


def _tensors(data: memoryview, base: int, index: int, names: list[str], path: str) -> list[StoredTensor]:
    """Read the values of a testcase, one for each graph input."""
    try:
        graph = _graph(data, base)
        if len(graph.outputs) != len(names):
            raise FormatError(
                f"testcase {index} holds {len(graph.outputs)} tensors, expected {len(names)}, one for each input: "
                + ", ".join(names),
                offset=base,
            )
        tensors = []
        for var in graph.outputs:
            if not var.owner.tensors or var.owner.type == "Host2DeviceCopy":
                raise FormatError(
                    f"testcase {index} holds the operator {var.owner.type}; only stored tensors are allowed",
                    offset=base,
                )
            tensors.append(var.owner.tensors[var.index])
    except FormatError as e:
        e.path = path
        raise
    return tensors

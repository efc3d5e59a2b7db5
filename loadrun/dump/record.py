"""The record that loadrun keeps behind a file's testcases: policies, where they come from, digests of every tensor.

MegEngine reads a graph and as many testcases as the header says and looks at nothing after them. There stand the
8 bytes of `MAGIC`, the length of the rest as u64, and one JSON object a line: the first about the file, then one for
every testcase in order.

The model in front of the testcases promises it: the last bytes of its FlatBuffer, which nothing in it points to, are
the 8 bytes of `PROMISE_MAGIC` and a digest of the record, so that a record which is damaged or missing is told.
"""

from collections.abc import Iterable, Iterator, Mapping
from struct import pack
from typing import Any

import numpy as np

from ..base.errors import FormatError, LoadRunError
from ..base.registry import late
from ..base.writing import scratch
from ..compare.record import HEAD, MAGIC, PROMISE, PROMISE_MAGIC, RECORD, header, lines
from ..graph import Graph
from ..graph.composite import Composite, GraphAttribute, TensorAttribute
from ..graph.dtypes import Array, DType, dtype_of, encode
from ..graph.params import AxisDesc, Record
from ..testcase import EXPECT, Bundle, Testcase

with late(__name__):
    import hashlib
    import json

_DIGEST = PROMISE - len(PROMISE_MAGIC)


def digest_of(record: Iterable[bytes | memoryview]) -> bytes:
    """Hash the bytes of a record, given piece by piece."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in record:
        digest.update(part)
    return digest.digest()


def promise(digest: bytes = bytes(_DIGEST)) -> bytes:
    """Return the end of a model that a record of this digest follows."""
    return PROMISE_MAGIC + digest


def require_promised(bundle: Bundle, damage: str | None) -> None:
    """Check that a dump has the record that its model promises, and that a record was promised.

    Args:
        bundle: the dump, as it was read.
        damage: what is wrong with the bytes where its record should be.

    Raises:
        FormatError: the record is damaged, cut off or missing, or the promise is.
    """
    assert bundle.facts.model is not None
    record, end = bundle.record, bytes(bundle.facts.model[-PROMISE:])
    promised = end.startswith(PROMISE_MAGIC)
    why = None
    if not isinstance(record, memoryview):
        why = damage or "the record after the testcases, which the model promises, is missing"
    elif promised and end != promise(digest_of([record])):
        why = "the record after the testcases does not have the digest that the model promises"
    elif not promised:
        # No digest covers what older versions wrote, so that every line is looked at.
        about, *_ = lines(record)
        if about["record"] == RECORD:
            why = "the model does not promise the record after the testcases, as it did when it was written"
    if why is not None:
        raise FormatError(
            f"{why}; the file was cut or changed after it was written, so that what its outputs must fulfil is not "
            "known: restore it, or pack it anew"
        )


def take_facts(record: memoryview, graph: Graph) -> None:
    """Give a graph what a record says of its inputs: their order, fixed sizes, and which are narrowed integers."""
    about = header(record)
    graph.input_order, graph.integers = (tuple(about.get(key, ())) for key in ("inputs", "integers"))
    graph.fixed_shapes = {name: tuple(shape) for name, shape in about.get("fixed_shapes", {}).items()}


def provenances(record: object) -> Iterator[Mapping[str, object]]:
    """Yield where each testcase of a file comes from, as far as its record tells."""
    if not isinstance(record, memoryview):
        return
    entries = lines(record)
    common = next(entries).get("provenance", {})
    for line in entries:
        yield line.get("provenance", common)


def narrowings(record: memoryview) -> list[str]:
    """Return what a record says of dtypes that were narrowed although that changes values, as sentences."""
    entry = header(record).get("narrowed")
    if entry is None or not entry["asked"]:
        return []
    pairs = ", ".join(f"{wide} as {narrow}" for wide, narrow in entry["dtypes"].items())
    return [f"narrowed on writing, as --narrow requests: {pairs}; values may differ from those of the model"]


def moved(record: memoryview, old: Graph, new: Graph, left: Iterable[str] = ()) -> bytes:
    """Rewrite a record for the rewritten form of a graph.

    Its digest replaces the old one, if that is right, and what was left without a proof is added.
    """
    about = dict(header(record))
    if left:
        about["not_proven"] = [*dict.fromkeys((*about.get("not_proven", ()), *left))]
    if new is not old and about.get("model") == graph_digest(old):
        about["model"] = graph_digest(new)
    return _headed(record, {**about, "record": RECORD})


def numbered(record: memoryview, number: int) -> bytes:
    """Say in a record which dump of its file it is about."""
    return _headed(record, {**header(record), "dump": number})


def _headed(record: memoryview, about: Mapping[str, object]) -> bytes:
    """Give a record another first line."""
    rest = bytes(record[HEAD:])
    body = json.dumps(about, separators=(",", ":")).encode() + rest[rest.index(b"\n") :]
    return MAGIC + pack("<Q", len(body)) + body


def tensor_digest(value: Array, dtype: DType | None = None) -> str:
    """Hash dtype, shape and bytes.

    >>> tensor_digest(np.zeros(2, "f4")) == tensor_digest(np.zeros((2, 1), "f4"))
    False
    """
    dtype = dtype or dtype_of(value)
    digest = hashlib.blake2b(f"{dtype} {list(value.shape or (1,))}".encode(), digest_size=16)
    digest.update(encode(value, dtype).data)
    return digest.hexdigest()


def graph_digest(graph: Graph) -> str:
    """Hash what a graph computes: operators, parameters, stored tensors and outputs, in either format.

    Names of variables and operators do not count, those of inputs do.
    """
    numbers = {id(v): i for i, v in enumerate(graph.vars())}
    digest = hashlib.blake2b(digest_size=16)
    for opr in graph.oprs:
        ins = [numbers[id(v)] for v in opr.inputs]
        params = tuple(map(as_read_back, opr.params))
        for value in (v for p in params if isinstance(p, Composite) for v in p.attributes.values()):
            digest.update(_of_attribute(value))
        digest.update(f"{opr.type} {ins} {len(opr.outputs)} {params!r} {opr.output_dtype}\n".encode())
        for tensor in opr.tensors:
            name = tensor.name if opr.type == "Host2DeviceCopy" else ""
            digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode("utf-8", "surrogateescape"))
            if tensor.data is not None:
                digest.update(np.ascontiguousarray(tensor.data).data)
            elif opr.type != "Host2DeviceCopy":
                digest.update(_of_attribute(TensorAttribute(tensor.value(), tensor.dtype)))
    digest.update(f"{[numbers[id(v)] for v in graph.outputs]}".encode())
    return digest.hexdigest()


def _of_attribute(value: Any) -> bytes:  # noqa: ANN401 - of any type
    """Return what identifies the value of an attribute: of a graph its digest, of a tensor its elements."""
    if isinstance(value, TensorAttribute):
        whole = value.value.dtype == object
        return repr(value.value.tolist()).encode() if whole else np.ascontiguousarray(value.value).tobytes()
    said = graph_digest(value.graph) if isinstance(value, GraphAttribute) else repr(value)
    return said.encode("utf-8", "backslashreplace")


def as_read_back(param: Record) -> Record:
    """Return a parameter record as a file gives it back: 32 bits of most numbers, steps as plain numbers."""
    stored: dict[str, object] = {}
    if isinstance(param, Composite):
        return param
    for f, (_, value) in zip(param.fields(), param.pairs(), strict=True):
        if f.wire == "float" and value != f.default:
            stored[f.name] = float(np.float32(value))
        elif f.wire == "[AxisDesc]":
            stored[f.name] = tuple(AxisDesc(int(step.method), int(step.axis)) for step in value)
    return param.replace(**stored) if stored else param


def mismatches(bundle: Bundle, *, testcases: bool = True) -> Iterator[str]:
    """Compare a file with the digests that it carries.

    A file without a record, which is every file that loadrun did not pack, has nothing to compare.

    Args:
        bundle: the file, as it was read.
        testcases: whether they are compared as well as the model.

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
    if bundle.facts.trailing:
        yield f"{bundle.facts.trailing} bytes after the end belong to no part of the file"
    if about.get("model") != graph_digest(bundle.graph):
        yield "the model is not the one that was packed"
    count = 0
    for i, line in enumerate(records):
        count += 1
        if testcases and i < total:
            yield from (f"testcase {i}: {what}" for what in _changes(bundle, i, line))
    if count != total:
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


class RecordWriter:
    """Collects a record while testcases are written, outside of memory.

    Args:
        about: what to say about the file; its "provenance" is taken as that of every testcase without its own.
        model: digest of the graph of the file.
    """

    def __init__(self, about: Mapping[str, object], model: str) -> None:
        self.provenance = about.get("provenance")
        self.file = scratch()
        self._line({**about, "record": RECORD, "model": model})

    def add(self, case: Testcase) -> None:
        """Note a testcase."""
        line: dict[str, object] = {
            "digests": {n: tensor_digest(a, case.dtypes.get(n)) for n, a in case.arrays.items()}
        }
        if case.provenance and dict(case.provenance) != self.provenance:
            line["provenance"] = dict(case.provenance)
        self._line(line)

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes of the record, piece by piece."""
        length = self.file.tell()
        self.file.seek(0)
        yield MAGIC + pack("<Q", length)
        while part := self.file.read(1 << 20):
            yield part

    def close(self) -> None:
        """Delete the temporary file."""
        self.file.close()

    def _line(self, value: Mapping[str, object]) -> None:
        self.file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
